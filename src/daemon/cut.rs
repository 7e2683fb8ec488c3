//! The cut of the clients beside the loop: a thread that waits with everything prepared, and keeps what was last wanted.
//!
//! ```text
//!   loop ── cut, lift (in its order) ──▶ thread "cut" ──▶ nf_tables, sock_diag
//!   start, stop ◀── settled ────────────────┘  └── Note::Clients ──▶ status
//! ```
//!
//! The loop itself does not send the messages: each takes microseconds, but whoever loads another ruleset at that moment
//! holds the lock of nf_tables, and a lease must not wait for that. Only the loop gives orders here, so that no start
//! that is over can lift what a demotion has cut.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::watch;

use crate::config::{Config, Resource, ResourceKind};
use crate::control::{Clients, ClientsState};
use crate::core::{Instant, NodeId};
use crate::os::clock;
use crate::os::net::cut::{CutReport, Cutter, Spec};
use crate::os::net::nft::{self, Gate};

use super::armed::Armed;
use super::group::instance;
use super::note::{Inbox, Note};

/// How often the table is looked at while nothing happens: a firewall that is reloaded may have removed it.
const LOOK: Duration = Duration::from_secs(1);
/// Ahead of everything that has no real-time priority, where the service manager gave none.
const NICE: i32 = -20;

/// What clients are to meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Cut,
    Open,
    /// The clean end: nothing runs here any more, and nothing is left in the kernel.
    Removed,
}

#[derive(Debug, Clone, Copy)]
struct Order {
    want: Want,
    number: u64,
    /// When the loop decided.
    at: Instant,
}

/// The loop's end. Dropping it ends the thread and leaves the table as it is.
#[derive(Debug)]
pub struct Cut {
    thread: Option<(Sender<Order>, JoinHandle<()>)>,
    given: Arc<AtomicU64>,
    done: watch::Receiver<u64>,
}

/// For starts and stops: until everything that the loop has ordered so far is done.
#[derive(Debug, Clone)]
pub struct Settled {
    given: Arc<AtomicU64>,
    done: watch::Receiver<u64>,
}

impl Settled {
    pub async fn wait(&self) {
        let given = self.given.load(Ordering::SeqCst);
        // A thread that is gone does nothing any more.
        let _ = self.done.clone().wait_for(|done| *done >= given).await;
    }
}

impl Cut {
    /// Prepares the cut and starts the thread. Where there is nothing to cut, there is no thread, and no privilege is
    /// needed.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn prepare(spec: Spec, armed: Arc<Armed>, inbox: Inbox) -> std::io::Result<Cut> {
        let (finished, done) = watch::channel(0);
        let mut cut = Cut { thread: None, given: Arc::default(), done };
        if spec.is_empty() {
            // Of an earlier configuration. Without the privilege to look there was none to make it.
            let _ = nft::remove(&spec);
            return Ok(cut);
        }
        let (orders, queue) = channel();
        let keeper = Keeper::new(Cutter::prepare(spec), armed, finished, inbox);
        let thread = std::thread::Builder::new().name("cut".to_owned()).spawn(move || keeper.run(&queue))?;
        cut.thread = Some((orders, thread));
        Ok(cut)
    }

    pub fn settled(&self) -> Settled {
        Settled { given: Arc::clone(&self.given), done: self.done.clone() }
    }

    pub fn cut(&self) {
        self.order(Want::Cut);
    }

    pub fn lift(&self) {
        self.order(Want::Open);
    }

    /// After the clean stop: whoever starts the service by hand then has his clients.
    pub fn remove(&self) {
        self.order(Want::Removed);
    }

    fn order(&self, want: Want) {
        if let Some((orders, _)) = &self.thread {
            let number = self.given.fetch_add(1, Ordering::SeqCst) + 1;
            if orders.send(Order { want, number, at: clock::now() }).is_err() {
                tracing::error!(?want, "the cut's thread is gone: clients stay as they are");
            }
        }
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if let Some((orders, thread)) = self.thread.take() {
            drop(orders);
            if thread.join().is_err() {
                tracing::error!("the cut's thread panicked");
            }
        }
    }
}

