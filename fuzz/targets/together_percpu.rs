#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ebbmalloc_testkit::fuzz::together_percpu(bytes));
