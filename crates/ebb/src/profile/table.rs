//! Prints a profile for people: the stacks that hold the most.

use console::{Style, measure_text_width, truncate_str};

use super::data::About;
use super::share::{self, Part};
use super::view::{Measure, View, ViewStack};
use crate::why::text::mib;

/// Columns of a line before its stack.
const BEFORE_STACK: usize = 33;
/// Lines for everything but stacks, two lines a stack.
const OTHER_LINES: usize = 9;

/// The space for the table.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// The program, and how much it holds.
pub fn headline(view: &View, measure: Measure) -> String {
    let About { program, pid, moment, .. } = &view.about;
    let pid = pid.map_or(String::new(), |pid| format!(" (pid {pid})"));
    let program = if program.is_empty() { "profile" } else { program };
    let moment = if moment.is_empty() { String::new() } else { format!(" {moment}") };
    let stacks = view.user_stacks(measure).len();
    let stacks = if stacks == 1 { "1 stack".to_owned() } else { format!("{stacks} stacks") };
    let what = if measure.allocated { "allocated" } else { "live" };
    let now = amount(measure.of(&view.total()), measure);
    match &view.before {
        None => format!("{program}{pid}{moment}: {now} {what}, by {stacks}"),
        Some(_) => {
            let before = amount(measure.of(&view.total_before()), measure);
            format!("{program}{pid}{moment}: {now} {what}, {before} before; {stacks} changed")
        }
    }
}

/// How the numbers came about.
pub fn facts(view: &View) -> String {
    let About { mean_bytes, duration_nanos, .. } = view.about;
    let since = match duration_nanos {
        0 => String::new(),
        nanos => format!(" of the last {}", duration(nanos)),
    };
    let apart = view.before.as_ref().map(|before| view.about.time_nanos - before.time_nanos);
    let apart = match apart.filter(|&nanos| nanos > 0) {
        Some(nanos) => format!("; {} apart", duration(nanos)),
        None => String::new(),
    };
    format!("allocations{since}, one sample in {}{apart}", mib(mean_bytes))
}

