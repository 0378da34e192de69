//! Counts a text's words, and which word follows each most often.
//! This kind of work allocates many small strings and tables.

use std::collections::HashMap;

/// The counts of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// In lower case.
    pub word: String,
    /// How often it occurs.
    pub count: usize,
    /// Its most frequent follower, the first in the alphabet of several; empty for a last word.
    pub follower: String,
}

/// The words of a text, the most frequent first.
pub fn followers(text: &str) -> Vec<Word> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut found: HashMap<String, (usize, HashMap<String, usize>)> = HashMap::new();
    let mut before: Option<String> = None;
    for word in words.map(str::to_lowercase) {
        if let Some((_, next)) = before.take().and_then(|before| found.get_mut(&before)) {
            *next.entry(word.clone()).or_default() += 1;
        }
        found.entry(word.clone()).or_default().0 += 1;
        before = Some(word);
    }
    let mut words: Vec<Word> = found
        .into_iter()
        .map(|(word, (count, next))| {
            let best = next.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
            Word { word, count, follower: best.map_or(String::new(), |(follower, _)| follower) }
        })
        .collect();
    words.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.word.cmp(&b.word)));
    words
}

/// A text of `words` words of a language with few letters, always the same.
pub fn sample(words: usize) -> String {
    let mut state = 1u32;
    let mut text = String::new();
    for _ in 0..words {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut letters = (state >> 16) % 5000;
        loop {
            text.push(char::from(b'a' + (letters % 12) as u8));
            letters /= 12;
            if letters == 0 {
                break;
            }
        }
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_are_found() {
        let words = followers("The cat and the dog, and the cat.");
        let row = |word: &str, count, follower: &str| Word {
            word: word.into(),
            count,
            follower: follower.into(),
        };
        assert_eq!(
            words,
            [
                row("the", 3, "cat"),
                row("and", 2, "the"),
                row("cat", 2, "and"),
                row("dog", 1, "and")
            ]
        );
    }

    #[test]
    fn samples_repeat() {
        assert_eq!(sample(1000), sample(1000));
        assert!(followers(&sample(1000)).len() > 100);
    }
}
