//! The terminal: lines that stay, and below them a panel that is drawn over.

use std::io::{self, Write};

use super::show::View;
use crate::cli::page::terminal_width;
use crate::core::Instant;

/// Up some lines and clear from there to the end: the panel has a fixed height.
fn clear(lines: usize) -> String {
    format!("\x1b[{lines}A\x1b[J")
}

/// Where the demo writes to.
pub struct Screen<'a> {
    out: &'a mut dyn Write,
    /// Whether anything is drawn over.
    moving: bool,
    pub colour: bool,
    pub width: usize,
    drawn: usize,
}

impl<'a> Screen<'a> {
    pub fn new(out: &'a mut dyn Write, moving: bool, colour: bool) -> Screen<'a> {
        Screen { out, moving, colour, width: terminal_width(), drawn: 0 }
    }

    /// Text that stays, whole lines.
    ///
    /// # Errors
    /// The reader has closed the pipe.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        self.wipe()?;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Draws the panel (again).
    ///
    /// # Errors
    /// The reader has closed the pipe.
    pub fn draw(&mut self, view: &View, now: Instant) -> io::Result<()> {
        if !self.moving {
            return Ok(());
        }
        self.wipe()?;
        let panel = super::show::panel(view, now, self.width, self.colour);
        self.drawn = panel.lines().count();
        self.out.write_all(panel.as_bytes())?;
        self.out.flush()
    }

    /// # Errors
    /// The reader has closed the pipe.
    pub fn wipe(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.drawn) {
            0 => Ok(()),
            lines => self.out.write_all(clear(lines).as_bytes()),
        }
    }
}
