//! Clients that commit numbered rows, and what must hold of what was acknowledged.

#![allow(dead_code)] // each test program uses another part

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold::os::clock;

/// Between two rows of one client: enough rows for each failover, and most of the machine for the servers.
const PAUSE: Duration = Duration::from_millis(40);
/// A commit that waits for a standby is given up by its client after this; it counts as not acknowledged.
const GIVE_UP: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

/// A row that a server has acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    pub number: u64,
    /// By which way.
    pub door: &'static str,
    /// What the database held as its token in that transaction.
    pub token: u64,
    /// On the boot clock: before it was sent, and after it was acknowledged.
    pub sent_ns: u64,
    pub acked_ns: u64,
}

/// A way to a server.
#[derive(Debug, Clone)]
pub struct Door {
    pub name: &'static str,
    /// The namespace of the client.
    pub space: String,
    pub host: String,
    pub port: u16,
}

/// One client at each door, until dropped.
pub struct Clients {
    acks: Arc<Mutex<Vec<Ack>>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    pub fn start(doors: Vec<Door>) -> Clients {
        let (acks, over, next) =
            (Arc::<Mutex<Vec<Ack>>>::default(), Arc::<AtomicBool>::default(), Arc::new(AtomicU64::new(1)));
        let client = |door: Door| {
            let (acks, over, next) = (Arc::clone(&acks), Arc::clone(&over), Arc::clone(&next));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if let Some(ack) = commit(&door, number) {
                        acks.lock().unwrap().push(ack);
                    }
                    std::thread::sleep(PAUSE);
                }
            })
        };
        let threads = doors.into_iter().map(client).collect();
        Clients { acks, over, threads }
    }

    /// How many rows were acknowledged through this door.
    pub fn count(&self, door: &str) -> usize {
        self.acks.lock().unwrap().iter().filter(|ack| ack.door == door).count()
    }

    /// The first row that was acknowledged through this door after this moment.
    pub fn first_after(&self, door: &str, moment_ns: u64) -> Option<Ack> {
        let acks = self.acks.lock().unwrap();
        acks.iter().find(|ack| ack.door == door && ack.sent_ns > moment_ns).cloned()
    }

    /// Ends them; gives all that was acknowledged.
    pub fn end(mut self) -> Vec<Ack> {
        self.halt();
        self.acks.lock().unwrap().clone()
    }

    fn halt(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.halt();
    }
}

/// `None`: not acknowledged. A warning is no acknowledgement: a commit whose wait for the standby was cancelled says so.
fn commit(door: &Door, number: u64) -> Option<Ack> {
    let sent_ns = clock::now().0;
    let statement = format!("insert into acked select {number}, token from leasehold.token returning token");
    let mut command = Command::new("ip");
    command.args([
        "netns",
        "exec",
        &door.space,
        "/usr/lib/postgresql/15/bin/psql",
        "-X",
        "-w",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-U",
        "postgres",
        "-d",
        "postgres",
    ]);
    command.args(["-h", &door.host, "-p", &door.port.to_string(), "-c", &statement]).env("PGCONNECT_TIMEOUT", "2");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut waited = Duration::ZERO;
    while child.try_wait().unwrap().is_none() {
        if waited > GIVE_UP {
            child.kill().unwrap();
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    let acked_ns = clock::now().0;
    let output = child.wait_with_output().unwrap();
    let warned = String::from_utf8_lossy(&output.stderr).contains("WARNING");
    let token = String::from_utf8_lossy(&output.stdout).trim().parse().ok()?;
    (output.status.success() && !warned).then_some(Ack { number, door: door.name, token, sent_ns, acked_ns })
}

/// What is wrong with the acknowledgements, given the numbers that the last primary has.
pub fn judge(acks: &[Ack], kept: &[u64]) -> Vec<String> {
    let kept: std::collections::BTreeSet<u64> = kept.iter().copied().collect();
    let lost = acks.iter().filter(|ack| !kept.contains(&ack.number)).map(|ack| format!("lost: {ack:?}"));
    let mut found: Vec<String> = lost.collect();
    for late in acks {
        let newer = acks.iter().find(|other| other.token > late.token && other.acked_ns < late.sent_ns);
        found.extend(newer.map(|newer| format!("acknowledged after its successor: {late:?} after {newer:?}")));
    }
    found.truncate(10);
    found
}
