//! Makes copies of a library and opens them from a running program (`tests/linking`).

use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Prepares `program` (`opened.c`) to open `copies` copies of a library, made in `folder`. Each
/// copy is a file of its own, since the loader opens no file twice.
pub fn open(program: &Path, library: &Path, copies: usize, folder: &Path) -> Result<Command> {
    fs::create_dir_all(folder)?;
    let mut command = Command::new(program);
    for nth in 0..copies {
        let copy = folder.join(format!("{nth}.so"));
        fs::copy(library, &copy)?;
        command.arg(copy);
    }
    Ok(command)
}
