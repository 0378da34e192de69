//! Front ends: they choose the cache that a thread uses, and give the thread sole use of it for one
//! operation.
//!
//! - percpu mode: one cache for each virtual CPU, used through restartable sequences (`rseq/`).
//! - thread mode: one cache for each thread, up to a maximum number of threads (`per_thread.rs`).
//! - slot mode, and all other threads of thread mode: any cache whose lock is free
//!   (`shared_slots.rs`).
//!
//! All work on the same kind of slab, and share the code that refills and flushes caches
//! (`engine/caches/`).

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
pub(crate) mod slab;
pub(crate) mod owned_stack;
pub(crate) mod transfer_cache;
pub(crate) mod near_cache;
pub(crate) mod rseq;
pub(crate) mod thread_slabs;
pub(crate) mod per_thread;
mod shared_slots;

pub(crate) use per_thread::Thread;
pub(crate) use shared_slots::{Preferred, SharedSlots};

use core::ptr;

use crate::platform::arch::thread_pointer;
use crate::platform::os::{Os, RseqArea};
use crate::size_class::SizeClass;
use owned_stack::OwnedStack;
use rseq::PerCpuBase;
use slab::{Header, Slab, SlabMemory, fair_share};

/// Which front end the process has. Slot mode works everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Slot,
    Thread,
    PerCpu,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::PerCpu => "percpu",
            Self::Thread => "thread",
            Self::Slot => "slot",
        }
    }
}

/// The front end of the calling thread: the operations on its cache.
///
/// Each operation has code of its own, out of line: inlined, the code of all three kinds would be
/// in each caller.
pub(crate) enum Front<'a, O> {
    PerCpu(PerCpu<'a, O>),
    Own(Thread<'a, O>),
    Shared(SharedSlots<'a>),
}

/// The caches of percpu mode.
pub(crate) struct PerCpu<'a, O> {
    /// Where threads find their caches. It is set up.
    pub base: PerCpuBase,
    pub os: &'a O,
    /// True if the engine registers threads for rseq, because the C library does not.
    pub joining: bool,
}

/// What [`Front::observe`] saw.
#[derive(Clone, Copy)]
pub(crate) struct Observed {
    pub slab: Slab,
    /// The header of the class's stack.
    pub header: Header,
}

impl<O: Os> Front<'_, O> {
    /// Takes the newest block; null if the stack is empty.
    #[inline(never)]
    pub fn pop(&self, class: SizeClass) -> *mut u8 {
        match self {
            // SAFETY: the base is set up.
            Self::PerCpu(cpu) => unsafe { rseq::pop(cpu.base, class) },
            _ => self.with(class, OwnedStack::pop).unwrap_or_default(),
        }
    }

    /// True if the block is certainly in the stack. False may mean only that a quick look did not
    /// find it.
    #[inline(never)]
    pub fn holds(&self, class: SizeClass, block: *mut u8) -> bool {
        match self {
            // SAFETY: the base is set up, and slabs of virtual CPUs have marks.
            Self::PerCpu(cpu) => unsafe {
                cpu.base.slab().is_some_and(|slab| slab.holds(class, block))
            },
            _ => self.with(class, |stack| stack.holds(block)).unwrap_or(false),
        }
    }

    /// Puts a free block on top. False if the stack is full, if the block seems to be in it
    /// already, or if the cache knows that the block was never in it.
    #[inline(never)]
    pub fn push(&self, class: SizeClass, block: *mut u8) -> bool {
        match self {
            // SAFETY: the base is set up; the caller gives up the block, which is of this class.
            Self::PerCpu(cpu) => unsafe { rseq::push(cpu.base, class, block) },
            _ => self.with(class, |stack| stack.push(block)).unwrap_or(false),
        }
    }

    /// Takes the newest blocks, as many as fit into `blocks`. Returns how many it took. In percpu
    /// mode they come from several caches if the thread changes its CPU meanwhile.
    #[inline(never)]
    pub fn pop_batch(&self, class: SizeClass, blocks: &mut [*mut u8]) -> usize {
        match self {
            Self::PerCpu(cpu) => {
                for (nth, slot) in blocks.iter_mut().enumerate() {
                    // SAFETY: the base is set up.
                    *slot = unsafe { rseq::pop(cpu.base, class) };
                    if slot.is_null() {
                        return nth;
                    }
                }
                blocks.len()
            }
            _ => self.with(class, |stack| stack.pop_batch(blocks)).unwrap_or(0),
        }
    }

    /// Puts blocks on top, the last one topmost. Returns how many it put there.
    #[inline(never)]
    pub fn push_batch(&self, class: SizeClass, blocks: &[*mut u8]) -> usize {
        match self {
            // SAFETY: the base is set up; the caller gives up the blocks, which are of this class.
            Self::PerCpu(cpu) => unsafe { rseq::push_batch(cpu.base, class, blocks) },
            _ => self.with(class, |stack| stack.push_batch(blocks)).unwrap_or(0),
        }
    }

    /// Looks which cache the thread has, and at the class's stack in it; `None` if it has none. The
    /// thread may use another cache a moment later.
    #[inline(never)]
    pub fn observe(&self, class: SizeClass) -> Option<Observed> {
        match self {
            Self::PerCpu(cpu) => {
                // SAFETY: the base is set up.
                let slab = unsafe { cpu.base.slab() }?;
                Some(Observed { slab, header: slab.header(class) })
            }
            _ => self.with(class, |stack| Observed { slab: stack.slab(), header: stack.header() }),
        }
    }

    /// Sets the class's stack up, or raises its capacity up to the bound: by a fixed step, or to
    /// the double in a thread's own cache. `observed` is the header that it probably has. Returns
    /// the header before and after; `None` if this thread has no cache.
    #[inline(never)]
    pub fn grow(&self, class: SizeClass, observed: Header) -> Option<(Header, Header)> {
        match self {
            Self::PerCpu(cpu) => cpu.grow(class, observed),
            Self::Own(thread) => {
                thread.join_if_new();
                let share = fair_share(class, thread.slabs.taken());
                self.with(class, |stack| stack.grow(share))
            }
            Self::Shared(_) => self.with(class, |stack| {
                let old = stack.header();
                let new = old.grown(class);
                stack.set_header(new);
                (old, new)
            }),
        }
    }

    /// The number of the per-CPU cache that the thread has at this moment.
    pub fn cpu(&self) -> Option<usize> {
        match self {
            // SAFETY: the base is set up.
            Self::PerCpu(cpu) => unsafe { cpu.base.number() },
            _ => None,
        }
    }

    /// True if the cache is the thread's own. Its stacks are then bounded one by one, and by the
    /// number of threads, but not all together. It has no marks.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// Runs `work` on a stack of a cache that no other thread uses meanwhile; `None` if this thread
    /// has none.
    fn with<R>(&self, class: SizeClass, work: impl FnOnce(&mut OwnedStack) -> R) -> Option<R> {
        match self {
            Self::PerCpu(_) => None,
            Self::Own(thread) => thread.ready().map(|cache| cache.with(class, work)),
            Self::Shared(slots) => Some(slots.with(class, work)),
        }
    }
}

