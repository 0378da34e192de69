//! Caches the rows of most frames, by address of code: reading a table takes a microsecond, finding
//! a row here nanoseconds.
//!
//! A row fits in one number if its frame's end is counted from the stack or frame pointer, and
//! the return address, frame pointer and base pointer are saved close to the end.

use super::registers::{BASE_POINTER, FRAME_POINTER, STACK_POINTER};
use super::row::{End, Row, Rule};
#[cfg(not(loom))]
use super::sequence_lock::SequenceLock;

/// How to leave a frame whose row is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Short {
    /// The frame is the outermost.
    Outermost,
    /// No table describes the code.
    NoTable,
    /// The frame's end, and where words lie below it.
    Frame(Frame),
}

/// Distances in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    /// Whether the end is counted from the frame pointer, not the stack pointer.
    pub by_frame_pointer: bool,
    /// The end, above that register.
    pub end: usize,
    /// The return address, below the end.
    pub address: usize,
    /// The caller's frame pointer, below the end. 0 if the register still holds it.
    pub frame_pointer: usize,
    /// The caller's base pointer, below the end. 0 if the register still holds it.
    pub base_pointer: usize,
}

const WORD_BYTES: usize = size_of::<usize>();
const END_BITS: u32 = 20;
const DISTANCE_BITS: u32 = 13;
const KIND_BITS: u32 = 3;
const OUTERMOST: u64 = 1;
const NO_TABLE: u64 = 2;
const BY_STACK_POINTER: u64 = 3;
const BY_FRAME_POINTER: u64 = 4;

impl Short {
    /// The short form of a row, if it has one.
    pub fn of(row: &Row, return_register: usize) -> Option<Self> {
        let distance = |rule| match rule {
            Rule::At(offset) => words(-(offset as isize), DISTANCE_BITS).filter(|&words| words > 0),
            _ => None,
        };
        let kept = |rule| if rule == Rule::Same { Some(0) } else { distance(rule) };
        let address = *row.rules.get(return_register)?;
        if address == Rule::Lost {
            return Some(Self::Outermost);
        }
        let End::Register(register, offset) = row.end else { return None };
        let is_plain = row.rules[STACK_POINTER] == Rule::Same
            && matches!(register, STACK_POINTER | FRAME_POINTER);
        if !is_plain {
            return None;
        }
        Some(Self::Frame(Frame {
            by_frame_pointer: register == FRAME_POINTER,
            end: words(offset, END_BITS)?,
            address: distance(address)?,
            frame_pointer: kept(row.rules[FRAME_POINTER])?,
            base_pointer: kept(row.rules[BASE_POINTER])?,
        }))
    }

    fn to_bits(self) -> u64 {
        let frame = match self {
            Self::Outermost => return OUTERMOST,
            Self::NoTable => return NO_TABLE,
            Self::Frame(frame) => frame,
        };
        let words = [frame.base_pointer, frame.frame_pointer, frame.address];
        let distances = words.iter().fold(0, |bits, &word| bits << DISTANCE_BITS | word as u64);
        let kind = if frame.by_frame_pointer { BY_FRAME_POINTER } else { BY_STACK_POINTER };
        (distances << END_BITS | frame.end as u64) << KIND_BITS | kind
    }

    #[inline(always)]
    fn from_bits(bits: u64) -> Option<Self> {
        let kind = bits & ((1 << KIND_BITS) - 1);
        let end = (bits >> KIND_BITS) as usize & ((1 << END_BITS) - 1);
        let distances = (bits >> (KIND_BITS + END_BITS)) as usize;
        let distance = |nth: u32| distances >> (nth * DISTANCE_BITS) & ((1 << DISTANCE_BITS) - 1);
        match kind {
            OUTERMOST => Some(Self::Outermost),
            NO_TABLE => Some(Self::NoTable),
            BY_STACK_POINTER | BY_FRAME_POINTER => Some(Self::Frame(Frame {
                by_frame_pointer: kind == BY_FRAME_POINTER,
                end,
                address: distance(0),
                frame_pointer: distance(1),
                base_pointer: distance(2),
            })),
            _ => None,
        }
    }
}

