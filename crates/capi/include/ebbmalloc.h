/*
 * ebbmalloc as a C library: libebbmalloc.so and libebbmalloc.a.
 *
 * Linked or preloaded, it replaces malloc, free and all their relatives, and the C++ operators
 * new and delete; nothing needs to be included for that. This header names the same functions
 * with the prefix ebb_, which serve from the same heap whatever else is linked: a block of
 * ebb_malloc may be given to free if, and only if, ebbmalloc replaced it.
 *
 * Sizes and alignments are in bytes. Every block is aligned to 16 at least. On failure functions
 * that return a pointer return NULL and set errno to ENOMEM (or EINVAL for a bad alignment).
 *
 * Environment: EBB_MODE=auto|percpu|thread|slot, EBB_STATS=1|json|openmetrics (statistics on
 * standard error at exit); docs/options.md has them all.
 */
#ifndef EBBMALLOC_H
#define EBBMALLOC_H

#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A block of size bytes; a unique one for 0. */
void *ebb_malloc(size_t size);
/* A block of count * size zero bytes. */
void *ebb_calloc(size_t count, size_t size);
/* Resizes a block, moving it if need be. NULL allocates; size 0 frees and returns NULL. */
void *ebb_realloc(void *block, size_t size);
/* ebb_realloc to count * size bytes. */
void *ebb_reallocarray(void *block, size_t count, size_t size);
/* Frees a block; NULL is none. Keeps errno. */
void ebb_free(void *block);
/* C23: frees a block of which the size (and alignment) are known. */
void ebb_free_sized(void *block, size_t size);
void ebb_free_aligned_sized(void *block, size_t alignment, size_t size);

/* Aligned blocks. The alignment is a power of two, for ebb_posix_memalign a multiple of
 * sizeof(void *); ebb_memalign rounds up one that is not. */
int ebb_posix_memalign(void **out, size_t alignment, size_t size);
void *ebb_aligned_alloc(size_t alignment, size_t size);
void *ebb_memalign(size_t alignment, size_t size);
/* Blocks that begin on an OS page; ebb_pvalloc rounds the size up to whole pages. */
void *ebb_valloc(size_t size);
void *ebb_pvalloc(size_t size);

/* How many bytes of the block may be used; 0 for NULL. */
size_t ebb_malloc_usable_size(void *block);
/* Gives free memory back to the kernel; 1 if there was any. */
int ebb_malloc_trim(size_t keep);
/* For programs without threads, which the library starts none for: to be called when there is
 * nothing else to do, by an event loop before it waits. Gives some memory back that nobody has
 * needed of late. Returns 1 if it is worth calling again after a fifth of a second, for instance
 * with that as the timeout of the wait; before then, a call does nothing. Returns 0 if there is
 * nothing more to give back, or if a thread of the library looks after it. */
int ebb_idle(void);
/* All statistics (docs/stats.md), in the way of snprintf: writes as much as fits into the buffer
 * of so many bytes, with a zero byte at the end, and returns the length of the whole without that
 * byte. Returns 0 with EINVAL for an unknown format. Numbers get longer as they grow, so leave
 * some room:
 *
 *     size_t room = ebb_stats(EBB_STATS_OPENMETRICS, NULL, 0) + 1024;
 *     char *page = malloc(room);
 *     if (page != NULL && ebb_stats(EBB_STATS_OPENMETRICS, page, room) < room) serve(page);
 *
 * It does not allocate. EBB_STATS_JSON is one line; EBB_STATS_OPENMETRICS is a page for Prometheus
 * and its kin, of type "application/openmetrics-text; version=1.0.0; charset=utf-8". */
enum { EBB_STATS_TEXT = 1, EBB_STATS_JSON = 2, EBB_STATS_OPENMETRICS = 3 };
size_t ebb_stats(int format, char *buffer, size_t bytes);
/* Prints statistics to standard error. */
void ebb_malloc_stats(void);
/* Writes statistics as XML; options must be 0. Returns 0, or EINVAL. */
int ebb_malloc_info(int options, FILE *stream);
/* Writes where the resident memory of this process is, line by line, and what follows from that. Returns 0,
 * EINVAL for no stream, or -1 and errno if it cannot be written. The command `ebb why PID` tells more, from
 * outside. */
int ebb_why(FILE *stream);
/* Accepts the parameters of mallopt(3), which have no effect here. Returns 1. */
int ebb_mallopt(int parameter, int value);

/* Heaps: blocks with a common end, and a common limit. Any thread may use a heap, each call takes
 * its lock. Its blocks are blocks like any others: free, realloc, malloc_usable_size and all their
 * kind take them, in any thread; a block that is resized stays its heap's.
 *
 * What an ebb_heap * names is checked in each call: one that is no heap, or was deleted, stops the
 * program with one line that says so. */
typedef struct ebb_heap ebb_heap;
/* A heap whose blocks may use limit bytes together, as ebb_malloc_usable_size tells them; 0 for no
 * limit. Beyond the limit allocating from it fails with ENOMEM. */
ebb_heap *ebb_heap_new(size_t limit);
/* Deletes a heap and all of its blocks at once; NULL is none. No thread may use it, or a block
 * of it, at that time or later. */
void ebb_heap_delete(ebb_heap *heap);
/* As the functions without _heap. The block that ebb_heap_realloc is given must be one of this heap. */
void *ebb_heap_malloc(ebb_heap *heap, size_t size);
void *ebb_heap_calloc(ebb_heap *heap, size_t count, size_t size);
void *ebb_heap_aligned_alloc(ebb_heap *heap, size_t alignment, size_t size);
void *ebb_heap_realloc(ebb_heap *heap, void *block, size_t size);
/* Bytes that the heap's blocks use: what the limit is for. */
size_t ebb_heap_used(ebb_heap *heap);

/* ebb_mallinfo and ebb_mallinfo2 return the structs of mallinfo(3). */
#ifdef __GLIBC__
struct mallinfo;
struct mallinfo ebb_mallinfo(void);
#if __GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 33)
struct mallinfo2;
struct mallinfo2 ebb_mallinfo2(void);
#endif
#endif

#ifdef __cplusplus
}
#endif

#endif
