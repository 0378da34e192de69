//! Tests all modes under timers that interrupt every thread and under moves between real and
//! pretended CPUs, so that restartable sequences do restart. Also tests thread mode with signal
//! handlers that use the cache of the thread they interrupted.
#![cfg(not(any(miri, loom)))]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{mem, ptr, thread};

use ebbmalloc::internals::{Engine, OsProcess};
use ebbmalloc_testkit::{LinuxIn, is_possible};

const THREADS: usize = 4;
/// The number of rounds, unless `EBB_TEST_ROUNDS` sets fewer, as under emulation.
const ROUNDS: usize = 2000;
/// How often each thread is interrupted, in nanoseconds of its own CPU time.
const PERIOD_NS: i64 = 30_000;

static INTERRUPTS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The engine that signal handlers of this thread allocate from, if any.
    static IN_HANDLERS: Cell<Option<&'static Engine<LinuxIn>>> = const { Cell::new(None) };
    /// The number of the virtual CPU that the thread pretends to run on. At first none, as in the
    /// library's own rseq area, so a thread registers where that is the library's duty.
    static PRETENDED: Cell<u32> = const { Cell::new(u32::MAX) };
    /// The number of this thread in the test.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The number of virtual CPUs that a test pretends to have, and how many of them each of its
/// threads gets, the first thread included.
const PRETENDED_CPUS: usize = 256;
const EACH: u32 = (PRETENDED_CPUS / (THREADS + 1)) as u32;

/// The offset of `PRETENDED` from the thread pointer: the same in all threads of an executable.
fn pretended_at() -> isize {
    let thread: usize;
    // SAFETY: reads the thread pointer.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) thread);
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread);
    }
    PRETENDED.with(|id| ptr::from_ref(id).addr().wrapping_sub(thread) as isize)
}

extern "C" fn interrupt(_: libc::c_int) {
    let nth = INTERRUPTS.fetch_add(1, Ordering::Relaxed) as u32;
    // As if moved to another CPU: a sequence that this interrupts restarts and sees the new number.
    PRETENDED.set(NUMBER.get() * EACH + nth.wrapping_mul(37) % EACH);
    if let Some(engine) = IN_HANDLERS.get() {
        let blocks = [engine.alloc(SIZE), engine.alloc(SIZE)].map(<*mut u8>::cast::<u64>);
        for block in blocks {
            // SAFETY: a live block of this handler, freed once.
            unsafe {
                block.write_volatile(u64::MAX);
                engine.free(block.cast());
            }
        }
    }
}

fn rounds() -> usize {
    let asked = std::env::var("EBB_TEST_ROUNDS").ok();
    asked.map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"))
}

fn handle_interrupts() {
    // SAFETY: all zero bytes are a valid action.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = interrupt as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()), 0);
    }
}

/// A timer that interrupts the calling thread while the value lives.
struct Timer(libc::timer_t);

