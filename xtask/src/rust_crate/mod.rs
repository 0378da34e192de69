//! Step `crate`: tests what users of the Rust crate get, in the form in which they get it.
//! They see the package as crates.io would have it, unpacked elsewhere. It is tested in programs,
//! for each target, and where the system's allocator serves.

mod programs;

use crate::cargo;
use crate::context::Context;
use crate::linking;
use crate::on_disk;
use crate::process::{self, Finished, last_lines};
use crate::tally::Tally;
use crate::targets;
use anyhow::{Context as _, Result, bail, ensure};
use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const LIMIT: Duration = Duration::from_secs(300);
const FEATURES: [&str; 2] = ["--features", "allocator-api2"];

/// The targets on which the engine is tested.
const TARGETS: [&str; 4] = [
    "x86_64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-gnu",
    "aarch64-unknown-linux-musl",
];

/// Systems whose engine a feature switches on, and the features.
const SYSTEMS: [&str; 3] =
    ["aarch64-apple-darwin", "x86_64-unknown-freebsd", "aarch64-linux-android"];
const ALL_SYSTEMS: [&str; 2] = ["--features", "allocator-api2,android,freebsd,macos"];
/// Builds that engine for Linux.
const POSIX: &str = "--cfg ebbmalloc_posix";

/// Makes the crate forward to the system's allocator where the engine would run.
const FORWARD: &str = "--cfg ebbmalloc_forward";

/// A target without a system's allocator.
const BARE: &str = "thumbv7em-none-eabi";

/// The README's two lines, before the program that `cargo new` writes.
const HELLO: &str = r#"#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;

fn main() {
    println!("Hello, world!");
}
"#;

/// Maximum in KiB by which a program that allocates grows on disk, stripped, with cargo's release
/// profile: a tenth above the last measurement, on x86-64 (docs/extensions.md). `GROWTH_LEAN` is
/// for a program without the default features.
const GROWTH: u64 = 458;
const GROWTH_LEAN: u64 = 214;
/// Checks that run only with `--long`: the others build the same code in other ways.
const LONG: [&str; 3] = ["without stats", "without inline", "ripgrep"];
const LEAN: &str = ", default-features = false";
const NOT_CAREFUL: &str = ", default-features = false, features = [\"inline\", \"stats\"]";
const NOT_INLINE: &str = ", default-features = false, features = [\"careful\", \"stats\"]";
const NOT_STATS: &str = ", default-features = false, features = [\"careful\", \"inline\"]";

/// A program that allocates.
const ALLOCATES: &str =
    "fn main() {\n    println!(\"{:?}\", std::env::args().collect::<Vec<_>>());\n}\n";

/// Returns the same program on ebbmalloc.
fn allocating() -> String {
    format!("{}{ALLOCATES}", HELLO.split("fn main").next().unwrap_or_default())
}

