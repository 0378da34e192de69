//! Writes a profile as one self-contained HTML page: flame graph, table, and where resident memory
//! is.

use ebbmalloc_pprof::internals::frame_names::{is_library, short};
use serde_json::{Value, json};

use super::data::Values;
use super::share;
use super::table;
use super::view::{Measure, View, ViewStack};

/// A page with more stacks would be slow: the smallest ones are added up.
const STACKS_MAX: usize = 20_000;

const HEAD: &str = include_str!("page/head.html");
const STYLE: &str = include_str!("page/style.css");
const BODY: &str = include_str!("page/body.html");
const SCRIPT: &str = include_str!("page/script.js");

/// The page. It begins with the numbers of `measure`.
pub fn write(view: &View, measure: Measure) -> Vec<u8> {
    let title = escaped(&table::headline(view, measure));
    // No `</script>` may end the data early.
    let data = data(view, measure).to_string().replace('<', "\\u003c");
    let parts = [
        HEAD.trim_end(),
        &format!("<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>"),
        BODY.trim_end(),
        &format!("<script id=\"data\" type=\"application/json\">{data}</script>"),
        &format!("<script>\n{SCRIPT}</script>\n</body>\n</html>\n"),
    ];
    parts.join("\n").into_bytes()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn data(view: &View, measure: Measure) -> Value {
    let frames = view.frames.iter().map(|frame| {
        json!([
            short(&frame.name),
            frame.name,
            frame.file,
            frame.line,
            is_library(&frame.name, &frame.file)
        ])
    });
    let size = |stack: &ViewStack| {
        [&stack.now, &stack.before].map(|values| values.live.bytes.max(values.allocated.bytes))
    };
    let mut stacks: Vec<&ViewStack> = view.stacks.iter().collect();
    stacks.sort_by(|one, other| {
        let largest = |stack| size(stack).into_iter().fold(0.0, f64::max);
        largest(other).total_cmp(&largest(one))
    });
    let rest = stacks.split_off(stacks.len().min(STACKS_MAX));
    let mut rows: Vec<Value> = stacks
        .iter()
        .map(|stack| row(&stack.frames, &stack.now, &stack.before, view.before.is_some()))
        .collect();
    if !rest.is_empty() {
        let (mut now, mut before) = (Values::default(), Values::default());
        for stack in &rest {
            now += stack.now;
            before += stack.before;
        }
        rows.push(row(&[], &now, &before, view.before.is_some()));
    }
    let live = view.total().live.bytes;
    let ledger = view.ledger.as_ref().map(|report| {
        let parts = share::parts(report, live);
        let parts = parts
            .iter()
            .map(|part| json!([part.kind.name(), part.label, part.bytes, part.meaning]));
        json!({ "resident": report.resident_bytes, "parts": parts.collect::<Vec<_>>() })
    });
    let about = &view.about;
    let remarks: Vec<_> = view
        .remarks
        .iter()
        .cloned()
        .chain((about.dropped_stacks + about.dropped_samples > 0).then(|| {
            format!(
                "The tables were full: {} stacks and {} samples are missing.",
                about.dropped_stacks, about.dropped_samples
            )
        }))
        .chain((!rest.is_empty()).then(|| format!("{} small stacks are added up.", rest.len())))
        .collect();
    json!({
        "headline": table::headline(view, measure),
        "facts": table::facts(view),
        "allocated": measure.allocated,
        "objects": measure.objects,
        "difference": view.before.is_some(),
        "frames": frames.collect::<Vec<_>>(),
        "stacks": rows,
        "ledger": ledger,
        "remarks": remarks,
    })
}

/// Frames, outermost first, and numbers.
fn row(frames: &[usize], now: &Values, before: &Values, difference: bool) -> Value {
    let frames: Vec<_> = frames.iter().rev().collect();
    let mut numbers = numbers(now).to_vec();
    if difference {
        numbers.extend(self::numbers(before));
    }
    json!([frames, numbers])
}

fn numbers(values: &Values) -> [i64; 4] {
    let Values { live, allocated } = values;
    [live.bytes, live.objects, allocated.bytes, allocated.objects].map(|n| n.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::data::WithLedger;
    use crate::profile::{example, share};

    #[test]
    fn the_page_needs_nothing_else() {
        let mut profile = example::profile();
        profile.about.program = "</script><b>".into();
        profile.functions[0].name = "</script>".into();
        let look = WithLedger { profile, ledger: Some(share::tests::report()) };
        let page = String::from_utf8(write(&View::of(look), Measure::default())).unwrap();
        for outside in ["http://", "https://", " src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains("server::cache::Cache::insert") && page.contains("free runs"));
    }

    #[test]
    fn small_stacks_are_added_up() {
        let mut profile = example::profile();
        let small = profile.stacks[1].clone();
        profile.functions.extend(
            (0..STACKS_MAX).map(|n| super::super::data::Function {
                name: format!("f{n}"),
                ..Default::default()
            }),
        );
        for n in 0..STACKS_MAX {
            let mut location = profile.locations[2].clone();
            location.lines[0].function = 6 + n;
            profile.locations.push(location);
            let mut stack = small.clone();
            stack.locations = vec![profile.locations.len() - 1];
            profile.stacks.push(stack);
        }
        let view = View::of(profile);
        let data = data(&view, Measure::default());
        let stacks = data["stacks"].as_array().unwrap();
        assert_eq!(stacks.len(), STACKS_MAX + 1);
        let sum: f64 = stacks.iter().map(|stack| stack[1][0].as_f64().unwrap()).sum();
        assert_eq!(sum, view.total().live.bytes);
    }
}
