/*
 * ebbmalloc as a C library: libebbmalloc.so and libebbmalloc.a.
 *
 * Linked or preloaded, it replaces malloc, free and all their relatives, and the C++ operators new
 * and delete; programs need include nothing for that. This header declares these functions with the
 * prefix ebb_. They allocate from one heap with the replaced ones, and are always ebbmalloc's. So
 * free accepts a block of ebb_malloc if, and only if, ebbmalloc replaced free.
 *
 * Sizes and alignments are in bytes. Every block is aligned to at least 16. Any thread may call all
 * functions, and free blocks that another thread allocated. Signal handlers may call none.
 *
 * An address at which no block begins stops the program (SIGABRT) with one line on standard error:
 * "ebbmalloc: invalid free: 0x... passed to free". So does a double free, if it is noticed, an
 * interior pointer, or a wrong size.
 *
 * Options are variables of the environment, such as EBB_LIMIT=75% or EBB_STATS=1. docs/options.md
 * has all. A program sets them in its code by defining ebb_options.
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

/* The options of the program, which defines this symbol if it sets any:
 *
 *     const char *ebb_options = "limit=75%,harden=1";
 *
 * The names are those of the variables in lower case, without EBB_; a name without a value is
 * switched on. The environment has the last word, unless one of the words is "fixed". A program
 * that preloads the library, and is not linked to it, exports the symbol (-rdynamic). */
extern const char *ebb_options;
/* Changes an option from now on, by name and value as in ebb_options: limit, purge_delay, huge,
 * scavenger, profile, or stats (what is printed at exit). Returns 0, or -1 and sets ENOENT for an
 * unknown name, EINVAL for a value that is not understood, ENOTSUP for an option that can be set at
 * start only, EPERM if it cannot be changed now. */
int ebb_ctl(const char *name, const char *value);
/* Functions of the program that are called when memory is short, so that it can shed load: in the
 * thread that allocates, with no lock held. They may allocate and free. NULL calls none.
 *
 * ebb_on_refusal: a request for these bytes is refused. Refusals while it runs do not call it.
 * ebb_on_pressure: this percentage of the limit is held, or, without a limit, of the control
 * group's or the machine's memory; called again after a sixteenth less was held in between. */
void ebb_on_refusal(void (*call)(size_t bytes));
void ebb_on_pressure(int percent, void (*call)(size_t held_bytes, size_t limit_bytes));

/* Allocates size bytes; size 0 returns a unique block, too. Returns NULL and sets ENOMEM if memory
 * is short. */
void *ebb_malloc(size_t size);
/* Allocates count * size zero bytes. Returns NULL and sets ENOMEM if memory is short, or if the
 * product does not fit a size_t. */
void *ebb_calloc(size_t count, size_t size);
/* Resizes a block, and moves it if need be. Keeps its contents up to the smaller size. A NULL block
 * allocates; size 0 frees and returns NULL. If memory is short, returns NULL and sets ENOMEM, and
 * the block stays as it was. The new block is aligned to 16, whatever the alignment of the old
 * one. */
void *ebb_realloc(void *block, size_t size);
/* Resizes a block to count * size bytes, as ebb_realloc. Returns NULL and sets ENOMEM also if the
 * product does not fit a size_t. */
void *ebb_reallocarray(void *block, size_t count, size_t size);
/* Frees a block. Does nothing for NULL. Keeps errno. */
void ebb_free(void *block);

/* Free a block by the size, and alignment, that the program last requested for it. Do nothing for
 * NULL. Keep errno. ebb_free_sized is for blocks of ebb_malloc, ebb_calloc (pass the product),
 * ebb_realloc and ebb_reallocarray. ebb_free_aligned_sized is for blocks of ebb_aligned_alloc, with
 * both its arguments. Neither is for blocks of heaps.
 *
 * They save the search for the size, since they trust it: a wrong size is as bad as a write past
 * the block's end. C23's free_sized and free_aligned_sized look the block up: a size of another
 * size class stops the program with one line. Here that is noticed only for sizes above 64 KiB and
 * when a cache is full. With EBB_STATS=1 in the environment it is noticed for every block: test
 * programs with it. Only EBB_CHECK=1 and EBB_HARDEN=1 compare sizes to the byte. */
void ebb_free_sized(void *block, size_t size);
void ebb_free_aligned_sized(void *block, size_t alignment, size_t size);

/* Resizes a block in place. Pass the alignment that was requested for it: 1 for blocks of
 * ebb_malloc. True if the block has the new size, which is the one for ebb_free_sized from then on.
 * False if nothing has happened: it cannot grow, or would stay larger than it needs to be. Blocks
 * of up to 64 KiB can grow up to their size class, larger ones into free memory after them. False
 * for NULL. Keeps errno. */
bool ebb_resize(void *block, size_t alignment, size_t size);
/* Resizes a block in place as ebb_resize, or moves the pages of a large block to free addresses.
 * Never copies. Returns NULL if neither is possible, and nothing has happened: then use ebb_malloc,
 * memcpy for the bytes that matter, and ebb_free. NULL for NULL. Keeps errno. */
void *ebb_remap(void *block, size_t alignment, size_t size);

/* Allocate aligned blocks. Alignments are powers of two; sizes need not be multiples of them.
 *
 * ebb_posix_memalign stores the block and returns 0. On error it returns ENOMEM or EINVAL, and
 * leaves *out and errno as they were. EINVAL: the alignment is no power of two, or less than
 * sizeof(void *).
 *
 * ebb_aligned_alloc returns NULL and sets ENOMEM, or EINVAL for an alignment that is no power of
 * two.
 *
 * ebb_memalign rounds the alignment up to a power of two. It returns NULL and sets ENOMEM, or
 * EINVAL if there is no such power. */
