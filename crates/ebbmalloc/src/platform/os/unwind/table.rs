//! Finds what a table says about an address of code: the entry of its function (FDE), and what
//! entries have in common (CIE). Formats: Linux Standard Base, "Exception Frames".

use super::cursor::{Cursor, encoding};

/// The memory of an object whose tables are read.
pub(super) trait Tables<'a> {
    /// These bytes. `None` if they are not all within the object.
    fn bytes(&mut self, address: usize, count: usize) -> Option<&'a [u8]>;

    fn cursor(&mut self, address: usize, count: usize) -> Option<Cursor<'a>> {
        Some(Cursor::new(self.bytes(address, count)?, address))
    }
}

/// What entries have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common<'a> {
    pub code_factor: usize,
    pub data_factor: isize,
    /// The number of the register that stands for the return address.
    pub return_register: usize,
    /// How pointers to code are encoded.
    pub encoding: u8,
    /// Whether the caller of the code was interrupted by a signal.
    pub is_of_signal: bool,
    has_more: bool,
    /// Instructions for the first row.
    pub first: Cursor<'a>,
}

/// The entry of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// The address of the entry itself.
    pub address: usize,
    /// The address of the function's code.
    pub code: usize,
    pub common: Common<'a>,
    /// Instructions for further rows.
    pub program: Cursor<'a>,
}

/// Bytes of a pair in the search table: the address of a function, and that of its entry.
const PAIR_BYTES: usize = 8;
/// The only encoding of pairs that linkers write.
const PAIR_ENCODING: u8 = encoding::OF_HEADER | encoding::SIGNED_4;
/// The most bytes of the header in front of the pairs.
const HEADER_BYTES_MAX: usize = 20;

/// The search table of an object (section `.eh_frame_hdr`).
struct SearchTable {
    header: usize,
    pairs: usize,
    count: usize,
}

impl SearchTable {
    fn read<'a>(tables: &mut impl Tables<'a>, header: usize) -> Option<Self> {
        const VERSION: u8 = 1;
        let mut start = tables.cursor(header, 4)?;
        let [version, frames, count, pairs] = [start.u8()?, start.u8()?, start.u8()?, start.u8()?];
        if version != VERSION || count == encoding::OMITTED || pairs != PAIR_ENCODING {
            return None;
        }
        // At the very end of an object there are fewer bytes than that.
        let mut rest = (8..=HEADER_BYTES_MAX - 4)
            .rev()
            .find_map(|bytes| tables.cursor(header.checked_add(4)?, bytes))?;
        if frames != encoding::OMITTED {
            rest.pointer(frames, header)?;
        }
        let count = rest.pointer(count, header)?;
        Some(Self { header, pairs: rest.address(), count })
    }

    /// The addresses of a function and of its entry.
    fn pair<'a>(&self, tables: &mut impl Tables<'a>, nth: usize) -> Option<[usize; 2]> {
        let address = self.pairs.checked_add(nth.checked_mul(PAIR_BYTES)?)?;
        let mut pair = tables.cursor(address, PAIR_BYTES)?;
        let first = pair.pointer(PAIR_ENCODING, self.header)?;
        Some([first, pair.pointer(PAIR_ENCODING, self.header)?])
    }

    /// The address of the entry of the last function that begins at or below `code`.
    fn find<'a>(&self, tables: &mut impl Tables<'a>, code: usize) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let [start, entry] = self.pair(tables, middle)?;
            if start <= code {
                (low, found) = (middle + 1, Some(entry));
            } else {
                high = middle;
            }
        }
        found
    }
}

/// Numbers that tell one object's table from that of another object at the same address: its
/// size, its function count, and its last pair if that lies in the memory.
pub(super) fn identity<'a>(tables: &mut impl Tables<'a>, header: usize) -> [usize; 4] {
    let read = |tables: &mut _| {
        let table = SearchTable::read(tables, header)?;
        let last = table.pair(tables, table.count.checked_sub(1)?);
        let [code, entry] = last.unwrap_or_default();
        Some([table.pairs, table.count, code, entry])
    };
    read(tables).unwrap_or_default()
}

/// The entry of the function that contains the address `code`.
pub(super) fn find<'a>(
    tables: &mut impl Tables<'a>,
    header: usize,
    code: usize,
) -> Option<Entry<'a>> {
    let address = SearchTable::read(tables, header)?.find(tables, code)?;
    let (mut rest, is_wide) = record(tables, address)?;
    let place = rest.address();
    let back = if is_wide { rest.u64()? as usize } else { rest.u32()? as usize };
    if back == 0 {
        return None;
    }
    let common = Common::read(tables, place.checked_sub(back)?)?;
    let start = rest.pointer(common.encoding, 0)?;
    let bytes = rest.pointer(common.encoding & encoding::FORMAT, 0)?;
    if code.wrapping_sub(start) >= bytes {
        return None;
    }
    if common.has_more {
        let count = rest.unsigned()?;
        rest.take(count)?;
    }
    Some(Entry { address, code: start, common, program: rest })
}

/// The contents of a record of section `.eh_frame`, and whether its format is the wide one.
fn record<'a>(tables: &mut impl Tables<'a>, address: usize) -> Option<(Cursor<'a>, bool)> {
    const WIDE: u32 = u32::MAX;
    let length = tables.cursor(address, 4)?.u32()?;
    let address = address.checked_add(4)?;
    if length != WIDE {
        return Some((tables.cursor(address, length as usize)?, false));
    }
    let length = tables.cursor(address, 8)?.u64()? as usize;
    Some((tables.cursor(address.checked_add(8)?, length)?, true))
}

impl<'a> Common<'a> {
    fn read(tables: &mut impl Tables<'a>, address: usize) -> Option<Self> {
        let (mut rest, is_wide) = record(tables, address)?;
        let id = if is_wide { rest.u64()? } else { rest.u32()?.into() };
        let version = rest.u8()?;
        if id != 0 || !matches!(version, 1 | 3) {
            return None;
        }
        let letters = rest.text()?;
        let mut common = Self {
            code_factor: rest.unsigned()?,
            data_factor: rest.signed()?,
            return_register: if version == 1 { rest.u8()?.into() } else { rest.unsigned()? },
            encoding: encoding::ABSOLUTE,
            is_of_signal: false,
            has_more: false,
            first: rest,
        };
        if let Some((b'z', letters)) = letters.split_first() {
            let count = rest.unsigned()?;
            let mut data = rest.take(count)?;
            common.has_more = true;
            for letter in letters {
                match letter {
                    b'R' => common.encoding = data.u8()?,
                    b'L' => drop(data.u8()?),
                    b'P' => {
                        let encoding = data.u8()?;
                        data.pointer(encoding & encoding::FORMAT, 0)?;
                    }
                    b'S' => common.is_of_signal = true,
                    // AArch64: which key signs addresses, and whether the frame is tagged.
                    b'B' | b'G' => {}
                    // The letters behind it cannot be told, but their bytes can be skipped.
                    _ => break,
                }
            }
        } else if !letters.is_empty() {
            return None;
        }
        common.first = rest;
        Some(common)
    }
}
