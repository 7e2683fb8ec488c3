//! Talks to the service manager (sd_notify(3)) from a thread of its own.
//!
//! The socket blocks when the service manager does not read (libraries 3.10). So the loop only puts a note into a
//! bounded queue, or counts that it did not fit; and it is the thread that waits. The thread pings the watchdog only
//! when the loop's heartbeat has advanced since the last ping: a loop that hangs is found, although this thread lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use sd_notify::NotifyState;

use super::clock;
use crate::core::{Instant, Span};

/// Notes are rare: a state changes, a stop takes longer. More waiting than this means that nobody reads.
const QUEUE: usize = 32;
/// Pings for each watchdog time: one late ping must not end the daemon.
const PINGS_PER_TIMEOUT: u32 = 3;

#[derive(Debug)]
enum Note {
    Ready,
    Status(String),
    Stopping,
    ExtendTimeout(Span),
}

/// The loop's end. No method blocks or fails.
#[derive(Debug)]
pub struct Notifier {
    /// `None` without a service manager.
    notes: Option<SyncSender<Note>>,
    heartbeat: Arc<AtomicU64>,
    dropped: AtomicU64,
}

impl Notifier {
    /// Starts the thread if a service manager listens (`$NOTIFY_SOCKET`); without one, all notes go nowhere.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start() -> std::io::Result<Notifier> {
        let heartbeat = Arc::new(AtomicU64::new(0));
        let mut notes = None;
        if std::env::var_os("NOTIFY_SOCKET").is_some() {
            let (sender, receiver) = sync_channel(QUEUE);
            let watchdog = Watchdog::new(Arc::clone(&heartbeat), sd_notify::watchdog_enabled());
            std::thread::Builder::new().name("notify".to_owned()).spawn(move || run(&receiver, watchdog))?;
            notes = Some(sender);
        }
        Ok(Notifier { notes, heartbeat, dropped: AtomicU64::new(0) })
    }

    /// The daemon serves: heartbeats go out. (Not: a primary exists.)
    pub fn ready(&self) {
        self.put(Note::Ready);
    }

    /// One line for `systemctl status`.
    pub fn status(&self, text: &str) {
        self.put(Note::Status(one_line(text)));
    }

    /// The daemon has begun to stop.
    pub fn stopping(&self) {
        self.put(Note::Stopping);
    }

    /// Starting or stopping may take `span` more from now on.
    pub fn extend_timeout(&self, span: Span) {
        self.put(Note::ExtendTimeout(span));
    }

    /// The loop has gone round once. Call it each time; the watchdog is pinged only while this advances.
    pub fn beat(&self) {
        self.heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that were not told because the service manager does not read.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn put(&self, note: Note) {
        let fits = self.notes.as_ref().is_none_or(|queue| queue.try_send(note).is_ok());
        if !fits {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// When the next ping is due, and whether the loop has earned it.
#[derive(Debug)]
struct Watchdog {
    heartbeat: Arc<AtomicU64>,
    every: Option<Span>,
    due: Instant,
    pinged_at: u64,
}

impl Watchdog {
    fn new(heartbeat: Arc<AtomicU64>, timeout: Option<Duration>) -> Watchdog {
        let every = timeout.map(|t| Span::from(t / PINGS_PER_TIMEOUT));
        Watchdog { heartbeat, every, due: clock::now(), pinged_at: 0 }
    }

    /// `None`: the service manager does not watch.
    fn wait(&self, now: Instant) -> Option<Duration> {
        self.every.map(|_| self.due.since(now).into())
    }

    /// Whether to ping now; then the next time is set.
    fn earned(&mut self, now: Instant) -> bool {
        let Some(every) = self.every.filter(|_| now >= self.due) else { return false };
        self.due = now.after(every);
        let beats = self.heartbeat.load(Ordering::Relaxed);
        std::mem::replace(&mut self.pinged_at, beats) != beats
    }
}

fn run(notes: &Receiver<Note>, mut watchdog: Watchdog) {
    loop {
        let note = match watchdog.wait(clock::now()) {
            Some(wait) => notes.recv_timeout(wait),
            None => notes.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match note {
            Ok(note) => tell(&note),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if watchdog.earned(clock::now()) {
            send(&NotifyState::Watchdog);
        }
    }
}

fn tell(note: &Note) {
    match note {
        Note::Ready => send(&NotifyState::Ready),
        Note::Status(text) => send(&NotifyState::Status(text)),
        Note::Stopping => send(&NotifyState::Stopping),
        Note::ExtendTimeout(span) => {
            // The longest that the field holds is over an hour: longer than any stop.
            let micros = u32::try_from(span.0 / 1000).unwrap_or(u32::MAX);
            send(&NotifyState::ExtendTimeoutUsec(micros));
        }
    }
}

/// A service manager that went away is no reason to stop: the next note tries again.
fn send(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// A line end would begin another assignment of the protocol.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::process::{Child, Command, Stdio};

    use super::*;

    const PART: &str = "LEASEHOLD_TEST_NOTIFY_PART";

    /// Not a test of its own: the daemon of the tests below, in a process with its own environment.
    #[test]
    fn daemon_under_a_service_manager() {
        match std::env::var(PART).as_deref() {
            Ok("story") => tell_the_story(),
            Ok("flood") => flood(),
            _ => {}
        }
    }

    fn tell_the_story() {
        let notifier = Notifier::start().unwrap();
        notifier.ready();
        notifier.status("standby\nREADY=0");
        notifier.extend_timeout(Span::from_secs(2));
        let mut line = String::new();
        let tick = || {
            notifier.beat();
            std::thread::sleep(Duration::from_millis(5));
        };
        (0..100).for_each(|_| tick());
        // From here on the loop hangs, until the test lets it stop.
        notifier.status("hangs");
        std::io::stdin().read_line(&mut line).unwrap();
        notifier.stopping();
        std::io::stdin().read_line(&mut line).unwrap();
    }

    fn flood() {
        let notifier = Notifier::start().unwrap();
        (0..10_000).for_each(|_| notifier.status("nobody reads this"));
        assert!(notifier.dropped() > 9_000, "{} dropped", notifier.dropped());
        std::process::exit(77);
    }

    fn daemon(part: &str) -> (tempfile::TempDir, UnixDatagram, Child) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "os::notify::tests::daemon_under_a_service_manager"]);
        command.env(PART, part).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "120000").env_remove("WATCHDOG_PID");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        (dir, socket, child)
    }

    fn next(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let n = socket.recv(&mut buffer).expect("the daemon tells something within 20 s");
        String::from_utf8_lossy(&buffer[..n]).trim_end().to_owned()
    }

    #[test]
    fn the_service_manager_hears_the_story_and_no_ping_of_a_loop_that_hangs() {
        use std::io::Write;
        let (_dir, socket, mut child) = daemon("story");
        let mut heard = Vec::new();
        while heard.last().is_none_or(|note| note != "STATUS=hangs") {
            heard.push(next(&socket));
        }
        let (pings, notes): (Vec<_>, Vec<_>) = heard.into_iter().partition(|note| note == "WATCHDOG=1");
        assert_eq!(notes, ["READY=1", "STATUS=standby READY=0", "EXTEND_TIMEOUT_USEC=2000000", "STATUS=hangs"]);
        assert!(pings.len() >= 3, "{} pings in half a second, due every 40 ms", pings.len());

        // One ping may still be owed for the last beats; after it there is silence.
        socket.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
        let late = std::iter::from_fn(|| socket.recv(&mut [0; 512]).ok()).take(5).count();
        assert!(late <= 1, "{late} pings of a loop that hangs");

        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(next(&socket), "STOPPING=1");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_service_manager_that_does_not_read_delays_nobody() {
        let (_dir, _unread, mut child) = daemon("flood");
        assert_eq!(child.wait().unwrap().code(), Some(77));
    }

    #[test]
    fn without_a_service_manager_notes_go_nowhere_and_are_not_called_lost() {
        let notifier = Notifier { notes: None, heartbeat: Arc::default(), dropped: AtomicU64::new(0) };
        notifier.ready();
        notifier.beat();
        assert_eq!(notifier.dropped(), 0);
    }
}
