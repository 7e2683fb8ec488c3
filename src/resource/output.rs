//! What a service prints goes to the journal, bounded, and outlives the daemon.
//!
//! The service gets a pipe that it holds open in *both* directions: when the daemon ends, a print neither kills it (there
//! is still a reader) nor is lost at once, and the next daemon opens the same pipe through `/proc` and reads on.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{OpenOptions as PipeOptions, Receiver};
use tokio::time::{MissedTickBehavior, interval};

/// The allowances below are for one tick.
const TICK: Duration = Duration::from_millis(100);
/// A service that prints faster than 40 MB a second waits for its reader, as it would for a disk: the loop that sends
/// heartbeats comes first.
const BYTES_PER_TICK: usize = 4 << 20;
/// 200 lines a second in the long run.
const LINES_PER_TICK: usize = 20;
/// What may come at once, such as the page that a service prints at its start.
const LINES_AT_ONCE: usize = 500;
/// The longest line that is passed on; the rest of it is dropped.
const MAX_LINE: usize = 1024;

/// The pipe of one service, before it starts.
#[derive(Debug)]
pub struct Pipe {
    pub reader: OwnedFd,
    /// For the service's stdout and stderr.
    pub writer: File,
    /// Tells this pipe from every other: the number that `/proc/PID/fd` shows.
    pub inode: u64,
}

impl Pipe {
    pub fn new() -> io::Result<Pipe> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let both = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", writer.as_raw_fd()))?;
        let inode = both.metadata()?.ino();
        Ok(Pipe { reader, writer: both, inode })
    }
}

/// Opens the pipe of a running service again, if it still holds that very one.
pub fn reopen(pid: i32, inode: u64) -> Option<Receiver> {
    let paths = [1, 2].map(|fd| format!("/proc/{pid}/fd/{fd}"));
    let is_it =
        |path: &&String| std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo() && meta.ino() == inode);
    paths.iter().find(is_it).and_then(|path| PipeOptions::new().open_receiver(path).ok())
}

/// Passes lines on to `sink` until the last process that holds the pipe has ended. What is too much is counted and told.
pub async fn pump(mut reader: Receiver, mut sink: impl FnMut(&str) + Send) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lines = Lines { left: LINES_AT_ONCE, ..Lines::default() };
    let mut chunk = vec![0; 16 * 1024];
    let mut bytes = BYTES_PER_TICK;
    loop {
        tokio::select! {
            biased;
            _ = tick.tick() => {
                bytes = BYTES_PER_TICK;
                lines.refill(&mut sink);
            }
            read = reader.read(&mut chunk), if bytes > 0 => match read {
                Ok(0) | Err(_) => break,
                Ok(n) => {
                    bytes = bytes.saturating_sub(n);
                    lines.take(&chunk[..n], &mut sink);
                }
            }
        }
    }
    lines.end(&mut sink);
}

/// Splits what comes into lines and holds back what is too much.
#[derive(Debug, Default)]
struct Lines {
    /// How many lines may still be passed on.
    left: usize,
    dropped: u64,
    partial: Vec<u8>,
}

impl Lines {
    fn take(&mut self, mut bytes: &[u8], sink: &mut impl FnMut(&str)) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.keep(&bytes[..end]);
            self.pass(sink);
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.partial.len()).min(bytes.len());
        self.partial.extend_from_slice(&bytes[..room]);
    }

    fn pass(&mut self, sink: &mut impl FnMut(&str)) {
        if self.left == 0 {
            self.dropped += 1;
        } else {
            self.left -= 1;
            let line = String::from_utf8_lossy(&self.partial);
            sink(&line.chars().filter(|c| !c.is_control() || *c == '\t').collect::<String>());
        }
        self.partial.clear();
    }

    fn refill(&mut self, sink: &mut impl FnMut(&str)) {
        // Told only when there is room again, so that a flood is one line in the journal and not one a tick.
        if self.dropped > 0 && self.left >= LINES_AT_ONCE / 2 {
            self.tell_dropped(sink);
        }
        self.left = (self.left + LINES_PER_TICK).min(LINES_AT_ONCE);
    }

    fn end(&mut self, sink: &mut impl FnMut(&str)) {
        if !self.partial.is_empty() {
            self.pass(sink);
        }
        if self.dropped > 0 {
            self.tell_dropped(sink);
        }
    }

    fn tell_dropped(&mut self, sink: &mut impl FnMut(&str)) {
        sink(&format!("({} lines dropped: the service prints faster than 200 a second)", self.dropped));
        self.dropped = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines_of(chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut got) = (Lines { left: 3, ..Lines::default() }, Vec::new());
        chunks.iter().for_each(|c| lines.take(c, &mut |l: &str| got.push(l.to_owned())));
        lines.end(&mut |l: &str| got.push(l.to_owned()));
        got
    }

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        assert_eq!(lines_of(&[b"a", b"b\nc\r\n", b"\x1b[2Jd"]), ["ab", "c", "[2Jd"]);
    }

    #[test]
    fn too_many_lines_and_endless_ones_are_bounded_and_told() {
        let got = lines_of(&[&[b'x'; 5000], b"\n1\n2\n3\n4\n"]);
        assert_eq!(got[0].len(), MAX_LINE);
        assert_eq!((got.len(), got[3].contains("(2 lines dropped")), (4, true), "{got:?}");
    }

    #[tokio::test]
    async fn a_service_outlives_its_reader_and_the_next_one_reads_on() {
        let Pipe { reader, mut writer, inode } = Pipe::new().unwrap();
        drop(reader);
        writeln!(writer, "nobody reads this yet").unwrap();
        let mut command = std::process::Command::new("sleep");
        command.arg("432").stdout(writer.try_clone().unwrap()).stdin(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        drop((command, writer));
        let reader = reopen(child.id().cast_signed(), inode).expect("the pipe of the child");
        assert!(reopen(child.id().cast_signed(), inode + 1).is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        let mut got = Vec::new();
        pump(reader, |l| got.push(l.to_owned())).await;
        assert_eq!(got, ["nobody reads this yet"]);
    }
}
