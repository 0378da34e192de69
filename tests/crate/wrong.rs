//! Misuse by `unsafe` code, of the kind that the argument names.
//! Without an argument: requests that cannot be fulfilled, which are no misuse.

use std::alloc::{Layout, alloc, dealloc};
use std::env;

#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;

fn main() {
    let layout = Layout::new::<[u8; 100]>();
    let larger = Layout::new::<[u8; 200]>();
    // SAFETY: all but the last violate the contract on purpose.
    unsafe {
        let block = alloc(layout);
        match env::args().nth(1).as_deref() {
            Some("size") => dealloc(block, larger),
            Some("large size") => dealloc(alloc(Layout::new::<[u8; 1 << 20]>()), layout),
            Some("twice") => {
                dealloc(block, layout);
                dealloc(block, layout);
            }
            Some("interior") => dealloc(block.add(16), layout),
            Some("foreign") => dealloc([0u8; 100].as_mut_ptr(), layout),
            _ => {
                dealloc(block, layout);
                let most_bytes = isize::MAX as usize - 4095;
                let most = Layout::from_size_align(most_bytes, 4096).expect("a layout");
                assert!(alloc(most).is_null());
                assert!(Vec::<u8>::new().try_reserve(isize::MAX as usize).is_err());
                println!("Hello, world!");
            }
        }
    }
}
