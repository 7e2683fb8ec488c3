//! The running daemon: one loop that keeps lease and heartbeats, and beside it threads for whatever may block.
//!
//! | thread | what it does |
//! | --- | --- |
//! | main | `driver`: clock, links, the core; nothing that blocks |
//! | `fence-journal` | keeps what every fence attempt sent and read |
//! | `cut` | `cut`: refuses and resets the clients, at once |
//! | `record` | `persister`: writes and syncs the durable record |
//! | `worker` | `fencer`, `prober`, `group` and `readiness`: agents and resources, and the control socket |
//! | `notify`, `log` | service manager and journal |

mod armed;
mod cut;
mod drills;
mod driver;
mod enforcer;
mod error;
mod face;
mod fencer;
mod group;
mod heartbeat;
mod known_peer;
mod lateness;
mod note;
mod past;
mod persister;
mod picture;
mod prober;
mod proofs;
mod readiness;
mod strained;
mod thinning;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::config::{Checked, Config};
use crate::control::{Access, Journal, Server, ServerOptions, Version};
use crate::core::{Identity, Node, NodeId};
pub use crate::fence::metadata_of;
use crate::fence::{self, FencePlan};
use crate::guard::farewell::Farewell;
use crate::os::clock::{self, Alarm, WallCheck};
use crate::os::generation::GenerationId;
use crate::os::links::Link;
use crate::os::manager::{self, Ending};
use crate::os::notify::Notifier;
use crate::os::record::{Finding, RecordFile};
use crate::os::runtime::RunTime;
use crate::os::stall::StallMeter;
use crate::os::{keyfile, log, machine};
use crate::process::unit;
use crate::resource::Remains;
use crate::wire::Keyring;

use armed::Armed;
use cut::{Cut, cut_spec};
pub use driver::End;
use driver::{Driver, Sources};
use enforcer::Enforcer;
pub use error::{DaemonError, is_permanent};
use face::Shown;
use face::http::Http;
use group::Executor;
use heartbeat::Heartbeats;
use known_peer::KnownPeer;
use lateness::LatenessAlarm;
use past::Past;
use persister::Persister;
use picture::Picture;
use thinning::Thinning;

/// Requests of the control socket that may wait for the loop.
const CALLS: usize = 64;
/// How long the end waits for the last lines of the log.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long the fence devices are given to hear that they are no longer needed.
const FAREWELL: Duration = Duration::from_secs(1);
/// Turns that the worker's tasks get after the loop has ended: reading a reply and writing it takes two.
const LAST_TURNS: u32 = 16;

/// What the command line tells the daemon.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    pub config: PathBuf,
    /// Which node of the configuration this is; `None`: the one named like this machine.
    pub node: Option<String>,
    /// Overrides `control.socket` of the configuration.
    pub socket: Option<PathBuf>,
    /// Filter of the log, as `tracing_subscriber::EnvFilter` reads it.
    pub log: String,
    /// The id of this boot; `None`: the kernel's. Nodes that share a kernel need one each.
    pub boot_id: Option<String>,
    /// The folder of the sockets through which programs are started in units of their own.
    pub units: Option<PathBuf>,
    /// SIGUSR1 makes the loop panic, SIGUSR2 makes it hang: for tests of what guards against that.
    pub test_hooks: bool,
}

/// Runs until the clean stop is over.
///
/// # Errors
/// Everything that can be found wrong is found before the first heartbeat leaves.
pub fn run(options: DaemonOptions) -> anyhow::Result<End> {
    let log = log::init(&options.log)?;
    if let Some(folder) = &options.units {
        unit::use_units(folder);
    }
    let result = prepare(options).and_then(|parts| parts.run());
    log.flush(LAST_WORDS);
    result
}

/// What is read and checked before anything starts.
struct Parts {
    config: Config,
    me: NodeId,
    identity: Identity,
    keyring: Keyring,
    plan: FencePlan,
    run_time: RunTime,
    record: RecordFile,
    node: Node,
    journal: Journal,
    version: Version,
    test_hooks: bool,
}

