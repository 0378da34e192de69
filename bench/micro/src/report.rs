//! Prints medians, spreads and paired ratios of the workers' results, as Markdown.

use comfy_table::{CellAlignment, Table, presets};

use crate::rows::Row;
use crate::worker::Outcome;
use allocators::Ready;
use allocators::machine;
use ebb::stats::Quartiles;

/// Above this relative spread (interquartile range over median) a cell is noisy.
const NOISY: f64 = 0.10;

/// An allocator in the table.
pub struct Entrant {
    pub ready: Ready,
    /// The version that the allocator itself reports.
    pub version: Option<String>,
    is_peer: bool,
}

impl Entrant {
    pub fn new(ready: Ready, is_peer: bool) -> Entrant {
        Entrant { ready, is_peer, version: None }
    }
}

/// One worker's result.
pub struct Measured {
    pub row: &'static str,
    pub entrant: usize,
    pub round: u32,
    pub outcome: Outcome,
}

/// Selects the figure of a worker that a table shows.
type Value = fn(&Outcome) -> f64;
type Results<'a> = &'a [&'a Measured];

pub struct Report {
    pub rows: Vec<&'static Row>,
    pub entrants: Vec<Entrant>,
    pub measured: Vec<Measured>,
    pub rounds: u32,
    pub seconds: f64,
    /// Show each worker's mean, not its median chunk.
    pub mean: bool,
    /// Load averages when the run began.
    pub load: String,
    pub notes: Vec<String>,
}

impl Report {
    pub fn print(&self) {
        let (time, figure): (Value, _) = match self.mean {
            true => (|o| o.mean_ns, "mean"),
            false => (|o| o.ns, "median chunk"),
        };
        println!(
            "Time, ns per malloc and free: {figure} of {} s, median of {} rounds (spread)\n",
            self.seconds, self.rounds
        );
        println!("{}\n", self.table(time, |results| time_cell(results, time)));
        println!(
            "The spread is the interquartile range over the median; `~` marks more than {:.0} %. \
             Ratios are medians of each round's, with their quartiles; the best peer has the \
             lowest median.\n",
            100.0 * NOISY
        );
        println!("Memory, resident MiB: peak (after everything was freed)\n");
        println!("{}\n", self.table(|o| o.peak_kib as f64, memory_cell));
        println!(
            "{}, load {} before and {} after\n",
            machine::describe(),
            self.load,
            machine::load()
        );
        for Entrant { ready, version, .. } in &self.entrants {
            let version = version.as_ref().map(|v| format!("{v}, ")).unwrap_or_default();
            let env = ready.env.iter().map(|(name, value)| format!("; {name}={value}"));
            println!("- {}: {version}{}{}", ready.name, ready.origin, env.collect::<String>());
        }
        for note in &self.notes {
            println!("- {note}");
        }
    }

    /// Makes a table of rows by allocators, then the best peer by `value` and each tested library's
    /// ratio to it.
    fn table(&self, value: Value, cell: impl Fn(Results) -> Option<String>) -> Table {
        let tested = || self.entrants.iter().enumerate().filter(|(_, entrant)| !entrant.is_peer);
        let mut header = vec!["row".to_string()];
        header.extend(self.entrants.iter().map(|entrant| entrant.ready.name.clone()));
        header.push("best peer".into());
        header.extend(tested().map(|(_, entrant)| format!("{} / best", entrant.ready.name)));
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(header);

        for row in &self.rows {
            let results = |entrant| -> Vec<&Measured> {
                let measured = self.measured.iter();
                measured.filter(|m| m.row == row.name && m.entrant == entrant).collect()
            };
            let all: Vec<_> = (0..self.entrants.len()).map(results).collect();
            let peers = self.entrants.iter().zip(&all).filter(|(entrant, _)| entrant.is_peer);
            let best = peers
                .filter_map(|(entrant, results)| {
                    let q = Quartiles::of(results.iter().map(|m| value(&m.outcome)))?;
                    Some((q.median, &entrant.ready.name, results))
                })
                .min_by(|a, b| a.0.total_cmp(&b.0));
            let mut cells = vec![row.name.to_string()];
            cells.extend(all.iter().map(|results| cell(results).unwrap_or("failed".into())));
            cells.push(best.map_or("none".into(), |(_, name, _)| name.clone()));
            cells.extend(tested().map(|(index, _)| {
                let ratio = best.and_then(|(_, _, best)| ratio(&all[index], best, value));
                ratio.unwrap_or("-".into())
            }));
            table.add_row(cells);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

fn time_cell(results: Results, time: Value) -> Option<String> {
    let q = Quartiles::of(results.iter().map(|m| time(&m.outcome)))?;
    let noisy = if q.spread() > NOISY { "~" } else { "" };
    let digits = if q.median < 100.0 { 1 } else { 0 };
    Some(format!("{noisy}{:.digits$} ({:.0} %)", q.median, 100.0 * q.spread()))
}

fn memory_cell(results: Results) -> Option<String> {
    let mib = |kib: fn(&Outcome) -> u64| {
        Quartiles::of(results.iter().map(|m| kib(&m.outcome) as f64 / 1024.0))
    };
    let (peak, end) = (mib(|o| o.peak_kib)?, mib(|o| o.end_kib)?);
    Some(format!("{:.1} ({:.1})", peak.median, end.median))
}

/// Returns the median of the rounds' ratios, so that a slow time of the machine cancels out.
fn ratio(results: Results, best: Results, value: Value) -> Option<String> {
    let pairs = results.iter().filter_map(|result| {
        let best = best.iter().find(|best| best.round == result.round)?;
        Some(value(&result.outcome) / value(&best.outcome))
    });
    let q = Quartiles::of(pairs)?;
    Some(format!("{:.2} ({:.2}..{:.2})", q.median, q.low, q.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_pair_results_of_one_round() {
        let measured = |round, ns| Measured {
            row: "pair-16",
            entrant: 0,
            round,
            outcome: Outcome {
                row: "pair-16".into(),
                ns,
                mean_ns: ns,
                pairs: 1,
                peak_kib: 1,
                end_kib: 1,
                malloc_from: String::new(),
                version: None,
            },
        };
        // The machine was ten times slower in round 2, for both; round 3 has no partner.
        let ours = [measured(1, 2.0), measured(2, 20.0), measured(3, 9.0)];
        let best = [measured(1, 1.0), measured(2, 10.0)];
        let ratio = ratio(&ours.each_ref(), &best.each_ref(), |o| o.ns);
        assert_eq!(ratio.as_deref(), Some("2.00 (2.00..2.00)"));
    }
}