/// An offset in words, if it is a whole number of them that takes at most `bits` bits.
fn words(offset: isize, bits: u32) -> Option<usize> {
    let offset = usize::try_from(offset).ok()?;
    let words = offset / WORD_BYTES;
    (offset.is_multiple_of(WORD_BYTES) && words >> bits == 0).then_some(words)
}

/// Bits of an address of code in the key of a slot; the object's identity takes the others.
const ADDRESS_BITS: u32 = 48;
#[cfg(not(loom))]
const SLOTS_BITS: u32 = 12;
/// 96 KiB, of which pages become resident as they are used.
#[cfg(not(loom))]
static SLOTS: [SequenceLock<2>; 1 << SLOTS_BITS] = [SequenceLock::ZERO; 1 << SLOTS_BITS];

#[cfg(not(loom))]
fn slot(code: usize) -> &'static SequenceLock<2> {
    let hash = (code as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &SLOTS[(hash >> (u64::BITS - SLOTS_BITS)) as usize]
}

/// The key of an address of code in an object with this identity.
fn key(code: usize, object: u16) -> Option<u64> {
    (code >> ADDRESS_BITS == 0).then_some(code as u64 | u64::from(object) << ADDRESS_BITS)
}

/// The cached row for this address of code in an object with this identity.
#[cfg(not(loom))]
#[inline(always)]
pub(super) fn find(code: usize, object: u16) -> Option<Short> {
    let [found, row] = slot(code).read()?;
    if key(code, object) != Some(found) {
        return None;
    }
    Short::from_bits(row)
}

/// Caches a row.
#[cfg(not(loom))]
pub(super) fn keep(code: usize, object: u16, row: Short) {
    if let Some(key) = key(code, object) {
        slot(code).write([key, row.to_bits()]);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::registers::COUNT;
    use super::*;

    #[test]
    fn short_rows_keep_their_numbers() {
        let most = (1 << DISTANCE_BITS) - 1;
        let frame = |by_frame_pointer, [end, address, frame_pointer, base_pointer]: [usize; 4]| {
            Short::Frame(Frame { by_frame_pointer, end, address, frame_pointer, base_pointer })
        };
        let frames = [
            frame(false, [1, 1, 0, 0]),
            frame(true, [2, 1, 2, 3]),
            frame(true, [(1 << END_BITS) - 1, most, most, most]),
        ];
        for row in [Short::Outermost, Short::NoTable].into_iter().chain(frames) {
            assert_eq!(Short::from_bits(row.to_bits()), Some(row));
        }
        assert_eq!(Short::from_bits(0), None);
    }

    #[test]
    fn rows_with_other_rules_are_not_short() {
        const RETURN: usize = 16;
        let row = |end, address| {
            let mut row = Row { end, rules: [Rule::Same; COUNT] };
            row.rules[RETURN] = address;
            Short::of(&row, RETURN)
        };
        let end = End::Register(STACK_POINTER, 8);
        assert!(matches!(row(end, Rule::At(-8)), Some(Short::Frame(_))));
        assert_eq!(row(End::Expression(0), Rule::Lost), Some(Short::Outermost));
        for other in [
            row(end, Rule::Same),
            row(end, Rule::At(8)),
            row(end, Rule::At(-4)),
            row(end, Rule::At(-8 << DISTANCE_BITS)),
            row(end, Rule::Expression(0)),
            row(End::Expression(0), Rule::At(-8)),
            row(End::Register(STACK_POINTER, -8), Rule::At(-8)),
            row(End::Register(STACK_POINTER, 8 << END_BITS), Rule::At(-8)),
            row(End::Register(BASE_POINTER, 8), Rule::At(-8)),
        ] {
            assert_eq!(other, None);
        }
    }

    #[test]
    fn rows_are_found_by_address_and_object() {
        let code = 0x7777_1234_5678;
        keep(code, 7, Short::NoTable);
        assert_eq!(find(code, 7), Some(Short::NoTable));
        assert_eq!([find(code, 8), find(code + 1, 7), find(1 << 48, 0)], [None; 3]);
    }
}
