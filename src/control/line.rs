//! Lines from a stream, each at most [`MAX_LINE`] bytes, whatever the sender does.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::MAX_LINE;

/// One read from the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its newline; the last one may have had none.
    Whole(Vec<u8>),
    /// More than [`MAX_LINE`] bytes without a newline. Nothing sensible can follow.
    TooLong,
    Closed,
}

/// Cuts a stream into lines. Never holds more than one line and one read.
#[derive(Debug)]
pub(super) struct Lines<R> {
    stream: R,
    buffer: Vec<u8>,
    /// The part of the buffer that is known to hold no newline.
    searched: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(stream: R) -> Lines<R> {
        Lines { stream, buffer: Vec::new(), searched: 0 }
    }

    /// The next line. Loses nothing when it is dropped before it is ready.
    pub(super) async fn next(&mut self) -> io::Result<Line> {
        loop {
            if let Some(line) = self.cut() {
                return Ok(line);
            }
            self.buffer.reserve(4096);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(self.rest());
            }
        }
    }

    fn cut(&mut self) -> Option<Line> {
        let newline = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n');
        match newline.map(|at| self.searched + at) {
            Some(at) if at < MAX_LINE => {
                let mut line: Vec<u8> = self.buffer.drain(..=at).collect();
                line.pop();
                self.searched = 0;
                Some(Line::Whole(line))
            }
            None if self.buffer.len() < MAX_LINE => {
                self.searched = self.buffer.len();
                None
            }
            _ => Some(Line::TooLong),
        }
    }

    fn rest(&mut self) -> Line {
        self.searched = 0;
        match std::mem::take(&mut self.buffer) {
            rest if rest.is_empty() => Line::Closed,
            rest => Line::Whole(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(bytes: &[u8]) -> Vec<Line> {
        let mut lines = Lines::new(bytes);
        let mut all = Vec::new();
        loop {
            let line = lines.next().await.unwrap();
            let last = matches!(line, Line::Closed | Line::TooLong);
            all.push(line);
            if last {
                return all;
            }
        }
    }

    #[tokio::test]
    async fn lines_are_cut_at_newlines_and_the_last_needs_none() {
        let whole = |text: &str| Line::Whole(text.into());
        assert_eq!(lines(b"one\n\ntwo").await, [whole("one"), whole(""), whole("two"), Line::Closed]);
    }

    #[tokio::test]
    async fn the_longest_line_passes_and_one_byte_more_does_not() {
        let mut longest = vec![b'x'; MAX_LINE - 1];
        longest.push(b'\n');
        assert!(matches!(lines(&longest).await[0], Line::Whole(ref line) if line.len() == MAX_LINE - 1));
        longest.insert(0, b'x');
        assert_eq!(lines(&longest).await, [Line::TooLong]);
    }
}
