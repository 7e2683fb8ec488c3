//! Clients that commit numbered rows, one at each node whatever its role, and what must hold of what was acknowledged.

#![allow(dead_code)] // each test program uses another part

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold::os::clock;

/// Between two rows of one client: enough rows for each failover, and most of the machine for the servers.
const PAUSE: Duration = Duration::from_millis(40);
/// A commit that waits for a standby is given up by its client after this; it counts as not acknowledged.
const GIVE_UP: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

/// A row that a server has acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    pub number: u64,
    pub port: u16,
    /// What the database held as its token in that transaction.
    pub token: u64,
    /// On the boot clock: before it was sent, and after it was acknowledged.
    pub sent_ns: u64,
    pub acked_ns: u64,
}

/// One client at each port, until dropped.
pub struct Clients {
    acks: Arc<Mutex<Vec<Ack>>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    pub fn start(ports: [u16; 2]) -> Clients {
        let (acks, over, next) =
            (Arc::<Mutex<Vec<Ack>>>::default(), Arc::<AtomicBool>::default(), Arc::new(AtomicU64::new(1)));
        let client = |port| {
            let (acks, over, next) = (Arc::clone(&acks), Arc::clone(&over), Arc::clone(&next));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if let Some(ack) = commit(port, number) {
                        acks.lock().unwrap().push(ack);
                    }
                    std::thread::sleep(PAUSE);
                }
            })
        };
        let threads = ports.map(client).into_iter().collect();
        Clients { acks, over, threads }
    }

    pub fn count(&self) -> usize {
        self.acks.lock().unwrap().len()
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
fn commit(port: u16, number: u64) -> Option<Ack> {
    let sent_ns = clock::now().0;
    let statement = format!("insert into acked select {number}, token from leasehold.token returning token");
    let mut command = Command::new("/usr/lib/postgresql/15/bin/psql");
    command.args(["-X", "-w", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres"]);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", &statement]);
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
    (output.status.success() && !warned).then_some(Ack { number, port, token, sent_ns, acked_ns })
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

/// A server's face towards the other node, which can be cut.
pub struct Relay {
    pub port: u16,
    cut: Arc<AtomicBool>,
}

impl Relay {
    pub fn start(to: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, cut) = (listener.local_addr().unwrap().port(), Arc::<AtomicBool>::default());
        let is_cut = Arc::clone(&cut);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Some(server) =
                    TcpStream::connect(("127.0.0.1", to)).ok().filter(|_| !is_cut.load(Ordering::Relaxed))
                {
                    join(&client, &server, &is_cut);
                }
            }
        });
        Relay { port, cut }
    }

    pub fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }
}

fn join(client: &TcpStream, server: &TcpStream, cut: &Arc<AtomicBool>) {
    for (from, to) in [(client, server), (server, client)] {
        let (from, to, cut) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(cut));
        from.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        std::thread::spawn(move || {
            pass(&from, &to, &cut);
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, cut: &AtomicBool) {
    let mut buffer = [0; 16 * 1024];
    while !cut.load(Ordering::Relaxed) {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) if cut.load(Ordering::Relaxed) => return,
            Ok(length) => {
                if to.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}
