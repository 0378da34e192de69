//! Tests C and C++ with an installed tree: plain compilers, pkg-config, CMake, and other projects'
//! programs.

use super::shared::{fresh, served, text};
use crate::context::Context;
use crate::install::Tree;
use crate::process::{self, last_lines};
use crate::tally::Tally;
use crate::{cargo, deb, object, packages, pool};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const LONG_LIMIT: Duration = Duration::from_secs(1800);

pub struct Check {
    pub name: &'static str,
    /// Debian packages.
    pub packages: &'static [&'static str],
    /// A script for `sh -e` in an empty directory. `$P` is the installed tree, `$E` has the
    /// examples, `$L` is `tests/linking`, `$S` is `tests/shims`,
    /// `$CARGO` is cargo.
    script: &'static str,
    /// Number of programs that print which allocator serves them.
    programs: usize,
    /// Whether only `--long` runs it.
    pub long: bool,
}

/// A check for every run.
const SHORT: Check = Check { name: "", packages: &[], script: "", programs: 0, long: false };

pub const CHECKS: &[Check] = &[
    Check {
        name: "preload",
        packages: &["gcc", "g++"],
        script: r#"cc "$E/hello.c" -o c; c++ "$E/hello.cpp" -o cpp
            for program in ./c ./cpp; do
                LD_PRELOAD="$P/lib/libebbmalloc.so" $program; "$P/bin/ebb" run -- $program
            done"#,
        programs: 4,
        ..SHORT
    },
    Check {
        name: "link",
        packages: &["gcc", "g++"],
        script: r#"c++ "$E/hello.cpp" -o shared -L"$P/lib" -lebbmalloc -Wl,-rpath,"$P/lib"
            c++ "$E/hello.cpp" -o static "$P/lib/libebbmalloc.a"
            cc "$E/calls.c" -I"$P/include" -o calls "$P/lib/ebbmalloc.o"
            ./shared; ./static; ./calls
            # By the soname, which stays the same until the next incompatible version.
            ldd shared | grep -q "libebbmalloc.so.0 => $P/lib/""#,
        programs: 3,
        ..SHORT
    },
    Check {
        name: "object",
        packages: &["gcc", "g++"],
        script: r#"cc -o plain "$P/lib/ebbmalloc.o" "$E/hello.c"
            c++ -o whole -static "$P/lib/ebbmalloc.o" "$E/hello.cpp"
            c++ -o movable -static-pie "$P/lib/ebbmalloc.o" "$E/hello.cpp"
            ./plain; ./whole; ./movable"#,
        programs: 3,
        ..SHORT
    },
    Check {
        name: "pkg-config",
        packages: &["gcc", "g++", "make", "pkg-config"],
        script: r#"export PKG_CONFIG_PATH="$P/lib/pkgconfig"
            cp "$E"/* .; make; ./shared; ./object; ./sized; ./calls
            pkg-config --exact-version=0.1.0 ebbmalloc
            # A program that names nothing of it, where linkers drop unnamed libraries.
            echo 'int main(void) { return 0; }' > empty.c
            cc -Wl,--as-needed empty.c -o empty $(pkg-config --libs ebbmalloc) -Wl,-rpath,"$P/lib"
            EBB_STATS=1 ./empty 2>&1 | grep '^ebbmalloc: 0.1.0 mode '"#,
        programs: 4,
        ..SHORT
    },
    Check {
        name: "cmake",
        packages: &["gcc", "g++", "make", "cmake"],
        script: r#"cmake -S "$E" -B . -DCMAKE_PREFIX_PATH="$P"; make
            ./shared; ./static; ./object; ./sized; ./calls
            # Another version must be refused.
            sed 's/ebbmalloc 0.1/ebbmalloc 0.2/' "$E/CMakeLists.txt" > "$PWD/CMakeLists.txt"
            if cmake -S . -B other -DCMAKE_PREFIX_PATH="$P"; then exit 1; fi"#,
        programs: 5,
        ..SHORT
    },
    Check {
        name: "cmake by static libraries",
        packages: &["gcc", "make", "cmake", "mold"],
        script: r#"for linker in bfd mold; do
                cmake -S "$L/nested" -B $linker -DCMAKE_PREFIX_PATH="$P" -DEXAMPLES="$E" \
                    -DCMAKE_EXE_LINKER_FLAGS="-B/usr/libexec/mold -fuse-ld=$linker"
                make -C $linker
                for program in $linker/*_PUBLIC $linker/*_PRIVATE $linker/*_both; do $program; done
                $linker/object_whole
                for program in $linker/*_bare; do
                    EBB_STATS=1 $program 2>&1 | grep '^ebbmalloc: 0.1.0 mode '
                    if readelf -d $program | grep 'libm\.so'; then exit 1; fi
                done
            done"#,
        programs: 20,
        ..SHORT
    },
    Check {
        name: "link-time optimization",
        packages: &["gcc", "clang"],
        script: concat!("LINKERS='bfd gold'\n", include_str!("../../../tests/linking/linkers.sh")),
        programs: 2,
        ..SHORT
    },
    Check {
        name: "link-time optimization by lld",
        packages: &["gcc", "clang", "lld"],
        script: concat!("LINKERS=lld\n", include_str!("../../../tests/linking/linkers.sh")),
        programs: 1,
        ..SHORT
    },
    Check {
        name: "link-time optimization by mold",
        packages: &["gcc", "clang", "mold"],
        script: concat!("LINKERS=mold\n", include_str!("../../../tests/linking/linkers.sh")),
        programs: 1,
        ..SHORT
    },
    Check {
        name: "sanitizers of gcc",
        packages: &["gcc"],
        script: concat!(
            "COMPILER=gcc SANITIZERS='address thread'\n",
            include_str!("../../../tests/linking/sanitizers.sh")
        ),
        programs: 1,
        ..SHORT
    },
    Check {
        name: "sanitizers of clang",
        packages: &["clang", "libclang-rt-dev"],
        script: concat!(
            "COMPILER=clang SANITIZERS='address thread memory'\n",
            include_str!("../../../tests/linking/sanitizers.sh")
        ),
        programs: 1,
        ..SHORT
    },
    Check {
        name: "sized delete",
        packages: &["g++"],
        script: r#"for standard in c++11 c++14 c++17 c++20 "c++20 -fno-exceptions"; do
                c++ -std=$standard -Wall -Wextra -Werror -I"$P/include" -c "$E/new.cpp" -o new.o
            done
            c++ -std=c++17 -I"$P/include" "$E/hello.cpp" "$E/new.cpp" -o sized "$P/lib/ebbmalloc.o"
            c++ -std=c++17 -I"$P/include" "$E/hello.cpp" "$E/new.cpp" -o shared \
                -L"$P/lib" -lebbmalloc -Wl,-rpath,"$P/lib"
            for program in ./sized ./shared; do
                $program; EBB_STATS=1 $program; EBB_CHECK=1 $program
            done
            # Every form of new and delete, with memory that is short and handlers that throw.
            for test in new_forms new_handler bad_alloc; do
                c++ -std=c++17 -I"$P/include" "$E/../../tests/c/$test.cpp" "$E/new.cpp" \
                    -o $test "$P/lib/ebbmalloc.o"
                (ulimit -v 262144; EBB_STATS=1 ./$test)
            done
            # Deleting by a base class is wrong where sizes are relied upon; it is found.
            cat > bases.cpp <<'END'
            #include <cstring>
            struct Base { char bytes[16]; ~Base() {} };
            struct Derived : Base { char more[1000]; };
            struct alignas(64) AlignedBase { char bytes[64]; ~AlignedBase() {} };
            struct AlignedDerived : AlignedBase { char more[1000]; };
            int main(int, char **arguments) {
                const char *form = arguments[1];
                if (!strcmp(form, "one")) { Base *block = new Derived; delete block; }
                if (!strcmp(form, "array")) { Base *blocks = new Derived[2]; delete[] blocks; }
                if (!strcmp(form, "aligned")) {
                    AlignedBase *block = new AlignedDerived;
                    delete block;
                }
                if (!strcmp(form, "aligned array")) {
                    AlignedBase *blocks = new AlignedDerived[2];
                    delete[] blocks;
                }
            }
END
            c++ -std=c++17 bases.cpp -o looks "$P/lib/ebbmalloc.o"
            c++ -std=c++17 -I"$P/include" bases.cpp "$E/new.cpp" -o relies "$P/lib/ebbmalloc.o"
            for form in one array aligned "aligned array"; do
                EBB_STATS=1 ./looks "$form"
                if EBB_STATS=1 ./relies "$form" 2> said; then exit 1; fi
                grep '^ebbmalloc: wrong size: ' said
            done"#,
        programs: 6,
        ..SHORT
    },
    Check {
        name: "embedded in Lua and SQLite",
        packages: &["gcc", "liblua5.4-dev", "libsqlite3-dev"],
        script: r#"cc -O1 -I/usr/include/lua5.4 -o embed "$P/lib/ebbmalloc.o" "$E/embed.c" \
                -static -llua5.4 -lsqlite3 -lm
            ./embed > printed; cat printed
            grep -qx 'Lua: 1088889 bytes of words' printed
            grep -qx 'SQLite: 10000 words, 20000 in all' printed"#,
        programs: 1,
        ..SHORT
    },
    Check {
        name: "jemalloc's functions",
        packages: &["gcc", "g++", "pkg-config"],
        script: concat!(
            "SHIM=jemalloc HEADER=jemalloc/jemalloc.h\n",
            include_str!("../../../tests/shims/contract.sh")
        ),
        programs: 7,
        ..SHORT
    },
    Check {
        name: "mimalloc's functions",
        packages: &["gcc", "g++", "pkg-config"],
        script: concat!(
            "SHIM=mimalloc HEADER=mimalloc.h\n",
            include_str!("../../../tests/shims/contract.sh")
        ),
        programs: 7,
        ..SHORT
    },
    Check {
        name: "mimalloc's functions in C++",
        packages: &["g++", "pkg-config"],
        script: include_str!("../../../tests/shims/mimalloc.sh"),
        programs: 2,
        ..SHORT
    },
    Check {
        name: "mimalloc's functions in its own tests",
        packages: &["gcc", "pkg-config"],
        script: include_str!("../../../tests/shims/mimalloc-own.sh"),
        programs: 1,
        long: true,
    },
    Check {
        name: "other allocators' functions in Rust",
        packages: &["gcc"],
        script: include_str!("../../../tests/shims/rust.sh"),
        programs: 2,
        long: true,
    },
    Check {
        name: "jemalloc's functions in redis",
        packages: &["gcc", "make", "pkg-config", "tcl", "procps"],
        script: include_str!("../../../tests/shims/redis.sh"),
        programs: 1,
        long: true,
    },
];

pub fn run(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    if let Some(package) = packages::missing(&["binutils".to_string()]) {
        tally.skip("faces/c", format!("package {package} is not installed"));
        return Ok(tally);
    }
    let dir = fresh(context, "c")?;
    let prefix = dir.join("moved");
    let first = Tree::new(&dir.join("usr"), Path::new("lib"), None)?;
    first.install(&context.root, &context.target, &cargo::build_command(context)?)?;
    // No file of the tree may name the place that it was installed to.
    fs::rename(&first.prefix, &prefix)?;

    tally.count("faces/c header", header(&prefix));
    tally.count("faces/c imports", imports(&prefix));
    let checks: Vec<&Check> =
        CHECKS.iter().filter(|check| check.name.contains(&context.filter)).collect();
    let (later, checks): (Vec<_>, Vec<_>) =
        checks.into_iter().partition(|check| check.long && !context.long);
    for check in later {
        tally.skip(&format!("faces/c {}", check.name), "takes minutes; with --long");
    }
    tally += pool::for_each(&checks, |check| {
        let mut tally = Tally::default();
        let title = format!("faces/c {}", check.name);
        let wanted: Vec<String> = check.packages.iter().map(|name| name.to_string()).collect();
        if let Some(package) = packages::missing(&wanted) {
            tally.skip(&title, format!("package {package} is not installed"));
            return tally;
        }
        tally.count(&title, check.run(context, &dir, &prefix));
        tally
    });
    if "debian packages".contains(&context.filter) {
        tally += deb::test(context, &dir)?;
    }
    Ok(tally)
}

impl Check {
    fn run(&self, context: &Context, dir: &Path, prefix: &Path) -> Result<()> {
        // Neither apt's options in scripts nor other projects' makefiles bear spaces in paths.
        let work = dir.join(self.name.replace(|sign: char| !sign.is_alphanumeric(), "-"));
        fs::create_dir(&work)?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-ec", self.script])
            .current_dir(&work)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("P", prefix)
            .env("E", context.root.join("examples/c"))
            .env("L", context.root.join("tests/linking"))
            .env("S", context.root.join("tests/shims"))
            .envs(
                ["CARGO", "CARGO_HOME", "RUSTUP_HOME", "HOME"]
                    .map(|name| (name, env::var_os(name).unwrap_or_default()))
                    .into_iter()
                    .filter(|(_, value)| !value.is_empty()),
            );
        let limit = if self.long { LONG_LIMIT } else { LIMIT };
        let run = process::run(&mut command, limit, &work.with_extension("log"), None)?;
        ensure!(run.success(), "{}\n{}", run.describe(), last_lines(&run.stdout, 12));
        ensure!(
            served(&run.stdout, self.programs),
            "{} programs should say that ebbmalloc serves them:\n{}",
            self.programs,
            last_lines(&run.stdout, 12)
        );
        Ok(())
    }
}

/// The functions and the version that each came with: what programs built against an older library
/// rely upon.
const SYMBOLS: &str = include_str!("../../../crates/capi/install/symbols");

/// Checks that the header declares exactly the functions that the library exports, and that none of
/// the promised ones is gone.
fn header(prefix: &Path) -> Result<()> {
    let path = prefix.join("include/ebbmalloc.h");
    let declared = declared(&fs::read_to_string(&path).context(text(&path))?);
    let exported = object::exported(&prefix.join("lib/libebbmalloc.so"))?;
    let own: BTreeSet<String> =
        exported.iter().filter(|name| name.starts_with("ebb_")).cloned().collect();
    ensure!(
        declared == own,
        "only declared: {:?}; only exported: {:?}",
        declared.difference(&own).collect::<Vec<_>>(),
        own.difference(&declared).collect::<Vec<_>>()
    );
    let promised: BTreeSet<String> =
        SYMBOLS.lines().filter_map(|line| Some(line.split_once(' ')?.0.into())).collect();
    ensure!(
        promised == own,
        "crates/capi/install/symbols lists {:?}, which are gone, and not {:?}, which are new",
        promised.difference(&own).collect::<Vec<_>>(),
        own.difference(&promised).collect::<Vec<_>>()
    );
    Ok(())
}

/// The functions of the C library that the library calls. Another preloaded library may have
/// replaced any of these by one that allocates. So the engine calls none of them in set-up or with
/// a lock held (`docs/decisions/0034-libraries-in-between.md`). A new one must be examined, and
/// gets a place in `tests/c/interposers.c`, and in `zig/without_libc.zig`.
const IMPORTS: [&str; 22] = [
    "__cxa_atexit",
    "__errno_location",
    "__libc_stack_end",
    "__register_atfork",
    "bzero",
    "environ",
    "fwrite",
    "getauxval",
    "memmove",
    "pthread_attr_destroy",
    "pthread_attr_getstacksize",
    "pthread_attr_init",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_join",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_self",
    "pthread_setcancelstate",
    "pthread_setspecific",
    "sigaction",
    "strlen",
];

fn imports(prefix: &Path) -> Result<()> {
    let imported = object::imported(&prefix.join("lib/libebbmalloc.so"))?;
    let new: Vec<_> = imported.iter().filter(|name| !IMPORTS.contains(&name.as_str())).collect();
    ensure!(new.is_empty(), "the library calls what it did not call before: {new:?}");
    Ok(())
}

/// Returns the functions that a header declares: names that begin with `ebb_`, before a bracket and
/// outside of comments.
fn declared(header: &str) -> BTreeSet<String> {
    let code: String = header
        .split("/*")
        .enumerate()
        .map(
            |(nth, part)| {
                if nth == 0 { part } else { part.split_once("*/").map_or("", |(_, rest)| rest) }
            },
        )
        .collect();
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(')
        .filter_map(|word| word.split_once('(').map(|(name, _)| name))
        .filter(|name| name.starts_with("ebb_"))
        .map(str::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_found_and_comments_are_not() {
        let header = "/* ebb_no(1) */\nvoid *ebb_one(size_t n);\nint ebb_two(void); \
                      /* ebb_three(x) */\nenum { EBB };";
        assert_eq!(declared(header).into_iter().collect::<Vec<_>>(), ["ebb_one", "ebb_two"]);
    }
}
