//! Draws text that changes, on the terminal's alternate screen: it neither scrolls away nor leaves
//! traces.

use std::io::{self, Stdout, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap,
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, size,
};
use crossterm::{execute, queue};

/// The size of a terminal that does not tell its own.
const USUAL: (u16, u16) = (80, 24);

/// The alternate screen. Dropping it brings the usual one back.
pub struct Screen {
    output: Stdout,
}

impl Screen {
    pub fn open() -> io::Result<Self> {
        let mut output = io::stdout();
        execute!(output, EnterAlternateScreen, DisableLineWrap, Hide)?;
        Ok(Self { output })
    }

    /// The number of columns.
    pub fn columns() -> usize {
        usize::from(size().unwrap_or(USUAL).0)
    }

    /// Shows text, cut to the terminal, with `footer` as the last line.
    pub fn show(&mut self, text: &str, footer: &str) -> io::Result<()> {
        let (columns, rows) = size().unwrap_or(USUAL);
        queue!(self.output, BeginSynchronizedUpdate)?;
        for (row, line) in fit(text, footer, columns, rows).iter().enumerate() {
            let clear = Clear(ClearType::UntilNewLine);
            queue!(self.output, MoveTo(0, row as u16), Print(line), clear)?;
        }
        queue!(self.output, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        self.output.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = execute!(self.output, Show, EnableLineWrap, LeaveAlternateScreen);
    }
}

/// The lines that fit: the first ones of the text, and the footer.
fn fit(text: &str, footer: &str, columns: u16, rows: u16) -> Vec<String> {
    let cut = |line: &str| console::truncate_str(line, columns.into(), "…").into_owned();
    let room = usize::from(rows).saturating_sub(1);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let left_out = lines.len().saturating_sub(room);
    let mut shown: Vec<_> = lines.iter().take(room).map(|line| cut(line)).collect();
    shown.push(match left_out {
        0 => cut(footer),
        _ => cut(&format!("{footer}; {left_out} more lines need a higher terminal")),
    });
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_to_the_terminal() {
        let text = "one\ntwo is longer than that\nthree\n";
        assert_eq!(fit(text, "end", 8, 10), ["one", "two is …", "three", "end"]);
        let cut = fit(text, "end", 80, 3);
        assert_eq!(cut[..2], ["one", "two is longer than that"]);
        assert_eq!(cut[2], "end; 1 more lines need a higher terminal");
        assert_eq!(fit(text, "end", 80, 0).len(), 1);
    }
}
