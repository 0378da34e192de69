//! Tests options that a Rust program sets in its code, and changes while it runs.

use std::env;
use std::mem::size_of;
use std::process::{Command, Output};

use ebbmalloc::{EbbMalloc, Global, HugeChoice, SetError};

#[global_allocator]
static GLOBAL: EbbMalloc = EbbMalloc::new().limit(512 << 20).sample(1000).huge(HugeChoice::Never);

/// The same, which the environment cannot change. Not the program's allocator.
static FIXED: EbbMalloc = EbbMalloc::new().limit_percent(50).harden().fixed();

/// Prints the limit, for the other tests, which start it anew.
#[test]
fn the_limit() {
    println!("limit {}", EbbMalloc::stats().limit_bytes >> 20);
}

fn with(variable: &str, value: &str) -> Output {
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["the_limit", "--exact", "--nocapture"]).env(variable, value).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into()
}

#[test]
fn code_sets_them() {
    let stats = EbbMalloc::stats();
    assert_eq!((stats.limit_bytes >> 20, stats.choice.care), (511, "sample"));
    assert!(format!("{}", stats.choice).contains("(EBB_SAMPLE), limit 5"));
    assert!(format!("{FIXED:?}").contains("Percent(50)"));
}

#[test]
fn the_environment_has_the_last_word() {
    assert!(said(&with("EBB_LIMIT", "256M")).contains("limit 255\n"));
    assert!(said(&with("EBB_LIMIT", "off")).contains("limit 0\n"));
    let refused = with("EBB_LIMIT", "much");
    assert_eq!(refused.status.code(), Some(78), "{}", said(&refused));
    assert!(said(&with("EBB_LIMITS", "1M")).contains("the nearest is EBB_LIMIT;"));
}

#[test]
fn they_change_while_the_program_runs() {
    assert_eq!(EbbMalloc::set("purge_delay", "10s"), Ok(()));
    assert_eq!(EbbMalloc::set("purge_delay", "soon"), Err(SetError::UnknownValue));
    assert_eq!(EbbMalloc::set("delay", "1"), Err(SetError::UnknownName));
    assert_eq!(EbbMalloc::set("mode", "slot"), Err(SetError::OnlyAtStart));
    assert!(SetError::OnlyAtStart.to_string().contains("at start"));
}

/// A container that allocates from it is no larger.
#[test]
fn the_allocator_for_containers_has_no_size() {
    assert_eq!(size_of::<Global>(), 0);
    assert!(size_of::<EbbMalloc>() <= 128, "docs/rust.md says how much");
    let (unit, default, copied): (EbbMalloc, _, _) = (EbbMalloc, EbbMalloc::default(), GLOBAL);
    let _: [EbbMalloc; 3] = [unit, default, copied];
}
