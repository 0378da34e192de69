//! Lists the allocators to compare with, builds or finds each, and prepares its preloading.

pub mod debian;
pub mod machine;
mod turns;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use Source::{Crate, Debian, Libc};
pub use turns::turns;

pub struct Peer {
    pub name: &'static str,
    source: Source,
    /// Environment that the peer needs.
    pub env: &'static [(&'static str, &'static str)],
}

enum Source {
    /// The system's own, without preloading.
    Libc,
    /// A package of this workspace, `peer-NAME`, that wraps this crate.
    Crate(&'static str),
    /// A Debian package and the library in it.
    Debian { package: &'static str, file: &'static str },
}

const fn peer(name: &'static str, source: Source) -> Peer {
    Peer { name, source, env: &[] }
}

pub const PEERS: &[Peer] = &[
    peer("glibc", Libc),
    peer("mimalloc2", Crate("libmimalloc-sys")),
    peer("mimalloc3", Crate("libmimalloc-sys")),
    peer("jemalloc", Crate("tikv-jemalloc-sys")),
    peer("snmalloc", Crate("snmalloc-sys")),
    peer("rpmalloc", Crate("rpmalloc-sys")),
    Peer {
        // Its per-CPU caches need the thread's rseq area, which glibc would register first.
        env: &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
        ..peer("tcmalloc", Crate("libtcmalloc-sys"))
    },
    peer(
        "gperftools",
        Debian { package: "libtcmalloc-minimal4", file: "libtcmalloc_minimal.so.4" },
    ),
    peer("tbbmalloc", Debian { package: "libtbbmalloc2", file: "libtbbmalloc_proxy.so.2" }),
    peer("jemalloc-debian", Debian { package: "libjemalloc2", file: "libjemalloc.so.2" }),
    peer(
        "scudo",
        Debian { package: "libclang-rt-19-dev", file: "libclang_rt.scudo_standalone-x86_64.so" },
    ),
];

/// Builds that detect misuse, for `cargo xtask misuse`. The benchmarks leave them out unless they
/// are named.
pub const GUARDED: &[Peer] = &[
    peer("mimalloc-secure", Crate("libmimalloc-sys")),
    peer("mimalloc-debian", Debian { package: "libmimalloc2.0", file: "libmimalloc.so.2.0" }),
    peer(
        "gperftools-debug",
        Debian { package: "libtcmalloc-minimal4", file: "libtcmalloc_minimal_debug.so.4" },
    ),
];

/// An allocator that can be measured.
pub struct Ready {
    pub name: String,
    /// The library to preload; None for the C library's allocator.
    pub library: Option<PathBuf>,
    pub env: &'static [(&'static str, &'static str)],
    /// Its source and version.
    pub origin: String,
}

#[derive(clap::Args)]
pub struct Options {
    /// Peers to set up (comma-separated; default: all)
    #[arg(long, value_delimiter = ',', value_parser = parse)]
    pub peers: Vec<&'static Peer>,
}

pub fn parse(name: &str) -> Result<&'static Peer> {
    let all = || PEERS.iter().chain(GUARDED);
    let names = || all().map(|peer| peer.name).collect::<Vec<_>>().join(", ");
    let found = all().find(|peer| peer.name == name);
    found.with_context(|| format!("no such peer; there are: {}", names()))
}

/// Returns the named peers, or all.
pub fn select(named: &[&'static Peer]) -> Vec<&'static Peer> {
    if named.is_empty() { PEERS.iter().collect() } else { named.to_vec() }
}

/// `micro setup`: installs Debian's peers and builds the others.
pub fn setup(options: &Options) {
    for peer in select(&options.peers) {
        match peer.set_up() {
            Ok(ready) => println!("{}: ready, {}", peer.name, ready.origin),
            Err(error) => println!("{}: MISSING, {error:#}", peer.name),
        }
    }
}

impl Peer {
    /// Like `prepare`, but a Debian package that is missing is installed.
    pub fn set_up(&self) -> Result<Ready> {
        if let Debian { package, .. } = self.source {
            debian::install(&[package])?;
        }
        self.prepare()
    }

    /// Builds the peer if it is not built yet, and finds its library.
    pub fn prepare(&self) -> Result<Ready> {
        let (library, origin) = match self.source {
            Libc => (None, format!("the system's {}", libc_version())),
            Crate(of) => {
                let program = env::current_exe().context("finding this program")?;
                let library = build(self.name, target_of(&program)?)?;
                (Some(library), format!("crate {of} {}", locked_version(of)?))
            }
            Debian { package, file } => {
                (Some(debian::file(package, file)?), debian::version(package)?)
            }
        };
        Ok(Ready { name: self.name.into(), library, env: self.env, origin })
    }
}

/// Returns the build directory of a program.
pub fn target_of(program: &Path) -> Result<&Path> {
    program.ancestors().nth(2).context("finding the build directory")
}

/// Builds `peer-NAME` in `target`. Returns its library.
pub fn build(name: &str, target: &Path) -> Result<PathBuf> {
    let package = format!("peer-{name}");
    let library = target.join("release").join(format!("lib{}.so", package.replace('-', "_")));
    if !library.exists() {
        eprintln!("{name}: building {package}, which can take minutes");
    }
    let output = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--release", "--locked", "--package", &package, "--target-dir"])
        .arg(target)
        .current_dir(workspace())
        .output()
        .context("running cargo")?;
    if !output.status.success() {
        let log = target.join(format!("{package}.log"));
        std::fs::write(&log, &output.stderr).with_context(|| log.display().to_string())?;
        let messages = String::from_utf8_lossy(&output.stderr);
        let first = messages.lines().find(|line| line.starts_with("error")).unwrap_or_default();
        bail!("does not build ({first}); the log is {}", log.display());
    }
    Ok(library)
}

/// Returns the directory of the benchmarks' workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in its workspace")
}

fn locked_version(name: &str) -> Result<String> {
    let path = workspace().join("Cargo.lock");
    let lock = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (_, rest) =
        lock.split_once(&format!("name = \"{name}\"\nversion = \"")).context("version")?;
    Ok(rest.split('"').next().unwrap_or_default().into())
}

/// Returns for example "glibc 2.36".
pub fn libc_version() -> String {
    // SAFETY: the function returns a static string that ends in zero.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// Asks the allocator of this process for its version, if it exports `peer_version`: a number like
/// 20302 for 2.3.2.
pub fn own_version() -> Option<String> {
    // SAFETY: only the peers of this workspace export this name, as a function of this type; null
    // becomes None.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"peer_version".as_ptr());
        let function: Option<extern "C" fn() -> libc::c_int> = std::mem::transmute(symbol);
        let number = function?();
        Some(format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100))
    }
}

/// Returns the trimmed output of a program.
pub fn command_output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().context(program.to_string())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}
