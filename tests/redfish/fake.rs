//! A Redfish service that misbehaves as told, and keeps the books: posts to each system, sessions held, every request.
//!
//! One thread a connection, one request a connection. A script sees each request first and may do anything with it;
//! what it lets pass is answered as a good service would.
#![allow(dead_code)] // each test program uses another part

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

pub const USER: &str = "fence";
const SYSTEMS: &str = "/redfish/v1/Systems";
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
/// No connection is served longer: the longest test is over by then.
const LONGEST: Duration = Duration::from_secs(20);

/// What a script does with a request.
#[derive(Debug, Clone)]
pub enum Act {
    /// Answered as a good service would.
    Pass,
    /// As a good service would, but later.
    Late(Duration),
    Answer(u16, String),
    /// Bytes instead of an answer, and the end.
    Raw(Vec<u8>),
    /// The good answer, cut off after so much of it (in percent).
    Cut(usize),
    /// No answer, with the connection open.
    Hang,
    /// A body without end.
    Endless,
    /// The good answer to another request: what a GET of this path would give.
    Of(&'static str),
}

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn is(&self, method: &str, end: &str) -> bool {
        self.method == method && self.path.ends_with(end)
    }
}

/// What a system shows, from some time after it was posted to.
#[derive(Debug, Clone)]
pub enum Show {
    Power(Value),
    /// Instead of the system.
    Answer(u16, &'static str),
}

#[derive(Debug, Clone)]
pub struct Machine {
    pub id: &'static str,
    pub uuid: &'static str,
    pub before: Show,
    /// In ms after an accepted post, in rising order.
    pub after: Vec<(u64, Show)>,
    pub types: Types,
    /// The answer to a post.
    pub accepts: (u16, Option<&'static str>),
    pub etag: Option<&'static str>,
    pub target: Option<&'static str>,
    pub posts: u32,
    pub posted: Option<Instant>,
}

#[derive(Debug, Clone)]
pub enum Types {
    Inline(&'static [&'static str]),
    Info(&'static [&'static str]),
    Untold,
}

pub fn power(word: &str) -> Show {
    Show::Power(Value::String(word.to_owned()))
}

/// A machine that is on, and off at once when told.
pub fn machine(id: &'static str, uuid: &'static str) -> Machine {
    Machine {
        id,
        uuid,
        before: power("On"),
        after: vec![(0, power("Off"))],
        types: Types::Inline(&["On", "ForceOff", "GracefulShutdown"]),
        accepts: (204, None),
        etag: None,
        target: None,
        posts: 0,
        posted: None,
    }
}

impl Machine {
    fn path(&self) -> String {
        format!("{SYSTEMS}/{}", self.id)
    }

    fn shows(&self) -> Show {
        let since = self.posted.map(|at| at.elapsed().as_millis() as u64);
        let last = self.after.iter().rfind(|(from, _)| since.is_some_and(|since| since >= *from));
        last.map_or(&self.before, |(_, show)| show).clone()
    }
}

pub type Script = Box<dyn FnMut(&Request, &mut World) -> Act + Send>;

/// The books.
pub struct World {
    pub machines: Vec<Machine>,
    pub password: String,
    pub slots: usize,
    /// Token to path.
    pub sessions: BTreeMap<String, String>,
    pub most_held: usize,
    pub logins: u32,
    /// Refused logins, of both kinds.
    pub refused: u32,
    /// "GET /redfish/v1/Systems/Main token"
    pub log: Vec<String>,
    /// The states of the task in turn; the last stays.
    pub task: Vec<Value>,
    script: Script,
}

pub struct Fake {
    pub port: u16,
    scheme: &'static str,
    world: Arc<Mutex<World>>,
    over: Arc<AtomicBool>,
}

impl Fake {
    pub fn plain(machines: Vec<Machine>, password: &str, script: Script) -> Fake {
        Fake::start(None, machines, password, script)
    }

    pub fn tls(tls: ServerConfig, machines: Vec<Machine>, password: &str) -> Fake {
        Fake::start(Some(Arc::new(tls)), machines, password, Box::new(|_, _| Act::Pass))
    }

    fn start(tls: Option<Arc<ServerConfig>>, machines: Vec<Machine>, password: &str, script: Script) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().unwrap().port();
        let world = World {
            machines,
            password: password.to_owned(),
            slots: 8,
            sessions: BTreeMap::new(),
            most_held: 0,
            logins: 0,
            refused: 0,
            log: Vec::new(),
            task: Vec::new(),
            script,
        };
        let (world, over) = (Arc::new(Mutex::new(world)), Arc::new(AtomicBool::new(false)));
        let fake = Fake { port, scheme: if tls.is_some() { "https" } else { "http" }, world, over };
        let (world, over) = (fake.world.clone(), fake.over.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (world, tls, over) = (world.clone(), tls.clone(), over.clone());
                thread::spawn(move || serve(stream, tls, &world, &over));
            }
        });
        fake
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn logins_and_held(&self) -> (u32, usize) {
        let world = self.world();
        (world.logins, world.sessions.len())
    }

    pub fn posts(&self, id: &str) -> u32 {
        self.world().machines.iter().find(|m| m.id == id).map_or(0, |m| m.posts)
    }
}

