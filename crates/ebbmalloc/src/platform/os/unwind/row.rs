//! Finds how a frame at an address of code is left: the row of the table for that address, which
//! instructions build (DWARF 5, section 6.4).

use super::cursor::Cursor;
use super::registers::COUNT;
use super::table::Entry;

/// How the caller's value of a register is found. Expressions are addresses of their lengths, in
/// bytes from the entry's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// The register still holds it.
    Same,
    /// It is lost.
    Lost,
    /// In memory, that far from the frame's end.
    At(i32),
    /// The frame's end plus that.
    Offset(i32),
    /// In another register.
    In(u8),
    /// In memory, where the expression says.
    AtExpression(i32),
    /// The value of the expression.
    Expression(i32),
}

/// How the end of a frame is found: the stack pointer before the call (DWARF's CFA).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Register(usize, isize),
    Expression(i32),
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub end: End,
    pub rules: [Rule; COUNT],
}

impl Row {
    const EMPTY: Self = Self { end: End::Register(COUNT, 0), rules: [Rule::Same; COUNT] };

    /// The row of the entry's function for the address `code`.
    pub fn read(entry: &Entry, code: usize) -> Option<Self> {
        let mut builder = Builder {
            entry,
            row: Self::EMPTY,
            first: Self::EMPTY,
            kept: [Self::EMPTY; KEPT_MAX],
            kept_count: 0,
            place: entry.code,
        };
        builder.run(entry.common.first, usize::MAX)?;
        builder.first = builder.row;
        builder.place = entry.code;
        builder.run(entry.program, code)?;
        Some(builder.row)
    }
}

/// The most rows that instructions keep at a time. Compilers keep one.
const KEPT_MAX: usize = 3;

/// Builds a row by instructions.
struct Builder<'e, 'a> {
    entry: &'e Entry<'a>,
    row: Row,
    /// The row after the instructions that entries have in common.
    first: Row,
    kept: [Row; KEPT_MAX],
    kept_count: usize,
    /// The address of code that the row is for.
    place: usize,
}

impl Builder<'_, '_> {
    /// Runs the instructions for code up to the address `until`.
    fn run(&mut self, mut program: Cursor, until: usize) -> Option<()> {
        while !program.is_empty() {
            if let Some(place) = self.step(&mut program)? {
                if place > until {
                    break;
                }
                self.place = place;
            }
        }
        Some(())
    }

    /// Runs one instruction. Returns the address of code to which it advances, if it does.
    fn step(&mut self, program: &mut Cursor) -> Option<Option<usize>> {
        let byte = program.u8()?;
        let (operation, operand) = (byte >> 6, usize::from(byte & 0x3f));
        match operation {
            1 => return Some(Some(self.advanced(operand))),
            2 => {
                let offset = self.unsigned_offset(program)?;
                self.set(operand, Rule::At(offset));
            }
            3 => self.restore(operand),
            _ => return self.step_long(byte, program),
        }
        Some(None)
    }

