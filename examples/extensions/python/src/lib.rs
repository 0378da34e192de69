//! The words of a text, for Python.

use pyo3::prelude::*;

#[global_allocator]
static GLOBAL: ebbmalloc::EbbMalloc = ebbmalloc::EbbMalloc;

/// Words of a text with count and most frequent follower.
#[pymodule]
mod words_python {
    use super::*;

    #[pyfunction]
    fn followers(py: Python<'_>, text: &str) -> Vec<(String, usize, String)> {
        let words = py.detach(|| words::followers(text));
        words.into_iter().map(|word| (word.word, word.count, word.follower)).collect()
    }

    #[pyfunction]
    fn sample(words: usize) -> String {
        words::sample(words)
    }
}
