//! The document: what was measured, how to read it, and the tables in their order.

use std::collections::BTreeMap;
use std::fmt::Write;

use ebb::stats;

use super::before;
use super::costs;
use super::data::{BASE, Data, NOISY};
use super::means::Compared;
use super::picture::Pictures;
use super::table::{self, Row, Standing};
use crate::case::{END, PEAK, TIME};
use crate::conditions::Drawn;

/// A case counts as lost where the allocator under test needs more than that of the best peer.
const LOSS: f64 = 1.10;

/// What stands in brackets behind geometric means.
const INTERVALS: &str = "and in brackets their 95 % confidence interval over the choice of cases, \
                         for three or more";

/// What the run says: means, losses, pictures and conditions.
pub fn write(data: &Data, pictures: &Pictures) -> String {
    let conditions = &data.conditions;
    let sections = [
        ("Conditions", self::conditions(data)),
        ("What is missing", missing(data)),
        ("How to read this", introduction(data)),
        ("Means by group", summary(data) + &image(&pictures.summary)),
        ("Who pays for what", costs::write(data)),
        ("Against the build before", before::write(data)),
        (&format!("Where {} is best", data.ours()), best(data)),
        (&format!("Where {} loses", data.ours()), losses(data)),
        ("What looking for mistakes costs", cares(data)),
        (
            "Pictures",
            image(&pictures.time)
                + &image(&pictures.memory)
                + &images(&pictures.over_time)
                + &images(&pictures.threads),
        ),
    ];
    let cases = conditions.cases.len();
    let title = format!(
        "# Allocators side by side\n\n{cases} cases. All figures are in `rows.csv`, and as \
         tables in \
         `tables.md`.\n"
    );
    document(title, &sections)
}

/// Every figure of every case.
pub fn tables(data: &Data) -> String {
    let cases = data.conditions.cases.iter();
    let sections = [
        ("Time", figures(data, TIME)),
        ("Peak memory", figures(data, PEAK)),
        ("Memory at the end", figures(data, END)),
        (&format!("Modes of {}", data.ours()), modes(data, &data.modes())),
        ("Looking for mistakes", modes(data, &data.cares())),
        ("Other figures", others(data)),
        ("The cases", list(cases.map(|case| format!("{}: {}", case.name, case.about)))),
    ];
    document("# All tables\n".into(), &sections)
}

/// A title, and the sections that have something to say.
fn document(title: String, sections: &[(&str, String)]) -> String {
    let mut text = title;
    for (title, content) in sections.iter().filter(|(_, content)| !content.is_empty()) {
        let _ = write!(text, "\n## {title}\n\n{}\n", content.trim());
    }
    text
}

fn introduction(data: &Data) -> String {
    let rounds = data.conditions.rounds;
    format!(
        "A case is one program with its input; it does the same work on every allocator. A round \
         runs every \
         case once on each allocator, one after the other; what takes less than 0.3 s, up to \
         five times in a row, and its \
         medians count. A cell has the median of {rounds} \
         rounds, and in brackets the spread.\n\n\
         - The spread is how far the middle half of the rounds lies apart (interquartile range), \
         in percent of the \
         median; `~` marks more than {:.0} %: too noisy for small differences.\n\
         - Of time and memory less is better; of rates (`_per_s`) more.\n\
         - The best peer has the best median. The ratio to it is taken within each round, so \
         that a slow \
         spell of the machine cancels out; shown are the median of these ratios and, in brackets, \
         its confidence interval.\n- {}\n",
        100.0 * NOISY,
        stats::foundation(rounds as usize, "--repeat"),
    )
}

fn summary(data: &Data) -> String {
    let Some(compared) = Compared::of(data) else {
        return format!("No means: they are of ratios to {BASE}, which was not measured.\n");
    };
    let mut text = format!(
        "Geometric means over cases of the ratio to {BASE} (1 is as good, 0.5 half as much), \
         {INTERVALS}. Counted are the {} of {} cases where all allocators have results; \
         in `all`, groups of many cases weigh more.\n\n",
        compared.cases.len(),
        data.conditions.cases.len(),
    );
    let (time, memory) = (compared.means(data, TIME), compared.means(data, PEAK));
    text += &table::of_means(&compared.allocators, &time, &memory);
    let left_out = compared.left_out.iter();
    let left_out = left_out.map(|(case, who)| format!("{case} (without {})", who.join(", ")));
    if compared.left_out.is_empty() {
        return text;
    }
    text + "\nNot counted:\n\n" + &list(left_out)
}

fn losses(data: &Data) -> String {
    let percent = 100.0 * (LOSS - 1.0);
    let part = |(title, figure)| match table::losses(data, figure, LOSS) {
        Some(table) => {
            format!("{title}, more than {percent:.0} % behind the best peer:\n\n{table}\n")
        }
        None => format!("{title}: nowhere.\n\n"),
    };
    [("Time", TIME), ("Peak memory", PEAK)].map(part).concat()
}

