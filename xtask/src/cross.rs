//! Steps `musl`, `aarch64` and `gvisor`: test the crate on another C library, on another
//! architecture under qemu, and on another kernel. They install what they need: the target by
//! rustup; compilers, qemu and gVisor as packages. Where that fails they are skipped.

use crate::context::Context;
use crate::library::{Library, Mode};
use crate::tally::Tally;
use crate::{c, cargo, linking, packages, process};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const RUN_LIMIT: Duration = Duration::from_secs(60);
const MUSL: &str = "x86_64-unknown-linux-musl";
const ARM: &str = "aarch64-unknown-linux-gnu";
const MODES: [&str; 3] = ["percpu", "thread", "slot"];
/// A Rust program with the crate as its allocator.
const EXAMPLE: [&str; 4] = ["--package", "ebbmalloc", "--example", "words"];
/// Contract programs that test a C library and a kernel most: short-lived threads, and forks.
const PROGRAMS: [&str; 5] =
    ["malloc.c", "stress.c", "thread_exit.c", "thread_storm.c", "fork_threads.c"];
/// Of these, the ones that gVisor and qemu run without `--long`.
const QUICK: [&str; 2] = ["malloc.c", "thread_exit.c"];
const SLOW: &str = "takes half a minute or more in gVisor or under qemu; with --long";
/// A program that ends by a signal, which gVisor reports only as shells do.
const MISUSE: &str = "misuse_double_free.c";

/// Starts programs in gVisor, as the current user, with the file system of the machine.
const GVISOR: [&str; 5] = ["runsc", "--rootless", "--ignore-cgroups", "--network=none", "do"];

/// Starts qemu with 32 GiB of address space, so that tests of limits end soon.
const QEMU: [&str; 5] =
    ["prlimit", "--as=34359738368", "qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"];
/// The engine's tests that run under qemu; the others test the source or tools.
const ENGINE: [&str; 13] = [
    "--package",
    "ebbmalloc",
    "--package",
    "ebbmalloc-testkit",
    "--lib",
    "--test",
    "engine",
    "--test",
    "interrupts",
    "--test",
    "ledger",
    "--test",
    "moving",
];
/// The tests without `--long`: each sequence beside the plain code, and code with instructions of
/// its own.
const LIBRARY: [&str; 3] = ["--package", "ebbmalloc", "--lib"];
/// Fewer cases than elsewhere, as each takes twenty times as long under qemu.
pub const FEW: [(&str, &str); 4] = [
    ("PROPTEST_CASES", "4"),
    ("EBB_FUZZ_SECONDS", "1"),
    ("EBB_TEST_ROUNDS", "20"),
    ("EBB_TEST_STEP", "10"),
];
const NO_RSEQ: &str = "qemu has no restartable sequences";
/// Tests that cannot run there, by a part of their names, and why.
const UNSERVED: [(&str, &str); 9] = [
    ("advice_that_the_kernel_does_not_know", "qemu takes any advice"),
    ("committed_memory_is_not_for_huge_pages", "qemu keeps advice about huge pages to itself"),
    ("words_that_nobody_may_read_are_not_gone", "qemu says that they are"),
    ("percpu", NO_RSEQ),
    ("sequences", NO_RSEQ),
    ("numbers_are_beyond", NO_RSEQ),
    ("trim_empties_caches_though_somebody_is_in_a_round", NO_RSEQ),
    ("all_classes_together_are_bounded", "it takes half a minute there"),
    ("room_moves_to_the_class_that_misses", "it takes half a minute there"),
];

pub fn musl_packages(_: &Context) -> Result<BTreeSet<String>> {
    Ok(BTreeSet::from(["musl-tools".into()]))
}

pub fn arm_packages(_: &Context) -> Result<BTreeSet<String>> {
    Ok(["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"].map(String::from).into())
}

pub fn gvisor_packages(_: &Context) -> Result<BTreeSet<String>> {
    Ok(BTreeSet::from(["runsc".into()]))
}

/// Tests Rust programs, and C programs with the static library or with the shared one preloaded or
/// linked, in each mode.
pub fn musl(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    if cfg!(not(target_arch = "x86_64")) {
        tally.skip("musl", "the target is for x86-64");
        return Ok(tally);
    }
    if let Err(why) = ready(MUSL, musl_packages(context)?) {
        tally.skip("musl", format!("{why:#}"));
        return Ok(tally);
    }
    let target = |dir: &str| context.target.join(dir);
    let fixed = musl_static(context)?;
    let shared = target("musl-shared");
    // A shared object needs the C library's `libgcc_s`. Rust has none for musl, nor does Debian.
    let unwinder = musl_unwinder(context)?;
    let flags = format!("-C target-feature=-crt-static -L native={}", unwinder.display());
    let environment = [
        ("RUSTFLAGS", flags.as_str()),
        ("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER", "musl-gcc"),
    ];
    // Apart: the library's features would keep the extension from being opened.
    let library = ["--package", "ebbmalloc-capi"];
    let extension = ["--package", "ebbmalloc", "--example", "extension"];
    for what in [&library[..], &extension] {
        build(context, Some(MUSL), &shared, what, &environment)?;
    }
    let shared = shared.join(MUSL).join("release");
    tally.count("musl/opened", musl_opened(context, &shared.join("examples/libextension.so")));
    let modes = try_modes("musl", &[], &fixed.join("examples/words"), context, &mut tally)?;
    for (name, build, ways, library) in [
        ("static", "musl-gcc -static", "static", fixed),
        ("shared", "musl-gcc", "preload dynamic", shared),
    ] {
        let context = context.with(Library::Ours(library), &format!("musl-{name}"))?;
        contract(
            &context,
            &[&PROGRAMS[..], &[MISUSE]].concat(),
            (build, ways),
            &modes,
            &mut tally,
        )?;
    }
    Ok(tally)
}

