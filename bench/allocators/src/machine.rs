//! Describes the machine, on which every figure depends.

use std::fs;

use crate::{command_output, libc_version};

/// Returns processor, cores, memory, kernel, C library and time in one line.
pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kib: u64 = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
    let pages = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let pages = pages.unwrap_or_default();
    let pages = pages.split(['[', ']']).nth(1).unwrap_or("unknown");
    let unknown = |_| "unknown".to_string();
    format!(
        "{}, {cores} cores, {} GiB, Linux {}, {}, transparent huge pages {pages}, {}",
        field("/proc/cpuinfo", "model name"),
        kib.div_ceil(1 << 20),
        command_output("uname", &["-r"]).unwrap_or_else(unknown),
        libc_version(),
        command_output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_else(unknown),
    )
}

/// Returns the first value with that name in a file of `/proc`.
fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
    value.map_or("unknown", |(_, value)| value.trim()).into()
}

/// Returns the load averages of the last 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or("unknown".into());
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
