//! Finds symbols that some C libraries have and others lack.

/// The address of a symbol of this name; null if the process has none. It is the weak symbol's
/// entry in the global offset table.
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! weak {
    ($name:literal) => {{
        let address: *const u8;
        // SAFETY: reads an entry of the table, which the linker or the loader filled.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {address}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                address = out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
macro_rules! weak {
    ($name:literal) => {{
        let address: *const u8;
        // SAFETY: reads an entry of the table, which the linker or the loader filled.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {address}, :got:", $name),
                concat!("ldr {address}, [{address}, :got_lo12:", $name, "]"),
                address = out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
macro_rules! weak {
    ($name:literal) => {
        core::ptr::null::<u8>()
    };
}

pub(crate) use weak;