/// Builds the static library for musl. Returns its folder.
pub fn musl_library(context: &Context) -> Result<PathBuf> {
    ensure!(cfg!(target_arch = "x86_64"), "the target is for x86-64");
    cargo::add_target(MUSL)?;
    musl_static(context)
}

/// Builds the static library and a Rust program for musl. Returns their folder.
fn musl_static(context: &Context) -> Result<PathBuf> {
    let folder = context.target.join("musl-static");
    let library = ["--package", "ebbmalloc-capi-static", "--lib"];
    build(context, Some(MUSL), &folder, &[&EXAMPLE[..], &library].concat(), &[])?;
    Ok(folder.join(MUSL).join("release"))
}

/// Makes a folder with a `libgcc_s.so` for musl: an instruction to link the unwinder that Rust
/// brings.
fn musl_unwinder(context: &Context) -> Result<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output()?;
    ensure!(sysroot.status.success(), "rustc names no sysroot");
    let sysroot = String::from_utf8(sysroot.stdout)?;
    let brought = format!("lib/rustlib/{MUSL}/lib/self-contained/libunwind.a");
    // Not in the work directory of a run: cargo rebuilds when the path changes.
    let folder = context.target.join("musl-unwinder");
    fs::create_dir_all(&folder)?;
    let instruction = format!("INPUT({})\n", Path::new(sysroot.trim()).join(brought).display());
    fs::write(folder.join("libgcc_s.so"), instruction)?;
    Ok(folder)
}

/// Tests that a program can open libraries with the crate although musl reserves no thread-local
/// memory for them.
fn musl_opened(context: &Context, library: &Path) -> Result<()> {
    let dir = context.work.join("musl-opened");
    fs::create_dir_all(&dir)?;
    let program = dir.join("opened");
    let mut compile = Command::new("musl-gcc");
    compile.args(["-O1", "-pthread", "-o"]).arg(&program);
    compile.arg(context.root.join("tests/linking/opened.c"));
    let built = process::run(&mut compile, RUN_LIMIT, &dir.join("build"), None)?;
    ensure!(built.success(), "{}", built.describe());
    for mode in ["auto", "thread", "slot"] {
        let mut open = linking::open(&program, library, 10, &dir)?;
        let run = process::run(open.env("EBB_MODE", mode), RUN_LIMIT, &dir.join(mode), None)?;
        ensure!(run.success() && run.stdout == "10 opened\n", "{mode}: {}", run.describe());
    }
    Ok(())
}

/// Tests a Rust program, and C programs with the library preloaded or linked, in each available
/// mode.
pub fn gvisor(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    if let Some(package) = packages::missing(&gvisor_packages(context)?) {
        tally.skip("gvisor", format!("package {package} is not installed"));
        return Ok(tally);
    }
    // gVisor needs user namespaces or the right to trace.
    let mut probe = process::under(&GVISOR, Path::new("true"));
    let run = process::run(&mut probe, RUN_LIMIT, &context.work.join("gvisor"), None)?;
    if !run.success() {
        tally.skip("gvisor", format!("it does not start here: {}", run.describe()));
        return Ok(tally);
    }
    build(context, None, &context.target, &EXAMPLE, &[])?;
    let words = context.target.join("release/examples/words");
    let modes = try_modes("gvisor", &GVISOR, &words, context, &mut tally)?;
    let library = Library::Ours(context.target.join("release"));
    let context = Context { runner: &GVISOR, ..context.with(library, "gvisor-c")? };
    let ways = if context.long {
        "preload static"
    } else {
        tally.skip("gvisor/static", "the library is the same; with --long");
        "preload"
    };
    contract(&context, &PROGRAMS, ("gcc", ways), &modes, &mut tally)?;
    Ok(tally)
}

/// Tests some of the contract programs with one build.
fn contract(
    context: &Context,
    names: &[&str],
    (build, ways): (&str, &str),
    modes: &[Mode],
    tally: &mut Tally,
) -> Result<()> {
    let programs = c::programs(&context.root, &context.filter)?;
    for program in programs.into_iter().filter(|program| names.contains(&program.name())) {
        if !QUICK.contains(&program.name()) && !context.long && !context.runner.is_empty() {
            tally.skip(program.name(), SLOW);
            continue;
        }
        program.built_by(build, ways)?.test(context, modes, tally)?;
    }
    Ok(())
}

