//! The kernels and architectures to test on, and the mode that is expected on each.

/// Where a kernel and its C library come from.
pub struct Kernel {
    /// The suite of Debian, and what else is special.
    pub name: &'static str,
    pub suite: &'static str,
    /// The suite that it adds to, if it is not whole.
    pub base: Option<&'static str>,
    /// What numbers the caches: `cpu_id`, or `mm_cid` since Linux 6.3.
    pub id: &'static str,
    /// Whether its pages have 16 KiB. Debian has such for arm64 alone.
    pub large_pages: bool,
}

impl Kernel {
    const fn of(suite: &'static str) -> Self {
        Self { name: suite, suite, base: None, id: "mm_cid", large_pages: false }
    }

    /// Whether there is one for this architecture.
    pub fn is_for(&self, arch: &Arch) -> bool {
        !self.large_pages || arch.name == "arm64"
    }
}

pub const KERNELS: [Kernel; 5] = [
    Kernel { id: "cpu_id", ..Kernel::of("bookworm") },
    Kernel { base: Some("bookworm"), ..Kernel::of("bookworm-backports") },
    Kernel::of("trixie"),
    Kernel { name: "trixie-16k", large_pages: true, ..Kernel::of("trixie") },
    Kernel::of("sid"),
];

pub struct Arch {
    /// Debian's name.
    pub name: &'static str,
    /// The target, as Rust names it.
    pub rust: &'static str,
    /// The same with musl as the C library.
    pub musl: &'static str,
    /// The C compiler for it, and its package.
    pub compiler: &'static str,
    pub compiler_package: &'static str,
    /// Where programs expect the loader.
    pub loader: &'static str,
    pub qemu: &'static str,
    pub qemu_package: &'static str,
    /// The machine for qemu.
    pub machine: &'static [&'static str],
    /// What the kernel is told: first of all its name of the serial console.
    pub arguments: &'static str,
    /// Whether there are restartable sequences for it.
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
        machine: &["-machine", "q35"],
        // The kernel's test of its timer fails where the host is busy.
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
        machine: &["-machine", "virt"],
        arguments: "console=ttyAMA0",
        sequences: true,
    },
];

/// What a program's statistics must say on `kernel`, up to the reason.
pub fn expected_mode(kernel: &Kernel, arch: &Arch) -> String {
    if arch.sequences { format!("percpu by {}", kernel.id) } else { "thread".to_string() }
}
