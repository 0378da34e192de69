/*
 * The functions of jemalloc 5 on ebbmalloc, in libebbmalloc_jemalloc.so and ebbmalloc_jemalloc.o,
 * for programs that were written for jemalloc. Each function has a second name with je_.
 *
 * jemalloc(3) has the contracts; docs/migrating.md of ebbmalloc says what differs.
 */
#ifndef EBBMALLOC_JEMALLOC_H
#define EBBMALLOC_JEMALLOC_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <strings.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the interface. */
#define JEMALLOC_VERSION "5.3.0-ebbmalloc"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 0
#define JEMALLOC_VERSION_NREV 0
#define JEMALLOC_VERSION_GID "ebbmalloc"
/* je_get_defrag_hint exists. */
#define JEMALLOC_FRAG_HINT

/* Flags. An alignment is a power of two. MALLOCX_TCACHE changes nothing, other than
 * MALLOCX_TCACHE_NONE. */
#define MALLOCX_LG_ALIGN(log) ((int)(log))
#if UINTPTR_MAX == 0xffffffff
#define MALLOCX_ALIGN(alignment) ((int)(ffs((int)(alignment)) - 1))
#else
#define MALLOCX_ALIGN(alignment) ((int)(ffsl((long)(alignment)) - 1))
#endif
#define MALLOCX_ZERO ((int)0x40)
#define MALLOCX_TCACHE(cache) ((int)(((cache) + 2) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(arena) ((int)((((unsigned)(arena)) + 1) << 20))

/* In a name for mallctl, the number of an arena that means all. */
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

/* Programs that declare functions of jemalloc themselves use these. */
#define JEMALLOC_ATTR(attribute) __attribute__((attribute))
#define JEMALLOC_ALIGNED(bytes) JEMALLOC_ATTR(aligned(bytes))
#define JEMALLOC_ALLOC_SIZE(nth) JEMALLOC_ATTR(alloc_size(nth))
#define JEMALLOC_ALLOC_SIZE2(nth, other) JEMALLOC_ATTR(alloc_size(nth, other))
#define JEMALLOC_EXPORT JEMALLOC_ATTR(visibility("default"))
#define JEMALLOC_NOINLINE JEMALLOC_ATTR(noinline)
#define JEMALLOC_NOTHROW JEMALLOC_ATTR(nothrow)
#define JEMALLOC_SECTION(name) JEMALLOC_ATTR(section(name))
#define JEMALLOC_RESTRICT_RETURN
#define JEMALLOC_ALLOCATOR
#define JEMALLOC_USABLE_SIZE_CONST
#if defined(__cplusplus) && __cplusplus >= 201103L
#define JEMALLOC_CXX_THROW noexcept
#elif defined(__cplusplus)
#define JEMALLOC_CXX_THROW throw()
#else
#define JEMALLOC_CXX_THROW
#endif

/* The C library's own functions have its exception specifiers, and jemalloc's have none: programs
 * such as RocksDB and folly declare them again, as weak ones. */
#define EBBMALLOC_LIBC(type, name, arguments) \
    type name arguments JEMALLOC_CXX_THROW; \
    type je_##name arguments JEMALLOC_CXX_THROW

/* Declares a function under its name and with je_. */
#define EBBMALLOC_BOTH(type, name, arguments) \
    type name arguments; \
    type je_##name arguments

EBBMALLOC_LIBC(void *, malloc, (size_t size));
EBBMALLOC_LIBC(void *, calloc, (size_t count, size_t size));
EBBMALLOC_LIBC(void *, realloc, (void *block, size_t size));
EBBMALLOC_LIBC(void, free, (void *block));
EBBMALLOC_LIBC(int, posix_memalign, (void **out, size_t alignment, size_t size));
EBBMALLOC_LIBC(void *, aligned_alloc, (size_t alignment, size_t size));
EBBMALLOC_LIBC(void *, memalign, (size_t alignment, size_t size));
EBBMALLOC_LIBC(void *, valloc, (size_t size));
EBBMALLOC_LIBC(void *, pvalloc, (size_t size));
EBBMALLOC_LIBC(size_t, malloc_usable_size, (JEMALLOC_USABLE_SIZE_CONST void *block));

EBBMALLOC_BOTH(void *, mallocx, (size_t size, int flags));
EBBMALLOC_BOTH(void *, rallocx, (void *block, size_t size, int flags));
EBBMALLOC_BOTH(size_t, xallocx, (void *block, size_t size, size_t extra, int flags));
EBBMALLOC_BOTH(size_t, sallocx, (const void *block, int flags));
EBBMALLOC_BOTH(void, dallocx, (void *block, int flags));
EBBMALLOC_BOTH(void, sdallocx, (void *block, size_t size, int flags));
EBBMALLOC_BOTH(size_t, nallocx, (size_t size, int flags));

EBBMALLOC_BOTH(int, mallctl,
               (const char *name, void *old, size_t *old_bytes, void *fresh, size_t fresh_bytes));
EBBMALLOC_BOTH(int, mallctlnametomib, (const char *name, size_t *mib, size_t *length));
EBBMALLOC_BOTH(int, mallctlbymib,
               (const size_t *mib, size_t length, void *old, size_t *old_bytes, void *fresh,
                size_t fresh_bytes));
EBBMALLOC_BOTH(void, malloc_stats_print,
               (void (*write)(void *opaque, const char *text), void *opaque, const char *options));

/* 1 if a block of mallocx with MALLOCX_TCACHE_NONE would lie with more others than this one: a
 * program that moves its blocks so, and frees them by dallocx with that flag, fills fewer pages. */
int je_get_defrag_hint(void *block);

#undef EBBMALLOC_LIBC
#undef EBBMALLOC_BOTH

/* Functions by which a program maps the memory of an arena. The types are here so that programs
 * compile; mallctl refuses to set them. */
typedef struct extent_hooks_s extent_hooks_t;
typedef void *(extent_alloc_t)(extent_hooks_t *hooks, void *address, size_t bytes, size_t alignment,
                               bool *zero, bool *commit, unsigned arena);
typedef bool (extent_dalloc_t)(extent_hooks_t *hooks, void *extent, size_t bytes, bool committed,
                               unsigned arena);
typedef void (extent_destroy_t)(extent_hooks_t *hooks, void *extent, size_t bytes, bool committed,
                                unsigned arena);
typedef bool (extent_commit_t)(extent_hooks_t *hooks, void *extent, size_t bytes, size_t offset,
                               size_t length, unsigned arena);
typedef bool (extent_decommit_t)(extent_hooks_t *hooks, void *extent, size_t bytes, size_t offset,
                                 size_t length, unsigned arena);
typedef bool (extent_purge_t)(extent_hooks_t *hooks, void *extent, size_t bytes, size_t offset,
                              size_t length, unsigned arena);
typedef bool (extent_split_t)(extent_hooks_t *hooks, void *extent, size_t bytes, size_t first,
                              size_t second, bool committed, unsigned arena);
typedef bool (extent_merge_t)(extent_hooks_t *hooks, void *first, size_t first_bytes, void *second,
                              size_t second_bytes, bool committed, unsigned arena);
struct extent_hooks_s {
    extent_alloc_t *alloc;
    extent_dalloc_t *dalloc;
    extent_destroy_t *destroy;
    extent_commit_t *commit;
    extent_decommit_t *decommit;
    extent_purge_t *purge_lazy;
    extent_purge_t *purge_forced;
    extent_split_t *split;
    extent_merge_t *merge;
};

#ifdef __cplusplus
}
#endif

#endif
