//! Tests thread mode: caches are handed on, orphaned by a fork, shared among many threads, and
//! drained while their threads are idle.

use std::ops::RangeInclusive;
use std::sync::{Barrier, mpsc};
use std::thread;

use ebbmalloc::internals::{Engine, OsThreads as _};
use ebbmalloc_testkit::FakeOs;

/// With one CPU there are no transfer caches, in which blocks could be left.
fn engine() -> Engine<FakeOs> {
    Engine::new(FakeOs::default().cpus(1).space(256 << 20).mode("thread"))
}

/// Allocates and frees blocks of several sizes, so that the thread's cache holds some.
fn use_cache(engine: &Engine<FakeOs>) {
    for size in [16, 100, 1000, 5000] {
        let blocks: Vec<_> = (0..200).map(|_| engine.alloc(size)).collect();
        assert!(blocks.iter().all(|block| !block.is_null()));
        for block in blocks {
            // SAFETY: a live block, freed once and not used.
            unsafe { engine.free(block) };
        }
    }
}

fn cached(engine: &Engine<FakeOs>) -> u64 {
    engine.check();
    engine.stats().cached_bytes
}

#[test]
fn a_thread_that_leaves_gives_all_back() {
    let engine = engine();
    use_cache(&engine);
    assert!(cached(&engine) > 0);
    engine.leave_thread();
    assert_eq!(cached(&engine), 0);
    assert_eq!(engine.stats().spans, 0, "all blocks are free");
}

/// The cache lines that a block lies in.
fn lines(address: usize, size: usize) -> RangeInclusive<usize> {
    const LINE: usize = 64;
    address / LINE..=(address + size - 1) / LINE
}

/// Whether two blocks of this size have a cache line in common.
fn share_a_line(one: usize, other: usize, size: usize) -> bool {
    lines(one, size).any(|line| lines(other, size).contains(&line))
}

/// A block freed into a cache that never handed it out comes from another CPU, and so do its
/// neighbours. Its next user would share a cache line with their owner (false sharing), so the
/// cache hands out another block.
#[test]
fn a_block_from_elsewhere_does_not_come_first() {
    for size in [16, 32, 48] {
        for mode in ["slot", "thread"] {
            let engine = Engine::new(FakeOs::default().space(256 << 20).mode(mode));
            let handed: Vec<_> = (0..8).map(|_| engine.alloc(size)).collect();
            engine.trim();
            // SAFETY: a live block, freed once.
            unsafe { engine.free(handed[0]) }
            let got = engine.alloc(size);
            let beside = |block: &*mut u8| share_a_line(block.addr(), got.addr(), size);
            assert!(!handed.iter().any(beside), "blocks of {size}, mode {mode}");
            engine.check();
        }
    }
}

/// The same holds where threads that share a cache have used it before.
#[test]
fn a_block_from_elsewhere_does_not_come_first_in_a_cache_in_use() {
    // One more thread than get caches of their own: it shares one with later threads.
    const OWN: usize = 4;
    for size in [16, 32, 48] {
        let os = FakeOs::default().still().cpus(1).space(256 << 20).mode("auto");
        let engine = Engine::new(os.environment("EBB_SCAVENGER", "0"));
        let (block, free) = (
            &|| engine.alloc(size).expose_provenance(),
            // SAFETY: a live block, freed once.
            &|block| unsafe { engine.free(std::ptr::with_exposed_provenance_mut(block)) },
        );
        let (handed, all_there) = mpsc::channel();
        let leave = Barrier::new(OWN + 1);
        thread::scope(|scope| {
            for _ in 0..OWN {
                let (handed, leave) = (handed.clone(), &leave);
                scope.spawn(move || {
                    (0..8).for_each(|_| handed.send(block()).unwrap());
                    leave.wait();
                });
            }
            let theirs: Vec<usize> = all_there.iter().take(8 * OWN).collect();
            let own = scope.spawn(|| {
                let own = block();
                free(own);
                (own, block())
            });
            let (own, again) = own.join().unwrap();
            let first = theirs[0];
            let got = scope.spawn(move || {
                free(first);
                block()
            });
            let got = got.join().unwrap();
            leave.wait();
            assert_eq!(own, again, "a block of its own comes first");
            assert_eq!(engine.stats().choice.mode, "thread");
            let beside = |other: &usize| share_a_line(*other, got, size);
            assert!(!theirs.iter().chain([&own]).any(beside), "blocks of {size}");
        });
        engine.check();
    }
}

