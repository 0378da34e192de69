//! The contract programs for another processor, under qemu's emulation of it.

use std::path::Path;
use std::process::Command;

/// Has the program load a library first, not the emulator.
pub fn preload(command: &mut Command, library: &Path) {
    command.env("QEMU_SET_ENV", format!("LD_PRELOAD={}", library.display()));
}

/// Standard error without what the emulator says of a signal that ends the program.
pub fn said_by_program(stderr: &str) -> String {
    stderr
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("qemu: uncaught target signal "))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulators_lines_are_left_out() {
        let stderr = "ebbmalloc: a\nqemu: uncaught target signal 6 (Aborted) - core dumped\n";
        assert_eq!(said_by_program(stderr), "ebbmalloc: a\n");
    }
}
