//! Prints the parts that reports have in common: first lines, and stacks of calls.

use crate::engine::Engine;
use crate::platform::demangle::Name;
use crate::platform::message::Line;
use crate::platform::os::{Os, Symbol};
use crate::safety::tuning::STACK_CALLS_MAX;

impl<O: Os> Engine<O> {
    /// Prints a line to standard error.
    pub(crate) fn say(&self, text: core::fmt::Arguments) {
        Line::print(&self.os, text);
    }

    /// Prints the line for an address that the program must not pass in.
    pub(crate) fn say_fault(&self, fault: &str, block: *mut u8, operation: &str) {
        self.say(format_args!("{fault}: {:#x} passed to {operation}", block.addr()));
    }

    /// Prints the line for a sized free whose size is not the block's.
    pub(crate) fn say_wrong_size(
        &self,
        block: *mut u8,
        given: usize,
        size: usize,
        operation: &str,
    ) {
        let block = block.addr();
        self.say(format_args!(
            "wrong size: {block:#x} passed to {operation} as a block of {given} bytes; \
             it has {size}"
        ));
    }

    /// Prints the calling thread and its stack of calls.
    pub(crate) fn print_own_calls(&self) {
        let mut calls = [0; STACK_CALLS_MAX];
        let depth = self.os.calls(&mut calls);
        self.say(format_args!("  here, in thread {}:", self.os.thread_id()));
        self.print_calls(&calls[..depth]);
    }

    /// Prints a stack, one line per call, without the engine's own calls, which come first.
    #[inline(never)]
    pub(crate) fn print_calls(&self, calls: &[usize]) {
        let is_own = |call: usize| {
            let mut own = false;
            self.with_symbol(call, |symbol| own = symbol.is_some_and(|symbol| is_own(&symbol)));
            own
        };
        // Generic functions of other crates may lie between the engine's.
        let (mut skipped, mut foreign) = (0, 0);
        for (nth, &call) in calls.iter().enumerate() {
            if is_own(call) {
                (skipped, foreign) = (nth + 1, 0);
            } else if foreign == FOREIGN_CALLS_MAX {
                break;
            } else {
                foreign += 1;
            }
        }
        if calls.len() == skipped {
            self.say(format_args!(
                "    (no stack trace: no unwinder, it is not ready, or memory is short)"
            ));
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

    /// Runs `work` on the symbol at an address of code. Only check mode, which is for tests, reads
    /// files for it: a program in production may have forbidden itself to open any.
    fn with_symbol(&self, call: usize, mut work: impl FnMut(Option<Symbol>)) {
        self.os.with_symbol(call, self.checking(), &mut work);
    }
}

/// Other crates' calls that may lie between two of the engine's.
const FOREIGN_CALLS_MAX: usize = 2;

/// Whether a function is the engine's, or an entry point through which programs call it.
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
    const PREFIXES: [&str; 7] =
        ["ebbmalloc::", "<ebbmalloc::", "cabi::cxx::", "ebb_", "_Zn", "_Zd", "__rustc::__r"];
    let file = symbol.module.rsplit(|&byte| byte == b'/').next().unwrap_or(symbol.module);
    if file.starts_with(b"libebbmalloc.so") {
        return true;
    }
    symbol.function.is_some_and(|(name, _)| {
        ENTRIES.contains(&name) || PREFIXES.iter().any(|prefix| Name(name).begins_with(prefix))
    })
}

/// The bytes as text; "?" if they are not UTF-8.
fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a program that contains the library, its file tells nothing.
    #[test]
    fn operators_of_the_library_are_own() {
        let is_own_function =
            |name| is_own(&Symbol { module: b"program", offset: 0, function: Some((name, 0)) });
        assert!(is_own_function(b"_ZN4cabi3cxx3new17h0123456789abcdefE"));
        assert!(is_own_function(b"_ZN9ebbmalloc6engine5entry4free17h0123456789abcdefE"));
        assert!(!is_own_function(b"_ZN7program3newEv"));
    }
}
