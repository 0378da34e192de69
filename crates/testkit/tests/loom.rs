//! Checks with loom every interleaving (up to three preemptions) of the code that threads share.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test --release -p ebbmalloc-testkit --test loom
//! ```
//!
//! Each model has a mutant that must fail, which shows that the model detects the mistake.
#![cfg(loom)]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ebbmalloc::model::{
    Caches, CounterShard, CpuCache, Emptied, HeapId, HeapLayers, Layers, LiveBytes, Lock, Mistake,
    Near, ProfileMistake, ProfileSwitch, SHARD_SLACK_BYTES, Scavenger, SequenceLock, ThreadCache,
};
use ebbmalloc_testkit::FakeOs;
use loom::thread;

/// Two blocks of this size share a span, which has eight of them.
const SIZE: usize = 8 * 1024;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Runs `work` on two more threads, and waits for them.
fn on_two_threads<T: Send + Sync + 'static>(shared: &Arc<T>, work: fn(&T, usize)) {
    let threads = [0, 1].map(|number| {
        let shared = Arc::clone(shared);
        thread::spawn(move || work(&shared, number))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn layers(caches: usize) -> Layers<FakeOs> {
    Layers::new(FakeOs::default().space(8 << 20), SIZE, caches)
}

/// A block that is only a number: caches do not read blocks.
fn block(number: usize) -> *mut u8 {
    ptr::without_provenance_mut(number * SIZE)
}

/// Which blocks are held, by the block's number. Not one of loom's types, so it adds no
/// interleavings.
#[derive(Default)]
struct Held([AtomicUsize; 32]);

impl Held {
    fn slot(&self, block: *mut u8) -> &AtomicUsize {
        &self.0[block.addr() / SIZE % self.0.len()]
    }

    fn take(&self, block: *mut u8) {
        assert_eq!(self.slot(block).swap(1, Relaxed), 0, "{block:p} handed out twice");
    }

    fn give(&self, block: *mut u8) {
        assert_eq!(self.slot(block).swap(0, Relaxed), 1, "{block:p} given back twice");
    }

    /// Takes the blocks left in the caches, and checks that each block of these numbers is held.
    fn take_rest(&self, rest: Vec<*mut u8>, numbers: [usize; 2]) {
        rest.into_iter().for_each(|block| self.take(block));
        for number in numbers {
            let holders = self.slot(block(number)).load(Relaxed);
            assert_eq!(holders, 1, "block {number} is lost");
        }
    }
}

mod lock {
    use super::*;

    #[test]
    fn excludes_and_orders() {
        explore(|| {
            let count = Arc::new(Lock::new(0));
            on_two_threads(&count, |count, _| {
                *count.lock() += 1;
                *count.lock() += 1;
            });
            assert_eq!(*count.lock(), 4);
        });
    }

    #[test]
    fn wakes_every_sleeper() {
        explore(|| {
            let count = Arc::new(Lock::new(0));
            let guard = count.lock();
            let threads = [0, 1].map(|_| {
                let count = Arc::clone(&count);
                thread::spawn(move || *count.lock() += 1)
            });
            thread::yield_now();
            drop(guard);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*count.lock(), 2);
        });
    }

    #[test]
    fn try_lock_excludes() {
        explore(|| {
            let count = Arc::new((Lock::new(0), AtomicUsize::new(0)));
            on_two_threads(&count, |(count, successes), _| {
                if let Some(mut count) = count.try_lock() {
                    *count += 1;
                    successes.fetch_add(1, Relaxed);
                }
            });
            assert_eq!(*count.0.lock(), count.1.load(Relaxed));
        });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn mutant_that_does_not_exclude() {
        explore(|| {
            let count = Arc::new(Lock::new(0));
            on_two_threads(&count, |count, number| {
                if number == 0 {
                    // SAFETY: none; this is the mutant.
                    unsafe { count.force_unlock() };
                }
                *count.lock() += 1;
            });
        });
    }

    /// Like [`Lock`] without a slow path, but unlocked by a store that orders nothing.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn mutant_that_does_not_order() {
        use loom::cell::UnsafeCell;
        use loom::sync::atomic::{AtomicU32, Ordering};
        struct Relaxed(AtomicU32, UnsafeCell<u32>);
        // SAFETY: none; this is the mutant.
        unsafe impl Sync for Relaxed {}

        explore(|| {
            let count = Arc::new(Relaxed(AtomicU32::new(0), UnsafeCell::new(0)));
            on_two_threads(&count, |Relaxed(state, count), _| {
                if state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    // SAFETY: none; this is the mutant.
                    count.with_mut(|count| unsafe { *count += 1 });
                    state.store(0, Ordering::Relaxed);
                }
            });
        });
    }
}

