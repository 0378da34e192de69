//! Writes the heap profile to a file, in the text format of gperftools, which pprof reads too.
//!
//! The counts in it are those of the samples, and the reader weights them (`heap_v2`). It takes the
//! mean size of each line, so each line has samples of similar sizes only. Addresses are return
//! addresses, from which the reader subtracts one. The mappings of the process follow.

use core::ffi::CStr;
use core::fmt::{self, Write};

use crate::engine::Engine;
use crate::figures::profile::{ProfileHeader, ProfileSamples};
use crate::platform::os::Os;

impl<O: Os> Engine<O> {
    /// Writes the heap profile to a file, which is replaced if it exists. Does not allocate.
    /// Returns false if there is no profile, or not all of it could be written.
    pub fn write_profile(&self, path: &CStr) -> bool {
        let Some(header) = self.profile_header() else { return false };
        let mut is_whole = false;
        let is_written = self.os.write_file(path, &mut |out| {
            is_whole = self.write_profile_to(header, &mut Buffered::new(out));
        });
        is_written && is_whole
    }

    /// Not inlined: a thread with a small stack may write the profile.
    #[inline(never)]
    fn write_profile_to(&self, header: ProfileHeader, out: &mut Buffered) -> bool {
        let (mut live, mut allocated) = ((0, 0), (0, 0));
        self.for_each_profile_samples(&mut |samples| {
            live = (live.0 + samples.live.0, live.1 + samples.live.1);
            let (objects, bytes) = samples.allocated;
            allocated = (allocated.0 + objects, allocated.1 + bytes);
        });
        // Writing to a buffer never fails.
        let _ = out.write_str("heap profile: ");
        let _ = out.counts(live, allocated);
        let _ = writeln!(out, " @ heap_v2/{}", header.mean_bytes);
        let _ = writeln!(out, "# pid: {}", self.os.process_id());
        let lost = (header.dropped_stacks, header.dropped_samples);
        if lost != (0, 0) {
            let _ = writeln!(out, "# dropped_stacks: {}\n# dropped_samples: {}", lost.0, lost.1);
        }
        let is_whole = self.for_each_profile_samples(&mut |samples| {
            let _ = out.samples(samples);
        });
        let _ = out.write_str("\nMAPPED_LIBRARIES:\n");
        out.flush();
        self.os.mappings(&mut |text| (out.write)(text));
        is_whole
    }
}

/// Text that is passed on in pieces.
struct Buffered<'a> {
    write: &'a mut dyn FnMut(&[u8]),
    buffer: [u8; 1024],
    length: usize,
}

impl<'a> Buffered<'a> {
    fn new(write: &'a mut dyn FnMut(&[u8])) -> Self {
        Self { write, buffer: [0; 1024], length: 0 }
    }

    fn flush(&mut self) {
        (self.write)(&self.buffer[..self.length]);
        self.length = 0;
    }

    fn counts(&mut self, live: (u64, u64), allocated: (u64, u64)) -> fmt::Result {
        write!(self, "{}: {} [{}: {}]", live.0, live.1, allocated.0, allocated.1)
    }

    fn samples(&mut self, samples: &ProfileSamples) -> fmt::Result {
        self.counts(samples.live, samples.allocated)?;
        self.write_str(" @")?;
        for call in samples.calls {
            write!(self, " {:#x}", call + 1)?;
        }
        self.write_str("\n")
    }
}

impl Write for Buffered<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.length == self.buffer.len() {
                self.flush();
            }
            self.buffer[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}
