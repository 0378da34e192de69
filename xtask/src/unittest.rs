//! Counts the tests in the output of Python's unittest with `-v`.

use crate::process::{Finished, last_lines};
use crate::tally::Tally;

/// Adds the outcome of each test to `tally`.
pub fn count(run: &Finished, tally: &mut Tally) {
    for line in run.stderr.lines() {
        let Some((test, outcome)) = line.split_once(" ... ") else { continue };
        let test = test.split(' ').next().unwrap_or(test);
        match outcome.strip_prefix("skipped ") {
            Some(why) => tally.skip(test, why),
            None if outcome == "ok" => tally.pass(),
            None => tally.fail(test, outcome),
        }
    }
    if !run.success() {
        println!("{}", last_lines(&run.stderr, 60));
        if tally.failed == 0 {
            tally.fail("unittest", run.describe());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn outcomes_are_counted() {
        let stderr = "test_a (m.C.test_a) ... ok\ntest_b (m.C.test_b) ... skipped 'no numpy'\n\
                      test_c (m.C) ... FAIL\n\nFAILED\n";
        let run = Finished {
            status: Some(ExitStatus::from_raw(256)),
            stdout: String::new(),
            stderr: stderr.into(),
        };
        let mut tally = Tally::default();
        count(&run, &mut tally);
        assert_eq!(tally, Tally { passed: 1, failed: 1, skipped: 1 });
        let mut tally = Tally::default();
        count(&Finished { stderr: "No module named unittest\n".into(), ..run }, &mut tally);
        assert_eq!(tally.failed, 1);
    }
}
