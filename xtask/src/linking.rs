//! Libraries that a program opens while it runs (`tests/linking`).

use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::Command;

/// `program` (`opened.c`), told to open so many copies of a library, made in `folder`. They are files of their own, since the loader
/// opens none twice.
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