impl Drop for Fake {
    /// The next connection is the last: the thread that waits for it ends.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(stream: TcpStream, tls: Option<Arc<ServerConfig>>, world: &Mutex<World>, over: &AtomicBool) {
    let _ = stream.set_read_timeout(Some(LONGEST));
    let _ = stream.set_write_timeout(Some(LONGEST));
    let _ = match tls {
        None if greets_in_tls(&stream) => (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
        None => exchange(stream, world, over),
        Some(tls) => {
            let session = ServerConnection::new(tls).expect("a usable server configuration");
            exchange(StreamOwned::new(session, stream), world, over)
        }
    };
}

/// A TLS record begins with its type, 22 for a handshake.
fn greets_in_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    stream.peek(&mut first).is_ok() && first[0] == 22
}

fn exchange(mut stream: impl Read + Write, world: &Mutex<World>, over: &AtomicBool) -> io::Result<()> {
    let Some(request) = read_request(&mut stream)? else { return Ok(()) };
    let (act, reply) = {
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        let mut script = std::mem::replace(&mut world.script, Box::new(|_, _| Act::Pass));
        let act = script(&request, &mut world);
        // The script may have been replaced only between requests: the lock is held all the time.
        world.script = script;
        let reply = match &act {
            Act::Pass | Act::Cut(_) => world.answer(&request),
            Act::Of(path) => world.shown(path),
            Act::Late(_) | Act::Answer(..) | Act::Raw(_) | Act::Hang | Act::Endless => Reply::of(200, json!({})),
        };
        (act, reply)
    };
    match act {
        Act::Pass | Act::Of(_) => stream.write_all(&reply.bytes()),
        Act::Late(later) => {
            thread::sleep(later);
            let reply = world.lock().unwrap_or_else(PoisonError::into_inner).answer(&request);
            stream.write_all(&reply.bytes())
        }
        Act::Answer(status, body) => stream.write_all(&Reply { status, headers: Vec::new(), body }.bytes()),
        Act::Raw(bytes) => stream.write_all(&bytes),
        Act::Cut(percent) => {
            let bytes = reply.bytes();
            stream.write_all(&bytes[..bytes.len() * percent / 100])
        }
        Act::Hang => {
            // Until the client has had enough.
            let _ = stream.read(&mut [0; 1]);
            return Ok(());
        }
        Act::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":\"")?;
            while !over.load(Ordering::Relaxed) {
                stream.write_all(&[b'x'; 4096])?;
            }
            Ok(())
        }
    }?;
    stream.flush()
}

fn read_request(stream: &mut impl Read) -> io::Result<Option<Request>> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { method, path, headers, body }))
}

#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Reply {
    fn of(status: u16, body: Value) -> Reply {
        Reply { status, headers: Vec::new(), body: body.to_string() }
    }

    fn error(status: u16, message: &str) -> Reply {
        Reply::of(status, json!({ "error": { "@Message.ExtendedInfo": [{ "Message": message }] } }))
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let headers: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length =
            if self.status == 204 { String::new() } else { format!("Content-Length: {}\r\n", self.body.len()) };
        let body = if self.status == 204 { "" } else { &self.body };
        format!("HTTP/1.1 {} So\r\n{headers}{length}Connection: close\r\n\r\n{body}", self.status).into_bytes()
    }
}

impl World {
    pub fn replace_script(&mut self, script: Script) {
        self.script = script;
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let (path, who) = (request.path.trim_end_matches('/'), self.who(request));
        self.log.push(format!("{} {path} {who}", request.method));
        match (request.method.as_str(), path) {
            ("GET", "/redfish/v1") => Reply::of(
                200,
                json!({ "RedfishVersion": "1.6.0", "Vendor": "Reef", "Systems": { "@odata.id": SYSTEMS },
                        "Links": { "Sessions": { "@odata.id": SESSIONS } } }),
            ),
            ("POST", SESSIONS) => self.login(&request.body),
            _ if who == "nobody" => {
                self.refused += u32::from(request.headers.contains_key("authorization"));
                Reply::error(401, "Who are you?")
            }
            ("DELETE", path) => {
                self.sessions.retain(|_, session| session != path);
                Reply::of(204, json!({}))
            }
            ("POST", path) => self.post(request, path),
            (_, path) => self.shown(path),
        }
    }

