//! Checks the text for Prometheus by Prometheus' own tool, `promtool` (Debian's package
//! prometheus), where that is installed.

use std::io::Write;
use std::process::{Command, Stdio};

use ebbmalloc::EbbMalloc;

#[global_allocator]
static GLOBAL: EbbMalloc = EbbMalloc;

#[test]
fn promtool_finds_no_fault() {
    let mut page = String::from("# TYPE up gauge\n# HELP up A metric of the program.\nup 1\n");
    EbbMalloc::stats().write_prometheus(&mut page).unwrap();
    let pipe = Stdio::piped;
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(pipe())
        .stdout(pipe())
        .stderr(pipe())
        .spawn();
    let Ok(mut tool) = started else {
        eprintln!("SKIPPED: promtool (Debian's package prometheus) is not installed");
        return;
    };
    tool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{said}\n{page}");
}
