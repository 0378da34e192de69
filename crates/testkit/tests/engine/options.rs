//! Tests how options are read: from the environment and from the program's code. Nothing that was
//! set is ignored in silence.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ebbmalloc::internals::Engine;
use ebbmalloc_testkit::FakeOs;

fn started(os: FakeOs) -> Engine<FakeOs> {
    let engine = Engine::new(os);
    assert!(engine.start());
    engine
}

fn printed(os: FakeOs) -> String {
    started(os).os().printed()
}

/// The last words of an engine that does not start.
fn last_words(os: FakeOs) -> String {
    let engine = Engine::new(os);
    let result = catch_unwind(AssertUnwindSafe(|| engine.start()));
    *result.expect_err("the engine started").downcast().expect("no text")
}

fn set(name: &'static str, value: &'static str) -> FakeOs {
    FakeOs::default().cpus(1).environment(name, value)
}

fn code(options: &'static str) -> FakeOs {
    FakeOs::default().cpus(1).options_in_code(options)
}

fn limit_mib(os: FakeOs) -> u64 {
    started(os).stats().limit_bytes.next_multiple_of(1 << 20) >> 20
}

#[test]
fn a_name_that_does_not_exist_is_told_once_with_the_nearest() {
    let engine = started(set("EBB_LIMT", "64M"));
    let told = "ebbmalloc: EBB_LIMT is no option and ignored; the nearest is EBB_LIMIT; \
                docs/options.md has all\n";
    assert_eq!(engine.os().printed(), told);
    assert!(!engine.alloc(100).is_null() && engine.start());
    assert_eq!(engine.os().printed(), told);
    assert!(printed(set("EBB_HARDENED", "1")).contains("nearest is EBB_HARDEN;"));
    assert!(printed(set("EBB_limit", "1G")).contains("EBB_limit is no option"));
    let long = "EBB_A_NAME_THAT_IS_LONGER_THAN_ANY_NAME_OF_AN_OPTION";
    assert!(printed(set(long, "1")).contains(&format!("{long} is no option")));
}

#[test]
fn other_programs_variables_are_not_told() {
    for name in ["EBB_LIBRARY", "EBB_BLESS", "EBB_TEST_ROUNDS", "EBB_FUZZ_SEED", "EBBS", "EBB"] {
        assert_eq!(printed(set(name, "x")), "", "{name}");
    }
}

#[test]
fn switches_have_several_words() {
    for on in ["1", "on", "true", "YES"] {
        assert_eq!(started(set("EBB_HARDEN", on)).stats().choice.care, "harden", "{on}");
    }
    for off in ["0", "off", "False", "no", ""] {
        let engine = started(set("EBB_HARDEN", off));
        assert_eq!((engine.stats().choice.care, engine.os().printed()), ("", String::new()));
        assert_eq!(limit_mib(set("EBB_LIMIT", off)), 0);
    }
    assert_eq!(printed(set("EBB_HUGE", "off").environment("EBB_SCAVENGER", "no")), "");
}

#[test]
fn a_program_does_not_start_without_the_safety_that_it_was_to_have() {
    for (name, value) in [
        ("EBB_LIMIT", "much"),
        ("EBB_LIMIT", "on"),
        ("EBB_LIMIT", "50"),
        ("EBB_HARDEN", "2"),
        ("EBB_HARDEN", "enabled"),
        ("EBB_CHECK", "all"),
        ("EBB_SAMPLE", "on"),
        ("EBB_SAMPLE", "1/1000"),
    ] {
        let said = last_words(set(name, value));
        let expected = format!(
            "exit 78: ebbmalloc: {name}={value} is not understood, so the program does not start; \
             use "
        );
        assert!(said.starts_with(&expected), "{said}");
    }
    // Other options only lose their effect.
    assert!(printed(set("EBB_HUGE", "much")).contains("EBB_HUGE=much is not understood and"));
}

#[test]
fn a_share_of_an_unknown_amount_is_no_limit() {
    let said = last_words(set("EBB_LIMIT", "50%"));
    assert!(said.starts_with("exit 78: ebbmalloc: EBB_LIMIT is a share"), "{said}");
}

#[test]
fn code_sets_options_and_the_environment_has_the_last_word() {
    assert_eq!(limit_mib(code("limit=64M")), 64);
    assert_eq!(limit_mib(code("limit=64M").environment("EBB_LIMIT", "32M")), 32);
    assert_eq!(limit_mib(code("limit=64M").environment("EBB_LIMIT", "")), 0);
    let both = started(code(" limit=64M, harden ,huge=never"));
    assert_eq!((both.stats().choice.care, both.stats().limit_bytes >> 20), ("harden", 63));
    assert_eq!(both.os().printed(), "");
}

