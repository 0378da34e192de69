//! Parses the comment block at the top of a test program, which says how to build and judge it.
//!
//! A line `// key: value` (or `# key: value` in a script) whose key is one lower-case word is a
//! setting. Every other line of the block is prose.

use anyhow::{Result, bail};

#[derive(Debug)]
pub struct Header(Vec<(String, String)>);

impl Header {
    /// Reads the lines at the start of `text` that begin with `mark`. Keys that are not `known` are
    /// errors, so that a misspelt one does not make a test check less.
    pub fn parse(text: &str, mark: &str, known: &[&str]) -> Result<Header> {
        let mut settings = Vec::new();
        for line in text.lines().map_while(|line| line.strip_prefix(mark)) {
            let Some((key, value)) = line.trim().split_once(": ") else {
                continue;
            };
            if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_lowercase()) {
                continue;
            }
            if !known.contains(&key) {
                bail!("unknown setting `{key}` (known: {})", known.join(", "));
            }
            settings.push((key.to_string(), value.trim().to_string()));
        }
        Ok(Header(settings))
    }

    /// Returns all values of `key`, in order.
    pub fn all(&self, key: &str) -> Vec<&str> {
        self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the words of all values of `key`.
    pub fn words(&self, key: &str) -> Vec<String> {
        self.all(key)
            .iter()
            .flat_map(|value| value.split_whitespace())
            .map(str::to_string)
            .collect()
    }

    /// Returns the last value of `key`.
    pub fn one(&self, key: &str) -> Option<&str> {
        self.all(key).last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_prose_is_not() {
        let text = "// Frees twice: the second must be seen.\n// expect: exit 0\n\
                    // ways: a b\n// ways: c\nint x;\n// expect: exit 1\n";
        let header = Header::parse(text, "//", &["expect", "ways"]).unwrap();
        assert_eq!(header.one("expect"), Some("exit 0"));
        assert_eq!(header.words("ways"), ["a", "b", "c"]);
        assert_eq!(header.one("build"), None);
    }

    #[test]
    fn a_misspelt_key_is_an_error() {
        let error = Header::parse("# exepct: exit 0\n", "#", &["expect"]).unwrap_err();
        assert!(error.to_string().contains("exepct"), "{error}");
    }
}