/// What the thread has.
struct Keeper {
    cutter: Cutter,
    armed: Arc<Armed>,
    want: Want,
    done: watch::Sender<u64>,
    inbox: Inbox,
    /// The last cut of this daemon.
    told: Clients,
    unreadable: bool,
}

impl Keeper {
    fn new(mut cutter: Cutter, armed: Arc<Armed>, done: watch::Sender<u64>, inbox: Inbox) -> Keeper {
        let want = match cutter.is_cut() {
            true => Want::Cut,
            false => Want::Open,
        };
        let keeper = Keeper { cutter, armed, want, done, inbox, told: Clients::default(), unreadable: false };
        keeper.tell_beginning();
        keeper
    }

    fn run(mut self, orders: &Receiver<Order>) {
        // Without the privilege it waits its turn like everybody.
        let _ = rustix::process::setpriority_process(None, NICE);
        loop {
            match orders.recv_timeout(LOOK) {
                Ok(order) => self.carry_out(order),
                Err(RecvTimeoutError::Timeout) => self.look_after(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn tell_beginning(&self) {
        let table = &self.cutter.spec().table;
        match (self.cutter.cannot_refuse(), self.cutter.cannot_reset(), self.want) {
            (Some(error), ..) => tracing::warn!(
                why = lacks_refusal(error),
                "clients cannot be cut: those of a primary that loses its lease are served until its service has stopped"
            ),
            (None, Some(error), _) => tracing::warn!(
                table,
                why = lacks_reset(error),
                "clients that wait in silence will learn of a cut with their next packet only"
            ),
            (None, None, Want::Cut) => tracing::info!(table, "clients are cut, since before this daemon started"),
            (None, None, Want::Open | Want::Removed) => tracing::info!(table, "the cut of clients is prepared"),
        }
        self.tell();
    }

    fn carry_out(&mut self, order: Order) {
        self.want = order.want;
        match order.want {
            Want::Cut => {
                let report = self.cutter.cut();
                self.done.send_replace(order.number);
                self.note_cut(&report, order.at);
            }
            Want::Open => {
                let lifted = self.cutter.lift();
                self.done.send_replace(order.number);
                self.note_lifted(lifted);
            }
            Want::Removed => {
                let removed = self.cutter.remove();
                self.done.send_replace(order.number);
                if let (Err(error), None) = (removed, self.cutter.cannot_refuse()) {
                    tracing::error!(%error, table = self.cutter.spec().table, "the table that cuts clients is left");
                }
            }
        }
        self.tell();
    }

    fn note_cut(&mut self, report: &CutReport, decided: Instant) {
        let ended = clock::now().since(decided);
        let before = ended.minus(report.took);
        self.told.refused_us = report.refused.ok().map(|after| before.plus(after).0 / 1000);
        self.told.reset = report.reset.map(|ended| ended.count);
        self.told.reset_us = report.reset.map(|_| ended.0 / 1000);
        match (report.refused, self.cutter.look()) {
            (Ok(after), Ok(Gate::Shut)) => {
                let connections = report.reset.map_or(0, |ended| ended.count);
                tracing::info!(
                    connections,
                    "clients refused {} after the decision, all reset after {ended}",
                    before.plus(after)
                );
            }
            // Told at the start.
            (Err(_), _) if self.cutter.cannot_refuse().is_some() => {}
            (Err(error), _) | (Ok(_), Err(error)) => tracing::error!(%error, "clients may get through: the cut failed"),
            (Ok(_), Ok(Gate::Open | Gate::Absent)) => {
                tracing::error!("clients get through: the cut was undone by someone")
            }
        }
        if let Some(error) = report.reset.and_then(|ended| ended.error) {
            tracing::error!(%error, "not every connection could be reset; the next packet of each resets it");
        }
    }

    fn note_lifted(&self, lifted: Result<(), Errno>) {
        match (lifted, self.cutter.cannot_refuse()) {
            (Ok(()), _) => tracing::info!("clients get through"),
            (Err(_), Some(_)) => {}
            (Err(error), None) => tracing::error!(%error, "clients stay cut: tried again every second"),
        }
    }

    /// Brings back what was last wanted where somebody else has changed it.
    fn look_after(&mut self) {
        if self.cutter.cannot_refuse().is_some() {
            return;
        }
        let found = match (self.cutter.look(), self.want) {
            (Ok(Gate::Shut), Want::Cut) | (Ok(Gate::Open), Want::Open) | (Ok(Gate::Absent), Want::Removed) => {
                self.unreadable = false;
                return;
            }
            // By the guard, while the loop hangs.
            (Ok(Gate::Shut), Want::Open) if !self.armed.is_valid() => return,
            (Ok(gate), _) => gate,
            (Err(error), _) => return self.note_unreadable(error),
        };
        tracing::warn!(table = self.cutter.spec().table, ?found, want = ?self.want, "the table was changed by someone: put back");
        let order = Order { want: self.want, number: *self.done.borrow(), at: clock::now() };
        self.carry_out(order);
    }

    fn note_unreadable(&mut self, error: Errno) {
        if !std::mem::replace(&mut self.unreadable, true) {
            tracing::error!(%error, table = self.cutter.spec().table, "the table that cuts clients cannot be read");
        }
    }

    fn tell(&self) {
        let (state, detail) = match (self.cutter.cannot_refuse(), self.want) {
            (Some(error), _) => (ClientsState::Unable, Some(lacks_refusal(error))),
            (None, Want::Cut) => (ClientsState::Cut, self.cutter.cannot_reset().map(lacks_reset)),
            (None, Want::Open | Want::Removed) => (ClientsState::Open, self.cutter.cannot_reset().map(lacks_reset)),
        };
        // The loop may have ended.
        let _ = self.inbox.send(Note::Clients(Clients { state, detail, ..self.told.clone() }));
    }
}

fn lacks_refusal(error: Errno) -> String {
    match error {
        Errno::PERM | Errno::ACCESS => "this daemon lacks CAP_NET_ADMIN".to_owned(),
        Errno::NOENT | Errno::PROTONOSUPPORT | Errno::OPNOTSUPP | Errno::AFNOSUPPORT => {
            format!("this kernel lacks nf_tables with reject for inet: {error}")
        }
        other => format!("nf_tables refuses the table: {other}"),
    }
}

fn lacks_reset(error: Errno) -> String {
    match error {
        Errno::PERM | Errno::ACCESS => "this daemon lacks CAP_NET_ADMIN for SOCK_DESTROY".to_owned(),
        Errno::OPNOTSUPP => "this kernel lacks SOCK_DESTROY (CONFIG_INET_DIAG_DESTROY)".to_owned(),
        other => format!("this kernel's sock_diag does not answer: {other}"),
    }
}

/// Who is a client of this node, by the configuration.
pub fn cut_spec(config: &Config, me: NodeId) -> Spec {
    let node = &config.node(me).name;
    let on_links = |id: NodeId| config.links.iter().map(move |link| link.addresses[id.index()].ip());
    let of_links: Vec<IpAddr> = on_links(me).chain(on_links(me.peer())).collect();
    Spec {
        table: Spec::table_name(node, &instance(&config.cluster, node, &config.paths.runtime)),
        // All of an address is cut, and heartbeats must never be.
        addresses: config.resources.iter().filter_map(address).filter(|a| !of_links.contains(a)).collect(),
        ports: config.service.cut_ports.clone(),
        peers: on_links(me.peer()).collect(),
    }
}

/// The address that moves with the service, of a resource that is one.
fn address(resource: &Resource) -> Option<IpAddr> {
    match &resource.kind {
        ResourceKind::Address(address) => Some(address.address),
        ResourceKind::Exec(_) | ResourceKind::Unit(_) | ResourceKind::Mount(_) | ResourceKind::Postgres(_) => None,
    }
}
