/*
 * The functions of mimalloc on ebbmalloc, in libebbmalloc_mimalloc.so and ebbmalloc_mimalloc.o, for
 * programs that were written for mimalloc.
 *
 * Those that ebbmalloc cannot serve truthfully are missing, so that programs which call them do not
 * link: about arenas, pages, visits of blocks, and the default heap of a thread.
 */
#ifndef EBBMALLOC_MIMALLOC_H
#define EBBMALLOC_MIMALLOC_H
#define MIMALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of the interface, as mi_version returns it. */
#define MI_MALLOC_VERSION 20302
/* Below this, the functions with _small serve. */
#define MI_SMALL_WSIZE_MAX 128
#define MI_SMALL_SIZE_MAX (MI_SMALL_WSIZE_MAX * sizeof(void *))

#if defined(__cplusplus) && __cplusplus >= 201103L
#define mi_attr_noexcept noexcept
#elif defined(__cplusplus)
#define mi_attr_noexcept throw()
#else
#define mi_attr_noexcept
#endif
#define mi_attr_malloc __attribute__((malloc))
#define mi_attr_alloc_size(nth) __attribute__((alloc_size(nth)))
#define mi_attr_alloc_size2(nth, other) __attribute__((alloc_size(nth, other)))
#define mi_attr_alloc_align(nth) __attribute__((alloc_align(nth)))
#define mi_decl_export
#define mi_decl_restrict
#define mi_decl_nodiscard
#define mi_cdecl

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks. mi_realloc and its relatives do not free for size 0. An alignment is a power of two; the
 * functions with _at return NULL unless the offset is a multiple of it. */
void *mi_malloc(size_t size) mi_attr_noexcept;
void *mi_malloc_small(size_t size) mi_attr_noexcept;
void *mi_zalloc(size_t size) mi_attr_noexcept;
void *mi_zalloc_small(size_t size) mi_attr_noexcept;
void *mi_calloc(size_t count, size_t size) mi_attr_noexcept;
void *mi_mallocn(size_t count, size_t size) mi_attr_noexcept;
void *mi_realloc(void *block, size_t size) mi_attr_noexcept;
void *mi_reallocn(void *block, size_t count, size_t size) mi_attr_noexcept;
void *mi_reallocf(void *block, size_t size) mi_attr_noexcept;
void *mi_expand(void *block, size_t size) mi_attr_noexcept;
void *mi_rezalloc(void *block, size_t size) mi_attr_noexcept;
void *mi_recalloc(void *block, size_t count, size_t size) mi_attr_noexcept;
char *mi_strdup(const char *text) mi_attr_noexcept;
char *mi_strndup(const char *text, size_t most) mi_attr_noexcept;
char *mi_realpath(const char *path, char *resolved) mi_attr_noexcept;

void *mi_malloc_aligned(size_t size, size_t alignment) mi_attr_noexcept;
void *mi_malloc_aligned_at(size_t size, size_t alignment, size_t offset) mi_attr_noexcept;
void *mi_zalloc_aligned(size_t size, size_t alignment) mi_attr_noexcept;
void *mi_zalloc_aligned_at(size_t size, size_t alignment, size_t offset) mi_attr_noexcept;
void *mi_calloc_aligned(size_t count, size_t size, size_t alignment) mi_attr_noexcept;
void *mi_calloc_aligned_at(size_t count, size_t size, size_t alignment,
                           size_t offset) mi_attr_noexcept;
void *mi_realloc_aligned(void *block, size_t size, size_t alignment) mi_attr_noexcept;
void *mi_realloc_aligned_at(void *block, size_t size, size_t alignment,
                            size_t offset) mi_attr_noexcept;
void *mi_rezalloc_aligned(void *block, size_t size, size_t alignment) mi_attr_noexcept;
void *mi_rezalloc_aligned_at(void *block, size_t size, size_t alignment,
                             size_t offset) mi_attr_noexcept;
void *mi_recalloc_aligned(void *block, size_t count, size_t size,
                          size_t alignment) mi_attr_noexcept;
void *mi_recalloc_aligned_at(void *block, size_t count, size_t size, size_t alignment,
                             size_t offset) mi_attr_noexcept;

void mi_free(void *block) mi_attr_noexcept;
void mi_free_small(void *block) mi_attr_noexcept;
void mi_free_size(void *block, size_t size) mi_attr_noexcept;
void mi_free_size_aligned(void *block, size_t size, size_t alignment) mi_attr_noexcept;
void mi_free_aligned(void *block, size_t alignment) mi_attr_noexcept;
size_t mi_usable_size(const void *block) mi_attr_noexcept;
size_t mi_good_size(size_t size) mi_attr_noexcept;

