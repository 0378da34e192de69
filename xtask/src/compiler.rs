//! Compiles a contract program once and links it with the library in several ways.

use crate::library::Library;
use crate::process;
use anyhow::{Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// How a program gets the library.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Way {
    Preload,
    Dynamic,
    Static,
    /// The program loads it from the path in the variable `LIBRARY`.
    Load,
}

/// The ways of a program whose header names none.
pub const WAYS: [Way; 3] = [Way::Preload, Way::Dynamic, Way::Static];

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Preload => "preload",
            Way::Dynamic => "dynamic",
            Way::Static => "static",
            Way::Load => "load",
        }
    }

    pub fn parse(word: &str) -> Result<Way> {
        match WAYS.into_iter().chain([Way::Load]).find(|way| way.name() == word) {
            Some(way) => Ok(way),
            None => bail!("unknown way `{word}` (known: preload, dynamic, static, load)"),
        }
    }

    /// Returns the linker's arguments if `library` is ebbmalloc.
    fn arguments(self, library: &Library) -> Vec<String> {
        let Library::Ours(dir) = library else { return Vec::new() };
        let dir = dir.display();
        match self {
            Way::Preload | Way::Load => Vec::new(),
            Way::Dynamic => vec![
                format!("-L{dir}"),
                format!("-Wl,--no-as-needed,-rpath,{dir}"),
                "-lebbmalloc".to_string(),
            ],
            Way::Static => vec![format!("{dir}/libebbmalloc.a")],
        }
    }
}

/// How a program uses the shared object built from its own source with `PLUGIN` defined.
#[derive(Clone, Copy, PartialEq)]
pub enum Plugin {
    /// The program is linked to it.
    Link,
    /// The program loads it from `PLUGIN_PATH`.
    Load,
}

/// Returns the Debian packages that contain `compiler`.
pub fn packages(compiler: &str) -> Vec<String> {
    let packages: &[&str] = match compiler {
        "musl-gcc" => &["musl-tools"],
        "aarch64-linux-gnu-gcc" => &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
        "aarch64-linux-gnu-g++" => &["g++-aarch64-linux-gnu"],
        "x86_64-linux-gnu-gcc" => &["gcc"],
        "x86_64-linux-gnu-g++" => &["g++"],
        "clang++" => &["clang", "libc++-dev", "libc++abi-dev"],
        other => &[other],
    };
    packages.iter().map(|name| name.to_string()).collect()
}

/// A program compiled by one compiler with its flags, not yet linked.
pub struct Object<'a> {
    compiler: &'a [String],
    dir: &'a Path,
    /// The shared object to link the program to.
    linked_plugin: Option<PathBuf>,
}

impl<'a> Object<'a> {
    /// Compiles `source`, and its plugin if it has one, into `dir`. `compiler` is its name and
    /// flags.
    pub fn compile(
        root: &Path,
        source: &Path,
        compiler: &'a [String],
        plugin: Option<Plugin>,
        dir: &'a Path,
    ) -> Result<Object<'a>> {
        let plugin_path = dir.join("plugin.so");
        let cpp = source.extension().is_some_and(|ending| ending == "cpp");
        let mut arguments = ["-O1", "-g", "-pthread", "-fno-builtin", "-Wall", "-Wextra"]
            .map(str::to_string)
            .to_vec();
        arguments.push(if cpp { "-std=gnu++17" } else { "-std=gnu17" }.to_string());
        arguments.push(format!("-I{}", root.join("crates/capi/include").display()));
        arguments.push(format!("-DPLUGIN_PATH=\"{}\"", plugin_path.display()));
        arguments.push(source.display().to_string());
        if plugin.is_some() {
            let shared = ["-shared", "-fPIC", "-DPLUGIN"].map(str::to_string);
            run(compiler, arguments.iter().chain(&shared), &plugin_path)?;
        }
        run(compiler, arguments.iter().chain(&["-c".to_string()]), &dir.join("program.o"))?;
        let linked_plugin = plugin.filter(|&plugin| plugin == Plugin::Link).map(|_| plugin_path);
        Ok(Object { compiler, dir, linked_plugin })
    }

    /// Links the program with `library` and returns the executable's path.
    pub fn link(&self, library: &Library, way: Way) -> Result<PathBuf> {
        let executable = self.dir.join(way.name());
        let mut arguments =
            vec!["-pthread".to_string(), self.dir.join("program.o").display().to_string()];
        arguments.extend(self.linked_plugin.iter().map(|path| path.display().to_string()));
        arguments.extend(way.arguments(library));
        run(self.compiler, arguments.iter(), &executable)?;
        Ok(executable)
    }
}

fn run<'a>(
    compiler: &[String],
    arguments: impl Iterator<Item = &'a String>,
    output: &Path,
) -> Result<()> {
    let mut command = Command::new(&compiler[0]);
    command.args(&compiler[1..]).args(arguments).arg("-o").arg(output);
    let run = process::run(&mut command, LIMIT, &output.with_extension("build"), None)?;
    ensure!(run.success(), "does not build: {}", run.describe());
    Ok(())
}
