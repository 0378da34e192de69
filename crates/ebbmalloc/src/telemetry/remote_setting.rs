//! Holds an option that another process asks for: "NAME=VALUE" in words, with a check sum, so that
//! the texts of two processes that ask at once do not mix.

use core::array;

use crate::platform::sync::{AtomicU64, Ordering};

/// Words of the text; one more has the check sum.
const WORDS: usize = 7;

/// The longest text, in bytes.
pub(crate) const SETTING_BYTES: usize = WORDS * 8;

/// The request. All zero if there is none.
#[repr(C)]
pub(crate) struct RemoteSetting {
    words: [AtomicU64; WORDS],
    sum: AtomicU64,
}

impl RemoteSetting {
    pub const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WORDS], sum: AtomicU64::new(0) }
    }

    /// Takes the text, which ends in zeros, into `text`. Returns its length; 0 for none. A text
    /// that is not whole is one of question marks.
    pub fn take(&self, text: &mut [u8; SETTING_BYTES]) -> usize {
        let words: [u64; WORDS] = array::from_fn(|nth| self.words[nth].swap(0, Ordering::Relaxed));
        let sum = self.sum.swap(0, Ordering::Relaxed);
        if words == [0; WORDS] && sum == 0 {
            return 0;
        }
        if sum != sum_of(&words) {
            text.fill(b'?');
            return text.len();
        }
        for (to, word) in text.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        text.iter().position(|&byte| byte == 0).unwrap_or(text.len())
    }

    /// The memory of a request for this text; `None` if it is too long, or empty.
    pub fn of(text: &str) -> Option<[u8; size_of::<Self>()]> {
        let mut memory = [0; size_of::<Self>()];
        memory[..SETTING_BYTES].get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        let words =
            array::from_fn(|nth| u64::from_ne_bytes(array::from_fn(|byte| memory[nth * 8 + byte])));
        memory[SETTING_BYTES..].copy_from_slice(&sum_of(&words).to_ne_bytes());
        (!text.is_empty()).then_some(memory)
    }
}

/// Not 0 for any text of letters and digits.
fn sum_of(words: &[u64; WORDS]) -> u64 {
    words.iter().fold(1, |sum: u64, word| sum.rotate_left(7).wrapping_mul(0x9e37_79b9) ^ word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(memory: [u8; size_of::<RemoteSetting>()]) -> RemoteSetting {
        let word = |nth: usize| {
            AtomicU64::new(u64::from_ne_bytes(array::from_fn(|byte| memory[nth * 8 + byte])))
        };
        RemoteSetting { words: array::from_fn(word), sum: word(WORDS) }
    }

    fn taken(setting: &RemoteSetting) -> Option<std::string::String> {
        let mut text = [0; SETTING_BYTES];
        let length = setting.take(&mut text);
        (length > 0).then(|| std::string::String::from_utf8_lossy(&text[..length]).into())
    }

    #[test]
    fn a_text_passes_once_and_whole() {
        let setting = stored(RemoteSetting::of("limit=512MiB").unwrap());
        assert_eq!(taken(&setting).as_deref(), Some("limit=512MiB"));
        assert_eq!(taken(&setting), None);
        let longest = std::string::String::from("x").repeat(SETTING_BYTES);
        assert_eq!(taken(&stored(RemoteSetting::of(&longest).unwrap())), Some(longest.clone()));
        assert!(RemoteSetting::of(&(longest + "x")).is_none() && RemoteSetting::of("").is_none());
    }

    #[test]
    fn two_texts_do_not_mix() {
        let (one, other) = ("limit=512M", "limit=64M");
        let (mut mixed, other) =
            (RemoteSetting::of(one).unwrap(), RemoteSetting::of(other).unwrap());
        mixed[8..].copy_from_slice(&other[8..]);
        assert!(taken(&stored(mixed)).unwrap().starts_with("???"));
    }
}
