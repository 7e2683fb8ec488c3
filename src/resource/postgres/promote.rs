//! Becoming the primary: promoted once, asked until it writes, and never called failed because a tool gave up waiting
//! (casebook C28).
//!
//! ```text
//!   mark "acting", durable ─▶ server runs ─▶ it answers ─▶ pg_promote, once ─▶ it writes the token ─▶ up
//!                                                   └── asked again and again, until start_timeout ──┘
//! ```
//!
//! That the mark comes first makes these data a fork from then on, whatever becomes of the promotion: before this node
//! follows again they are rewound.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::config::Synchronous;
use crate::core::{Instant, Severity, Standing, Token};
use crate::os::clock;

use super::super::{Context, ResourceError};
use super::Half;
use super::mark::{Mark, Past};
use super::replication::{self, LastSeen, loss};
use super::space::Space;
use super::tools::{At, NoAnswer, literal};

/// How soon a server that does not answer or write yet is asked again: a promotion takes some 150 ms.
const POLL: Duration = Duration::from_millis(40);
/// One question: longer than a busy machine takes to start a client, and far below any start_timeout.
const ANSWER: Duration = Duration::from_secs(10);
/// What the database gets in order to hold the token.
const INSTALL: &str = include_str!("../../../packaging/postgres/leasehold.sql");
/// Where the timeline of this server left the one before: the last line of its history file (PostgreSQL, "Timelines").
const FORK: &str = r"select (regexp_match(pg_read_file('pg_wal/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) || '.history'),
    '\t([0-9A-F]+/[0-9A-F]+)\t[^\n]*\n*$'))[1]::pg_lsn - '0/0'::pg_lsn";

/// What was known of the old primary when this node was about to be promoted.
#[derive(Debug)]
struct Known {
    last: Option<LastSeen>,
    /// The newest position that it named on the stream itself.
    told: u64,
    /// What had come from it.
    received: u64,
    at: Instant,
}

/// Why the token is not in the database.
#[derive(Debug)]
enum NotWritten {
    /// The database has seen a newer one: this node must not act.
    Stale(String),
    NotYet(String),
}

impl Half {
    /// Completes when the server writes under this token.
    pub(super) async fn become_primary(&self, context: &Context) -> Result<(), ResourceError> {
        let limit = self.start_timeout;
        match timeout(limit, self.promote(context)).await {
            Ok(done) => done,
            Err(_) => Err(self.tools.error(format!(
                "it does not write within {limit:?} ({}); its data count as forked from now on and are rewound before it \
                 follows again",
                self.told().unwrap_or_default()
            ))),
        }
    }

    async fn promote(&self, context: &Context) -> Result<(), ResourceError> {
        self.tools.peer()?;
        self.tell("looks at its data");
        self.may_start().await?;
        let acting = Past::Acting { token: context.token.0 };
        self.mark.save(acting).await.map_err(|why| self.tools.error(format!("not promoted: {why}")))?;
        if !self.server.adopt().await? {
            self.tell("starts its server");
            self.server.start(&self.settings()?).await?;
        }
        let up = tokio::select! {
            up = self.until_it_writes(context.token) => up,
            how = self.server.ended() => Err(self.tools.error(self.ended(&how).await)),
        };
        up?;
        self.set_acting(true);
        Ok(())
    }

    /// No start on broken data, and none on a full disk, which would end in the same place later.
    async fn may_start(&self) -> Result<(), ResourceError> {
        if let Some(why) = self.mark.forbids(&self.mark.load().await) {
            return Err(self.tools.error(format!("not started: {why}")));
        }
        match self.space().await {
            Space::Full(told) => Err(self.tools.error(format!("not started: {told}"))),
            Space::Low(_) | Space::Enough => Ok(()),
        }
    }

    async fn until_it_writes(&self, token: Token) -> Result<(), ResourceError> {
        let recovers = self.until_it_answers().await;
        self.choose_partner().await;
        let known = if recovers { Some(self.ask_to_promote(token).await?) } else { None };
        loop {
            match self.write_token(token).await {
                Ok(()) => {
                    if let Some(known) = known {
                        self.report_loss(known).await;
                    }
                    return Ok(());
                }
                Err(NotWritten::Stale(why)) => return Err(self.tools.error(why)),
                Err(NotWritten::NotYet(what)) => self.tell(format!("waits until it writes: {what}")),
            }
            sleep(POLL).await;
        }
    }

    /// Whether it is in recovery, as soon as it says so.
    async fn until_it_answers(&self) -> bool {
        loop {
            match self.tools.ask_one(At::Here, "select pg_is_in_recovery()", ANSWER).await {
                Ok(answer) => return answer == "t",
                Err(no) => self.tell(format!("waits until it answers: {no}")),
            }
            sleep(POLL).await;
        }
    }

