//! `cargo xtask test`: installs what the steps need, runs them, and prints the counts.

use crate::context::Context;
use crate::tally::Tally;
use crate::{c, cargo, cross, faces, misuse, packages, programs, rust_crate, wheel};
use anyhow::{Error, Result, bail};
use std::collections::BTreeSet;
use std::iter;
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::Instant;

#[derive(clap::Args)]
pub struct Args {
    /// Run only these steps, for example `c,programs`
    #[arg(long, value_delimiter = ',', value_name = "STEPS")]
    only: Vec<String>,
    /// Of the steps `c`, `misuse`, `crate`, `faces` and `programs`, run only tests with this in
    /// their names
    #[arg(long, default_value = "", value_name = "TEXT")]
    matching: String,
    /// Also run what takes minutes and is skipped otherwise
    #[arg(long)]
    long: bool,
    /// List the steps and leave
    #[arg(long)]
    list: bool,
}

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Context) -> Result<Tally>,
    packages: fn(&Context) -> Result<BTreeSet<String>>,
    /// Builds the step's tests, which use packages of other steps, while these are being installed.
    early: Option<fn(&Context) -> Result<()>>,
    /// Needs the C libraries in the release directory.
    release: bool,
    /// Runs beside any other step: it keeps one CPU busy, and disturbs no other.
    aside: bool,
}

/// A step that needs nothing.
const PLAIN: Step = Step {
    name: "",
    about: "",
    run: |_| Ok(Tally::default()),
    packages: |_| Ok(BTreeSet::new()),
    early: None,
    release: false,
    aside: false,
};

const STEPS: &[Step] = &[
    Step {
        name: "unit",
        about: "cargo test of the whole workspace",
        run: cargo::unit,
        early: Some(cargo::build_unit),
        ..PLAIN
    },
    Step {
        name: "loom",
        about: "every interleaving of the lock-free parts, with mutants that must fail",
        run: cargo::loom,
        aside: true,
        ..PLAIN
    },
    Step {
        name: "miri",
        about: "the engine on a fake operating system under Miri",
        run: cargo::miri,
        aside: true,
        ..PLAIN
    },
    Step {
        name: "c",
        about: "C and C++ programs that hold the library to its contract (tests/c)",
        run: c::run,
        packages: |context| Ok(c::packages_of(&c::programs(&context.root, &context.filter)?)),
        release: true,
        ..PLAIN
    },
    Step {
        name: "misuse",
        about: "programs that misuse the library end as declared (tests/misuse)",
        run: misuse::step::run,
        packages: misuse::step::needed,
        release: true,
        ..PLAIN
    },
    Step {
        name: "musl",
        about: "Rust and C programs on another C library, static and dynamic",
        run: cross::musl,
        packages: cross::musl_packages,
        aside: true,
        ..PLAIN
    },
    Step {
        name: "aarch64",
        about: "the library's tests, Rust and C programs on another architecture, under qemu",
        run: cross::arm,
        packages: cross::arm_packages,
        aside: true,
        ..PLAIN
    },
    Step {
        name: "gvisor",
        about: "Rust and C programs in gVisor, whose kernel has no restartable sequences",
        run: cross::gvisor,
        packages: cross::gvisor_packages,
        release: true,
        aside: true,
        ..PLAIN
    },
    Step {
        name: "crate",
        about: "ebbmalloc as users of Rust get it: from the package, for each target",
        run: rust_crate::run,
        aside: true,
        ..PLAIN
    },
    Step {
        name: "faces",
        about: "ebbmalloc as users of C, C++ and Zig get it: installed, or fetched",
        run: faces::run,
        packages: faces::packages,
        release: true,
        ..PLAIN
    },
    Step {
        name: "programs",
        about: "real programs with the library preloaded (tests/programs)",
        run: programs::run,
        packages: |context| {
            let scripts = programs::scripts(&context.root, &context.filter)?;
            Ok(programs::packages_of(&scripts, context))
        },
        release: true,
        ..PLAIN
    },
    Step {
        name: "wheel",
        about: "the Python wheel, built, installed and used (python/tests)",
        run: wheel::test,
        packages: |_| Ok(wheel::packages()),
        release: true,
        aside: true,
        ..PLAIN
    },
];

