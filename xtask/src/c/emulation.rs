//! Adapts runs of contract programs to qemu, which emulates another processor.

use std::path::Path;
use std::process::Command;

/// Preloads a library into the program, not into the emulator.
pub fn preload(command: &mut Command, library: &Path) {
    command.env("QEMU_SET_ENV", format!("LD_PRELOAD={}", library.display()));
}

/// Returns standard error without the emulator's line about a signal that ends the program.
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
