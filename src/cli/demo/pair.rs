//! A pair that runs and is watched: everything that happens comes as news, in one queue.
//!
//! ```text
//!   notify sockets ─ Ready ──┐
//!   control sockets ─ Decided┼──▶ one queue ──▶ story, soak, report
//!   history ─ Wrote ─────────┤
//!   machines ─ Off ──────────┘
//! ```

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::Signal;

use super::history::{self, Line};
use super::procs::Process;
use super::world::{BOTH, Plan, World, name, node_named};
use crate::cli::socket;
use crate::control::{Answer, Client, Decision, Event, Op, Role, Status};
use crate::core::{Instant, NodeId, Span};
use crate::os::clock;

/// Conditions on both nodes are looked at again this often while nothing is told: some change without a decision.
const LOOK: Duration = Duration::from_millis(50);
/// A watch without news for this long is asked again; the daemon's end is told at once in any case.
const QUIET: Duration = Duration::from_secs(3600);

/// A daemon that does not answer within this is stopped, or as good as.
const STATUS_LIMIT: Duration = Duration::from_millis(500);

/// Something that happened.
#[derive(Debug, Clone)]
pub struct News {
    /// On the boot clock.
    pub at: Instant,
    pub node: NodeId,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    /// The daemon runs and sends heartbeats.
    Ready,
    /// The daemon decided or observed something.
    Decided(Decision),
    /// The daemon is gone.
    Gone,
    /// The machine is off.
    Off,
    /// The service wrote.
    Wrote(Line),
}

/// A world with its news.
#[derive(Debug)]
pub struct Pair {
    pub world: World,
    news: Receiver<News>,
    teller: Teller,
    listeners: Vec<PathBuf>,
}

/// What each watching thread holds.
#[derive(Debug, Clone)]
struct Teller {
    queue: Sender<News>,
    /// What to take from the wall clock to get the boot clock.
    wall_ahead_ns: i128,
}

impl Teller {
    /// Whether anybody still listens.
    fn tell(&self, at: Instant, node: NodeId, what: What) -> bool {
        self.queue.send(News { at, node, what }).is_ok()
    }

    fn tell_now(&self, node: NodeId, what: What) -> bool {
        self.tell(clock::now(), node, what)
    }

    fn tell_decision(&self, node: NodeId, decision: Decision) -> bool {
        let at = u64::try_from(decision.at.as_nanosecond() - self.wall_ahead_ns).unwrap_or_default();
        self.tell(Instant(at), node, What::Decided(decision))
    }
}

impl Pair {
    /// Builds the world and listens. Both machines are off.
    ///
    /// # Errors
    /// As [`World::build`].
    pub fn build(plan: Plan) -> anyhow::Result<Pair> {
        let world = World::build(plan)?;
        let (queue, news) = channel();
        let wall_ahead_ns = clock::wall().as_nanosecond() - i128::from(clock::now().0);
        let teller = Teller { queue, wall_ahead_ns };
        let mut pair = Pair { world, news, teller, listeners: Vec::new() };
        pair.follow_history()?;
        BOTH.into_iter().try_for_each(|node| pair.listen(node))?;
        Ok(pair)
    }

