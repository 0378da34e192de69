//! Describes which front end (mode) is in force, and why.

use core::fmt::{Display, Formatter, Result as Written};

use crate::figures::numbers::Bytes;

/// The front end in force, the reason, and the other modes that would work. As text it is the first
/// line of the statistics.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// "percpu", "thread" or "slot"; "system" where the system's allocator serves.
    pub mode: &'static str,
    /// The number that selects the cache in percpu mode, "mm_cid" or "cpu_id"; else empty.
    pub id: &'static str,
    /// The reason for the mode.
    pub why: &'static str,
    /// The other modes that would work here.
    pub others: &'static str,
    /// Why percpu mode would not work; empty where it would.
    pub no_percpu: &'static str,
    /// The safety mode: "check", "harden" or "sample" (`EBB_CHECK` and so on); else empty.
    pub care: &'static str,
    /// The limit of memory (`EBB_LIMIT`) in bytes; 0 for none.
    pub limit_bytes: u64,
    /// The kernel's version: its first two numbers. 0 until statistics or `EBB_EXPLAIN` ask for it.
    pub kernel: [u32; 2],
}

impl Choice {
    /// The choice before set-up.
    pub(crate) const UNSET: Self = Self {
        mode: "",
        id: "",
        why: "",
        others: "",
        no_percpu: "",
        care: "",
        limit_bytes: 0,
        kernel: [0; 2],
    };
}

impl Display for Choice {
    fn fmt(&self, f: &mut Formatter) -> Written {
        let Self { mode, id, why, others, no_percpu, care, limit_bytes, kernel: [major, minor] } =
            self;
        let by = if id.is_empty() { "" } else { " by " };
        write!(f, "{} mode {mode}{by}{id} ({why}", crate::figures::VERSION)?;
        if *major > 0 {
            let system = if cfg!(windows) { "Windows" } else { "Linux" };
            write!(f, "; {system} {major}.{minor}")?;
        }
        if !others.is_empty() {
            write!(f, "; other modes: {others}")?;
        }
        if !no_percpu.is_empty() && no_percpu != why {
            write!(f, "; not percpu: {no_percpu}")?;
        }
        f.write_str(match *care {
            "check" => "), each block checked (EBB_CHECK)",
            "harden" => "), hardened (EBB_HARDEN)",
            "sample" => "), some blocks sampled (EBB_SAMPLE)",
            _ => ")",
        })?;
        match *limit_bytes {
            0 => Ok(()),
            bytes => write!(f, ", limit {} (EBB_LIMIT)", Bytes(bytes)),
        }
    }
}
