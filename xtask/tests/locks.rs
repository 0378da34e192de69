//! The crates outside of the workspace have lock files of their own, and their commands run with
//! `--locked`. Tests that each of these files has all that our crates need by now.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The folders of these crates.
const FOLDERS: [&str; 3] = ["bench", "examples/extensions", "fuzz"];

#[test]
fn lock_files_outside_of_the_workspace_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's root");
    let needs = needs_of_crates(root);
    let mut found = 0;
    for folder in FOLDERS {
        let lock = fs::read_to_string(root.join(folder).join("Cargo.lock")).expect("a lock file");
        for package in lock.split("[[package]]\n").filter(|text| !text.contains("\nsource = ")) {
            let name = package.strip_prefix("name = \"").and_then(|rest| rest.split('"').next());
            for need in name.and_then(|name| needs.get(name)).into_iter().flatten() {
                found += 1;
                // Where two versions are there, the version follows the name.
                let has = [format!("\n \"{need}\","), format!("\n \"{need} ")];
                let is_there = has.iter().any(|text| package.contains(text));
                assert!(is_there, "{folder}/Cargo.lock lacks {need}: run `cargo check` there");
            }
        }
    }
    assert!(found > 10, "only {found} dependencies compared");
}

/// The names of what each crate of the workspace always needs, by the crate's name.
fn needs_of_crates(root: &Path) -> BTreeMap<String, Vec<String>> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root)
        .output()
        .expect("cargo");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let always = |need: &Value| need["kind"] != "dev" && need["optional"] == false;
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let needs = list(&package["dependencies"]);
            let needs = needs.iter().filter(|need| always(need)).map(|need| text(&need["name"]));
            (text(&package["name"]), needs.collect())
        })
        .collect()
}
