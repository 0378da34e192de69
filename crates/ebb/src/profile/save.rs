//! Writes a profile to a file, in the format that the file's name ends with.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::data::{Profile, WithLedger};
use super::view::{Measure, View};
use super::{folded, html, pprof, svg};
use crate::stop::Stop;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Pprof,
    Html,
    Svg,
    Folded,
}

const ENDINGS: [(&str, Format); 4] = [
    (".pb.gz", Format::Pprof),
    (".html", Format::Html),
    (".svg", Format::Svg),
    (".folded", Format::Folded),
];

/// A file to write.
#[derive(Clone, Debug)]
pub struct Target {
    path: PathBuf,
    pub format: Format,
    ending: &'static str,
}

impl Target {
    /// Parses a path given on the command line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = ENDINGS.iter().find(|(ending, _)| text.ends_with(ending));
        let (ending, format) = *found.ok_or_else(|| {
            "the name must end with .pb.gz (pprof), .html, .svg or .folded, which select the format"
                .to_owned()
        })?;
        Ok(Self { path: text.into(), format, ending })
    }

    /// The file for the `nth` of several looks: its number stands before the ending.
    pub fn numbered(&self, nth: usize) -> Self {
        let name = self.path.to_string_lossy();
        let stem = name.strip_suffix(self.ending).unwrap_or(&name);
        Self { path: format!("{stem}.{nth}{}", self.ending).into(), ..self.clone() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a profile, or its difference to an earlier one.
    pub fn write(
        &self,
        look: WithLedger<Profile>,
        before: Option<&Profile>,
        measure: Measure,
    ) -> Result<()> {
        let view = |look| match before {
            Some(before) => View::between(before, look),
            None => View::of(look),
        };
        let content = match self.format {
            Format::Pprof => pprof::write(&look.profile, before, pprof::INUSE_SPACE)?,
            Format::Html => html::write(&view(look), measure),
            Format::Svg => svg::write(&view(look), measure)?,
            Format::Folded => folded::write(&view(look), measure),
        };
        write(&self.path, &content).map_err(|error| {
            Stop::with(1, format!("cannot write {}: {error}", self.path.display()))
        })
    }
}

/// Writes a whole file or none: an earlier one stays if the disk is full.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if path.metadata().is_ok_and(|meta| !meta.is_file()) {
        // A pipe or a device.
        return File::options().write(true).open(path)?.write_all(content);
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = File::create(&partial)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&partial, &path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;

    #[test]
    fn names_select_formats() {
        assert_eq!(Target::parse("a.b/c.pb.gz").unwrap().format, Format::Pprof);
        assert_eq!(Target::parse("c.html").unwrap().format, Format::Html);
        assert!(Target::parse("c.json").is_err());
        let third = Target::parse("d/c.pb.gz").unwrap().numbered(3);
        assert_eq!(third.path(), Path::new("d/c.3.pb.gz"));
    }

    #[test]
    fn a_failure_leaves_the_earlier_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.folded");
        let target = Target::parse(path.to_str().unwrap()).unwrap();
        target.write(example::profile().into(), None, Measure::default()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("main;"));
        let nowhere = Target::parse("/no/such/folder/x.folded").unwrap();
        let error = nowhere.write(example::profile().into(), None, Measure::default()).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder/x.folded"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
