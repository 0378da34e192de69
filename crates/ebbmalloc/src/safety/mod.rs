//! What check mode, hardening and sampling keep of blocks.

pub(crate) mod seal;
pub(crate) mod quarantine;
#[cfg(not(loom))]
pub(crate) mod check_table;
#[cfg(not(loom))]
pub(crate) mod guarded_slots;
