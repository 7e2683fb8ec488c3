//! A primary that is up: watched for its end, and looked after so that its standby can follow.

use std::time::Duration;

use tokio::time::sleep;

use crate::config::Synchronous;
use crate::core::Standing;

use super::space::Space;
use super::tools::{At, NoAnswer, literal};
use super::{Half, slot_of};

/// How often a primary is asked whether it still writes, and its standby looked for.
const LOOK: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(5);
/// A checkpoint writes all of the buffers.
const CHECKPOINT: Duration = Duration::from_secs(600);
/// A primary has failed when it said "no" three times in a row, or nothing at all so many times more: slow is not dead
/// (casebook C37).
const STRIKE_OUT: u32 = 12;
const STRIKES_NO: u32 = 4;
const STRIKES_SILENT: u32 = 1;
/// A standby is missed this many looks in a row before commits stop waiting for it: that it may take over again would be
/// told within milliseconds.
const MISSED: u32 = 3;

impl Half {
    /// Completes when the primary has failed, with the reason.
    pub(super) async fn until_failed(&self) -> String {
        tokio::select! {
            how = self.server.ended() => {
                let what = self.ended(&how).await;
                self.state().strain = None;
                what
            }
            what = self.until_unwell() => what,
            never = self.look_after() => never,
        }
    }

    /// A full disk, when it is seen first. The server goes on for as long as it finds WAL to use again, which may be long:
    /// a strain and no end. It is over when there is as much room as a standby must have.
    async fn new_strain(&self) -> Option<String> {
        let space = self.space().await;
        let mut state = self.state();
        let was = state.strain.is_some();
        match space {
            Space::Full(told) => state.strain = Some(format!("{told}; the server is about to stop itself")),
            Space::Low(told) if was => state.strain = Some(told),
            Space::Low(_) | Space::Enough => state.strain = None,
        }
        state.strain.clone().filter(|_| !was)
    }

    /// The end of a server, with the reason that an operator looks for in front (casebook C31).
    pub(super) async fn ended(&self, how: &str) -> String {
        match self.space().await {
            Space::Full(told) | Space::Low(told) => format!("{told}; {how}"),
            Space::Enough => how.to_owned(),
        }
    }

    async fn until_unwell(&self) -> String {
        let mut strikes = 0;
        loop {
            sleep(LOOK).await;
            if let Some(strain) = self.new_strain().await {
                return strain;
            }
            let what = match self.trouble().await {
                Ok(()) => {
                    strikes = 0;
                    continue;
                }
                Err((count, what)) => {
                    strikes += count;
                    what
                }
            };
            if strikes >= STRIKE_OUT {
                self.state().strain = None;
                return what;
            }
        }
    }

    async fn trouble(&self) -> Result<(), (u32, String)> {
        let question = "select pg_is_in_recovery()::text || ' ' || current_setting('transaction_read_only')";
        match self.tools.ask_one(At::Here, question, ANSWER).await {
            Ok(answer) if answer == "false off" => Ok(()),
            Ok(answer) if answer.starts_with("true") => Err((STRIKE_OUT, "the server is no primary any more".into())),
            Ok(_) => Err((STRIKES_NO, "the server takes no writes: default_transaction_read_only is on".into())),
            Err(NoAnswer::Refused(what) | NoAnswer::Unreachable(what)) => {
                Err((STRIKES_NO, format!("the server refuses a client: {what}")))
            }
            Err(no @ (NoAnswer::Silent | NoAnswer::NoClient(_))) => {
                Err((STRIKES_SILENT, format!("the server does not answer: {no}")))
            }
        }
    }

    /// Control data on the new timeline, without which the other node cannot rewind (casebook C29); its slot; and
    /// whether commits wait for it. Never ends.
    async fn look_after(&self) -> String {
        self.keep_slot().await;
        tokio::join!(self.checkpoint(), self.watch_standby()).1
    }

    async fn checkpoint(&self) {
        if let Err(no) = self.tools.ask(At::Here, &["checkpoint"], CHECKPOINT).await {
            tracing::warn!(resource = self.tools.resource, %no, "the checkpoint after the start failed");
        }
    }

    async fn keep_slot(&self) {
        let Some(peer) = self.tools.peer().ok().filter(|_| self.tools.config.slots) else { return };
        if let Err(no) = self.tools.ask(At::Here, &[&create_slot(peer)], ANSWER).await {
            tracing::warn!(resource = self.tools.resource, %no, "no replication slot for {peer}; it follows from what WAL is kept");
        }
    }

    async fn watch_standby(&self) -> String {
        let mut missed = 0;
        loop {
            if let Ok(standby) = self.standby().await {
                missed = if standby.streams { 0 } else { missed + 1 };
                self.tell(standby.text);
                let wanted = match (standby.streams, self.standing()) {
                    (true, _) | (false, Standing::Paired | Standing::Out) => true,
                    (false, Standing::Sole) => standby.waited_for && missed < MISSED,
                };
                if self.tools.config.synchronous == Synchronous::Preferred && wanted != standby.waited_for {
                    let how =
                        if wanted { "commits wait for the standby from now on" } else { "commits wait for no standby" };
                    tracing::info!(resource = self.tools.resource, "{how}");
                    self.set_partner(wanted).await;
                }
            }
            sleep(LOOK).await;
        }
    }

    async fn standby(&self) -> Result<Seen, NoAnswer> {
        let peer = self.tools.peer().map_err(|error| NoAnswer::NoClient(error.to_string()))?;
        let of_peer = format!("from pg_stat_replication where lower(application_name) = lower({})", literal(peer));
        let question = format!(
            "select current_setting('synchronous_standby_names') <> '', \
             coalesce((select state {of_peer} order by state = 'streaming' desc limit 1), ''), \
             coalesce((select sync_state {of_peer} and state = 'streaming' limit 1), ''), \
             coalesce((select pg_current_wal_lsn() - replay_lsn {of_peer} and state = 'streaming' limit 1), 0)"
        );
        let rows = self.tools.ask(At::Here, &[&question], ANSWER).await?;
        let fields: Vec<String> = rows.into_iter().flatten().collect();
        let [waited_for, state, sync, behind] = fields.as_slice() else {
            return Err(NoAnswer::Refused("an answer that is none".to_owned()));
        };
        let text = match (state.as_str(), sync.as_str()) {
            ("", _) if waited_for == "t" => format!("{peer} does not stream, and commits wait for it"),
            ("", _) => format!("{peer} does not stream; commits do not wait for it"),
            ("streaming", "async") => format!("{peer} streams, {behind} bytes behind, asynchronous"),
            ("streaming", _) => format!("{peer} streams, {behind} bytes behind, synchronous"),
            (other, _) => format!("{peer} is connected ({other})"),
        };
        Ok(Seen { streams: state == "streaming", waited_for: waited_for == "t", text })
    }
}

/// The standby as the primary sees it.
struct Seen {
    streams: bool,
    waited_for: bool,
    text: String,
}

/// Makes the slot of a node where it is missing.
pub(super) fn create_slot(node: &str) -> String {
    let slot = literal(&slot_of(node));
    format!(
        "select pg_create_physical_replication_slot({slot}, true) \
         where not exists (select from pg_replication_slots where slot_name = {slot})"
    )
}
