// Impossible sizes and alignments fail in each function of malloc.h and each form of `new`.
// They give NULL and ENOMEM, or bad_alloc. Blocks stay unchanged, and no memory is returned to the
// kernel because of them.
// expect: exit 0
// harden: too
#include "sizes.h"
#include <initializer_list>
#include <malloc.h>
#include <new>

using std::align_val_t;

template <class Call> static bool throws(Call call) {
    try {
        return call(), false;
    } catch (const std::bad_alloc &) {
        return true;
    }
}

static void no_new(size_t size, void *) {
    const std::nothrow_t &quiet = std::nothrow;
    CHECK(::operator new(OPAQUE(size), quiet) == nullptr);
    CHECK(::operator new[](OPAQUE(size), quiet) == nullptr);
    for (size_t bits = 3; bits <= 24; bits += 7) {
        auto align = align_val_t((size_t)1 << bits);
        CHECK(::operator new(OPAQUE(size), align, quiet) == nullptr);
        CHECK(::operator new[](OPAQUE(size), align, quiet) == nullptr);
    }
    // Exceptions are slow.
    if (size % 5 == 0) {
        CHECK(throws([=] { return ::operator new(OPAQUE(size)); }));
        CHECK(throws([=] { return ::operator new[](OPAQUE(size)); }));
        CHECK(throws([=] { return ::operator new(OPAQUE(size), align_val_t(64)); }));
        CHECK(throws([=] { return ::operator new[](OPAQUE(size), align_val_t(1 << 20)); }));
    }
}

static void no_new_at(size_t align) {
    for (size_t size : {(size_t)0, (size_t)1, (size_t)100, (size_t)70000, SIZE_MAX}) {
        CHECK(::operator new(OPAQUE(size), align_val_t(OPAQUE(align)), std::nothrow) == nullptr);
        CHECK(throws([=] { return ::operator new(OPAQUE(size), align_val_t(OPAQUE(align))); }));
    }
}

int main() {
    struct face names = {malloc,   calloc,         realloc, reallocarray, aligned_alloc,
                         memalign, posix_memalign, valloc,  pvalloc,      malloc_usable_size,
                         free};
    void *block = malloc(1 << 20), *gap = malloc(1 << 20), *behind = malloc(1 << 20);
    free(gap);
    CHECK(throws([] { return ::operator new(OPAQUE(SIZE_MAX)); }));
    struct mallinfo2 before = mallinfo2();
    each_absurd(block, no_new_block, (face = &names, nullptr));
    no_alignment();
    struct mallinfo2 after = mallinfo2();
    CHECK(before.uordblks == after.uordblks && before.fordblks == after.fordblks);
    CHECK(before.hblkhd == after.hblkhd);
    each_absurd(block, no_new, nullptr);
    for (unsigned bit = ADDRESS_BITS; bit < 64; bit++) no_new_at((size_t)1 << bit);
    free(block);
    free(behind);
    test_face(&names);
    return 0;
}
