//! Which kernel this is, and whether it restarts sequences.

use core::ops::Range;

use crate::platform::kernel::proc::{numbers, read_file};
use crate::platform::kernel::syscall::call;

/// As 6.12.107: zeros where the kernel does not say.
type Release = [u32; 3];

/// The kernels for arm64 that let an interrupted sequence go on where it was, as if it were none: on their way in from
/// a program they do not take the note that their way out has looked for since it was rewritten. Mended by
/// "arm64/entry: Fix arm64-specific rseq brokenness" (411c1cf43039, in 7.1), also in 7.0.14.
const NOT_RESTARTING: Range<Release> = [6, 19, 0]..[7, 0, 14];

/// The kernel's version: its first two numbers.
pub(super) fn kernel() -> [u32; 2] {
    let [major, minor, _] = release();
    [major, minor]
}

/// Whether the kernel keeps what rseq(2) promises, as far as that is known; else what to say of it.
pub(super) fn restarts_sequences() -> Result<(), &'static str> {
    if !cfg!(target_arch = "aarch64")
        || !NOT_RESTARTING.contains(&release())
        || is_mended(read_file(c"/proc/version_signature", &mut [0; 128]))
    {
        return Ok(());
    }
    Err("Linux 6.19 to 7.0.13 on arm64 does not restart interrupted sequences; 7.0.14 does")
}

/// The third number of Ubuntu's kernels is always 0; they say there what they are made from: "Ubuntu 7.0.0-42.42-generic 7.0.14".
fn is_mended(signature: &[u8]) -> bool {
    let upstream = signature.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    parse(upstream) >= NOT_RESTARTING.end
}

fn release() -> Release {
    // SAFETY: fills the struct that it is given, with texts that end in a null byte.
    unsafe {
        let mut names: libc::utsname = core::mem::zeroed();
        let _ = call!(libc::SYS_uname, &raw mut names);
        parse(&names.release.map(|byte| byte as u8))
    }
}

fn parse(text: &[u8]) -> Release {
    let mut numbers = numbers(text);
    [0; 3].map(|_: u32| numbers.next().unwrap_or(0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_do_not_restart() {
        let refused = |release: &str| NOT_RESTARTING.contains(&parse(release.as_bytes()));
        for release in ["6.19.0-rc1", "6.19.14+deb13-arm64", "7.0.0-14-generic", "7.0.13-300.fc44"]
        {
            assert!(refused(release), "{release}");
        }
        for release in ["6.18.15+deb13-arm64", "7.0.14", "7.1.3+deb13-cloud-arm64", "5.15.0", "odd"]
        {
            assert!(!refused(release), "{release}");
        }
    }

    #[test]
    fn what_a_kernel_is_made_from() {
        assert!(is_mended(b"Ubuntu 7.0.0-42.42-generic-64k 7.0.14\n"));
        assert!(!is_mended(b"Ubuntu 7.0.0-14.14-generic-64k 7.0.0\n"));
        assert!(!is_mended(b"Ubuntu 7.0.0-14.14-generic\n") && !is_mended(b""));
    }
}
