//! The remarks that a user needs to read a comparison: one sentence states the fact, one says what
//! to do.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use object::Architecture;

use crate::inspect::{Elf, Kind, Program};
use crate::library::Library;

/// A remark about a program or a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether preloading can have no effect at all.
    pub futile: bool,
    pub text: String,
}

impl Note {
    pub fn remark(text: impl Into<String>) -> Self {
        Self { futile: false, text: text.into() }
    }

    fn futile(text: impl Into<String>) -> Self {
        Self { futile: true, text: text.into() }
    }
}

/// The remarks about preloading `libraries` into a program that was started as `name`.
pub fn program(program: &Program, name: &OsStr, libraries: &[&Library]) -> Vec<Note> {
    let path = program.path.display();
    let elf = match &program.kind {
        Kind::Elf(elf) => elf,
        Kind::Unknown => {
            return vec![Note::remark(format!(
                "{path} has no `#!` line: the kernel cannot start it, so /bin/sh runs it, with the \
                 allocator in that shell. Begin it with a `#!` line to run it directly."
            ))];
        }
        Kind::NoInterpreter(interpreter) => {
            return vec![Note::futile(format!(
                "{path} names the interpreter {}, which does not exist, so it cannot start. \
                 Install it, or correct the first line.",
                interpreter.display()
            ))];
        }
        Kind::Unreadable(error) => {
            return vec![Note::remark(format!(
                "cannot read {path} ({error}), so ebb cannot check it before the run."
            ))];
        }
    };
    let mut notes = Vec::new();
    if elf.go {
        let note = format!(
            "{path} is a Go program: Go's runtime has its own allocator, and only C code called \
             through cgo reaches malloc. A comparison shows little."
        );
        notes.push(Note { futile: elf.loader.is_none(), text: note });
    } else if elf.loader.is_none() {
        notes.push(Note::futile(format!(
            "{path} is statically linked: nothing can be preloaded into it. Link it dynamically, \
             or build it with libebbmalloc.a or the ebbmalloc crate."
        )));
    }
    if elf.loader.is_some() {
        notes.extend(
            libraries.iter().filter_map(|library| mismatch(&path.to_string(), elf, library)),
        );
        if program.privileged() {
            notes.push(Note::futile(format!(
                "{path} is set-user-id, set-group-id or has file capabilities: the loader ignores \
                 LD_PRELOAD for it. Compare a copy of it without them (cp drops them)."
            )));
        }
    }
    if is_python(name) || program.path.file_name().is_some_and(is_python) {
        notes.extend(pymalloc(std::env::var_os("PYTHONMALLOC").as_deref()));
    } else {
        notes.extend(own_allocator(&path.to_string(), elf));
    }
    notes
}

/// The remarks about a library itself.
pub fn library(name: &str, library: &Library) -> Vec<Note> {
    let path = library.path.display();
    let mut notes = Vec::new();
    if !library.elf.defines_malloc {
        notes.push(Note::futile(format!(
            "{path} ({name}) exports no malloc: preloading it replaces nothing. Check that it is \
             the right file."
        )));
    }
    if library.elf.ebbmalloc
        && library.path.parent().is_some_and(|folder| folder.ends_with("debug"))
    {
        notes.push(Note::remark(format!(
            "{path} is a debug build, which is slow. Use `cargo run --release`, or build it with \
             --release."
        )));
    }
    notes
}

/// The remark about libraries that LD_PRELOAD names already.
pub fn environment(preloaded: Option<OsString>) -> Option<Note> {
    let preloaded = preloaded.filter(|value| !value.is_empty())?;
    Some(Note::remark(format!(
        "LD_PRELOAD is {} already and stays so in every run, also on \"system\". Unset it to \
         compare with glibc's allocator.",
        preloaded.display()
    )))
}

fn mismatch(path: &str, program: &Elf, library: &Library) -> Option<Note> {
    let shown = library.path.display();
    let musl = |elf: &Elf| {
        elf.loader.iter().chain(&elf.needed).any(|name| name.contains("musl") || name == "libc.so")
    };
    let libc = |elf: &Elf| if musl(elf) { "musl" } else { "glibc" };
    if (program.architecture, program.bits) != (library.elf.architecture, library.elf.bits) {
        let kind = |elf: &Elf| format!("{} ({} bits)", architecture(elf.architecture), elf.bits);
        return Some(Note::futile(format!(
            "{path} is built for {}, {shown} for {}: the loader cannot load both. Build the \
             library for the program's target.",
            kind(program),
            kind(&library.elf)
        )));
    }
    (musl(program) != musl(&library.elf)).then(|| {
        Note::futile(format!(
            "{path} is linked to {}, {shown} to {}: the loader cannot load both. Build the library \
             for the program's target.",
            libc(program),
            libc(&library.elf)
        ))
    })
}

