// Compiles as programs do that run with jemalloc or without it: they declare its functions again,
// as weak symbols, and look whether they are there. Some also name the types of its hooks.
#include <cstdlib>
#include <jemalloc/jemalloc.h>
#include <malloc.h>

extern "C" {
void *mallocx(size_t, int) __attribute__((weak));
void *rallocx(void *, size_t, int) __attribute__((weak));
size_t xallocx(void *, size_t, size_t, int) __attribute__((weak));
size_t sallocx(const void *, int) __attribute__((weak));
void dallocx(void *, int) __attribute__((weak));
void sdallocx(void *, size_t, int) __attribute__((weak));
size_t nallocx(size_t, int) __attribute__((weak));
int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
int mallctlnametomib(const char *, size_t *, size_t *) __attribute__((weak));
int mallctlbymib(const size_t *, size_t, void *, size_t *, void *, size_t) __attribute__((weak));
void malloc_stats_print(void (*)(void *, const char *), void *, const char *)
    __attribute__((weak));
size_t malloc_usable_size(JEMALLOC_USABLE_SIZE_CONST void *) JEMALLOC_CXX_THROW
    __attribute__((weak));
}

static extent_hooks_t hooks;

static void *take(extent_hooks_t *own, void *address, size_t bytes, size_t alignment, bool *zero,
                  bool *commit, unsigned arena) {
    return own->alloc(own, address, bytes, alignment, zero, commit, arena);
}

int main() {
    extent_alloc_t *alloc = take;
    hooks.alloc = alloc;
    return mallocx == nullptr || mallctl == nullptr || hooks.alloc != take;
}
