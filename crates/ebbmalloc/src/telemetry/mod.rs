//! Counts bytes, and attributes each resident byte to a purpose, in this process and others.

// Lowest first: each uses only modules above it in this list.
pub(crate) mod tuning;
pub(crate) mod live_bytes;
#[cfg(not(loom))]
pub(crate) mod counters;
#[cfg(not(loom))]
pub(crate) mod remote_setting;
pub(crate) mod profile;
#[cfg(not(loom))]
pub(crate) mod huge_report;
#[cfg(not(loom))]
pub(crate) mod beacon;
#[cfg(not(loom))]
pub(crate) mod ledger;
#[cfg(not(loom))]
pub(crate) mod remote_ledger;
#[cfg(not(loom))]
pub(crate) mod remote_profile;
