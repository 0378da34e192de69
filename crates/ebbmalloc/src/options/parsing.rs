//! Parses values of options: switches, numbers and sizes. All options, from the environment or
//! elsewhere, use it.

/// Whether the word switches something off.
pub(super) fn is_off(word: &[u8]) -> bool {
    word.is_empty() || is_one_of("|0|off|false|no", word)
}

/// Whether the word switches something on.
pub(super) fn is_on(word: &[u8]) -> bool {
    is_one_of("|1|on|true|yes", word)
}

fn is_one_of(words: &str, word: &[u8]) -> bool {
    each_of(words).any(|candidate| candidate.eq_ignore_ascii_case(word))
}

/// The words of a list, in which a bar precedes each.
pub(super) fn each_of(words: &str) -> impl Iterator<Item = &[u8]> {
    words.as_bytes().split(|&byte| byte == b'|').skip(1)
}

/// The index of `word` in a list, in which `0` stands for all words that switch off, and `1` for
/// those that switch on.
#[inline(never)]
pub(crate) fn position(words: &str, word: &[u8]) -> Option<usize> {
    each_of(words).position(|candidate| match candidate {
        b"0" => is_off(word),
        b"1" => is_on(word),
        _ => candidate == word,
    })
}

/// The number that these digits make.
#[inline(never)]
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let all_digits = digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| all_digits)?.parse().ok()
}

/// A percentage from 1 to 100, by its digits.
pub(super) fn percentage(digits: &[u8]) -> Option<u8> {
    number(digits).filter(|percent| (1..=100).contains(percent)).map(|percent| percent as u8)
}

/// A number of bytes: digits, a fraction or none, and a unit or none ([`bytes_of_unit`]).
#[inline(never)]
pub(super) fn bytes(word: &[u8]) -> Option<u64> {
    let (whole, rest) = split_digits(word);
    let (fraction, unit) = match rest {
        [b'.', rest @ ..] => split_digits(rest),
        _ => (&b"0"[..], rest),
    };
    let unit_bytes = bytes_of_unit(unit)?;
    // Digits beyond the twelfth are less than a byte, or nearly.
    let fraction = if fraction.len() > 12 { &fraction[..12] } else { fraction };
    let scale = 10u64.pow(fraction.len() as u32);
    let part = number(fraction)? as u128 * unit_bytes as u128 / scale as u128;
    number(whole)?.checked_mul(unit_bytes)?.checked_add(part as u64)
}

fn split_digits(word: &[u8]) -> (&[u8], &[u8]) {
    word.split_at(word.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

/// The bytes of a unit: K, M, G and T, also as Ki or KiB, are powers of 1,024; KB and so on are
/// powers of 1,000.
fn bytes_of_unit(unit: &[u8]) -> Option<u64> {
    let (base, prefix): (u64, _) = match unit {
        [] | [b'B' | b'b'] => return Some(1),
        [prefix] | [prefix, b'i'] | [prefix, b'i', b'B' | b'b'] => (1024, prefix),
        [prefix, b'B' | b'b'] => (1000, prefix),
        _ => return None,
    };
    let power = b"KMGT".iter().position(|known| *known == prefix.to_ascii_uppercase())?;
    Some(base.pow(power as u32 + 1))
}

/// The name in the list that is the most like this one: by the fewest letters to insert, delete or
/// replace. Names of the list are shorter than 32 bytes.
#[cold]
#[inline(never)]
pub(crate) fn nearest<'a>(names: &'a str, name: &[u8]) -> &'a str {
    let nearest = each_of(names).min_by_key(|candidate| distance(name, candidate));
    nearest.and_then(|name| str::from_utf8(name).ok()).unwrap_or_default()
}

fn distance(one: &[u8], other: &[u8]) -> usize {
    // From the letters of `one` so far to as many letters of `other` as the index says.
    let mut distances: [usize; 32] = core::array::from_fn(|letters| letters);
    for &letter in one {
        let (mut diagonal, mut left) = (distances[0], distances[0] + 1);
        distances[0] = left;
        for (above, &candidate) in distances[1..].iter_mut().zip(other) {
            let replaced = diagonal + !letter.eq_ignore_ascii_case(&candidate) as usize;
            diagonal = *above;
            left = replaced.min(left + 1).min(diagonal + 1);
            *above = left;
        }
    }
    distances.get(other.len()).copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (word, expected) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("512K", 512 << 10),
            ("512Mi", 512 << 20),
            ("512MiB", 512 << 20),
            ("512m", 512 << 20),
            ("512MB", 512_000_000),
            ("1.5GiB", 3 << 29),
            ("1.5GB", 1_500_000_000),
            ("0.25T", 1 << 38),
            ("1.0000000000000001M", 1 << 20),
            ("16777215T", 16_777_215 << 40),
        ] {
            assert_eq!(bytes(word.as_bytes()), Some(expected), "{word}");
        }
        for word in [
            "",
            "M",
            ".5M",
            "1.M",
            "1..5M",
            "-1M",
            "+1M",
            "1 M",
            "1iB",
            "1Mb/s",
            "0x1M",
            "1e6",
            "16777216T",
            "18446744073709551616",
            "1,5G",
            "1MiBB",
            "1P",
        ] {
            assert_eq!(bytes(word.as_bytes()), None, "{word}");
        }
    }

    #[test]
    fn switches() {
        for word in ["", "0", "off", "OFF", "False", "no"] {
            assert!(is_off(word.as_bytes()) && !is_on(word.as_bytes()), "{word}");
            assert_eq!(position("|1|0|json", word.as_bytes()), Some(1));
        }
        for word in ["1", "on", "On", "TRUE", "yes"] {
            assert!(is_on(word.as_bytes()) && !is_off(word.as_bytes()), "{word}");
            assert_eq!(position("|0|1|json", word.as_bytes()), Some(1));
        }
        for word in ["2", "y", "enabled", "o", "|1"] {
            assert!(!is_on(word.as_bytes()) && !is_off(word.as_bytes()), "{word}");
        }
    }

    #[test]
    fn names_that_are_nearly_right() {
        const NAMES: &str = "|EBB_MODE|EBB_LIMIT|EBB_HARDEN|EBB_STATS|EBB_PROFILE|EBB_PROFILE_AT";
        for (wrong, right) in [
            ("EBB_LIMT", "EBB_LIMIT"),
            ("EBB_limit", "EBB_LIMIT"),
            ("EBB_MEMORY_LIMIT", "EBB_LIMIT"),
            ("EBB_HARDENED", "EBB_HARDEN"),
            ("EBB_STAT", "EBB_STATS"),
            ("EBB_PROFILE_AFTER", "EBB_PROFILE_AT"),
        ] {
            assert_eq!(nearest(NAMES, wrong.as_bytes()), right);
        }
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!(distance(&[b'x'; 100], b"x"), 99);
    }
}
