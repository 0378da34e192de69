//! A library that a program opens while it runs, with an engine of its own. Any number of such
//! libraries may be open (`docs/extensions.md`).

#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;

/// Allocates and frees `rounds` blocks. Returns the sum of the lengths of the remaining ones.
#[unsafe(no_mangle)]
pub extern "C" fn work(rounds: usize) -> usize {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for round in 0..rounds {
        kept.push(vec![round as u8; 1 + round * 37 % 3000]);
        if round % 3 == 0 {
            kept.swap_remove(round / 2 % kept.len());
        }
    }
    assert!(kept.iter().all(|block| block.iter().all(|byte| byte == &block[0])));
    kept.iter().map(Vec::len).sum()
}
