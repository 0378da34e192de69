//! Finds a process by its number or its name.

use std::fs;
use std::path::Path;

use libc::pid_t;

use crate::procfs;
use crate::stop::Stop;

/// The kernel keeps this many bytes of a process's name.
const COMM_BYTES: usize = 15;
/// At most this many processes are listed where several have the name.
const LISTED: usize = 12;
/// Columns of a command line in that list.
const COLUMNS: usize = 50;

/// The process with this number, or the only one with this name. `what` is the command that the
/// user gave, for advice.
pub fn find(text: &str, what: &str) -> anyhow::Result<pid_t> {
    if let Ok(pid) = text.parse::<pid_t>() {
        return match pid {
            1.. => Ok(pid),
            _ => Err(Stop::usage(format!("{pid} is not a process ID: they begin with 1"))),
        };
    }
    let mut found: Vec<pid_t> = all().filter(|&pid| has_name(pid, text)).collect();
    found.sort_unstable();
    match found[..] {
        [pid] => Ok(pid),
        [] => Err(Stop::usage(format!(
            "no process is named {text}. Give a process ID (`ps -e` lists them), or the name of \
             its executable"
        ))),
        _ => {
            let mut lines: Vec<_> = found.iter().take(LISTED).map(|&pid| line(pid)).collect();
            if found.len() > LISTED {
                lines.push(format!("  … and {} more", found.len() - LISTED));
            }
            Err(Stop::usage(format!(
                "{} processes are named {text}:\n{}\nGive one of them, as in `{what} {}`",
                found.len(),
                lines.join("\n"),
                found[0]
            )))
        }
    }
}

/// The processes, except for this one.
fn all() -> impl Iterator<Item = pid_t> {
    let own = std::process::id() as pid_t;
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(move |&pid| pid != own)
}

/// Whether this is the name that the kernel shows, of the executable, or under which it was
/// started.
fn has_name(pid: pid_t, name: &str) -> bool {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm = comm.trim_end();
    // A kernel thread has no memory.
    let exe = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let arguments = arguments(pid);
    if exe.is_none() && arguments.is_empty() {
        return false;
    }
    let is_base = |path: &str| Path::new(path).file_name().is_some_and(|base| base == name);
    let is_exe = exe
        .as_deref()
        .and_then(Path::to_str)
        .is_some_and(|exe| is_base(exe.strip_suffix(" (deleted)").unwrap_or(exe)));
    comm == name
        || is_exe
        || arguments.first().is_some_and(|first| is_base(first))
        || comm.len() == COMM_BYTES && name.starts_with(comm) && {
            arguments.iter().take(2).any(|argument| is_base(argument))
        }
}

fn arguments(pid: pid_t) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn line(pid: pid_t) -> String {
    let resident = procfs::resident_roughly(pid).unwrap_or(0) as f64 / f64::from(1 << 20);
    let command: String =
        arguments(pid).join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("  {pid:>8} {resident:>8.1} MiB  {}", console::truncate_str(&command, COLUMNS, "…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
        assert_eq!(find("12", "ebb why").unwrap(), 12);
        for wrong in ["0", "-3", "no-such-process-anywhere", ""] {
            assert!(find(wrong, "ebb why").is_err(), "{wrong}");
        }
    }

    #[test]
    fn this_test_has_its_executables_name() {
        let pid = std::process::id() as pid_t;
        let exe = std::env::current_exe().unwrap();
        assert!(has_name(pid, exe.file_name().unwrap().to_str().unwrap()));
        assert!(!has_name(pid, "bash"));
    }
}
