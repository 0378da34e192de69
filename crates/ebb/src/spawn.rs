//! Starts a program that waits, before its `execve`, until every measuring tool is attached.
//!
//! The standard library's `Command` returns only after `execve`, which is too late for that.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{env, ptr};

/// A program with its arguments and environment, in the form that `execve` takes.
pub struct Command {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    limit: u32,
}

impl Command {
    /// `arguments` begin with the program's name; `set` overrides this process's environment.
    pub fn new(path: &Path, arguments: &[OsString], set: &[(&str, OsString)]) -> io::Result<Self> {
        let kept = env::vars_os().filter(|(name, _)| !set.iter().any(|(other, _)| name == other));
        let added = set.iter().map(|(name, value)| (OsString::from(name), value.clone()));
        let joined = kept.chain(added).map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        });
        Ok(Self {
            path: c_string(path.as_os_str())?,
            arguments: arguments
                .iter()
                .map(|argument| c_string(argument))
                .collect::<io::Result<_>>()?,
            environment: joined.map(|entry| c_string(&entry)).collect::<io::Result<_>>()?,
            limit: 0,
        })
    }

    /// Ends the program by `SIGALRM` after this many seconds, unless it sets an alarm of its own.
    pub fn limit(self, seconds: u32) -> Self {
        Self { limit: seconds, ..self }
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

/// The program's standard streams.
pub struct Streams<'a> {
    pub input: &'a File,
    pub output: &'a File,
    /// `None`: ebb's own standard error.
    pub error: Option<PipeWriter>,
}

/// A process that waits for [`Child::release`] before it becomes the program.
pub struct Child {
    pub pid: libc::pid_t,
    go: PipeWriter,
    refusal: PipeReader,
}

impl Child {
    pub fn spawn(command: &Command, streams: Streams) -> io::Result<Self> {
        let (wait, go) = io::pipe()?;
        let (refusal, refuse) = io::pipe()?;
        let arguments = pointers(&command.arguments);
        let environment = pointers(&command.environment);
        let redirections = [
            (streams.input.as_raw_fd(), libc::STDIN_FILENO),
            (streams.output.as_raw_fd(), libc::STDOUT_FILENO),
            (
                streams.error.as_ref().map_or(libc::STDERR_FILENO, AsRawFd::as_raw_fd),
                libc::STDERR_FILENO,
            ),
        ];
        // SAFETY: the child only makes system calls before it executes the program or exits, as a
        // fork of a process with threads demands. All memory that it uses was allocated before.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => unsafe {
                become_program(
                    &redirections,
                    wait.as_raw_fd(),
                    go.as_raw_fd(),
                    refuse.as_raw_fd(),
                    || {
                        // Alarms survive `execve`; zero seconds set none.
                        libc::alarm(command.limit);
                        // Like shells and unlike execve, execvpe runs a file without `#!` line in
                        // /bin/sh.
                        libc::execvpe(
                            command.path.as_ptr(),
                            arguments.as_ptr(),
                            environment.as_ptr(),
                        );
                    },
                )
            },
            pid => Ok(Self { pid, go, refusal }),
        }
    }

    /// Lets the process execute the program.
    pub fn release(&mut self) -> io::Result<()> {
        self.go.write_all(&[1])
    }

    /// The kernel's reason for refusing to execute the program, if it did. To be called after the
    /// child's end.
    pub fn refused(mut self) -> Option<io::Error> {
        let mut code = [0; 4];
        self.refusal.read_exact(&mut code).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(code)))
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Turns the forked process into the program.
///
/// # Safety
/// The process was just forked, and `execute` is safe to call in such a process.
unsafe fn become_program(
    redirections: &[(RawFd, RawFd)],
    wait: RawFd,
    go: RawFd,
    refuse: RawFd,
    execute: impl FnOnce(),
) -> ! {
    unsafe {
        for &(from, to) in redirections {
            libc::dup2(from, to);
        }
        // Rust programs ignore SIGPIPE, and `execve` would pass that on.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        // With this copy of the writing end closed, a parent that dies wakes the child too.
        libc::close(go);
        let mut byte = 0u8;
        if libc::read(wait, ptr::from_mut(&mut byte).cast(), 1) == 1 {
            execute();
            let code = (*libc::__errno_location()).to_ne_bytes();
            libc::write(refuse, code.as_ptr().cast(), code.len());
        }
        libc::_exit(127)
    }
}