/// A span of time for people.
pub fn duration(nanos: i64) -> String {
    let seconds = nanos as f64 / 1e9;
    match seconds {
        ..120.0 => format!("{seconds:.1} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Bytes or objects for people.
pub fn amount(number: f64, measure: Measure) -> String {
    match measure.objects {
        true => format!("{} objects", count(number)),
        false => bytes(number),
    }
}

fn bytes(number: f64) -> String {
    let sign = if number < 0.0 { "-" } else { "" };
    match number.abs() {
        size if size >= 10_240.0 * 1_048_576.0 => {
            format!("{sign}{:.1} GiB", size / 1_073_741_824.0)
        }
        size => format!("{sign}{}", mib(size.round() as u64)),
    }
}

/// A number with its thousands apart.
pub fn count(number: f64) -> String {
    let digits = number.abs().round().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number.round() < 0.0 { format!("-{text}") } else { text }
}

/// The table.
pub fn table(view: &View, measure: Measure, size: Size) -> String {
    let (bold, dim) = (Style::new().bold(), Style::new().dim());
    let cut = |text: &str| truncate_str(text, size.columns, "…").into_owned();
    let mut lines = vec![
        bold.apply_to(cut(&headline(view, measure))).to_string(),
        dim.apply_to(cut(&facts(view))).to_string(),
    ];
    let mut notes = notes(view);
    let stacks = view.user_stacks(measure);
    let share_line = share_line(view, measure);
    let notes_lines: usize =
        notes.iter().chain(&share_line).map(|note| wrapped(note, size.columns).len()).sum();
    let room = size.rows.saturating_sub(OTHER_LINES - 2 + notes_lines).max(4) / 2;
    let (first, what) = match (view.before.is_some(), measure.allocated) {
        (true, _) => ("growth", "now"),
        (false, true) => ("allocated", "share"),
        (false, false) => ("live", "share"),
    };
    let other = if measure.objects { "bytes" } else { "objects" };
    let head = format!("{first:>10} {what:>10} {other:>9}  stack: innermost first");
    lines.extend([String::new(), dim.apply_to(cut(&head)).to_string()]);
    for stack in stacks.iter().take(room) {
        lines.extend(rows(view, stack, measure, size.columns));
    }
    if stacks.is_empty() {
        lines.push("  no stack holds memory that was sampled".into());
    }
    if stacks.len() > room {
        let rest = &stacks[room..];
        let sum: f64 = rest
            .iter()
            .map(|stack| match view.before {
                Some(_) => measure.growth(stack),
                None => measure.of(&stack.now),
            })
            .sum();
        let verb = if view.before.is_some() { "changed by" } else { "hold" };
        lines.push(cut(&format!(
            "{} more stacks {verb} {}; -o FILE.html shows all",
            rest.len(),
            amount(sum, measure)
        )));
    }
    if let Some(share) = share_line {
        notes.insert(0, share);
    }
    for note in notes {
        lines.extend(wrapped(&note, size.columns));
    }
    lines.join("\n") + "\n"
}

fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let options = textwrap::Options::new(columns).initial_indent("• ").subsequent_indent("  ");
    textwrap::wrap(text, options).into_iter().map(|line| line.into_owned()).collect()
}

/// Two lines: the numbers with the innermost user frame, and its callers.
fn rows(view: &View, stack: &ViewStack, measure: Measure, columns: usize) -> Vec<String> {
    let (bold, dim) = (Style::new().bold(), Style::new().dim());
    let (number, second) = match view.before {
        Some(_) => {
            let growth = measure.growth(stack);
            let sign = if growth > 0.0 { "+" } else { "" };
            let now = measure.of(&stack.now);
            (format!("{sign}{}", short_amount(growth, measure)), short_amount(now, measure))
        }
        None => {
            let (own, all) = (measure.of(&stack.now), measure.of(&view.total()));
            let share = 100.0 * own / if all == 0.0 { 1.0 } else { all };
            (short_amount(own, measure), format!("{share:.1} %"))
        }
    };
    let other = Measure { objects: !measure.objects, ..measure };
    let other = match view.before {
        Some(_) => short_amount(other.growth(stack), other),
        None => short_amount(other.of(&stack.now), other),
    };
    let frames = &stack.frames;
    let place = |&id: &usize| view.frames[id].place();
    let first = frames.first().map_or_else(|| "(no stack)".into(), place);
    let width = columns.saturating_sub(BEFORE_STACK).max(16);
    let cut = |text: &str| truncate_str(text, width, "…").into_owned();
    let numbers = format!("{number:>10} {second:>10} {other:>9}");
    let mut lines = vec![format!("{numbers}  {}", bold.apply_to(cut(&first)))];
    let callers = frames.iter().skip(1).map(|&id| view.frames[id].caller());
    let mut text = String::new();
    for caller in callers {
        if measure_text_width(&text) > width {
            break;
        }
        let before = if text.is_empty() { "← " } else { " ← " };
        text = text + before + &caller;
    }
    if !text.is_empty() {
        let indent = " ".repeat(BEFORE_STACK);
        lines.push(format!("{indent}{}", dim.apply_to(cut(&text))));
    }
    lines
}

fn short_amount(number: f64, measure: Measure) -> String {
    if measure.objects { count(number) } else { bytes(number) }
}

/// What a reader must know.
fn notes(view: &View) -> Vec<String> {
    let About { dropped_stacks, dropped_samples, .. } = view.about;
    let mut notes = view.remarks.clone();
    if dropped_stacks > 0 || dropped_samples > 0 {
        notes.push(format!(
            "The tables were full: {dropped_stacks} stacks and {dropped_samples} samples are \
             missing. Sample less often: --mean with a larger number."
        ));
    }
    notes
}

/// How the profile's bytes and resident memory go together.
fn share_line(view: &View, measure: Measure) -> Option<String> {
    let report = view.ledger.as_ref().filter(|_| !measure.allocated)?;
    let parts = share::parts(report, view.total().live.bytes);
    let sum = |wanted: &dyn Fn(&Part) -> bool| -> u64 {
        parts.iter().filter(|part| wanted(part)).map(|part| part.bytes).sum()
    };
    let by_stack = sum(&|part| part.kind == share::Kind::ByStack);
    let in_use = sum(&|part| part.kind == share::Kind::OtherInUse);
    let held = sum(&|part| part.kind == share::Kind::Held);
    let others = sum(&|part| part.kind == share::Kind::Others);
    Some(format!(
        "{} resident: {} in these stacks, {} in use besides, {} free but held, {} not ebbmalloc's. \
         `ebb why` explains",
        mib(report.resident_bytes),
        mib(by_stack),
        mib(in_use),
        mib(held),
        mib(others)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;

    const SIZE: Size = Size { columns: 80, rows: 24 };

    #[test]
    fn the_innermost_user_frame_comes_first() {
        let text = table(&View::of(example::profile()), Measure::default(), SIZE);
        let expected = "\
server (pid 4242): 63.0 MiB live, by 3 stacks
allocations of the last 30.0 s, one sample in 512.0 KiB

      live      share   objects  stack: innermost first
  60.0 MiB     95.2 %    60,000  server::cache::Cache::insert (cache.rs:42)
                                 ← main (main.rs:10)
   2.0 MiB      3.2 %         4  libzip.so+0x1234
                                 ← parse::{closure#0} (parse.rs:7) ← main (main…
   1.0 MiB      1.6 %        10  server::parse::{closure#0} (parse.rs:7)
                                 ← main (main.rs:10)
• The tables were full: 0 stacks and 7 samples are missing. Sample less often:
  --mean with a larger number.
";
        assert_eq!(console::strip_ansi_codes(&text), expected);
    }

    #[test]
    fn growth_and_loss() {
        let view = View::between(&example::earlier(), example::profile());
        let text = table(&view, Measure::default(), SIZE);
        let text = console::strip_ansi_codes(&text);
        assert!(text.contains(": 63.0 MiB live, 26.0 MiB before; 2 stacks changed"), "{text}");
        assert!(text.contains("60.0 s apart"), "{text}");
        assert!(text.contains(" +40.0 MiB   60.0 MiB    40,000  server::cache"), "{text}");
        assert!(text.contains("  -3.0 MiB    1.0 MiB       -30  server::parse"), "{text}");
    }

    #[test]
    fn it_fits() {
        let mut profile = example::profile();
        let stack = profile.stacks[0].clone();
        for location in 0..5 {
            for nth in 0..40 {
                let mut stack = stack.clone();
                stack.locations = vec![location; nth + 3];
                profile.stacks.push(stack);
            }
        }
        profile.remarks =
            vec!["a remark that is long enough to need a second line of text ".repeat(2)];
        let view = View::of(profile);
        for size in [SIZE, Size { columns: 50, rows: 16 }, Size { columns: 200, rows: 60 }] {
            let text = table(&view, Measure::default(), size);
            let text = console::strip_ansi_codes(&text);
            assert!(text.lines().count() < size.rows, "{size:?}: {text}");
            assert!(text.lines().all(|line| measure_text_width(line) <= size.columns), "{text}");
            assert!(text.contains("more stacks hold"), "{text}");
        }
    }

    #[test]
    fn numbers() {
        for (number, text) in
            [(0.0, "0"), (999.0, "999"), (1000.0, "1,000"), (-1234567.0, "-1,234,567")]
        {
            assert_eq!(count(number), text);
        }
        assert_eq!(bytes(-1536.0), "-1.5 KiB");
        assert_eq!(bytes(3e10), "27.9 GiB");
        assert_eq!(duration(1_500_000_000), "1.5 s");
        assert_eq!(duration(600_000_000_000), "10 min");
    }
}
