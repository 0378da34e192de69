//! Reads the heap profile of an engine in another process, and asks that engine for one.
//!
//! Nothing is stopped for it. A request is some stores, in this order: the mean number of bytes, or
//! the text of an option to change; the number of the request; 0 to the word by which the hot path
//! of allocations is open; and [`REQUEST`] to the gate. The next allocation of any thread then
//! takes the slow path, sees the gate, and follows the request under a lock. It stores all words
//! anew, by what it knows. So a store that meets the engine's own at the worst delays the request:
//! ask again while it is not followed. A process that allocates nothing does not follow it, and has
//! nothing to sample.

use core::mem::offset_of;

use crate::backend::arena::Ref;
use crate::backend::chunks::{Chunks, FIRST, GRAIN, chunk_of};
use crate::figures::profile::{ProfileHeader, ProfileSamples, ProfileStack};
use crate::options::SetError;
use crate::telemetry::beacon::Beacon;
use crate::telemetry::profile::gate::REQUEST;
use crate::telemetry::profile::table::{CallStack, ShownProfile, Site};
use crate::telemetry::profile::walk::{Source, for_each_samples, for_each_stack};
use crate::telemetry::remote_ledger::ProcessMemory;
use crate::telemetry::remote_setting::RemoteSetting;

/// The memory of a process that may be changed.
pub trait WritableMemory: ProcessMemory {
    /// Writes memory at an address, a word of 4 or 8 bytes by one store. Returns false if that is
    /// not possible.
    fn write(&mut self, address: usize, bytes: &[u8]) -> bool;
}

/// The heap profile of an engine in another process.
#[derive(Clone, Copy, Debug)]
pub struct RemoteProfile<'a> {
    beacon: &'a Beacon,
    version: u32,
    header: ProfileHeader,
}

impl<'a> RemoteProfile<'a> {
    /// Reads the state of the profile of the engine with this beacon. `None` if there never was
    /// one, or the memory cannot be read.
    pub fn read(memory: &mut impl ProcessMemory, beacon: &'a Beacon) -> Option<Self> {
        let at = beacon.profile.shown_at;
        if at == 0 {
            return None;
        }
        // First: if a new profile begins meanwhile, a walk notices it.
        let version = word32(memory, at, offset_of!(ShownProfile, version))?;
        let word = |memory: &mut _, offset| word64(memory, at, offset);
        let header = ProfileHeader {
            mean_bytes: word(memory, offset_of!(ShownProfile, mean_bytes))?,
            is_on: word32(memory, at, offset_of!(ShownProfile, is_on))? != 0,
            started_ms: word(memory, offset_of!(ShownProfile, started_ms))?,
            dropped_stacks: word(memory, offset_of!(ShownProfile, dropped_stacks))?,
            dropped_samples: word(memory, offset_of!(ShownProfile, dropped_samples))?,
            sampled_blocks: word(memory, offset_of!(ShownProfile, sampled_blocks))?,
        };
        (header.mean_bytes != 0).then_some(Self { beacon, version, header })
    }

    /// The state of the profile when it was read.
    pub fn header(&self) -> ProfileHeader {
        self.header
    }

    /// Calls `work` with each stack. Returns false if the process began another profile meanwhile,
    /// or its memory could not be read: then what was passed is not a whole profile.
    pub fn for_each_stack(
        &self,
        memory: &mut impl ProcessMemory,
        mut work: impl FnMut(&ProfileStack),
    ) -> bool {
        let source = &mut self.source(memory);
        for_each_stack(source, self.version, self.header.mean_bytes, &mut work)
    }

    /// Calls `work` with the samples of each stack, once for each bucket of sizes. Returns as
    /// [`RemoteProfile::for_each_stack`].
    pub fn for_each_samples(
        &self,
        memory: &mut impl ProcessMemory,
        mut work: impl FnMut(&ProfileSamples),
    ) -> bool {
        for_each_samples(&mut self.source(memory), self.version, &mut work)
    }

    fn source<'m, M: ProcessMemory>(&self, memory: &'m mut M) -> RemoteTable<'m, M> {
        let shown_at = self.beacon.profile.shown_at;
        let mut chunks = [0; Chunks::BYTES];
        if !memory.read(self.beacon.profile.memory_at[0], &mut chunks) {
            chunks = [0; Chunks::BYTES];
        }
        RemoteTable { memory, shown_at, chunks_at: self.beacon.profile.memory_at[0], chunks }
    }
}

impl Beacon {
    /// Asks the engine for a profile with this mean number of bytes between samples; 0 switches it
    /// off. A profile that is on with this mean goes on. Returns the number of the request, for
    /// [`Beacon::has_followed`]; `None` if the memory cannot be written, or the engine was built
    /// without profiles.
    pub fn request_profile(
        &self,
        memory: &mut impl WritableMemory,
        mean_bytes: u64,
    ) -> Option<u32> {
        let bytes = mean_bytes.to_ne_bytes();
        // An option that was asked for, and not yet changed, is not any more.
        let none = [0; size_of::<RemoteSetting>()];
        let (setting, mean) =
            (offset_of!(ShownProfile, setting), offset_of!(ShownProfile, wanted_mean_bytes));
        self.request(memory, &[(setting, &none), (mean, &bytes)])
    }

    /// Asks the engine to change an option: "NAME=VALUE", at most 56 bytes. Returns as
    /// [`Beacon::request_profile`], and `None` too for a text that is too long.
    pub fn request_setting(&self, memory: &mut impl WritableMemory, text: &str) -> Option<u32> {
        let setting = RemoteSetting::of(text)?;
        self.request(memory, &[(offset_of!(ShownProfile, setting), &setting)])
    }

