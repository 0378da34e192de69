//! Implements `ebb run`: replaces itself by the program, with ebbmalloc preloaded.

use std::env;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::inspect::Program;
use crate::library::LibraryOption;
use crate::{notes, output, program};

#[derive(Args)]
#[command(override_usage = "ebb run [OPTIONS] -- PROGRAM [ARGS]...")]
pub struct Options {
    /// How ebbmalloc shares its caches: sets EBB_MODE
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Print ebbmalloc's statistics when the program ends: sets EBB_STATS=1
    #[arg(long)]
    stats: bool,
    /// Print at start which mode is in force, why, and which others would work: sets EBB_EXPLAIN=1
    #[arg(long)]
    explain: bool,
    /// Check every block, and stop the program with a report of its first heap mistake: sets
    /// EBB_CHECK=1
    #[arg(long)]
    check: bool,
    /// Make heap mistakes hard to exploit, and stop the program if one is noticed: sets
    /// EBB_HARDEN=1
    #[arg(long, conflicts_with = "check")]
    harden: bool,
    /// Give about one block in N a page of its own, and report wrong accesses to it: sets
    /// EBB_SAMPLE=N
    #[arg(long, value_name = "N", conflicts_with_all = ["check", "harden"])]
    sample: Option<NonZeroU32>,
    /// Let blocks take this much memory at most, such as 512M or 75%: sets EBB_LIMIT
    #[arg(long, value_name = "SIZE")]
    limit: Option<OsString>,
    /// Set any option of ebbmalloc, such as purge_delay=1s: sets EBB_PURGE_DELAY=1s
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    library: LibraryOption,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// The best mode that works on this machine
    Auto,
    /// A cache per CPU, by restartable sequences
    Percpu,
    /// A cache per thread
    Thread,
    /// A cache per CPU, each behind a lock
    Slot,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Percpu => "percpu",
            Self::Thread => "thread",
            Self::Slot => "slot",
        }
    }
}

/// Splits the name of an option from its value. Returns the name of its variable.
pub fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    let variable = format!("EBB_{}", name.to_uppercase());
    if variables().any(|known| known == variable) {
        return Ok((variable, value.into()));
    }
    let names: Vec<_> = variables().map(|known| known[4..].to_lowercase()).collect();
    Err(format!("no option is named {name}; there are {}", names.join(", ")))
}

/// The variables of all options.
fn variables() -> impl Iterator<Item = &'static str> {
    ebbmalloc::internals::Options::TABLE.iter().map(|(variable, ..)| *variable)
}

/// Returns only if the program could not be started.
pub fn run(options: Options) -> anyhow::Result<()> {
    let [name, arguments @ ..] = options.command.as_slice() else {
        unreachable!("clap requires a program")
    };
    let path = program::find(name)?;
    let library = options.library.find()?;
    for note in notes::library("ebbmalloc", &library).into_iter().chain(notes::program(
        &Program::of(&path),
        name,
        &[&library],
    )) {
        // Prints only notes that prevent the program from running on ebbmalloc: the output belongs
        // to the program.
        if note.futile {
            output::remark(&note.text);
        }
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    command
        .env("LD_PRELOAD", program::preload(&library.path, env::var_os("LD_PRELOAD").as_deref())?);
    if let Some(mode) = options.mode {
        command.env("EBB_MODE", mode.name());
    }
    if options.stats {
        command.env("EBB_STATS", "1");
    }
    if options.explain {
        command.env("EBB_EXPLAIN", "1");
    }
    if options.check {
        command.env("EBB_CHECK", "1");
    }
    if options.harden {
        command.env("EBB_HARDEN", "1");
    }
    if let Some(every) = options.sample {
        command.env("EBB_SAMPLE", every.to_string());
    }
    if let Some(limit) = options.limit {
        command.env("EBB_LIMIT", limit);
    }
    command.envs(options.set);
    Err(program::refused(&path, command.exec()))
}
