//! How far a standby is behind, and whether it may take over.

use std::time::Duration;

use crate::config::Synchronous;
use crate::core::{Instant, Span};

use super::tools::{At, NoAnswer, Tools, literal};

/// An answer from the machine itself takes milliseconds.
const HERE: Duration = Duration::from_secs(3);
/// One over the network may have to resend.
const THERE: Duration = Duration::from_secs(4);

/// A standby's own view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    pub recovers: bool,
    pub streams: bool,
    /// Bytes of WAL since the beginning of time, as for all positions here.
    pub received: u64,
    pub replayed: u64,
    /// The timeline that it receives; 0 when it does not stream.
    pub timeline: u32,
    /// The newest position that the primary has told; 0 when it does not stream.
    pub told: u64,
}

/// What the other node's server says of itself and of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A standby too, or not promoted yet.
    Recovers,
    Writes {
        position: u64,
        timeline: u32,
        /// The timeline of its control data: behind `timeline` until the first checkpoint after a promotion.
        checkpointed: u32,
        /// How it treats this node; empty when this node does not stream from it, [`HIDDEN`] when it does not tell.
        sync: String,
        /// How long what it writes takes to be replayed here.
        replay_lag: Span,
    },
}

/// A server shows how it treats a standby only to roles with `pg_read_all_stats`, whoever the standby is.
const HIDDEN: &str = "hidden";

/// What this node's readiness rests on while the primary does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSeen {
    pub at: Instant,
    pub position: u64,
    /// The primary acknowledged nothing without this node.
    pub synchronous: bool,
}

pub async fn replica(tools: &Tools) -> Result<Replica, NoAnswer> {
    const QUESTION: &str = "select pg_is_in_recovery()::int, coalesce((select (status = 'streaming')::int from \
        pg_stat_wal_receiver), 0), coalesce(pg_last_wal_receive_lsn() - '0/0'::pg_lsn, 0), \
        coalesce(pg_last_wal_replay_lsn() - '0/0'::pg_lsn, 0), \
        coalesce((select received_tli from pg_stat_wal_receiver), 0), \
        coalesce((select latest_end_lsn - '0/0'::pg_lsn from pg_stat_wal_receiver), 0)";
    let rows = tools.ask(At::Here, &[QUESTION], HERE).await?;
    let numbers: Vec<u64> = rows.into_iter().flatten().map(|field| field.parse().unwrap_or(0)).collect();
    let &[recovers, streams, received, replayed, timeline, told] = numbers.as_slice() else {
        return Err(NoAnswer::Refused("an answer that is none".to_owned()));
    };
    let timeline = u32::try_from(timeline).unwrap_or(0);
    Ok(Replica { recovers: recovers == 1, streams: streams == 1, received, replayed, timeline, told })
}

pub async fn source(tools: &Tools) -> Result<Source, NoAnswer> {
    let of_node = format!("from pg_stat_replication where lower(application_name) = lower({})", literal(&tools.node));
    let question = format!(
        "select pg_is_in_recovery()::int, \
         case when pg_is_in_recovery() then 0 else pg_current_wal_lsn() - '0/0'::pg_lsn end, \
         case when pg_is_in_recovery() then 0 else \
         ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int end, \
         (select timeline_id from pg_control_checkpoint()), \
         coalesce((select case when state is null then '{HIDDEN}' when state = 'streaming' then sync_state end \
         {of_node} limit 1), ''), \
         coalesce((select (extract(epoch from replay_lag) * 1000)::bigint {of_node} limit 1), 0)"
    );
    let rows = tools.ask(At::Peer, &[&question], THERE).await?;
    let fields: Vec<String> = rows.into_iter().flatten().collect();
    let [recovers, position, timeline, checkpointed, sync, lag] = fields.as_slice() else {
        return Err(NoAnswer::Refused("an answer that is none".to_owned()));
    };
    if recovers == "1" {
        return Ok(Source::Recovers);
    }
    Ok(Source::Writes {
        position: position.parse().unwrap_or(u64::MAX),
        timeline: timeline.parse().unwrap_or(0),
        checkpointed: checkpointed.parse().unwrap_or(0),
        sync: sync.clone(),
        replay_lag: Span::from_ms(lag.parse().unwrap_or(0)),
    })
}

/// The limits of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub bytes: u64,
    pub lag: Span,
    pub synchronous: Synchronous,
}

