/* ebbmalloc for C++: makes sized deletes pass their size, which saves the search for it.
 *
 * Include this in one source file of a program that links ebbmalloc; in two, the linker reports
 * "multiple definition". It replaces the operators new and delete in all their forms, as the C++
 * standard permits programs ([new.delete]). So each block goes back to the allocator that it came
 * from, whatever else is loaded.
 *
 * Compilers pass sizes from C++14 on (Clang before 19 with -fsized-deallocation). ebbmalloc trusts
 * them. To delete by a base class without a virtual destructor is undefined behaviour. Without this
 * header it goes well; with it, it is as bad as a write past the block's end. Run tests with
 * EBB_STATS=1 in the environment: then each size is checked, and a wrong one stops the program with
 * one line. */
#ifndef EBBMALLOC_NEW_HPP
#define EBBMALLOC_NEW_HPP

#include "ebbmalloc.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace ebb_new {

/* Allocates a block, and calls the new-handler until that succeeds. Null if no handler is set. */
template <class Allocate> void *ask(Allocate allocate) {
    for (;;) {
        void *block = allocate();
        if (block != nullptr) return block;
        std::new_handler handler = std::get_new_handler();
        if (handler == nullptr) return nullptr;
        handler();
    }
}

template <class Allocate> void *ask_or_throw(Allocate allocate) {
    void *block = ask(allocate);
    if (block != nullptr) return block;
#ifdef __cpp_exceptions
    throw std::bad_alloc();
#else
    std::abort();
#endif
}

template <class Allocate> void *ask_quietly(Allocate allocate) noexcept {
#ifdef __cpp_exceptions
    try {
        return ask(allocate);
    } catch (...) {
        return nullptr; // A new-handler threw.
    }
#else
    return ask(allocate);
#endif
}

struct Plain {
    std::size_t size;
    void *operator()() const { return ebb_malloc(size); }
};

} // namespace ebb_new

void *operator new(std::size_t size) { return ebb_new::ask_or_throw(ebb_new::Plain{size}); }
void *operator new[](std::size_t size) { return ebb_new::ask_or_throw(ebb_new::Plain{size}); }
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    return ebb_new::ask_quietly(ebb_new::Plain{size});
}
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept {
    return ebb_new::ask_quietly(ebb_new::Plain{size});
}

void operator delete(void *block) noexcept { ebb_free(block); }
void operator delete[](void *block) noexcept { ebb_free(block); }
void operator delete(void *block, const std::nothrow_t &) noexcept { ebb_free(block); }
void operator delete[](void *block, const std::nothrow_t &) noexcept { ebb_free(block); }
void operator delete(void *block, std::size_t size) noexcept { ebb_free_sized(block, size); }
void operator delete[](void *block, std::size_t size) noexcept { ebb_free_sized(block, size); }

#ifdef __cpp_aligned_new

namespace ebb_new {

struct Aligned {
    std::size_t size;
    std::align_val_t alignment;
    void *operator()() const {
        return ebb_aligned_alloc(static_cast<std::size_t>(alignment), size);
    }
};

inline void free_aligned(void *block, std::size_t size, std::align_val_t alignment) noexcept {
    ebb_free_aligned_sized(block, static_cast<std::size_t>(alignment), size);
}

} // namespace ebb_new

void *operator new(std::size_t size, std::align_val_t alignment) {
    return ebb_new::ask_or_throw(ebb_new::Aligned{size, alignment});
}
void *operator new[](std::size_t size, std::align_val_t alignment) {
    return ebb_new::ask_or_throw(ebb_new::Aligned{size, alignment});
}
void *operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return ebb_new::ask_quietly(ebb_new::Aligned{size, alignment});
}
void *operator new[](std::size_t size, std::align_val_t alignment,
                     const std::nothrow_t &) noexcept {
    return ebb_new::ask_quietly(ebb_new::Aligned{size, alignment});
}

void operator delete(void *block, std::align_val_t) noexcept { ebb_free(block); }
void operator delete[](void *block, std::align_val_t) noexcept { ebb_free(block); }
void operator delete(void *block, std::align_val_t, const std::nothrow_t &) noexcept {
    ebb_free(block);
}
void operator delete[](void *block, std::align_val_t, const std::nothrow_t &) noexcept {
    ebb_free(block);
}
void operator delete(void *block, std::size_t size, std::align_val_t alignment) noexcept {
    ebb_new::free_aligned(block, size, alignment);
}
void operator delete[](void *block, std::size_t size, std::align_val_t alignment) noexcept {
    ebb_new::free_aligned(block, size, alignment);
}

#endif

#endif