    fn who(&self, request: &Request) -> &'static str {
        let basic = format!("Basic {}", STANDARD.encode(format!("{USER}:{}", self.password)));
        match (request.headers.get("x-auth-token"), request.headers.get("authorization")) {
            (Some(token), _) if self.sessions.contains_key(token) => "token",
            (None, Some(given)) if *given == basic => "basic",
            _ => "nobody",
        }
    }

    fn login(&mut self, body: &[u8]) -> Reply {
        self.logins += 1;
        let given: Value = serde_json::from_slice(body).unwrap_or_default();
        if given["UserName"] != USER || given["Password"] != self.password.as_str() {
            self.refused += 1;
            return Reply::error(401, "Wrong user or password.");
        }
        if self.sessions.len() >= self.slots {
            return Reply::error(503, "All sessions are in use.");
        }
        let (token, path) = (format!("T0K3N-M4RK-{}", self.logins), format!("{SESSIONS}/{}", self.logins));
        self.sessions.insert(token.clone(), path.clone());
        self.most_held = self.most_held.max(self.sessions.len());
        let body = json!({ "@odata.id": path, "UserName": USER });
        Reply::of(201, body).with("X-Auth-Token", token).with("Location", path)
    }

    fn post(&mut self, request: &Request, path: &str) -> Reply {
        let Some(machine) = self.machines.iter_mut().find(|m| path.starts_with(&format!("{}/", m.path()))) else {
            return Reply::error(404, "No such system.");
        };
        machine.posts += 1;
        if machine.etag.is_some() && request.headers.get("if-match").map(String::as_str) != machine.etag {
            return Reply::error(428, "If-Match is missing.");
        }
        let kind: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let takes = match machine.types {
            Types::Inline(types) | Types::Info(types) => types.iter().any(|t| kind["ResetType"] == *t),
            Types::Untold => true,
        };
        if !takes {
            return Reply::error(400, "No such ResetType.");
        }
        machine.posted = Some(Instant::now());
        match machine.accepts {
            (status @ 200..=299, Some(task)) => Reply::of(status, json!({})).with("Location", task),
            (status @ 200..=299, None) => Reply::of(status, json!({})),
            (status, _) => Reply::error(status, "Not now."),
        }
    }

    fn shown(&mut self, path: &str) -> Reply {
        if path == SYSTEMS {
            let members: Vec<_> = self.machines.iter().map(|m| json!({ "@odata.id": m.path() })).collect();
            return Reply::of(200, json!({ "@odata.id": SYSTEMS, "Members": members }));
        }
        if path == SESSIONS {
            let members: Vec<_> = self.sessions.values().map(|path| json!({ "@odata.id": path })).collect();
            return Reply::of(200, json!({ "Members": members }));
        }
        if self.sessions.values().any(|session| session == path) {
            return Reply::of(200, json!({ "@odata.id": path, "UserName": USER }));
        }
        if path == "/redfish/v1/Tasks/7" {
            let state = if self.task.len() > 1 { self.task.remove(0) } else { self.task[0].clone() };
            let status = if state["TaskState"] == "Running" { 202 } else { 200 };
            return Reply::of(status, state);
        }
        let found = self.machines.iter().find(|m| path.starts_with(&m.path()));
        match (found, path.ends_with("/ResetActionInfo")) {
            (Some(Machine { types: Types::Info(types), .. }), true) => {
                Reply::of(200, json!({ "Parameters": [{ "Name": "ResetType", "AllowableValues": types }] }))
            }
            (Some(machine), false) => system(machine),
            (Some(_) | None, _) => Reply::error(404, "No such resource."),
        }
    }
}

fn system(machine: &Machine) -> Reply {
    let power = match machine.shows() {
        Show::Power(power) => power,
        Show::Answer(status, body) => return Reply { status, headers: Vec::new(), body: body.to_owned() },
    };
    let path = machine.path();
    let target = machine.target.map_or(format!("{path}/Actions/ComputerSystem.Reset"), str::to_owned);
    let mut reset = json!({ "target": target });
    match machine.types {
        Types::Inline(types) => reset["ResetType@Redfish.AllowableValues"] = json!(types),
        Types::Info(_) => reset["@Redfish.ActionInfo"] = json!(format!("{path}/ResetActionInfo")),
        Types::Untold => {}
    }
    let body = json!({
        "@odata.id": path, "Id": machine.id, "Name": machine.id.to_uppercase(), "UUID": machine.uuid,
        "PowerState": power, "Actions": { "#ComputerSystem.Reset": reset },
    });
    match machine.etag {
        Some(etag) => Reply::of(200, body).with("ETag", etag),
        None => Reply::of(200, body),
    }
}
