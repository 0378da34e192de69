//! Tests the benchmark itself, on allocators with known results.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output};

const MICRO: &str = env!("CARGO_BIN_EXE_micro");

fn target() -> &'static Path {
    allocators::target_of(Path::new(MICRO)).unwrap()
}

fn micro(arguments: &[&str]) -> Output {
    Command::new(MICRO).args(arguments).output().expect("micro runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_slow_and_fat_allocator_comes_out_slow_and_fat() {
    let library = format!("slow={}", allocators::build("slow", target()).unwrap().display());
    let csv = target().join("slow-test.csv");
    let output = micro(&[
        "run",
        "--quick",
        "--peers=glibc",
        "--rows=pair-64,mixed-run",
        "--library",
        &library,
        "--csv",
        csv.to_str().unwrap(),
    ]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(table.contains("slow / best"), "{table}");

    // Maps row and allocator to the median of a column.
    let samples = std::fs::read_to_string(csv).unwrap();
    let median = |row: &str, allocator: &str, column: usize| {
        let start = format!("{row},{allocator},");
        let lines = samples.lines().filter(|line| line.starts_with(&start));
        let values = lines.map(|line| line.split(',').nth(column).unwrap());
        let mut values: Vec<f64> = values.map(|value| value.parse().unwrap()).collect();
        assert_eq!(values.len(), 3, "three rounds: {samples}");
        values.sort_by(f64::total_cmp);
        values[1]
    };
    let header: HashMap<&str, usize> =
        samples.lines().next().unwrap().split(',').enumerate().map(|(i, name)| (name, i)).collect();
    for (row, column) in
        [("pair-64", "median_ns"), ("pair-64", "mean_ns"), ("mixed-run", "peak_kib")]
    {
        let (glibc, slow) =
            (median(row, "glibc", header[column]), median(row, "slow", header[column]));
        assert!(slow > 1.5 * glibc, "{row}, {column}: {slow} against glibc's {glibc}");
    }
}

#[test]
fn every_row_checks_out_on_the_system_allocator() {
    let help = text(&micro(&["--help"]).stdout);
    let (_, rows) = help.split_once("Rows:\n").expect("--help lists the rows");
    let rows: Vec<_> = rows.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(rows.len() >= 15, "{help}");
    for row in rows {
        let output = micro(&["worker", "--row", row, "--seconds", "0.02", "--check"]);
        assert!(output.status.success(), "{row}: {}", text(&output.stderr));
    }
}

#[test]
fn a_library_without_malloc_fails_its_rows() {
    // A library that every Rust program loads, but not the C library.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.split_whitespace().find(|word| word.contains("/libgcc_s")).unwrap();
    let library = format!("nothing={library}");
    let csv = target().join("nothing-test.csv");
    let csv = format!("--csv={}", csv.display());
    let output =
        micro(&["run", "--quick", "--peers=glibc", "--rows=pair-64", "--library", &library, &csv]);
    let report = text(&output.stdout);
    assert!(report.contains("nothing failed pair-64: preloading"), "{report}");
    assert!(report.contains("malloc comes from"), "{report}");
}

#[test]
fn wrong_names_are_told() {
    for (arguments, message) in [
        (["run", "--rows=pare"], "no such row"),
        (["run", "--peers=dlmalloc"], "no such peer"),
        (["run", "--library=/nowhere.so"], "--library /nowhere.so"),
    ] {
        let output = micro(&arguments);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
}