impl Timer {
    fn start() -> Self {
        let period = libc::timespec { tv_sec: 0, tv_nsec: PERIOD_NS };
        // SAFETY: all zero bytes are a valid event; the calls read and fill the values they are
        // given.
        unsafe {
            let mut event: libc::sigevent = mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGUSR1;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = ptr::null_mut();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
            let every = libc::itimerspec { it_interval: period, it_value: period };
            assert_eq!(libc::timer_settime(timer, 0, &every, ptr::null_mut()), 0);
            Self(timer)
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: `start` created the timer, and it is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// The CPUs that this process may run on.
fn cpus() -> Vec<usize> {
    // SAFETY: all zero bytes are an empty set, which the call fills.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Moves a thread to a CPU; false if it has ended.
fn move_to(thread: libc::pid_t, cpu: usize) -> bool {
    // SAFETY: all zero bytes are an empty set; the call reads the set.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(thread, size_of_val(&set), &set) == 0
    }
}

/// Allocates and frees bursts of blocks, from a few to more than a cache holds. Each block carries
/// a number of its own and must still carry it when freed: otherwise the engine handed it out
/// twice.
fn work(engine: &Engine<LinuxIn>, thread: usize, rounds: usize) {
    let mut blocks: Vec<*mut u64> = Vec::new();
    for round in 0..rounds {
        let size = [16, 64, 16, 8192][round % 4];
        let burst = if size == 8192 { 40 } else { 1 + round * 37 % 1500 };
        let number = |nth: usize| (thread << 48 | round << 16 | nth) as u64;
        for nth in 0..burst {
            let block = engine.alloc(size).cast::<u64>();
            assert!(!block.is_null());
            // SAFETY: a live block of this thread.
            unsafe { block.write_volatile(number(nth)) };
            blocks.push(block);
        }
        for (nth, block) in blocks.drain(..).enumerate() {
            // SAFETY: still live, and not used after its free.
            unsafe {
                assert_eq!(block.read_volatile(), number(nth), "{block:p} was handed out twice");
                engine.free(block.cast());
            }
        }
    }
}

#[test]
fn sequences_restart() {
    in_mode(LinuxIn::new("percpu"), rounds(), |_| {});
}

/// CPU numbers far beyond the number of CPUs, as on a machine with 256. No two threads have the
/// same.
#[test]
fn numbers_are_beyond_the_cpus() {
    let engine = LinuxIn::new("percpu").cpus(PRETENDED_CPUS).id_at(pretended_at());
    in_mode(engine, rounds() / 4, |engine| {
        engine.trim();
    });
}

/// More CPUs than caches, as where CPUs were added later: threads on those are served without a
/// cache.
#[test]
fn numbers_are_beyond_the_caches() {
    in_mode(LinuxIn::new("percpu").cpus(1), rounds() / 4, |engine| {
        engine.trim();
    });
    let few = LinuxIn::new("percpu").cpus(PRETENDED_CPUS / 3).id_at(pretended_at());
    in_mode(few, rounds() / 4, |_| {});
}

/// Interrupts and moves threads in the other modes, with fewer and with more caches than CPUs.
#[test]
fn other_modes_are_interrupted() {
    in_mode(LinuxIn::new("thread"), rounds() / 4, |engine| {
        engine.trim();
    });
    in_mode(LinuxIn::new("slot").cpus(1), rounds() / 4, |engine| {
        engine.trim();
    });
    in_mode(LinuxIn::new("slot").cpus(PRETENDED_CPUS), rounds() / 4, |engine| {
        engine.trim();
    });
}

/// Drains caches and purges pages of spans while sequences work on them.
#[test]
fn caches_are_emptied_under_sequences() {
    in_mode(LinuxIn::new("percpu"), rounds(), |engine| {
        for _ in 0..20 {
            engine.trim();
        }
    });
}

/// Drains caches of threads, whose operations nothing restarts. They are so short that many begin
/// and end within one drain.
#[test]
fn caches_of_threads_are_emptied_under_work() {
    emptied_under_work(LinuxIn::new("thread"));
}

/// Two of the threads have no caches of their own.
#[test]
fn caches_of_threads_and_shared_ones_are_emptied_under_work() {
    emptied_under_work(LinuxIn::new("auto").without_rseq().cpus(1));
}

fn emptied_under_work(os: LinuxIn) {
    let engine = Engine::new(os);
    let over = AtomicBool::new(false);
    let mut emptied = 0;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let engine = &engine;
                scope.spawn(move || {
                    work(engine, number, rounds() / 4);
                    swap_blocks(engine, number, rounds() * 500);
                    engine.leave_thread();
                })
            })
            .collect();
        // One thread that does nothing, and one after another that only comes and goes.
        scope.spawn(|| {
            swap_blocks(&engine, THREADS, 1000);
            while !over.load(Ordering::Relaxed) {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let sizes = (0..60).map(|nth| 16 + nth * nth);
                        let blocks: Vec<_> = sizes.map(|size| engine.alloc(size)).collect();
                        // SAFETY: live blocks, each freed once.
                        blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
                        engine.leave_thread();
                    });
                });
            }
            engine.leave_thread();
        });
        while workers.iter().any(|worker| !worker.is_finished()) {
            engine.trim();
            emptied += 1;
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("emptied {emptied} times");
    engine.check_with(&[]);
    // Shared caches keep their blocks when threads leave, and the last drain may have come before
    // that.
    engine.trim();
    let stats = engine.stats();
    assert_eq!((stats.live_bytes, stats.cached_bytes), (0, 0));
}

