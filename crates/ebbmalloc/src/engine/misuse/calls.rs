//! What reports are made of: the lines that several begin with, and who called, by stacks of calls.

use crate::engine::Engine;
use crate::platform::demangle::Name;
use crate::platform::message::Line;
use crate::platform::os::{Os, Symbol};
use crate::safety::tuning::STACK_CALLS_MAX;

impl<O: Os> Engine<O> {
    pub(crate) fn say(&self, text: core::fmt::Arguments) {
        Line::print(&self.os, text);
    }

    /// The line for an address that must not be passed in.
    pub(crate) fn say_fault(&self, fault: &str, block: *mut u8, operation: &str) {
        self.say(format_args!("{fault}: {:#x} passed to {operation}", block.addr()));
    }

    /// The line for a block that was passed in with another size than it has.
    pub(crate) fn say_wrong_size(
        &self,
        block: *mut u8,
        given: usize,
        size: usize,
        operation: &str,
    ) {
        let block = block.addr();
        self.say(format_args!(
            "wrong size: {block:#x} passed to {operation} as a block of {given} bytes; it has {size}"
        ));
    }

    /// The calls that led here.
    pub(crate) fn print_own_calls(&self) {
        let mut calls = [0; STACK_CALLS_MAX];
        let known = self.os.calls(&mut calls);
        self.say(format_args!("  here, in thread {}:", self.os.thread_id()));
        self.print_calls(&calls[..known]);
    }

    /// A line a call, but for the engine's own, which come first.
    #[inline(never)]
    pub(crate) fn print_calls(&self, calls: &[usize]) {
        let is_own = |call: usize| {
            let mut own = false;
            self.with_symbol(call, |symbol| own = symbol.is_some_and(|symbol| is_own(&symbol)));
            own
        };
        // Generic functions of others may be between them.
        let (mut skipped, mut others) = (0, 0);
        for (nth, &call) in calls.iter().enumerate() {
            if is_own(call) {
                (skipped, others) = (nth + 1, 0);
            } else if others == OTHERS_MOST {
                break;
            } else {
                others += 1;
            }
        }
        if calls.len() == skipped {
            self.say(format_args!("    (calls are not known)"));
        }
        for (nth, &call) in calls[skipped..].iter().enumerate() {
            self.with_symbol(call, |symbol| match symbol {
                None => self.say(format_args!("    #{nth} {call:#x}")),
                Some(Symbol { module, offset, function: None }) => {
                    self.say(format_args!("    #{nth} {call:#x} {}+{offset:#x}", text(module)))
                }
                Some(Symbol { module, offset, function: Some((name, within)) }) => {
                    self.say(format_args!(
                        "    #{nth} {call:#x} {}+{offset:#x} ({}+{within:#x})",
                        text(module),
                        Name(name)
                    ))
                }
            });
        }
    }

    /// What lies at an address of code. Files are only read in check mode, which is no production: a program may have forbidden
    /// itself to open any.
    fn with_symbol(&self, call: usize, mut work: impl FnMut(Option<Symbol>)) {
        self.os.with_symbol(call, self.checking(), &mut work);
    }
}

/// So many functions of others may be between two of the engine.
const OTHERS_MOST: usize = 2;

/// Whether a function is the engine's, or one of those that it is called by for C.
fn is_own(symbol: &Symbol) -> bool {
    const ENTRIES: [&[u8]; 16] = [
        b"malloc",
        b"calloc",
        b"realloc",
        b"reallocarray",
        b"free",
        b"free_sized",
        b"free_aligned_sized",
        b"aligned_alloc",
        b"memalign",
        b"posix_memalign",
        b"valloc",
        b"pvalloc",
        b"cfree",
        b"malloc_usable_size",
        b"__rust_alloc",
        b"__rust_dealloc",
    ];
    const STARTS: [&str; 7] =
        ["ebbmalloc::", "<ebbmalloc::", "ebbmalloc_c", "ebb_", "_Zn", "_Zd", "__rustc::__r"];
    let file = symbol.module.rsplit(|&byte| byte == b'/').next().unwrap_or(symbol.module);
    if file.starts_with(b"libebbmalloc.so") {
        return true;
    }
    symbol.function.is_some_and(|(name, _)| {
        ENTRIES.contains(&name) || STARTS.iter().any(|start| Name(name).begins_with(start))
    })
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or("?")
}
