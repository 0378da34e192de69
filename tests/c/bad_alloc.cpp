// A throwing `new` that gets no memory throws std::bad_alloc through frames with destructors.
// expect: exit 0
// build: g++
// build: g++ -static-libstdc++ -static-libgcc
// build: clang++ -stdlib=libc++
#include "check.h"
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

static int alive = 0;
struct Guard {
    std::string text = "long enough not to be stored within the string itself";
    Guard() { alive++; }
    ~Guard() { alive--; }
};

__attribute__((noinline)) static void *deep(int depth, void *(*allocate)()) {
    Guard guard;
    void *result = depth ? deep(depth - 1, allocate) : allocate();
    __asm__ volatile("" ::: "memory");
    return result;
}

static volatile std::size_t absurd = std::size_t(1) << 60;

template <class Allocate> static void throws(Allocate allocate) {
    bool caught = false;
    try {
        deep(10, allocate);
    } catch (const std::bad_alloc &error) {
        caught = error.what() != nullptr;
    }
    CHECK(caught);
    CHECK(alive == 0);
}

int main() {
    for (int round = 0; round < 200; round++) {
        throws(+[]() -> void * { return ::operator new(absurd); });
        throws(+[]() -> void * { return ::operator new[](absurd); });
        throws(+[]() -> void * { return ::operator new(absurd, std::align_val_t(64)); });
        throws(+[]() -> void * { return ::operator new[](absurd, std::align_val_t(4096)); });
        throws(+[]() -> void * { return ::operator new(OPAQUE(~std::size_t(0))); });
        throws(+[]() -> void * { return new char[absurd]; });
        throws(+[]() -> void * {
            std::vector<char> vector;
            vector.reserve(absurd);
            return nullptr;
        });
    }
    CHECK(::operator new(absurd, std::nothrow) == nullptr);
    CHECK(::operator new[](absurd, std::nothrow) == nullptr);
    CHECK(::operator new(absurd, std::align_val_t(64), std::nothrow) == nullptr);
    CHECK(::operator new[](absurd, std::align_val_t(64), std::nothrow) == nullptr);
    CHECK(new (std::nothrow) char[absurd] == nullptr);

    // After all that the allocator still works.
    std::vector<std::string> words(1000, "a word that needs a block of its own, surely");
    CHECK(words.back().size() == words.front().size());
    return 0;
}
