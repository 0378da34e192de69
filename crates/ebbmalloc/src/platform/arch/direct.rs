// `call!` by the processor's own instruction: the files of processors that have one include this.

macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::platform::arch::direct($number, [$($argument as usize),*])
    };
}
pub(crate) use call;

/// Makes a system call with up to six arguments.
///
/// # Safety
/// The arguments meet the contract of that system call.
#[inline]
pub(crate) unsafe fn direct<const N: usize>(
    number: libc::c_long,
    arguments: [usize; N],
) -> Result<usize, c_int> {
    let mut six = [0; 6];
    six[..N].copy_from_slice(&arguments);
    // SAFETY: the caller guarantees the call's own contract.
    outcome(unsafe { system_call(number, six) })
}