mod central {
    use super::*;

    /// Claims and releases blocks on two threads, each of which also releases a block of a span in
    /// which the other has a block.
    fn claim_and_release(before: usize, mutate: bool) {
        explore(move || {
            let layers = layers(1);
            let given = layers.claim(before);
            let shared = Arc::new((layers, Held::default(), Blocks(given), mutate));
            shared.2.0.iter().for_each(|&block| shared.1.take(block));
            on_two_threads(&shared, |(layers, held, Blocks(given), mutate), number| {
                if *mutate && number == 0 {
                    layers.break_class_lock();
                }
                let mut blocks = layers.claim(2);
                assert_eq!(blocks.len(), 2);
                blocks.iter().for_each(|&block| held.take(block));
                blocks.extend(given.get(number));
                blocks.iter().for_each(|&block| held.give(block));
                layers.release(&blocks);
            });
            assert_eq!(shared.0.check(), (0, 0), "spans and blocks that remain");
        });
    }

    /// Blocks that a thread gives to others.
    struct Blocks(Vec<*mut u8>);
    // SAFETY: the blocks are only compared and given back.
    unsafe impl Send for Blocks {}
    // SAFETY: the blocks are only compared and given back.
    unsafe impl Sync for Blocks {}

    #[test]
    fn spans_start_and_retire() {
        claim_and_release(0, false);
    }

    #[test]
    fn spans_are_shared_and_retire_once() {
        claim_and_release(2, false);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn mutant_whose_lock_does_not_exclude() {
        claim_and_release(2, true);
    }
}

mod heaps {
    use super::*;

    /// Three blocks of this size have a span of two units. Its record may stay in the middle of a
    /// run after it is freed.
    const SIZE: usize = 40 * 1024;

    struct Shared {
        layers: HeapLayers<FakeOs>,
        heaps: [HeapId; 3],
        block: usize,
    }

    impl Shared {
        fn block(&self) -> *mut u8 {
            ptr::without_provenance_mut(self.block)
        }
    }

    /// Words of stack of the threads that make heaps. A heap has 8 KiB, which loom's cells copy
    /// several times, and a model's first thread has 32 KiB.
    const STACK_WORDS: usize = 16 << 10;

    /// One thread purges pages in the span of a heap, behind free memory, while another does
    /// `work`.
    fn dig_meanwhile(dig: fn(&Shared), work: fn(&Shared)) {
        explore(move || {
            let spacious = thread::Builder::new().stack_size(STACK_WORDS);
            spacious.spawn(move || dig_beside(dig, work)).unwrap().join().unwrap();
        });
    }