fn prepare(options: DaemonOptions) -> anyhow::Result<Parts> {
    let Checked { mut config, warnings, .. } = crate::config::load(&options.config).map_err(DaemonError::Config)?;
    if !warnings.is_empty() {
        tracing::warn!("the configuration is valid, with warnings; `leasehold check` shows them");
    }
    if let Some(socket) = options.socket {
        config.control.socket = socket;
    }
    let me = who_am_i(&config, options.node.as_deref())?;
    // The state directory is never made here: one that is missing may be a file system that is not mounted.
    let path = &config.paths.runtime;
    std::fs::create_dir_all(path).map_err(|source| DaemonError::Directory { path: path.clone(), source })?;
    if let Err(error) = machine::lock_memory().and_then(|()| machine::lock_program()) {
        tracing::warn!(%error, "memory is not locked: a lease may wait for the swap device, or for that of the program");
    }
    let boot = options.boot_id.as_deref().map_or_else(machine::boot_id, machine::boot_id_given)?;
    // The lock comes first: nothing below may touch what another daemon uses.
    let run_time = RunTime::open(&config.paths.runtime, boot)?;
    let keyring = read_keys(&config)?;
    let plan = FencePlan::new(&config, me)?.with_stamp(stamp);
    let (file, record) = RecordFile::open(&config.paths.state)?;
    tell_finding(&file);
    let identity = Identity {
        incarnation: crate::core::Incarnation(machine::random_u64()?),
        boot,
        uuid: machine::system_uuid(),
        seed: machine::random_u64()?,
    };
    let left = run_time.load();
    let lease = left.lease.map(|l| crate::core::RunTimeLease { token: l.token, deadline: l.deadline, sole: l.sole });
    let left = crate::core::RunTime { had_contact: left.had_contact, lease };
    let node = Node::new(config.settings(me), identity, record, Some(left), clock::now());
    let version = version();
    Ok(Parts {
        config,
        me,
        identity,
        keyring,
        plan,
        run_time,
        record: file,
        node,
        journal: Journal::default(),
        version,
        test_hooks: options.test_hooks,
    })
}

/// Program, control and wire versions.
pub fn version() -> Version {
    Version {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        control: crate::control::VERSION,
        wire: u32::from(crate::wire::VERSION),
    }
}

/// The node of the configuration that this machine is.
///
/// # Errors
/// It has no node of this name, or none that is called like this machine.
pub fn who_am_i(config: &Config, named: Option<&str>) -> Result<NodeId, DaemonError> {
    let [first, second] = [config.nodes[0].name.clone(), config.nodes[1].name.clone()];
    if let Some(name) = named {
        let missing = || DaemonError::NoSuchNode { name: name.to_owned(), first, second };
        return config.node_named(name).ok_or_else(missing);
    }
    let host = machine::host_name();
    let short = host.split('.').next().unwrap_or_default();
    let found = config.node_named(&host).or_else(|| config.node_named(short));
    found.ok_or(DaemonError::WhoAmI { host, first, second })
}

fn read_keys(config: &Config) -> anyhow::Result<Keyring> {
    let secret = keyfile::read(&config.key)?;
    let why = |why: String| DaemonError::Key { key: config.key.clone(), why };
    let text = secret.text().ok_or_else(|| why("is not text".to_owned()))?;
    Ok(Keyring::parse(text).map_err(|e| why(e.to_string()))?)
}

fn tell_finding(file: &RecordFile) {
    let path = file.path().display();
    match file.finding() {
        Finding::Clean => {}
        Finding::Created => tracing::info!(%path, "made a new record: this node promotes only after contact"),
        Finding::TornWrite { slot } => {
            tracing::warn!(%path, slot, "a write of the record was cut off by a crash; the other slot is whole")
        }
        Finding::LostWrite { newest, other } => {
            tracing::error!(%path, newest, other, "an acknowledged write of the record is missing: this disk lies about syncs");
        }
    }
}

impl Parts {
    /// What the guard says to the peer before it resets this node.
    fn farewells(&self) -> Vec<Farewell> {
        let link = |(number, link): (usize, &crate::config::Link)| Farewell {
            from: link.addresses[self.me.index()].ip(),
            to: link.addresses[self.me.peer().index()],
            sealed: crate::wire::seal_last_words(&self.keyring, number as u8, self.me, self.identity.incarnation),
        };
        self.config.links.iter().enumerate().map(link).collect()
    }

