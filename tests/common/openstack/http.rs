//! Just enough of HTTP/1.1 for one client, with and without TLS, and every way not to answer.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::answers::decide;
use super::{Quirk, World};

/// One parsed request.
pub struct Request {
    pub method: String,
    pub path: String,
    pub token: Option<String>,
    pub microversion: Option<String>,
    pub body: String,
    pub head: String,
}

/// What to do with it.
pub enum Act {
    Answer(u16, Vec<(&'static str, String)>, String),
    Hang,
    /// So much of this answer, then the connection is held, or dropped.
    Half(String, bool),
    Endless,
}

pub fn accept(
    listener: &TcpListener,
    scheme: &'static str,
    world: &Arc<Mutex<World>>,
    ended: &Arc<AtomicBool>,
    tls: Option<&Arc<ServerConfig>>,
) {
    let base = format!("{scheme}://{}", listener.local_addr().unwrap());
    for stream in listener.incoming() {
        if ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        // Nobody waits for a thread whose client hangs; it ends with the client, or looks for the end itself.
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let (world, ended, base, tls) = (Arc::clone(world), Arc::clone(ended), base.clone(), tls.cloned());
        std::thread::spawn(move || match tls {
            Some(config) => {
                let session = ServerConnection::new(config).unwrap();
                serve(StreamOwned::new(session, stream), &base, &world, &ended)
            }
            None => serve(stream, &base, &world, &ended),
        });
    }
}

fn serve<S: Read + Write>(mut stream: S, base: &str, world: &Mutex<World>, ended: &AtomicBool) {
    while let Ok(Some(request)) = read_request(&mut stream, ended) {
        let act = decide(&request, base, &mut world.lock().unwrap());
        if let Quirk::Slow(time) = world.lock().unwrap().quirk {
            std::thread::sleep(time);
        }
        let done = match act {
            Act::Answer(status, headers, body) => write_answer(&mut stream, status, &headers, &body, body.len()),
            Act::Hang => hold(ended),
            Act::Half(body, held) => {
                let begun = write_answer(&mut stream, 200, &[], &body[..body.len() / 2], body.len());
                if held { hold(ended) } else { begun.and(Err(io::ErrorKind::ConnectionAborted.into())) }
            }
            Act::Endless => endless(&mut stream, ended),
        };
        if done.is_err() {
            return;
        }
    }
}

fn hold(ended: &AtomicBool) -> io::Result<()> {
    while !ended.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

fn endless<S: Write>(stream: &mut S, ended: &AtomicBool) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"server\": \"")?;
    while !ended.load(Ordering::SeqCst) {
        stream.write_all(&[b'x'; 8192])?;
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

fn read_request<S: Read>(stream: &mut S, ended: &AtomicBool) -> io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, &mut bytes, ended)?;
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let header = |name: &str| {
        let line = head.lines().find(|l| l.to_lowercase().starts_with(&format!("{}:", name.to_lowercase())))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let length: usize = header("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    while bytes.len() < head_end + length {
        more(stream, &mut bytes, ended)?;
    }
    let mut words = head.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let body = String::from_utf8_lossy(&bytes[head_end..]).into_owned();
    let (token, microversion) = (header("x-auth-token"), header("openstack-api-version"));
    Ok(Some(Request { method, path, token, microversion, body, head }))
}

fn more<S: Read>(stream: &mut S, bytes: &mut Vec<u8>, ended: &AtomicBool) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                bytes.extend_from_slice(&buffer[..n]);
                return Ok(());
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if ended.load(Ordering::SeqCst) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn write_answer<S: Write>(
    stream: &mut S,
    status: u16,
    headers: &[(&'static str, String)],
    body: &str,
    length: usize,
) -> io::Result<()> {
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head =
        format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.flush()
}
