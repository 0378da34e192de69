//! Profiles a running process: switches sampling on, waits, looks, and switches it off.

use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use libc::{SIGINT, pid_t};

use super::data::{Profile, Raw, WithLedger};
use super::look::Target;
use super::{Options, show, table};
use crate::output::remark;
use crate::stop::Stop;
use crate::{interrupt, output};

/// How long a process is profiled unless it was profiled already.
const USUAL: Duration = Duration::from_secs(30);
/// Meanwhile it is looked at this often, in case it ends.
const LOOKS: Duration = Duration::from_secs(1);
/// These looks are this many times as far apart as one takes.
const PATIENCE: u32 = 20;
/// The interval at which requests to end are noticed.
const STEP: Duration = Duration::from_millis(50);
/// An idle process follows a request when it allocates: ebb does not wait longer for that.
const FOLLOWING: Duration = Duration::from_millis(300);

/// A process whose profiling is switched off in the end, unless it is to stay on.
struct Switched {
    target: Target,
    to_switch_off: bool,
}

impl Drop for Switched {
    fn drop(&mut self) {
        if self.to_switch_off {
            self.target.request(0);
            let asked = Instant::now();
            while !self.target.has_followed() && asked.elapsed() < FOLLOWING {
                thread::sleep(STEP / 10);
            }
        }
    }
}

pub fn run(pid: pid_t, options: &Options, before: Option<Profile>) -> anyhow::Result<()> {
    interrupt::install()?;
    let mut target = Target::open(pid)?;
    let earlier = target.mean_bytes();
    if earlier.is_none() && !options.off && !target.request(options.mean) {
        return Err(Stop::with(
            1,
            format!("process {pid} cannot be profiled: its memory cannot be written"),
        ));
    }
    if let Some(mean) = earlier.filter(|mean| *mean != options.mean && options.mean_is_set()) {
        remark(format_args!(
            "profiling is on already, with one sample in {} bytes: --mean has no effect",
            table::count(mean as f64)
        ));
    }
    let to_switch_off = options.off || earlier.is_none() && !options.keep;
    let mut switched = Switched { target, to_switch_off };
    if let Some(every) = options.every {
        return repeat(&mut switched.target, pid, every, options, before);
    }
    let seconds = match (options.seconds, earlier) {
        (Some(seconds), _) => seconds,
        (None, Some(_)) => Duration::ZERO,
        (None, None) if options.off => Duration::ZERO,
        (None, None) => USUAL,
    };
    let last = wait(&mut switched.target, pid, seconds, options)?;
    drop(switched);
    let Some(look) = last else {
        return match (options.off, is_alive(pid)) {
            (true, _) => Err(Stop::with(1, format!("process {pid} was not being profiled"))),
            (false, false) => Err(ended_too_soon(pid)),
            (false, true) if options.output.is_some() => Err(Stop::with(
                1,
                format!(
                    "process {pid} allocated nothing while it was profiled: no file is written"
                ),
            )),
            (false, true) => output::print_line(format_args!(
                "process {pid} allocated nothing while it was profiled. A longer --seconds may help"
            )),
        };
    };
    show(look.name(&options.symbols), before.as_ref(), options, None)
}

/// Shows what grew, again and again, until the process ends or the user does.
fn repeat(
    target: &mut Target,
    pid: pid_t,
    every: Duration,
    options: &Options,
    mut before: Option<Profile>,
) -> anyhow::Result<()> {
    let mut nth = 0;
    loop {
        let look = wait(target, pid, every, options)?;
        let is_over = interrupt::asked().is_some();
        let Some(look) = look else {
            match (nth, is_alive(pid)) {
                (_, true) if !is_over => continue,
                (0, _) => return Err(ended_too_soon(pid)),
                _ => return Ok(()),
            }
        };
        nth += 1;
        let look = look.name(&options.symbols);
        let profile = look.profile.clone();
        if nth > 1 && options.output.is_none() {
            output::print_line("")?;
        }
        show(look, before.as_ref(), options, Some(nth))?;
        before = Some(profile);
        if is_over || !is_alive(pid) {
            return Ok(());
        }
    }
}

fn is_alive(pid: pid_t) -> bool {
    crate::procfs::resident_roughly(pid).is_some()
}

fn ended_too_soon(pid: pid_t) -> anyhow::Error {
    Stop::with(1, format!("process {pid} ended before it could be looked at"))
}

/// Waits, and looks. If the process ends meanwhile, returns the last look. Ctrl-C ends the waiting,
/// and so does a reader who leaves.
fn wait(
    target: &mut Target,
    pid: pid_t,
    time: Duration,
    options: &Options,
) -> anyhow::Result<Option<WithLedger<Raw>>> {
    let started = Instant::now();
    let progress = Progress::new(pid, time);
    let mut last: Option<WithLedger<Raw>> = None;
    let mut next_look = LOOKS;
    while started.elapsed() < time && interrupt::asked().is_none() {
        thread::sleep(STEP.min(time.saturating_sub(started.elapsed())));
        // An idle process has nothing to print, by which that would be seen.
        if options.output.is_none() && output::is_closed() {
            return Err(Stop::silent());
        }
        target.has_followed();
        if started.elapsed() >= next_look {
            let looking = Instant::now();
            match target.look() {
                Some(look) => {
                    progress.show(started.elapsed(), &look.profile);
                    last = Some(look);
                }
                None if !is_alive(pid) => break,
                None => {}
            }
            next_look = started.elapsed() + LOOKS.max(looking.elapsed() * PATIENCE);
        }
    }
    drop(progress);
    match interrupt::asked() {
        None | Some(SIGINT) => {}
        Some(signal) => return Err(Stop::with(128 + signal as u8, "interrupted")),
    }
    let now = target.look();
    if now.is_none() && last.is_some() {
        remark(format_args!("process {pid} has ended: this is what was seen before"));
    }
    Ok(now.or(last))
}

/// A line on the terminal while the user waits.
struct Progress {
    bar: ProgressBar,
    time: Duration,
}

impl Progress {
    fn new(pid: pid_t, time: Duration) -> Self {
        let target = match time.is_zero() {
            true => ProgressDrawTarget::hidden(),
            // Hidden if standard error is no terminal.
            false => ProgressDrawTarget::stderr(),
        };
        let style = ProgressStyle::with_template("{spinner} {msg}");
        let bar = ProgressBar::with_draw_target(None, target)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message(format!(
            "profiling process {pid} for {} s; Ctrl-C shows the result at once",
            time.as_secs_f64()
        ));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, time }
    }

    fn show(&self, elapsed: Duration, look: &Raw) {
        let live: f64 = look.stacks.iter().map(|stack| stack.values.live.bytes).sum();
        self.bar.set_message(format!(
            "{:.0} of {:.0} s: {} live in {} stacks; Ctrl-C shows the result at once",
            elapsed.as_secs_f64(),
            self.time.as_secs_f64(),
            table::amount(live, Default::default()),
            look.stacks.len()
        ));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
