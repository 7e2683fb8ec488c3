//! A small network in three namespaces: two nodes, and a client behind a bridge.
//!
//! ```text
//!   heron 10.77.0.1 fd77::1 ──┐
//!   plover 10.77.0.2 fd77::2 ─┴─ bridge in the client's namespace, 10.77.0.3 fd77::3
//! ```

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Far beyond what any answer takes, also on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const HERON: &str = "heron";
pub const PLOVER: &str = "plover";
pub const CLIENT: &str = "client";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Three namespaces of their own, which end with this.
pub struct Net {
    prefix: String,
}

impl Net {
    pub fn new() -> Net {
        let net = Net { prefix: format!("lhcut{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)) };
        for name in [CLIENT, HERON, PLOVER] {
            run(&["ip", "netns", "add", &net.name(name)]);
            net.run(name, &["ip", "link", "set", "lo", "up"]);
        }
        net.run(CLIENT, &["ip", "link", "add", "br0", "type", "bridge"]);
        net.run(CLIENT, &["ip", "link", "set", "br0", "up"]);
        net.address(CLIENT, "br0", 3);
        for (name, last) in [(HERON, 1), (PLOVER, 2)] {
            net.run(CLIENT, &["ip", "link", "add", name, "type", "veth", "peer", "eth0", "netns", &net.name(name)]);
            net.run(CLIENT, &["ip", "link", "set", name, "master", "br0", "up"]);
            net.run(name, &["ip", "link", "set", "eth0", "up"]);
            net.address(name, "eth0", last);
        }
        net
    }

    /// Both addresses that end so.
    pub fn address(&self, name: &str, device: &str, last: u8) {
        self.run(name, &["ip", "address", "add", &format!("10.77.0.{last}/24"), "dev", device]);
        self.run(name, &["ip", "address", "add", &format!("fd77::{last}/64"), "dev", device, "nodad"]);
    }

    pub fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// A program within a namespace, which must succeed; gives what it prints.
    pub fn run(&self, name: &str, args: &[&str]) -> String {
        let output = self.try_run(name, args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    pub fn try_run(&self, name: &str, args: &[&str]) -> Output {
        self.command(name, args[0]).args(&args[1..]).output().expect("ip is installed")
    }

    pub fn command(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(name), program]);
        command
    }

    /// What `act` opens belongs to this namespace.
    pub fn within<T: Send>(&self, name: &str, act: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name(name));
        let inside = move || {
            let file = File::open(path).expect("the namespace is there");
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
            act()
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    pub fn try_connect(&self, name: &str, to: &str) -> std::io::Result<TcpStream> {
        let to: SocketAddr = to.parse().expect("an address");
        let stream = self.within(name, || TcpStream::connect_timeout(&to, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// A connection on which the service has answered once.
    pub fn connect(&self, name: &str, to: &str) -> TcpStream {
        let mut stream = self.try_connect(name, to).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert!(answers(&mut stream), "{to} does not answer");
        stream
    }

    /// A service on this port of all addresses of both families, until the test ends.
    pub fn serve(&self, name: &str, port: u16) {
        let listener = self.within(name, || TcpListener::bind(("::", port)).expect("the port is free"));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || answer(stream));
            }
        });
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in [HERON, PLOVER, CLIENT] {
            let _ = Command::new("ip").args(["netns", "delete", &self.name(name)]).status();
        }
    }
}

fn run(args: &[&str]) {
    let output = Command::new(args[0]).args(&args[1..]).output().expect("ip is installed");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Answers `ping`; what else is asked for is under way for ever.
fn answer(mut stream: TcpStream) {
    let mut request = [0; 5];
    while stream.read_exact(&mut request).is_ok() {
        if &request == b"ping\n" && stream.write_all(b"pong\n").is_err() {
            return;
        }
    }
}

pub fn answers(stream: &mut TcpStream) -> bool {
    let mut reply = [0; 5];
    stream.write_all(b"ping\n").is_ok() && stream.read_exact(&mut reply).is_ok() && &reply == b"pong\n"
}

/// Waits for the error that ends this connection: its kind, and when it came.
pub fn error(stream: &mut TcpStream) -> (ErrorKind, Instant) {
    let result = stream.read(&mut [0; 16]);
    let at = Instant::now();
    match result {
        Ok(length) => panic!("an answer of {length} bytes instead of an error"),
        Err(error) => (error.kind(), at),
    }
}

/// The middle one and the largest.
pub fn p50_and_max(mut all: Vec<Duration>) -> (Duration, Duration) {
    all.sort();
    (all[all.len() / 2], *all.last().expect("something was measured"))
}
