//! Tests the engine as a program has it: threads that come and go, options, forks, exit.
#![cfg(all(
    any(
        target_os = "linux",
        all(target_os = "macos", feature = "macos"),
        all(target_os = "freebsd", feature = "freebsd"),
        all(target_os = "android", feature = "android"),
        all(windows, target_arch = "x86_64")
    ),
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(ebbmalloc_forward)
))]

use std::alloc::{Layout, alloc};
use std::env;
use std::hint::black_box;
use std::process::{self, Command};
use std::sync::{Mutex, mpsc};
use std::thread;

use ebbmalloc::EbbMalloc;

#[global_allocator]
static GLOBAL: EbbMalloc = EbbMalloc;

/// Taken by tests in this process that look at its memory, or need much.
static MEMORY: Mutex<()> = Mutex::new(());

/// Allocates and frees on threads that end, and hands blocks to others.
fn load(threads: usize) {
    let (send, receive) = mpsc::channel::<Vec<Vec<u8>>>();
    for nth in 0..threads {
        let send = send.clone();
        thread::spawn(move || {
            let blocks: Vec<_> = (0..200).map(|size| vec![nth as u8; size * 7 + 1]).collect();
            drop(black_box(blocks.clone()));
            send.send(blocks).unwrap();
        })
        .join()
        .unwrap();
        let blocks = receive.recv().unwrap();
        assert!(blocks.iter().flatten().all(|&byte| byte == nth as u8));
    }
}

#[test]
fn short_threads_leave_nothing_behind() {
    let _alone = MEMORY.lock().unwrap();
    load(20);
    let before = EbbMalloc::stats();
    load(1000);
    let after = EbbMalloc::stats();
    assert!(after.live_bytes < before.live_bytes + (1 << 20), "{after:?}");
    assert!(after.peak_resident_bytes < before.peak_resident_bytes + (16 << 20), "{after:?}");
}

#[test]
fn threads_at_once_hand_blocks_over() {
    let _alone = MEMORY.lock().unwrap();
    let (send, receive) = mpsc::channel::<Vec<u8>>();
    let senders: Vec<_> = (0..8_usize)
        .map(|nth| {
            let send = send.clone();
            thread::spawn(move || {
                (0..20_000).for_each(|n| send.send(vec![nth as u8; (n * 31 + nth) % 900]).unwrap());
            })
        })
        .collect();
    drop(send);
    let mut count = 0;
    for block in receive {
        assert!(block.iter().all(|&byte| byte == block[0]));
        count += 1;
    }
    assert_eq!(count, 8 * 20_000);
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn what_the_machine_lacks_is_refused() {
    for shift in [42, 46, 60] {
        let layout = Layout::from_size_align(1 << shift, 16).unwrap();
        // SAFETY: the layout is not empty.
        assert!(black_box(unsafe { alloc(layout) }).is_null());
        assert!(black_box(Vec::<u8>::new()).try_reserve_exact(1 << shift).is_err());
    }
}

#[test]
fn memory_ebbs_back() {
    let _alone = MEMORY.lock().unwrap();
    let blocks: Vec<_> = (0..1000).map(|_| vec![1_u8; 100 << 10]).collect();
    let full = EbbMalloc::stats();
    drop(black_box(blocks));
    EbbMalloc::trim();
    let after = EbbMalloc::stats();
    assert!(after.live_bytes + (90 << 20) < full.live_bytes, "{after:?}");
    assert!(after.dirty_bytes < 8 << 20, "{after:?}");
    let again = vec![0_u8; 100 << 20];
    assert!(again.iter().all(|&byte| byte == 0));
}

/// Forks while threads allocate and wait for locks of the engine. Each child allocates.
#[cfg(unix)]
#[test]
fn children_of_forks_allocate() {
    let _alone = MEMORY.lock().unwrap();
    use std::sync::atomic::{AtomicBool, Ordering};
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let busy = || {
        while !IS_OVER.load(Ordering::Relaxed) {
            drop(black_box(vec![1_u8; 100 << 10]));
            drop(black_box((0..100).map(|size| vec![1_u8; size * 50]).collect::<Vec<_>>()));
        }
    };
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(busy)).collect();
    for _ in 0..30 {
        // SAFETY: the child only allocates, and ends without destructors.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                drop(black_box((0..1000).map(|size| vec![1_u8; size * 7]).collect::<Vec<_>>()));
                drop(black_box(vec![1_u8; 10 << 20]));
                libc::_exit(if EbbMalloc::stats().live_bytes > 0 { 0 } else { 1 });
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(status, 0);
        }
    }
    IS_OVER.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// What the children of the tests below do.