    fn dig_beside(dig: fn(&Shared), work: fn(&Shared)) {
        let layers = HeapLayers::new(FakeOs::default().space(8 << 20), SIZE);
        let heaps = [layers.make(), layers.make(), layers.make()];
        let before = layers.claim(heaps[1]);
        let block = layers.claim(heaps[0]).addr();
        layers.release(heaps[1], before);
        let shared = Arc::new(Shared { layers, heaps, block });
        let digger = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || dig(&shared))
        };
        work(&shared);
        digger.join().unwrap();
    }

    fn dig(shared: &Shared) {
        shared.layers.purge_free_pages(shared.block());
    }

    /// Frees the last block, and so the span's units: two other heaps get spans there next.
    fn hand_over(Shared { layers, heaps, .. }: &Shared) {
        layers.claim(heaps[1]);
        layers.claim(heaps[2]);
    }

    #[test]
    fn span_becomes_another_heaps() {
        dig_meanwhile(dig, |shared| {
            shared.layers.release(shared.heaps[0], shared.block());
            hand_over(shared);
        });
    }

    #[test]
    fn heap_is_deleted_and_another_takes_its_place() {
        dig_meanwhile(dig, |shared| {
            shared.layers.delete(shared.heaps[0]);
            let heap = shared.layers.make();
            shared.layers.claim(heap);
            shared.layers.claim(heap);
        });
    }

    #[test]
    #[should_panic(expected = "digging in a span of another heap")]
    fn mutant_without_second_look() {
        dig_meanwhile(
            |shared| shared.layers.dig_without_second_look(shared.block()),
            |shared| {
                shared.layers.release(shared.heaps[0], shared.block());
                hand_over(shared);
            },
        );
    }

    #[test]
    #[should_panic(expected = "digging in a span of another heap")]
    fn mutant_where_freed_runs_keep_their_owner() {
        dig_meanwhile(dig, |shared| {
            shared.layers.release(shared.heaps[0], shared.block());
            shared.layers.forget_that_it_was_freed(shared.heaps[0], shared.block());
            hand_over(shared);
        });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn mutant_whose_lock_does_not_exclude() {
        dig_meanwhile(dig, |shared| {
            shared.layers.break_heap_lock(shared.heaps[0]);
            shared.layers.claim(shared.heaps[0]);
        });
    }
}

mod transfers {
    use super::*;

    /// Each of two threads leaves a block to the other, if it can, and takes what it finds: no
    /// block is lost or doubled.
    fn leave_and_take(caches: usize, mutate: bool) {
        explore(move || {
            let shared = Arc::new((layers(caches), Held::default(), mutate));
            on_two_threads(&shared, |(layers, held, mutate), number| {
                if *mutate && number == 0 {
                    layers.break_cache_lock(0);
                }
                let own = block(number + 1);
                if layers.leave(number, &[own]) == 0 {
                    held.take(own);
                }
                layers.take_left(number, 2).into_iter().for_each(|block| held.take(block));
            });
            let (layers, held, _) = &*shared;
            held.take_rest(layers.drain(), [1, 2]);
        });
    }

    #[test]
    fn one_cache_for_two_threads() {
        leave_and_take(1, false);
    }

    #[test]
    fn two_caches_for_two_threads() {
        leave_and_take(2, false);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn mutant_whose_lock_does_not_exclude() {
        leave_and_take(1, true);
    }
}

mod near {
    use super::*;

    /// Each of two threads frees a large block; one allocates one, the other empties the cache. No
    /// block is lost or doubled.
    fn put_and_take(mutate: bool) {
        explore(move || {
            let shared = Arc::new((Near::new(), Held::default(), mutate));
            on_two_threads(&shared, |(near, held, mutate), number| {
                if *mutate && number == 0 {
                    near.break_lock();
                }
                let removed = near.put(block(number + 1));
                let taken = if number == 0 { near.shed() } else { near.take() };
                let blocks = [removed, taken].into_iter().filter(|block| !block.is_null());
                blocks.for_each(|block| held.take(block));
            });
            let (near, held, _) = &*shared;
            let rest = [near.shed(), near.shed()].into_iter().filter(|block| !block.is_null());
            held.take_rest(rest.collect(), [1, 2]);
        });
    }

    #[test]
    fn one_cache_for_two_threads() {
        put_and_take(false);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn mutant_whose_lock_does_not_exclude() {
        put_and_take(true);
    }
}

mod slots {
    use super::*;

    /// Each of two threads takes blocks from the caches and puts one back; no block is lost or
    /// doubled.
    fn push_and_pop(caches: usize, mutate: bool) {
        explore(move || {
            let shared = Arc::new((layers(caches), Held::default(), mutate));
            let (layers, held, _) = &*shared;
            assert!(layers.push(0, block(1)) && layers.push(0, block(2)));
            on_two_threads(&shared, |(layers, held, mutate), number| {
                if *mutate && number == 0 {
                    layers.break_cache_lock(0);
                }
                let popped = [layers.pop(number), layers.pop(number)];
                let mut popped = popped.into_iter().filter(|block| !block.is_null());
                let returned = popped.next();
                returned.into_iter().chain(popped).for_each(|block| held.take(block));
                if let Some(block) = returned {
                    held.give(block);
                    assert!(layers.push(number, block), "no room");
                }
            });
            held.take_rest(layers.drain(), [1, 2]);
        });
    }

