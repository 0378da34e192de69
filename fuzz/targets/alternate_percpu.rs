//! Runs the testkit's fuzz target `alternate_percpu` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ebbmalloc_testkit::fuzz::alternate_percpu(bytes));