/// Batches of different threads do not share cache lines, however small the blocks are.
#[test]
fn threads_that_use_their_caches_get_lines_of_their_own() {
    const THREADS: usize = 8;
    for size in [16, 32, 48] {
        let engine = engine();
        let block = |_| engine.alloc(size).expose_provenance();
        let handed: Vec<usize> = (0..THREADS).map(block).collect();
        let free = |address: usize| {
            // SAFETY: a live block, freed once.
            unsafe { engine.free(std::ptr::with_exposed_provenance_mut(address)) }
        };
        let line = |address: &usize| lines(*address, size);
        let mut taken: Vec<usize> = handed.iter().flat_map(line).collect();
        for &given in &handed {
            let got = thread::scope(|scope| {
                let work = || {
                    let first = block(0);
                    free(given);
                    assert_eq!(block(0), given, "the newest comes first");
                    free(first);
                    // Like a thread that has one block at a time.
                    let got = block(0);
                    free(got);
                    assert_eq!(block(0), got, "the newest comes first");
                    got
                };
                scope.spawn(work).join().unwrap()
            });
            let lines: Vec<usize> = line(&got).collect();
            let theirs: Vec<_> = lines.iter().filter(|line| taken.contains(line)).collect();
            assert!(theirs.is_empty(), "blocks of {size}: {got:#x} lies beside another thread's");
            taken.extend(lines);
            free(got);
        }
        engine.check();
    }
}

/// The memory of ended threads' caches stays for new threads, until the process is idle.
#[test]
fn an_idle_process_keeps_no_caches_of_threads_that_are_gone() {
    let engine = engine();
    thread::scope(|scope| {
        scope.spawn(|| {
            use_cache(&engine);
            engine.leave_thread();
        });
    });
    let (warm, mut rounds) = (engine.os().touched(), 0);
    while engine.idle() {
        engine.os().sleep_ms(200);
        rounds += 1;
        assert!(rounds < 100, "there is always more to give back");
    }
    let idle = engine.os().touched();
    assert!(idle < warm, "{warm} bytes, then {idle}");
    engine.trim();
    assert_eq!(engine.os().touched(), idle, "there was more to give back");
    engine.check();
}

/// Runs `work` while a thread that has used its cache does nothing, and then `after` in that
/// thread.
fn beside_idle_thread(engine: &Engine<FakeOs>, work: impl FnOnce(), after: impl FnOnce() + Send) {
    let (idle, is_idle) = mpsc::channel();
    let (wake, is_awake) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            use_cache(engine);
            idle.send(()).unwrap();
            // Blocks until the sender is dropped.
            let _ = is_awake.recv();
            after();
            engine.leave_thread();
        });
        is_idle.recv().unwrap();
        work();
        drop(wake);
    });
}

#[test]
fn a_trim_empties_the_cache_of_an_idle_thread() {
    let engine = engine();
    let work = || {
        let (before, touched) = (cached(&engine), engine.os().touched());
        engine.trim();
        assert!(before > 0);
        assert_eq!((cached(&engine), engine.stats().spans), (0, 0));
        assert!(engine.os().touched() < touched, "no memory went");
        let barriers = engine.os().barriers();
        engine.trim();
        assert_eq!(engine.os().barriers(), barriers, "what is empty is emptied again");
    };
    // The thread goes on with an empty cache.
    beside_idle_thread(&engine, work, || use_cache(&engine));
    assert_eq!(cached(&engine), 0);
}

/// A round leaves stacks it has not seen before; the next round drains those that are unchanged.
#[test]
fn rounds_empty_the_cache_of_an_idle_thread() {
    let engine = engine();
    let work = || {
        assert!(cached(&engine) > 0);
        for round in 0.. {
            engine.idle();
            if cached(&engine) == 0 {
                break;
            }
            assert!(round < 10, "the cache stays full");
            engine.os().sleep_ms(200);
        }
    };
    beside_idle_thread(&engine, work, || {});
}

/// Stacks in use stay; those of other classes are drained.
#[test]
fn rounds_leave_what_a_thread_uses() {
    let engine = engine();
    use_cache(&engine);
    let (all, mut held) = (cached(&engine), Vec::new());
    for _ in 0..10 {
        engine.os().sleep_ms(200);
        engine.idle();
        held.push(engine.alloc(100));
    }
    let refills = engine.stats().refills;
    held.push(engine.alloc(100));
    assert_eq!(engine.stats().refills, refills, "a stack in use was emptied");
    assert!((1..all / 2).contains(&cached(&engine)), "{} bytes of {all}", cached(&engine));
    // SAFETY: freed once.
    held.into_iter().for_each(|block| unsafe { engine.free(block) });
    engine.leave_thread();
}

