//! Walks a stack from frame to frame.

use super::cache::{self, Frame, Short};
use super::expression::{NoValue, evaluate};
use super::memory::Memory;
use super::object::{Object, Source};
use super::registers::{
    BASE_POINTER, COUNT, FRAME_POINTER, PLAIN_RETURN, PROGRAM_COUNTER, Registers, SAVED,
    SIGNAL_RETURN, STACK_POINTER, without_signature,
};
use super::row::{End, Row, Rule};
use super::table::{self, Entry};

const WORD_BYTES: usize = size_of::<usize>();
/// The registers that short rows tell of.
const SHORT: u64 = 1 << STACK_POINTER | 1 << FRAME_POINTER | 1 << BASE_POINTER;
/// The most bytes from a stack pointer to the frame pointer, in code without a table.
const FRAME_BYTES_MAX: usize = 256 << 10;
/// No code lies at lower addresses.
const CODE_MIN: usize = 4096;

/// Why a walk stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// At the outermost frame, or at one that cannot be left.
    Ended,
    /// A frame's end depends on a register that a short row did not tell of.
    Unknown,
}

use Stop::Ended;

impl From<NoValue> for Stop {
    fn from(fault: NoValue) -> Self {
        match fault {
            NoValue::Bad => Self::Ended,
            NoValue::Unknown => Self::Unknown,
        }
    }
}

/// A frame of the stack, and what was found on the way to it.
pub(super) struct Walk {
    registers: Registers,
    /// The address at which the frame's function goes on.
    address: usize,
    /// Whether the function was interrupted there. Otherwise it made a call right before.
    is_interrupted: bool,
    /// Whether short rows are used.
    is_short: bool,
    stack: Memory,
    /// The code of functions on the stack.
    text: Memory,
    source: Source,
    object: Option<Object>,
}

impl Walk {
    /// Starts in the caller's frame, with its registers at this address of its code.
    pub fn new((registers, address): (Registers, usize), source: Source, is_short: bool) -> Self {
        Self {
            registers,
            address,
            is_interrupted: true,
            is_short,
            stack: Memory::of_this_stack(),
            text: Memory::unknown(),
            source,
            object: None,
        }
    }

    /// Ends the walk, and keeps what it learned.
    pub fn end(self) {
        self.stack.keep();
    }

    /// An address of the instruction that the frame's function runs: its own if it was interrupted,
    /// else the last byte of the call.
    #[inline(always)]
    pub fn code(&self) -> usize {
        self.address - usize::from(!self.is_interrupted)
    }

    /// Goes on to the caller's frame.
    #[inline]
    pub fn leave(&mut self) -> Result<(), Stop> {
        let code = self.code();
        let Some(identity) = self.find_object(code) else { return self.leave_by_pointer() };
        match cache::find(code, identity).filter(|_| self.is_short) {
            Some(Short::Frame(frame)) => self.leave_short(frame),
            Some(Short::NoTable) => self.leave_by_pointer(),
            Some(Short::Outermost) => Err(Ended),
            None => self.leave_long(code, identity),
        }
    }

    /// The identity of the object at this address of code, which becomes the current one. The list
    /// of objects is slow, so it is asked for no identity.
    #[inline(always)]
    fn find_object(&mut self, code: usize) -> Option<u16> {
        if matches!(self.source, Source::List) {
            return Some(0);
        }
        if !self.object.as_ref().is_some_and(|object| object.range.contains(&code)) {
            self.object = self.source.find(code);
        }
        self.object.as_ref().map(|object| object.identity)
    }

    #[inline(always)]
    fn leave_short(&mut self, frame: Frame) -> Result<(), Stop> {
        let Frame { by_frame_pointer, end, address, frame_pointer, base_pointer } = frame;
        let base = if by_frame_pointer { FRAME_POINTER } else { STACK_POINTER };
        if by_frame_pointer && self.registers.known >> FRAME_POINTER & 1 == 0 {
            return Err(Stop::Unknown);
        }
        let end = self.registers.values[base].wrapping_add(end * WORD_BYTES);
        if end <= self.registers.values[STACK_POINTER] {
            return Err(Ended);
        }
        let mut saved =
            |distance: usize| self.stack.word(end.wrapping_sub(distance * WORD_BYTES)).ok_or(Ended);
        let address = saved(address)?;
        for (register, distance) in [(FRAME_POINTER, frame_pointer), (BASE_POINTER, base_pointer)] {
            if distance != 0 {
                self.registers.values[register] = saved(distance)?;
                self.registers.known |= 1 << register;
            }
        }
        self.registers.known &= SHORT;
        self.registers.values[STACK_POINTER] = end;
        self.go_on(address, false)
    }

    #[inline(always)]
    fn go_on(&mut self, address: usize, is_interrupted: bool) -> Result<(), Stop> {
        let address = without_signature(address);
        if address < CODE_MIN {
            return Err(Ended);
        }
        (self.address, self.is_interrupted) = (address, is_interrupted);
        Ok(())
    }

    /// Leaves a frame by its table, which is read.
    #[cold]
    #[inline(never)]
    fn leave_long(&mut self, code: usize, identity: u16) -> Result<(), Stop> {
        // Some tables tell of the code before it.
        if self.goes_on_at(SIGNAL_RETURN) {
            return self.leave_signal_return();
        }
        let known = self.object.clone().filter(|object| object.has_tables());
        let is_list = known.is_none();
        let object = known.or_else(|| Source::List.find(code));
        let mut tables = object.as_ref().map(|object| object.tables(is_list));
        let entry = tables.as_mut().zip(object.as_ref());
        let entry = entry.and_then(|(tables, object)| table::find(tables, object.header, code));
        let Some(entry) = entry else {
            cache::keep(code, identity, Short::NoTable);
            return self.leave_by_pointer();
        };
        let row = Row::read(&entry, code).ok_or(Ended)?;
        let short = Short::of(&row, entry.common.return_register);
        if let Some(short) = short.filter(|_| !entry.common.is_of_signal) {
            cache::keep(code, identity, short);
        }
        self.leave_by_row(&entry, &row)
    }