    fn step_long(&mut self, operation: u8, program: &mut Cursor) -> Option<Option<usize>> {
        match operation {
            0x00 => {}
            0x01 => return program.pointer(self.entry.common.encoding, 0).map(Some),
            0x02 => return Some(Some(self.advanced(program.u8()?.into()))),
            0x03 => return Some(Some(self.advanced(program.u16()?.into()))),
            0x04 => return Some(Some(self.advanced(program.u32()? as usize))),
            0x1d => return Some(Some(self.advanced(program.u64()? as usize))),
            0x05 => self.set(program.unsigned()?, Rule::At(self.unsigned_offset(program)?)),
            0x06 => self.restore(program.unsigned()?),
            0x07 => self.set(program.unsigned()?, Rule::Lost),
            0x08 => self.set(program.unsigned()?, Rule::Same),
            0x09 => {
                let register = program.unsigned()?;
                let other = u8::try_from(program.unsigned()?).ok()?;
                self.set(register, Rule::In(other));
            }
            0x0a => {
                *self.kept.get_mut(self.kept_count)? = self.row;
                self.kept_count += 1;
            }
            0x0b => {
                self.kept_count = self.kept_count.checked_sub(1)?;
                self.row = self.kept[self.kept_count];
            }
            0x0c => {
                let register = program.unsigned()?;
                self.row.end = End::Register(register, program.unsigned()?.cast_signed());
            }
            0x12 => {
                let register = program.unsigned()?;
                let offset = program.signed()?.wrapping_mul(self.entry.common.data_factor);
                self.row.end = End::Register(register, offset);
            }
            0x0d => {
                let End::Register(_, offset) = self.row.end else { return None };
                self.row.end = End::Register(program.unsigned()?, offset);
            }
            0x0e => {
                let End::Register(register, _) = self.row.end else { return None };
                self.row.end = End::Register(register, program.unsigned()?.cast_signed());
            }
            0x13 => {
                let End::Register(register, _) = self.row.end else { return None };
                let offset = program.signed()?.wrapping_mul(self.entry.common.data_factor);
                self.row.end = End::Register(register, offset);
            }
            0x0f => self.row.end = End::Expression(self.expression(program)?),
            0x10 => {
                self.set(program.unsigned()?, Rule::AtExpression(self.expression(program)?));
            }
            0x16 => {
                self.set(program.unsigned()?, Rule::Expression(self.expression(program)?));
            }
            0x11 => self.set(program.unsigned()?, Rule::At(self.signed_offset(program)?)),
            0x14 => self.set(program.unsigned()?, Rule::Offset(self.unsigned_offset(program)?)),
            0x15 => self.set(program.unsigned()?, Rule::Offset(self.signed_offset(program)?)),
            // AArch64: the return address is signed from here on, or no more. Signatures are
            // removed from any address, so it does not matter.
            0x2c | 0x2d => {}
            // The bytes of arguments that were pushed.
            0x2e => drop(program.unsigned()?),
            0x2f => {
                let register = program.unsigned()?;
                let offset = self.unsigned_offset(program)?.checked_neg()?;
                self.set(register, Rule::At(offset));
            }
            _ => return None,
        }
        Some(None)
    }

    fn advanced(&self, by: usize) -> usize {
        self.place.wrapping_add(by.wrapping_mul(self.entry.common.code_factor))
    }

    /// Sets the rule of a register. Tables also tell of vector registers, which are of no use.
    fn set(&mut self, register: usize, rule: Rule) {
        if let Some(old) = self.row.rules.get_mut(register) {
            *old = rule;
        }
    }

    fn restore(&mut self, register: usize) {
        if let Some(&rule) = self.first.rules.get(register) {
            self.set(register, rule);
        }
    }

    fn unsigned_offset(&self, program: &mut Cursor) -> Option<i32> {
        self.scaled(program.unsigned()?.cast_signed())
    }

    fn signed_offset(&self, program: &mut Cursor) -> Option<i32> {
        self.scaled(program.signed()?)
    }

    fn scaled(&self, offset: isize) -> Option<i32> {
        offset.checked_mul(self.entry.common.data_factor)?.try_into().ok()
    }

    /// Skips an expression. Returns its position.
    fn expression(&self, program: &mut Cursor) -> Option<i32> {
        let address = program.address();
        let length = program.unsigned()?;
        program.take(length)?;
        i32::try_from(address.wrapping_sub(self.entry.address).cast_signed()).ok()
    }
}

impl<'a> Entry<'a> {
    /// The bytes of an expression that a rule names.
    pub fn expression(&self, position: i32) -> Option<Cursor<'a>> {
        let address = self.address.checked_add_signed(position as isize)?;
        let mut rest = self.program.from(address).or_else(|| self.common.first.from(address))?;
        let length = rest.unsigned()?;
        rest.take(length)
    }
}
