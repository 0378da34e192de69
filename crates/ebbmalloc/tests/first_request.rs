//! Tests that the first request of a program sets the options of its code, whatever it asks for.

use std::alloc::{GlobalAlloc, Layout};
use std::env;
use std::process::Command;
use std::thread;

use ebbmalloc::EbbMalloc;

/// Not the program's allocator, so that each process below chooses its first request.
static FIRST: EbbMalloc = EbbMalloc::new().limit(512 << 20);

fn ask(what: &str) -> *mut u8 {
    let layout = |size, align| Layout::from_size_align(size, align).unwrap();
    // SAFETY: the allocator allows size 0.
    unsafe {
        match what {
            "none" => FIRST.alloc(layout(0, 1)),
            "small" => FIRST.alloc(layout(100, 8)),
            "aligned" => FIRST.alloc(layout(100, 4096)),
            "large" => FIRST.alloc(layout(1 << 20, 8)),
            "zeroed" => FIRST.alloc_zeroed(layout(100, 8)),
            "zeroed aligned" => FIRST.alloc_zeroed(layout(100, 4096)),
            "zeroed large" => FIRST.alloc_zeroed(layout(1 << 20, 8)),
            _ => thread::spawn(|| ask("small").addr()).join().unwrap() as *mut u8,
        }
    }
}

#[test]
fn it_sets_the_options() {
    if !EbbMalloc::is_active() {
        return;
    }
    if let Ok(what) = env::var("FIRST_REQUEST") {
        assert!(!ask(&what).is_null());
        assert_eq!(EbbMalloc::stats().limit_bytes >> 20, 511);
        return;
    }
    let all =
        ["none", "small", "aligned", "large", "zeroed", "zeroed aligned", "zeroed large", "thread"];
    for what in all {
        let mut again = Command::new(env::current_exe().unwrap());
        let status = again.env("FIRST_REQUEST", what).status().unwrap();
        assert!(status.success(), "{what}");
    }
}
