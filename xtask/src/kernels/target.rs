//! Lists the kernels and architectures to test on, and the mode expected on each.

/// A distribution and its mirror.
pub struct Distribution {
    pub mirror: &'static str,
    /// The parts of its archive that are used.
    pub parts: &'static str,
    /// The keys that sign its lists.
    pub keys: Keys,
}

pub enum Keys {
    /// A file of this system, which is Debian.
    Here(&'static str),
    /// A file in a package of Debian's.
    In { suite: &'static str, package: &'static str, file: &'static str },
}

pub const DEBIAN: Distribution = Distribution {
    mirror: "http://deb.debian.org/debian",
    parts: "main",
    keys: Keys::Here("/usr/share/keyrings/debian-archive-keyring.gpg"),
};
const UBUNTU: Distribution = Distribution {
    // Also for arm64, since 26.04.
    mirror: "http://archive.ubuntu.com/ubuntu",
    parts: "main universe",
    keys: Keys::In {
        suite: "trixie",
        package: "ubuntu-keyring",
        file: "ubuntu-archive-keyring.gpg",
    },
};

/// Where a kernel and its C library come from.
pub struct Kernel {
    /// The suite, and a suffix for special kernels.
    pub name: &'static str,
    pub distribution: Distribution,
    pub suite: &'static str,
    /// The suite that it adds to, if it is not complete.
    pub base: Option<&'static str>,
    /// The package that depends on the kernel's, with `ARCH` for the architecture.
    pub image: &'static str,
    /// The only architecture that it is for, if there is one.
    pub arch: Option<&'static str>,
    /// Whether it is an EFI application, which firmware starts.
    pub efi: bool,
    /// The number that selects a cache: `cpu_id`, or `mm_cid` since Linux 6.3. None where the
    /// kernel does not restart sequences.
    pub id: Option<&'static str>,
}

impl Kernel {
    const fn of(suite: &'static str) -> Self {
        Self {
            name: suite,
            distribution: DEBIAN,
            suite,
            base: None,
            image: "linux-image-cloud-ARCH",
            arch: None,
            efi: false,
            id: Some("mm_cid"),
        }
    }

    /// Returns a kernel with pages of 64 KiB.
    const fn of_ubuntu(name: &'static str, suite: &'static str) -> Self {
        let image = "linux-image-generic-64k";
        let of = Self::of(suite);
        Self { name, distribution: UBUNTU, image, arch: Some("arm64"), efi: true, ..of }
    }

    /// Returns whether the kernel exists for this architecture.
    pub fn is_for(&self, arch: &Arch) -> bool {
        self.arch.is_none_or(|only| only == arch.name)
    }
}

pub const KERNELS: [Kernel; 8] = [
    Kernel { id: Some("cpu_id"), ..Kernel::of("bookworm") },
    Kernel { base: Some("bookworm"), ..Kernel::of("bookworm-backports") },
    Kernel::of("trixie"),
    Kernel {
        name: "trixie-16k",
        image: "linux-image-ARCH-16k",
        arch: Some("arm64"),
        ..Kernel::of("trixie")
    },
    Kernel { base: Some("trixie"), ..Kernel::of("trixie-backports") },
    // 26.04 as released, with Linux 7.0.0; and with its updates.
    Kernel { id: None, ..Kernel::of_ubuntu("resolute-64k", "resolute") },
    Kernel {
        base: Some("resolute"),
        ..Kernel::of_ubuntu("resolute-updates-64k", "resolute-updates")
    },
    Kernel::of("sid"),
];

pub struct Arch {
    /// Debian's name.
    pub name: &'static str,
    /// Rust's name of the target.
    pub rust: &'static str,
    /// Rust's name of the target with musl.
    pub musl: &'static str,
    /// The C compiler for it, and its package.
    pub compiler: &'static str,
    pub compiler_package: &'static str,
    /// Path at which programs expect the loader.
    pub loader: &'static str,
    pub qemu: &'static str,
    pub qemu_package: &'static str,
    /// Package and file of the firmware that starts EFI applications, if a kernel needs it.
    pub firmware: Option<(&'static str, &'static str)>,
    /// qemu's arguments for the machine.
    pub machine: &'static [&'static str],
    /// The kernel's arguments, first its name of the serial console.
    pub arguments: &'static str,
    /// Whether the library has restartable sequences for it.
    pub sequences: bool,
}

pub const ARCHS: [Arch; 2] = [
    Arch {
        name: "amd64",
        rust: "x86_64-unknown-linux-gnu",
        musl: "x86_64-unknown-linux-musl",
        compiler: "x86_64-linux-gnu-gcc",
        compiler_package: if cfg!(target_arch = "x86_64") { "gcc" } else { "gcc-x86-64-linux-gnu" },
        loader: "lib64/ld-linux-x86-64.so.2",
        qemu: "qemu-system-x86_64",
        qemu_package: "qemu-system-x86",
        firmware: None,
        machine: &["-machine", "q35"],
        // The kernel's test of its timer fails on a busy host.
        arguments: "console=ttyS0 no_timer_check",
        sequences: true,
    },
    Arch {
        name: "arm64",
        rust: "aarch64-unknown-linux-gnu",
        musl: "aarch64-unknown-linux-musl",
        compiler: "aarch64-linux-gnu-gcc",
        compiler_package: if cfg!(target_arch = "aarch64") {
            "gcc"
        } else {
            "gcc-aarch64-linux-gnu"
        },
        loader: "lib/ld-linux-aarch64.so.1",
        qemu: "qemu-system-aarch64",
        qemu_package: "qemu-system-arm",
        firmware: Some(("qemu-efi-aarch64", "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd")),
        machine: &["-machine", "virt"],
        arguments: "console=ttyAMA0",
        sequences: true,
    },
];

/// Returns what a program's statistics must say on `kernel`, without the reason.
pub fn expected_mode(kernel: &Kernel, arch: &Arch) -> String {
    match kernel.id {
        Some(id) if arch.sequences => format!("percpu by {id}"),
        _ => "thread".to_string(),
    }
}
