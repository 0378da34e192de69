//! Prints a report for people.

use console::{Style, Term};

use super::report::Report;

/// Text is no wider than this, however wide the terminal.
const WIDTH: usize = 110;
/// Columns of a line of the ledger, before its chart.
pub const ROW_COLUMNS: usize = 46;
/// The number of size classes in the table: those that hold the most memory.
const CLASSES: usize = 8;

/// Formats bytes for people.
pub fn mib(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64),
    }
}

pub fn width() -> usize {
    Term::stdout()
        .size_checked()
        .map_or(WIDTH, |(_, columns)| usize::from(columns))
        .clamp(50, WIDTH)
}

/// The whole report.
pub fn whole(report: &Report) -> String {
    headline(report) + &ledger(report, None) + &classes(report) + &conclusions(report)
}

/// The part that fits a screen: instead of words, a chart of each line over time.
pub fn brief(report: &Report, picture: &dyn Fn(&str) -> String) -> String {
    headline(report) + &ledger(report, Some(picture)) + &conclusions(report)
}

fn headline(report: &Report) -> String {
    let bold = Style::new().bold();
    let dim = Style::new().dim();
    let heaps: Vec<_> = report
        .heaps
        .iter()
        .map(|heap| {
            let limit = match heap.limit_bytes {
                0 => String::new(),
                bytes => format!(", limit {} (EBB_LIMIT)", mib(bytes)),
            };
            format!("ebbmalloc {}, {} mode{}{limit}", heap.version, heap.mode, care(heap.care))
        })
        .collect();
    let title =
        format!("{} (pid {}): {} resident", report.program, report.pid, mib(report.resident_bytes));
    let swapped = if report.swapped_bytes > 0 {
        format!(", {} more swapped out", mib(report.swapped_bytes))
    } else {
        String::new()
    };
    let off = report.accounted_bytes.abs_diff(report.resident_bytes) as f64 * 100.0
        / report.resident_bytes.max(1) as f64;
    let facts = format!(
        "{}; the lines add up to {} ({off:.1} % off)",
        if heaps.is_empty() { "no ebbmalloc".into() } else { heaps.join(" and ") },
        mib(report.accounted_bytes)
    );
    format!("{}{swapped}\n{}\n\n", bold.apply_to(title), dim.apply_to(facts))
}

/// The remark on a heap in check, harden or sample mode.
fn care(care: &str) -> &'static str {
    match care {
        "check" => ", each block checked (EBB_CHECK)",
        "harden" => ", hardened (EBB_HARDEN)",
        "sample" => ", some blocks sampled (EBB_SAMPLE)",
        _ => "",
    }
}

fn ledger(report: &Report, picture: Option<&dyn Fn(&str) -> String>) -> String {
    let dim = Style::new().dim();
    let mut text = String::new();
    let mut ours = true;
    let indent = " ".repeat(22);
    for line in report.lines.iter().filter(|line| line.bytes > 0) {
        if ours && !line.ebbmalloc {
            text += &format!("{}\n", dim.apply_to("not ebbmalloc's:"));
        }
        ours = line.ebbmalloc;
        let share = 100.0 * line.bytes as f64 / report.resident_bytes.max(1) as f64;
        let row = format!("{:>11} {share:>5.1} %   {:<24}", mib(line.bytes), line.label);
        if let Some(picture) = picture {
            text += &format!("{row}{}\n", picture(line.name));
            continue;
        }
        text += &format!("{}\n", row.trim_end());
        let names: Vec<_> = line
            .largest
            .iter()
            .filter(|name| name.0 != "unnamed")
            .map(|(name, bytes)| format!("{name} {}", mib(*bytes)))
            .collect();
        let names = if names.len() > 1 {
            format!(" Largest: {}.", names.join(", "))
        } else {
            String::new()
        };
        let knob = match line.knob {
            "" => String::new(),
            knob => format!(" To change it: {knob}."),
        };
        let words = format!("{}{names}{knob}", line.meaning);
        let options =
            textwrap::Options::new(width()).initial_indent(&indent).subsequent_indent(&indent);
        text += &format!("{}\n", dim.apply_to(textwrap::fill(&words, options)));
    }
    text + "\n"
}

fn classes(report: &Report) -> String {
    let dim = Style::new().dim();
    let mut rows: Vec<_> = report
        .classes
        .iter()
        .filter(|row| row.live_bytes + row.cached_bytes + row.pinned_bytes > 0)
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.live_bytes + row.cached_bytes + row.pinned_bytes));
    let left = rows.len().saturating_sub(CLASSES);
    rows.truncate(CLASSES);
    if rows.is_empty() {
        return String::new();
    }
    let head = format!(
        "{:>8} {:>8} {:>10} {:>11} {:>11} {:>11} {:>6}",
        "block", "spans", "blocks", "in use", "cached", "pinned", "full"
    );
    let mut text = format!("{}\n", dim.apply_to(head));
    for row in rows {
        let held = row.live_blocks + row.cached_blocks;
        let full =
            100.0 * held as f64 / (held + row.free_blocks + row.held_back_blocks).max(1) as f64;
        text += &format!(
            "{:>8} {:>8} {:>10} {:>11} {:>11} {:>11} {full:>4.0} %\n",
            row.block_bytes,
            row.spans,
            row.live_blocks,
            mib(row.live_bytes),
            mib(row.cached_bytes),
            mib(row.pinned_bytes)
        );
    }
    if left > 0 {
        text += &format!(
            "{}\n",
            dim.apply_to(format!("{left} more size classes hold less; --json has them all"))
        );
    }
    text + "\n"
}

fn conclusions(report: &Report) -> String {
    let bold = Style::new().bold();
    let mut text = String::new();
    for conclusion in &report.conclusions {
        let options = textwrap::Options::new(width()).initial_indent("• ").subsequent_indent("  ");
        text += &format!("{}\n", bold.apply_to(textwrap::fill(conclusion, options)));
    }
    text
}
