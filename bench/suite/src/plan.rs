//! Which cases on which allocators: builds the peers, sets up the groups, and says what is missing.

use std::path::Path;

use allocators::Peer;
use anyhow::{Context, Result, ensure};

use crate::case::{Allocator, Case, Kind};
use crate::kit::Kit;
use crate::workloads::GROUPS;

pub struct Plan {
    pub allocators: Vec<Allocator>,
    pub cases: Vec<Case>,
    pub missing: Vec<String>,
}

/// Forced modes of the allocator under test.
const MODES: [&str; 2] = ["percpu", "slot"];

impl Plan {
    /// `only`: parts of case names; all cases if there are none.
    pub fn make(kit: &Kit, peers: &[&'static Peer], only: &[String], quick: bool) -> Result<Self> {
        let mut missing = Vec::new();
        let mut allocators = Vec::new();
        for peer in peers {
            match peer.prepare() {
                Ok(ready) => allocators.push(Allocator {
                    name: ready.name,
                    library: ready.library,
                    env: ready
                        .env
                        .iter()
                        .map(|&(name, value)| (name.into(), value.into()))
                        .collect(),
                    origin: ready.origin,
                    kind: Kind::Peer,
                }),
                Err(error) => missing.push(format!("{} is missing: {error:#}", peer.name)),
            }
        }
        allocators.push(ours(&kit.library, None));
        allocators.extend(MODES.map(|mode| ours(&kit.library, Some(mode))));

        let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
        let mut cases = Vec::new();
        for group in GROUPS {
            // A part may name a group, or a case of it.
            let may = |part: &String| {
                group.name.contains(part.as_str()) || part.starts_with(&format!("{}/", group.name))
            };
            if !only.is_empty() && !only.iter().any(may) {
                continue;
            }
            match (group.cases)(kit) {
                Ok(all) => {
                    cases
                        .extend(all.into_iter().filter(|c| wanted(&c.name) && (!quick || c.quick)));
                }
                Err(error) => missing.push(format!("{} is missing: {error:#}", group.name)),
            }
        }
        for what in &missing {
            eprintln!("{what}");
        }
        ensure!(!cases.is_empty(), "no case of that name; `suite --help` lists the groups");
        if !cases.iter().any(|case| case.modes) {
            allocators.retain(|allocator| allocator.kind != Kind::OurMode);
        }
        Ok(Self { allocators, cases, missing })
    }
}

fn ours(library: &Path, mode: Option<&str>) -> Allocator {
    Allocator {
        name: mode.map_or("ebbmalloc".into(), |mode| format!("ebbmalloc-{mode}")),
        library: Some(library.into()),
        env: mode.map(|mode| ("EBB_MODE".into(), mode.into())).into_iter().collect(),
        origin: "this repository".into(),
        kind: if mode.is_some() { Kind::OurMode } else { Kind::Ours },
    }
}

/// The library under test, checked.
pub fn library(path: &Path) -> Result<std::path::PathBuf> {
    path.canonicalize().with_context(|| {
        format!(
            "{}: not there; `cargo build --release` in the repository builds it",
            path.display()
        )
    })
}
