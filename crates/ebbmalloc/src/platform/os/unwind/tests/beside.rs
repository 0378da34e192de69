//! Stacks of Rust code beside the unwinder of the process.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;

use super::super::object::Source;
#[cfg(target_arch = "aarch64")]
use super::super::registers::SIGNAL_RETURN;
use super::super::registers::{COUNT, STACK_POINTER, current};
use super::super::{calls, calls_from};
use super::mutated::Random;

unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> c_int, to: *mut c_void);
    fn _Unwind_GetIPInfo(context: *mut c_void, is_interrupted: *mut c_int) -> usize;
}

const CALLS_MAX: usize = 512;

/// A stack without memory of its own, for signal handlers.
pub(super) struct Stack {
    calls: [usize; CALLS_MAX],
    count: usize,
}

impl Stack {
    pub fn get(&self) -> &[usize] {
        &self.calls[..self.count]
    }
}

extern "C" fn note(context: *mut c_void, to: *mut c_void) -> c_int {
    let mut is_interrupted = 0;
    // SAFETY: the unwinder passes its context, and the stack that it was given.
    let (stack, address) =
        unsafe { (&mut *to.cast::<Stack>(), _Unwind_GetIPInfo(context, &mut is_interrupted)) };
    if address == 0 || stack.count == CALLS_MAX {
        return 5;
    }
    stack.calls[stack.count] = address - usize::from(is_interrupted == 0);
    stack.count += 1;
    0
}

/// The calls of this function's caller by the unwinder of the process.
#[inline(never)]
pub(super) fn by_process() -> Stack {
    let mut stack = Stack { calls: [0; CALLS_MAX], count: 0 };
    // SAFETY: calls `note` with the stack.
    unsafe { _Unwind_Backtrace(note, (&raw mut stack).cast()) };
    std::hint::black_box(stack)
}

/// The calls of this function's caller, by a source of objects.
#[inline(never)]
pub(super) fn by(source: Source) -> Stack {
    let mut stack = Stack { calls: [0; CALLS_MAX], count: 0 };
    stack.count = calls_from(current!(), source, &mut stack.calls);
    std::hint::black_box(stack)
}

/// Whether a stack is the one that the unwinder of the process read. musl has no tables, so its
/// unwinder stops at musl's functions.
fn is_same(found: &[usize], expected: &[usize]) -> bool {
    if cfg!(target_env = "musl") { found.starts_with(expected) } else { found == expected }
}

/// How often a stack was compared.
pub(super) static COMPARED: AtomicUsize = AtomicUsize::new(0);

/// Compares the calls of this function's caller: read for the first time and by cached rows, with
/// objects from both sources. Returns their number.
#[inline(never)]
pub(super) fn compare() -> usize {
    let expected = by_process();
    // Before this function's caller, addresses differ: each reader has a call of its own.
    let expected = &expected.get()[2..];
    for source in [Source::of_process(), Source::List] {
        for _ in 0..2 {
            let found = by(source);
            let found = &found.get()[1..];
            assert!(is_same(found, expected), "{found:#x?} {expected:#x?}");
        }
    }
    COMPARED.fetch_add(1, Ordering::Relaxed);
    expected.len()
}

#[inline(never)]
fn recurse(depth: usize, work: &mut dyn FnMut()) {
    let filler = std::hint::black_box([depth; 37]);
    if depth == 0 {
        work()
    } else {
        recurse(depth - 1, work)
    }
    std::hint::black_box(filler);
}

#[test]
fn calls_of_this_test() {
    assert!(compare() > 3);
    recurse(20, &mut || assert!(compare() > 23));
}

#[test]
fn calls_start_with_the_caller() {
    let mut out = [0; 4];
    assert_eq!(calls(&mut out), 4);
    let start = calls_start_with_the_caller as *const () as usize;
    assert!((start..start + 200).contains(&out[0]), "{start:#x} {out:#x?}");
    assert_eq!((calls(&mut []), calls(&mut out[..1])), (0, 1));
}

#[test]
fn deep_stacks_are_cut() {
    recurse(2000, &mut || assert_eq!(by(Source::of_process()).count, CALLS_MAX));
}

#[test]
fn calls_through_the_c_library() {
    extern "C" fn order(_: *const c_void, _: *const c_void) -> c_int {
        compare();
        0
    }
    let mut items = [3, 1, 2];
    // SAFETY: sorts the array.
    unsafe { libc::qsort(items.as_mut_ptr().cast(), 3, 4, Some(order)) };
}

#[test]
fn calls_of_threads() {
    let look = |depth| recurse(depth, &mut || assert!(compare() > depth));
    let threads: Vec<_> = (0..8).map(|depth| std::thread::spawn(move || look(depth))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn calls_in_destructors_of_threads() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            compare();
        }
    }
    std::thread_local!(static LATE: Late = const { Late });
    std::thread::spawn(|| LATE.with(|_| {})).join().unwrap();
}

