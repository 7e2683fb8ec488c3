//! Lines for the journal, put together without the heap and never waited for.

use std::fmt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// No line of the guard comes near this.
const ROOM: usize = 480;

/// One line. What does not fit is cut off.
#[derive(Debug)]
pub struct Line {
    bytes: [u8; ROOM],
    length: usize,
}

impl Line {
    pub fn of(arguments: fmt::Arguments<'_>) -> Line {
        let mut line = Line { bytes: [0; ROOM], length: 0 };
        let _ = fmt::write(&mut line, arguments);
        line
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// To standard error, if somebody takes it at once: a journal that hangs holds up nothing.
    pub fn say(&self) {
        let mut whole = [0; ROOM + 1];
        whole[..self.length].copy_from_slice(self.as_bytes());
        whole[self.length] = b'\n';
        let stderr = std::io::stderr();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&at_once)) == Ok(1) {
            let _ = rustix::io::write(&stderr, &whole[..=self.length]);
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.len().min(ROOM - self.length);
        self.bytes[self.length..][..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_cut_off() {
        assert_eq!(Line::of(format_args!("token {}", 42)).as_bytes(), b"token 42");
        assert_eq!(Line::of(format_args!("{:2000}", 1)).as_bytes().len(), ROOM);
    }
}
