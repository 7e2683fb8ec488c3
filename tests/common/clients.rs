//! Clients that ask a service a thousand times a second and count every request that fails.
//!
//! Nine hold one connection each; the tenth makes a new one for each request. They ask in time, whatever becomes of the
//! answers: what was due while nobody answered is asked at once afterwards.

// Each test file that includes this one uses only a part of it.
#![allow(dead_code)]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold::core::{Instant, Span};
use leasehold::os::clock;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const CLIENTS: u32 = 10;
/// Of each client: a thousand requests a second together.
pub const EVERY: Duration = Duration::from_millis(10);
/// An answer that takes longer is none.
const LIMIT: Duration = Duration::from_secs(5);

/// They ask until they are told to end.
pub struct Clients {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Request>>>,
    begun: Instant,
}

struct Request {
    done: Instant,
    answer: Result<String, String>,
}

/// What became of all requests.
pub struct Tally {
    pub begun: Instant,
    pub ended: Instant,
    pub errors: Vec<String>,
    /// When each answer came, in order, and by whom.
    answers: Vec<(Instant, String)>,
}

impl Clients {
    /// Whose network namespace is given, ask from there. Each asks once in `every`.
    pub fn start(service: SocketAddr, namespace: Option<&Path>, every: Duration) -> Clients {
        let ends = Arc::new(AtomicBool::new(false));
        let begun = clock::now();
        let client = |number| {
            let (ends, namespace) = (Arc::clone(&ends), namespace.map(Path::to_owned));
            std::thread::spawn(move || {
                if let Some(namespace) = namespace {
                    let file = File::open(&namespace).expect("the namespace has a name");
                    let network = Some(LinkNameSpaceType::Network);
                    move_into_link_name_space(file.as_fd(), network).expect("root may enter it");
                }
                ask(service, number == 0, every, &ends)
            })
        };
        Clients { threads: (0..CLIENTS).map(client).collect(), ends, begun }
    }

    pub fn end(self) -> Tally {
        self.ends.store(true, Ordering::SeqCst);
        let requests = self.threads.into_iter().flat_map(|thread| thread.join().expect("a client does not panic"));
        let (mut answers, mut errors) = (Vec::new(), Vec::new());
        for request in requests {
            match request.answer {
                Ok(by) => answers.push((request.done, by)),
                Err(error) => errors.push(error),
            }
        }
        answers.sort_unstable();
        Tally { begun: self.begun, ended: clock::now(), errors, answers }
    }
}

fn ask(service: SocketAddr, anew: bool, every: Duration, ends: &AtomicBool) -> Vec<Request> {
    let mut requests = Vec::new();
    let mut connection = None;
    let mut due = clock::now();
    while !ends.load(Ordering::SeqCst) {
        std::thread::sleep(due.since(clock::now()).into());
        due = due.after(every.into());
        let answer = one(service, &mut connection).map_err(|error| error.to_string());
        if anew || answer.is_err() {
            connection = None;
        }
        requests.push(Request { done: clock::now(), answer });
    }
    requests
}

fn one(service: SocketAddr, connection: &mut Option<BufReader<TcpStream>>) -> io::Result<String> {
    let open = match connection {
        Some(open) => open,
        None => connection.insert(BufReader::new(connected(service)?)),
    };
    open.get_mut().write_all(b"who?\n")?;
    let mut answer = String::new();
    match open.read_line(&mut answer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(answer),
    }
}

fn connected(service: SocketAddr) -> io::Result<TcpStream> {
    let connection = TcpStream::connect_timeout(&service, LIMIT)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(LIMIT))?;
    Ok(connection)
}

impl Tally {
    pub fn requests(&self) -> usize {
        self.answers.len() + self.errors.len()
    }

    pub fn per_second(&self) -> u64 {
        self.requests() as u64 * 1000 / self.ended.since(self.begun).as_ms().max(1)
    }

    /// How many processes answered.
    pub fn servers(&self) -> usize {
        let mut servers: Vec<&str> = self.answers.iter().map(|(_, by)| by.as_str()).collect();
        servers.sort_unstable();
        servers.dedup();
        servers.len()
    }

    /// The longest time without an answer to anybody.
    pub fn longest_gap(&self) -> Span {
        let pairs = self.answers.windows(2);
        pairs.map(|pair| pair[1].0.since(pair[0].0)).max().unwrap_or_default()
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} requests ({} a second), {} failed, longest gap {}",
            self.requests(),
            self.per_second(),
            self.errors.len(),
            self.longest_gap()
        )
    }
}
