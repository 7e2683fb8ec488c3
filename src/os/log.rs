//! Journal lines that never delay the daemon: a bounded queue, one thread that writes, and a count of what did not fit.
//!
//! A journal that does not read stops whoever writes to it (measured: 11 s without a heartbeat, libraries 3.10). Here
//! only the writer thread waits; lines that find the queue full are dropped, and how many is told when it moves again.
//!
//! On a terminal the lines are for eyes; otherwise each begins with its syslog priority `<N>` (sd-daemon(3)).

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use super::clock;

/// Some minutes of a busy daemon; at most 8 MiB.
const QUEUE: usize = 1024;
/// The journal's own limit is 48 KiB; nothing that is written here comes near this.
const MAX_LINE: usize = 8 * 1024;
/// Behind the number of lines that are missing at this place.
const NOT_READ: &str = " log lines were dropped: nobody read them in time";

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("`{filter}` is not a log filter: {source}. Examples: `info`, `leasehold=debug`")]
    Filter { filter: String, source: tracing_subscriber::filter::ParseError },
    #[error("cannot start the log's thread: {0}")]
    Thread(io::Error),
    #[error("the log was set up already")]
    Twice,
}

/// Where lines go: for people, or with priorities for the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Terminal,
    /// The journal stamps the time itself.
    Journal,
    /// A file or a pipe: priority and time.
    Plain,
}

enum Message {
    Line(Vec<u8>),
    /// Answer when all before is written.
    Flush(SyncSender<()>),
}

/// The log's handle: what was dropped, and the last words before the end.
#[derive(Clone)]
pub struct Log {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    style: Style,
}

/// Sends all of `tracing` to stderr, by this filter (`info`, `leasehold::os=debug,warn`).
///
/// # Errors
/// The filter cannot be read, there is a log already, or no thread can be started.
pub fn init(filter: &str) -> Result<Log, LogError> {
    let log = Log::start(io::stderr(), style_of_stderr()).map_err(LogError::Thread)?;
    let subscriber = tracing_subscriber::registry().with(log.layer(filter)?);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok(log)
}

fn style_of_stderr() -> Style {
    match (io::stderr().is_terminal(), std::env::var_os("JOURNAL_STREAM")) {
        (true, _) => Style::Terminal,
        (false, Some(_)) => Style::Journal,
        (false, None) => Style::Plain,
    }
}

impl Log {
    fn start(sink: impl Write + Send + 'static, style: Style) -> io::Result<Log> {
        let (queue, lines) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&dropped);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write_lines(sink, &lines, &told, style))?;
        Ok(Log { queue, dropped, style })
    }

    fn layer<S>(&self, filter: &str) -> Result<impl Layer<S> + use<S>, LogError>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let parsed = EnvFilter::try_new(filter);
        let filter = parsed.map_err(|source| LogError::Filter { filter: filter.to_owned(), source })?;
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(self.clone())
            .with_ansi(self.style == Style::Terminal)
            .with_target(false)
            // Its complaints would go to stderr directly, and could block.
            .log_internal_errors(false);
        let layer = match self.style {
            Style::Journal => layer.without_time().boxed(),
            Style::Terminal | Style::Plain => layer.with_timer(WallTime).boxed(),
        };
        Ok(layer.with_filter(filter))
    }

    /// Lines that were dropped because nobody read.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all lines so far are written, but no longer than `patience`. For the end of a program only.
    pub fn flush(&self, patience: Duration) {
        let (done, written) = sync_channel(1);
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            // Whether it was in time or not: the program ends.
            let _ = written.recv_timeout(patience);
        }
    }

    fn put(&self, line: Vec<u8>) {
        match self.queue.try_send(Message::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("dropped", &self.dropped()).field("style", &self.style).finish_non_exhaustive()
    }
}

/// The thread. An error of the sink loses the line and nothing else.
fn write_lines(mut sink: impl Write, lines: &Receiver<Message>, dropped: &AtomicU64, style: Style) {
    let mut told = 0;
    while let Ok(message) = lines.recv() {
        match message {
            Message::Line(line) => {
                let _ = sink.write_all(&line);
            }
            Message::Flush(done) => {
                let _ = sink.flush();
                let _ = done.try_send(());
            }
        }
        let lost = dropped.load(Ordering::Relaxed);
        if lost > told {
            let prefix = if style == Style::Terminal { "" } else { "<4>" };
            let _ = writeln!(sink, "{prefix}{}{NOT_READ}", lost - told);
            told = lost;
        }
    }
}

