//! The parts of the command `ebb`: measuring a program ([`measure`]), judging the measurements
//! ([`stats`]), and its subcommands ([`run`], [`compare`], [`why`],
//! [`profile`]). The benchmark suite measures
//! and judges with the same code.

pub mod compare;
mod contender;
pub mod generate;
mod inspect;
pub mod interrupt;
mod library;
pub mod measure;
mod metrics;
mod notebook;
mod notes;
pub mod output;
mod peak;
pub mod perf;
mod process_name;
mod procfs;
pub mod profile;
mod program;
mod progress;
mod report;
mod result;
pub mod run;
mod screen;
pub mod set;
pub mod spawn;
pub mod stats;
pub mod stop;
mod tail;
mod trace;
pub mod why;