    /// Whether the frame's function goes on at this code.
    fn goes_on_at(&mut self, expected: &[u8]) -> bool {
        let code = self.address..self.address.saturating_add(expected.len());
        let byte = |address: usize| {
            let address = core::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: the byte is readable. Volatile, as the address may be that of anything.
            unsafe { address.read_volatile() }
        };
        let can_read = !code.is_empty() && self.text.can_read(code.clone());
        can_read && code.map(byte).eq(expected.iter().copied())
    }

    /// Goes on to the frame that a signal interrupted.
    fn leave_signal_return(&mut self) -> Result<(), Stop> {
        let at = self.registers.get(STACK_POINTER).ok_or(Ended)?;
        let mut restored = Registers::UNKNOWN;
        for (register, offset) in SAVED.into_iter().enumerate() {
            let value = self.stack.word(at.wrapping_add(offset)).ok_or(Ended)?;
            restored.set(register, Some(value));
        }
        self.registers = restored;
        self.go_on(restored.values[PROGRAM_COUNTER], true)
    }

    /// Goes on by a row of a table.
    fn leave_by_row(&mut self, entry: &Entry, row: &Row) -> Result<(), Stop> {
        let is_of_signal = entry.common.is_of_signal;
        let expression = |position| entry.expression(position).ok_or(Ended);
        let end = match row.end {
            End::Register(register, offset) => {
                let value = self.registers.get(register).ok_or(Stop::Unknown)?;
                value.wrapping_add_signed(offset)
            }
            End::Expression(position) => {
                evaluate(expression(position)?, None, &self.registers, &mut self.stack)?
            }
        };
        let before = self.registers.values[STACK_POINTER];
        // A handler may run on another stack. A frame without a call on it may be empty.
        if !is_of_signal && (end < before || end == before && !self.is_interrupted) {
            return Err(Ended);
        }
        let mut restored = self.registers;
        restored.set(STACK_POINTER, Some(end));
        for (register, &rule) in row.rules.iter().enumerate() {
            let value = match rule {
                Rule::Same => continue,
                Rule::Lost => None,
                Rule::At(offset) => {
                    Some(self.stack.word(end.wrapping_add_signed(offset as isize)).ok_or(Ended)?)
                }
                Rule::Offset(offset) => Some(end.wrapping_add_signed(offset as isize)),
                Rule::In(other) => self.registers.get(other.into()),
                Rule::AtExpression(position) | Rule::Expression(position) => {
                    let start = Some(end);
                    let expression = expression(position)?;
                    let value = evaluate(expression, start, &self.registers, &mut self.stack)?;
                    let is_address = matches!(rule, Rule::AtExpression(_));
                    Some(if is_address { self.stack.word(value).ok_or(Ended)? } else { value })
                }
            };
            restored.set(register, value);
        }
        let column = entry.common.return_register;
        let address = match *row.rules.get(column).ok_or(Ended)? {
            // Only code that makes no call keeps the return address in its register.
            Rule::Same if !self.is_interrupted => return Err(Ended),
            Rule::Lost => return Err(Ended),
            Rule::In(_) => restored.get(column).ok_or(Stop::Unknown)?,
            _ => restored.get(column).ok_or(Ended)?,
        };
        self.registers = restored;
        self.go_on(address, is_of_signal)
    }

    /// Goes on by the frame pointer, where no table describes the code: a compiler made it as the
    /// program ran. The return address must lie in a loaded object, or the next frame pointer must
    /// lead on.
    #[cold]
    #[inline(never)]
    fn leave_by_pointer(&mut self) -> Result<(), Stop> {
        if self.goes_on_at(SIGNAL_RETURN) {
            return self.leave_signal_return();
        }
        let start = self.registers.values[STACK_POINTER];
        // Python's code between its functions (`-X perf`).
        if self.goes_on_at(PLAIN_RETURN) {
            let address = self.stack.word(start.wrapping_add(WORD_BYTES)).ok_or(Ended)?;
            self.source.find(address.wrapping_sub(1)).ok_or(Ended)?;
            self.registers.values[STACK_POINTER] = start.wrapping_add(2 * WORD_BYTES);
            return self.go_on(address, false);
        }
        let pointer = self.registers.get(FRAME_POINTER).ok_or(Stop::Unknown)?;
        let leads_on = |from: usize, to: usize| {
            to.is_multiple_of(WORD_BYTES) && to.wrapping_sub(from) <= FRAME_BYTES_MAX
        };
        let end = pointer.wrapping_add(2 * WORD_BYTES);
        // From here on the walk may be wrong.
        self.stack = Memory::unknown();
        if !leads_on(start, pointer) || !self.stack.can_read(start..end) {
            return Err(Ended);
        }
        let mut word = |at| self.stack.word(at).ok_or(Ended);
        let [next, address] = [word(pointer)?, word(pointer + WORD_BYTES)?];
        let address = without_signature(address);
        let is_outermost = next == 0;
        if !is_outermost
            && !leads_on(end, next)
            && self.source.find(address.wrapping_sub(1)).is_none()
        {
            return Err(Ended);
        }
        self.registers.known = 1 << STACK_POINTER;
        self.registers.set(STACK_POINTER, Some(end));
        self.registers.set(FRAME_POINTER, Some(next));
        self.go_on(address, false)
    }
}

/// Registers of the frames that this file reads are few, so a set of bits has room for each.
const _: () = assert!(COUNT <= u64::BITS as usize);
