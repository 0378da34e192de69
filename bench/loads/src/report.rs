//! Prints the figures of a load for the suite, by name, on one line of JSON.
//!
//! The suite knows `time_s` (instead of the whole process's time) and `peak_kib` (instead of the
//! kernel's). Less is better for every figure. `series` is resident and live memory over time.

use serde_json::{Map, Value, json};

#[derive(Default)]
pub struct Report(Map<String, Value>);

impl Report {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn figure(mut self, name: &str, value: f64) -> Self {
        self.0.insert(name.into(), json!(value));
        self
    }

    /// Adds points of seconds, resident KiB, live KiB.
    pub fn series(mut self, points: &[(f64, f64, f64)]) -> Self {
        self.0.insert("series".into(), json!(points));
        self
    }

    pub fn print(self) {
        println!("{}", Value::Object(self.0));
    }
}
