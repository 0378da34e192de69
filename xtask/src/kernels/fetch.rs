//! Downloads a kernel and its C library from its distribution's mirror.
//! It uses an apt configuration of its own, so nothing of the system's changes, and other suites
//! and architectures are available.

use super::target::{Arch, DEBIAN, Distribution, Kernel, Keys};
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The libraries that programs need beside the loader: the C library's and the compiler's.
const LIBRARIES: [&str; 3] = ["libc.so.6", "libm.so.6", "libgcc_s.so.1"];

/// The unpacked files for one machine.
pub struct System {
    pub kernel: PathBuf,
    /// Whether firmware has to start the kernel.
    pub efi: bool,
    pub loader: PathBuf,
    pub libraries: Vec<PathBuf>,
    /// The files of further packages, if any were asked for.
    pub root: Option<PathBuf>,
    /// Version of the C library's package.
    pub libc: String,
}

/// Downloads and unpacks kernel and libraries into `dir`, unless they are there; and `packages`,
/// with all that they depend on.
pub fn system(
    kernel: &Kernel,
    arch: &Arch,
    dir: &Path,
    packages: &BTreeSet<String>,
) -> Result<System> {
    let (unpacked, version) = (dir.join("unpacked"), dir.join("libc-version"));
    let root = (!packages.is_empty()).then(|| dir.join("root"));
    if !version.exists() {
        println!("{}/{}: fetching the kernel and the C library", arch.name, kernel.name);
        let suites: Vec<&str> = [Some(kernel.suite), kernel.base].into_iter().flatten().collect();
        let keyring = keyring(&kernel.distribution, arch, dir)?;
        let apt = Apt::new(&kernel.distribution, &suites, arch, &keyring, dir)?;
        let image = apt.download(&kernel_package(&apt, kernel, arch)?)?;
        extract(&image, &unpacked, &["*/vmlinuz*"])?;
        let libc = apt.download("libc6")?;
        extract(&libc, &unpacked, &["*/libc.so.6", "*/libm.so.6", "*/ld-linux-*"])?;
        extract(&apt.download("libgcc-s1")?, &unpacked, &["*/libgcc_s.so.1"])?;
        if let Some(root) = &root {
            for package in apt.download_all(packages)? {
                // Files outside of `usr`, which older packages have, move there.
                let merge = r"--transform=flags=r;s,^\./\(bin\|sbin\|lib\)/,./usr/\1/,";
                extract(&package, root, &["--exclude=./usr/share", merge, "*"])?;
            }
        }
        fs::write(&version, apt.field("libc6", "Version")?)?;
    }
    let loader = Path::new(arch.loader).file_name().context("no file name")?.to_string_lossy();
    Ok(System {
        kernel: find(&unpacked, &|name| name.starts_with("vmlinuz"))?,
        efi: kernel.efi,
        loader: find(&unpacked, &|name| name == loader)?,
        libraries: LIBRARIES
            .iter()
            .map(|library| find(&unpacked, &|name| name == *library))
            .collect::<Result<_>>()?,
        root,
        libc: fs::read_to_string(&version)?,
    })
}

/// Follows dependencies from the package without a version to the one that contains the kernel.
fn kernel_package(apt: &Apt, kernel: &Kernel, arch: &Arch) -> Result<String> {
    let mut package = kernel.image.replace("ARCH", arch.name);
    loop {
        let depends = apt.field(&package, "Depends")?;
        let next = |begin: &str| {
            let mut names = depends.split([',', ' ']);
            names.find(|name| name.starts_with(begin)).map(str::to_string)
        };
        match next("linux-binary-").or_else(|| next("linux-image-")) {
            Some(name) => package = name,
            None => return Ok(package),
        }
    }
}

/// Returns the file with the keys that sign a distribution's lists.
fn keyring(distribution: &Distribution, arch: &Arch, dir: &Path) -> Result<PathBuf> {
    match &distribution.keys {
        Keys::Here(file) => Ok(PathBuf::from(file)),
        Keys::In { suite, package, file } => {
            let dir = dir.join("keys");
            let debian = keyring(&DEBIAN, arch, &dir)?;
            let apt = Apt::new(&DEBIAN, &[suite], arch, &debian, &dir)?;
            extract(&apt.download(package)?, &dir.join("unpacked"), &[&format!("*/{file}")])?;
            find(&std::path::absolute(dir.join("unpacked"))?, &|name| name == *file)
        }
    }
}

