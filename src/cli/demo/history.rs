//! The shared file: one JSON object a line, appended by whoever serves, read by everybody else.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use serde::{Deserialize, Serialize};

/// One write of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Under which the service acts.
    pub token: u64,
    pub node: String,
    pub pid: u32,
    /// Counts the writes of this process from 1.
    pub counter: u64,
    /// CLOCK_BOOTTIME of the write.
    pub boottime_ns: u64,
}

/// The writing end. Each line is one call of the kernel, so that a kill leaves whole lines.
#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    /// # Errors
    /// The file cannot be made or opened.
    pub fn open(path: &Path) -> io::Result<Writer> {
        OpenOptions::new().create(true).append(true).open(path).map(Writer)
    }

    /// # Errors
    /// The disk is full, or worse.
    pub fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line).expect("a line has only plain fields");
        text.push('\n');
        self.0.write_all(text.as_bytes())
    }
}

/// All lines of the file; what is no line stands as it was found.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<Result<Line, String>>> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.split_inclusive('\n').map(parse).collect())
}

fn parse(text: &str) -> Result<Line, String> {
    let whole = text.ends_with('\n');
    serde_json::from_str(text).ok().filter(|_| whole).ok_or_else(|| text.to_owned())
}

/// Hands on each line as it is written, until the file is removed or nobody listens. The kernel says when there is
/// something to read.
///
/// # Errors
/// The file cannot be read or watched.
pub fn follow(path: &Path, mut told: impl FnMut(Line) -> bool) -> io::Result<()> {
    let watch = inotify::init(CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watch, path, WatchFlags::MODIFY | WatchFlags::DELETE_SELF | WatchFlags::ATTRIB)?;
    let mut file = BufReader::new(File::open(path)?);
    let mut space = [MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(watch, &mut space);
    let mut text = String::new();
    loop {
        while file.read_line(&mut text)? > 0 {
            if !text.ends_with('\n') {
                break;
            }
            if parse(&text).is_ok_and(|line| !told(line)) {
                return Ok(());
            }
            text.clear();
        }
        // A removed file that this function holds open changes its count of links.
        let event = events.next()?.events();
        let gone = event.intersects(ReadFlags::DELETE_SELF | ReadFlags::IGNORED | ReadFlags::ATTRIB) && !path.exists();
        if gone {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn line(counter: u64) -> Line {
        Line { token: 4, node: "heron".into(), pid: 77, counter, boottime_ns: 1_000 * counter }
    }

    #[test]
    fn what_was_written_is_read_and_a_torn_line_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let mut writer = Writer::open(&path).unwrap();
        writer.append(&line(1)).unwrap();
        writer.append(&line(2)).unwrap();
        writer.0.write_all(b"{\"token\":4").unwrap();
        assert_eq!(read(&path).unwrap(), [Ok(line(1)), Ok(line(2)), Err("{\"token\":4".into())]);
    }

    #[test]
    fn lines_are_followed_until_the_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let mut writer = Writer::open(&path).unwrap();
        writer.append(&line(1)).unwrap();
        let (sender, receiver) = channel();
        let followed = path.clone();
        let thread = std::thread::spawn(move || follow(&followed, |line| sender.send(line).is_ok()));
        assert_eq!(receiver.recv().unwrap(), line(1));
        writer.append(&line(2)).unwrap();
        assert_eq!(receiver.recv().unwrap(), line(2));
        std::fs::remove_file(&path).unwrap();
        thread.join().unwrap().unwrap();
    }
}
