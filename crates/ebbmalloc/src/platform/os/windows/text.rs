//! Texts of Windows, which are UTF-16, and those of the engine, which are UTF-8.

/// Writes a text of Windows as UTF-8, cut to fit. Returns its bytes.
pub(super) fn utf8(from: impl IntoIterator<Item = u16>, to: &mut [u8]) -> usize {
    let mut length = 0;
    for symbol in char::decode_utf16(from) {
        let (symbol, mut bytes) = (symbol.unwrap_or(char::REPLACEMENT_CHARACTER), [0; 4]);
        let bytes = symbol.encode_utf8(&mut bytes).as_bytes();
        let Some(place) = to.get_mut(length..length + bytes.len()) else { break };
        place.copy_from_slice(bytes);
        length += bytes.len();
    }
    length
}

/// The units of the text that starts at an address and ends before a zero.
///
/// # Safety
/// The text stays as it is while the result is used.
pub(super) unsafe fn units(start: *const u16) -> impl Iterator<Item = u16> + Clone {
    // SAFETY: the caller guarantees that there is a zero, behind which this never reads.
    (0..).map(move |nth| unsafe { start.add(nth).read() }).take_while(|&unit| unit != 0)
}

/// A text for functions of Windows, with a zero behind it. `None` if it is no UTF-8, or too long.
pub(super) fn utf16(text: &[u8]) -> Option<[u16; 520]> {
    let mut units = [0; 520];
    let last = units.len() - 1;
    for (nth, unit) in str::from_utf8(text).ok()?.encode_utf16().enumerate() {
        *units[..last].get_mut(nth)? = unit;
    }
    Some(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive() {
        let text = "C:\\Bücher\\🦀.txt";
        let units_of = utf16(text.as_bytes()).unwrap();
        let mut bytes = [0; 40];
        // SAFETY: the text ends in a zero, and stays.
        let length = utf8(unsafe { units(units_of.as_ptr()) }, &mut bytes);
        assert_eq!(&bytes[..length], text.as_bytes());
        assert_eq!(utf8("aü".encode_utf16(), &mut [0; 2]), 1);
        assert!(utf16(&[b'x'; 519]).is_some() && utf16(&[b'x'; 520]).is_none());
    }
}