    #[test]
    fn one_cache_for_two_threads() {
        push_and_pop(1, false);
    }

    #[test]
    fn two_caches_for_two_threads() {
        push_and_pop(2, false);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn mutant_whose_lock_does_not_exclude() {
        push_and_pop(1, true);
    }
}

mod thread_caches {
    use super::*;

    /// Two threads take a cache each, put a block into it and release it, twice; a third cache
    /// exists from the beginning. No two threads have one cache at the same time, and a block is
    /// found at most once after it was put there.
    fn hand_on(mutate: bool) {
        explore(move || {
            let caches = Caches::new(FakeOs::default().space(16 << 20), SIZE);
            let before = caches.take();
            let place = before.address();
            caches.give(before);
            let shared = Arc::new((caches, Held::default(), AtomicUsize::new(0), mutate));
            on_two_threads(&shared, |(caches, blocks, users, mutate), number| {
                if *mutate && number == 0 {
                    caches.break_lock();
                }
                for round in 0..2 {
                    let cache = caches.take();
                    let bit = 1 << (cache.address().addr() / 4096 % 60);
                    assert_eq!(users.fetch_or(bit, Relaxed) & bit, 0, "two threads have a cache");
                    let block = block(1 + 2 * number + round);
                    let found = caches.replace(&cache, block);
                    if !found.is_null() {
                        blocks.give(found);
                    }
                    blocks.take(block);
                    users.fetch_and(!bit, Relaxed);
                    caches.give(cache);
                }
            });
            // One cache for each thread, of which the first existed before.
            let (caches, ..) = &*shared;
            let left = [caches.take(), caches.take()];
            assert!(left.iter().any(|cache| cache.address() == place), "a cache is lost");
        });
    }

    #[test]
    fn are_handed_on() {
        hand_on(false);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn mutant_whose_lock_does_not_exclude() {
        hand_on(true);
    }
}

/// Works on a cache, which holds a block if it was used, while it is drained from outside, twice.
/// Each of two blocks is found once afterwards.
fn while_emptied<C: Emptied + Send + Sync + 'static>(
    cache: impl Fn() -> C + Send + Sync + 'static,
    used: bool,
    work: impl Fn(&C, &Held) + Send + Sync + 'static,
) {
    explore(move || {
        let shared = Arc::new((cache(), Held::default()));
        let (cache, held) = &*shared;
        if used {
            cache.grow();
            assert!(cache.push(block(1)));
        } else {
            held.take(block(1));
        }
        held.take(block(2));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (cache, held) = &*shared;
                for _ in 0..2 {
                    cache.empty().into_iter().for_each(|block| held.take(block));
                }
            })
        };
        work(cache, held);
        other.join().unwrap();
        held.take_rest(cache.empty(), [1, 2]);
    });
}

/// Puts a block into a cache, growing its capacity if needed; keeps the block if there is no
/// capacity.
fn put(cache: &impl Emptied, held: &Held, block: *mut u8) {
    held.give(block);
    let pushed = cache.push(block) || {
        cache.grow();
        cache.push(block)
    };
    if !pushed {
        held.take(block);
    }
}

mod caches_of_cpus {
    use super::*;

    /// A thread takes a block from its CPU's cache, if there is one, and puts that and another into
    /// it.
    fn emptied(used: bool, mistake: Mistake) {
        while_emptied(
            move || CpuCache::new(SIZE, mistake),
            used,
            |cache, held| {
                let popped = cache.pop();
                if !popped.is_null() {
                    held.take(popped);
                }
                let blocks = [popped, block(2)].into_iter().filter(|block| !block.is_null());
                blocks.for_each(|block| put(cache, held, block));
            },
        );
    }

    #[test]
    fn are_emptied_while_in_use() {
        emptied(true, Mistake::None);
    }

