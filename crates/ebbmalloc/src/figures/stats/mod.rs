//! The statistics: their declarations, and a file for each format.

mod declaration;
mod json;
mod openmetrics;
mod text;
pub use declaration::{ClassStats, Stats};
