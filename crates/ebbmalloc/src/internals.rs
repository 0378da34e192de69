//! Items for the other crates of this repository: the C library, the command, tests.
//!
//! They are outside of semantic versioning: any release may change them.

#[cfg(not(loom))]
pub use crate::central::heap_record::HeapId;
#[cfg(not(loom))]
pub use crate::engine::Engine;
#[cfg(not(loom))]
pub use crate::engine::report::stats::Detail;
#[cfg(not(loom))]
pub use crate::engine::report::why::Conclusion;
pub use crate::figures::profile::{Counts, ProfileHeader, ProfileSamples, ProfileStack};
pub use crate::options::{
    CheckChoice, ExplainChoice, HardenChoice, LimitChoice, Options, PathChoice, ProfileChoice,
    SampleChoice, ScavengerChoice,
};
pub use crate::platform::os::{
    CLibrary, Hooks, Native, NativeFor, NotMoved, Os, OsMemory, OsProcess, OsReports, OsThreads,
    Process, Refusal, RseqArea, Symbol, ThreadWords, Usage, WakeFlag, Writer,
};
#[cfg(all(target_os = "linux", not(ebbmalloc_posix)))]
pub use crate::platform::os::{
    Native as Linux, has_malloc_of_others, next_function, note_environment,
};
pub use crate::size_class::{MIN_ALIGN, SMALL_MAX, UNIT, class_bytes, span_units};
#[cfg(not(loom))]
pub use crate::telemetry::beacon::{Beacon, OtherVersion};
#[cfg(not(loom))]
pub use crate::telemetry::huge_report::HugeReport;
#[cfg(not(loom))]
pub use crate::telemetry::ledger::{ClassLedger, Ledger, Part};
#[cfg(not(loom))]
pub use crate::telemetry::remote_ledger::ProcessMemory;
#[cfg(not(loom))]
pub use crate::this_process::ENGINE;
pub use crate::tuning::Tunable;

/// The constants of policy, by layer, lowest first.
#[cfg(not(loom))]
pub const TUNABLES: [(&str, &[Tunable]); 7] = [
    ("Platform", crate::platform::tuning::ALL),
    ("Front end", crate::frontend::tuning::ALL),
    ("Back end", crate::backend::tuning::ALL),
    ("Telemetry", crate::telemetry::tuning::ALL),
    ("Safety", crate::safety::tuning::ALL),
    ("Central free lists", crate::central::tuning::ALL),
    ("Engine", crate::engine::tuning::ALL),
];
#[cfg(not(loom))]
pub use crate::telemetry::remote_profile::{RemoteProfile, WritableMemory};
/// The most calls kept of a stack. See `docs/tuning.md`.
pub const PROFILE_CALLS_MAX: usize = crate::telemetry::tuning::PROFILE_CALLS_MAX;
/// The usual mean number of bytes between samples. See `docs/tuning.md`.
pub const PROFILE_MEAN_BYTES: u64 = crate::telemetry::tuning::PROFILE_MEAN_BYTES;
