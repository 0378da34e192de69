// `new` calls the new-handler until memory is available, the handler throws or removes itself.
// expect: exit 0
// build: g++
// build: g++ -static-libstdc++ -DCXX_LIBRARY_IN_PROGRAM
// build: clang++ -stdlib=libc++
// limit: 256
#include "check.h"
#include <cstdlib>
#include <new>

static int calls = 0;
static void *reserve = nullptr;
static volatile std::size_t absurd = std::size_t(1) << 60;

static void give_up_reserve() {
    calls++;
    std::free(reserve);
    reserve = nullptr;
    std::set_new_handler(nullptr);
}

static void take_away_after_three() {
    if (++calls == 3) std::set_new_handler(nullptr);
}

struct Mine : std::bad_alloc {};
static void throw_mine() {
    calls++;
    throw Mine();
}

template <class Allocate> static void counts_three(Allocate allocate) {
    calls = 0;
    std::set_new_handler(take_away_after_three);
    allocate();
    CHECK(calls == 3);
    CHECK(std::get_new_handler() == nullptr);
}

int main() {
    // Each form calls the handler, also a nothrow form before it returns null.
    counts_three([] { CHECK(::operator new(absurd, std::nothrow) == nullptr); });
    counts_three([] { CHECK(::operator new[](absurd, std::nothrow) == nullptr); });
    counts_three(
        [] { CHECK(::operator new(absurd, std::align_val_t(128), std::nothrow) == nullptr); });
    counts_three([] {
        try {
            std::free(::operator new(absurd));
        } catch (const std::bad_alloc &) {
        }
    });
    counts_three([] {
        try {
            std::free(::operator new[](absurd, std::align_val_t(128)));
        } catch (const std::bad_alloc &) {
        }
    });

    // An exception from the handler passes through `new`; a nothrow form catches it.
    calls = 0;
    std::set_new_handler(throw_mine);
    bool mine = false;
    try {
        std::free(::operator new(absurd));
    } catch (const Mine &) {
        mine = true;
    }
    CHECK(mine && calls == 1);
#ifndef CXX_LIBRARY_IN_PROGRAM
    // Without C++ code the library cannot catch, so the exception passes through.
    CHECK(::operator new(absurd, std::nothrow) == nullptr && calls == 2);
#endif

    // If the handler frees memory, `new` succeeds and throws nothing.
    calls = 0;
    CHECK((reserve = std::malloc(std::size_t(100) << 20)) != nullptr);
    std::set_new_handler(give_up_reserve);
    void *taken[100];
    int count = 0;
    while (calls == 0 && count < 100) taken[count++] = ::operator new(std::size_t(8) << 20);
    CHECK(calls == 1 && taken[count - 1] != nullptr);
    while (count) ::operator delete(taken[--count]);
    return 0;
}
