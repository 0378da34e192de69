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
    let header = ["over", "allocator", "cases", "program", "kernel", "faults"];
    let parts = all_and_groups(&cases).into_iter().flat_map(|(over, cases)| {
        let cells = compared.allocators.iter().map(|name| cells(data, &compared, name, &cases));
        table::part(over, cases.len(), &compared.allocators, cells)
    });
    format!(
        "CPU time of the program with its allocator, and of the kernel: means over cases of \
         shares of what {} takes in both. Faults are page faults in thousands, their geometric \
         mean. Page faults and system calls are the kernel's work for an allocator.\n\n{}",
        compared.base,
        table::table(header.map(String::from).into(), parts)
    )
}

/// The shares of the program and of the kernel, and the page faults of an allocator.
fn cells(data: &Data, compared: &Compared, allocator: &str, cases: &[&str]) -> [String; 3] {
    let median = |case: &str, figure, allocator: &str| {
        data.median(case, figure, allocator).expect("cases without it were left out")
    };
    let share = |figure| {
        let shares = cases.iter().map(|case| {
            median(case, figure, allocator) / median(case, CPU, compared.base).max(1e-6)
        });
        shares.sum::<f64>() / cases.len() as f64
    };
    let (both, kernel) = (share(CPU), share(KERNEL));
    let faults: Vec<_> = cases.iter().map(|case| median(case, FAULTS, allocator)).collect();
    let faults = geometric_mean(&faults).unwrap_or(0.0) / 1000.0;
    [format!("{:.2}", both - kernel), format!("{kernel:.2}"), format!("{faults:.1}")]
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
        assert_eq!(rows(&data), ["all,glibc,2,0.88,0.12,4.0", ",ebbmalloc,,0.81,0.19,3.0"]);
    }

    #[test]
    fn what_is_drawn_has_rows_of_its_own() {
        let allocators = ["glibc", "ebbmalloc"];
        let cases = ["a/b", "drawn/lua", "lots/7", "lots/8"];
        let runs = cases.map(|case| allocators.map(|name| (case, name, &[1.0][..])));
        let mut data = data(runs.as_flattened());
        for (case, cpu) in [("drawn/lua", 0.5), ("lots/7", 2.0), ("lots/8", 4.0)] {
            for (allocator, cpu) in [("glibc", 1.0), ("ebbmalloc", cpu)] {
                let figures = [(CPU, cpu), (KERNEL, cpu / 2.0), (FAULTS, 1000.0)];
                add(&mut data, case, allocator, &figures);
            }
        }
        let expected = [
            "all,glibc,3,0.50,0.50,1.0",
            ",ebbmalloc,,1.08,1.08,1.0",
            "drawn,glibc,1,0.50,0.50,1.0",
            ",ebbmalloc,,0.25,0.25,1.0",
            "lots,glibc,2,0.50,0.50,1.0",
            ",ebbmalloc,,1.50,1.50,1.0",
        ];
        assert_eq!(rows(&data), expected, "a/b lacks the figures");
    }

    /// The cells of the table's rows.
    fn rows(data: &Data) -> Vec<String> {
        let text = write(data);
        let rows = text.lines().filter(|line| line.starts_with('|')).skip(2);
        let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim));
        cells.map(|cells| cells.collect::<Vec<_>>().join(",")).collect()
    }
}