    fn run(self) -> anyhow::Result<End> {
        let farewells = self.farewells();
        let start = |step| move |source| DaemonError::Start { step, source };
        let runtime = current_thread().map_err(start("start the loop"))?;
        let (inbox, notes) = mpsc::unbounded_channel();
        let (fencing, fence_orders) = mpsc::unbounded_channel();
        let (group, group_orders) = mpsc::unbounded_channel();
        let (calls, call_queue) = mpsc::channel(CALLS);
        let (signals, signal_queue) = mpsc::unbounded_channel();
        let armed = Arc::new(Armed::default());
        let persister = Persister::start(self.record, inbox.clone()).map_err(start("start the record thread"))?;
        let node = &self.config.node(self.me).name;
        let past = Past::load(&self.config.paths.state, self.config.service.flap_window);
        let clients = cut_spec(&self.config, self.me);
        let cut = Cut::prepare(clients.clone(), Arc::clone(&armed), inbox.clone());
        let cut = cut.map_err(start("start the cut's thread"))?;
        let group_of_node = Arc::new(group::group_of(&self.config, node));
        let clients = Some(clients).filter(|spec| !spec.is_empty());
        let (boot, remains) = (self.identity.boot, Remains { clients, ..group_of_node.remains() });
        let enforcer = Arc::new(Enforcer::open(&self.config, boot, &remains, &farewells)?);
        let executor = Executor::new(
            &self.config,
            Arc::clone(&group_of_node),
            Arc::clone(&armed),
            Arc::clone(&enforcer),
            past.clone(),
            cut.settled(),
            inbox.clone(),
        );
        let options = ServerOptions {
            socket: self.config.control.socket.clone(),
            access: Access::new(self.config.control.read_group.clone(), self.config.control.command_group.clone()),
            peer_name: self.config.node(self.me.peer()).name.clone(),
            version: self.version.clone(),
        };
        let journal = self.journal.clone();
        let shown = Shown::new();
        let faces = Faces {
            node: node.clone(),
            runtime: self.config.paths.runtime.clone(),
            notify: self.config.service.notify.clone(),
            http: self.config.service.http,
            watch: shown.watch(),
        };
        let tell = {
            let inbox = inbox.clone();
            move |news| drop(inbox.send(note::Note::Journal(news)))
        };
        let (evidence, kept) = fence::journal::Journal::start(&self.config.paths.state, stamp, tell)
            .map_err(start("start the fence journal's thread"))?;
        let identities = self.plan.identities();
        identities.learn(self.me.index(), self.identity.uuid);
        let peer = self.config.node(self.me.peer()).name.clone();
        let known_peer =
            KnownPeer::new(self.config.paths.state.clone(), peer, self.me.peer(), identities, inbox.clone());
        let plan = Arc::new(self.plan.with_journal(evidence));
        let probes =
            Probes { agents: prober::provable(&self.config, &plan), interval: self.config.fence.probe_interval };
        let test_hooks = self.test_hooks;
        let worker = Worker { faces, plan, probes, executor, options, journal, calls, inbox, signals, test_hooks };
        let worker = worker.start(fence_orders, group_orders)?;
        let notifier = Notifier::start().map_err(start("start the notify thread"))?;
        let driver = |links| Driver {
            node: self.node,
            heartbeats: Heartbeats::new(links, self.keyring, self.me, self.identity),
            run_time: self.run_time,
            persister,
            armed,
            enforcer,
            shown,
            cut,
            fencing,
            group,
            journal: self.journal,
            notifier,
            wall: self.config.timing.wall_check.then(|| (WallCheck::new(), self.config.timing.pause)),
            picture: Picture::new(self.config.clone(), self.me, self.version, group_of_node, past, clock::now()),
            thinning: Thinning::default(),
            known_peer,
            stalls: StallMeter::new(),
            lateness: LatenessAlarm::new(self.config.timing.pause),
            links_usable: true,
            told_standing: None,
            told_handover: None,
            told_cannot_fence: false,
            finished: false,
            end: End::InOrder,
        };
        let end = runtime.block_on(async {
            let links = self.config.links.iter().map(|l| Link::bind(l, self.me)).collect();
            let alarm = Alarm::new().map_err(start("make the alarm"))?;
            let generation = GenerationId::listen();
            if let Err(error) = &generation {
                tracing::info!(%error, "a restored or copied virtual machine will not be noticed: no kernel events here");
            }
            let sources = Sources { inbox: notes, calls: call_queue, signals: signal_queue, generation: generation.ok() };
            anyhow::Ok(driver(links).run(sources, alarm).await)
        })?;
        // The loop is gone, and with it all that the worker waits for: it says its last words and ends.
        let ended = worker.join().map_err(|_| anyhow::anyhow!("the worker thread panicked; see the journal"));
        if !kept.wait(LAST_WORDS) {
            tracing::warn!("the last fence attempts may be missing in the fence journal: its disk does not answer");
        }
        ended.map(|()| end)
    }
}

fn current_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What shows this node to its service.
struct Faces {
    node: String,
    runtime: PathBuf,
    notify: Option<Vec<String>>,
    http: Option<std::net::SocketAddr>,
    watch: tokio::sync::watch::Receiver<face::Face>,
}