    #[test]
    fn are_emptied_before_their_first_use() {
        emptied(false, Mistake::None);
    }

    #[test]
    #[should_panic(expected = "handed out twice")]
    fn mutant_without_restarts() {
        emptied(true, Mistake::NoRestart);
    }

    #[test]
    #[should_panic(expected = "a top is that of a slot of the stack")]
    fn mutant_that_commits_half_a_header() {
        emptied(true, Mistake::HalfCommit);
    }

    #[test]
    #[should_panic(expected = "handed out twice")]
    fn mutant_that_grows_a_closed_stack() {
        emptied(true, Mistake::GrowsClosed);
    }

    #[test]
    #[should_panic(expected = "block 2 is lost")]
    fn mutant_with_room_while_closed() {
        emptied(false, Mistake::RoomWhileClosed);
    }

    #[test]
    #[should_panic(expected = "block 2 is lost")]
    fn mutant_that_empties_what_was_opened_again() {
        emptied(true, Mistake::NotTaken);
    }

    /// A thread looks for a block of its own, whose former slot others use meanwhile.
    fn looked_into(mistake: Mistake) {
        explore(move || {
            let cache = Arc::new(CpuCache::new(SIZE, mistake));
            cache.grow();
            assert!(cache.push(block(1)) && cache.holds(block(1)));
            assert_eq!(cache.pop(), block(1));
            let other = {
                let cache = Arc::clone(&cache);
                thread::spawn(move || {
                    assert!(cache.push(block(2)));
                    cache.empty();
                })
            };
            assert!(!cache.holds(block(1)), "a block in use seems to be free");
            other.join().unwrap();
        });
    }

    #[test]
    fn are_looked_into_while_in_use() {
        looked_into(Mistake::None);
    }

    #[test]
    #[should_panic(expected = "a block in use seems to be free")]
    fn mutant_that_looks_at_the_slot_first() {
        looked_into(Mistake::SlotFirst);
    }
}

mod emptied_thread_caches {
    use super::*;

    /// A thread takes a block from its cache and puts that and another into it, or leaves instead.
    fn emptied(leaves: bool, mistake: Mistake) {
        while_emptied(
            move || ThreadCache::new(SIZE, mistake),
            true,
            move |cache, held| {
                if leaves {
                    put(cache, held, block(2));
                    cache.leave().into_iter().for_each(|block| held.take(block));
                } else {
                    let popped = cache.pop();
                    put(cache, held, block(2));
                    if !popped.is_null() {
                        held.take(popped);
                        put(cache, held, popped);
                    }
                }
            },
        );
    }

    #[test]
    fn while_in_use() {
        emptied(false, Mistake::None);
    }

    #[test]
    fn while_their_threads_leave() {
        emptied(true, Mistake::None);
    }

    #[test]
    #[should_panic(expected = "handed out twice")]
    fn mutant_without_barrier() {
        emptied(false, Mistake::NoBarrier);
    }

    #[test]
    #[should_panic(expected = "handed out twice")]
    fn mutant_that_empties_under_work() {
        emptied(false, Mistake::BusyIgnored);
    }

    #[test]
    #[should_panic(expected = "handed out twice")]
    fn mutant_that_seems_done_too_early() {
        emptied(false, Mistake::EndUnordered);
    }

    #[test]
    #[should_panic(expected = "handed out twice")]
    fn mutant_that_leaves_unseen() {
        emptied(true, Mistake::LeavesUnseen);
    }

    #[test]
    #[should_panic(expected = "is lost")]
    fn mutant_that_leaves_a_closed_stack() {
        emptied(true, Mistake::LeavesClosed);
    }

    #[test]
    #[should_panic(expected = "block 1 is lost")]
    fn mutant_that_empties_what_was_opened_again() {
        emptied(false, Mistake::NotTaken);
    }
}

mod scavenger {
    use super::*;

    struct Memory {
        free: Lock<usize>,
        scavenger: Scavenger,
    }

