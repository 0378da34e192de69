//! `cargo xtask targets`: checks that the crate builds for many targets, and runs its tests
//! `anywhere` and `process` on those for which Debian has an emulator.

use crate::cargo;
use crate::packages;
use crate::process::{self, last_lines};
use crate::tally::Tally;
use crate::workspace;
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
const TEST: [&str; 8] = [
    "--package",
    "ebbmalloc",
    "--features",
    "allocator-api2,android,freebsd,macos",
    "--test",
    "anywhere",
    "--test",
    "process",
];

/// Windows, where the engine runs, and the most different targets where the system's allocator
/// serves; the step `crate` checks them.
pub const QUICK: [&str; 5] = [
    "i686-unknown-linux-gnu",
    "x86_64-pc-windows-gnu",
    "aarch64-apple-darwin",
    "wasm32-unknown-unknown",
    "s390x-unknown-linux-gnu",
];

/// Further targets for which Rust brings the standard library.
const OTHERS: [&str; 33] = [
    "aarch64-apple-ios",
    "aarch64-linux-android",
    "aarch64-pc-windows-msvc",
    "aarch64-unknown-fuchsia",
    "aarch64-unknown-linux-gnu",
    "aarch64-unknown-linux-musl",
    "aarch64-unknown-linux-ohos",
    "arm-unknown-linux-gnueabi",
    "armv7-linux-androideabi",
    "armv7-unknown-linux-gnueabihf",
    "i586-unknown-linux-gnu",
    "i686-pc-windows-msvc",
    "loongarch64-unknown-linux-gnu",
    "powerpc-unknown-linux-gnu",
    "powerpc64-unknown-linux-gnu",
    "powerpc64le-unknown-linux-gnu",
    "riscv64gc-unknown-linux-gnu",
    "sparc64-unknown-linux-gnu",
    "sparcv9-sun-solaris",
    "wasm32-unknown-emscripten",
    "wasm32-wasip1",
    "wasm32-wasip2",
    "x86_64-apple-darwin",
    "x86_64-fortanix-unknown-sgx",
    "x86_64-linux-android",
    "x86_64-pc-solaris",
    "x86_64-pc-windows-msvc",
    "x86_64-unknown-freebsd",
    "x86_64-unknown-illumos",
    "x86_64-unknown-linux-gnux32",
    "x86_64-unknown-linux-musl",
    "x86_64-unknown-netbsd",
    "x86_64-unknown-redox",
];

const WINE: &str = "wine";

/// A target whose programs run here.
struct Runner {
    target: &'static str,
    /// Empty where Rust brings it.
    linker: &'static str,
    command: &'static str,
    packages: &'static [&'static str],
}

const RUNNERS: [Runner; 8] = [
    // The processor runs these. Under qemu 7.2 a program of Rust's that starts a thread hangs.
    Runner {
        target: "i686-unknown-linux-gnu",
        linker: "i686-linux-gnu-gcc",
        command: "/usr/i686-linux-gnu/lib/ld-linux.so.2 --library-path /usr/i686-linux-gnu/lib",
        packages: &["gcc-i686-linux-gnu", "libc6-dev-i386-cross"],
    },
    Runner {
        target: "armv7-unknown-linux-gnueabihf",
        linker: "arm-linux-gnueabihf-gcc",
        command: "qemu-arm -L /usr/arm-linux-gnueabihf",
        packages: &["gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross", "qemu-user"],
    },
    Runner {
        target: "s390x-unknown-linux-gnu",
        linker: "s390x-linux-gnu-gcc",
        command: "qemu-s390x -L /usr/s390x-linux-gnu",
        packages: &["gcc-s390x-linux-gnu", "libc6-dev-s390x-cross", "qemu-user"],
    },
    Runner {
        target: "powerpc-unknown-linux-gnu",
        linker: "powerpc-linux-gnu-gcc",
        command: "qemu-ppc -L /usr/powerpc-linux-gnu",
        packages: &["gcc-powerpc-linux-gnu", "libc6-dev-powerpc-cross", "qemu-user"],
    },
    Runner {
        target: "powerpc64-unknown-linux-gnu",
        linker: "powerpc64-linux-gnu-gcc",
        command: "qemu-ppc64 -L /usr/powerpc64-linux-gnu",
        packages: &["gcc-powerpc64-linux-gnu", "libc6-dev-ppc64-cross", "qemu-user"],
    },
    // The engine runs here.
    Runner {
        target: "riscv64gc-unknown-linux-gnu",
        linker: "riscv64-linux-gnu-gcc",
        command: "qemu-riscv64 -L /usr/riscv64-linux-gnu",
        packages: &["gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross", "qemu-user"],
    },
    Runner {
        target: "wasm32-wasip1",
        linker: "",
        // From the folder of the crate, where cargo runs tests.
        command: "node --no-warnings ../../tests/crate/wasi.mjs",
        packages: &["nodejs"],
    },
    Runner {
        target: "x86_64-pc-windows-gnu",
        linker: "x86_64-w64-mingw32-gcc",
        command: WINE,
        packages: &["gcc-mingw-w64-x86-64", "wine64", "wine"],
    },
];