impl Faces {
    fn start(self, calls: &mpsc::Sender<crate::control::Call>) {
        tokio::spawn(face::token_file::run(self.runtime, self.node.clone(), self.watch.clone()));
        if let Some(command) = self.notify {
            tokio::spawn(face::hook::run(command, self.watch.clone()));
        }
        if let Some(address) = self.http {
            tokio::spawn(Http { address, node: self.node, face: self.watch, calls: calls.clone() }.run());
        }
    }
}

/// Wall time for the evidence.
fn stamp() -> String {
    clock::wall().to_string()
}

/// Which agents are proven ahead of need, and how often.
struct Probes {
    agents: Vec<usize>,
    interval: crate::core::Span,
}

/// The thread for what may block or take long.
struct Worker {
    faces: Faces,
    plan: Arc<FencePlan>,
    probes: Probes,
    executor: Executor,
    options: ServerOptions,
    journal: Journal,
    calls: mpsc::Sender<crate::control::Call>,
    inbox: note::Inbox,
    signals: mpsc::UnboundedSender<Ending>,
    test_hooks: bool,
}

impl Worker {
    /// Starts the thread, and returns once the control socket listens.
    fn start(
        self,
        fence_orders: mpsc::UnboundedReceiver<fencer::FenceWork>,
        group_orders: mpsc::UnboundedReceiver<group::GroupOrder>,
    ) -> anyhow::Result<std::thread::JoinHandle<()>> {
        let (ready, listening) = std::sync::mpsc::sync_channel(1);
        let runtime = current_thread().map_err(|source| DaemonError::Start { step: "start the worker", source })?;
        let work = move || {
            runtime.block_on(self.serve(fence_orders, group_orders, &ready));
            // A thread that hangs in a dead file system must not hold up the end.
            runtime.shutdown_timeout(LAST_WORDS);
        };
        let thread = std::thread::Builder::new().name("worker".to_owned()).spawn(work);
        let thread = thread.map_err(|source| DaemonError::Start { step: "start the worker thread", source })?;
        listening.recv()??;
        Ok(thread)
    }

    async fn serve(
        self,
        fence_orders: mpsc::UnboundedReceiver<fencer::FenceWork>,
        group_orders: mpsc::UnboundedReceiver<group::GroupOrder>,
        ready: &std::sync::mpsc::SyncSender<anyhow::Result<()>>,
    ) {
        self.faces.start(&self.calls);
        let bound = Server::bind(self.options, self.journal, self.calls);
        let server = match bound {
            Ok(server) => server,
            Err(error) => {
                let _ = ready.send(Err(error.into()));
                return;
            }
        };
        let _ = ready.send(Ok(()));
        tokio::spawn(server.run());
        tokio::spawn(forward_signals(self.signals));
        if self.test_hooks {
            tokio::spawn(forward_faults(self.inbox.clone()));
        }
        prober::start(&self.plan, &self.probes.agents, self.probes.interval, &self.inbox);
        tokio::spawn(fencer::run(Arc::clone(&self.plan), fence_orders, self.inbox));
        self.executor.run(group_orders).await;
        // A BMC has few session slots. One that is silent holds nobody up: its session ends by itself.
        let _ = tokio::time::timeout(FAREWELL, self.plan.close()).await;
        // Whoever was answered last gets the answer: every task that is ready runs once more.
        for _ in 0..LAST_TURNS {
            tokio::task::yield_now().await;
        }
    }
}

/// SIGTERM and SIGINT ask for the end; the service manager says which.
async fn forward_signals(end: mpsc::UnboundedSender<Ending>) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return tracing::error!("signals cannot be watched: only SIGKILL ends this daemon, and `leasehold stop`");
    };
    loop {
        let ending = tokio::select! {
            _ = terminate.recv() => manager::ending().await,
            _ = interrupt.recv() => Ending::Stop,
        };
        if end.send(ending).is_err() {
            return;
        }
    }
}

/// SIGUSR1 and SIGUSR2, in a daemon that was started with test hooks.
async fn forward_faults(inbox: note::Inbox) {
    use note::{Fault, Note};
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut first), Ok(mut second)) = (signal(SignalKind::user_defined1()), signal(SignalKind::user_defined2()))
    else {
        return tracing::error!("signals cannot be watched: the test hooks do nothing");
    };
    let fault = tokio::select! {
        _ = first.recv() => Fault::Panic,
        _ = second.recv() => Fault::Hang,
    };
    let _ = inbox.send(Note::Fault(fault));
}