impl<O: Os> PerCpu<'_, O> {
    fn grow(&self, class: SizeClass, observed: Header) -> Option<(Header, Header)> {
        // A closed header may have been taken since, and the sequence stores what it is given: it
        // must not be given that.
        let observed = if observed.is_closed() { Header::default() } else { observed };
        let grow = |observed| self.change(class, observed, |header| header.grown(class));
        grow(observed).or_else(|| if self.join() { grow(Header::default()) } else { None })
    }

    /// Registers the calling thread, if the engine has to. Each thread tries once: if the kernel
    /// refuses, or if the thread is about to exit, it is served without a cache.
    #[cold]
    fn join(&self) -> bool {
        let words = self.os.thread_words();
        // In this order: `watch_thread` may allocate, and must not come back here.
        self.joining && per_thread::refuse(words) && self.os.watch_thread() && self.os.join_rseq()
    }

    /// Replaces the header of the class's stack by `to(header)`, which must describe the same
    /// blocks. One sequence does if the header is the observed one. Returns the header before and
    /// after.
    fn change(
        &self,
        class: SizeClass,
        observed: Header,
        to: impl Fn(Header) -> Header,
    ) -> Option<(Header, Header)> {
        let (mut old, mut new) = (observed, to(observed));
        loop {
            // SAFETY: the base is set up; `to` returns a header that describes the same blocks.
            let found = unsafe { rseq::replace_header(self.base, class, old, new) }?;
            let target = to(found);
            // Nothing to store, or it is stored.
            if found == target || found == old && new == target {
                return Some((found, target));
            }
            (old, new) = (found, target);
        }
    }
}

impl PerCpuBase {
    /// The slab of the virtual CPU that this thread ran on a moment ago. `None` if that has none,
    /// or if the thread is not registered.
    ///
    /// # Safety
    /// The base is set up.
    #[inline]
    pub unsafe fn slab(self) -> Option<Slab> {
        // SAFETY: the base is set up.
        let number = unsafe { self.number() }?;
        let count = self.slabs_and_count & 0xffff;
        let first = ptr::with_exposed_provenance_mut::<SlabMemory>(self.slabs_and_count - count);
        // SAFETY: there are `count` slabs, and they live as long as the engine.
        Some(unsafe { Slab::new(first.add(number)) })
    }

    /// The number of the thread's cache at this moment; `None` if it has none.
    ///
    /// # Safety
    /// The base is set up.
    #[inline]
    pub unsafe fn number(self) -> Option<usize> {
        let thread = ptr::with_exposed_provenance::<u32>(thread_pointer());
        let field = |at| thread.wrapping_byte_offset(at);
        // SAFETY: the fields lie in this thread's area. The kernel may change them at any time.
        let [cpu_id, id] = unsafe {
            [self.area + RseqArea::CPU_ID, self.id_at].map(|at| field(at).read_volatile())
        };
        let count = self.slabs_and_count & 0xffff;
        (cpu_id as i32 >= 0 && (id as usize) < count).then_some(id as usize)
    }
}