    /// Exactly once. An answer that does not come says nothing: the server is asked for its state, not the tool.
    async fn ask_to_promote(&self, token: Token) -> Result<Known, ResourceError> {
        let (received, told) =
            replication::replica(&self.tools).await.map_or((0, 0), |me| (me.received.max(me.replayed), me.told));
        let known = Known { last: self.last_seen(), told, received, at: clock::now() };
        tracing::info!(resource = self.tools.resource, %token, "promoting the server");
        self.tell("promoted, waits until it writes");
        match self.tools.ask(At::Here, &["select pg_promote(false)"], ANSWER).await {
            Ok(_) => Ok(known),
            Err(NoAnswer::Refused(what)) => Err(self.tools.error(format!("the server refuses to be promoted: {what}"))),
            Err(no @ (NoAnswer::Silent | NoAnswer::Unreachable(_) | NoAnswer::NoClient(_))) => {
                tracing::warn!(resource = self.tools.resource, %no, "whether the promotion was asked for is not known");
                Ok(known)
            }
        }
    }

    /// After the promotion, whose record of the fork says to the byte what this node had: a server that was still replaying
    /// its own WAL when it was asked names less.
    async fn report_loss(&self, known: Known) {
        let fork = self.tools.ask_one(At::Here, FORK, ANSWER).await.ok().and_then(|answer| answer.parse().ok());
        let lost = loss(known.last, known.told, fork.unwrap_or(known.received), known.at);
        self.report(if lost.possible { Severity::Warning } else { Severity::Notice }, "loss", &lost.text);
    }

    /// The real write by which a primary is known: the token's row. It waits for no standby, or the first start after a
    /// failover would never end.
    async fn write_token(&self, token: Token) -> Result<(), NotWritten> {
        let number = i64::try_from(token.0).map_err(|_| NotWritten::Stale(format!("token {token} is too large")))?;
        let not_yet = |no: NoAnswer| NotWritten::NotYet(no.to_string());
        self.install().await.map_err(not_yet)?;
        let statement = format!(
            "set synchronous_commit = local; insert into leasehold.token as t (token, node) values ({number}, {node}) \
             on conflict (only_row) do update set token = excluded.token, node = excluded.node, since = now() \
             where t.token <= excluded.token; select token from leasehold.token",
            node = literal(&self.tools.node)
        );
        match self.tools.ask_one(At::Here, &statement, ANSWER).await {
            Ok(held) if held == number.to_string() => Ok(()),
            Ok(held) => Err(NotWritten::Stale(format!(
                "its database has seen token {held}, above {token}: another node was primary after this one"
            ))),
            Err(NoAnswer::Refused(what)) if what.contains("leasehold.token") => Err(NotWritten::NotYet(format!(
                "{what}; run leasehold.sql in database {}, or set install_token = true",
                self.tools.config.database
            ))),
            Err(no) => Err(not_yet(no)),
        }
    }

    async fn install(&self) -> Result<(), NoAnswer> {
        if !self.tools.config.install_token {
            return Ok(());
        }
        let missing = "select to_regclass('leasehold.token') is null";
        if self.tools.ask_one(At::Here, missing, ANSWER).await? == "t" {
            let script = format!("set synchronous_commit = local; {INSTALL}");
            self.tools.ask(At::Here, &[&script], ANSWER).await?;
        }
        Ok(())
    }

    /// The primary goes on under a newer token: written beside, again and again until it holds or is outdated itself.
    pub(super) async fn renew_token(&self, token: Token) {
        loop {
            match self.write_token(token).await {
                Ok(()) => return,
                Err(NotWritten::Stale(why)) => {
                    return tracing::error!(resource = self.tools.resource, "{why}");
                }
                Err(NotWritten::NotYet(what)) => {
                    tracing::warn!(resource = self.tools.resource, what, "the new token is not in the database yet");
                }
            }
            sleep(ANSWER).await;
        }
    }

    /// `false`: no server of ours runs read-write here.
    pub(super) async fn take_over(&self, context: &Context) -> Result<bool, ResourceError> {
        if !matches!(self.mark.load().await, Mark::Known(Past::Acting { .. })) || !self.server.adopt().await? {
            return Ok(false);
        }
        match self.tools.ask_one(At::Here, "select pg_is_in_recovery()", ANSWER).await {
            Ok(answer) if answer == "f" => {}
            Ok(_) | Err(_) => return Ok(false),
        }
        match self.write_token(context.token).await {
            Ok(()) => {}
            Err(NotWritten::Stale(why)) => return Err(self.tools.error(why)),
            Err(NotWritten::NotYet(_)) => return Ok(false),
        }
        self.set_acting(true);
        Ok(true)
    }

    /// Before the first client can commit: with whom. Alone only where the peer was proven harmless.
    async fn choose_partner(&self) {
        if self.tools.config.synchronous == Synchronous::Preferred {
            self.set_partner(self.standing() != Standing::Sole).await;
        }
    }

    /// Takes effect within milliseconds and without a restart (PostgreSQL, `ALTER SYSTEM`).
    pub(super) async fn set_partner(&self, waits: bool) {
        let Ok(peer) = self.tools.peer() else { return };
        let names = if waits { format!("\"{peer}\"") } else { String::new() };
        let alter = format!("alter system set synchronous_standby_names = {}", literal(&names));
        if let Err(no) = self.tools.ask(At::Here, &[&alter, "select pg_reload_conf()"], ANSWER).await {
            tracing::warn!(resource = self.tools.resource, %no, "whether commits wait for the standby could not be set");
        }
    }
}
