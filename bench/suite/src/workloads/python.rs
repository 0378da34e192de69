//! Cases with Python: benchmarks of `pyperformance` that need no network, and object graphs that
//! grow and are dropped.
//!
//! Python itself serves requests of up to 512 bytes (pymalloc), which leaves little to malloc.
//! `PYTHONMALLOC=malloc` sends it all of them: the cases that end in `-malloc`.

use std::path::PathBuf;

use anyhow::Result;

use crate::case::{Case, Job};
use crate::kit::Kit;

/// Compiled packages of the versions that `pyperformance` pins, where those fit Debian's Python.
const PACKAGES: [&str; 5] = [
    "pyperformance==1.14.0",
    "pyperf==2.10.0",
    "Mako==1.1.4",
    "SQLAlchemy==1.4.54",
    "html5lib==1.1",
];

struct Benchmark {
    name: &'static str,
    /// Directory of the benchmark, without `bm_`, and its arguments.
    command: &'static str,
    /// Number of repetitions: as many as fit into somewhat under a second.
    loops: u32,
    about: &'static str,
    /// Whether malloc has a relevant share even with pymalloc.
    pymalloc: bool,
}

impl Benchmark {
    const fn new(
        name: &'static str,
        command: &'static str,
        loops: u32,
        about: &'static str,
    ) -> Self {
        Self { name, command, loops, about, pymalloc: false }
    }

    const fn also_pymalloc(self) -> Self {
        Self { pymalloc: true, ..self }
    }
}

const BENCHMARKS: &[Benchmark] = &[
    Benchmark::new("json_dumps", "json_dumps", 15, "objects to JSON").also_pymalloc(),
    Benchmark::new("json_loads", "json_loads", 700, "JSON to objects"),
    Benchmark::new("regex_compile", "regex_compile", 2, "compiling regular expressions"),
    Benchmark::new("regex_effbot", "regex_effbot", 10, "searching with regular expressions"),
    Benchmark::new("pathlib", "pathlib", 12, "listing and comparing paths"),
    Benchmark::new("float", "float", 3, "100,000 objects of three floats"),
    Benchmark::new("mako", "mako", 30, "pages from templates").also_pymalloc(),
    Benchmark::new("unpickle", "pickle unpickle", 1000, "unpickling in C").also_pymalloc(),
    Benchmark::new("pickle_pure", "pickle --pure-python pickle", 50, "pickling in Python"),
    Benchmark::new("xml_etree", "xml_etree", 1, "parsing, changing and writing XML")
        .also_pymalloc(),
    Benchmark::new("deltablue", "deltablue", 80, "a constraint solver's objects"),
    Benchmark::new("nbody", "nbody", 4, "floating-point numbers alone"),
    Benchmark::new("sqlalchemy", "sqlalchemy_imperative", 6, "rows of a database").also_pymalloc(),
    Benchmark::new("html5lib", "html5lib", 4, "parsing a long HTML page"),
];

/// The example with a third of its orders, which takes about a second.
const CHURN: &str = "import churn; churn.ORDERS_A_DAY = 300; churn.main()";

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let python = kit.python("pyperformance", &PACKAGES)?;
    let where_is = "import pyperformance; print(pyperformance.__path__[0])";
    let package = kit.output_of(&python, &["-c", where_is])?;
    let benchmarks = PathBuf::from(package).join("data-files/benchmarks");
    // Without a fixed seed the order of sets, and so the work, differs from run to run. Files on
    // disk cost later runs more.
    let job = Job::new(python).env("PYTHONHASHSEED", "0").env("TMPDIR", "/dev/shm");

    let mut cases = Vec::new();
    for benchmark in BENCHMARKS {
        let mut words = benchmark.command.split(' ');
        let directory = words.next().expect("a benchmark's directory");
        // As a worker it measures in this process, with this environment, and just once.
        let job = job
            .clone()
            .arg(benchmarks.join(format!("bm_{directory}/run_benchmark.py")))
            .args(["--worker", "--values=1", "--warmups=0"])
            .arg(format!("--loops={}", benchmark.loops))
            .args(words);
        cases.extend(both(benchmark.name, benchmark.about, job, benchmark.pymalloc));
    }
    let churn = job
        .env("PYTHONPATH", kit.repository.join("examples"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", CHURN]);
    cases.extend(both("churn", "orders imported, indexed, reported and forgotten", churn, true));
    let mark = |case: Case| if case.name == "python/churn" { case.quick() } else { case };
    Ok(cases.into_iter().map(mark).collect())
}

/// Makes the case without pymalloc, and, where it is worth the time, with it.
fn both(name: &str, about: &str, job: Job, pymalloc: bool) -> Vec<Case> {
    let with = pymalloc.then(|| Case::new(format!("python/{name}"), about, job.clone()));
    let without = Case::new(
        format!("python/{name}-malloc"),
        format!("{about}; all by malloc"),
        job.env("PYTHONMALLOC", "malloc"),
    );
    with.into_iter().chain([without]).collect()
}
