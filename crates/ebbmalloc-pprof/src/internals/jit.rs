//! Names of code that a runtime compiled itself, from the file that it writes for perf:
//! `/tmp/perf-PID.map`, one line `start size name` a function.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The longest file that is read: its process, or any other, may have put there what it likes.
const BYTES_MAX: u64 = 1 << 30;

/// Functions by address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JitMap {
    /// Start, end and name, in the order of starts.
    functions: Vec<(u64, u64, String)>,
}

impl JitMap {
    /// The map of a process, in its own `/tmp` and by its own process ID, which differ from ours if
    /// it is in a container.
    pub fn of_process(pid: i32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let inner = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last())
            .and_then(|number| number.parse().ok())
            .unwrap_or(pid);
        Self::read(&format!("/proc/{pid}/root/tmp/perf-{inner}.map"))
    }

    /// The map that a process here has left, which may be gone.
    pub fn left_by(pid: i32) -> Self {
        Self::read(&format!("/tmp/perf-{pid}.map"))
    }

    /// Reads no pipe or device, which may have no end.
    fn read(path: &str) -> Self {
        let mut text = Vec::new();
        if Path::new(path).is_file()
            && let Ok(file) = File::open(path)
        {
            // What was read before an error counts.
            let _ = file.take(BYTES_MAX).read_to_end(&mut text);
        }
        Self::parse(&text)
    }

    pub fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let line = |line: &str| {
            let mut fields = line.trim_end().splitn(3, ' ');
            let number =
                |digits: &str| u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok();
            let (start, size) = (number(fields.next()?)?, number(fields.next()?)?);
            let name = fields.next().filter(|name| !name.is_empty())?;
            Some((start, start.checked_add(size)?, plain(name)))
        };
        // The runtime may use memory again: then the last line counts.
        let mut functions: Vec<_> = text.lines().rev().filter_map(line).collect();
        functions.sort_by_key(|function| function.0);
        functions.dedup_by_key(|function| function.0);
        Self { functions }
    }

    /// The function at an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|function| function.0 <= address);
        let (_, end, name) = self.functions.get(after.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }
}

/// A function's name without what does not tell functions apart.
fn plain(name: &str) -> String {
    // V8 marks how well it compiled a function, and compiles some several times.
    if let Some(rest) = name.strip_prefix("JS:") {
        return format!("JS:{}", rest.trim_start_matches(['~', '^', '*']));
    }
    // Java has no prefix, but `TYPE package.Class.method(TYPES)`.
    let method = || {
        let (method, types) = name.split_once(' ')?.1.split_once('(')?;
        let is_one = types.ends_with(')') && method.contains('.') && !method.contains(' ');
        is_one.then(|| format!("java::{method}"))
    };
    method().unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_address() {
        let map = JitMap::parse(
            b"3000 10 py::old:/app.py\n1000 80 LazyCompile:*sum /app.js:3\nnonsense\n\
              3000 20 py::new:/app.py\nffffffffffffffff 10 beyond\n\
              2000 10 JS:^keep /app.js:3:16\n\
              0x0000000000004000 0x0000000000000010 byte[] app.Cache.get(java.lang.String, int)\n\
              4010 10 void app.Cache.<init>()\n4020 10 flush_icache_stub\n\
              4030 10 StackOverflowError throw_exception\n4040 10 StubRoutines (1)\n",
        );
        assert_eq!(map.name(0x0fff), None);
        assert_eq!(map.name(0x1000), Some("LazyCompile:*sum /app.js:3"));
        assert_eq!(map.name(0x107f), Some("LazyCompile:*sum /app.js:3"));
        assert_eq!(map.name(0x1080), None);
        assert_eq!(map.name(0x2000), Some("JS:keep /app.js:3:16"));
        assert_eq!(map.name(0x301f), Some("py::new:/app.py"));
        assert_eq!(map.name(0x4000), Some("java::app.Cache.get"));
        assert_eq!(map.name(0x4010), Some("java::app.Cache.<init>"));
        assert_eq!(map.name(0x4020), Some("flush_icache_stub"));
        assert_eq!(map.name(0x4030), Some("StackOverflowError throw_exception"));
        assert_eq!(map.name(0x4040), Some("StubRoutines (1)"));
        assert_eq!(JitMap::parse(b"\xff\xfe").name(0), None);
        assert_eq!(JitMap::read("/dev/zero"), JitMap::default());
    }
}
