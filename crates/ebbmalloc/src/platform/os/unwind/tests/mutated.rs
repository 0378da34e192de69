//! Tables with random mistakes, which must not make their reader panic, hang or leave the object.

use std::vec::Vec;

use super::super::cache::Short;
use super::super::cursor::Cursor;
use super::super::expression::evaluate;
use super::super::memory::Memory;
use super::super::registers::{COUNT, FRAME_POINTER, Registers, STACK_POINTER};
use super::super::row::{End, Row, Rule};
use super::super::table::{self, Tables};

/// An object in memory of the test's own.
pub(super) struct Image {
    pub bytes: Vec<u8>,
    pub start: usize,
}

impl<'a> Tables<'a> for &'a Image {
    fn bytes(&mut self, address: usize, count: usize) -> Option<&'a [u8]> {
        self.bytes.get(address.checked_sub(self.start)?..)?.get(..count)
    }
}

/// Numbers that look random (xorshift64).
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 8) % bound
    }
}

/// Runs all that a frame at this address of code would run.
pub(super) fn leave(image: &Image, header: usize, code: usize) -> Option<Row> {
    let entry = table::find(&mut &*image, header, code)?;
    let row = Row::read(&entry, code)?;
    let mut registers = Registers::UNKNOWN;
    registers.set(STACK_POINTER, Some(image.start));
    registers.set(FRAME_POINTER, Some(image.start + 64));
    let rules = row.rules.iter().filter_map(|rule| match *rule {
        Rule::AtExpression(position) | Rule::Expression(position) => Some(position),
        _ => None,
    });
    let end = match row.end {
        End::Expression(position) => Some(position),
        End::Register(..) => None,
    };
    for position in rules.chain(end) {
        if let Some(expression) = entry.expression(position) {
            let _ = evaluate(expression, Some(1), &registers, &mut Memory::unknown());
        }
    }
    Short::of(&row, entry.common.return_register);
    Some(row)
}

const START: usize = 0x10_0000;
/// The address of the first function. Each has 256 bytes.
const CODE: usize = 0x8_0000;

/// A record of section `.eh_frame`: its length, then a number, then its contents.
fn record(image: &mut Vec<u8>, number: u32, contents: &[u8]) {
    let mut contents = [&number.to_le_bytes()[..], contents].concat();
    contents.resize(contents.len().next_multiple_of(8) + 4, 0);
    image.extend((contents.len() as u32).to_le_bytes());
    image.extend(contents);
}

/// An object with a function for each program.
fn image(programs: &[&[u8]]) -> Image {
    let pairs = 12;
    let mut frames = Vec::new();
    let common = [b"\x01zPLR\0\x01\x78\x10\x07\x00", &[0; 8][..], b"\x1b\x1b\x0c\x07\x08\x90\x01"];
    let mut common = common.concat();
    // The length of the data: the personality routine (8 bytes), and three encodings.
    common[9] = 11;
    record(&mut frames, 0, &common);
    let base = START + pairs + 8 * programs.len();
    let mut table = Vec::new();
    for (nth, program) in programs.iter().enumerate() {
        let at = base + frames.len();
        let code = CODE + 0x100 * nth;
        table.extend((code.wrapping_sub(START) as u32).to_le_bytes());
        table.extend((at.wrapping_sub(START) as u32).to_le_bytes());
        let pointer = (code.wrapping_sub(at + 8) as u32).to_le_bytes();
        let more = [&pointer[..], &0x100_u32.to_le_bytes(), &[4, 0, 0, 0, 0], program].concat();
        let back = (frames.len() + 4) as u32;
        record(&mut frames, back, &more);
    }
    let mut bytes = std::vec![1, 0x1b, 3, 0x3b];
    bytes.extend(((base - START - 4) as u32).to_le_bytes());
    bytes.extend((programs.len() as u32).to_le_bytes());
    bytes.extend(table);
    bytes.extend(frames);
    Image { bytes, start: START }
}