fn architecture(architecture: Architecture) -> String {
    match architecture {
        Architecture::X86_64 => "x86-64".into(),
        Architecture::I386 => "x86".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn own_allocator(path: &str, elf: &Elf) -> Vec<Note> {
    let linked = ["libjemalloc", "libtcmalloc", "libmimalloc", "libebbmalloc"];
    let needed =
        elf.needed.iter().find(|name| linked.iter().any(|library| name.starts_with(library)));
    let note = if elf.ebbmalloc {
        Note::remark(format!(
            "{path} contains ebbmalloc already, on \"system\" too. Compare a build without it."
        ))
    } else if elf.defines_malloc {
        Note::futile(format!(
            "{path} defines malloc itself, and its own definition comes before any preloaded one. \
             Compare a build without its allocator."
        ))
    } else if let Some(name) = needed {
        Note::remark(format!(
            "{path} is linked to {name}, so \"system\" means {name} here, and ratios are against \
             it. A preloaded allocator takes its place."
        ))
    } else if let Some(name) = elf.embedded {
        Note::remark(format!(
            "{path} contains {name}: its allocations there never reach a preloaded malloc. Compare \
             a build without it."
        ))
    } else {
        return Vec::new();
    };
    vec![note]
}

fn is_python(name: &OsStr) -> bool {
    Path::new(name).file_name().and_then(OsStr::to_str).is_some_and(|name| {
        let version = name.strip_prefix("python");
        version
            .is_some_and(|version| version.chars().all(|char| char.is_ascii_digit() || char == '.'))
    })
}

fn pymalloc(setting: Option<&OsStr>) -> Option<Note> {
    let bypassed = setting.and_then(OsStr::to_str).is_some_and(|value| value.starts_with("malloc"));
    (!bypassed).then(|| {
        Note::remark(
            "Python serves requests of up to 512 bytes from its own pymalloc, whatever malloc is \
             beneath. Set PYTHONMALLOC=malloc to compare the allocators alone.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Elf {
        Elf {
            architecture: Architecture::X86_64,
            bits: 64,
            shared: true,
            loader: Some("/lib64/ld-linux-x86-64.so.2".into()),
            needed: vec!["libc.so.6".into()],
            defines_malloc: false,
            ebbmalloc: false,
            embedded: None,
            go: false,
        }
    }

    fn lib(elf: Elf) -> Library {
        Library { path: "/lib/liballoc.so".into(), elf }
    }

    fn notes(elf: Elf, name: &str) -> Vec<Note> {
        let path = Path::new("/nowhere").join(name);
        program(&Program { path, kind: Kind::Elf(elf) }, OsStr::new(name), &[&lib(plain())])
    }

    fn only(elf: Elf) -> Note {
        let mut notes = notes(elf, "app");
        assert_eq!(notes.len(), 1, "{notes:?}");
        notes.remove(0)
    }

    #[test]
    fn an_ordinary_program_needs_no_note() {
        assert_eq!(notes(plain(), "app"), []);
    }

    #[test]
    fn programs_that_cannot_be_preloaded() {
        let cases = [
            (Elf { loader: None, ..plain() }, "statically linked"),
            (Elf { loader: None, go: true, ..plain() }, "Go program"),
            (Elf { architecture: Architecture::I386, bits: 32, ..plain() }, "x86 (32 bits)"),
            (
                Elf {
                    loader: Some("/lib/ld-musl-x86_64.so.1".into()),
                    needed: vec!["libc.so".into()],
                    ..plain()
                },
                "linked to musl",
            ),
            (Elf { defines_malloc: true, ..plain() }, "defines malloc itself"),
        ];
        for (elf, words) in cases {
            let note = only(elf);
            assert!(note.futile && note.text.contains(words), "{note:?}");
        }
    }

    #[test]
    fn programs_that_bring_an_allocator() {
        let linked = only(Elf { needed: vec!["libjemalloc.so.2".into()], ..plain() });
        assert!(!linked.futile && linked.text.contains("libjemalloc.so.2"));
        let embedded = only(Elf { embedded: Some("mimalloc"), ..plain() });
        assert!(!embedded.futile && embedded.text.contains("contains mimalloc"));
        assert!(only(Elf { ebbmalloc: true, ..plain() }).text.contains("contains ebbmalloc"));
    }

    #[test]
    fn python_is_recognised_under_its_names() {
        for name in ["python", "python3", "/usr/bin/python3.11"] {
            assert!(is_python(OsStr::new(name)), "{name}");
        }
        for name in ["pythonista", "python3-config", "ipython3", "perl"] {
            assert!(!is_python(OsStr::new(name)), "{name}");
        }
        assert!(pymalloc(None).is_some() && pymalloc(Some(OsStr::new("pymalloc"))).is_some());
        assert!(pymalloc(Some(OsStr::new("malloc"))).is_none());
        assert!(pymalloc(Some(OsStr::new("malloc_debug"))).is_none());
    }

    #[test]
    fn libraries_that_are_no_use() {
        let silent = library("x", &lib(plain()));
        assert!(silent[0].futile && silent[0].text.contains("exports no malloc"));
        let good = lib(Elf { defines_malloc: true, ebbmalloc: true, ..plain() });
        assert_eq!(library("x", &good), []);
        let debug = Library { path: "/target/debug/libebbmalloc.so".into(), ..good };
        assert!(library("x", &debug)[0].text.contains("debug build"));
    }

    #[test]
    fn an_earlier_preload_is_told() {
        assert_eq!(environment(None), None);
        assert_eq!(environment(Some("".into())), None);
        assert!(environment(Some("/x.so".into())).unwrap().text.contains("/x.so"));
    }
}
