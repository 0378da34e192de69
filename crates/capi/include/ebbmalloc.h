/*
 * ebbmalloc as a C library: libebbmalloc.so and libebbmalloc.a.
 *
 * Linked or preloaded, it replaces malloc, free and all their relatives, and the C++ operators
 * new and delete; nothing needs to be included for that. This header names the same functions
 * with the prefix ebb_, which serve from the same heap whatever else is linked: a block of
 * ebb_malloc may be given to free if, and only if, ebbmalloc replaced it.
 *
 * Sizes and alignments are in bytes. Every block is aligned to 16 at least. All functions may be called by any
 * thread, and any thread may free what another has allocated. None may be called by a signal handler.
 *
 * An address at which no block begins, and a block freed twice where that is seen, stop the program (SIGABRT) with one
 * line on standard error: "ebbmalloc: invalid free: 0x... passed to free", or double free, interior pointer, wrong
 * size.
 *
 * Environment: EBB_MODE=auto|percpu|thread|slot, EBB_STATS=1|json|openmetrics (statistics on
 * standard error at exit); docs/options.md has them all.
 */
#ifndef EBBMALLOC_H
#define EBBMALLOC_H

#ifndef __cplusplus
#include <stdbool.h>
#endif
#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A block of size bytes; a unique one for 0. NULL and ENOMEM if memory is short. */
void *ebb_malloc(size_t size);
/* A block of count * size zero bytes. NULL and ENOMEM, also where the product does not fit a size_t. */
void *ebb_calloc(size_t count, size_t size);
/* Resizes a block, moving it if need be; its contents stay up to the smaller size. A NULL block allocates;
 * size 0 frees and returns NULL. NULL and ENOMEM if memory is short: the block then stays as it was. The new block
 * is aligned to 16, whatever the old one was aligned to. */
void *ebb_realloc(void *block, size_t size);
/* ebb_realloc to count * size bytes. NULL and ENOMEM, also where the product does not fit a size_t. */
void *ebb_reallocarray(void *block, size_t count, size_t size);
/* Frees a block; NULL is none. Keeps errno. */
void ebb_free(void *block);

/* Free a block whose size, and alignment, is that which it was last asked for with; NULL is none. Keep errno.
 * ebb_free_sized is for blocks of ebb_malloc, ebb_calloc (the product) and the two ebb_realloc;
 * ebb_free_aligned_sized for those of ebb_aligned_alloc, with both its arguments; neither for a heap's.
 *
 * They save the search for the size, and rely on what they are told, which C23's free_sized and free_aligned_sized
 * do not, for which any wrong size stops the program: here a wrong size is as bad as a write beyond the block. Where that is noticed, one line says so and the program stops: of blocks above 64 KiB, where a cache is
 * full, and of every block with EBB_STATS=1 in the environment, which is how to test a program. */
void ebb_free_sized(void *block, size_t size);
void ebb_free_aligned_sized(void *block, size_t alignment, size_t size);

/* Resizes a block where it is. The alignment is that which it was asked for with: 1 for blocks of ebb_malloc. True
 * and the block has the new size, which ebb_free_sized must be told from then on; or false, and nothing has
 * happened: there is no room (blocks of up to 64 KiB grow by what rounding has left, larger ones by free memory
 * behind them), or the block would be more than it needs to be. False for NULL. Keeps errno. */
bool ebb_resize(void *block, size_t alignment, size_t size);
/* ebb_resize, or else, for a large block, moves its pages to where there is room; never copies. NULL, and nothing
 * has happened, where neither is possible: then ebb_malloc, memcpy of what is worth it, and ebb_free are as good
 * as it gets. NULL for NULL. Keeps errno. */
void *ebb_remap(void *block, size_t alignment, size_t size);

/* Aligned blocks; alignments are powers of two. Any size will do.
 * ebb_posix_memalign stores the block and returns 0; or ENOMEM, or EINVAL for an alignment that is no power of two or
 * less than sizeof(void *), and then *out and errno are as they were.
 * ebb_aligned_alloc: NULL and EINVAL for an alignment that is no power of two, ENOMEM if memory is short.
 * ebb_memalign: rounds the alignment up to a power of two; NULL and EINVAL if there is none, or ENOMEM. */
int ebb_posix_memalign(void **out, size_t alignment, size_t size);
void *ebb_aligned_alloc(size_t alignment, size_t size);
void *ebb_memalign(size_t alignment, size_t size);
/* Blocks that begin on an OS page; ebb_pvalloc rounds the size up to whole pages. NULL and ENOMEM if memory is
 * short. */
void *ebb_valloc(size_t size);
void *ebb_pvalloc(size_t size);

/* How many bytes of the block may be used: those asked for, and what rounding has added; 0 for NULL. (Not the size
 * for ebb_free_sized.) */
size_t ebb_malloc_usable_size(void *block);
/* Gives free memory back to the kernel, that in the calling thread's cache included; 1 if there was any, else 0.
 * The argument changes nothing. Needless as a habit: free memory goes back by itself. */
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
/* Prints what EBB_STATS prints at exit to standard error, where that is not set as text: statistics, and where resident
 * memory is. */
void ebb_malloc_stats(void);
/* Writes statistics as XML. Returns 0; EINVAL if options is not 0 or for no stream; or -1 and errno EIO if it
 * cannot be written. */
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