/// How many cases are better, the same or worse than the best peer, and where most is gained.
fn best(data: &Data) -> String {
    let part = |(title, figure): (&str, &str)| {
        let standings = data.cases().filter_map(|case| Standing::of(data, case, figure));
        let mut all: Vec<_> = standings.collect();
        all.sort_by(|a, b| a.comparison.ratio.total_cmp(&b.comparison.ratio));
        let count = |verdict| all.iter().filter(|s| s.comparison.verdict == verdict).count();
        let near = all.iter().filter(|s| s.comparison.ratio <= LOSS).count();
        let ahead = all.iter().filter(|s| s.comparison.ratio < 1.0 / LOSS);
        let ahead: Vec<_> =
            ahead.map(|s| format!("{} {:.2}", s.case, s.comparison.ratio)).collect();
        format!(
            "{title} against the best peer of each case: {} better, {} the same, {} worse. Within \
             {:.0} % of it, or better, in {near} of {} cases. At most {:.2} of its figure: {}.\n",
            count(stats::Verdict::Less),
            count(stats::Verdict::Same),
            count(stats::Verdict::More),
            100.0 * (LOSS - 1.0),
            all.len(),
            1.0 / LOSS,
            if ahead.is_empty() { "nowhere".into() } else { ahead.join(", ") },
        )
    };
    list([("Time", TIME), ("Peak memory", PEAK)].map(part).map(|text| text.trim_end().into()))
}

fn figures(data: &Data, figure: &str) -> String {
    table::against_peers(data, &table::rows(data, figure))
}

/// For each way of looking for mistakes what it costs, over the cases that end with it.
fn cares(data: &Data) -> String {
    let ours = data.ours();
    let cares = data.cares();
    let mut text =
        format!("Geometric means over cases of the ratio to {ours} without, {INTERVALS}:\n\n");
    let mut not_counted = Vec::new();
    let mut lines = Vec::new();
    for care in cares.iter().filter(|&&care| care != ours) {
        let Some(compared) = Compared::among(data, vec![ours, care], ours) else {
            continue;
        };
        let mean = |figure| compared.means(data, figure)[0].ratios[1];
        lines.push((*care, compared.cases.len(), mean(TIME), mean(PEAK)));
        not_counted.extend(compared.left_out.iter().map(|(case, _)| format!("{care}: {case}")));
    }
    if lines.is_empty() {
        return String::new();
    }
    text += &table::of_cares(&lines);
    if !not_counted.is_empty() {
        text +=
            &format!("\nNot counted, as they failed or took too long:\n\n{}", list(not_counted));
    }
    text
}

fn modes(data: &Data, modes: &[&str]) -> String {
    let part = |(title, figure)| {
        let table = table::of_modes(data, figure, modes)?;
        Some(format!("{title}:\n\n{table}\n"))
    };
    [("Time", TIME), ("Peak memory", PEAK)].into_iter().filter_map(part).collect()
}

fn others(data: &Data) -> String {
    let rows: Vec<_> = data
        .cases()
        .flat_map(|case| {
            let figures = data.other_figures(case).into_iter();
            figures.map(move |figure| Row { label: format!("{case}: {figure}"), case, figure })
        })
        .collect();
    table::against_peers(data, &rows)
}

/// Peers, groups, and runs that failed: what failed alike in several rounds is told once.
fn missing(data: &Data) -> String {
    let mut rounds = BTreeMap::<_, Vec<_>>::new();
    for failure in &data.failures {
        let key = (&failure.case, &failure.allocator, &failure.why);
        rounds.entry(key).or_default().push(failure.round.to_string());
    }
    let failed = rounds.into_iter().map(|((case, allocator, why), rounds)| {
        let word = if rounds.len() == 1 { "round" } else { "rounds" };
        format!("{allocator} failed {case} ({word} {}): {why}", rounds.join(", "))
    });
    list(data.conditions.missing.iter().cloned().chain(failed))
}

fn conditions(data: &Data) -> String {
    let conditions = &data.conditions;
    let quick = if conditions.quick { ", a quick run" } else { "" };
    let mut lines = vec![
        conditions.machine.clone(),
        format!("{} rounds{quick}", conditions.rounds),
        format!("load {} before, {} after", conditions.load_before, conditions.load_after),
        format!("{}: {}; {}", data.ours(), conditions.mode.trim(), conditions.library),
    ];
    lines.extend(conditions.build_before.iter().map(|build| format!("before: {build}")));
    lines.extend(conditions.tuning.iter().map(|set| format!("in the environment: {set}")));
    lines.extend(conditions.draws.iter().map(|draw| {
        let Drawn { count, seed, cases } = draw;
        format!("drawn by `--draw {count} --seed {seed}`: {}", cases.join(", "))
    }));
    lines.extend(conditions.allocators.iter().map(|a| format!("{}: {}", a.name, a.origin)));
    list(lines)
}

fn list(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| format!("- {line}\n")).collect()
}

fn image(name: &Option<String>) -> String {
    images(name.as_slice())
}

fn images(names: &[String]) -> String {
    names.iter().map(|name| format!("\n![{}]({name})\n", name.trim_end_matches(".svg"))).collect()
}
