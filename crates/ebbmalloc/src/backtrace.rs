//! What reports are made of: the lines that several begin with, and who called, by stacks of calls.

use crate::check_table::DEPTH;
use crate::engine::Engine;
use crate::os::{Os, Symbol};
use crate::text::Line;

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
        let mut calls = [0; DEPTH];
        let known = self.os.calls(&mut calls);
        self.say(format_args!("  here, in thread {}:", self.os.thread_id()));
        self.print_calls(&calls[..known]);
    }

    /// A line a call, those within this library left out where that is a file of its own.
    #[inline(never)]
    pub(crate) fn print_calls(&self, calls: &[usize]) {
        let own = |call: &&usize| {
            let symbol = self.os.symbol(**call);
            symbol.is_some_and(|symbol| file_name(symbol.module).starts_with(b"libebbmalloc.so"))
        };
        let skipped = calls.iter().take_while(own).count();
        if calls.len() == skipped {
            self.say(format_args!("    (calls are not known)"));
        }
        for (nth, &call) in calls[skipped..].iter().enumerate() {
            match self.os.symbol(call) {
                None => self.say(format_args!("    #{nth} {call:#x}")),
                Some(Symbol { module, offset, function: None }) => {
                    self.say(format_args!("    #{nth} {call:#x} {}+{offset:#x}", text(module)))
                }
                Some(Symbol { module, offset, function: Some((name, within)) }) => {
                    self.say(format_args!(
                        "    #{nth} {call:#x} {}+{offset:#x} ({}+{within:#x})",
                        text(module),
                        text(name)
                    ))
                }
            }
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or("?")
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}
