//! Makes the file system of one virtual machine, boots it, and reads its console.

use super::build::Programs;
use super::console::Console;
use super::fetch::System;
use super::guest_paths::{LIBRARY, TESTS};
use super::initramfs::Initramfs;
use super::target::Arch;
use anyhow::{Context as _, Result};
use clap::value_parser;
use ebbmalloc_guest::{JOBS, Job};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MEMORY_MIB: usize = 2 << 10;
/// The same with `--all`, whose programs lie in memory.
const ALL_MEMORY_MIB: usize = 6 << 10;

/// Machines with interrupt controllers of 8 bits have at most this number of CPUs.
const FEW_CPUS: u16 = 255;
/// Arguments of qemu for more on amd64: the kernel uses them if interrupts are remapped.
const MANY_CPUS: [&str; 4] =
    ["-machine", "kernel-irqchip=split", "-device", "intel-iommu,intremap=on,eim=on"];
/// The kernel's arguments for them. Without, it measures the time of a loop on each CPU, for long.
const MANY_CPUS_KERNEL: &str = "lpj=1000000 tsc=reliable";

/// The CPUs of a virtual machine.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Cpus {
    /// Virtual CPUs; where these are more than this machine has, threads seldom run at the same
    /// moment; 256 need amd64, and KVM or qemu 9
    #[arg(long, default_value_t = 4, value_name = "N")]
    #[arg(value_parser = value_parser!(u16).range(1..=256))]
    cpus: u16,
    /// NUMA nodes that the virtual CPUs and the memory are divided among
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = value_parser!(u16).range(1..=8))]
    nodes: u16,
}

impl Cpus {
    /// Arguments of qemu.
    fn arguments(self, memory_mib: usize) -> Vec<String> {
        let mut arguments = vec!["-smp".into(), self.cpus.to_string()];
        arguments.extend(["-m".into(), format!("{memory_mib}M")]);
        let (all, nodes) = (self.cpus, self.nodes.min(self.cpus));
        for node in (0..nodes).filter(|_| nodes > 1) {
            let size = memory_mib / usize::from(nodes);
            let (from, to) = (all * node / nodes, all * (node + 1) / nodes - 1);
            let memory = format!("memory-backend-ram,id=memory{node},size={size}M");
            let cpus = format!("node,nodeid={node},memdev=memory{node},cpus={from}-{to}");
            arguments.extend(["-object".into(), memory, "-numa".into(), cpus]);
        }
        arguments
    }
}

/// Executes the guest's instructions.
#[derive(Clone, Copy, PartialEq, Debug, clap::ValueEnum)]
pub enum Accelerator {
    Kvm,
    /// Translation, with one thread for each virtual CPU.
    Tcg,
}

/// Returns the file system of a machine, its jobs included.
pub fn initramfs(
    arch: &Arch,
    system: &System,
    programs: &Programs,
    jobs: &[Job],
) -> Result<Vec<u8>> {
    let mut archive = Initramfs::new();
    archive.copy("init", &programs.init)?;
    archive.copy(arch.loader, &system.loader)?;
    for library in &system.libraries {
        let name = library.file_name().context("no file name")?.to_string_lossy();
        archive.copy(&format!("lib/{name}"), library)?;
    }
    archive.copy(LIBRARY.trim_start_matches('/'), &programs.library)?;
    for (name, file) in &programs.files {
        archive.copy(&format!("{}/{name}", TESTS.trim_start_matches('/')), file)?;
    }
    for file in &programs.in_place {
        archive.copy(&file.display().to_string()[1..], file)?;
    }
    if let Some(root) = &system.root {
        archive.tree(root, "usr")?;
        archive.link("bin", "usr/bin");
        archive.add("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n");
    }
    let lines: String = jobs.iter().map(|job| job.to_line() + "\n").collect();
    archive.add(JOBS.trim_start_matches('/'), lines.as_bytes());
    Ok(archive.finish())
}

/// Boots the machine and reads its console until it turns itself off, or is killed at its limit.
/// `log` gets everything that it printed; `news` is called after each line.
pub fn boot(
    arch: &Arch,
    (accelerator, cpus): (Accelerator, Cpus),
    system: &System,
    initramfs: &Path,
    limit: Duration,
    log: &Path,
    mut news: impl FnMut(&mut Console, &str),
) -> Result<Console> {
    let seconds = limit.as_secs().to_string();
    let many = cpus.cpus > FEW_CPUS && arch.name == "amd64";
    let mut command = Command::new("timeout");
    command
        // In our own process group, so that an interrupt from the terminal ends it too.
        .args(["--foreground", "--kill-after=5", &seconds, arch.qemu])
        .args(arch.machine)
        .args(MANY_CPUS.iter().filter(|_| many))
        .args(match (accelerator, arch.name) {
            (Accelerator::Kvm, _) => ["-accel", "kvm", "-cpu", "host"],
            (Accelerator::Tcg, "arm64") => ["-accel", "tcg,thread=multi", "-cpu", "cortex-a76"],
            (Accelerator::Tcg, _) => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        })
        .args(cpus.arguments(match system.root {
            Some(_) => ALL_MEMORY_MIB,
            None => MEMORY_MIB,
        }))
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-net", "none"])
        .args(arch.firmware.filter(|_| system.efi).iter().flat_map(|(_, file)| ["-bios", file]))
        .arg("-kernel")
        .arg(&system.kernel)
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        .arg(format!(
            "{} {} loglevel=4 panic=-1",
            arch.arguments,
            if many { MANY_CPUS_KERNEL } else { "" }
        ))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(log.with_extension("qemu"))?);
    // SAFETY: `prctl` is a plain system call, allowed between fork and exec. `timeout` passes the
    // signal on.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    let mut child = command.spawn().context("cannot start qemu")?;
    let mut log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut console = Console::default();
    let mut reader = BufReader::new(child.stdout.take().context("no output")?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        log.write_all(&line)?;
        news(&mut console, &String::from_utf8_lossy(&line));
        line.clear();
    }
    child.wait()?;
    Ok(console)
}

/// Returns whether KVM can run a kernel of `arch` here. It boots one, since KVM may exist and not
/// work.
pub fn kvm_works(arch: &Arch, system: &System, programs: &Programs, dir: &Path) -> Result<bool> {
    let same = cfg!(target_arch = "x86_64") && arch.name == "amd64"
        || cfg!(target_arch = "aarch64") && arch.name == "arm64";
    if !same || File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(false);
    }
    let initrd = dir.join("kvm.initramfs");
    fs::write(&initrd, initramfs(arch, system, programs, &[])?)?;
    let (limit, log) = (Duration::from_secs(20), dir.join("kvm.log"));
    let news = |console: &mut Console, line: &str| {
        console.line(line);
    };
    let cpus = Cpus { cpus: 1, nodes: 1 };
    let console = boot(arch, (Accelerator::Kvm, cpus), system, &initrd, limit, &log, news)?;
    Ok(console.done)
}