#[test]
fn calls_while_a_panic_unwinds() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            compare();
        }
    }
    let caught = std::panic::catch_unwind(|| {
        let _late = Late;
        std::panic::resume_unwind(std::boxed::Box::new(1));
    });
    assert!(caught.is_err());
}

/// Stacks that make no sense: nothing faults.
#[test]
fn random_frames_end() {
    let rounds = if cfg!(target_arch = "aarch64") { 2_000 } else { 100_000 };
    let mut random = Random(0x5eed_5678_9abc_def1);
    let (real, here) = current!();
    let local = [0_usize; 64];
    let known = by(Source::of_process());
    let mut out = [0; 64];
    for _ in 0..rounds {
        let mut frame = real;
        let mut stack = local;
        let near = |random: &mut Random, stack: &[usize; 64]| match random.below(8) {
            0 => random.next(),
            1 => random.below(1 << 47),
            2 => known.get()[random.below(known.count)] + 1,
            3 => real.values[STACK_POINTER] + 8 * random.below(1 << 12),
            4 => real.values[STACK_POINTER] + random.below(1 << 40),
            5 => here + random.below(4096),
            6 => random.below(1 << 16),
            _ => stack.as_ptr().addr() + 8 * random.below(64),
        };
        for nth in 0..64 {
            stack[nth] = near(&mut random, &stack);
        }
        for register in 0..COUNT {
            if random.below(2) == 0 {
                frame.set(register, Some(near(&mut random, &stack)));
            }
        }
        frame.set(STACK_POINTER, Some(near(&mut random, &stack)));
        let address = near(&mut random, &stack).max(1);
        let source = if random.below(50) == 0 { Source::List } else { Source::of_process() };
        calls_from((frame, address), source, &mut out);
        std::hint::black_box(&stack);
    }
}

/// Code without a table, as compilers make it at run time: `push %rbp; mov %rsp, %rbp;
/// call *%rdi; pop %rbp; ret`, or the same for AArch64.
#[cfg(target_arch = "x86_64")]
const MADE: &[u8] = &[0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3];
#[cfg(target_arch = "aarch64")]
const MADE: &[u8] = &[
    0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0x00, 0x00, 0x3f, 0xd6, 0xfd, 0x7b, 0xc1, 0xa8,
    0xc0, 0x03, 0x5f, 0xd6,
];

#[test]
fn code_without_a_table_is_left_by_frame_pointers() {
    leaves(MADE);
}

/// `sub $8, %rsp; call *%rdi; add $8, %rsp; ret`, as Python makes it for each of its functions.
#[cfg(target_arch = "x86_64")]
#[test]
fn trampolines_without_frame_pointers_are_left() {
    leaves(&[0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3]);
}

/// Calls through such code, and compares the stacks there and before.
fn leaves(made: &[u8]) {
    use crate::platform::kernel::syscall::map;
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock();
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    static EXPECTED: AtomicUsize = AtomicUsize::new(0);
    static CODE: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn look() {
        let code = CODE.load(Ordering::Relaxed);
        let mut at_code = None;
        for source in [Source::of_process(), Source::List, Source::List] {
            let found = by(source);
            let position = found.get().iter().position(|&call| (code..code + 64).contains(&call));
            at_code = Some(position.expect("the made code is on the stack"));
            FOUND.store(found.count, Ordering::Relaxed);
        }
        assert!(at_code < Some(4));
        EXPECTED.fetch_add(2, Ordering::Relaxed);
    }
    #[inline(never)]
    fn enter(code: extern "C" fn(extern "C" fn())) -> usize {
        EXPECTED.store(by(Source::of_process()).count, Ordering::Relaxed);
        code(look);
        std::hint::black_box(1)
    }
    // SAFETY: the page is this test's own; the code calls its argument.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let page = map(ptr::null_mut(), 65536, access, 0).unwrap().cast::<u8>();
        page.copy_from(made.as_ptr(), made.len());
        CODE.store(page.addr(), Ordering::Relaxed);
        enter(core::mem::transmute::<*mut u8, extern "C" fn(extern "C" fn())>(page));
    }
    // `look` and the made code come on top.
    assert_eq!(FOUND.load(Ordering::Relaxed), EXPECTED.load(Ordering::Relaxed));
}

mod signals {
    use super::*;

    /// Runs `work` with a handler for a signal, on an alternate stack or not.
    fn with_handler(signal: c_int, flags: c_int, handler: extern "C" fn(c_int), work: impl Fn()) {
        let memory = std::vec![0_u8; 256 << 10].leak();
        // SAFETY: the structs are filled, and the memory stays.
        unsafe {
            let stack = libc::stack_t {
                ss_sp: memory.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: memory.len(),
            };
            libc::sigaltstack(&stack, ptr::null_mut());
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = flags;
            let mut old: libc::sigaction = core::mem::zeroed();
            assert_eq!(libc::sigaction(signal, &action, &mut old), 0);
            #[cfg(target_arch = "aarch64")]
            return_by_own_code(signal, &action);
            work();
            libc::sigaction(signal, &old, ptr::null_mut());
            let none = libc::stack_t { ss_flags: libc::SS_DISABLE, ..stack };
            libc::sigaltstack(&none, ptr::null_mut());
        }
    }