#[test]
fn child() {
    match env::var("EBB_TEST_CHILD").as_deref() {
        Ok("load") => {
            load(50);
            assert!(EbbMalloc::is_active());
        }
        Ok("exit") => {
            for _ in 0..4 {
                thread::spawn(|| {
                    loop {
                        black_box(vec![1_u8; 100]);
                    }
                });
            }
            load(5);
            process::exit(7);
        }
        #[cfg(unix)]
        Ok("fault") => {
            // Some of the blocks are sampled.
            let blocks: Vec<_> = (0..10_000).map(|n| Box::into_raw(Box::new([n; 4]))).collect();
            for block in blocks {
                // SAFETY: there is none: the read of a freed block is the mistake that is found.
                unsafe {
                    drop(Box::from_raw(block));
                    black_box(block.read_volatile());
                }
            }
        }
        Ok("limit") => assert!(Vec::<u8>::new().try_reserve_exact(100 << 20).is_err()),
        Ok("misuse") => {
            let block = Box::leak(Box::new([0_u64; 4]));
            // SAFETY: there is none: the second free is the mistake that the engine finds.
            unsafe {
                drop(Box::from_raw(&raw mut *block));
                drop(Box::from_raw(&raw mut *block));
            }
        }
        _ => {}
    }
}

/// Runs a child with these variables. Returns its exit code and what it wrote to standard error.
fn run(what: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["child", "--exact", "--nocapture"]).env("EBB_TEST_CHILD", what);
    child.envs(variables.iter().copied());
    let output = child.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into())
}

#[test]
fn every_mode_serves() {
    for (name, value, said) in [
        ("EBB_MODE", "thread", "mode thread"),
        ("EBB_MODE", "slot", "mode slot"),
        ("EBB_CHECK", "1", "each block checked"),
        ("EBB_HARDEN", "1", "hardened"),
        ("EBB_SAMPLE", "100", "some blocks sampled"),
        ("EBB_PROFILE", "1", "mode "),
        ("EBB_SCAVENGER", "0", "mode "),
        #[cfg(windows)]
        ("ebb_purge_delay", "0", "Windows "),
    ] {
        let (code, text) = run("load", &[(name, value), ("EBB_EXPLAIN", "1")]);
        assert_eq!(code, Some(0), "{name}: {text}");
        assert!(text.contains(said), "{name}: {text}");
    }
}

#[test]
fn statistics_come_at_the_end_whatever_threads_do() {
    let (code, text) = run("load", &[("EBB_STATS", "1")]);
    assert!(code == Some(0) && text.contains("resident"), "{text}");
    for _ in 0..5 {
        let (code, text) = run("exit", &[("EBB_STATS", "1")]);
        // A thread may have held a lock as Windows ended it.
        let is_cut = code == Some(0xc000_004b_u32 as i32);
        // Wine calls no code of the program any more.
        assert!(is_cut || code == Some(7), "{code:?} {text}");
    }
}

#[test]
fn options_are_told_and_kept() {
    let (code, text) = run("load", &[("EBB_STATZ", "1")]);
    assert_eq!(code, Some(0));
    assert!(text.contains("EBB_STATZ is no option") && text.contains("EBB_STATS"), "{text}");
    let (code, text) = run("limit", &[("EBB_LIMIT", "64m")]);
    assert!(code == Some(0) && text.contains("EBB_LIMIT allows"), "{text}");
    let (code, text) = run("load", &[("EBB_LIMIT", "much")]);
    assert!(code == Some(78) && text.contains("does not start"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_read_of_a_freed_block_is_told() {
    let (code, text) = run("fault", &[("EBB_SAMPLE", "20")]);
    assert!(code.is_none() && text.contains("use after free"), "{code:?} {text}");
}

#[test]
fn mistakes_end_the_program() {
    for variables in [&[][..], &[("EBB_CHECK", "1")], &[("EBB_HARDEN", "1")]] {
        let (code, text) = run("misuse", variables);
        assert!(code != Some(0) && text.contains("ebbmalloc: "), "{text}");
    }
}