pub fn run(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    if !context.library.is_ours() {
        tally.skip("crate", "it is ebbmalloc's own");
        return Ok(tally);
    }
    let user = User::new(context)?;
    let mut check = |name: &str, work: &dyn Fn() -> Result<Outcome>| {
        let title = format!("crate {name}");
        if !title.contains(&context.filter) {
            return;
        }
        if LONG.contains(&name) && !context.long {
            return tally.skip(&title, "takes half a minute; with --long");
        }
        let start = Instant::now();
        match work() {
            Ok(Outcome::Passed) => tally.pass(),
            Ok(Outcome::Skipped(why)) => tally.skip(&title, why),
            Err(error) => tally.fail(&title, format!("{error:#}")),
        }
        println!("  {title}: {:.1} s", start.elapsed().as_secs_f64());
    };
    check("package", &|| user.packaged());
    check("hello", &|| user.hello());
    check("size", &|| user.grows_by("size", "", GROWTH));
    check("size without default features", &|| user.grows_by("lean", LEAN, GROWTH_LEAN));
    check("64 copies", &|| user.copies(context, 64));
    check("without careful", &|| {
        let variables = ["EBB_CHECK", "EBB_HARDEN", "EBB_SAMPLE"];
        user.ignores("careless", NOT_CAREFUL, "careful", &variables)
    });
    check("without stats", &|| {
        user.ignores("reticent", NOT_STATS, "stats", &["EBB_STATS", "EBB_EXPLAIN"])
    });
    check("without inline", &|| user.without_inline());
    check("containers", &|| user.containers(context));
    check("containers of the standard library", &|| user.std_containers(context));
    check("nightly containers", &|| user.nightly_containers(context));
    check("wrong use", &|| user.stops(context));
    check("ripgrep", &|| user.ripgrep());
    for target in TARGETS {
        check(target, &|| user.needs_no_c_compiler(target));
    }
    for target in targets::QUICK {
        check(target, &|| user.forwards(target));
    }
    check("forward", &|| user.forwards_here(context));
    for target in SYSTEMS {
        check(&format!("engine on {target}"), &|| user.runs_if_asked(target));
    }
    check("posix", &|| user.posix_here(context));
    check(BARE, &|| user.refuses(BARE));
    check("oldest Rust", &|| user.builds_with_the_oldest_rust());
    check("doc", &|| user.doc());
    if "crate tests".contains(&context.filter) {
        if context.long {
            let mut tests = user.cargo(&user.package, "test");
            tally += cargo::test("crate tests", tests.args(FEATURES))?;
        } else {
            tally.skip("crate tests", "the step `unit` has them; with --long");
        }
    }
    Ok(tally)
}

enum Outcome {
    Passed,
    Skipped(String),
}

/// A user who has the unpacked package.
struct User {
    dir: PathBuf,
    package: PathBuf,
    /// Target directory of all builds.
    target: PathBuf,
}

impl User {
    fn new(context: &Context) -> Result<User> {
        let dir = context.work.join("crate");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        let name = format!("ebbmalloc-{VERSION}");
        let user = User { package: dir.join(&name), target: context.target.join("crate"), dir };

        let packing = |network: &[&str]| {
            let mut command = user.cargo(&context.root, "package");
            command.args(["--package", "ebbmalloc", "--allow-dirty", "--no-verify"]).args(network);
            user.run("pack", &mut command)
        };
        packing(&["--offline"]).or_else(|_| packing(&[]))?;
        let archive = user.target.join("package").join(&name).with_added_extension("crate");
        let mut tar = Command::new("tar");
        // The archive's files are years old, and cargo rebuilds what is newer than its last build.
        tar.arg("--touch").arg("-xzf").arg(archive).current_dir(&user.dir);
        user.run("unpack", &mut tar)?;
        // A workspace of its own keeps cargo from taking it for a part of the repository around it.
        fs::write(
            user.dir.join("Cargo.toml"),
            format!("[workspace]\nresolver = \"3\"\nmembers = [\"{name}\"]\n"),
        )?;
        user.lock(&user.dir)?;
        Ok(user)
    }

    /// Uses the versions of the package, so that these need no network.
    fn lock(&self, project: &Path) -> Result<()> {
        fs::copy(self.package.join("Cargo.lock"), project.join("Cargo.lock"))?;
        Ok(())
    }

    fn cargo(&self, dir: &Path, command: &str) -> Command {
        let mut cargo = cargo::cargo(dir);
        cargo.arg(command).env("CARGO_TARGET_DIR", &self.target);
        // Without debug information they build in half the time.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "0");
        cargo
    }

    fn try_run(&self, log: &str, command: &mut Command) -> Result<Finished> {
        process::run(command, LIMIT, &self.dir.join(log), None)
    }

    fn run(&self, log: &str, command: &mut Command) -> Result<Finished> {
        let run = self.try_run(log, command)?;
        ensure!(run.success(), "{log}: {}\n{}", run.describe(), last_lines(&run.stdout, 12));
        Ok(run)
    }

    /// Makes a new program with these dependencies.
    fn program(&self, name: &str, dependencies: &str, main: &str) -> Result<PathBuf> {
        let project = self.dir.join(name);
        fs::create_dir_all(project.join("src"))?;
        let manifest = format!(
            "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n{dependencies}\n[workspace]\n"
        );
        fs::write(project.join("Cargo.toml"), manifest)?;
        fs::write(project.join("src/main.rs"), main)?;
        self.lock(&project)?;
        Ok(project)
    }