/// apt with lists, sources and state of its own.
struct Apt {
    options: Vec<String>,
    dir: PathBuf,
}

impl Apt {
    /// Reads the mirror's lists of packages. If several suites have a package, the first one's is
    /// used.
    fn new(
        distribution: &Distribution,
        suites: &[&str],
        arch: &Arch,
        keyring: &Path,
        dir: &Path,
    ) -> Result<Apt> {
        let dir = std::path::absolute(dir)?;
        for part in ["lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(dir.join(part))?;
        }
        let (Distribution { mirror, parts, .. }, keyring) = (distribution, keyring.display());
        let options = format!("arch={} target=Packages signed-by={keyring}", arch.name);
        let source = |suite| format!("deb [{options}] {mirror} {suite} {parts}\n");
        let sources: String = suites.iter().map(source).collect();
        fs::write(dir.join("sources.list"), sources)?;
        fs::write(dir.join("status"), "")?;
        let path = dir.display();
        let options = [
            format!("Dir::Etc::SourceList={path}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".to_string(),
            "Dir::Etc::Preferences=/dev/null".to_string(),
            "Dir::Etc::PreferencesParts=/dev/null".to_string(),
            format!("Dir::State::Lists={path}/lists"),
            format!("Dir::State::Status={path}/status"),
            format!("Dir::Cache={path}/cache"),
            format!("APT::Architecture={}", arch.name),
            format!("APT::Architectures={}", arch.name),
            format!("APT::Default-Release={}", suites[0]),
            // The user `_apt` may not be able to write here.
            "APT::Sandbox::User=root".to_string(),
        ];
        let options = options.into_iter().flat_map(|option| ["-o".to_string(), option]).collect();
        let apt = Apt { options, dir };
        apt.run("apt-get", &["update", "-q", "--error-on=any"])?;
        Ok(apt)
    }

    /// Returns a field of the package that would be installed.
    fn field(&self, package: &str, field: &str) -> Result<String> {
        let shown = self.run("apt-cache", &["show", "--no-all-versions", package])?;
        let begin = format!("{field}: ");
        let value = shown.lines().find_map(|line| line.strip_prefix(&begin));
        Ok(value.unwrap_or_default().to_string())
    }

    /// Downloads a package and returns its path.
    fn download(&self, package: &str) -> Result<PathBuf> {
        self.run("apt-get", &["download", "-q", package])?;
        find(&self.dir.join("packages"), &|name| name.starts_with(&format!("{package}_")))
    }

    /// Downloads packages with all that they depend on, and returns their paths.
    fn download_all(&self, packages: &BTreeSet<String>) -> Result<Vec<PathBuf>> {
        let arguments = ["install", "-q", "--yes", "--download-only", "--no-install-recommends"];
        let packages = packages.iter().map(String::as_str);
        self.run("apt-get", &arguments.into_iter().chain(packages).collect::<Vec<_>>())?;
        let files = fs::read_dir(self.dir.join("cache/archives"))?;
        let files = files.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        Ok(files.into_iter().filter(|file| file.extension() == Some("deb".as_ref())).collect())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(&self.options).args(arguments).current_dir(self.dir.join("packages"));
        let output = command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {program}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().find(|line| line.starts_with("E:")).unwrap_or("no reason given");
            bail!("{program} {}: {why}", arguments.join(" "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Unpacks the files of a package that match the patterns.
fn extract(package: &Path, to: &Path, patterns: &[&str]) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut dpkg = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start dpkg-deb")?;
    let tar = Command::new("tar")
        .args(["-x", "--wildcards", "-C"])
        .arg(to)
        .args(patterns)
        .stdin(dpkg.stdout.take().context("no output")?)
        .status()
        .context("cannot start tar")?;
    ensure!(dpkg.wait()?.success() && tar.success(), "cannot unpack {}", package.display());
    Ok(())
}

/// Finds a regular file below `dir` by its name; links do not count.
fn find(dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<PathBuf> {
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() && wanted(&entry.file_name().to_string_lossy()) {
                return Ok(entry.path());
            }
        }
    }
    bail!("what is looked for is not in {}", dir.display())
}
