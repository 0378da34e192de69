//! `cargo xtask kernels`: boots real kernels in virtual machines and tests restartable sequences in
//! each. Console logs stay in `target/kernels`.

mod all;
mod build;
mod console;
mod fetch;
mod guest_paths;
mod initramfs;
mod jobs;
mod machine;
mod report;
mod target;

use crate::packages;
use crate::tally::Tally;
use crate::workspace;
use all::All;
use anyhow::{Context as _, Result, ensure};
use build::Programs;
use ebbmalloc_guest::Job;
use jobs::Planned;
use machine::{Accelerator, Cpus};
use report::Row;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use target::{ARCHS, Arch, KERNELS, Kernel, expected_mode};

/// Time for the start and all jobs.
const BOOT_LIMIT: Duration = Duration::from_secs(40 * 60);
/// The same with `--all`.
const ALL_LIMIT: Duration = Duration::from_secs(8 * 60 * 60);
/// Maximum number of boots of a machine that stops before any job is done: translated by qemu 7.2,
/// Linux 6.12 faults while it patches its own code.
const BOOTS: usize = 10;

#[derive(clap::Args)]
pub struct Args {
    /// Only kernels of these suites, for example `bookworm,sid`, or `trixie-16k` and `resolute-64k`
    /// with large pages
    #[arg(long, value_delimiter = ',', value_name = "SUITES")]
    suite: Vec<String>,
    /// Only these architectures: `amd64`, `arm64`
    #[arg(long, value_delimiter = ',', value_name = "ARCHITECTURES")]
    arch: Vec<String>,
    /// Only jobs with one of these in their name
    #[arg(long, value_delimiter = ',', value_name = "TEXTS")]
    matching: Vec<String>,
    /// Also run all contract and misuse programs, the engine's tests and some real programs: hours
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    cpus: Cpus,
    /// What runs the guest's instructions; without it, KVM where it works
    #[arg(long, value_enum)]
    accelerator: Option<Accelerator>,
    /// Download kernels and C libraries again
    #[arg(long)]
    fetch: bool,
}

/// Settings common to all machines.
struct Context<'a> {
    args: &'a Args,
    root: PathBuf,
    target: PathBuf,
    work: PathBuf,
}

/// Returns whether every test that ran passed.
pub fn run(args: &Args) -> Result<bool> {
    let root = workspace::root()?;
    let target = workspace::target(&root);
    let work = target.join("kernels");
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let context = Context { args, root, target, work };
    let kernels = selected(&KERNELS, &args.suite, |kernel| kernel.name)?;
    let archs = selected(&ARCHS, &args.arch, |arch| arch.name)?;
    packages::install(&archs.iter().flat_map(|arch| needed(arch, args.all)).collect());

    let mut rows = Vec::new();
    for arch in archs {
        let missing = packages::missing(&needed(arch, args.all)).cloned();
        let programs = match missing {
            Some(package) => Err(format!("package {package} is not installed")),
            None => context.build(arch).map_err(|error| format!("{error:#}")),
        };
        let mut accelerator = args.accelerator;
        for kernel in kernels.iter().filter(|kernel| kernel.is_for(arch)) {
            let row = match &programs {
                Ok((programs, all)) => {
                    context.test(kernel, arch, programs, all.as_ref(), &mut accelerator)?
                }
                Err(why) => Row::skipped(kernel, arch, why),
            };
            println!("{}/{}: {}", arch.name, kernel.name, row.tally);
            rows.push(row);
        }
    }
    print!("\n{}", report::table(&rows));
    let mut total = Tally::default();
    rows.iter().for_each(|row| total += row.tally);
    println!("\n{total}");
    Ok(total.failed == 0)
}