/// Frees the oldest of a few blocks and allocates another, again and again.
fn swap_blocks(engine: &Engine<LinuxIn>, thread: usize, rounds: usize) {
    let mut blocks = [ptr::null_mut::<u64>(); 8];
    let number = |round: usize| (thread << 48 | round) as u64;
    for round in 0..rounds {
        let block = &mut blocks[round % 8];
        // SAFETY: a live block of this thread, until it is freed.
        unsafe {
            assert!(round < 8 || block.read_volatile() == number(round - 8), "{block:p} is shared");
            engine.free(block.cast());
            *block = engine.alloc(SIZE).cast();
            block.write_volatile(number(round));
        }
    }
    // SAFETY: freed once.
    blocks.into_iter().for_each(|block| unsafe { engine.free(block.cast()) });
}

/// A trim during a round of the scavenger, which only drains unused caches, still drains all
/// caches.
#[test]
fn trim_empties_caches_though_somebody_is_in_a_round() {
    static ENGINE: OnceLock<Engine<LinuxIn>> = OnceLock::new();
    static OTHER: OnceLock<Mutex<Option<JoinHandle<bool>>>> = OnceLock::new();
    let meanwhile = || {
        // The first call, which is within a round.
        if OTHER.set(Mutex::default()).is_ok() {
            let other = thread::spawn(|| ENGINE.get().unwrap().trim());
            *OTHER.get().unwrap().lock().unwrap() = Some(other);
            // So that the other thread reaches the point where it waits for this round.
            thread::sleep(Duration::from_millis(300));
        }
    };
    let os = LinuxIn::new("percpu").while_restarting(meanwhile);
    let engine = ENGINE.get_or_init(|| Engine::new(os));
    if !is_possible(engine, "percpu") {
        return;
    }
    let churn = |size| {
        for cpu in cpus() {
            // A CPU that has just gone offline takes no thread: then the blocks are in another
            // CPU's cache.
            move_to(0, cpu);
            let blocks: Vec<_> = (0..100).map(|_| engine.alloc(size)).collect();
            // SAFETY: live blocks, each freed once.
            blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
        }
    };
    // A round drains stacks of the size that is no longer used, and leaves those of the other size.
    churn(64);
    while OTHER.get().is_none() {
        churn(1000);
        thread::sleep(Duration::from_millis(20));
        engine.idle();
    }
    let other = OTHER.get().unwrap().lock().unwrap().take();
    other.unwrap().join().unwrap();
    assert_eq!(engine.stats().cached_bytes, 0);
    engine.check();
}

/// A thread that drains a cache may lose its CPU right after it has closed the stacks. A thread
/// that needs one meanwhile reopens it, goes on with its blocks, and the stack is not drained.
#[test]
fn a_stack_that_is_wanted_while_it_is_closed_is_opened_again() {
    static ENGINE: OnceLock<Engine<LinuxIn>> = OnceLock::new();
    /// The most refills in one call. Where CPUs come and go, sequences may be restarted twice.
    static REFILLS_MAX: OnceLock<AtomicU64> = OnceLock::new();
    const WANTED: usize = 40;
    let meanwhile = || {
        let engine = ENGINE.get().unwrap();
        let before = engine.stats().refills;
        let blocks: Vec<_> = (0..WANTED).map(|_| engine.alloc(64)).collect();
        let refills = engine.stats().refills - before;
        REFILLS_MAX.get_or_init(AtomicU64::default).fetch_max(refills, Ordering::Relaxed);
        // SAFETY: live blocks, each freed once.
        blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
    };
    let os = LinuxIn::new("percpu").while_restarting(meanwhile);
    let engine = ENGINE.get_or_init(|| Engine::new(os));
    if !is_possible(engine, "percpu") {
        return;
    }
    for cpu in cpus() {
        // Each CPU's cache gets some blocks, whichever CPU a thread runs on.
        move_to(0, cpu);
        for size in [64, 1000] {
            let blocks: Vec<_> = (0..WANTED).map(|_| engine.alloc(size)).collect();
            // SAFETY: live blocks, each freed once.
            blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
        }
    }
    engine.trim();
    let refills = REFILLS_MAX.get().expect("the trim restarts sequences");
    assert!(refills.load(Ordering::Relaxed) <= 1, "{refills:?} refills");
    let cached = engine.stats().cached_bytes;
    assert!((64..=2 * 64 * WANTED as u64).contains(&cached), "{cached} bytes in caches");
    engine.check();
}