    /// Why the option of the last request was not changed; `None` if it was.
    pub fn setting_error(&self, memory: &mut impl ProcessMemory) -> Option<SetError> {
        let at = self.profile.shown_at;
        SetError::of_number(word32(memory, at, offset_of!(ShownProfile, setting_error))?)
    }

    /// Stores words at offsets, then the number of the request, and reminds the engine of it.
    fn request(&self, memory: &mut impl WritableMemory, parts: &[(usize, &[u8])]) -> Option<u32> {
        let at = self.profile.shown_at;
        if at == 0 {
            return None;
        }
        let last = word32(memory, at, offset_of!(ShownProfile, wanted))?;
        let number = last.wrapping_add(1).max(1);
        let mut write = |offset: usize, bytes: &[u8]| {
            memory.write(at.wrapping_add(offset), bytes).then_some(())
        };
        for (offset, words) in parts {
            for (nth, word) in words.chunks(8).enumerate() {
                write(offset + nth * 8, word)?;
            }
        }
        write(offset_of!(ShownProfile, wanted), &number.to_ne_bytes())?;
        self.remind(memory)?;
        Some(number)
    }

    /// Whether the engine has followed this request, or a later one. If not, reminds it: a store
    /// of the engine's may have replaced the first reminder. `None` if the memory cannot be read
    /// or written.
    pub fn has_followed(&self, memory: &mut impl WritableMemory, number: u32) -> Option<bool> {
        let at = self.profile.shown_at;
        let followed = word32(memory, at, offset_of!(ShownProfile, followed))?;
        // Numbers wrap around.
        let has_followed = (followed.wrapping_sub(number) as i32) >= 0 && followed != 0;
        if !has_followed {
            self.remind(memory)?;
        }
        Some(has_followed)
    }

    fn remind(&self, memory: &mut impl WritableMemory) -> Option<()> {
        let gate_at = self.profile.shown_at.wrapping_add(offset_of!(ShownProfile, gate));
        let is_open = word64(memory, self.profile.hot_area_at, 0)? != 0;
        // Only an open path: one that is closed may have been closed for good.
        let closed = !is_open || memory.write(self.profile.hot_area_at, &0_usize.to_ne_bytes());
        (closed && memory.write(gate_at, &REQUEST.to_ne_bytes())).then_some(())
    }
}

fn word64(memory: &mut impl ProcessMemory, at: usize, offset: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(at.wrapping_add(offset), &mut bytes).then(|| u64::from_ne_bytes(bytes))
}

fn word32(memory: &mut impl ProcessMemory, at: usize, offset: usize) -> Option<u32> {
    let mut bytes = [0; 4];
    memory.read(at.wrapping_add(offset), &mut bytes).then(|| u32::from_ne_bytes(bytes))
}

/// The table of an engine in another process.
struct RemoteTable<'a, M> {
    memory: &'a mut M,
    shown_at: usize,
    chunks_at: usize,
    chunks: [u8; Chunks::BYTES],
}

impl<M: ProcessMemory> RemoteTable<'_, M> {
    /// The address of an object of `bytes` bytes; `None` if it does not lie in a chunk.
    fn address(&mut self, object: Ref, bytes: usize) -> Option<usize> {
        let grain = object.to_bits() as usize;
        if grain < FIRST {
            return None;
        }
        let (nth, first) = chunk_of(grain);
        let find = |chunks: &[u8; Chunks::BYTES]| {
            let (start, length) = Chunks::ranges(chunks).nth(nth)?;
            let offset = (grain - first) * GRAIN;
            (start != 0 && offset + bytes <= length).then(|| start.wrapping_add(offset))
        };
        find(&self.chunks).or_else(|| {
            // The table may have grown.
            let is_read = self.memory.read(self.chunks_at, &mut self.chunks);
            if is_read { find(&self.chunks) } else { None }
        })
    }
}

impl<M: ProcessMemory> Source for RemoteTable<'_, M> {
    fn version(&mut self) -> u32 {
        word32(self.memory, self.shown_at, offset_of!(ShownProfile, version)).unwrap_or(1)
    }

    fn newest(&mut self) -> Ref {
        let newest = word32(self.memory, self.shown_at, offset_of!(ShownProfile, newest));
        Ref::from_bits(newest.unwrap_or(0))
    }

    fn stack(&mut self, stack: Ref, calls: &mut [u64]) -> Option<CallStack> {
        let mut head = [0; size_of::<CallStack>()];
        let at = self.address(stack, head.len())?;
        if !self.memory.read(at, &mut head) {
            return None;
        }
        // SAFETY: the length is that of a head, of which any bytes are valid.
        let head = unsafe { head.as_ptr().cast::<CallStack>().read_unaligned() };
        let depth = (head.depth as usize).min(calls.len());
        self.address(stack, size_of::<CallStack>() + depth * 8)?;
        let mut bytes = [0; 8 * 16];
        for (nth, part) in calls[..depth].chunks_mut(16).enumerate() {
            let bytes = &mut bytes[..part.len() * 8];
            if !self.memory.read(at + size_of::<CallStack>() + nth * 128, bytes) {
                return None;
            }
            let (words, _) = bytes.as_chunks();
            part.iter_mut().zip(words).for_each(|(to, word)| *to = u64::from_ne_bytes(*word));
        }
        Some(head)
    }

    fn site(&mut self, site: Ref) -> Option<Site> {
        let mut bytes = [0; size_of::<Site>()];
        let at = self.address(site, bytes.len())?;
        // SAFETY: the length is that of a site, of which any bytes are valid.
        self.memory
            .read(at, &mut bytes)
            .then(|| unsafe { bytes.as_ptr().cast::<Site>().read_unaligned() })
    }
}
