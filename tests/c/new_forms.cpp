// Every form of `operator new` and `operator delete`, called by name and by expression.
// expect: exit 0
// ways: preload static
// harden: too
// build: g++
// build: g++ -static-libstdc++
// build: clang++ -stdlib=libc++
#include "check.h"
#include <cstdlib>
#include <new>
#include <vector>

struct alignas(256) Wide {
    char bytes[300];
};

static void check(void *block, std::size_t size, std::size_t alignment) {
    CHECK(block != nullptr);
    CHECK(aligned_to(block, alignment));
    fill_sample(block, size, 11);
    CHECK(intact_sample(block, size, size, 11));
}

int main() {
    const std::nothrow_t &quiet = std::nothrow;
    for (std::size_t size = 0; size < 200000; size += 1 + size / 4) {
        void *block;
        check(block = ::operator new(size), size, 16), ::operator delete(block);
        check(block = ::operator new(size), size, 16), ::operator delete(block, size);
        check(block = ::operator new(size, quiet), size, 16), ::operator delete(block, quiet);
        check(block = ::operator new[](size), size, 16), ::operator delete[](block);
        check(block = ::operator new[](size), size, 16), ::operator delete[](block, size);
        check(block = ::operator new[](size, quiet), size, 16), ::operator delete[](block, quiet);
        for (std::size_t bits = 0; bits <= 17; bits++) {
            std::size_t alignment = std::size_t(1) << bits;
            auto align = std::align_val_t(alignment);
            check(block = ::operator new(size, align), size, alignment),
                ::operator delete(block, align);
            check(block = ::operator new(size, align), size, alignment),
                ::operator delete(block, size, align);
            check(block = ::operator new(size, align, quiet), size, alignment),
                ::operator delete(block, align, quiet);
            check(block = ::operator new[](size, align), size, alignment),
                ::operator delete[](block, align);
            check(block = ::operator new[](size, align), size, alignment),
                ::operator delete[](block, size, align);
            check(block = ::operator new[](size, align, quiet), size, alignment),
                ::operator delete[](block, align, quiet);
        }
    }
    void *nothing = nullptr;
    ::operator delete(nothing);
    ::operator delete[](nothing);
    ::operator delete(nothing, std::size_t(8));
    ::operator delete(nothing, std::align_val_t(64));
    ::operator delete[](nothing, std::size_t(8), std::align_val_t(64));
    ::operator delete(nothing, quiet);

    // Zero bytes: each call returns a different pointer.
    void *one = ::operator new(OPAQUE(std::size_t(0))),
         *two = ::operator new(OPAQUE(std::size_t(0)));
    CHECK(one != nullptr && two != nullptr && one != two);
    ::operator delete(one);
    ::operator delete(two, std::size_t(0));

    delete OPAQUE(new int(3));
    delete[] OPAQUE(new long[1000]());
    Wide *wide = OPAQUE(new Wide), *many = OPAQUE(new Wide[7]);
    CHECK(aligned_to(wide, 256) && aligned_to(many, 256));
    delete wide;
    delete[] many;
    std::vector<Wide> vector(20);
    CHECK(aligned_to(vector.data(), 256));

    // Memory of `new` may be passed to free: it is wrong, but libraries do it.
    std::free(::operator new(100));
    return 0;
}