    /// Makes the handler return by code that can be read, as qemu's cannot. Kernels map code that
    /// can.
    #[cfg(target_arch = "aarch64")]
    fn return_by_own_code(signal: c_int, action: &libc::sigaction) {
        const HAS_RETURN: usize = 0x0400_0000;
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: the code is this test's own, and stays. The struct is that of the kernel.
        unsafe {
            let code = crate::platform::kernel::syscall::map(ptr::null_mut(), 65536, access, 0);
            let code = code.unwrap().cast::<u8>();
            code.copy_from(SIGNAL_RETURN.as_ptr(), SIGNAL_RETURN.len());
            let flags = action.sa_flags as usize | HAS_RETURN;
            let new = [action.sa_sigaction, flags, code.expose_provenance(), 0];
            let set = libc::syscall(libc::SYS_rt_sigaction, signal, new.as_ptr(), 0_usize, 8);
            assert_eq!(set, 0);
        }
    }

    extern "C" fn compare_in_handler(_: c_int) {
        compare();
    }

    #[test]
    fn calls_of_signal_handlers() {
        for flags in [0, libc::SA_ONSTACK] {
            with_handler(libc::SIGUSR1, flags, compare_in_handler, || {
                // SAFETY: the handler returns.
                recurse(2, &mut || assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0));
            });
        }
    }

    /// Interrupts code at any instruction, also in the C library and in stubs of the linker.
    #[test]
    fn calls_of_interrupted_code() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn tick(_: c_int) {
            // The unwinder of the process is not meant for this, but works in most places.
            let expected = by_process();
            let found = by(Source::of_process());
            let [expected, found] = [&expected.get()[2..], &found.get()[1..]];
            // It stops at stubs of the linker that have no table.
            if !found.starts_with(expected) {
                MISSED.fetch_add(1, Ordering::Relaxed);
            }
            TAKEN.fetch_add(1, Ordering::Relaxed);
        }
        static MISSED: AtomicUsize = AtomicUsize::new(0);
        let wanted = if cfg!(target_arch = "aarch64") { 20 } else { 2000 };
        with_handler(libc::SIGPROF, libc::SA_ONSTACK | libc::SA_RESTART, tick, || {
            // SAFETY: the timer signals this thread only.
            unsafe {
                let mut event: libc::sigevent = core::mem::zeroed();
                event.sigev_notify = libc::SIGEV_THREAD_ID;
                event.sigev_signo = libc::SIGPROF;
                event.sigev_notify_thread_id = libc::syscall(libc::SYS_gettid) as c_int;
                let mut timer: libc::timer_t = ptr::null_mut();
                let made = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer);
                assert_eq!(made, 0);
                let every = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
                let times = libc::itimerspec { it_interval: every, it_value: every };
                libc::timer_settime(timer, 0, &times, ptr::null_mut());
                let mut text = [0_u8; 64];
                let mut number = 0_u64;
                while TAKEN.load(Ordering::Relaxed) < wanted {
                    let to = text.as_mut_ptr().cast();
                    libc::snprintf(to, 64, c"%f %lu".as_ptr(), number as f64 / 7.0, number);
                    number += libc::strlen(text.as_ptr().cast()) as u64;
                    libc::getppid();
                }
                libc::timer_delete(timer);
            }
        });
        let (missed, taken) = (MISSED.load(Ordering::Relaxed), TAKEN.load(Ordering::Relaxed));
        assert_eq!(missed, 0, "of {taken} stacks");
    }
}

/// Prints nanoseconds a frame: `cargo test --release -p ebbmalloc --lib figures -- --ignored
/// --nocapture`.
#[test]
#[ignore = "prints figures, asserts nothing"]
fn figures() {
    const ROUNDS: u32 = 200;
    const CALLS: u32 = 100;
    fn thread_ns() -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills the struct.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }
    for depth in [0, 8, 40] {
        recurse(depth, &mut || {
            // The least of some rounds, in time of this thread.
            let time = |work: &mut dyn FnMut() -> usize| {
                let frames = work();
                let took = (0..ROUNDS).map(|_| {
                    let start = thread_ns();
                    for _ in 0..CALLS {
                        std::hint::black_box(work());
                    }
                    (thread_ns() - start) / f64::from(CALLS)
                });
                let took = took.fold(f64::MAX, f64::min);
                (frames, took, took / frames as f64)
            };
            let mut out = [0; 128];
            let (frames, stack, frame) = time(&mut || calls(&mut out));
            std::println!("{frames} frames: ours {stack:.0} ns, {frame:.1} ns each");
            let (_, stack, frame) = time(&mut || calls_from(current!(), Source::List, &mut out));
            std::println!("  ours with the list: {stack:.0} ns, {frame:.1} ns each");
            let (frames, stack, frame) = time(&mut || by_process().count);
            std::println!("  {frames} by the process: {stack:.0} ns, {frame:.1} ns each");
        });
    }
}