/// Runs the library's unit tests, which also cover the code of the restartable sequences, a Rust
/// program, and contract programs. With `--long`, runs all tests of the engine with few cases, and
/// all programs that are in C. qemu has no rseq.
pub fn arm(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    if let Err(why) = ready(ARM, arm_packages(context)?) {
        tally.skip("aarch64", format!("{why:#}"));
        return Ok(tally);
    }
    let environment = [
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &QEMU.join(" ")),
    ];
    let mut command = cargo::cargo(&context.root);
    let target = context.target.join("aarch64");
    command.args(["test", "--no-fail-fast", "--target", ARM, "--target-dir"]).arg(&target);
    let tests = if context.long { &ENGINE[..] } else { &LIBRARY };
    command.args(tests).arg("--").envs(environment).envs(FEW);
    for (test, why) in UNSERVED {
        command.args(["--skip", test]);
        tally.skip(test, why);
    }
    tally += cargo::test("aarch64", &mut command)?;
    if !context.long {
        tally.skip("aarch64/engine", "its tests take minutes under qemu; with --long");
    }
    let libraries = ["--package", "ebbmalloc-capi", "--package", "ebbmalloc-capi-static", "--lib"];
    build(context, Some(ARM), &target, &[&EXAMPLE[..], &libraries].concat(), &environment)?;
    let release = target.join(ARM).join("release");
    let words = release.join("examples/words");
    let modes = try_modes("aarch64", &QEMU, &words, context, &mut tally)?;
    let context = context.with(Library::Ours(release), "aarch64-c")?;
    // `--long` sets `LONG` for programs; what then takes minutes would take hours under qemu.
    let (all, context) =
        (context.long, Context { runner: &QEMU, emulated: true, long: false, ..context });
    let mut programs = Vec::new();
    for program in c::programs(&context.root, &context.filter)? {
        if !(all || PROGRAMS.contains(&program.name()) || program.name() == MISUSE) {
            continue;
        }
        if !(all || QUICK.contains(&program.name()) || program.name() == MISUSE) {
            tally.skip(program.name(), SLOW);
            continue;
        }
        match program.emulated("aarch64-linux-gnu-") {
            Ok(program) => programs.push(program),
            Err((name, why)) => tally.skip(&name, why),
        }
    }
    // The missing mode has been reported already.
    let modes: Vec<Mode> = modes.into_iter().filter(|mode| mode.unavailable.is_none()).collect();
    tally += c::test_each(&programs, &context, &modes);
    Ok(tally)
}

/// Ensures that all that a target needs is installed.
fn ready(target: &str, wanted: BTreeSet<String>) -> Result<()> {
    if let Some(package) = packages::missing(&wanted) {
        anyhow::bail!("package {package} is not installed");
    }
    cargo::add_target(target)
}

/// Builds for a target, or for this machine. A target's build has no link-time optimization, and
/// takes half the time.
fn build(
    context: &Context,
    target: Option<&str>,
    into: &Path,
    what: &[&str],
    environment: &[(&str, &str)],
) -> Result<()> {
    let mut command = cargo::cargo(&context.root);
    command.args(["build", "--release"]).args(what);
    let sooner = ["--config", "profile.release.lto=false"];
    command.args(target.iter().flat_map(|target| ["--target", target].into_iter().chain(sooner)));
    command.arg("--target-dir").arg(into).envs(environment.iter().copied());
    ensure!(command.status()?.success(), "{what:?} does not build for {target:?}");
    Ok(())
}

/// Runs a program that prints statistics in each mode, and once with the default. Modes that are
/// not available are skipped with the reason that the library gives.
fn try_modes(
    step: &str,
    runner: &[&str],
    program: &Path,
    context: &Context,
    tally: &mut Tally,
) -> Result<Vec<Mode>> {
    let mut modes = Vec::new();
    for name in MODES.into_iter().chain(["auto"]) {
        let mut mode = Mode { name, setting: ("EBB_MODE", name), unavailable: None };
        let mut command = process::under(runner, program);
        command.env("EBB_MODE", name).env("EBB_STATS", "1");
        let log = context.work.join(format!("{step}-{name}"));
        let run = process::run(&mut command, RUN_LIMIT, &log, None)?;
        let told =
            run.stderr.lines().find(|line| line.contains(" mode ")).unwrap_or("").to_string();
        let test = format!("{step}/words [{name}]");
        match (run.success(), name) {
            (true, "auto") if !told.is_empty() => {
                println!("  {step}: {told}");
                tally.pass();
            }
            (true, _) if told.contains(&format!(" mode {name} ")) => tally.pass(),
            (true, "percpu") if run.stderr.contains("EBB_MODE=percpu is not possible") => {
                let why = run.stderr.lines().next().unwrap_or("").to_string();
                tally.skip(&test, &why);
                mode.unavailable = Some(why);
            }
            _ => tally.fail(&test, run.describe()),
        }
        modes.push(mode);
    }
    modes.pop();
    Ok(modes)
}
