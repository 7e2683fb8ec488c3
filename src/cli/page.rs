//! Text for a terminal of a given width: wrapped lines, aligned tables, a little colour. Pure.

use std::fmt::Write;

/// How a piece of text is to look. Never the only carrier of a meaning: colours are stripped where nobody sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Bold,
    Dim,
    Red,
    Yellow,
    Green,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Paint::Plain => "",
            Paint::Bold => "\x1b[1m",
            Paint::Dim => "\x1b[2m",
            Paint::Red => "\x1b[1;31m",
            Paint::Yellow => "\x1b[33m",
            Paint::Green => "\x1b[32m",
        }
    }
}

/// Lines under construction.
#[derive(Debug)]
pub struct Page {
    width: usize,
    colour: bool,
    text: String,
}

impl Page {
    /// Nothing here can be read below 40 columns, and no terminal has more than 400.
    pub fn new(width: usize, colour: bool) -> Page {
        Page { width: width.clamp(40, 400), colour, text: String::new() }
    }

    pub fn into_text(self) -> String {
        self.text
    }

    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// `text` after `prefix`, wrapped at words; further lines are indented by the prefix's length.
    pub fn wrapped(&mut self, prefix: &str, text: &str, paint: Paint) {
        let indent = prefix.chars().count();
        let mut start = prefix.to_owned();
        for line in wrap(text, self.width.saturating_sub(indent)) {
            let line = format!("{start}{line}");
            self.paint(&line, paint);
            self.text.push('\n');
            start = " ".repeat(indent);
        }
    }

    /// `left` in colour, and `right` at the right margin, or on a line of its own where both do not fit.
    pub fn both_ends(&mut self, left: &str, paint: Paint, right: &str) {
        let used = left.chars().count() + right.chars().count();
        self.paint(left, paint);
        match self.width.checked_sub(used) {
            Some(gap) if gap >= 2 => self.text.push_str(&" ".repeat(gap)),
            _ => self.text.push('\n'),
        }
        self.paint(right, Paint::Dim);
        self.text.push('\n');
    }

    /// Columns as wide as their widest cell, two blanks apart; the first row is the heading.
    pub fn table(&mut self, rows: &[Vec<String>]) {
        self.rows(rows, Paint::Dim);
    }

    /// The same without a heading: names and their values.
    pub fn list(&mut self, rows: &[Vec<String>]) {
        self.rows(rows, Paint::Plain);
    }

    fn rows(&mut self, rows: &[Vec<String>], first: Paint) {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width_of = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width_of(column).unwrap_or(0)).collect();
        for (index, row) in rows.iter().enumerate() {
            let line = row.iter().zip(&widths).fold(String::new(), |mut line, (cell, width)| {
                // Writing into a string cannot fail.
                let _ = write!(line, "{cell:<width$}  ");
                line
            });
            let line: String = line.trim_end().chars().take(self.width).collect();
            self.paint(&line, if index == 0 { first } else { Paint::Plain });
            self.text.push('\n');
        }
    }

    fn paint(&mut self, text: &str, paint: Paint) {
        if self.colour && paint != Paint::Plain {
            self.text.extend([paint.code(), text, "\x1b[0m"]);
        } else {
            self.text.push_str(text);
        }
    }
}

/// Cuts at blanks; a word longer than the width stays whole, since it is a path or a command to copy.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line from the start on");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// A length of time as people say it: two units at most.
pub fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{}.{}s", seconds, ms % 1000 / 100),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A short length of time, where milliseconds matter.
pub fn short(ms: u64) -> String {
    if ms < 1000 { format!("{ms}ms") } else { age(ms) }
}

/// Columns of the terminal. 80 where the environment does not say, as with most terminals and all logs.
pub fn terminal_width() -> usize {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_at_words_and_long_words_stay_whole() {
        let mut page = Page::new(40, false);
        page.wrapped("! ", "the peer is silent; see /var/lib/leasehold/a/very/long/path/to/the/record", Paint::Red);
        let text = page.into_text();
        assert_eq!(text, "! the peer is silent; see\n  /var/lib/leasehold/a/very/long/path/to/the/record\n");
    }

    #[test]
    fn ages_have_two_units_at_most() {
        assert_eq!(age(240), "0.2s");
        assert_eq!(age(190_000), "3m 10s");
        assert_eq!(age(7_500_000), "2h 5m");
        assert_eq!(age(273_600_000), "3d 4h");
    }

    #[test]
    fn tables_are_aligned_and_never_wider_than_the_page() {
        let mut page = Page::new(40, false);
        page.table(&[vec!["a".into(), "b".into()], vec!["long cell".into(), "x".repeat(60)]]);
        let text = page.into_text();
        assert!(text.starts_with("a          b\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    }
}
