//! Adapts contract programs to another processor, and selects those that run under an emulator of
//! one.

use super::Program;

const EXECUTES_ITSELF: &str = "it executes itself, which the kernel does not know how to do there";
const FORKS_THREADS: &str = "qemu does not survive forks while other threads run";
const COUNTS: &str = "it counts what qemu has, too";
const SPACE: &str = "it is about address space, of which qemu's own is a part";
/// Programs that the emulator cannot run, and why.
const UNSERVED: [(&str, &str); 14] = [
    ("atexit.c", "it fails there without the library, too: the order of exit handlers"),
    ("core_dump.c", COUNTS),
    ("descriptors.c", EXECUTES_ITSELF),
    ("exhaustion.c", SPACE),
    ("faults.c", "it reads registers of x86-64"),
    ("fork_caches.c", FORKS_THREADS),
    ("fork_threads.c", FORKS_THREADS),
    ("group.c", COUNTS),
    ("heap_of_20_gib.c", COUNTS),
    ("memory_limit.c", EXECUTES_ITSELF),
    ("memory_maps.c", SPACE),
    ("scavenger.c", COUNTS),
    ("scavenger_guest.c", COUNTS),
    ("thread_many.c", COUNTS),
];

impl Program {
    /// Returns the same program in its first way, built by a gcc for another processor whose name
    /// starts with `prefix`. Returns the reason where the emulator cannot run it.
    pub fn emulated(mut self, prefix: &str) -> Result<Program, (String, &'static str)> {
        if let Some(&(_, why)) = UNSERVED.iter().find(|(name, _)| *name == self.name) {
            return Err((self.name, why));
        }
        self.builds.retain(|build| build[0] == "gcc");
        if self.builds.is_empty() {
            return Err((self.name, "only C compilers are installed for it"));
        }
        self.ways.truncate(1);
        // The emulator itself needs more memory than the limits of the programs allow.
        Ok(Program { limits: vec![None], ..self.built_for(prefix) })
    }

    /// Returns the same program built for another processor, by compilers whose names start with
    /// `prefix`.
    pub fn built_for(mut self, prefix: &str) -> Program {
        self.builds.iter_mut().for_each(|build| build[0].insert_str(0, prefix));
        self
    }
}
