//! Step `faces`: tests what users of other languages get, in the form in which they get it.
//! C and C++ see only an installed tree, which was moved after installation. Zig sees the package
//! of this repository.

mod shared;

mod c;
mod zig;

use crate::context::Context;
use crate::deb;
use crate::tally::Tally;
use anyhow::Result;
use std::collections::BTreeSet;
use std::time::Instant;

pub fn packages(context: &Context) -> Result<BTreeSet<String>> {
    let c = c::CHECKS
        .iter()
        .filter(|check| check.name.contains(&context.filter) && (context.long || !check.long));
    let mut packages: BTreeSet<String> =
        c.flat_map(|check| check.packages).map(|name| name.to_string()).collect();
    packages.extend(["binutils", "python3", "python3-venv"].map(str::to_string));
    if context.long {
        packages.extend(deb::needed());
    }
    Ok(packages)
}

pub fn run(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    if !context.library.is_ours() {
        tally.skip("faces", "they are ebbmalloc's own");
        return Ok(tally);
    }
    for (name, part) in [("c", c::run as fn(&Context) -> Result<Tally>), ("zig", zig::run)] {
        let start = Instant::now();
        let counted = part(context)?;
        println!("  faces/{name}: {counted}, {:.1} s", start.elapsed().as_secs_f64());
        tally += counted;
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::shared::served;

    #[test]
    fn a_program_that_was_not_served_is_seen() {
        assert!(served("ok\nserved by ebbmalloc 0.1.0 mode percpu\n", 1));
        assert!(!served("ok\nserved by ebbmalloc 0.1.0 mode percpu\n", 2));
        assert!(!served("served by the C library's malloc\n", 1));
        assert!(!served("served by ebbmalloc 0.1\nserved by the C library's malloc\n", 2));
    }
}
