//! Implements `ebb generate`: writes the man pages, and the completions of shells.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::Resettable;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::stop::EXIT_CODES;

/// Where each shell looks for completions, below /usr/share.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/ebb"),
    (Shell::Zsh, "zsh/site-functions/_ebb"),
    (Shell::Fish, "fish/vendor_completions.d/ebb.fish"),
];

#[derive(Args)]
pub struct Options {
    /// The folder with `man` and the folders of shells, such as /usr/share
    #[arg(value_name = "DIR")]
    share: PathBuf,
}

pub fn generate(options: &Options, mut command: Command) -> anyhow::Result<()> {
    // Building it, as completions do, would add a subcommand that needs no page.
    let mut pages = command.clone().disable_help_subcommand(true);
    pages.build();
    for (shell, path) in COMPLETIONS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "ebb", &mut text);
        write(&options.share.join(path), &text)?;
    }
    // The page of `ebb` itself names the exit codes, as every page does.
    let whole = pages.clone().after_help(Resettable::Reset);
    let parts = pages.get_subcommands().filter(|part| !part.is_hide_set());
    for part in iter::once(&whole).chain(parts) {
        let name = part.get_display_name().unwrap_or(part.get_name());
        write(&options.share.join(format!("man/man1/{name}.1")), &page(name, part)?)?;
    }
    Ok(())
}

/// The man page of a command. What its help says last is part of the description.
fn page(name: &str, command: &Command) -> anyhow::Result<Vec<u8>> {
    let texts = [command.get_about(), command.get_after_help()];
    let texts: Vec<_> = texts.into_iter().flatten().map(ToString::to_string).collect();
    let command = command.clone().long_about(texts.join(".\n\n"));
    let man = Man::new(command.clone());
    let version = ebbmalloc::VERSION;
    // Without a date: two builds of a version are the same.
    let mut text = format!(".TH {name} 1 \"\" \"ebb {version}\" ebbmalloc\n").into_bytes();
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut end = Roff::new();
    end.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_CODES {
        end.control("TP", []).text([bold(code)]).text([roman(meaning)]);
    }
    end.control("SH", ["SEE ALSO"]).text([roman("https://github.com/ebbmalloc/ebbmalloc")]);
    end.to_writer(&mut text)?;
    Ok(text)
}

fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}
