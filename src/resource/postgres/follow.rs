//! Following the primary on the other node: until this node streams, whatever it takes, and from then on.
//!
//! ```text
//!   mark: following ────────────────────────────────▶ server in recovery ─▶ streams
//!         acting, none ─▶ rewound onto the primary ──▲
//!         rewinding ────▶ needs a full copy ─▶ (only if configured) cloned ──▲
//! ```
//!
//! Each step looks at what is there, so that one that was cut off is gone on with, or found marked.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::super::{Progress, ResourceError};
use super::mark::{Mark, Past};
use super::replication;
use super::tools::{At, literal};
use super::{Half, slot_of};

/// Between two tries: a primary may be up in a second, or be gone for hours.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// How often a starting standby is asked.
const POLL: Duration = Duration::from_millis(100);
/// A standby tries its primary every five seconds (PostgreSQL, `wal_retrieve_retry_interval`): six tries.
const STREAM_LIMIT: Duration = Duration::from_secs(30);
/// How often a standby is looked after.
const LOOK: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(5);

/// What stands in the way of following.
#[derive(Debug)]
pub enum Obstacle {
    /// Worth another try.
    Passing(String),
    /// Until an operator has done something.
    Lasting(String),
}

impl From<ResourceError> for Obstacle {
    fn from(error: ResourceError) -> Obstacle {
        Obstacle::Passing(error.to_string())
    }
}

impl Half {
    /// Completes when this node streams from the primary.
    ///
    /// # Errors
    /// Only an operator can help.
    pub(super) async fn follow(&self) -> Result<(), ResourceError> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.follow_once().await {
                Ok(()) => return Ok(()),
                Err(Obstacle::Lasting(why)) => {
                    self.tell(why.clone());
                    return Err(self.tools.not_ready(why));
                }
                Err(Obstacle::Passing(what)) => {
                    if self.told().as_ref() != Some(&what) {
                        tracing::info!(resource = self.tools.resource, "does not follow yet: {what}");
                    }
                    self.tell(Progress::step("wait", what));
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn follow_once(&self) -> Result<(), Obstacle> {
        let mark = self.mark.load().await;
        match mark {
            Mark::Known(Past::Following) => {}
            Mark::None if self.is_signalled() => self.note(Past::Following).await?,
            Mark::Known(Past::Replacing) => self.take_place().await?,
            // Long steps: boxed, since each would make room for the others in every future around them.
            Mark::None | Mark::Known(Past::Acting { .. }) if self.has_data() => {
                let beyond = Box::pin(self.rewind()).await?;
                if let Some(why) = beyond {
                    Box::pin(self.replace(why)).await?;
                }
            }
            Mark::None | Mark::Known(Past::Acting { .. }) => {
                let why = format!("there are no data in {}", self.tools.config.data_directory.display());
                Box::pin(self.replace(why)).await?;
            }
            Mark::Known(Past::Rewinding) | Mark::Unreadable(_) => {
                Box::pin(self.replace(self.mark.forbids(&mark).unwrap_or_default())).await?;
            }
        }
        self.run_replica().await?;
        self.until_streaming().await
    }

    pub(super) async fn note(&self, past: Past) -> Result<(), Obstacle> {
        self.mark.save(past).await.map_err(Obstacle::Passing)
    }

    /// A server in recovery with the settings of now.
    async fn run_replica(&self) -> Result<(), Obstacle> {
        if self.server.adopt().await? {
            if self.is_current().await {
                return self.until_recovering().await;
            }
            self.server.stop(self.stop_timeout).await?;
        }
        self.tell(Progress::step("start", "starts its server as a standby"));
        self.server.start(&self.settings()?).await?;
        self.until_recovering().await
    }

    /// Whether a running server was started with what the configuration says now. One that does not answer is left to
    /// get up.
    async fn is_current(&self) -> bool {
        let wanted = self.settings().unwrap_or_default();
        let same = |(name, value): &(&str, String)| format!("current_setting('{name}') = {}", literal(value));
        let compared = ["primary_conninfo", "primary_slot_name", "synchronous_standby_names"];
        let compared: Vec<String> = wanted.iter().filter(|(name, _)| compared.contains(name)).map(same).collect();
        let question = format!("select {}", compared.join(" and "));
        self.tools.ask_one(At::Here, &question, ANSWER).await.map_or(true, |answer| answer != "f")
    }

    async fn until_recovering(&self) -> Result<(), Obstacle> {
        loop {
            let asked = self.tools.ask_one(At::Here, "select pg_is_in_recovery()", ANSWER);
            let answer = tokio::select! {
                answer = asked => answer,
                how = self.server.ended() => return Err(Obstacle::Passing(self.ended(&how).await)),
            };
            match answer {
                Ok(answer) if answer == "t" => return self.drop_own_slot().await,
                Ok(_) => return self.end_usurper().await,
                Err(no) => self.tell(Progress::step("start", format!("starts its server as a standby: {no}"))),
            }
            sleep(POLL).await;
        }
    }

    /// A server that takes writes here, although this node holds nothing: it is stopped, and its data count as a fork.
    async fn end_usurper(&self) -> Result<(), Obstacle> {
        tracing::error!(
            resource = self.tools.resource,
            "the server runs read-write although this node is not the primary; stopping it"
        );
        self.note(Past::Acting { token: 0 }).await?;
        self.server.stop(self.stop_timeout).await?;
        Err(Obstacle::Passing("its server ran read-write although this node is not the primary".to_owned()))
    }

    /// The slot that this node kept for its peer as a primary would keep WAL here for ever.
    async fn drop_own_slot(&self) -> Result<(), Obstacle> {
        let slot = literal(&slot_of(self.tools.peer()?));
        let drop = format!(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = {slot} and not active"
        );
        if let Err(no) = self.tools.ask(At::Here, &[&drop], ANSWER).await {
            tracing::warn!(resource = self.tools.resource, %no, "a replication slot of its time as primary is left");
        }
        Ok(())
    }

    async fn until_streaming(&self) -> Result<(), Obstacle> {
        let peer = self.tools.peer()?.to_owned();
        let streaming = async {
            loop {
                match replication::replica(&self.tools).await {
                    Ok(me) if me.streams => return,
                    Ok(_) => {
                        self.tell(Progress::step("stream", format!("its server runs and waits for WAL of {peer}")))
                    }
                    Err(no) => self.tell(Progress::step("stream", format!("its server does not answer: {no}"))),
                }
                sleep(POLL).await;
            }
        };
        let late = format!("its server runs and does not stream from {peer}; its log says why");
        tokio::select! {
            streams = tokio::time::timeout(STREAM_LIMIT, streaming) => streams.map_err(|_| Obstacle::Passing(late)),
            how = self.server.ended() => Err(Obstacle::Passing(self.ended(&how).await)),
        }
    }

    /// Keeps a standby following: started again when it has ended, stopped when it writes. Ends when only an operator can
    /// help.
    pub(super) async fn mind(self: Arc<Self>) {
        loop {
            tokio::select! {
                how = self.server.ended() => tracing::warn!(resource = self.tools.resource, how, "the standby's server ended"),
                () = sleep(LOOK) => {}
            }
            let is_well = match self.tools.ask_one(At::Here, "select pg_is_in_recovery()", ANSWER).await {
                Ok(answer) => answer == "t",
                Err(_) => self.server.is_running().await.unwrap_or(true),
            };
            if !is_well && let Err(error) = Box::pin(self.follow()).await {
                return tracing::error!(%error, "this node does not follow the primary any more");
            }
        }
    }
}