    /// Two threads free something; the scavenger collects it, and ends when it finds nothing. A
    /// thread that calls for the scavenger and finds none collects itself, so nothing stays.
    fn model(end: fn(&Memory, usize) -> bool) {
        explore(move || {
            let memory = Arc::new(Memory { free: Lock::new(0), scavenger: Scavenger::new() });
            memory.scavenger.arrive();
            assert_eq!([0; 2].map(|_| memory.scavenger.begin(1)), [Some(false), None]);
            assert!(memory.scavenger.begun());
            let threads = [0, 1].map(|_| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    *memory.free.lock() += 1;
                    if memory.scavenger.notify() { 0 } else { look(&memory) }
                })
            });
            let mut collected = 0;
            loop {
                let called = memory.scavenger.take_notified();
                let found = look(&memory);
                collected += found;
                if !called && end(&memory, found) {
                    break;
                }
                thread::yield_now();
            }
            collected += threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>();
            assert_eq!(collected, 2, "something was freed unnoticed");
            assert!(!memory.scavenger.notify() && memory.scavenger.begin(1) == Some(true));
        });
    }

    /// The first thread starts the scavenger while another leaves, which the scavenger counts; it
    /// may also end by itself. Its thread is joined in the end, once.
    fn leaving(leave: fn(&Scavenger) -> bool, begun: fn(&Scavenger) -> bool) {
        explore(move || {
            let scavenger = Arc::new(Scavenger::new());
            let joined = Arc::new(AtomicUsize::new(0));
            let stop = |scavenger: &Scavenger, joined: &AtomicUsize| {
                joined.fetch_add(1, Relaxed);
                scavenger.stopped();
            };
            scavenger.arrive();
            let other = {
                let (scavenger, joined) = (Arc::clone(&scavenger), Arc::clone(&joined));
                thread::spawn(move || {
                    if leave(&scavenger) {
                        stop(&scavenger, &joined);
                    }
                })
            };
            let started = scavenger.begin(1).is_some();
            if started {
                let itself = {
                    let scavenger = Arc::clone(&scavenger);
                    thread::spawn(move || {
                        scavenger.take_notified();
                        scavenger.end();
                    })
                };
                if !begun(&scavenger) {
                    stop(&scavenger, &joined);
                }
                itself.join().unwrap();
            }
            other.join().unwrap();
            assert!(!scavenger.exists(), "it stayed");
            assert_eq!(joined.load(Relaxed), usize::from(started), "it was not joined");
        });
    }

    #[test]
    fn goes_with_the_last_thread() {
        leaving(Scavenger::leave, Scavenger::begun);
    }

    #[test]
    #[should_panic(expected = "it was not joined")]
    fn mutant_who_starts_it_does_not_look_again() {
        leaving(Scavenger::leave, |scavenger| scavenger.begun() || !scavenger.exists());
    }

    #[test]
    #[should_panic(expected = "it was not joined")]
    fn mutant_who_leaves_last_does_not_take_it_along() {
        leaving(|scavenger| scavenger.leave() && !scavenger.is_stopping(), Scavenger::begun);
    }

    fn look(memory: &Memory) -> usize {
        std::mem::take(&mut *memory.free.lock())
    }

    #[test]
    fn leaves_nothing_behind() {
        model(|memory, found| found == 0 && memory.scavenger.end());
    }

    #[test]
    #[should_panic(expected = "unnoticed")]
    fn mutant_ends_though_it_was_notified() {
        model(|memory, found| {
            let end = found == 0;
            end && (memory.scavenger.end()
                || memory.scavenger.take_notified() && memory.scavenger.end())
        });
    }
}

mod counts {
    use super::*;

    struct Counts {
        live: LiveBytes,
        place: CounterShard,
    }