/// One event's text. It goes into the queue when the event is complete.
#[derive(Debug)]
pub struct Line {
    log: Log,
    prefix: &'static str,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_LINE.saturating_sub(self.text.len());
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        // What is beyond the limit is cut off, not an error: an error would be reported to stderr.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = self.text.strip_suffix(b"\n").unwrap_or(&self.text);
        if !text.is_empty() {
            self.log.put(prefixed(self.prefix, text));
        }
    }
}

/// Each line of the text gets the prefix: the journal takes every line for an entry of its own.
fn prefixed(prefix: &str, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 8);
    for line in text.split(|b| *b == b'\n') {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { log: self.clone(), prefix: self.prefix(&Level::INFO), text: Vec::new() }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line { log: self.clone(), prefix: self.prefix(meta.level()), text: Vec::new() }
    }
}

impl Log {
    /// syslog(3): 3 error, 4 warning, 6 informational, 7 debug.
    fn prefix(&self, level: &Level) -> &'static str {
        match (self.style, *level) {
            (Style::Terminal, _) => "",
            (_, Level::ERROR) => "<3>",
            (_, Level::WARN) => "<4>",
            (_, Level::INFO) => "<6>",
            (_, Level::DEBUG | Level::TRACE) => "<7>",
        }
    }
}

/// RFC 3339 in UTC, to the millisecond.
struct WallTime;

impl FormatTime for WallTime {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        write!(w, "{:.3}", clock::wall())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    fn pipe() -> (File, File) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (File::from(reader), File::from(writer))
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    fn written(style: Style, filter: &str, act: impl FnOnce()) -> String {
        let (mut reader, writer) = pipe();
        let log = Log::start(writer, style).unwrap();
        let subscriber = tracing_subscriber::registry().with(log.layer(filter).unwrap());
        tracing::subscriber::with_default(subscriber, act);
        log.flush(PATIENCE);
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn each_line_for_the_journal_begins_with_its_priority() {
        let text = written(Style::Journal, "info", || {
            tracing::error!(token = 4, "demoting");
            tracing::warn!("two\nlines");
            tracing::info!("standby");
            tracing::debug!("filtered");
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines, ["<3>ERROR demoting token=4", "<4> WARN two", "<4>lines", "<6> INFO standby"]);
    }

    #[test]
    fn a_plain_file_gets_the_time_too_and_a_terminal_no_priority() {
        let plain = written(Style::Plain, "info", || tracing::info!("standby"));
        assert!(plain.starts_with("<6>20") && plain.contains("Z  INFO standby"), "{plain}");
        let terminal = written(Style::Terminal, "info", || tracing::info!("standby"));
        assert!(!terminal.starts_with('<') && terminal.contains("standby"), "{terminal}");
    }

    #[test]
    fn a_reader_that_does_not_read_delays_nobody_and_what_is_lost_is_counted_and_told() {
        let (mut reader, writer) = pipe();
        let log = Log::start(writer, Style::Journal).unwrap();
        let subscriber = tracing_subscriber::registry().with(log.layer("info").unwrap());
        let lines = 20_000;
        // A pipe holds 64 KiB: without the queue in between, this would never return.
        tracing::subscriber::with_default(subscriber, || (0..lines).for_each(|n| tracing::info!(n, "nobody reads")));
        let dropped = log.dropped();
        assert!(dropped > 10_000 && dropped < lines, "{dropped} dropped");

        let all = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        log.flush(Duration::ZERO);
        drop(log);
        let text = all.join().unwrap().unwrap();
        assert_eq!(text.matches("nobody reads").count() as u64, lines - dropped);
        let told =
            text.lines().filter_map(|line| line.strip_prefix("<4>")?.strip_suffix(NOT_READ)?.parse::<u64>().ok());
        assert_eq!(told.sum::<u64>(), dropped);
    }

    #[test]
    fn a_line_longer_than_the_limit_is_cut_and_the_next_one_is_whole() {
        let text = written(Style::Journal, "info", || {
            tracing::info!("{}", "x".repeat(MAX_LINE * 2));
            tracing::info!("next");
        });
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() == 2 && lines[0].len() <= MAX_LINE + 3 && lines[1] == "<6> INFO next");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let (_reader, writer) = pipe();
        let log = Log::start(writer, Style::Journal).unwrap();
        let error = log.layer::<tracing_subscriber::Registry>("leasehold=lowd").err().unwrap();
        assert!(error.to_string().contains("`leasehold=lowd`"), "{error}");
    }
}
