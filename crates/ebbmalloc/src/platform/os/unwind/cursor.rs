//! Reads the numbers of unwinding tables from bytes, and never beyond them.

/// Formats and bases of encoded pointers (Linux Standard Base, "DWARF Extensions").
pub(super) mod encoding {
    pub const OMITTED: u8 = 0xff;
    pub const FORMAT: u8 = 0x0f;
    pub const BASE: u8 = 0x70;
    pub const ABSOLUTE: u8 = 0x00;
    pub const UNSIGNED_LEB: u8 = 0x01;
    pub const UNSIGNED_2: u8 = 0x02;
    pub const UNSIGNED_4: u8 = 0x03;
    pub const UNSIGNED_8: u8 = 0x04;
    pub const SIGNED_LEB: u8 = 0x09;
    pub const SIGNED_2: u8 = 0x0a;
    pub const SIGNED_4: u8 = 0x0b;
    pub const SIGNED_8: u8 = 0x0c;
    pub const OF_PLACE: u8 = 0x10;
    pub const OF_HEADER: u8 = 0x30;
}

/// Bytes that are still to be read, and the address at which they lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    address: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], address: usize) -> Self {
        Self { bytes, address }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn address(&self) -> usize {
        self.address
    }

    /// The same bytes from an address among them on.
    pub fn from(&self, address: usize) -> Option<Self> {
        let skipped = address.checked_sub(self.address)?;
        Some(Self { bytes: self.bytes.get(skipped..)?, address })
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<Self> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        let taken = Self { bytes: taken, address: self.address };
        (self.bytes, self.address) = (rest, self.address.wrapping_add(count));
        Some(taken)
    }

    /// The bytes before the next zero, which is read too.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.bytes.iter().position(|&byte| byte == 0)?;
        let text = self.take(length)?.bytes;
        self.take(1)?;
        Some(text)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.bytes.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The bits of a number in LEB128, how many there are, and whether the last one is set.
    fn leb(&mut self) -> Option<(u64, u32, bool)> {
        let (mut value, mut bits) = (0, 0);
        loop {
            let byte = self.u8()?;
            if bits < u64::BITS {
                value |= u64::from(byte & 0x7f) << bits;
            }
            bits += 7;
            if byte & 0x80 == 0 {
                return Some((value, bits, byte & 0x40 != 0));
            }
        }
    }

    /// An unsigned number in LEB128.
    pub fn unsigned(&mut self) -> Option<usize> {
        self.leb().map(|(value, _, _)| value as usize)
    }

    /// A signed number in LEB128.
    pub fn signed(&mut self) -> Option<isize> {
        let (value, bits, is_negative) = self.leb()?;
        let sign = if is_negative && bits < u64::BITS { u64::MAX << bits } else { 0 };
        Some((value | sign) as isize)
    }

    /// A pointer in this encoding, where `header` is the address of the table's header. `None` also
    /// for encodings that tables of code do not use.
    pub fn pointer(&mut self, encoding: u8, header: usize) -> Option<usize> {
        use encoding::*;
        let place = self.address;
        let value = match encoding & FORMAT {
            ABSOLUTE | UNSIGNED_8 | SIGNED_8 => self.u64()? as usize,
            UNSIGNED_LEB => self.unsigned()?,
            UNSIGNED_2 => self.u16()?.into(),
            UNSIGNED_4 => self.u32()? as usize,
            SIGNED_LEB => self.signed()? as usize,
            SIGNED_2 => self.u16()? as i16 as usize,
            SIGNED_4 => self.u32()? as i32 as usize,
            _ => return None,
        };
        match encoding & BASE {
            ABSOLUTE => Some(value),
            OF_PLACE => Some(value.wrapping_add(place)),
            OF_HEADER => Some(value.wrapping_add(header)),
            _ => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_leb128() {
        let unsigned = |bytes: &[u8]| Cursor::new(bytes, 0).unsigned();
        let signed = |bytes: &[u8]| Cursor::new(bytes, 0).signed();
        // The examples of DWARF 5, section 7.6.
        assert_eq!([&[2][..], &[0x80, 1], &[0xb9, 0x64]].map(unsigned), [2, 128, 12857].map(Some));
        assert_eq!([&[2][..], &[0x7e], &[0xff, 0], &[0x81, 0x7f]].map(signed), {
            [2, -2, 127, -127].map(Some)
        });
        assert_eq!((unsigned(&[0x80]), signed(&[])), (None, None));
        assert_eq!(unsigned(&[0xff; 30]), None);
        let mut long = [0xff; 12];
        long[11] = 0x7f;
        assert_eq!((unsigned(&long), signed(&long)), (Some(usize::MAX), Some(-1)));
    }

    #[test]
    fn pointers_are_relative_to_their_place_or_header() {
        let bytes = [0xf0, 0xff, 0xff, 0xff];
        let read = |encoding| Cursor::new(&bytes, 0x1000).pointer(encoding, 0x2000);
        assert_eq!([0x1b, 0x3b, 0x03].map(read), [0xff0, 0x1ff0, 0xffff_fff0].map(Some));
        assert_eq!([0x00, 0x2b, 0x50, 0x0d].map(read), [None; 4]);
    }
}