    /// Two threads count in one place; one of them counts enough to publish it.
    fn model(count: fn(&Counts, u64, u64) -> bool) {
        explore(move || {
            let counts = Arc::new(Counts { live: LiveBytes::new(), place: CounterShard::new() });
            let count_surely = move |counts: &Counts, allocated, freed| {
                while !count(counts, allocated, freed) {
                    thread::yield_now();
                }
            };
            let other = {
                let counts = Arc::clone(&counts);
                thread::spawn(move || {
                    count_surely(&counts, SHARD_SLACK_BYTES, 0);
                    count_surely(&counts, 0, SHARD_SLACK_BYTES);
                    count_surely(&counts, SHARD_SLACK_BYTES, 0);
                })
            };
            count_surely(&counts, 1, 0);
            other.join().unwrap();
            assert_eq!(
                counts.place.read(),
                (2 * SHARD_SLACK_BYTES + 1, SHARD_SLACK_BYTES),
                "a count is lost"
            );
            let most = SHARD_SLACK_BYTES..=SHARD_SLACK_BYTES + 1;
            assert!(most.contains(&counts.live.peak()), "a peak of {}", counts.live.peak());
        });
    }

    #[test]
    fn nothing_is_lost_and_no_peak_made_up() {
        model(|Counts { live, place }, allocated, freed| place.try_count(live, allocated, freed));
    }

    #[test]
    #[should_panic(expected = "a count is lost")]
    fn mutant_that_is_not_alone() {
        model(|Counts { live, place }, allocated, freed| {
            place.count_alone(live, allocated, freed);
            true
        });
    }
}

mod cached_rows {
    use super::*;
    use loom::sync::atomic::AtomicU64;

    /// Two threads store pairs of equal numbers, while a third reads.
    fn model(write: fn(&SequenceLock<2>, [u64; 2])) {
        explore(move || {
            let slot = Arc::new(SequenceLock::new([AtomicU64::new(0), AtomicU64::new(0)]));
            let writers = [1, 2].map(|number| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || write(&slot, [number; 2]))
            });
            if let Some([key, row]) = slot.read() {
                assert_eq!(key, row, "the row of another key");
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            let last = slot.read();
            assert!(matches!(last, Some([1, 1] | [2, 2])), "the row of another key: {last:?}");
        });
    }

    #[test]
    fn keys_and_rows_belong_together() {
        model(SequenceLock::write);
    }

    #[test]
    #[should_panic(expected = "the row of another key")]
    fn mutant_that_does_not_tell_readers() {
        model(SequenceLock::write_untold);
    }
}

mod profile {
    use super::*;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    /// One thread allocates a block, another frees it by its size, while a third switches the
    /// profile off and on, and another process interferes. A free of a sampled block looks at it.
    fn frees_look(mistake: ProfileMistake, reminds: bool) {
        explore(move || {
            let switch = Arc::new((ProfileSwitch::new(mistake), AtomicUsize::new(0)));
            let on_thread = |work: fn(&ProfileSwitch, &AtomicUsize)| {
                let switch = Arc::clone(&switch);
                thread::spawn(move || work(&switch.0, &switch.1))
            };
            let free = |switch: &ProfileSwitch, block: &AtomicUsize| {
                if block.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    assert!(switch.looks(), "a sampled block is freed unseen");
                    switch.free();
                }
            };
            let switcher = on_thread(|switch, _| {
                switch.open();
                switch.close();
            });
            let allocator = on_thread(|switch, block| {
                if switch.alloc() {
                    block.store(1, Ordering::Release);
                }
            });
            match reminds {
                true => switch.0.remind(),
                false => free(&switch.0, &switch.1),
            }
            switcher.join().unwrap();
            allocator.join().unwrap();
            free(&switch.0, &switch.1);
            if reminds {
                // Finds the reminder, or nothing.
                assert!(!switch.0.alloc());
            } else {
                assert_eq!(switch.0.is_open(), (true, true), "all is off, and open again");
            }
            assert!(!switch.0.looks());
        });
    }

    #[test]
    fn a_free_of_a_sampled_block_looks() {
        frees_look(ProfileMistake::None, false);
    }

    #[test]
    fn another_process_may_remind_at_any_time() {
        frees_look(ProfileMistake::None, true);
    }

    #[test]
    #[should_panic(expected = "a sampled block is freed unseen")]
    fn mutant_closes_too_far() {
        frees_look(ProfileMistake::CloseTooFar, false);
    }

    #[test]
    #[should_panic(expected = "a sampled block is freed unseen")]
    fn mutant_enters_unasked() {
        frees_look(ProfileMistake::EnterUnasked, false);
    }
}
