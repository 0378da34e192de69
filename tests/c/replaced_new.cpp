// A program that replaces the basic operators gets calls from every other form, as with libstdc++.
// expect: exit 0
// harden: too
// build: g++
// build: g++ -rdynamic
#include "check.h"
#include <cstdlib>
#include <new>
#pragma GCC diagnostic ignored "-Wsized-deallocation"

static int news = 0, deletes = 0, aligned_news = 0, aligned_deletes = 0;

void *operator new(std::size_t size) {
    news++;
    if (size > PTRDIFF_MAX) throw std::bad_alloc();
    if (void *block = std::malloc(size ? size : 1)) return block;
    throw std::bad_alloc();
}
void operator delete(void *block) noexcept {
    deletes++;
    std::free(block);
}
void *operator new(std::size_t size, std::align_val_t alignment) {
    aligned_news++;
    void *block = nullptr;
    std::size_t at_least = sizeof(void *);
    if (posix_memalign(&block,
                       std::size_t(alignment) < at_least ? at_least : std::size_t(alignment), size))
        throw std::bad_alloc();
    return block;
}
void operator delete(void *block, std::align_val_t) noexcept {
    aligned_deletes++;
    std::free(block);
}

static void expect(int plain, int aligned, int line) {
    if (news != plain || deletes != plain || aligned_news != aligned || aligned_deletes != aligned)
        fprintf(
            stderr,
            "line %d: new %d, delete %d, aligned new %d, aligned delete %d; expected %d and %d\n",
            line, news, deletes, aligned_news, aligned_deletes, plain, aligned),
            _exit(1);
    news = deletes = aligned_news = aligned_deletes = 0;
}

int main() {
    const std::nothrow_t &quiet = std::nothrow;
    const auto align = std::align_val_t(512);
    const std::size_t size = OPAQUE(std::size_t(100));
    news = deletes = aligned_news = aligned_deletes = 0;

    ::operator delete(::operator new(size)), expect(1, 0, __LINE__);
    ::operator delete[](::operator new[](size)), expect(1, 0, __LINE__);
    ::operator delete(::operator new(size, quiet), quiet), expect(1, 0, __LINE__);
    ::operator delete[](::operator new[](size, quiet), quiet), expect(1, 0, __LINE__);
    ::operator delete(::operator new(size), size), expect(1, 0, __LINE__);
    ::operator delete[](::operator new[](size), size), expect(1, 0, __LINE__);

    ::operator delete(::operator new(size, align), align), expect(0, 1, __LINE__);
    ::operator delete[](::operator new[](size, align), align), expect(0, 1, __LINE__);
    ::operator delete(::operator new(size, align, quiet), align, quiet), expect(0, 1, __LINE__);
    ::operator delete[](::operator new[](size, align, quiet), align, quiet), expect(0, 1, __LINE__);
    ::operator delete(::operator new(size, align), size, align), expect(0, 1, __LINE__);
    ::operator delete[](::operator new[](size, align), size, align), expect(0, 1, __LINE__);

    // These operators may use any size: the library does not compare sizes in any mode.
    ::operator delete(::operator new(size), size - 1), expect(1, 0, __LINE__);
    ::operator delete[](::operator new[](size, align), size - 1, align), expect(0, 1, __LINE__);

#ifndef NO_LIBRARY
    // If a replacement throws, the nothrow forms return null.
    const std::size_t absurd = OPAQUE(~std::size_t(0) - 100);
    CHECK(::operator new(absurd, quiet) == nullptr);
    CHECK(::operator new[](absurd, quiet) == nullptr);
    CHECK(news == 2);
#endif
    return 0;
}