void *mi_umalloc(size_t size, size_t *usable) mi_attr_noexcept;
void *mi_umalloc_small(size_t size, size_t *usable) mi_attr_noexcept;
void *mi_uzalloc_small(size_t size, size_t *usable) mi_attr_noexcept;
void *mi_ucalloc(size_t count, size_t size, size_t *usable) mi_attr_noexcept;
void *mi_urealloc(void *block, size_t size, size_t *before, size_t *after) mi_attr_noexcept;
void *mi_umalloc_aligned(size_t size, size_t alignment, size_t *usable) mi_attr_noexcept;
void *mi_uzalloc_aligned(size_t size, size_t alignment, size_t *usable) mi_attr_noexcept;
void mi_ufree(void *block, size_t *usable) mi_attr_noexcept;

/* As POSIX, C and others have them. */
int mi_posix_memalign(void **out, size_t alignment, size_t size);
void *mi_memalign(size_t alignment, size_t size) mi_attr_noexcept;
void *mi_aligned_alloc(size_t alignment, size_t size) mi_attr_noexcept;
void *mi_valloc(size_t size) mi_attr_noexcept;
void *mi_pvalloc(size_t size) mi_attr_noexcept;
void *mi_reallocarray(void *block, size_t count, size_t size) mi_attr_noexcept;
int mi_reallocarr(void *place, size_t count, size_t size) mi_attr_noexcept;
void *mi_aligned_recalloc(void *block, size_t count, size_t size,
                          size_t alignment) mi_attr_noexcept;
void *mi_aligned_offset_recalloc(void *block, size_t count, size_t size, size_t alignment,
                                 size_t offset) mi_attr_noexcept;
void mi_cfree(void *block) mi_attr_noexcept;
void *mi__expand(void *block, size_t size) mi_attr_noexcept;
size_t mi_malloc_size(const void *block) mi_attr_noexcept;
size_t mi_malloc_usable_size(const void *block) mi_attr_noexcept;
size_t mi_malloc_good_size(size_t size) mi_attr_noexcept;
unsigned char *mi_mbsdup(const unsigned char *text) mi_attr_noexcept;

/* As operator new: they call the new-handler, and then throw std::bad_alloc. */
void *mi_new(size_t size);
void *mi_new_aligned(size_t size, size_t alignment);
void *mi_new_n(size_t count, size_t size);
void *mi_new_realloc(void *block, size_t size);
void *mi_new_reallocn(void *block, size_t count, size_t size);
void *mi_new_nothrow(size_t size) mi_attr_noexcept;
void *mi_new_aligned_nothrow(size_t size, size_t alignment) mi_attr_noexcept;

/* Heaps, which any thread may use. A NULL heap is the main one, whose blocks are those of
 * mi_malloc. mi_heap_delete keeps the heap's blocks, each until it is freed, and the memory of the
 * heap's record, unless the heap is empty. mi_heap_destroy frees all. The
 * functions that tell whose a block is say false where libebbmalloc.so was loaded before. */
typedef struct mi_heap_s mi_heap_t;
mi_heap_t *mi_heap_new(void);
void mi_heap_delete(mi_heap_t *heap);
void mi_heap_destroy(mi_heap_t *heap);
void mi_heap_collect(mi_heap_t *heap, bool force);
mi_heap_t *mi_heap_main(void);
mi_heap_t *mi_heap_get_backing(void);
bool mi_heap_contains_block(mi_heap_t *heap, const void *block);
bool mi_heap_check_owned(mi_heap_t *heap, const void *block);
bool mi_check_owned(const void *address);
bool mi_is_in_heap_region(const void *address) mi_attr_noexcept;
void *mi_heap_malloc(mi_heap_t *heap, size_t size) mi_attr_noexcept;
void *mi_heap_malloc_small(mi_heap_t *heap, size_t size) mi_attr_noexcept;
void *mi_heap_zalloc(mi_heap_t *heap, size_t size) mi_attr_noexcept;
void *mi_heap_zalloc_small(mi_heap_t *heap, size_t size) mi_attr_noexcept;
void *mi_heap_calloc(mi_heap_t *heap, size_t count, size_t size) mi_attr_noexcept;
void *mi_heap_mallocn(mi_heap_t *heap, size_t count, size_t size) mi_attr_noexcept;
void *mi_heap_realloc(mi_heap_t *heap, void *block, size_t size) mi_attr_noexcept;
void *mi_heap_reallocn(mi_heap_t *heap, void *block, size_t count, size_t size) mi_attr_noexcept;
void *mi_heap_reallocf(mi_heap_t *heap, void *block, size_t size) mi_attr_noexcept;
void *mi_heap_rezalloc(mi_heap_t *heap, void *block, size_t size) mi_attr_noexcept;
void *mi_heap_recalloc(mi_heap_t *heap, void *block, size_t count, size_t size) mi_attr_noexcept;
char *mi_heap_strdup(mi_heap_t *heap, const char *text) mi_attr_noexcept;
char *mi_heap_strndup(mi_heap_t *heap, const char *text, size_t most) mi_attr_noexcept;
char *mi_heap_realpath(mi_heap_t *heap, const char *path, char *resolved) mi_attr_noexcept;
void *mi_heap_malloc_aligned(mi_heap_t *heap, size_t size, size_t alignment) mi_attr_noexcept;
void *mi_heap_malloc_aligned_at(mi_heap_t *heap, size_t size, size_t alignment,
                                size_t offset) mi_attr_noexcept;