/// Runs threads under interrupts and moves, while `meanwhile` acts on the engine.
fn in_mode(os: LinuxIn, rounds: usize, meanwhile: impl Fn(&Engine<LinuxIn>)) {
    let mut asked = [0; 8];
    let length = OsProcess::environment(&os, "EBB_MODE", &mut asked).unwrap();
    PRETENDED.set(u32::MAX);
    let engine = Engine::new(os);
    let possible = is_possible(&engine, str::from_utf8(&asked[..length]).unwrap());
    PRETENDED.set(THREADS as u32 * EACH);
    if !possible {
        return;
    }
    handle_interrupts();
    let (cpus, moves) = (cpus(), AtomicUsize::new(0));
    let threads = [const { AtomicUsize::new(0) }; THREADS];
    thread::scope(|scope| {
        let workers: Vec<_> = threads
            .iter()
            .enumerate()
            .map(|(number, id)| {
                let (engine, moves) = (&engine, &moves);
                scope.spawn(move || {
                    // SAFETY: asks for a number.
                    id.store(unsafe { libc::gettid() } as usize, Ordering::Relaxed);
                    NUMBER.set(number as u32);
                    // SAFETY: freed once.
                    unsafe { engine.free(engine.alloc(1)) };
                    PRETENDED.set(number as u32 * EACH);
                    let timer = Timer::start();
                    work(engine, number, rounds);
                    // On a busy machine, the threads may finish before the first move.
                    while moves.load(Ordering::Relaxed) == 0 {
                        work(engine, number, rounds);
                    }
                    drop(timer);
                    engine.leave_thread();
                })
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            for (nth, id) in threads.iter().enumerate() {
                let id = id.load(Ordering::Relaxed) as libc::pid_t;
                // Two threads change places, two stay together.
                let cpu = cpus[(moves.load(Ordering::Relaxed) / THREADS + nth / 2) % cpus.len()];
                moves.fetch_add((id != 0 && move_to(id, cpu)) as usize, Ordering::Relaxed);
            }
            meanwhile(&engine);
            thread::sleep(Duration::from_micros(100));
        }
    });
    engine.check();
    assert_eq!(engine.stats().live_bytes, 16, "the one block from the beginning");
    let (interrupts, moves) = (INTERRUPTS.load(Ordering::Relaxed), moves.into_inner());
    println!("{interrupts} interrupts, {moves} moves among {} CPUs", cpus.len());
    assert!(interrupts > 0 && moves > 0);
}

/// The size of the blocks that handlers and the threads they interrupt allocate.
const SIZE: usize = 48;

/// A handler that allocates in the middle of its thread's operation on the cache gets no block that
/// the thread has, nor the other way round. The thread's cache becomes neither empty nor full: an
/// operation that holds locks of the engine must not be interrupted by such a handler, in any mode.
#[test]
fn handlers_allocate() {
    const HELD: usize = 8;
    const KEPT: usize = 16 * HELD;
    let engine: &Engine<LinuxIn> = Box::leak(Box::new(Engine::new(LinuxIn::new("thread"))));
    handle_interrupts();
    let work = |thread: usize| {
        let mut blocks: [*mut u64; 64 * HELD] = [(); 64 * HELD].map(|()| engine.alloc(SIZE).cast());
        // SAFETY: live blocks, each freed once.
        blocks[KEPT..].iter().for_each(|block| unsafe { engine.free(block.cast()) });
        // The cache now has many blocks to spare, and space for as many: where a handler interrupts
        // an operation on it, blocks go past it.
        blocks[KEPT..2 * KEPT].fill_with(|| engine.alloc(SIZE).cast());
        let timer = Timer::start();
        IN_HANDLERS.set(Some(engine));
        for round in 0..rounds() * 500 {
            let block = &mut blocks[round % HELD];
            let number = |round| (thread << 48 | round) as u64;
            // SAFETY: a live block of this thread, until it is freed.
            unsafe {
                assert!(round < HELD || block.read_volatile() == number(round - HELD));
                engine.free(block.cast());
                *block = engine.alloc(SIZE).cast();
                block.write_volatile(number(round));
            }
        }
        IN_HANDLERS.set(None);
        drop(timer);
        // SAFETY: freed once.
        blocks[..2 * KEPT].iter().for_each(|block| unsafe { engine.free(block.cast()) });
        engine.leave_thread();
    };
    thread::scope(|scope| {
        (0..2).for_each(|number| drop(scope.spawn(move || work(number))));
    });
    // Where one thread waited for the other, blocks went to transfer caches.
    engine.trim();
    engine.check();
    let stats = engine.stats();
    assert_eq!((stats.live_bytes, stats.cached_bytes), (0, 0));
}
