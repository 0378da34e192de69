//! Makes the linker export tcmalloc's functions under the standard names, and links its per-CPU
//! caches.

fn main() {
    export::export(|name| {
        let name = match name {
            "malloc" => "Malloc",
            "free" => "Free",
            "calloc" => "Calloc",
            "realloc" => "Realloc",
            "posix_memalign" => "PosixMemalign",
            "aligned_alloc" => "AlignedAlloc",
            "memalign" => "Memalign",
            "malloc_usable_size" => "MallocSize",
            _ => panic!("no name for {name}"),
        };
        format!("TCMallocInternal{name}")
    });
    // Nothing refers to the object file whose constructor turns the per-CPU caches on. Without this
    // option the linker leaves it out, and tcmalloc uses slow per-thread caches.
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,--undefined=TCMalloc_Internal_ForceCpuCacheActivation"
    );
}