/// Returns whether every target passed.
pub fn run() -> Result<bool> {
    let root = workspace::root()?;
    let target = workspace::target(&root).join("targets");
    fs::create_dir_all(&target)?;
    let mut tally = Tally::default();
    for name in QUICK.iter().chain(&OTHERS) {
        let title = format!("check {name}");
        match cargo::add_target(name) {
            Ok(()) => tally.count(&title, check(&root, &target, name)),
            Err(why) => tally.skip(&title, format!("{why:#}")),
        }
    }
    let wanted: BTreeSet<String> =
        RUNNERS.iter().flat_map(|runner| runner.packages).map(|name| name.to_string()).collect();
    packages::install(&wanted);
    for runner in &RUNNERS {
        tally += runner.run(&root, &target)?;
    }
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// Checks the library, and a program that uses all of it, without a warning.
fn check(root: &Path, target: &Path, name: &str) -> Result<()> {
    let mut check = cargo::cargo(root);
    check.args(["check", "--lib", "--target", name, "--target-dir"]).arg(target).args(TEST);
    let run = process::run(check.env("RUSTFLAGS", "-D warnings"), LIMIT, &target.join(name), None)?;
    ensure!(run.success(), "{}\n{}", run.describe(), last_lines(&run.stdout, 12));
    println!("  {name} builds");
    Ok(())
}

impl Runner {
    fn run(&self, root: &Path, target: &Path) -> Result<Tally> {
        let mut tally = Tally::default();
        let title = format!("run {}", self.target);
        let names: Vec<String> = self.packages.iter().map(|name| name.to_string()).collect();
        let there = cargo::add_target(self.target).map_err(|why| format!("{why:#}"));
        let there = there.and_then(|()| match packages::missing(&names) {
            Some(package) => Err(format!("package {package} is not installed")),
            None => Ok(()),
        });
        if let Err(why) = there {
            tally.skip(&title, why);
            return Ok(tally);
        }
        if self.command == WINE {
            add_prng(self.linker, target, self.target)?;
        }
        let variable = self.target.to_uppercase().replace('-', "_");
        let mut test = cargo::cargo(root);
        test.args(["test", "--target", self.target, "--target-dir"]).arg(target).args(TEST);
        test.env(format!("CARGO_TARGET_{variable}_RUNNER"), self.command);
        if !self.linker.is_empty() {
            test.env(format!("CARGO_TARGET_{variable}_LINKER"), self.linker);
        }
        cargo::test(&title, &mut test)
    }
}

/// Makes a library that Rust's programs need on Windows and Wine has only since 9.0, where it looks
/// first: beside the tests.
fn add_prng(compiler: &str, target: &Path, name: &str) -> Result<()> {
    let folder = target.join(name).join("debug/deps");
    fs::create_dir_all(&folder)?;
    let mut compile = Command::new(compiler);
    compile.args(["-shared", "tests/crate/bcryptprimitives.c", "-ladvapi32", "-o"]);
    compile.arg(folder.join("bcryptprimitives.dll")).current_dir(workspace::root()?);
    let run = process::run(&mut compile, LIMIT, &folder.join("bcryptprimitives"), None)?;
    ensure!(run.success(), "{}", run.describe());
    Ok(())
}
