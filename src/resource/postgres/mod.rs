//! One half of a PostgreSQL streaming-replication pair.
//!
//! ```text
//!   start ─▶ promote.rs  promoted once, asked until it writes the token      watch.rs ─▶ failed
//!   stop ──▶ server.rs   fast, immediate, SIGKILL, then looked for;  by_unit.rs  the same through systemd
//!   stand_by ▶ follow.rs ─▶ rejoin.rs  rewound or copied, under a durable mark (mark.rs)
//!   ready ─▶ replication.rs  streams, same timeline, lag, waited for;  space.rs  room on the disk
//! ```
//!
//! A server in recovery does not act for the service: it takes no write that did not come from the primary. So a standby's
//! server counts as stopped, and a stop leaves it running, as long as its data were never promoted (the mark says so) and
//! `standby.signal` is there, which the server removes before it takes its first write.

mod by_unit;
mod follow;
mod mark;
mod promote;
mod rejoin;
mod replication;
mod server;
mod space;
mod tools;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::config::{PostgresResource, Resource as Configured, Synchronous};
use crate::core::{Severity, Standing, Token};
use crate::os::clock;

use super::unit::Host;
use super::{Context, News, Pending, Progress, Remains, Resource, ResourceError};
use by_unit::ByUnit;
use mark::{Mark, MarkFile, Past};
use replication::{LastSeen, Limits, Source};
use server::{Direct, Server, Setting};
use space::Space;
use tools::Tools;

/// How soon a standby looks for its primary again. PostgreSQL's own five seconds are added to every failover.
const RETRY_MS: u32 = 500;
/// After which silence a replication connection counts as lost. While commits wait for a standby that lost its power, they
/// wait for this; PostgreSQL's own minute is too long for that.
const SILENCE_MS: u32 = 6000;

/// One resource of kind `postgres`.
#[derive(Debug)]
pub struct Postgres {
    half: Arc<Half>,
    /// Keeps a standby following, from the end of `stand_by` until the next order.
    minder: Mutex<Option<JoinHandle<()>>>,
    /// Writes a renewed token.
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What the steps share.
#[derive(Debug)]
struct Half {
    tools: Tools,
    server: Box<dyn Server>,
    mark: MarkFile,
    start_timeout: Duration,
    stop_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    acting: bool,
    standing: Standing,
    told: Option<Progress>,
    /// When this node was last known to have all that it must have.
    last_seen: Option<LastSeen>,
    news: Vec<News>,
    /// Why a primary that still writes had better be elsewhere.
    strain: Option<String>,
}

impl State {
    fn new() -> State {
        State { acting: false, standing: Standing::Out, told: None, last_seen: None, news: Vec::new(), strain: None }
    }
}

impl Postgres {
    /// `instance` tells this node's resources from those of every other daemon on the machine; `node` is this node's name.
    pub fn new(configured: &Configured, config: &PostgresResource, instance: &str, node: &str) -> Postgres {
        Postgres::on(configured, config, instance, node, Host::default())
    }

    /// With its unit, if it has one, at a service manager elsewhere, such as in a container.
    pub fn on(configured: &Configured, config: &PostgresResource, instance: &str, node: &str, host: Host) -> Postgres {
        let resource = configured.name.clone();
        let id = format!("{resource}:{instance}");
        let tools = Tools { resource, id, node: node.to_owned(), config: config.clone() };
        let server: Box<dyn Server> = match &config.unit {
            Some(unit) => Box::new(ByUnit::new(configured, unit, tools.clone(), instance, host)),
            None => Box::new(Direct::new(tools.clone(), instance)),
        };
        let half = Half {
            server,
            mark: MarkFile::new(tools.beside(".leasehold")),
            start_timeout: configured.start_timeout.into(),
            stop_timeout: configured.stop_timeout.into(),
            state: Mutex::new(State::new()),
            tools,
        };
        Postgres { half: Arc::new(half), minder: Mutex::default(), writer: Mutex::default() }
    }

    /// Returns when nothing that was begun beside the orders goes on.
    async fn end_minding(&self) {
        for task in [&self.minder, &self.writer].map(|place| lock(place).take()).into_iter().flatten() {
            task.abort();
            let _ = task.await;
        }
    }