/// Where the engine cannot send a barrier to other threads, as a seccomp filter may kill for it, a
/// round closes the stacks that it found unused. A later one takes those that their thread has not
/// reopened since.
#[test]
fn rounds_empty_idle_caches_without_a_barrier() {
    let os = FakeOs::default().space(256 << 20).mode("thread").barrier(false).still();
    let engine = Engine::new(os);
    let work = || {
        let before = cached(&engine);
        let after_round = || {
            engine.os().sleep_ms(200);
            engine.idle();
            cached(&engine)
        };
        engine.os().set_busy(true);
        assert!((0..5).all(|_| after_round() == before), "its thread may be at work");
        engine.os().set_busy(false);
        assert!((0..5).any(|_| after_round() == 0), "the cache stays full");
        assert_eq!(engine.os().barriers(), 0);
    };
    beside_idle_thread(&engine, work, || use_cache(&engine));
    assert_eq!(cached(&engine), 0);
    // A trim both closes and takes.
    let work = || {
        engine.trim();
        assert_eq!((cached(&engine), engine.os().barriers()), (0, 0));
    };
    beside_idle_thread(&engine, work, || use_cache(&engine));
}

/// The same, but the thread comes back in between: with a block, or to leave.
#[test]
fn closed_caches_are_opened_by_their_threads() {
    for leaves in [false, true] {
        let os = FakeOs::default().space(256 << 20).mode("thread").barrier(false).still();
        let engine = Engine::new(os);
        let close = || {
            for _ in 0..2 {
                engine.os().sleep_ms(200);
                engine.idle();
            }
            assert!(cached(&engine) > 0);
        };
        let after = || {
            if !leaves {
                let before = cached(&engine);
                let block = engine.alloc(16);
                assert_eq!(cached(&engine), before - 16, "a closed stack was not opened");
                engine.os().sleep_ms(1000);
                engine.idle();
                // SAFETY: freed once.
                unsafe { engine.free(block) };
                engine.check();
            }
        };
        beside_idle_thread(&engine, close, after);
        assert_eq!(cached(&engine), 0);
        engine.check();
    }
}

/// A thread that may be in the middle of an operation keeps its whole cache and can go on.
#[test]
fn caches_of_threads_at_work_stay() {
    let refused = FakeOs::default().space(256 << 20).mode("thread").barrier(false);
    for (engine, barrier) in [(engine(), true), (Engine::new(refused), false)] {
        let work = || {
            let before = cached(&engine);
            engine.os().set_busy(true);
            engine.trim();
            engine.os().set_busy(false);
            assert_eq!(engine.os().barriers() > 0, barrier);
            assert_eq!(cached(&engine), before);
        };
        let goes_on = || {
            let refills = engine.stats().refills;
            let block = engine.alloc(16);
            assert_eq!(engine.stats().refills, refills, "the cache does not work any more");
            // SAFETY: freed once.
            unsafe { engine.free(block) };
            use_cache(&engine);
        };
        beside_idle_thread(&engine, work, goes_on);
        assert_eq!(cached(&engine), 0);
    }
}

/// Threads end without leaving, by the bare system call: their words are unmapped, and the engine
/// cannot read them.
#[test]
fn what_threads_left_that_were_not_seen_to_leave_goes_back() {
    let engine = engine();
    thread::scope(|scope| scope.spawn(|| use_cache(&engine)).join().unwrap());
    assert!(cached(&engine) > 0);
    engine.trim();
    assert_eq!(cached(&engine), 0);
}

/// Destructors that run after the engine's allocate without a cache, and leave none.
#[test]
fn a_thread_that_has_left_still_allocates() {
    let engine = engine();
    use_cache(&engine);
    engine.leave_thread();
    use_cache(&engine);
    assert_eq!(cached(&engine), 0);
    assert_eq!(engine.stats().spans, 0);
    engine.leave_thread();
}

/// Many threads one after another need one cache. Many at once need one each, which go back.
#[test]
fn caches_are_handed_on() {
    let engine = engine();
    let one_after_the_other = || {
        for _ in 0..50 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    use_cache(&engine);
                    engine.leave_thread();
                });
            });
        }
    };
    one_after_the_other();
    let before = engine.os().uncommitted();
    one_after_the_other();
    assert_eq!(engine.os().uncommitted(), before, "more caches than threads");

    let purged = engine.os().purges();
    let leave = std::sync::Barrier::new(50);
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                use_cache(&engine);
                leave.wait();
                engine.leave_thread();
            });
        }
    });
    assert_eq!(cached(&engine), 0);
    assert!(engine.os().purges() >= purged + 10, "free caches stay resident");
    one_after_the_other();
    assert_eq!(cached(&engine), 0);
}