    /// Checks that the package has the usual files, and no build script.
    fn packaged(&self) -> Result<Outcome> {
        for file in ["README.md", "LICENSE", "src/lib.rs", "examples/words.rs"] {
            ensure!(self.package.join(file).is_file(), "{file} is not in the package");
        }
        ensure!(!self.package.join("build.rs").exists(), "users need no build script");
        Ok(Outcome::Passed)
    }

    /// Checks that with these features the README's two lines cost at most `most` KiB on disk.
    fn grows_by(&self, name: &str, features: &str, most: u64) -> Result<Outcome> {
        if !host()?.starts_with("x86_64-unknown-linux-gnu") {
            return Ok(Outcome::Skipped("the bound is that of x86-64".to_string()));
        }
        let with = self.on_disk(name, "", &dependency(features), &allocating())?;
        let without = self.on_disk("without-ebbmalloc", "", "", ALLOCATES)?;
        on_disk::ensure_growth(without, with, most)?;
        Ok(Outcome::Passed)
    }

    /// Checks that a running program can open `copies` copies of a library with the crate, more
    /// than glibc reserves thread-local memory for, and can close one while threads know it.
    fn copies(&self, context: &Context, copies: usize) -> Result<Outcome> {
        let mut build = self.cargo(&self.package, "build");
        build.args(["--release", "--no-default-features", "--example", "extension"]);
        self.run("extension", build.env("RUSTFLAGS", ""))?;
        let library = self.target.join("release/examples/libextension.so");
        let compiled = |name: &str| -> Result<PathBuf> {
            let source = context.root.join("tests/linking").join(name).with_extension("c");
            let program = self.dir.join(name);
            let mut compile = Command::new("cc");
            compile.args(["-O1", "-pthread", "-o"]).args([&program, &source]).arg("-ldl");
            self.run(name, &mut compile)?;
            Ok(program)
        };
        let (opened, reopened) = (compiled("opened")?, compiled("reopened")?);
        for mode in ["auto", "thread"] {
            let mut open = linking::open(&opened, &library, copies, &self.dir.join("copies"))?;
            let run = self.run("copies", open.env("EBB_MODE", mode))?;
            ensure!(run.stdout == format!("{copies} opened\n"), "{}", run.describe());
        }
        for mode in ["auto", "thread"] {
            let mut open = Command::new(&reopened);
            let run = self.run("reopened", open.arg(&library).env("EBB_MODE", mode))?;
            ensure!(run.stdout == "20 times\n", "{}", run.describe());
        }
        Ok(Outcome::Passed)
    }

    /// Checks that with link-time optimization a program is smaller without copies of the fast
    /// paths.
    fn without_inline(&self) -> Result<Outcome> {
        let lto = "lto = true\ncodegen-units = 1\n";
        let bytes = |name, features| self.on_disk(name, lto, &dependency(features), &allocating());
        let (copied, called) = (bytes("copied", "")?, bytes("called", NOT_INLINE)?);
        ensure!(called < copied, "{called} bytes without copies, {copied} with them");
        Ok(Outcome::Passed)
    }

    /// Returns the size in bytes of a stripped program, in cargo's release profile with these lines
    /// added.
    fn on_disk(&self, name: &str, profile: &str, dependencies: &str, main: &str) -> Result<u64> {
        let head = format!("[profile.release]\nstrip = true\n{profile}\n");
        let project = self.program(name, &format!("{head}{dependencies}"), main)?;
        // The user's compiler does not get this repository's flags.
        let mut build = self.cargo(&project, "build");
        self.run(name, build.arg("--release").env("RUSTFLAGS", ""))?;
        Ok(fs::metadata(self.target.join("release").join(name))?.len())
    }

