//! Tells the kernel's version, and whether the kernel restarts interrupted sequences
//! (decisions/0025).

use core::ops::Range;

use crate::platform::kernel::proc::{numbers, read_file};
use crate::platform::kernel::syscall::call;

/// A version such as 6.12.107. Numbers that the kernel does not tell are 0.
type Release = [u32; 3];

/// The kernels for arm64 that resume an interrupted sequence instead of restarting it. Their exit
/// to user space was rewritten to look for a note that arm64's entry code does not take. Fixed by
/// "arm64/entry: Fix arm64-specific rseq brokenness" (411c1cf43039), in 7.1 and 7.0.14.
const NOT_RESTARTING: Range<Release> = [6, 19, 0]..[7, 0, 14];

/// The first two numbers of the kernel's version.
pub(super) fn kernel() -> [u32; 2] {
    let [major, minor, _] = release();
    [major, minor]
}

/// Whether the kernel restarts sequences, as rseq(2) promises. The error is a reason for people.
pub(super) fn restarts_sequences() -> Result<(), &'static str> {
    if !cfg!(target_arch = "aarch64")
        || !NOT_RESTARTING.contains(&release())
        || is_fixed(read_file(c"/proc/version_signature", &mut [0; 128]))
    {
        return Ok(());
    }
    Err("Linux 6.19 to 7.0.13 on arm64 does not restart interrupted sequences; 7.0.14 does")
}

/// Whether this signature names a fixed upstream version, as in "Ubuntu 7.0.0-42.42-generic
/// 7.0.14". The release of Ubuntu's kernels does not tell: its third number is always 0.
fn is_fixed(signature: &[u8]) -> bool {
    let upstream = signature.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    parse(upstream) >= NOT_RESTARTING.end
}

fn release() -> Release {
    // SAFETY: the kernel fills the struct, for which all-zero bytes are valid too.
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
        assert!(is_fixed(b"Ubuntu 7.0.0-42.42-generic-64k 7.0.14\n"));
        assert!(!is_fixed(b"Ubuntu 7.0.0-14.14-generic-64k 7.0.0\n"));
        assert!(!is_fixed(b"Ubuntu 7.0.0-14.14-generic\n") && !is_fixed(b""));
    }
}
