//! An empty program: what the allocator costs a process that does nothing.

use anyhow::Result;

use crate::case::{Case, Job};
use crate::kit::Kit;

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let loads = kit.build("loads", "")?.join("loads");
    let job = Job::new(loads).arg("nothing");
    Ok(vec![Case::new("nothing/start", "start and end", job).quick()])
}
