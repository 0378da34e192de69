//! The words of a text, for Node.

use napi_derive::napi;

#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;

/// A word with its count and its most frequent follower.
#[napi(object)]
pub struct Word {
    pub word: String,
    pub count: u32,
    pub follower: String,
}

/// The words of a text, the most frequent first.
#[napi]
pub fn followers(text: String) -> Vec<Word> {
    let convert = |word: words::Word| Word {
        word: word.word,
        count: word.count as u32,
        follower: word.follower,
    };
    words::followers(&text).into_iter().map(convert).collect()
}

/// A text to work on.
#[napi]
pub fn sample(words: u32) -> String {
    words::sample(words as usize)
}
