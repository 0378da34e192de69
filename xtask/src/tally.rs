//! Counts passed, failed and skipped tests, and prints the latter two at once.

use std::fmt::{self, Display};
use std::ops::AddAssign;

#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Tally {
    pub fn pass(&mut self) {
        self.passed += 1;
    }

    /// Counts a test that passed, or prints why it failed.
    pub fn count<E: Display>(&mut self, test: &str, result: Result<(), E>) {
        match result {
            Ok(()) => self.pass(),
            Err(error) => self.fail(test, format_args!("{error:#}")),
        }
    }

    /// Counts a failure and prints its reason.
    pub fn fail(&mut self, test: &str, why: impl Display) {
        self.failed += 1;
        println!("  FAILED {test}: {why}");
    }

    /// Counts a test that could not run and prints the reason.
    pub fn skip(&mut self, test: &str, why: impl Display) {
        self.skipped += 1;
        println!("  skipped {test}: {why}");
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Tally { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}
