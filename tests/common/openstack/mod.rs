//! A cloud of one server and one volume: Keystone, Nova and Cinder on one port, with the answers of the real ones
//! (Identity API v3, Compute API 2.9, Block Storage API v3), and with the faults of real ones at wish.

mod answers;
mod http;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::ServerConfig;

pub const SERVER: &str = "8f9f1d5a-4a2c-4b53-9d3c-0d1a2b3c4d5e";
pub const OTHER: &str = "0a0b0c0d-0000-4000-8000-00000000beef";
pub const VOLUME: &str = "5aa119a8-d25b-45a7-8d1b-88e127885635";
/// Both hold a mark that must be found nowhere.
pub const SECRET: &str = "M4RK-mangrove/roots";
const TOKEN: &str = "gAAAAAB-M4RK-token";

/// The requests that an agent makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Login,
    Read,
    Command,
}

/// What is wrong with the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    None,
    /// 202 to each command, and nothing happens.
    StaysAsItIs,
    /// The command's task takes so long.
    Takes(Duration),
    /// Off for one reading, then on for good.
    FlipsBack,
    /// A hand was faster than the command, which is answered with 409.
    HandWasFaster,
    /// 409, for a reason that does not pass.
    Locked,
    /// 403: the cloud's policy.
    Forbidden,
    /// Another task runs for so long: 409 meanwhile.
    Busy(Duration),
    WrongSecret,
    /// The first token is taken so many times, then it has been revoked; later ones are good.
    FirstTokenLasts(u32),
    /// No token is ever taken.
    NoTokenTaken,
    /// Only reading is allowed by the access rules: 401.
    AccessRule,
    Gone,
    /// The answer to a request about something else.
    AnswersAnother,
    /// So many times 429 with `Retry-After: 0`, then all is well.
    Later(Step, u32),
    /// The whole service is down: 503 without an end.
    Unavailable(Step),
    Hangs(Step),
    /// The head and a part of the body, then silence.
    Half(Step),
    /// The same, then the connection ends.
    Dies(Step),
    Endless(Step),
    Garbage(Step),
    /// Each answer comes so late.
    Slow(Duration),
    /// An error page of a proxy with all that the request held.
    EchoesSecrets(Step),
    /// Where the machine is on, `reader` is the only role.
    ReaderOnly,
    NoComputeInCatalog,
    TwoRegions,
}

/// The state of the cloud.
#[derive(Debug)]
pub struct World {
    pub quirk: Quirk,
    pub status: &'static str,
    pub power_state: u64,
    pub task: Option<&'static str>,
    pub volume_status: &'static str,
    pub attached: Vec<&'static str>,
    pub logins: u32,
    pub commands: Vec<String>,
    pub reads: u32,
    /// The life of a token as Keystone tells it.
    pub life: Duration,
    uses: u32,
    changes: Option<(Instant, &'static str)>,
    started: Instant,
    answered_later: u32,
}

pub struct Cloud {
    address: SocketAddr,
    scheme: &'static str,
    world: Arc<Mutex<World>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Cloud {
    pub fn start(quirk: Quirk) -> Cloud {
        Cloud::start_with(quirk, None)
    }

    pub fn start_with(quirk: Quirk, tls: Option<Arc<ServerConfig>>) -> Cloud {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let world = Arc::new(Mutex::new(World::new(quirk)));
        let ended = Arc::new(AtomicBool::new(false));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let thread = std::thread::spawn({
            let (world, ended) = (Arc::clone(&world), Arc::clone(&ended));
            move || http::accept(&listener, scheme, &world, &ended, tls.as_ref())
        });
        Cloud { address, scheme, world, ended, thread: Some(thread) }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the one that waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl World {
    fn new(quirk: Quirk) -> World {
        World {
            quirk,
            status: "ACTIVE",
            power_state: 1,
            task: None,
            volume_status: "in-use",
            attached: vec![SERVER],
            logins: 0,
            commands: Vec::new(),
            reads: 0,
            life: Duration::from_secs(3600),
            uses: 0,
            changes: None,
            started: Instant::now(),
            answered_later: 0,
        }
    }

    pub fn switch_off(&mut self) {
        (self.status, self.power_state, self.task) = ("SHUTOFF", 4, None);
        (self.volume_status, self.attached) = ("available", Vec::new());
    }

    fn switch_on(&mut self) {
        (self.status, self.power_state, self.task) = ("ACTIVE", 1, None);
        (self.volume_status, self.attached) = ("in-use", vec![SERVER]);
    }

    /// What has happened meanwhile.
    fn catch_up(&mut self) {
        if let Some((at, to)) = self.changes
            && at <= Instant::now()
        {
            self.changes = None;
            if to == "off" { self.switch_off() } else { self.switch_on() }
        }
        if let Quirk::Busy(time) = self.quirk {
            let over = self.started.elapsed() > time;
            self.task = if over { self.task.filter(|t| *t != "image_snapshot") } else { Some("image_snapshot") };
        }
    }

    fn begin(&mut self, to: &'static str) {
        match self.quirk {
            Quirk::StaysAsItIs => {}
            Quirk::Takes(time) => {
                self.task = Some(if to == "off" { "powering-off" } else { "powering-on" });
                self.volume_status = if to == "off" { "detaching" } else { "attaching" };
                self.changes = Some((Instant::now() + time, to));
            }
            _ if to == "off" => self.switch_off(),
            _ => self.switch_on(),
        }
    }
}
