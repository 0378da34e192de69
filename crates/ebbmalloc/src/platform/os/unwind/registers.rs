//! The registers of a frame, by their numbers in unwinding tables, and how a processor saves them
//! for a signal handler.

pub(super) use numbers::*;

#[cfg(not(target_arch = "aarch64"))]
mod numbers {
    /// Registers that tables may name: 16, and the return address (System V ABI, AMD64).
    pub const COUNT: usize = 17;
    pub const STACK_POINTER: usize = 7;
    pub const FRAME_POINTER: usize = 6;
    /// `rbx`, in which some assembly keeps the end of its frame.
    pub const BASE_POINTER: usize = 3;
    /// Code that returns from a signal handler: `mov $15, %rax; syscall`. Some C libraries have no
    /// table for it.
    pub const SIGNAL_RETURN: &[u8] = &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    /// Code that returns with one word on the stack: `add $8, %rsp; ret`. Python's trampolines call
    /// from before it, without a table or a frame pointer.
    pub const TRAMPOLINE_RETURN: Option<&[u8]> = Some(&[0x48, 0x83, 0xc4, 0x08, 0xc3]);
    /// Where the kernel saved each register: bytes from the stack pointer in that code.
    pub const SAVED: [usize; COUNT] =
        [144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168];
}

#[cfg(target_arch = "aarch64")]
mod numbers {
    /// Registers that tables may name: `x0` to `x30`, the stack pointer, and the program counter
    /// (DWARF for the Arm 64-bit Architecture).
    pub const COUNT: usize = 33;
    pub const STACK_POINTER: usize = 31;
    pub const FRAME_POINTER: usize = 29;
    /// `x19`, in which compilers keep an end of frames that grow.
    pub const BASE_POINTER: usize = 19;
    /// Code that returns from a signal handler: `mov x8, #139; svc #0`. It has no usable table.
    pub const SIGNAL_RETURN: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
    /// Trampolines have frame pointers.
    pub const TRAMPOLINE_RETURN: Option<&[u8]> = None;
    /// Where the kernel saved each register: bytes from the stack pointer in that code.
    pub const SAVED: [usize; COUNT] = {
        let mut saved = [0; COUNT];
        let mut nth = 0;
        while nth < COUNT {
            saved[nth] = 312 + 8 * nth;
            nth += 1;
        }
        saved
    };
}

/// The number of the program counter where the kernel saved it.
pub(super) const PROGRAM_COUNTER: usize = COUNT - 1;

/// Values of registers, as far as they are known.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    pub values: [usize; COUNT],
    /// A bit for each register whose value is known.
    pub known: u64,
}

impl Registers {
    /// No value is known.
    pub const UNKNOWN: Self = Self { values: [0; COUNT], known: 0 };

    /// The value of a register, if it is known.
    pub fn get(&self, register: usize) -> Option<usize> {
        let is_known = register < COUNT && self.known >> register & 1 == 1;
        is_known.then(|| self.values[register])
    }

    pub fn set(&mut self, register: usize, value: Option<usize>) {
        self.known &= !(1 << register);
        if let Some(value) = value {
            self.values[register] = value;
            self.known |= 1 << register;
        }
    }
}

/// The caller's registers, as far as calls preserve them, and the address of an instruction in the
/// caller at which they have these values.
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! current {
    () => {{
        let mut registers = $crate::platform::os::unwind::registers::Registers::UNKNOWN;
        let address: usize;
        // SAFETY: the code stores registers into the array.
        unsafe {
            core::arch::asm!(
                "mov [{values} + 24], rbx",
                "mov [{values} + 48], rbp",
                "mov [{values} + 56], rsp",
                "mov [{values} + 96], r12",
                "mov [{values} + 104], r13",
                "mov [{values} + 112], r14",
                "mov [{values} + 120], r15",
                "lea {address}, [rip]",
                values = in(reg) registers.values.as_mut_ptr(),
                address = lateout(reg) address,
                options(nostack, preserves_flags),
            );
        }
        registers.known = 0b1111_0000_1100_1000;
        (registers, address)
    }};
}

/// The caller's registers, as far as calls preserve them, and the address of an instruction in the
/// caller at which they have these values.
#[cfg(all(target_arch = "aarch64", not(miri)))]
macro_rules! current {
    () => {{
        let mut registers = $crate::platform::os::unwind::registers::Registers::UNKNOWN;
        let address: usize;
        // SAFETY: the code stores registers into the array.
        unsafe {
            core::arch::asm!(
                "stp x19, x20, [{values}, #152]",
                "stp x21, x22, [{values}, #168]",
                "stp x23, x24, [{values}, #184]",
                "stp x25, x26, [{values}, #200]",
                "stp x27, x28, [{values}, #216]",
                "stp x29, x30, [{values}, #232]",
                "mov {address}, sp",
                "str {address}, [{values}, #248]",
                "adr {address}, .",
                values = in(reg) registers.values.as_mut_ptr(),
                address = out(reg) address,
                options(nostack, preserves_flags),
            );
        }
        registers.known = 0b1111_1111_1111_1 << 19;
        (registers, address)
    }};
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
pub(super) use current;

/// A return address without the signature that pointer authentication puts into its upper bits.
#[inline(always)]
pub(super) fn without_signature(address: usize) -> usize {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    if address >> 47 != 0 {
        let stripped;
        // SAFETY: `xpaclri` changes only x30. Processors without signatures ignore it.
        unsafe {
            core::arch::asm!(
                "hint #7",
                inout("x30") address => stripped,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        return stripped;
    }
    address
}
