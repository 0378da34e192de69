use rpmalloc_sys as rp;

forward::forward! {
    malloc = rp::rpmalloc,
    free = rp::rpfree,
    calloc = rp::rpcalloc,
    realloc = rp::rprealloc,
    posix_memalign = rp::rpposix_memalign,
    aligned_alloc = rp::rpaligned_alloc,
    memalign = rp::rpmemalign,
    malloc_usable_size = rp::rpmalloc_usable_size,
}
