//! Names a process.

use core::fmt::{Display, Formatter, Result};

/// A process as messages name it: " (sort, pid 1234)".
#[derive(Clone, Copy, Debug)]
pub struct ProcessName {
    /// The name of the program's file, as far as its letters are plain ones.
    pub program: &'static str,
    /// The number of the process; 0 if it is unknown.
    pub id: u32,
}

impl Display for ProcessName {
    fn fmt(&self, f: &mut Formatter) -> Result {
        match self {
            Self { id: 0, .. } => Ok(()),
            Self { program: "", id } => write!(f, " (pid {id})"),
            Self { program, id } => write!(f, " ({program}, pid {id})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    #[test]
    fn processes_by_name_and_number() {
        let shown = |program, id| format!("{}", ProcessName { program, id });
        assert_eq!(shown("sort", 1234), " (sort, pid 1234)");
        assert_eq!(shown("", 1234), " (pid 1234)");
        assert_eq!(shown("sort", 0), "");
    }
}