void *mi_heap_zalloc_aligned(mi_heap_t *heap, size_t size, size_t alignment) mi_attr_noexcept;
void *mi_heap_zalloc_aligned_at(mi_heap_t *heap, size_t size, size_t alignment,
                                size_t offset) mi_attr_noexcept;
void *mi_heap_calloc_aligned(mi_heap_t *heap, size_t count, size_t size,
                             size_t alignment) mi_attr_noexcept;
void *mi_heap_calloc_aligned_at(mi_heap_t *heap, size_t count, size_t size, size_t alignment,
                                size_t offset) mi_attr_noexcept;
void *mi_heap_realloc_aligned(mi_heap_t *heap, void *block, size_t size,
                              size_t alignment) mi_attr_noexcept;
void *mi_heap_realloc_aligned_at(mi_heap_t *heap, void *block, size_t size, size_t alignment,
                                 size_t offset) mi_attr_noexcept;
void *mi_heap_rezalloc_aligned(mi_heap_t *heap, void *block, size_t size,
                               size_t alignment) mi_attr_noexcept;
void *mi_heap_rezalloc_aligned_at(mi_heap_t *heap, void *block, size_t size, size_t alignment,
                                  size_t offset) mi_attr_noexcept;
void *mi_heap_recalloc_aligned(mi_heap_t *heap, void *block, size_t count, size_t size,
                               size_t alignment) mi_attr_noexcept;
void *mi_heap_recalloc_aligned_at(mi_heap_t *heap, void *block, size_t count, size_t size,
                                  size_t alignment, size_t offset) mi_attr_noexcept;
void *mi_heap_alloc_new(mi_heap_t *heap, size_t size);
void *mi_heap_alloc_new_n(mi_heap_t *heap, size_t count, size_t size);

#define mi_malloc_tp(type) ((type *)mi_malloc(sizeof(type)))
#define mi_zalloc_tp(type) ((type *)mi_zalloc(sizeof(type)))
#define mi_calloc_tp(type, count) ((type *)mi_calloc(count, sizeof(type)))
#define mi_mallocn_tp(type, count) ((type *)mi_mallocn(count, sizeof(type)))
#define mi_reallocn_tp(type, block, count) ((type *)mi_reallocn(block, count, sizeof(type)))
#define mi_recalloc_tp(type, block, count) ((type *)mi_recalloc(block, count, sizeof(type)))
#define mi_heap_malloc_tp(heap, type) ((type *)mi_heap_malloc(heap, sizeof(type)))
#define mi_heap_zalloc_tp(heap, type) ((type *)mi_heap_zalloc(heap, sizeof(type)))
#define mi_heap_calloc_tp(heap, type, count) ((type *)mi_heap_calloc(heap, count, sizeof(type)))
#define mi_heap_mallocn_tp(heap, type, count) ((type *)mi_heap_mallocn(heap, count, sizeof(type)))

/* Statistics are ebbmalloc's, of the process. They go to the given function; for NULL, to that of
 * mi_register_output; else to standard error. Of mi_process_info, the peak of committed memory is
 * unknown: 0. mi_register_error's function is called with ENOMEM alone; other errors end the
 * program. */
