//! Writes folded stacks: `outer;inner 123` a line, as flame graph tools read. With an earlier
//! profile the line ends with the earlier and the new number.

use super::view::{Measure, View};

/// The lines, sorted.
pub fn lines(view: &View, measure: Measure) -> Vec<String> {
    let mut lines = Vec::new();
    for stack in &view.stacks {
        let now = measure.of(&stack.now).round() as i64;
        let before = measure.of(&stack.before).round() as i64;
        if now == 0 && before == 0 {
            continue;
        }
        let names = stack.frames.iter().rev().map(|&id| name(&view.frames[id].name));
        let names = names.collect::<Vec<_>>().join(";");
        let names = if names.is_empty() { "(no stack)".into() } else { names };
        lines.push(match view.before {
            Some(_) => format!("{names} {before} {now}"),
            None => format!("{names} {now}"),
        });
    }
    lines.sort();
    lines
}

/// A name without the characters that separate.
fn name(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
}

pub fn write(view: &View, measure: Measure) -> Vec<u8> {
    let mut text = lines(view, measure).join("\n");
    text.push('\n');
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;

    #[test]
    fn outermost_first() {
        let text = write(&View::of(example::profile()), Measure::default());
        let expected = "\
main;server::cache::Cache::insert;alloc::vec::Vec<T,A>::push 62914560
main;server::parse::{closure#0} 1048576
main;server::parse::{closure#0};libzip.so+0x1234 2097152
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn a_difference_has_two_numbers() {
        let view = View::between(&example::earlier(), example::profile());
        let lines = lines(&view, Measure { objects: true, ..Measure::default() });
        assert_eq!(
            lines[0],
            "main;server::cache::Cache::insert;alloc::vec::Vec<T,A>::push 20000 60000"
        );
        assert_eq!(lines[1], "main;server::parse::{closure#0} 40 10");
    }
}