    /// Checks that a program without a feature warns about variables that need it, and runs.
    fn ignores(
        &self,
        name: &str,
        features: &str,
        feature: &str,
        variables: &[&str],
    ) -> Result<Outcome> {
        let project = self.program(name, &dependency(features), HELLO)?;
        self.run(name, &mut self.cargo(&project, "build"))?;
        for &variable in variables {
            let mut program = Command::new(self.target.join("debug").join(name));
            let run = self.run(name, program.env(variable, "1"))?;
            ensure!(run.stdout == "Hello, world!\n", "it printed {:?}", run.stdout);
            let why =
                format!("are ignored: build the program with ebbmalloc's feature `{feature}` (");
            ensure!(run.stderr.contains(&why), "{variable}: {}", run.describe());
            ensure!(run.stderr.lines().count() == 1, "{variable}: {}", run.describe());
        }
        Ok(Outcome::Passed)
    }

    /// Checks that the library needs no C compiler: build scripts, which would call one, run.
    /// That it builds is for the steps of each target.
    fn needs_no_c_compiler(&self, target: &str) -> Result<Outcome> {
        if let Err(why) = cargo::add_target(target) {
            return Ok(Outcome::Skipped(format!("{why:#}")));
        }
        let mut check = self.cargo(&self.package, "check");
        check.args(["--lib", "--target", target]).args(FEATURES).env("PATH", self.path()?);
        for variable in ["CC", "CXX", "HOST_CC", "TARGET_CC"] {
            check.env_remove(variable);
        }
        // Rust itself needs a linker for the build script of libc, which runs on this machine.
        let host = host()?.to_uppercase().replace('-', "_");
        let linker = in_path("cc").context("there is no linker for this machine")?;
        check.env(format!("CARGO_TARGET_{host}_LINKER"), linker);
        self.run(target, &mut check)?;
        Ok(Outcome::Passed)
    }

    /// Returns a PATH with Rust's tools, a linker, and C compilers that fail.
    fn path(&self) -> Result<String> {
        let dir = self.dir.join("bin");
        if !dir.exists() {
            fs::create_dir(&dir)?;
            for name in ["cc", "gcc", "clang", "c++", "g++", "clang++", "make", "cmake"] {
                let tool = dir.join(name);
                fs::write(
                    &tool,
                    "#!/bin/sh\necho \"a C compiler was called: $0 $*\" >&2\nexit 1\n",
                )?;
                fs::set_permissions(tool, fs::Permissions::from_mode(0o755))?;
            }
            symlink(in_path("ld").context("there is no ld")?, dir.join("ld"))?;
        }
        Ok(format!("{}:{}/bin", dir.display(), asked(&["--print", "sysroot"])?))
    }

    /// Checks that a program with the README's two lines builds for a target where the system's
    /// allocator serves.
    fn forwards(&self, target: &str) -> Result<Outcome> {
        if let Err(why) = cargo::add_target(target) {
            return Ok(Outcome::Skipped(format!("{why:#}")));
        }
        let project = self.program("hello", &dependency(""), HELLO)?;
        self.run(target, self.cargo(&project, "check").args(["--target", target]))?;
        Ok(Outcome::Passed)
    }

    /// Tests on this machine the code that forwards to the system's allocator on others.
    fn forwards_here(&self, context: &Context) -> Result<Outcome> {
        let mut test = cargo::cargo(&context.root);
        test.args(["test", "--package", "ebbmalloc", "--test", "anywhere"]).args(FEATURES);
        test.env("CARGO_TARGET_DIR", self.target.with_file_name("forward"));
        self.run("forward", test.env("RUSTFLAGS", FORWARD))?;
        Ok(Outcome::Passed)
    }

    /// Checks that the engine builds for a system where it has to be asked for.
    fn runs_if_asked(&self, target: &str) -> Result<Outcome> {
        if let Err(why) = cargo::add_target(target) {
            return Ok(Outcome::Skipped(format!("{why:#}")));
        }
        let mut check = self.cargo(&self.package, "check");
        self.run(target, check.args(["--lib", "--target", target]).args(ALL_SYSTEMS))?;
        Ok(Outcome::Passed)
    }

