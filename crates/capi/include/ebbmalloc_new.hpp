/* ebbmalloc for C++: a delete that knows the size tells it, and so need not search for it.
 *
 * Include this in one source file of a program that is linked with ebbmalloc; two give "multiple definition" when
 * it is linked. It replaces the operators new and delete in all their forms, as the C++ standard lets a program do
 * ([new.delete]), so that blocks go back where they came from whatever else is loaded.
 *
 * The compiler tells sizes from C++14 on (Clang before 19 with -fsized-deallocation). They are relied upon: to delete
 * by a base class without a virtual destructor, which is undefined behaviour and goes well without this header, is as
 * bad as a write beyond the block with it. Run tests with EBB_STATS=1 in the environment: then each size is checked,
 * and where one is wrong a line says so and the program stops. */
#ifndef EBBMALLOC_NEW_HPP
#define EBBMALLOC_NEW_HPP

#include "ebbmalloc.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace ebb_new {

/* A block, or null: as long as there is a new-handler, it is asked to make room. */
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
        return nullptr; // What a new-handler threw.
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
    void *operator()() const { return ebb_aligned_alloc(static_cast<std::size_t>(alignment), size); }
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
void *operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return ebb_new::ask_quietly(ebb_new::Aligned{size, alignment});
}

void operator delete(void *block, std::align_val_t) noexcept { ebb_free(block); }
void operator delete[](void *block, std::align_val_t) noexcept { ebb_free(block); }
void operator delete(void *block, std::align_val_t, const std::nothrow_t &) noexcept { ebb_free(block); }
void operator delete[](void *block, std::align_val_t, const std::nothrow_t &) noexcept { ebb_free(block); }
void operator delete(void *block, std::size_t size, std::align_val_t alignment) noexcept {
    ebb_new::free_aligned(block, size, alignment);
}
void operator delete[](void *block, std::size_t size, std::align_val_t alignment) noexcept {
    ebb_new::free_aligned(block, size, alignment);
}

#endif

#endif