/// Whether a standby that sees this, and whose primary says that, has all that it must have. `Err`: why not.
pub fn keeps_up(me: &Replica, source: &Source, limits: Limits, peer: &str) -> Result<String, String> {
    let Source::Writes { position, timeline, sync, replay_lag, .. } = source else {
        return Err(format!("the server of {peer} is no primary"));
    };
    if !me.streams || sync.is_empty() {
        return Err(format!("its server does not stream from {peer}; its log says why"));
    }
    if sync == HIDDEN {
        return Err(format!(
            "the server of {peer} does not tell how it treats this node: `grant pg_read_all_stats to` the replication user there"
        ));
    }
    if me.timeline != *timeline {
        return Err(format!("its server receives timeline {}, and {peer} writes {timeline}", me.timeline));
    }
    let behind = position.saturating_sub(me.replayed);
    if behind > limits.bytes {
        return Err(format!("it is {behind} bytes behind {peer}, and max_lag_bytes is {}", limits.bytes));
    }
    if *replay_lag > limits.lag {
        return Err(format!("it is {replay_lag} behind {peer}, and max_lag is {}", limits.lag));
    }
    let waits = is_synchronous(sync);
    if !waits && limits.synchronous != Synchronous::Off {
        return Err(format!("{peer} does not wait for it yet (sync_state {sync})"));
    }
    let kind = if waits { "synchronous" } else { "asynchronous: a failover may lose what is on its way" };
    Ok(format!("streaming, {behind} bytes behind, {kind}"))
}

/// PostgreSQL, `pg_stat_replication.sync_state`.
pub fn is_synchronous(sync: &str) -> bool {
    matches!(sync, "sync" | "quorum")
}

/// What a promotion is known to lose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Whether something that was acknowledged may be gone.
    pub possible: bool,
    pub text: String,
}

/// `told`: the newest position that the old primary named on the stream itself; 0 when there is none.
pub fn loss(last: Option<LastSeen>, told: u64, received: u64, now: Instant) -> Loss {
    let Some(last) = last else {
        let text =
            "the old primary's last position is not known, and so not what it may have written beyond".to_owned();
        return Loss { possible: true, text };
    };
    let ago = now.since(last.at);
    let missing = last.position.max(told).saturating_sub(received);
    let text = match (last.synchronous, missing) {
        (true, 0) => "nothing that was acknowledged is lost: the old primary waited for this node".to_owned(),
        (true, missing) => format!(
            "{missing} bytes that the old primary had written {ago} ago are missing; none of them was acknowledged, since \
             it waited for this node"
        ),
        (false, missing) => format!(
            "replication was asynchronous: {missing} bytes that the old primary had written {ago} ago are missing, and \
             what it wrote after that"
        ),
    };
    Loss { possible: !last.synchronous, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Replica = Replica { recovers: true, streams: true, received: 900, replayed: 900, timeline: 2, told: 900 };
    const LIMITS: Limits = Limits { bytes: 100, lag: Span::from_secs(1), synchronous: Synchronous::Required };

    fn writes(position: u64, sync: &str) -> Source {
        Source::Writes { position, timeline: 2, checkpointed: 2, sync: sync.to_owned(), replay_lag: Span::ZERO }
    }

    fn why_not(me: Replica, source: &Source) -> String {
        keeps_up(&me, source, LIMITS, "heron").unwrap_err()
    }

    #[test]
    fn a_standby_is_ready_only_with_all_that_it_must_have() {
        assert_eq!(
            keeps_up(&ME, &writes(950, "sync"), LIMITS, "heron").unwrap(),
            "streaming, 50 bytes behind, synchronous"
        );
        assert!(why_not(ME, &writes(1001, "sync")).contains("101 bytes behind"));
        assert!(why_not(ME, &writes(900, "async")).contains("does not wait"));
        assert!(why_not(ME, &writes(900, "")).contains("does not stream"));
        assert!(why_not(ME, &writes(900, HIDDEN)).contains("grant pg_read_all_stats"));
        assert!(why_not(ME, &Source::Recovers).contains("no primary"));
        assert!(why_not(Replica { streams: false, ..ME }, &writes(900, "sync")).contains("does not stream"));
        assert!(why_not(Replica { timeline: 1, ..ME }, &writes(900, "sync")).contains("timeline 1"));
        let late = Source::Writes {
            position: 900,
            timeline: 2,
            checkpointed: 2,
            sync: "sync".to_owned(),
            replay_lag: Span::from_secs(2),
        };
        assert!(why_not(ME, &late).contains("2s behind"));
        let off = Limits { synchronous: Synchronous::Off, ..LIMITS };
        assert!(keeps_up(&ME, &writes(900, "async"), off, "heron").unwrap().contains("asynchronous"));
    }

    #[test]
    fn the_loss_of_a_promotion_is_told_as_far_as_it_is_known() {
        let last = |synchronous| LastSeen { at: Instant(0), position: 1000, synchronous };
        let now = Instant(Span::from_secs(3).0);
        let told = |synchronous, told, received| {
            let Loss { possible, text } = loss(Some(last(synchronous)), told, received, now);
            assert_eq!(possible, !synchronous);
            text
        };
        assert!(told(true, 0, 1000).starts_with("nothing that was acknowledged"));
        assert!(told(true, 0, 990).starts_with("10 bytes"));
        assert!(told(false, 0, 990).contains("asynchronous: 10 bytes that the old primary had written 3s ago"));
        assert!(told(false, 1010, 990).contains("asynchronous: 20 bytes"));
        let unknown = loss(None, 0, 1, now);
        assert!(unknown.possible && unknown.text.contains("not known"));
    }
}
