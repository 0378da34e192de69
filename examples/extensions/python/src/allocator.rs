#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;