/// The blocks in caches that a fork left behind are not lost: the next thread or a trim gets them.
#[test]
fn orphans_are_adopted() {
    let engine = engine();
    // Threads that end without leaving, as in the child of a fork.
    for _ in 0..3 {
        thread::scope(|scope| {
            scope.spawn(|| use_cache(&engine));
        });
    }
    use_cache(&engine);
    let (all, refills) = (cached(&engine), engine.stats().refills);
    engine.before_fork();
    engine.after_fork_in_child();
    assert_eq!(cached(&engine), all);

    thread::scope(|scope| {
        scope.spawn(|| {
            // The first miss takes a cache over, and a block from there.
            let block = engine.alloc(100);
            assert_eq!(engine.stats().refills, refills, "the cache was not taken over");
            // SAFETY: freed once.
            unsafe { engine.free(block) };
            let block = engine.alloc(5000);
            assert_eq!(engine.stats().refills, refills, "the cache was not taken over");
            // SAFETY: freed once.
            unsafe { engine.free(block) };
            engine.leave_thread();
        });
    });
    assert!(cached(&engine) < all);
    engine.trim();
    assert_eq!((cached(&engine), engine.stats().spans), (0, 0));
    use_cache(&engine);
}

/// The more threads there are, the less each cache may hold.
#[test]
fn caches_shrink_as_threads_come() {
    let engine = engine();
    let held_by_one_more = || {
        let before = cached(&engine);
        use_cache(&engine);
        cached(&engine) - before
    };
    let (joined, next) = mpsc::channel();
    let alone = held_by_one_more();
    thread::scope(|scope| {
        let leave: Vec<_> = (0..100)
            .map(|_| {
                let (leave, stay) = mpsc::channel::<()>();
                let (engine, joined) = (&engine, joined.clone());
                scope.spawn(move || {
                    use_cache(engine);
                    joined.send(()).unwrap();
                    // Blocks until the sender is dropped.
                    let _ = stay.recv();
                    engine.leave_thread();
                });
                next.recv().unwrap();
                leave
            })
            .collect();
        let all = cached(&engine);
        assert!(all < alone * 60, "{all} bytes in 101 caches, {alone} in the first");
        drop(leave);
    });
    assert!(cached(&engine) <= alone);
}

#[test]
fn without_memory_for_caches_slots_serve() {
    let engine = Engine::new(FakeOs::default().refusing(0..1).mode("thread"));
    use_cache(&engine);
    assert_eq!(engine.stats().choice.mode, "slot");
    let printed = engine.os().printed();
    let told = "EBB_MODE=thread is not possible: too little memory; using slot";
    assert_eq!(printed.matches(told).count(), 1, "{printed}");
}

/// Where thread mode is the only possible one and was not asked for, four threads per CPU have
/// caches of their own. The others share one cache per CPU, until one of the first threads has
/// ended.
#[test]
fn threads_beyond_those_of_the_cpus_share_caches() {
    // A still clock: as time passes, unused caches would be drained.
    let os = FakeOs::default().still().cpus(1).space(256 << 20).mode("auto");
    let engine = Engine::new(os.environment("EBB_SCAVENGER", "0"));
    // The bytes in caches while `threads` threads live. They allocate one after another: side by
    // side, chance decides what a refill finds in the spans, and so whether five threads cache more
    // than four.
    let at_once = |threads: usize| {
        let leave = Barrier::new(threads + 1);
        let (used, next) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..threads {
                let (engine, leave, used) = (&engine, &leave, used.clone());
                scope.spawn(move || {
                    use_cache(engine);
                    used.send(()).unwrap();
                    leave.wait();
                    engine.leave_thread();
                });
                next.recv().unwrap();
            }
            let held = cached(&engine);
            leave.wait();
            held
        })
    };
    let (four, five, fifty) = (at_once(4), at_once(5), at_once(50));
    assert!(engine.stats().choice.mode == "thread" && four > 0);
    // The fifth thread has no cache, yet put blocks into a shared one. Forty-six threads put at
    // most a few times as much there.
    assert!(five > four && fifty < four * 4, "{four} {five} {fifty}");
    // The caches of the first four threads were flushed as they left.
    let shared = cached(&engine);
    assert!(0 < shared && shared < fifty, "{shared} of {fifty}");
    engine.trim();
    assert_eq!((cached(&engine), engine.stats().spans), (0, 0));
}

/// More threads than caches, where each thread asks for one: the rest go without.
#[test]
fn threads_beyond_the_last_cache_are_served() {
    let engine = Engine::new(FakeOs::default().space(8 << 20).mode("thread"));
    let leave = std::sync::Barrier::new(12);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let blocks = [engine.alloc(16), engine.alloc(3000)];
                assert!(blocks.iter().all(|block| !block.is_null()));
                leave.wait();
                // SAFETY: freed once.
                blocks.into_iter().for_each(|block| unsafe { engine.free(block) });
                engine.leave_thread();
            });
        }
    });
    assert_eq!(cached(&engine), 0);
    assert_eq!(engine.stats().choice.mode, "thread");
}
