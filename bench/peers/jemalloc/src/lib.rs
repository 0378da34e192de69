use tikv_jemalloc_sys as je;

forward::forward! {
    malloc = je::malloc,
    free = je::free,
    calloc = je::calloc,
    realloc = je::realloc,
    posix_memalign = je::posix_memalign,
    aligned_alloc = je::aligned_alloc,
    memalign = je::aligned_alloc,
    malloc_usable_size = je::malloc_usable_size,
}