    /// Tests on this machine the engine of these systems.
    fn posix_here(&self, context: &Context) -> Result<Outcome> {
        let mut test = cargo::cargo(&context.root);
        test.args(["test", "--package", "ebbmalloc", "--test", "anywhere", "--test", "process"]);
        if context.long {
            test.arg("--lib");
        }
        test.args(FEATURES).env("CARGO_TARGET_DIR", self.target.with_file_name("posix"));
        self.run("posix", test.env("RUSTFLAGS", POSIX))?;
        Ok(Outcome::Passed)
    }

    /// Checks that the package builds with the oldest Rust that its manifest names.
    fn builds_with_the_oldest_rust(&self) -> Result<Outcome> {
        let manifest = fs::read_to_string(self.package.join("Cargo.toml"))?;
        let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""));
        let version = line.context("the manifest names no Rust")?.trim_end_matches('"');
        if let Err(why) = cargo::install_toolchain(version) {
            return Ok(Outcome::Skipped(format!("{why:#}")));
        }
        for features in [&["--no-default-features"][..], &FEATURES] {
            let mut check = Command::new("rustup");
            check.args(["run", version, "cargo", "check", "--lib"]).args(features);
            check.current_dir(&self.package).env("CARGO_TARGET_DIR", self.target.join(version));
            self.run("oldest", &mut check)?;
        }
        Ok(Outcome::Passed)
    }

    /// Checks that on a target without a system's allocator the compiler says so, with few other
    /// errors, and that its advice helps.
    fn refuses(&self, target: &str) -> Result<Outcome> {
        if let Err(why) = cargo::add_target(target) {
            return Ok(Outcome::Skipped(format!("{why:#}")));
        }
        let mut check = self.cargo(&self.package, "check");
        let run = self.try_run(target, check.args(["--lib", "--target", target]))?;
        let message = "error: this target has no system's allocator";
        let told = run.stderr.lines().find(|line| line.starts_with(message));
        ensure!(!run.success() && told.is_some(), "expected `{message}`: {}", run.describe());
        let errors = run.stderr.lines().filter(|line| line.starts_with("error")).count();
        ensure!(errors <= 4, "{errors} errors, among which the one is not seen");

        let condition = told.and_then(advice).context("no way out is told")?;
        let from = format!(
            "[target.'cfg({condition})'.dependencies]\n\
             ebbmalloc = {{ path = \"../ebbmalloc-{VERSION}\" }}\n"
        );
        // Without a standard library, a library alone needs nothing else.
        let project = self.program(&format!("elsewhere-{target}"), &from, HELLO)?;
        fs::rename(project.join("src/main.rs"), project.join("src/lib.rs"))?;
        fs::write(project.join("src/lib.rs"), "#![no_std]\n")?;
        self.run(target, self.cargo(&project, "check").args(["--target", target]))?;
        Ok(Outcome::Passed)
    }

    /// Builds the documentation as docs.rs does.
    fn doc(&self) -> Result<Outcome> {
        let mut doc = self.cargo(&self.package, "doc");
        doc.args(["--no-deps", "--lib"]).args(FEATURES).env("RUSTDOCFLAGS", "-D warnings");
        self.run("doc", &mut doc)?;
        Ok(Outcome::Passed)
    }
}

/// Returns a dependency on the package, with these features.
fn dependency(features: &str) -> String {
    format!("[dependencies]\nebbmalloc = {{ path = \"../ebbmalloc-{VERSION}\"{features} }}\n")
}

/// Returns the condition in `[target.'cfg(CONDITION)'.dependencies]`.
fn advice(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("[target.'cfg(")?;
    Some(rest.split_once(")'.dependencies]")?.0)
}

fn host() -> Result<String> {
    let version = asked(&["-vV"])?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc does not say what it runs on")?.to_string())
}

/// Returns the output of rustc.
fn asked(arguments: &[&str]) -> Result<String> {
    let output = Command::new("rustc").args(arguments).output().context("cannot start rustc")?;
    if !output.status.success() {
        bail!("rustc {arguments:?} failed");
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_string())
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_read_from_the_message() {
        let message = "error: use [target.'cfg(all(a, b = \"c\"))'.dependencies], and go on";
        assert_eq!(advice(message), Some("all(a, b = \"c\")"));
        assert_eq!(advice("error: no"), None);
    }
}
