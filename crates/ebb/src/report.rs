//! Prints the result of a comparison for people.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use console::{Style, Term};

use crate::metrics::{METRICS, Scale};
use crate::result::{Allocator, Findings, Measured};
use crate::stats::Verdict;

/// Text is no wider than this, however wide the terminal.
const WIDTH: usize = 100;

/// The table, the verdicts and the notes.
pub fn text(findings: &Findings) -> String {
    let width = Term::stdout()
        .size_checked()
        .map_or(80, |(_, columns)| usize::from(columns))
        .clamp(40, WIDTH);
    let bold = Style::new().bold();
    let dim = Style::new().dim();
    let paragraph = |text: &str| textwrap::fill(text, width);
    let mut lines = Vec::new();

    let program = findings.program.join(" ").replace('\n', " ");
    lines.push(bold.apply_to(console::truncate_str(&program, width, "…")).to_string());
    let warmup = match findings.warmup {
        0 => String::new(),
        1 => ", after 1 warm-up".into(),
        more => format!(", after {more} warm-ups"),
    };
    let runs = if findings.runs == 1 { "1 run".into() } else { format!("{} runs", findings.runs) };
    let facts = format!("{runs} on each allocator in turn{warmup}\n");
    lines.push(dim.apply_to(facts).to_string());
    lines.push(table(&findings.allocators).trim_fmt() + "\n");

    for failure in &findings.failures {
        let failure = paragraph(&format!("FAILED: {failure}"));
        lines.push(Style::new().red().bold().apply_to(failure).to_string());
    }
    let name_width =
        findings.allocators.iter().map(|allocator| allocator.name.len()).max().unwrap_or(0);
    for allocator in &findings.allocators {
        if let Some(verdict) = &allocator.verdict {
            let name = format!("{:name_width$}  ", allocator.name);
            let indent = " ".repeat(name_width + 2);
            let options =
                textwrap::Options::new(width).initial_indent(&name).subsequent_indent(&indent);
            lines.push(bold.apply_to(textwrap::fill(verdict, options)).to_string());
        }
    }
    lines.push(dim.apply_to(paragraph(&findings.foundation)).to_string());
    for note in &findings.notes {
        let options =
            textwrap::Options::new(width).initial_indent("Note: ").subsequent_indent("      ");
        lines.push(format!("\n{}", textwrap::fill(note, options)));
    }
    lines.join("\n") + "\n"
}

fn table(allocators: &[Allocator]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let heading = |text: &str| dim(right(text));
    table.set_header([
        heading(""),
        heading(""),
        heading("median"),
        heading("min … max"),
        heading("ratio"),
        heading("interval"),
    ]);
    for metric in &METRICS {
        let measured = || {
            allocators
                .iter()
                .filter_map(|allocator| Some((allocator, allocator.metrics.get(metric.key)?)))
        };
        let largest = measured().map(|(_, measured)| measured.summary.median).fold(0.0, f64::max);
        if largest == 0.0 {
            continue;
        }
        let scale = Scale::new(metric.unit, largest);
        for (index, (allocator, measured)) in measured().enumerate() {
            table.add_row(row(
                if index == 0 { metric.label } else { "" },
                &allocator.name,
                measured,
                &scale,
            ));
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

fn right(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn dim(cell: Cell) -> Cell {
    cell.add_attribute(Attribute::Dim)
}

fn row(label: &str, name: &str, measured: &Measured, scale: &Scale) -> [Cell; 6] {
    let summary = &measured.summary;
    let range = format!("{} … {}", scale.number(summary.min), scale.number(summary.max));
    let (ratio, interval) = match &measured.comparison {
        None => (Cell::new(""), String::new()),
        Some(comparison) => {
            let cell = right(&format!("{:.2}", comparison.ratio));
            let cell = match comparison.verdict {
                Verdict::Less => cell.fg(Color::Green),
                Verdict::More => cell.fg(Color::Red),
                Verdict::Same | Verdict::TooFewRuns => cell,
            };
            (cell, format!("{:.2} – {:.2}", comparison.low, comparison.high))
        }
    };
    [
        Cell::new(label),
        Cell::new(name),
        right(&scale.show(summary.median)),
        dim(right(&range)),
        ratio,
        dim(right(&interval)),
    ]
}