#[test]
fn what_code_fixes_stays() {
    let engine = started(code("limit=64M,fixed").environment("EBB_LIMIT", "32M"));
    assert_eq!(engine.stats().limit_bytes >> 20, 63);
    let told = "EBB_LIMIT=32M is ignored: the program has fixed this option";
    assert!(engine.os().printed().contains(told), "{}", engine.os().printed());
    // Other options are the environment's as ever.
    let engine = started(code("limit=64M,fixed").environment("EBB_HARDEN", "1"));
    assert_eq!((engine.stats().choice.care, engine.os().printed()), ("harden", String::new()));
}

#[test]
fn mistakes_in_code_are_told() {
    let said = printed(code("limits=64M"));
    assert!(said.contains("ebb_options: limits is no option and ignored"), "{said}");
    assert!(said.contains("the nearest is ebb_options: limit;"), "{said}");
    assert!(printed(code("LIMIT=64M")).contains("is no option"));
    let said = last_words(code("limit=64X"));
    assert!(said.contains("ebb_options: limit=64X is not understood, so the program"), "{said}");
}

#[test]
fn options_that_exclude_each_other_are_told() {
    for (one, other, told) in [
        ("EBB_CHECK", "EBB_HARDEN", "EBB_HARDEN is ignored because EBB_CHECK is set"),
        ("EBB_CHECK", "EBB_SAMPLE", "EBB_SAMPLE is ignored because EBB_CHECK is set"),
        ("EBB_HARDEN", "EBB_SAMPLE", "EBB_SAMPLE is ignored because EBB_HARDEN is set"),
    ] {
        let said = printed(set(one, "1").environment(other, "1"));
        assert!(said.contains(told) && said.lines().count() == 1, "{said}");
    }
    let said = printed(set("EBB_HARDEN", "1").environment("EBB_HUGE", "always"));
    assert!(said.contains("EBB_HUGE is ignored because EBB_HARDEN is set"), "{said}");
    assert_eq!(printed(set("EBB_HARDEN", "1").environment("EBB_HUGE", "never")), "");
    let said = printed(set("EBB_HUGE", "always").no_huge_pages());
    assert!(said.contains("EBB_HUGE=always is not possible: the system has none"), "{said}");
    assert_eq!(printed(set("EBB_HUGE", "auto").no_huge_pages()), "");
}

#[test]
fn the_first_refusal_is_told_and_all_are_counted() {
    for care in ["EBB_MODE", "EBB_CHECK", "EBB_HARDEN"] {
        let value = if care == "EBB_MODE" { "slot" } else { "1" };
        let os = set("EBB_LIMIT", "32M").environment(care, value).space(64 << 20);
        let engine = started(os);
        // No process can have that, so the program expects the refusal.
        assert!(engine.alloc(usize::MAX >> 1).is_null());
        assert_eq!((engine.stats().refusals, engine.os().printed()), (1, String::new()));
        for _ in 0..3 {
            assert!(engine.alloc(40 << 20).is_null());
        }
        assert_eq!(engine.stats().refusals, 4);
        let said = engine.os().printed();
        let told = "ebbmalloc: refused 41943040 bytes: EBB_LIMIT allows 3";
        assert!(said.starts_with(told) && said.lines().count() == 1, "{said}");
    }
}

/// A block may fit under the limit where the span or run that it needs does not.
#[test]
fn a_limit_that_the_span_of_a_block_does_not_fit_is_told() {
    for care in ["EBB_MODE", "EBB_CHECK", "EBB_HARDEN"] {
        let value = if care == "EBB_MODE" { "slot" } else { "1" };
        for size in [16, 50_000, 100_000] {
            let engine = started(set("EBB_LIMIT", "4M").environment(care, value));
            while !engine.alloc(size).is_null() {}
            let said = engine.os().printed();
            let told = format!("ebbmalloc: refused {size} bytes: EBB_LIMIT allows ");
            assert!(said.starts_with(&told) && said.lines().count() == 1, "{care}: {said}");
        }
    }
}

#[test]
fn a_heap_refuses_in_silence() {
    let engine = started(FakeOs::default().cpus(1));
    let heap = engine.new_heap(1 << 20).unwrap();
    assert!(engine.heap_alloc(heap, 2 << 20, 16, "test").is_null());
    assert_eq!((engine.stats().refusals, engine.os().printed()), (1, String::new()));
}

#[test]
fn memory_that_is_short_is_told_where_the_user_asked_for_texts() {
    let short = || FakeOs::default().cpus(1).space(12 << 20);
    for (os, is_told) in [
        (short(), false),
        (short().environment("EBB_HUGE", "never"), false),
        (short().environment("EBB_EXPLAIN", "1"), true),
        (short().environment("EBB_STATS", "1"), true),
    ] {
        let engine = started(os);
        while !engine.alloc(1 << 20).is_null() {}
        let said = engine.os().printed();
        assert_eq!(said.contains("refused 1048576 bytes: memory is short"), is_told, "{said}");
        assert_eq!(engine.stats().refusals, 1);
    }
}
