//! Waits for a program's end, and reads its memory in the last moment before it is gone.
//!
//! A process's memory can only be read while the process lives. The kernel stops a traced thread
//! when it begins to exit (`PTRACE_EVENT_EXIT`), with the process's memory still in place: that is
//! when ebb reads it. Only the main thread is traced, so threads, system calls and child processes
//! run undisturbed; signals to the main thread take a short detour through ebb.
//!
//! Whichever thread ends the process, the main thread passes its exit stop: the kernel makes every
//! thread leave when one calls `exit_group` or a signal kills. Only a main thread that leaves by
//! `pthread_exit` goes before its process. Then ebb traces the threads left behind, and the last
//! one counts.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_void, pid_t};

use crate::procfs::Snapshot;

/// The interval at which a program that may not be traced is read.
const SAMPLING: Duration = Duration::from_millis(10);

/// How a program ended.
pub struct Ended<T = Snapshot> {
    pub status: ExitStatus,
    pub usage: libc::rusage,
    pub at: Instant,
    /// The time for which the program was stopped while ebb read its memory.
    pub paused: Duration,
    /// The last reading.
    pub last: Option<T>,
}

/// Makes the process a tracee of this thread, before it executes the program.
pub fn attach(pid: pid_t) -> io::Result<()> {
    // EXITKILL: if ebb is killed, the program must not run on unattended.
    seize(pid, libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_EXITKILL)
}

/// Waits for the end of a traced child. Calls `look` in the last moment in which its memory can be
/// read.
pub fn follow<T>(pid: pid_t, mut look: impl FnMut(pid_t) -> Option<T>) -> io::Result<Ended<T>> {
    let mut leaving = HashSet::new();
    let mut last = None;
    let mut paused = Duration::ZERO;
    loop {
        let (tid, status, usage) = wait()?;
        if !libc::WIFSTOPPED(status) {
            if tid == pid {
                let status = ExitStatus::from_raw(status);
                return Ok(Ended { status, usage, at: Instant::now(), paused, last });
            }
            continue;
        }
        match (status >> 16, libc::WSTOPSIG(status)) {
            (0, signal) => resume(libc::PTRACE_CONT, tid, signal),
            (libc::PTRACE_EVENT_EXIT, _) => {
                let stopped = Instant::now();
                leaving.insert(tid);
                let left_behind = others(pid, &leaving);
                let goes_alone = calls(tid, &[libc::SYS_exit]) && !left_behind.is_empty();
                // A thread that executes another program makes all others leave, and lives on.
                let replaced = left_behind
                    .iter()
                    .any(|&other| calls(other, &[libc::SYS_execve, libc::SYS_execveat]));
                last = if goes_alone || replaced { None } else { look(tid) };
                resume(libc::PTRACE_CONT, tid, 0);
                if last.is_some() {
                    paused = stopped.elapsed();
                } else if goes_alone {
                    trace_others(pid, &leaving);
                }
            }
            // The whole process is being stopped (by Ctrl-Z, for example): leave it stopped until
            // SIGCONT comes.
            (
                libc::PTRACE_EVENT_STOP,
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU,
            ) => {
                resume(libc::PTRACE_LISTEN, tid, 0);
            }
            _ => resume(libc::PTRACE_CONT, tid, 0),
        }
    }
}

/// Waits for the end of a child that may not be traced, and reads its memory every 10 ms.
pub fn sample(pid: pid_t, library: Option<&Path>) -> io::Result<Ended> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            // Until it executes the program, the process is a copy of this one.
            let copy = fs::read_link("/proc/self/exe").ok();
            let mut last: Option<Snapshot> = None;
            loop {
                thread::park_timeout(SAMPLING);
                if ended.load(Relaxed) {
                    break;
                }
                let next = Snapshot::take(pid, library);
                if let Some(mut next) = next.filter(|next| next.exe.is_none() || next.exe != copy) {
                    // Readings on the way say nothing about the peak.
                    next.peak = None;
                    if last.is_some_and(|last| last.mapped == Some(true)) {
                        next.mapped = Some(true);
                    }
                    last = Some(next);
                }
            }
            last
        });
        let waited = wait();
        let at = Instant::now();
        ended.store(true, Relaxed);
        sampler.thread().unpark();
        let last = sampler.join().unwrap_or_default();
        let (_, status, usage) = waited?;
        Ok(Ended { status: ExitStatus::from_raw(status), usage, at, paused: Duration::ZERO, last })
    })
}

/// The other threads of a process, less those that passed their exit stop.
fn others(pid: pid_t, leaving: &HashSet<pid_t>) -> Vec<pid_t> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .filter(|tid| !leaving.contains(tid))
        .collect()
}

/// Traces the threads of a process whose main thread left, and those they create.
fn trace_others(pid: pid_t, leaving: &HashSet<pid_t>) {
    let options = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
    // Threads may be created while the list is read: repeat until no new one is found.
    while others(pid, leaving).into_iter().filter(|&tid| seize(tid, options).is_ok()).count() > 0 {}
}

/// Whether a stopped or sleeping thread is inside one of these system calls.
fn calls(tid: pid_t, numbers: &[c_long]) -> bool {
    let text = fs::read_to_string(format!("/proc/{tid}/syscall")).unwrap_or_default();
    let number = text.split(' ').next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| numbers.contains(&number))
}

fn seize(tid: pid_t, options: c_int) -> io::Result<()> {
    // SAFETY: the request accesses no memory of this process.
    match unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, ptr(0), ptr(options)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Lets a stopped thread go on. It may have been killed meanwhile, which the next wait reports.
fn resume(request: libc::c_uint, tid: pid_t, signal: c_int) {
    // SAFETY: the request accesses no memory of this process.
    unsafe { libc::ptrace(request, tid, ptr(0), ptr(signal)) };
}

fn ptr(value: c_int) -> *mut c_void {
    std::ptr::without_provenance_mut(value as usize)
}

/// Waits for the next event of a child or tracee of this thread.
fn wait() -> io::Result<(pid_t, c_int, libc::rusage)> {
    let mut status = 0;
    let mut usage = MaybeUninit::zeroed();
    loop {
        // SAFETY: both pointers are valid for writes. All-zero bytes are a valid rusage.
        let tid = unsafe {
            libc::wait4(-1, &mut status, libc::__WALL | libc::__WNOTHREAD, usage.as_mut_ptr())
        };
        if tid >= 0 {
            return Ok((tid, status, unsafe { usage.assume_init() }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
