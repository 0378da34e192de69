//! Checks the rules of `docs/style.md` that a program can check: lines of at most 100 columns, no
//! words that leave a reader guessing, documents that stay short, and a glossary in order.

use std::fs;
use std::path::{Path, PathBuf};

const COLUMNS_MAX: usize = 100;
/// The most words of all documents together, and of a decision.
const WORDS_MAX: usize = 45_000;
const DECISION_WORDS_MAX: usize = 250;
/// Files with these endings are checked.
const ENDINGS: [&str; 10] = ["rs", "md", "c", "h", "cpp", "hpp", "py", "pyi", "sh", "zig"];
/// Folders of build outputs, and of other tools.
const SKIPPED: [&str; 6] = ["target", ".git", "node_modules", ".zig-cache", "zig-out", "corpus"];
/// Files that are generated from texts in the source.
const GENERATED: [&str; 5] = [
    "docs/benchmarks/misuse.md",
    "docs/options.md",
    "docs/stats.md",
    "docs/tuning.md",
    "python/src/ebbmalloc/_statistics.py",
];
/// Words that say neither who nor how much.
const IDIOMS: [&str; 9] = [
    "somebody",
    "nobody",
    "anybody",
    "whoever",
    "so many",
    "so much",
    "as above",
    "by and by",
    "lest",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_str()) && !path.is_symlink() {
                files(&path, found);
            }
        } else if ENDINGS.iter().any(|ending| name.ends_with(&format!(".{ending}"))) {
            found.push(path);
        }
    }
}

/// The part of a line that people read as prose: all of a document, the comment of a source.
fn prose<'a>(line: &'a str, ending: &str) -> &'a str {
    match ending {
        "md" => line,
        "py" | "pyi" | "sh" => line.split_once('#').map_or("", |(_, comment)| comment),
        _ => line.split_once("//").map_or("", |(_, comment)| comment),
    }
}

/// What is wrong with a line of a file with this ending.
fn fault(line: &str, ending: &str, is_generated: bool) -> Option<String> {
    let is_table = ending == "md" && line.trim_start().starts_with('|');
    let is_code = ending == "md" && (line.starts_with("    ") || line.starts_with("[target"));
    // What a test program declares is one line for tools.
    let is_setting = ending == "c" && line.starts_with("// ") && line.contains(": ");
    // Configuration of another program, which cannot be broken.
    let is_foreign = line.trim_start().starts_with("http-request ");
    let is_link = line.contains("://");
    let is_exempt = is_table || is_code || is_setting || is_generated || is_foreign || is_link;
    let columns = line.chars().count();
    if columns > COLUMNS_MAX && !is_exempt {
        return Some(format!("{columns} columns"));
    }
    // Names of code are no prose.
    let parts = prose(line, ending).split('`').step_by(2);
    let words = format!(" {} ", parts.collect::<Vec<_>>().join(" ").to_lowercase())
        .replace(|c: char| !c.is_alphanumeric(), " ");
    let idiom = IDIOMS.iter().find(|idiom| words.contains(&format!(" {idiom} ")))?;
    Some(format!("`{idiom}`: say who, or how much"))
}

/// Whether a source begins like a heading, and not with what it does.
fn is_heading(text: &str) -> bool {
    ["What", "How", "Why", "Where"].iter().any(|word| text.starts_with(&format!("//! {word} ")))
}

#[test]
fn files_keep_to_the_rules() {
    let root = root();
    let mut all = Vec::new();
    files(&root, &mut all);
    assert!(all.len() > 300, "only {} files were found", all.len());
    let mut faults = Vec::new();
    for path in all {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        // It says which words these are.
        if ["docs/style.md", "xtask/tests/style.rs"].contains(&name) {
            continue;
        }
        let ending = name.rsplit_once('.').unwrap().1;
        let text = fs::read_to_string(&path).unwrap();
        if is_heading(&text) {
            faults.push(format!("{name}:1: say what the file does"));
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(fault) = fault(line, ending, GENERATED.contains(&name)) {
                faults.push(format!("{name}:{}: {fault}", number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{} lines:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn documents_are_short() {
    let mut all = Vec::new();
    files(&root(), &mut all);
    all.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    let mut total = 0;
    for path in &all {
        let words = fs::read_to_string(path).unwrap().split_whitespace().count();
        total += words;
        let is_decision = path.parent().is_some_and(|folder| folder.ends_with("docs/decisions"));
        let is_long = is_decision && !path.ends_with("README.md") && words > DECISION_WORDS_MAX;
        assert!(!is_long, "{}: {words} words", path.display());
    }
    assert!((10_000..=WORDS_MAX).contains(&total), "{} documents: {total} words", all.len());
}

/// The glossary is in the order of the alphabet, so that a reader finds a word.
#[test]
fn the_glossary_is_sorted() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let (_, glossary) = text.split_once("\n## Glossary\n").expect("a glossary");
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    let words: Vec<_> = rows.map(|row| row.split('|').next().unwrap().to_lowercase()).collect();
    assert!(words.len() > 50, "only {} words were found", words.len());
    assert!(words.is_sorted(), "{words:#?}");
}

/// The files and functions that the walk names exist: `engine/large.rs: large_run`.
#[test]
fn the_walk_names_what_exists() {
    let text = fs::read_to_string(root().join("docs/walk.md")).unwrap();
    let mut names = 0;
    for name in text.split('`').skip(1).step_by(2) {
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        let (file, function) = name.split_once(": ").unwrap_or((&name, ""));
        if !file.ends_with(".rs") {
            continue;
        }
        names += 1;
        let of_root = root().join(file);
        let path =
            if of_root.exists() { of_root } else { root().join("crates/ebbmalloc/src").join(file) };
        let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        // C's functions are declared with both of their names: `fn malloc/ebb_malloc(`.
        let declared = ['(', '<', '/'].map(|after| format!("fn {function}{after}"));
        let exists = declared.iter().any(|declared| source.contains(declared));
        assert!(function.is_empty() || exists, "{name}: no such function");
    }
    assert!(names > 20, "only {names} names were found");
}

/// The pages that registries show: there, relative links lead nowhere.
#[test]
fn pages_of_packages_have_absolute_links() {
    for page in ["crates/ebbmalloc", "crates/ebbmalloc-pprof", "python"] {
        let text = fs::read_to_string(root().join(page).join("README.md")).unwrap();
        for link in text.split("](").skip(1) {
            assert!(link.starts_with("https://"), "{page}/README.md: {link}");
        }
    }
}

#[test]
fn faults_are_seen() {
    let long = "x".repeat(101);
    assert!(fault(&long, "rs", false).is_some());
    assert!(fault(&format!("| {long} |"), "md", false).is_none());
    assert!(fault("// Nobody knows.", "rs", false).is_some());
    assert!(fault("let nobody = 1;", "rs", false).is_none());
    assert!(fault("Frees so many blocks.", "md", false).is_some());
    assert!(is_heading("//! What frees do."));
    assert!(!is_heading("//! Frees blocks."));
    assert!(fault("Frees the molested block.", "md", false).is_none());
}