impl Context<'_> {
    fn build(&self, arch: &Arch) -> Result<(Programs, Option<All>)> {
        let work = self.work.join(format!("programs-{}", arch.name));
        let mut programs = build::build(&self.root, &self.target, &work, arch, self.args.all)?;
        if !self.args.all {
            return Ok((programs, None));
        }
        let release = programs.library.parent().context("no directory")?;
        let all = All::build(&self.root, &work, release, arch)?;
        programs.in_place = all.files();
        Ok((programs, Some(all)))
    }

    /// Boots one kernel. The first kernel decides on `accelerator` if it is not given.
    fn test(
        &self,
        kernel: &Kernel,
        arch: &Arch,
        programs: &Programs,
        all: Option<&All>,
        accelerator: &mut Option<Accelerator>,
    ) -> Result<Row> {
        let title = format!("{}/{}", arch.name, kernel.name);
        let suffix = if all.is_some() { "-all" } else { "" };
        let dir = self.work.join(format!("{}-{}{suffix}", arch.name, kernel.name));
        if self.args.fetch && dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let system =
            match fetch::system(kernel, arch, &dir, &all.map(All::packages).unwrap_or_default()) {
                Ok(system) => system,
                Err(error) => return Ok(Row::skipped(kernel, arch, &format!("{error:#}"))),
            };
        let accelerator =
            *accelerator.get_or_insert(if machine::kvm_works(arch, &system, programs, &dir)? {
                Accelerator::Kvm
            } else {
                Accelerator::Tcg
            });
        let mode = expected_mode(kernel, arch);
        let mut row = Row::new(kernel, arch, &system.libc, accelerator);
        let modes = all.map(|all| all.modes(kernel));
        let mut plan = jobs::plan(programs, &mode, accelerator);
        if let (Some(all), Some(modes)) = (all, &modes) {
            plan.extend(all.plan(modes, &programs.engine, &mut row.tally)?);
            row.tally += all.tally;
        }
        let texts = &self.args.matching;
        plan.retain(|Planned { job, .. }| {
            texts.is_empty() || texts.iter().any(|text| job.name.contains(text))
        });
        let jobs: Vec<Job> = plan.iter().map(|planned| planned.job.clone()).collect();
        let initramfs = dir.join("initramfs");
        fs::write(&initramfs, machine::initramfs(arch, &system, programs, &jobs)?)?;

        println!("{title}: booting by {accelerator:?}, {} jobs", jobs.len());
        let (start, log) = (Instant::now(), dir.join("console.log"));
        if let Some(why) = &programs.no_musl {
            row.tally.skip(&format!("{title} musl"), why);
        }
        let mut news = |console: &mut console::Console, line: &str| {
            let booting = console.machine.is_none();
            let ended = console.line(line);
            let planned = ended
                .and_then(|ended| plan.iter().position(|planned| planned.job.name == ended.name));
            if let (Some(planned), Some(ended)) = (planned, console.ended.last()) {
                let planned = &plan[planned];
                let seconds = ended.ms as f64 / 1000.0;
                println!("  {title} {}: {seconds:.1} s", ended.name);
                row.count(&title, planned, planned.judge(&console.ended, &mode));
                row.see(ended);
            } else if let (true, Some((release, cpus, rseq_bytes))) = (booting, &console.machine) {
                let seconds = start.elapsed().as_secs_f64();
                println!(
                    "  {title}: {release}, {cpus} CPUs, {rseq_bytes} bytes of rseq, \
                     up in {seconds:.1} s"
                );
                row.release = release.clone();
            }
        };
        let limit = if all.is_some() { ALL_LIMIT } else { BOOT_LIMIT };
        let cpus = self.args.cpus;
        let mut boot = || {
            machine::boot(arch, (accelerator, cpus), &system, &initramfs, limit, &log, &mut news)
        };
        let mut console = boot()?;
        for _ in 1..BOOTS {
            if !console.ended.is_empty() {
                break;
            }
            println!("  {title}: stopped before any job was done, once more: {}", log.display());
            console = boot()?;
        }
        if !console.done {
            let job = console.running().unwrap_or("no job");
            println!("  {title}: stopped while {job} ran: {}", log.display());
        }
        for planned in &plan {
            if console.ended.iter().all(|ended| ended.name != planned.job.name) {
                row.count(&title, planned, planned.judge(&[], &mode));
            }
        }
        row.seconds = start.elapsed().as_secs();
        Ok(row)
    }
}

/// Returns the Debian packages that machines of `arch` need.
fn needed(arch: &Arch, all: bool) -> BTreeSet<String> {
    let firmware = arch.firmware.map(|(package, _)| package);
    let packages = [arch.qemu_package, arch.compiler_package].into_iter().chain(firmware);
    let packages = packages.map(str::to_string);
    // The compiler of C++ is called like that of C.
    packages.chain(all.then(|| arch.compiler_package.replace("gcc", "g++"))).collect()
}

/// Returns the items of `all` that are named, or all if none is.
fn selected<'a, T>(all: &'a [T], names: &[String], name: fn(&T) -> &str) -> Result<Vec<&'a T>> {
    for unknown in names {
        let known: Vec<&str> = all.iter().map(name).collect();
        ensure!(known.contains(&unknown.as_str()), "`{unknown}` is none of {}", known.join(", "));
    }
    let wanted = |item: &&T| names.is_empty() || names.iter().any(|wanted| wanted == name(item));
    Ok(all.iter().filter(wanted).collect())
}
