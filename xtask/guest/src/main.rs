//! Runs as the first process of a virtual machine: mounts what programs expect, runs the jobs one
//! after the other, prints how each ended, and turns the machine off.

use ebbmalloc_guest::{APART, End, JOBS, Job, Mark};
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{io, ptr, thread};

/// Interval at which a running job is polled.
const POLL: Duration = Duration::from_millis(10);
/// Time between two changes of a CPU's state.
const BETWEEN_HOTPLUGS: Duration = Duration::from_millis(40);
/// Files with what it prints on standard output and standard error.
const PRINTED: [&str; 2] = ["/tmp/out", "/tmp/err"];

fn main() {
    for (kind, place) in [
        (c"proc", c"/proc"),
        (c"sysfs", c"/sys"),
        (c"cgroup2", c"/sys/fs/cgroup"),
        (c"devtmpfs", c"/dev"),
        (c"tmpfs", c"/tmp"),
        (c"tmpfs", c"/dev/shm"),
    ] {
        mount(kind, place);
    }
    // Shells open these.
    for (place, file) in [("/dev/fd", ""), ("/dev/stdin", "/0"), ("/dev/stdout", "/1")] {
        let _ = symlink(format!("/proc/self/fd{file}"), place);
    }
    say(&machine());
    let jobs = fs::read_to_string(JOBS).expect("no jobs");
    for line in jobs.lines() {
        let job = Job::parse(line).unwrap_or_else(|| panic!("not a job: {line}"));
        say(&Mark::Begin(job.name.clone()));
        say(&run(&job));
    }
    say(&Mark::Done);
    // SAFETY: plain system calls without arguments in memory; the second does not return.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
}

/// Prints a mark on a line of its own, even if a job left its last line unfinished.
fn say(mark: &Mark) {
    println!("\n{mark}");
}

fn mount(kind: &CStr, place: &CStr) {
    let _ = fs::create_dir_all(place.to_str().expect("ours"));
    let (name, path) = (kind.as_ptr(), place.as_ptr());
    // SAFETY: both are strings that end in zero; these file systems take no data.
    if unsafe { libc::mount(name, path, name, 0, ptr::null()) } != 0 {
        println!("cannot mount {place:?}: {}", io::Error::last_os_error());
    }
}

fn machine() -> Mark {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or("unknown".into());
    // SAFETY: both calls only read a number. 27 is AT_RSEQ_FEATURE_SIZE.
    let (cpus, rseq_bytes) =
        unsafe { (libc::sysconf(libc::_SC_NPROCESSORS_ONLN), libc::getauxval(27)) };
    Mark::Machine {
        release: release.trim().into(),
        cpus: cpus as usize,
        rseq_bytes: rseq_bytes as usize,
    }
}

fn run(job: &Job) -> Mark {
    let start = Instant::now();
    let mut command = Command::new(&job.command[0]);
    command.args(&job.command[1..]).env_clear().current_dir("/tmp").process_group(0);
    command.envs(job.environment.iter().filter_map(|setting| setting.split_once('=')));
    if job.apart {
        apart(&mut command).expect("files can be made");
    }
    let mut hotplug = Hotplug::new(job.hotplug);
    let end = match command.spawn() {
        Ok(mut child) => wait(&mut child, start + Duration::from_secs(job.limit_s), &mut hotplug),
        Err(error) => {
            println!("cannot start {}: {error}", job.command[0]);
            End::NotStarted
        }
    };
    let ms = start.elapsed().as_millis() as u64;
    for (file, mark) in PRINTED.iter().zip([Mark::Out, Mark::Err]).filter(|_| job.apart) {
        let printed = fs::read(file).unwrap_or_default();
        for line in String::from_utf8_lossy(&printed).lines() {
            println!("{}", mark(line.to_string()));
        }
    }
    Mark::End { end, ms, offline: hotplug.finish() }
}

/// Gives a job an empty directory, and files for what it prints.
fn apart(command: &mut Command) -> io::Result<()> {
    let _ = fs::remove_dir_all(APART);
    fs::create_dir_all(APART)?;
    let [out, err] = PRINTED.map(Path::new).map(File::create);
    command.current_dir(APART).stdin(Stdio::null()).stdout(out?).stderr(err?);
    Ok(())
}

fn wait(child: &mut Child, limit: Instant, hotplug: &mut Hotplug) -> End {
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return ended(status);
        }
        if Instant::now() > limit {
            // SAFETY: a system call; the group is the child's own, and the child has not been
            // waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.wait();
            return End::TimeLimit;
        }
        hotplug.turn();
        thread::sleep(POLL);
    }
}

fn ended(status: ExitStatus) -> End {
    status.code().map_or_else(|| End::Signal(status.signal().unwrap_or(0)), End::Exit)
}

/// Takes all CPUs but the first offline and online again.
struct Hotplug {
    switches: Vec<PathBuf>,
    turns: usize,
    next: Instant,
    offline: usize,
}

impl Hotplug {
    fn new(wanted: bool) -> Self {
        let switches = (1..)
            .map(|cpu| PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online")))
            .take_while(|switch| wanted && switch.exists())
            .collect();
        Self { switches, turns: 0, next: Instant::now(), offline: 0 }
    }

    /// Takes one more CPU offline until only the first is left, then brings them back one by one.
    fn turn(&mut self) {
        if self.switches.is_empty() || Instant::now() < self.next {
            return;
        }
        let count = self.switches.len();
        let online = self.turns / count % 2 == 1;
        match fs::write(&self.switches[self.turns % count], if online { "1" } else { "0" }) {
            Ok(()) => self.offline += !online as usize,
            Err(error) => {
                println!("cannot switch {:?}: {error}", self.switches[self.turns % count])
            }
        }
        self.turns += 1;
        self.next = Instant::now() + BETWEEN_HOTPLUGS;
    }

    /// Brings all CPUs back. Returns how many times one went offline.
    fn finish(self) -> usize {
        for switch in &self.switches {
            if fs::read_to_string(switch).is_ok_and(|state| state.trim() == "0") {
                fs::write(switch, "1").expect("a CPU that went can come back");
            }
        }
        self.offline
    }
}