typedef void(mi_output_fun)(const char *text, void *argument);
typedef void(mi_error_fun)(int error, void *argument);
void mi_register_output(mi_output_fun *out, void *argument) mi_attr_noexcept;
void mi_register_error(mi_error_fun *call, void *argument);
void mi_stats_print(void *out) mi_attr_noexcept;
void mi_stats_print_out(mi_output_fun *out, void *argument) mi_attr_noexcept;
void mi_thread_stats_print_out(mi_output_fun *out, void *argument) mi_attr_noexcept;
/* Do nothing: statistics count from the start of the process. */
void mi_stats_merge(void) mi_attr_noexcept;
void mi_stats_reset(void) mi_attr_noexcept;
char *mi_stats_get_json(size_t bytes, char *buffer) mi_attr_noexcept;
void mi_process_info(size_t *elapsed_ms, size_t *user_ms, size_t *system_ms, size_t *resident,
                     size_t *peak_resident, size_t *committed, size_t *peak_committed,
                     size_t *page_faults) mi_attr_noexcept;
void mi_collect(bool force) mi_attr_noexcept;
int mi_version(void) mi_attr_noexcept;

/* Need not be called. */
void mi_process_init(void) mi_attr_noexcept;
void mi_process_done(void) mi_attr_noexcept;
void mi_thread_init(void) mi_attr_noexcept;
void mi_thread_done(void) mi_attr_noexcept;
void mi_thread_set_in_threadpool(void) mi_attr_noexcept;

/* Options. show_stats is EBB_STATS=1 here, purge_delay EBB_PURGE_DELAY, and allow_thp 0
 * EBB_HUGE=never. The others stay 0, whatever is set: they have no effect. */
typedef enum mi_option_e {
    mi_option_show_errors = 0,
    mi_option_show_stats = 1,
    mi_option_verbose = 2,
    mi_option_arena_eager_commit = 4,
    mi_option_eager_region_commit = 4,
    mi_option_purge_decommits = 5,
    mi_option_reset_decommits = 5,
    mi_option_allow_large_os_pages = 6,
    mi_option_large_os_pages = 6,
    mi_option_reserve_huge_os_pages = 7,
    mi_option_reserve_huge_os_pages_at = 8,
    mi_option_reserve_os_memory = 9,
    mi_option_purge_delay = 15,
    mi_option_reset_delay = 15,
    mi_option_use_numa_nodes = 16,
    mi_option_disallow_os_alloc = 17,
    mi_option_limit_os_alloc = 17,
    mi_option_os_tag = 18,
    mi_option_max_errors = 19,
    mi_option_max_warnings = 20,
    mi_option_destroy_on_exit = 22,
    mi_option_arena_reserve = 23,
    mi_option_arena_purge_mult = 24,
    mi_option_disallow_arena_alloc = 26,
    mi_option_retry_on_oom = 27,
    mi_option_visit_abandoned = 28,
    mi_option_allow_thp = 37,
    _mi_option_last = 38
} mi_option_t;
bool mi_option_is_enabled(mi_option_t option);
void mi_option_enable(mi_option_t option);
void mi_option_disable(mi_option_t option);
void mi_option_set_enabled(mi_option_t option, bool enable);
void mi_option_set_enabled_default(mi_option_t option, bool enable);
long mi_option_get(mi_option_t option);
long mi_option_get_clamp(mi_option_t option, long least, long most);
size_t mi_option_get_size(mi_option_t option);
void mi_option_set(mi_option_t option, long value);
void mi_option_set_default(mi_option_t option, long value);

#ifdef __cplusplus
}

#if __cplusplus >= 201103L
/* An allocator for containers of the standard library. */
template <class T> struct mi_stl_allocator {
    typedef T value_type;
    template <class U> struct rebind { typedef mi_stl_allocator<U> other; };
    mi_stl_allocator() noexcept = default;
    template <class U> mi_stl_allocator(const mi_stl_allocator<U> &) noexcept {}
    T *allocate(size_t count) {
        return static_cast<T *>(alignof(T) <= 16
                                    ? mi_new_n(count, sizeof(T))
                                    : mi_new_aligned(count <= SIZE_MAX / sizeof(T)
                                                         ? count * sizeof(T)
                                                         : SIZE_MAX,
                                                     alignof(T)));
    }
    void deallocate(T *block, size_t = 0) noexcept { mi_free(block); }
};
template <class T, class U>
bool operator==(const mi_stl_allocator<T> &, const mi_stl_allocator<U> &) noexcept {
    return true;
}
template <class T, class U>
bool operator!=(const mi_stl_allocator<T> &, const mi_stl_allocator<U> &) noexcept {
    return false;
}
#endif
#endif

#endif
