//! Cases that measure the cost of an empty process, and small general loads.

use anyhow::Result;

use crate::case::{Case, Job};
use crate::kit::Kit;

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let loads = kit.build("loads", "")?.join("loads");
    let job = |load: &str| Job::new(&loads).arg(load);
    let phases = |name: &str, about: &str, threads: &str| {
        Case::new(name, about, job("phases").args(["--threads", threads]))
    };
    Ok(vec![
        Case::new("basic/start", "an empty program: starts and ends", job("nothing")).quick(),
        Case::new("basic/mixed", "small blocks in random order, some kept for long", job("mixed"))
            .quick(),
        Case::new(
            "basic/tables",
            "what follows each of 5,000 words: tables that grow together",
            job("tables"),
        ),
        phases("basic/phases", "100 MiB filled and freed, 30 times", "0"),
        phases("basic/phases-4", "the same, on four threads that start and end each time", "4"),
        Case::new("basic/replace", "random blocks of 50 MiB, replaced one by one", job("replace")),
    ])
}
