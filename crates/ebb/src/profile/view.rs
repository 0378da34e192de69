//! A profile as people look at it: stacks of functions and lines, with the difference to an earlier
//! profile.

use std::collections::HashMap;

use ebbmalloc_pprof::internals::frame_names::{is_library, is_script, short};

use super::data::{About, Counts, Profile, Values, WithLedger};
use crate::why::report::Report;

/// A call in a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    pub name: String,
    pub file: String,
    /// 0 if unknown.
    pub line: u32,
}

/// A stack of functions.
#[derive(Clone, Debug)]
pub struct ViewStack {
    /// Indexes into [`View::frames`], innermost first.
    pub frames: Vec<usize>,
    pub now: Values,
    /// Zero without an earlier profile.
    pub before: Values,
}

/// A profile, or the difference of two.
#[derive(Debug)]
pub struct View {
    pub about: About,
    /// The earlier profile, of which this is the difference.
    pub before: Option<About>,
    pub frames: Vec<Frame>,
    pub stacks: Vec<ViewStack>,
    pub ledger: Option<Report>,
    pub remarks: Vec<String>,
}

/// A number of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measure {
    /// What was allocated since profiling began, not only what is live.
    pub allocated: bool,
    /// Objects, not bytes.
    pub objects: bool,
}

impl Measure {
    fn counts(self, values: &Values) -> Counts {
        if self.allocated { values.allocated } else { values.live }
    }

    pub fn of(self, values: &Values) -> f64 {
        let counts = self.counts(values);
        if self.objects { counts.objects } else { counts.bytes }
    }

    /// The change of a stack.
    pub fn growth(self, stack: &ViewStack) -> f64 {
        self.of(&stack.now) - self.of(&stack.before)
    }
}

impl View {
    pub fn of(look: impl Into<WithLedger<Profile>>) -> Self {
        let WithLedger { profile, ledger } = look.into();
        let mut view = Self {
            about: profile.about.clone(),
            before: None,
            frames: Vec::new(),
            stacks: Vec::new(),
            ledger,
            remarks: Vec::new(),
        };
        view.add(&profile, |frame| frame.clone(), |stack, values| stack.now += values);
        view.remarks = profile.remarks;
        view
    }

    /// What changed from an earlier profile to a later one. Stacks are the same if their functions
    /// are: lines may move from one build to the next.
    pub fn between(old: &Profile, new: impl Into<WithLedger<Profile>>) -> Self {
        let WithLedger { profile: new, ledger } = new.into();
        let mut view = Self {
            about: new.about.clone(),
            before: Some(old.about.clone()),
            frames: Vec::new(),
            stacks: Vec::new(),
            ledger,
            remarks: Vec::new(),
        };
        let by_name = |frame: &Frame| Frame { name: frame.name.clone(), ..Frame::default() };
        view.add(&new, by_name, |stack, values| stack.now += values);
        view.add(old, by_name, |stack, values| stack.before += values);
        view.remarks = new.remarks;
        view
    }

    /// Adds the stacks of a profile, each to the stack with the same keys.
    fn add(
        &mut self,
        profile: &Profile,
        key: impl Fn(&Frame) -> Frame,
        add: impl Fn(&mut ViewStack, Values),
    ) {
        let mut frame_ids: HashMap<Frame, usize> = HashMap::new();
        for (id, frame) in self.frames.iter().enumerate() {
            frame_ids.entry(key(frame)).or_insert(id);
        }
        let mut stack_ids: HashMap<Vec<usize>, usize> = HashMap::new();
        for (id, stack) in self.stacks.iter().enumerate() {
            stack_ids.entry(stack.frames.clone()).or_insert(id);
        }
        for stack in &profile.stacks {
            let frames = profile.lines(stack).map(|line| {
                let function = &profile.functions[line.function];
                let (name, file) = (function.name.clone(), function.file.clone());
                let frame = Frame { name, file, line: line.line };
                *frame_ids.entry(key(&frame)).or_insert_with(|| {
                    self.frames.push(frame);
                    self.frames.len() - 1
                })
            });
            let frames: Vec<_> = frames.collect();
            let id = *stack_ids.entry(frames).or_insert_with_key(|frames| {
                let (now, before) = (Values::default(), Values::default());
                self.stacks.push(ViewStack { frames: frames.clone(), now, before });
                self.stacks.len() - 1
            });
            add(&mut self.stacks[id], stack.values);
        }
    }

    /// The sum over all stacks.
    pub fn total(&self) -> Values {
        let mut sum = Values::default();
        self.stacks.iter().for_each(|stack| sum += stack.now);
        sum
    }

    pub fn total_before(&self) -> Values {
        let mut sum = Values::default();
        self.stacks.iter().for_each(|stack| sum += stack.before);
        sum
    }

    /// The stacks without frames of standard libraries and interpreters, unless all have them. The
    /// ones with the largest numbers come first; with an earlier profile, those with the largest
    /// growth.
    pub fn user_stacks(&self, measure: Measure) -> Vec<ViewStack> {
        let is_user = |frame: &Frame| !is_library(&frame.name, &frame.file);
        let is_user: Vec<_> = self.frames.iter().map(is_user).collect();
        let mut sums: HashMap<Vec<usize>, ViewStack> = HashMap::new();
        for stack in &self.stacks {
            let mut frames: Vec<_> =
                stack.frames.iter().copied().filter(|&id| is_user[id]).collect();
            // Of an interpreter's stack, only the functions that it interprets.
            if frames.iter().any(|&id| is_script(&self.frames[id].name)) {
                frames.retain(|&id| is_script(&self.frames[id].name));
            }
            if frames.is_empty() {
                frames.clone_from(&stack.frames);
            }
            let sum = sums.entry(frames).or_insert_with_key(|frames| ViewStack {
                frames: frames.clone(),
                now: Values::default(),
                before: Values::default(),
            });
            sum.now += stack.now;
            sum.before += stack.before;
        }
        let key = |stack: &ViewStack| match self.before {
            Some(_) => measure.growth(stack),
            None => measure.of(&stack.now),
        };
        let mut stacks: Vec<_> = sums.into_values().collect();
        stacks.retain(|stack| key(stack).round() != 0.0);
        let name = |stack: &ViewStack| -> Vec<&Frame> {
            stack.frames.iter().map(|&id| &self.frames[id]).collect()
        };
        stacks.sort_by(|one, other| {
            key(other).total_cmp(&key(one)).then_with(|| name(one).cmp(&name(other)))
        });
        stacks
    }
}

impl Frame {
    /// The short name of the function and its line: `Cache::insert (cache.rs:12)`.
    pub fn place(&self) -> String {
        self.with_line(short(&self.name))
    }

    /// The same, with only the last two parts of the name.
    pub fn caller(&self) -> String {
        let name = short(&self.name);
        let mut parts: Vec<_> = name.rsplitn(3, "::").take(2).collect();
        parts.reverse();
        self.with_line(parts.join("::"))
    }

    fn with_line(&self, name: String) -> String {
        let file = self.file.rsplit('/').next().unwrap_or("");
        match (file, self.line) {
            ("", _) => name,
            (file, 0) => format!("{name} ({file})"),
            (file, line) => format!("{name} ({file}:{line})"),
        }
    }
}
