//! Reads the heap profile of this process, piece by piece: no lock is held while the caller works
//! on a stack, so it may allocate.

use crate::backend::arena::Ref;
use crate::engine::Engine;
use crate::figures::profile::{ProfileHeader, ProfileSamples, ProfileStack};
use crate::options::PROFILING;
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::telemetry::profile::table::{CallStack, Site};
use crate::telemetry::profile::walk::{Source, for_each_samples, for_each_stack};

impl<O: Os> Engine<O> {
    /// The state of the heap profile; `None` if there never was one.
    pub fn profile_header(&self) -> Option<ProfileHeader> {
        let shown = &self.profile.shown;
        let header = ProfileHeader {
            mean_bytes: shown.mean_bytes.load(Ordering::Relaxed),
            is_on: shown.is_on.load(Ordering::Relaxed) != 0,
            started_ms: shown.started_ms.load(Ordering::Relaxed),
            dropped_stacks: shown.dropped_stacks.load(Ordering::Relaxed),
            dropped_samples: shown.dropped_samples.load(Ordering::Relaxed),
            sampled_blocks: shown.sampled_blocks.load(Ordering::Relaxed),
        };
        (PROFILING && header.mean_bytes != 0).then_some(header)
    }

    /// Milliseconds since the heap profile was switched on.
    #[cfg_attr(not(feature = "profile"), expect(dead_code))]
    pub(crate) fn profile_age_ms(&self) -> u64 {
        self.os.now_ms().saturating_sub(self.profile.shown.started_ms.load(Ordering::Relaxed))
    }

    /// Calls `work` with each stack of the heap profile. Returns false if a new profile began
    /// meanwhile: then what was passed is not a whole one.
    pub fn for_each_profile_stack(&self, work: &mut dyn FnMut(&ProfileStack)) -> bool {
        let mut local = Local::of(self);
        // Afterwards: if a new profile begins meanwhile, the walk notices it.
        let mean_bytes = self.profile.shown.mean_bytes.load(Ordering::Relaxed);
        let version = local.version;
        for_each_stack(&mut local, version, mean_bytes, work)
    }

    /// Calls `work` with the samples of each stack, once for each bucket of sizes. Returns as
    /// [`Engine::for_each_profile_stack`].
    pub(crate) fn for_each_profile_samples(&self, work: &mut dyn FnMut(&ProfileSamples)) -> bool {
        let mut local = Local::of(self);
        let version = local.version;
        for_each_samples(&mut local, version, work)
    }
}

/// The table of this process.
struct Local<'a, O: Os> {
    engine: &'a Engine<O>,
    version: u32,
}

impl<'a, O: Os> Local<'a, O> {
    fn of(engine: &'a Engine<O>) -> Self {
        Self { engine, version: engine.profile.shown.version.load(Ordering::Acquire) }
    }

    /// Whether the table is still the one that the walk began with. The caller holds its lock.
    fn is_same(&self) -> bool {
        self.engine.profile.shown.version.load(Ordering::Relaxed) == self.version
    }
}

impl<O: Os> Source for Local<'_, O> {
    fn version(&mut self) -> u32 {
        self.engine.profile.shown.version.load(Ordering::Acquire)
    }

    fn newest(&mut self) -> Ref {
        let _table = self.engine.profile.table.lock();
        match self.is_same() {
            true => Ref::from_bits(self.engine.profile.shown.newest.load(Ordering::Relaxed)),
            false => Ref::NONE,
        }
    }

    fn stack(&mut self, stack: Ref, calls: &mut [u64]) -> Option<CallStack> {
        let table = self.engine.profile.table.lock();
        self.is_same().then(|| table.copy_stack(stack, calls))
    }

    fn site(&mut self, site: Ref) -> Option<Site> {
        let table = self.engine.profile.table.lock();
        self.is_same().then(|| table.copy_site(site))
    }
}
