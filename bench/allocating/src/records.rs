//! A document of many small values, as servers read and write them.

use std::fmt::Write;

use serde_json::Value;

const ROUNDS: usize = 6;

/// Returns the records that were read, and the bytes that were written.
pub fn run(records: usize) -> usize {
    let text = document(records);
    (0..ROUNDS)
        .map(|_| {
            let value: Value = serde_json::from_str(&text).expect("valid JSON");
            let read = value.as_array().map_or(0, Vec::len);
            read + serde_json::to_string(&value).expect("a value without odd keys").len()
        })
        .sum()
}

fn document(records: usize) -> String {
    let mut text = String::from("[");
    for id in 0..records {
        let comma = if id > 0 { "," } else { "" };
        let (a, b, y) = (id % 100, id % 77, id * 2);
        write!(text, r#"{comma}{{"id":{id},"name":"user {id}","tags":["a{a}","b{b}","c"],"#,)
            .expect("room in a string");
        write!(text, r#""pos":{{"x":{id}.5,"y":{y}}}}}"#).expect("room in a string");
    }
    text + "]"
}
