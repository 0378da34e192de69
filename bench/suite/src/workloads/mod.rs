//! Lists the groups of cases. A group sets up what it needs (once; it is kept) and lists its cases.

mod allocating;
mod basic;
mod built_in;
mod compile;
pub mod drawn;
mod idle;
pub mod lots;
mod python;
mod redis;
mod threads;
mod tokenizer;
mod tools;
mod vec;
mod zig;

use anyhow::Result;

use crate::case::Case;
use crate::kit::Kit;

pub struct Group {
    pub name: &'static str,
    pub about: &'static str,
    /// Sets up and lists. On an error the run goes on without the group, and the report names it.
    pub cases: fn(&Kit) -> Result<Vec<Case>>,
}

pub const GROUPS: &[Group] = &[
    Group {
        name: "basic",
        about: "an empty program, and one that does a little of everything",
        cases: basic::cases,
    },
    Group {
        name: "tokenizer",
        about: "GPT-2's tokenizer, crate and Python package",
        cases: tokenizer::cases,
    },
    Group { name: "vec", about: "vectors that grow push by push", cases: vec::cases },
    Group {
        name: "python",
        about: "Python's own benchmarks, with and without pymalloc",
        cases: python::cases,
    },
    Group { name: "zig", about: "Zig's front end on its standard library", cases: zig::cases },
    Group { name: "redis", about: "redis-server under redis-benchmark", cases: redis::cases },
    Group { name: "compile", about: "compilers of C++ and Rust", cases: compile::cases },
    Group { name: "tools", about: "scripts for sqlite3, node and perl", cases: tools::cases },
    Group {
        name: "threads",
        about: "classic multi-threaded loads, 1 to 4000 threads",
        cases: threads::cases,
    },
    Group {
        name: "allocating",
        about: "scripts and Rust programs that allocate much",
        cases: allocating::cases,
    },
    Group { name: "idle", about: "memory during a load, and while idle after", cases: idle::cases },
    Group {
        name: drawn::GROUP,
        about: "programs drawn by lot (--draw N), or asked for (--only drawn/NAME)",
        cases: drawn::cases,
    },
    Group {
        name: lots::GROUP,
        about: "loads drawn by lot (--draw N), or asked for (--only lots/NUMBER)",
        cases: lots::cases,
    },
];

/// Lists the groups with their meaning, for `--help`.
pub fn list() -> String {
    let line = |group: &Group| format!("  {:<12} {}\n", group.name, group.about);
    format!("Groups of cases:\n{}", GROUPS.iter().map(line).collect::<String>())
}
