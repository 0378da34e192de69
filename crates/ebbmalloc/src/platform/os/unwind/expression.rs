//! Evaluates the expressions of unwinding tables (DWARF 5, section 2.5), which describe frames of
//! signal handlers, of stubs that the linker writes, and of functions that align their stack.

use super::cursor::Cursor;
use super::memory::Memory;
use super::registers::Registers;

/// The most values on the stack of an expression.
const VALUES_MAX: usize = 16;
/// The most operations that are run.
const OPERATIONS_MAX: usize = 256;

/// Why an expression has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoValue {
    /// It is malformed, or reads memory that cannot be read.
    Bad,
    /// The value of a register is not known.
    Unknown,
}

struct Values {
    values: [usize; VALUES_MAX],
    count: usize,
}

impl Values {
    fn push(&mut self, value: usize) -> Option<()> {
        *self.values.get_mut(self.count)? = value;
        self.count += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<usize> {
        self.count = self.count.checked_sub(1)?;
        Some(self.values[self.count])
    }

    /// The value that lies that deep; 0 is the top.
    fn pick(&self, depth: usize) -> Option<usize> {
        self.values[..self.count].iter().rev().nth(depth).copied()
    }
}

/// The value of an expression. `end` is the end of the frame, if the expression starts with it.
pub(super) fn evaluate(
    expression: Cursor,
    end: Option<usize>,
    registers: &Registers,
    memory: &mut Memory,
) -> Result<usize, NoValue> {
    let mut values = Values { values: [0; VALUES_MAX], count: 0 };
    if let Some(end) = end {
        values.push(end).ok_or(NoValue::Bad)?;
    }
    let mut rest = expression;
    for _ in 0..OPERATIONS_MAX {
        if rest.is_empty() {
            return values.pop().ok_or(NoValue::Bad);
        }
        let operation = rest.u8().ok_or(NoValue::Bad)?;
        if let 0x50..=0x8f | 0x90 | 0x92 = operation {
            let (register, offset) = named(operation, &mut rest).ok_or(NoValue::Bad)?;
            let value = registers.get(register).ok_or(NoValue::Unknown)?;
            values.push(value.wrapping_add_signed(offset)).ok_or(NoValue::Bad)?;
        } else if let Some(skip) = step(operation, &mut rest, &mut values, memory) {
            let target = rest.address().wrapping_add_signed(skip);
            if skip != 0 {
                rest = expression.from(target).ok_or(NoValue::Bad)?;
            }
        } else {
            return Err(NoValue::Bad);
        }
    }
    Err(NoValue::Bad)
}

/// The register that an operation names, and the offset to add to its value.
fn named(operation: u8, rest: &mut Cursor) -> Option<(usize, isize)> {
    Some(match operation {
        0x50..=0x6f => (usize::from(operation - 0x50), 0),
        0x70..=0x8f => (usize::from(operation - 0x70), rest.signed()?),
        0x90 => (rest.unsigned()?, 0),
        _ => (rest.unsigned()?, rest.signed()?),
    })
}

/// Runs an operation that names no register. Returns how many bytes to skip.
fn step(
    operation: u8,
    rest: &mut Cursor,
    values: &mut Values,
    memory: &mut Memory,
) -> Option<isize> {
    let value = match operation {
        0x03 => rest.u64()? as usize,
        0x06 => memory.word(values.pop()?)?,
        0x08 => rest.u8()?.into(),
        0x09 => rest.u8()? as i8 as usize,
        0x0a => rest.u16()?.into(),
        0x0b => rest.u16()? as i16 as usize,
        0x0c => rest.u32()? as usize,
        0x0d => rest.u32()? as i32 as usize,
        0x0e | 0x0f => rest.u64()? as usize,
        0x10 => rest.unsigned()?,
        0x11 => rest.signed()? as usize,
        0x12 => values.pick(0)?,
        0x13 => {
            values.pop()?;
            return Some(0);
        }
        0x14 => values.pick(1)?,
        0x15 => values.pick(rest.u8()?.into())?,
        0x16 => {
            let [top, second] = [values.pop()?, values.pop()?];
            values.push(top)?;
            second
        }
        0x17 => {
            let [top, second, third] = [values.pop()?, values.pop()?, values.pop()?];
            values.push(top)?;
            values.push(third)?;
            second
        }
        0x19 => values.pop()?.cast_signed().wrapping_abs() as usize,
        0x1f => values.pop()?.wrapping_neg(),
        0x20 => !values.pop()?,
        0x23 => values.pop()?.wrapping_add(rest.unsigned()?),
        0x30..=0x4f => usize::from(operation - 0x30),
        0x1a..=0x1e | 0x21 | 0x22 | 0x24..=0x27 | 0x29..=0x2e => {
            let [top, second] = [values.pop()?, values.pop()?];
            of_two(operation, second, top)?
        }
        0x28 => {
            let skip = rest.u16()? as i16;
            return Some(if values.pop()? == 0 { 0 } else { skip.into() });
        }
        0x2f => return Some((rest.u16()? as i16).into()),
        0x94 => {
            let bytes = u32::from(rest.u8()?);
            let word = memory.word(values.pop()?)?;
            // Tables read whole words; smaller numbers are their lower bytes.
            match bytes {
                1 | 2 | 4 => word & ((1 << (8 * bytes)) - 1),
                8 => word,
                _ => return None,
            }
        }
        0x96 => return Some(0),
        _ => return None,
    };
    values.push(value)?;
    Some(0)
}

/// The result of an operation on two values.
fn of_two(operation: u8, a: usize, b: usize) -> Option<usize> {
    let (signed_a, signed_b) = (a.cast_signed(), b.cast_signed());
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    Some(match operation {
        0x1a => a & b,
        0x1b => signed_a.checked_div(signed_b)? as usize,
        0x1c => a.wrapping_sub(b),
        0x1d => a.checked_rem(b)?,
        0x1e => a.wrapping_mul(b),
        0x21 => a | b,
        0x22 => a.wrapping_add(b),
        0x24 => a.checked_shl(shift).unwrap_or(0),
        0x25 => a.checked_shr(shift).unwrap_or(0),
        0x26 => (signed_a >> shift.min(usize::BITS - 1)) as usize,
        0x27 => a ^ b,
        0x29 => (signed_a == signed_b).into(),
        0x2a => (signed_a >= signed_b).into(),
        0x2b => (signed_a > signed_b).into(),
        0x2c => (signed_a <= signed_b).into(),
        0x2d => (signed_a < signed_b).into(),
        0x2e => (signed_a != signed_b).into(),
        _ => return None,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::registers::STACK_POINTER;
    use super::*;

    fn value(expression: &[u8]) -> Result<usize, NoValue> {
        let mut registers = Registers::UNKNOWN;
        registers.set(STACK_POINTER, Some(0x1000));
        evaluate(Cursor::new(expression, 64), Some(5), &registers, &mut Memory::unknown())
    }

    #[test]
    fn arithmetic_and_stack() {
        assert_eq!(value(&[]), Ok(5));
        assert_eq!(value(&[0x33, 0x34, 0x1c]), Ok(usize::MAX));
        assert_eq!(value(&[0x31, 0x32, 0x33, 0x17, 0x24]), Ok(1 << 2));
        assert_eq!(value(&[0x08, 200, 0x09, 200, 0x22]), Ok(144));
        assert_eq!(value(&[0x38, 0x30, 0x1b]), Err(NoValue::Bad));
        assert_eq!(value(&[0x70 + STACK_POINTER as u8, 0x78]), Ok(0xff8));
        assert_eq!(value(&[0x70, 0]), Err(NoValue::Unknown));
    }

    /// That of stubs in the procedure linkage table: the end depends on how far the stub has come.
    #[test]
    fn stubs_of_the_linker() {
        let address = [0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24];
        for (at, pushed) in [(0, 0), (10, 0), (11, 8), (15, 8)] {
            let expression = [&[0x08, at][..], &address].concat();
            assert_eq!(value(&expression), Ok(pushed));
        }
    }

    #[test]
    fn what_does_not_end_is_ended() {
        assert_eq!(value(&[0x2f, 0xfd, 0xff]), Err(NoValue::Bad));
        assert_eq!(value(&[0x2f, 0xf0, 0xff]), Err(NoValue::Bad));
        assert_eq!(value(&[0x12; 40]), Err(NoValue::Bad));
        assert_eq!(value(&[0x06]), Err(NoValue::Bad));
        assert_eq!(value(&[0x31, 0x28, 1, 0, 0xff, 0x35]), Ok(5));
    }
}