int ebb_posix_memalign(void **out, size_t alignment, size_t size);
void *ebb_aligned_alloc(size_t alignment, size_t size);
void *ebb_memalign(size_t alignment, size_t size);
/* Allocate blocks that begin at an OS page. ebb_pvalloc rounds the size up to whole pages. Return
 * NULL and set ENOMEM if memory is short. */
void *ebb_valloc(size_t size);
void *ebb_pvalloc(size_t size);

/* The block's usable bytes: those requested, and those that rounding added. 0 for NULL. This is not
 * the size for ebb_free_sized. */
size_t ebb_malloc_usable_size(void *block);
/* Returns free memory to the kernel, including that in the calling thread's cache. Returns 1 if
 * there was any, else 0. The argument has no effect. Programs need not call it regularly: free
 * memory goes back to the kernel by itself. */
int ebb_malloc_trim(size_t keep);
/* Returns memory to the kernel that the program has not needed recently. It is for programs without
 * threads, in which the library starts none. Call it when there is nothing else to do, such as in
 * an event loop before it waits. Returns 1 if a call after the purge delay (EBB_PURGE_DELAY, 200
 * ms) may return more: use that as the timeout of the wait. An earlier call does nothing. Returns 0
 * if there is no more to return, or if a thread of the library returns it. */
int ebb_idle(void);
/* Writes all statistics (docs/stats.md), as snprintf writes: as much as fits into the buffer of the
 * given bytes, with a zero byte at the end. Returns the whole length without that byte. Returns 0
 * and sets EINVAL for an unknown format. Numbers get longer as they grow, so leave some space:
 *
 *     size_t room = ebb_stats(EBB_STATS_OPENMETRICS, NULL, 0) + 1024;
 *     char *page = malloc(room);
 *     if (page != NULL && ebb_stats(EBB_STATS_OPENMETRICS, page, room) < room) serve(page);
 *
 * Does not allocate. EBB_STATS_JSON is one line. EBB_STATS_OPENMETRICS is a page for Prometheus and
 * similar programs, of type "application/openmetrics-text; version=1.0.0; charset=utf-8".
 * EBB_STATS_PROMETHEUS is its older format, "text/plain; version=0.0.4", which can be appended to a
 * page of other metrics. */
enum {
    EBB_STATS_TEXT = 1,
    EBB_STATS_JSON = 2,
    EBB_STATS_OPENMETRICS = 3,
    EBB_STATS_PROMETHEUS = 4
};
size_t ebb_stats(int format, char *buffer, size_t bytes);
/* Prints to standard error what EBB_STATS prints at exit: in the format that EBB_STATS sets, or as
 * text. Text includes where resident memory is. */
void ebb_malloc_stats(void);
/* Writes statistics as XML. Returns 0; EINVAL if options is not 0 or the stream is NULL; or -1 and
 * sets EIO if the stream cannot be written. */
int ebb_malloc_info(int options, FILE *stream);
/* Writes where the resident memory of this process is, line by line, and conclusions. Returns 0;
 * EINVAL if the stream is NULL; or -1 and sets EIO if it cannot be written. The command `ebb why
 * PID` tells more, from outside. */
int ebb_why(FILE *stream);
/* Heap profiles: which stacks of calls allocated the memory in use. While a profile is on, a block
 * is sampled each mean_bytes bytes on average, 0 for 512 KiB. It costs nothing while it is off.
 * The command `ebb profile PID` does this from outside, and shows functions and lines.
 *
 * ebb_profile_start begins a new profile, unless one is on with the same mean. Returns 0, or -1 and
 * sets ENOMEM. After ebb_profile_stop, the profile can still be written: blocks that are freed
 * later are subtracted. ebb_profile_write makes a text file that `ebb profile FILE` and pprof read.
 * Returns 0, or -1 and sets EIO, or EINVAL for NULL or if there never was a profile. */
int ebb_profile_start(size_t mean_bytes);
void ebb_profile_stop(void);
int ebb_profile_write(const char *path);
/* Accepts the parameters of mallopt(3), which have no effect here. Returns 1. */
int ebb_mallopt(int parameter, int value);

/* Heaps: groups of blocks with one limit, which are freed together. Any thread may use a heap; each
 * call takes its lock. free, realloc, malloc_usable_size and their relatives accept its blocks, in
 * any thread. A resized block stays in its heap.
 *
 * Each call checks its ebb_heap *: one that is no heap, or was deleted, stops the program with one
 * line that says so. */
typedef struct ebb_heap ebb_heap;
/* Makes a heap whose blocks may use limit bytes together, counted as by ebb_malloc_usable_size; 0
 * for no limit. Beyond the limit, allocations from it fail with ENOMEM. Returns NULL and sets
 * ENOMEM if memory is short. */
ebb_heap *ebb_heap_new(size_t limit);
/* Deletes a heap and all of its blocks at once. Does nothing for NULL. No thread may use the heap,
 * or a block of it, meanwhile or later. */
void ebb_heap_delete(ebb_heap *heap);
/* As the functions without _heap. The block passed to ebb_heap_realloc must be one of this heap. */
void *ebb_heap_malloc(ebb_heap *heap, size_t size);
void *ebb_heap_calloc(ebb_heap *heap, size_t count, size_t size);
void *ebb_heap_aligned_alloc(ebb_heap *heap, size_t alignment, size_t size);
void *ebb_heap_realloc(ebb_heap *heap, void *block, size_t size);
/* The bytes that the heap's blocks use, which its limit bounds. */
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