    fn begin_minding(&self) {
        let task = tokio::spawn(Arc::clone(&self.half).mind());
        if let Some(old) = lock(&self.minder).replace(task) {
            old.abort();
        }
    }
}

impl Half {
    /// What the server must be told, whatever a rewind brought from the other node.
    fn settings(&self) -> Result<Vec<Setting>, ResourceError> {
        let config = &self.tools.config;
        let mut settings = vec![
            ("port", config.port.to_string()),
            ("unix_socket_directories", config.socket_directory.display().to_string()),
            ("primary_conninfo", self.tools.primary_conninfo()?),
            ("recovery_target_timeline", "latest".to_owned()),
            ("hot_standby", "on".to_owned()),
            ("wal_retrieve_retry_interval", RETRY_MS.to_string()),
            ("wal_sender_timeout", SILENCE_MS.to_string()),
            ("wal_receiver_timeout", SILENCE_MS.to_string()),
            // Without it, or checksums, nothing can be rewound.
            ("wal_log_hints", "on".to_owned()),
        ];
        let slot = if config.slots { slot_of(&self.tools.node) } else { String::new() };
        settings.push(("primary_slot_name", slot));
        if config.synchronous == Synchronous::Required {
            settings.push(("synchronous_standby_names", format!("\"{}\"", self.tools.peer()?)));
        }
        Ok(settings)
    }

    /// Whether the server here, if one runs, can only follow.
    async fn only_follows(&self) -> bool {
        let promoted = self.tools.config.data_directory.join("promote").exists();
        self.mark.load().await == Mark::Known(Past::Following) && self.is_signalled() && !promoted
    }

    async fn bring_down(&self) -> Result<(), ResourceError> {
        self.set_acting(false);
        if self.only_follows().await {
            return Ok(());
        }
        self.server.stop(self.stop_timeout).await
    }

    async fn is_harmless(&self) -> Result<bool, ResourceError> {
        Ok(!self.server.is_running().await? || self.only_follows().await)
    }

    /// Whether this node could take over, or goes on serving.
    async fn could_serve(&self) -> Result<(), ResourceError> {
        let mark = self.mark.load().await;
        if let Some(why) = self.mark.forbids(&mark) {
            let doing = self.progress().filter(|now| now.done.is_some()).map(|now| format!(" (now {now})"));
            return Err(self.tools.not_ready(format!("{why}{}", doing.unwrap_or_default())));
        }
        self.server.fitness().await?;
        match (self.space().await, self.is_acting()) {
            (Space::Full(told), _) | (Space::Low(told), false) => return Err(self.tools.not_ready(told)),
            (Space::Low(_) | Space::Enough, true) => return Ok(()),
            (Space::Enough, false) => {}
        }
        // Of a start that failed late, or a lone primary that was stopped: nobody has newer data.
        if matches!(mark, Mark::Known(Past::Acting { .. })) && self.standing() == Standing::Sole {
            return Ok(());
        }
        self.could_take_over().await.map_err(|why| self.tools.not_ready(why))
    }

    async fn could_take_over(&self) -> Result<(), String> {
        let doing = || self.told().map(|told| format!(": {told}")).unwrap_or_default();
        if !self.server.is_running().await.map_err(|error| error.to_string())? {
            return Err(format!("its server does not run{}", doing()));
        }
        let me = replication::replica(&self.tools).await.map_err(|no| format!("its server does not answer: {no}"))?;
        if !me.recovers {
            return Err("its server runs read-write although this node is not the primary".to_owned());
        }
        let peer = self.tools.peer().map_err(|error| error.to_string())?;
        let source = match replication::source(&self.tools).await {
            Ok(source @ Source::Writes { .. }) => source,
            Ok(Source::Recovers) => return self.trust_last(format!("the server of {peer} is no primary")),
            Err(no) => return self.trust_last(format!("the server of {peer} does not answer: {no}")),
        };
        let config = &self.tools.config;
        let limits = Limits { bytes: config.max_lag_bytes, lag: config.max_lag, synchronous: config.synchronous };
        let kept_up = replication::keeps_up(&me, &source, limits, peer);
        self.remember(&source, kept_up.is_ok());
        self.tell(kept_up.clone().unwrap_or_else(|why| why));
        kept_up.map(drop)
    }

    /// A primary that does not answer may be dead, and then this node is to take over: the last verdict holds, as long as
    /// this node is admitted. Where commits wait for it nothing is lost however long that takes; else it holds for a while.
    fn trust_last(&self, silence: String) -> Result<(), String> {
        let (standing, last) = (self.standing(), self.last_seen());
        let Some(last) = last.filter(|_| standing == Standing::Paired) else { return Err(silence) };
        let since = clock::now().since(last.at);
        let endless = last.synchronous && self.tools.config.synchronous == Synchronous::Required;
        let told = format!("{silence}; {since} ago this node had all that it must have");
        self.tell(told.clone());
        if endless || since <= self.tools.config.max_silence {
            Ok(())
        } else {
            Err(format!("{told}, and max_silence is over"))
        }
    }