const PROGRAMS: [&[u8]; 6] = [
    // push %rbp; mov %rsp, %rbp; …; leave
    &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 100, 0x0c, 7, 8],
    // Pushes of many registers, and a large frame that is left in two places.
    &[
        0x41, 0x0e, 16, 0x8f, 2, 0x42, 0x0e, 24, 0x83, 3, 0x44, 0x0e, 0x80, 0x40, 0x50, 0x0a, 0x0e,
        8,
    ],
    // A stub of the linker.
    &[0x0e, 16, 0x46, 0x0e, 24, 0x4a, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33],
    // An aligned frame.
    &[0x0c, 10, 0, 0x45, 0x10, 6, 2, 0x76, 0, 0x45, 0x0f, 3, 0x76, 0x78, 6],
    // The outermost frame.
    &[0x07, 16],
    // Kept and restored rows, other registers, arguments.
    &[0x0a, 0x41, 0x0e, 16, 0x0b, 0x0a, 0x09, 3, 12, 0x2e, 16, 0x16, 7, 1, 0x31, 0x14, 5, 2, 0xc3],
];

#[test]
fn rows_are_those_that_the_instructions_build() {
    let image = image(&PROGRAMS);
    let row = |function: usize, offset| leave(&image, START, CODE + 0x100 * function + offset);
    let saved = |row: &Row, register: usize| row.rules[register];
    let [before, pushed, moved, left] = [0, 1, 4, 104].map(|offset| row(0, offset).unwrap());
    assert_eq!(before.end, End::Register(7, 8));
    assert_eq!((pushed.end, saved(&pushed, 6)), (End::Register(7, 16), Rule::At(-16)));
    assert_eq!((moved.end, saved(&moved, 6)), (End::Register(6, 16), Rule::At(-16)));
    assert_eq!(left.end, End::Register(7, 8));
    assert_eq!(row(1, 10).unwrap().end, End::Register(7, 8192));
    assert!(matches!(row(3, 12).unwrap().end, End::Expression(_)));
    assert_eq!(saved(&row(5, 9).unwrap(), 12 - 9), Rule::Same);
    assert_eq!([row(6, 0), row(0, usize::MAX - CODE)], [None; 2]);
    if COUNT == 17 {
        assert_eq!(saved(&before, 16), Rule::At(-8));
        assert_eq!(saved(&row(4, 5).unwrap(), 16), Rule::Lost);
    }
}

#[test]
fn mistakes_end_the_search() {
    let rounds = if cfg!(miri) { 100 } else { 100_000 };
    let mut random = Random(0x1234_5678_9abc_def1);
    let right = image(&PROGRAMS);
    let mut found = 0;
    for _ in 0..rounds {
        let mut wrong = Image { bytes: right.bytes.clone(), start: START };
        for _ in 0..1 + random.below(4) {
            let at = random.below(wrong.bytes.len());
            wrong.bytes[at] = match random.below(3) {
                0 => 0xff,
                1 => wrong.bytes[at] ^ (1 << random.below(8)),
                _ => random.next() as u8,
            };
        }
        if random.below(4) == 0 {
            wrong.bytes.truncate(random.below(right.bytes.len()));
        }
        let code = CODE + random.below(0x100 * (PROGRAMS.len() + 1));
        found += usize::from(leave(&wrong, START, code).is_some());
    }
    assert!((rounds / 10..rounds).contains(&found), "{found}");
}

/// Random bytes in place of a program.
#[test]
fn random_instructions_end() {
    let rounds = if cfg!(miri) { 60 } else { 50_000 };
    let mut random = Random(0xfeed_5678_9abc_def1);
    for _ in 0..rounds {
        let program: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
        let image = image(&[&program]);
        let _ = leave(&image, START, CODE + random.below(0x100));
        let expression = Cursor::new(&program, START);
        let _ = evaluate(expression, None, &Registers::UNKNOWN, &mut Memory::unknown());
    }
}
