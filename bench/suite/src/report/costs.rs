//! Tells where the CPU time goes: to the program with its allocator, or to the kernel for page
//! faults and system calls.

use ebb::stats::geometric_mean;

use super::data::Data;
use super::means::{Compared, all_and_groups};
use super::table;
use crate::case::{CPU, FAULTS, KERNEL};

/// A table over all cases and over each group. Empty if no case has all figures, as in runs of
/// older versions.
pub fn write(data: &Data) -> String {
    let Some(compared) = Compared::of(data) else { return String::new() };
    let has_all = |case: &&str| {
        let figures = [CPU, KERNEL, FAULTS];
        compared.allocators.iter().all(|allocator| {
            figures.iter().all(|figure| data.median(case, figure, allocator).is_some())
        })
    };
    let cases: Vec<_> = compared.cases.iter().copied().filter(has_all).collect();
    if cases.is_empty() {
        return String::new();
    }
    let parts = all_and_groups(&cases).into_iter();
    let lines = parts.map(|(over, cases)| line(data, &compared, over, &cases));
    let mut header = vec!["over".to_string(), "cases".into()];
    header.extend(compared.allocators.iter().map(|name| name.to_string()));
    format!(
        "CPU time of the program with its allocator, plus that of the kernel: means over cases of \
         shares of what {} takes in both. In brackets page faults in thousands, their geometric \
         mean. Page faults and system calls are the kernel's work for an allocator.\n\n{}",
        compared.base,
        table::table(header, lines)
    )
}

fn line(data: &Data, compared: &Compared, over: &str, cases: &[&str]) -> Vec<String> {
    let median = |case: &&str, figure, allocator: &str| {
        data.median(case, figure, allocator).expect("cases without it were left out")
    };
    let cell = |allocator: &&str| {
        let share =
            |case: &&str, seconds: f64| seconds / median(case, CPU, compared.base).max(1e-6);
        let count = cases.len() as f64;
        let kernel: f64 =
            cases.iter().map(|case| share(case, median(case, KERNEL, allocator))).sum();
        let both: f64 = cases.iter().map(|case| share(case, median(case, CPU, allocator))).sum();
        let faults: Vec<_> = cases.iter().map(|case| median(case, FAULTS, allocator)).collect();
        let faults = geometric_mean(&faults).unwrap_or(0.0) / 1000.0;
        format!("{:.2} + {:.2} ({faults:.1})", (both - kernel) / count, kernel / count)
    };
    let cells = compared.allocators.iter().map(cell);
    [over.to_string(), cases.len().to_string()].into_iter().chain(cells).collect()
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::{add, data};
    use super::*;

    #[test]
    fn the_kernel_has_its_own_share() {
        let allocators = ["glibc", "ebbmalloc"];
        let runs = ["a/b", "a/c"].map(|case| allocators.map(|name| (case, name, &[1.0][..])));
        let mut data = data(runs.as_flattened());
        assert_eq!(write(&data), "", "runs without these figures have no table");
        for (case, allocator, cpu, kernel, faults) in [
            ("a/b", "glibc", 2.0, 0.5, 4000.0),
            ("a/b", "ebbmalloc", 1.0, 0.25, 1000.0),
            ("a/c", "glibc", 1.0, 0.0, 4000.0),
            ("a/c", "ebbmalloc", 1.5, 0.25, 9000.0),
        ] {
            let figures = [(CPU, cpu), (KERNEL, kernel), (FAULTS, faults)];
            add(&mut data, case, allocator, &figures);
        }
        let text = write(&data);
        let cells = ["0.88 + 0.12 (4.0)", "0.81 + 0.19 (3.0)"];
        assert!(cells.iter().all(|cell| text.contains(cell)), "{text}");
    }
}
