//! Programs that spend much of their time in the allocator, each on a crate that many use. Each
//! prints one line, which is the same with every allocator.

mod channels;
mod maps;
mod records;

use clap::Parser;

#[derive(Parser)]
enum Program {
    /// Sends buffers through channels, on two threads of tokio.
    Channels {
        /// Size of each buffer.
        bytes: usize,
        /// Buffers that each of four tasks sends.
        buffers: usize,
    },
    /// Builds hash maps of strings on all CPUs, merges them, and sorts what they hold, by rayon.
    Maps {
        /// Entries added to each of 64 maps.
        entries: usize,
    },
    /// Reads and writes a list of records in JSON, by serde_json.
    Records {
        /// Records in the list.
        records: usize,
    },
}

fn main() {
    let sum = match Program::parse() {
        Program::Channels { bytes, buffers } => channels::run(bytes, buffers),
        Program::Maps { entries } => maps::run(entries),
        Program::Records { records } => records::run(records),
    };
    println!("{sum}");
}
