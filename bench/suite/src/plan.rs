//! Which cases on which allocators: sets up the groups, builds the peers, and says what is missing.

use std::path::Path;

use allocators::{Peer, Ready};
use anyhow::{Result, ensure};

use crate::case::{Allocator, Case, Kind};
use crate::conditions;
use crate::kit::Kit;
use crate::workloads::{self, GROUPS};

pub struct Plan {
    pub cases: Vec<Case>,
    pub allocators: Vec<Allocator>,
    /// Groups and peers that cannot be had, and why.
    pub missing: Vec<String>,
}

/// Forced modes of the allocator under test.
const MODES: [&str; 3] = ["percpu", "thread", "slot"];
/// A way to run the allocator under test: its name, and a variable with its value.
pub type Way = (&'static str, &'static str, &'static str);
/// Those that look for mistakes, or for who holds the memory.
pub const CARES: [Way; 4] = [
    ("sample", "EBB_SAMPLE", "5000"),
    ("harden", "EBB_HARDEN", "1"),
    ("check", "EBB_CHECK", "noleaks"),
    ("profile", "EBB_PROFILE", "1"),
];

impl Plan {
    /// Sets up cases, as yet without allocators. `only`: parts of case names; all cases if there
    /// are none.
    pub fn of_cases(kit: &Kit, only: &[String], quick: bool) -> Result<Self> {
        // A part may name a group, or cases of one.
        let may_be_in = |part: &str, group: &str| {
            group.contains(part) || part.starts_with(&format!("{group}/"))
        };
        for part in only {
            let known = GROUPS.iter().any(|group| may_be_in(part, group.name));
            ensure!(known, "--only {part}: no such group\n\n{}", workloads::list());
        }
        let mut cases = Vec::new();
        let mut missing = Vec::new();
        for group in GROUPS {
            if !only.is_empty() && !only.iter().any(|part| may_be_in(part, group.name)) {
                continue;
            }
            match (group.cases)(kit) {
                Ok(all) => cases.extend(all),
                Err(error) => kit.note_missing(group.name, &error),
            }
            missing.extend(kit.take_missing());
        }
        if missing.is_empty() {
            for part in only {
                let names = || cases.iter().map(|case| &*case.name).collect::<Vec<_>>().join(", ");
                let found = cases.iter().any(|case| case.name.contains(part));
                ensure!(found, "--only {part}: no such case; there are: {}", names());
            }
        }
        cases.retain(|case| only.is_empty() || only.iter().any(|part| case.name.contains(part)));
        cases.retain(|case| !quick || case.quick);
        let why = if missing.is_empty() {
            "no case of these is part of --quick".into()
        } else {
            missing.join("; ")
        };
        ensure!(!cases.is_empty(), "nothing to measure: {why}");
        Ok(Self { cases, allocators: Vec::new(), missing })
    }

    /// Adds the peers, which are built or installed if need be, the library under test, also as it
    /// looks for mistakes in these ways, and the build before it, if there is one.
    pub fn set_up_allocators(
        &mut self,
        kit: &Kit,
        peers: &[&'static Peer],
        careful: &[Way],
        before: Option<&Path>,
    ) {
        for peer in peers {
            match peer.set_up() {
                Ok(ready) => self.allocators.push(peer_of(ready)),
                Err(error) => kit.note_missing(peer.name, &error),
            }
        }
        for (name, origin) in self.cases.iter().flat_map(|case| &case.guests) {
            if !self.allocators.iter().any(|allocator| allocator.name == *name) {
                self.allocators.push(guest(name, origin));
            }
        }
        let commit = conditions::commit(&kit.repository);
        let ours = |kind, way: Option<Way>| Allocator {
            name: way.map_or("ebbmalloc".into(), |(name, ..)| format!("ebbmalloc-{name}")),
            library: Some(kit.library.clone()),
            env: way.map(|(_, option, value)| (option.into(), value.into())).into_iter().collect(),
            origin: format!("this repository, commit {commit}"),
            kind,
        };
        self.allocators.push(ours(Kind::Ours, None));
        if self.cases.iter().any(|case| case.modes) {
            for mode in MODES {
                let allocator = ours(Kind::OurMode, Some((mode, "EBB_MODE", mode)));
                match conditions::has_mode(&allocator, mode) {
                    Ok(()) => self.allocators.push(allocator),
                    Err(error) => kit.note_missing(&allocator.name, &error),
                }
            }
        }
        self.missing.extend(kit.take_missing());
        self.allocators.extend(careful.iter().map(|&way| ours(Kind::OurCare, Some(way))));
        self.allocators.extend(before.map(|library| Allocator {
            name: "before".into(),
            library: Some(library.into()),
            env: Vec::new(),
            origin: "another build of ebbmalloc".into(),
            kind: Kind::Before,
        }));
    }

    /// Who runs a case.
    pub fn contenders(&self, case: &Case) -> Vec<&Allocator> {
        let takes_part = |allocator: &&Allocator| match allocator.kind {
            Kind::Peer | Kind::Ours | Kind::OurCare => true,
            Kind::Guest => case.guests.iter().any(|(name, _)| *name == allocator.name),
            Kind::OurMode => case.modes,
            Kind::Before => !case.ours_built_in,
        };
        self.allocators.iter().filter(takes_part).collect()
    }
}

fn peer_of(ready: Ready) -> Allocator {
    let version = conditions::own_version(&ready).map(|version| format!("{version}, "));
    Allocator {
        origin: version.unwrap_or_default() + &ready.origin,
        name: ready.name,
        library: ready.library,
        env: ready.env.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
        kind: Kind::Peer,
    }
}

fn guest(name: &str, origin: &str) -> Allocator {
    let (name, origin) = (name.into(), origin.into());
    Allocator { name, library: None, env: Vec::new(), origin, kind: Kind::Guest }
}