    fn remember(&self, source: &Source, kept_up: bool) {
        let Source::Writes { position, sync, .. } = source else { return };
        let seen = LastSeen { at: clock::now(), position: *position, synchronous: replication::is_synchronous(sync) };
        self.state().last_seen = kept_up.then_some(seen);
    }

    async fn space(&self) -> Space {
        let (data, least) = (self.tools.config.data_directory.clone(), self.tools.config.min_free_bytes);
        let look = tokio::task::spawn_blocking(move || space::look(&data, least));
        look.await.unwrap_or(Space::Enough)
    }

    /// Whether the data here start as a standby's.
    fn is_signalled(&self) -> bool {
        self.tools.config.data_directory.join(rejoin::SIGNAL).exists()
    }

    /// Every data directory has this file.
    fn has_data(&self) -> bool {
        self.tools.config.data_directory.join("PG_VERSION").exists()
    }

    fn tell(&self, what: impl Into<Progress>) {
        self.state().told = Some(what.into());
    }

    fn progress(&self) -> Option<Progress> {
        self.state().told.clone()
    }

    fn told(&self) -> Option<String> {
        self.progress().map(|told| told.to_string())
    }

    /// For the record of the failover.
    fn report(&self, severity: Severity, kind: &'static str, what: &str) {
        let text = format!("resource {}: {what}", self.tools.resource);
        self.state().news.push(News { severity, kind, text });
    }

    fn is_acting(&self) -> bool {
        self.state().acting
    }

    fn set_acting(&self, acting: bool) {
        let mut state = self.state();
        state.acting = acting;
        (state.told, state.strain) = (None, None);
        if acting {
            // What was last seen of a primary is history as soon as this node is one itself.
            state.last_seen = None;
        }
    }

    fn standing(&self) -> Standing {
        self.state().standing
    }

    fn last_seen(&self) -> Option<LastSeen> {
        self.state().last_seen
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Resource for Postgres {
    fn name(&self) -> &str {
        &self.half.tools.resource
    }

    fn stop_budget(&self) -> Duration {
        self.half.stop_timeout
    }

    fn start<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(async {
            self.end_minding().await;
            self.half.become_primary(context).await
        })
    }

    fn adopt<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<bool, ResourceError>> {
        Box::pin(async {
            self.end_minding().await;
            self.half.take_over(context).await
        })
    }

    fn stop<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(async {
            self.end_minding().await;
            self.half.bring_down().await
        })
    }

    fn kill(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(async {
            self.end_minding().await;
            self.half.set_acting(false);
            self.half.server.kill(self.half.stop_timeout).await
        })
    }

    fn stand_by<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(async {
            self.end_minding().await;
            self.half.follow().await?;
            self.begin_minding();
            Ok(())
        })
    }

    fn progress(&self) -> Option<Progress> {
        self.half.progress()
    }

    fn take_news(&self) -> Vec<News> {
        std::mem::take(&mut self.half.state().news)
    }

    fn is_stopped(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(self.half.is_harmless())
    }

    fn ready(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.half.could_serve())
    }

    fn watch(&self) -> Pending<'_, String> {
        Box::pin(self.half.until_failed())
    }

    fn strain(&self) -> Option<String> {
        self.half.state().strain.clone()
    }

    fn set_token(&self, token: Token) {
        let half = Arc::clone(&self.half);
        if half.is_acting() {
            let task = tokio::spawn(async move { half.renew_token(token).await });
            if let Some(old) = lock(&self.writer).replace(task) {
                old.abort();
            }
        }
    }

    fn set_standing(&self, standing: Standing) {
        self.half.state().standing = standing;
    }

    fn remains(&self) -> Remains {
        self.half.server.remains()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        [&self.minder, &self.writer].into_iter().filter_map(|place| lock(place).take()).for_each(|task| task.abort());
    }
}

/// The slot that a primary keeps for this node: lower-case letters, digits and underscores (PostgreSQL, "Replication
/// Slots").
fn slot_of(node: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    format!("leasehold_{}", node.chars().map(plain).collect::<String>())
}

/// A panic while a lock was held leaves whole values behind.
fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}