    /// Switches a machine on.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn switch_on(&mut self, node: NodeId) -> anyhow::Result<()> {
        let teller = self.teller.clone();
        self.world.switch_on(node, move || {
            teller.tell_now(node, What::Off);
        })
    }

    /// The next thing that happened; `None` when there was nothing for `limit`.
    pub fn next(&self, limit: Duration) -> Option<News> {
        match self.news.recv_timeout(limit) {
            Ok(news) => Some(news),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the pair itself holds a sender"),
        }
    }

    /// Forgets what has not been asked for.
    pub fn skip_news(&self) {
        self.news.try_iter().for_each(drop);
    }

    /// Hands each piece of news to `end`, until that finds what it waits for.
    ///
    /// # Errors
    /// It does not within `limit`; `what` says what was waited for.
    pub fn until<T>(
        &mut self,
        what: &str,
        limit: Span,
        mut end: impl FnMut(&mut Pair, Option<&News>) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let begun = clock::now();
        loop {
            let news = self.next(LOOK);
            if let Some(found) = end(self, news.as_ref())? {
                return Ok(found);
            }
            self.lose_patience(what, begun, limit)?;
        }
    }

    /// For whoever waits in a loop.
    ///
    /// # Errors
    /// The limit has passed since `begun`.
    pub fn lose_patience(&self, what: &str, begun: Instant, limit: Span) -> anyhow::Result<()> {
        if clock::now().since(begun) >= limit {
            bail!("not within {limit}: {what}; {}", self.described());
        }
        Ok(())
    }

    /// What the daemon says of itself; `None` where none answers.
    pub fn status(&self, node: NodeId) -> Option<Status> {
        let mut client = Client::connect(&self.world.socket(node), STATUS_LIMIT).ok()?;
        socket::status(&mut client).ok()
    }

    /// The node that acts, by its own word.
    pub fn primary(&self) -> Option<NodeId> {
        let mut acting = BOTH.into_iter().filter(|node| self.status(*node).is_some_and(|s| s.me.role == Role::Primary));
        let found = acting.next();
        found.filter(|_| acting.next().is_none())
    }

    /// A primary that serves and could hand over, and its admitted standby: gives the primary.
    pub fn whole(&self) -> Option<NodeId> {
        let statuses = BOTH.map(|node| self.status(node));
        let serves = |status: &Status| {
            let up = status.resources.iter().all(|r| r.state == crate::control::ResourceState::Up);
            status.me.role == Role::Primary && status.can_fail_over.answer == crate::control::Verdict::Yes && up
        };
        let stands_by = |status: &Status| status.me.role == Role::Standby && status.me.admitted;
        BOTH.into_iter().find(|node| {
            let (mine, peers) = (&statuses[node.index()], &statuses[node.peer().index()]);
            mine.as_ref().is_some_and(serves) && peers.as_ref().is_some_and(stands_by)
        })
    }

    /// Gives a command.
    ///
    /// # Errors
    /// The daemon refuses, or does not answer.
    pub fn command(&self, node: NodeId, op: Op) -> anyhow::Result<()> {
        socket::command(&self.world.socket(node), op)
    }

    /// The running daemon of a machine.
    ///
    /// # Errors
    /// The machine is off, or no daemon runs on it.
    pub fn daemon(&self, node: NodeId) -> anyhow::Result<Process> {
        self.process(node, "daemon")
    }

    /// The running guard of a machine.
    ///
    /// # Errors
    /// The machine is off, or no guard runs on it.
    pub fn guard(&self, node: NodeId) -> anyhow::Result<Process> {
        self.process(node, "guard")
    }

    /// The running service of a machine.
    ///
    /// # Errors
    /// The machine is off, or the service does not run on it.
    pub fn service(&self, node: NodeId) -> anyhow::Result<Process> {
        self.process(node, "demo-service")
    }

    fn process(&self, node: NodeId, subcommand: &str) -> anyhow::Result<Process> {
        let found = self.world.with(node, |machine| machine.processes())?;
        let mut found = found.into_iter().filter(|p| p.subcommand().as_deref() == Some(subcommand));
        found.next().with_context(|| format!("no {subcommand} runs on {}", name(node)))
    }

    /// Signals everything that runs on a machine; gives how many processes that were.
    ///
    /// # Errors
    /// The machine is off.
    pub fn signal_all(&self, node: NodeId, signal: Signal) -> anyhow::Result<usize> {
        let processes = self.world.with(node, |machine| machine.processes())?;
        processes.iter().for_each(|process| process.signal(signal));
        Ok(processes.len())
    }

    fn described(&self) -> String {
        let one = |node: NodeId| match self.status(node) {
            Some(s) => format!("{} is {} ({}, admitted: {})", name(node), s.me.role, s.me.standing, s.me.admitted),
            None => format!("{} does not answer", name(node)),
        };
        BOTH.map(one).join(", ")
    }

    fn follow_history(&self) -> anyhow::Result<()> {
        let (teller, path) = (self.teller.clone(), self.world.history());
        let told = move |line: Line| {
            let (at, node) = (Instant(line.boottime_ns), node_named(&line.node));
            node.is_none_or(|node| teller.tell(at, node, What::Wrote(line)))
        };
        let follow = move || {
            // It ends with the file.
            let _ = history::follow(&path, told);
        };
        std::thread::Builder::new().name("history".into()).spawn(follow).context("a thread").map(drop)
    }

    /// As a service manager does: the daemon says itself when it is ready.
    fn listen(&mut self, node: NodeId) -> anyhow::Result<()> {
        let path = self.world.home(node).join("notify");
        let listener = UnixDatagram::bind(&path).with_context(|| path.display().to_string())?;
        let (teller, control) = (self.teller.clone(), self.world.socket(node));
        let listen = move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = listener.recv(&mut buffer) {
                match &buffer[..length] {
                    b"" => return,
                    text if text.starts_with(b"READY=1") => watch(&teller, node, &control),
                    _ => {}
                }
            }
        };
        self.listeners.push(path);
        std::thread::Builder::new().name("notify".into()).spawn(listen).context("a thread").map(drop)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let woken = |path: &PathBuf| UnixDatagram::unbound().and_then(|socket| socket.send_to(&[], path));
        self.listeners.iter().map(woken).for_each(drop);
    }
}

/// Watches a daemon that is ready, from a thread that ends with it.
fn watch(teller: &Teller, node: NodeId, control: &Path) {
    let (teller, control) = (teller.clone(), control.to_owned());
    teller.tell_now(node, What::Ready);
    std::thread::spawn(move || {
        let _ = tell_decisions(&teller, node, &control);
        teller.tell_now(node, What::Gone);
    });
}

/// Those of before the watch, then each as it comes.
fn tell_decisions(teller: &Teller, node: NodeId, control: &Path) -> anyhow::Result<()> {
    let mut watch = socket::connect(control)?.watch()?;
    let mut told = 0;
    for decision in decisions(&mut socket::connect(control)?)? {
        told = decision.number;
        teller.tell_decision(node, decision);
    }
    loop {
        match watch.next_within(QUIET)? {
            Some(Event::Decision(decision)) if decision.number > told => {
                if !teller.tell_decision(node, decision) {
                    return Ok(());
                }
            }
            Some(Event::Decision(_) | Event::Missed(_)) | None => {}
        }
    }
}

fn decisions(client: &mut Client) -> anyhow::Result<Vec<Decision>> {
    match client.ask(Op::Why { last: None })? {
        Answer::Decisions(decisions) => Ok(decisions),
        other => bail!(socket::unexpected(&other)),
    }
}
