//! A small HTTP server that can misbehave in every way that a client must survive.
#![allow(dead_code)] // each test program uses another part

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A field of the form in the body. The values that the tests look at need no decoding.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.body.split('&').filter_map(|pair| pair.split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
    }
}

/// One answer, or what comes instead.
#[derive(Debug, Clone)]
pub enum Reply {
    Whole {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// The connection stays open and nothing comes.
    Silence,
    /// Half of this body, then nothing.
    Half(String),
    /// Half of this body, then the end of the connection.
    Broken(String),
    /// More and more, without end.
    Endless,
    /// No HTTP.
    Garbage,
    /// The end of the connection at once.
    Closed,
    /// The answer after a while.
    Slow(Duration, Box<Reply>),
}

impl Reply {
    pub fn of(status: u16, body: impl Into<String>) -> Reply {
        Reply::Whole { status, headers: Vec::new(), body: body.into() }
    }
}

/// The server; it is gone when this is dropped.
pub struct Http {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Connections that are left open without an answer.
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl Http {
    pub fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Http {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, asked, held) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default());
        let server = Http { address, stop, asked, held };
        let (stop, asked, held) = (server.stop.clone(), server.asked.clone(), server.held.clone());
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (stop, asked, held, answer) = (stop.clone(), asked.clone(), held.clone(), answer.clone());
                std::thread::spawn(move || {
                    let Ok(mut stream) = stream else { return };
                    let Some(request) = read(&mut stream) else { return };
                    asked.lock().unwrap().push(request.clone());
                    if give(answer(&request), &mut stream, &stop) {
                        held.lock().unwrap().push(stream);
                    }
                });
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the one that accepts.
        let _ = TcpStream::connect(self.address);
        self.held.lock().unwrap().clear();
    }
}

fn read(stream: &mut TcpStream) -> Option<Asked> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break end;
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).ok()?;
    let mut lines = text.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let pairs = lines.filter_map(|line| line.split_once(':'));
    let headers: Vec<_> = pairs.map(|(n, v)| (n.to_lowercase(), v.trim().to_owned())).collect();
    let length = headers.iter().find(|(n, _)| n == "content-length").map_or(0, |(_, v)| v.parse().unwrap());
    while bytes.len() < head + 4 + length {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
    let body = String::from_utf8(bytes[head + 4..].to_vec()).ok()?;
    Some(Asked { method, path, headers, body })
}

/// Whether the connection is to be kept open.
fn give(reply: Reply, stream: &mut TcpStream, stop: &AtomicBool) -> bool {
    match reply {
        Reply::Whole { status, headers, body } => {
            let more: String = headers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
            let _ = write!(stream, "{}{more}\r\n{body}", head(status, body.len()));
            false
        }
        Reply::Silence => true,
        Reply::Half(body) => {
            let _ = write!(stream, "{}\r\n{}", head(200, body.len()), &body[..body.len() / 2]);
            true
        }
        Reply::Broken(body) => {
            let _ = write!(stream, "{}\r\n{}", head(200, body.len()), &body[..body.len() / 2]);
            false
        }
        Reply::Endless => {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
            while !stop.load(Ordering::SeqCst) && stream.write_all(chunk.as_bytes()).is_ok() {}
            false
        }
        Reply::Garbage => {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n\x00\xff\xfe");
            false
        }
        Reply::Closed => false,
        Reply::Slow(time, reply) => {
            std::thread::sleep(time);
            give(*reply, stream, stop)
        }
    }
}

fn head(status: u16, length: usize) -> String {
    format!("HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\nConnection: close\r\n")
}

/// A port on which the kernel completes no connection: its queue is full.
pub struct Deaf {
    pub address: SocketAddr,
    _listener: socket2::Socket,
    _queued: Vec<socket2::Socket>,
}

impl Deaf {
    pub fn new() -> Deaf {
        use socket2::{Domain, Socket, Type};
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let queue = |_| {
            let waiting = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            waiting.set_nonblocking(true).unwrap();
            let _ = waiting.connect(&address);
            waiting
        };
        Deaf { address: address.as_socket().unwrap(), _queued: (0..4).map(queue).collect(), _listener: listener }
    }
}