/// Returns whether every test that ran passed.
pub fn run(args: &Args) -> Result<bool> {
    if args.list {
        for step in STEPS {
            println!("{:10}{}", step.name, step.about);
        }
        return Ok(true);
    }
    let steps = selected(&args.only)?;
    let context = Context { long: args.long, ..Context::find(&args.matching)? };

    let start = Instant::now();
    let mut wanted = BTreeSet::new();
    for step in &steps {
        wanted.extend((step.packages)(&context)?);
    }
    let installed = LazyLock::new(|| packages::install(&wanted));
    // Built when the first step needs it: the end of the build keeps one CPU busy.
    let release = LazyLock::new(|| match context.library.is_ours() {
        true => cargo::build_libraries(&context.root).map_err(|error| format!("{error:#}")),
        false => Ok(()),
    });

    let (aside, others): (Vec<_>, Vec<_>) = steps.iter().partition(|step| step.aside);
    // Two threads run steps. One that has nothing else to do takes the next of those aside.
    let aside = Mutex::new(aside.into_iter());
    let next_aside = || aside.lock().expect("a step panicked").next();
    let ready = |step: &Step| -> Result<()> {
        step.early.map_or(Ok(()), |early| early(&context))?;
        if step.early.is_some() || !(step.packages)(&context)?.is_empty() {
            LazyLock::force(&installed);
        }
        if step.release { (*release).clone().map_err(Error::msg) } else { Ok(()) }
    };
    let run = |step: &&Step| run_step(step, &context, &ready);
    let (beside, others) = thread::scope(|scope| {
        scope.spawn(|| LazyLock::force(&installed));
        let beside = scope.spawn(|| iter::from_fn(next_aside).map(run).collect::<Vec<_>>());
        let others = others.into_iter().chain(iter::from_fn(next_aside)).map(run);
        let others: Vec<_> = others.collect();
        (beside.join().expect("a step panicked"), others)
    });
    let (mut summary, mut total) = (Vec::new(), Tally::default());
    for (line, tally) in others.into_iter().chain(beside) {
        summary.push(line);
        total += tally;
    }
    println!("\n{}\nin {:.1} s altogether", summary.join("\n"), start.elapsed().as_secs_f64());
    println!("{total}");
    if total == Tally::default() {
        bail!("no test ran: nothing in these steps has `{}` in its name", args.matching);
    }
    Ok(total.failed == 0)
}

/// Makes a step ready and runs it. Returns the result, in words and as counts.
fn run_step(
    step: &Step,
    context: &Context,
    ready: &dyn Fn(&Step) -> Result<()>,
) -> (String, Tally) {
    println!("{}: {}", step.name, step.about);
    let start = Instant::now();
    let tally = ready(step).and_then(|()| (step.run)(context)).unwrap_or_else(|error| {
        let mut tally = Tally::default();
        tally.fail(step.name, format!("{error:#}"));
        tally
    });
    let seconds = start.elapsed().as_secs_f64();
    println!("{}: {tally}, {seconds:.1} s", step.name);
    (format!("{:10}{tally}, {seconds:.1} s", step.name), tally)
}

/// Returns the steps named in `only`, in their own order; all of them if it is empty.
fn selected(only: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|step| step.name != *name)) {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        bail!("there is no step `{unknown}` (there are: {})", known.join(", "));
    }
    Ok(STEPS
        .iter()
        .filter(|step| only.is_empty() || only.iter().any(|name| name == step.name))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_selected_by_name() {
        let names = |only: &[&str]| -> Result<Vec<&str>> {
            let only: Vec<String> = only.iter().map(|name| name.to_string()).collect();
            Ok(selected(&only)?.iter().map(|step| step.name).collect())
        };
        assert_eq!(
            names(&[]).unwrap(),
            [
                "unit", "loom", "miri", "c", "misuse", "musl", "aarch64", "gvisor", "crate",
                "faces", "programs", "wheel"
            ]
        );
        assert_eq!(names(&["programs", "unit"]).unwrap(), ["unit", "programs"]);
        assert!(names(&["fuzz"]).is_err());
    }
}
