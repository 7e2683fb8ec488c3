//! The one table of what safety is argued from: assumptions, guarantees, mechanisms, each with an id that never changes.
//!
//! `docs/SAFETY.md` carries the same rows; `tests/explain.rs` holds the two together. An id that is given up is not
//! used again.

use std::fmt;

/// Something outside this program that has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assumption {
    pub id: Id,
    pub text: &'static str,
    /// What is lost where it does not hold.
    pub else_lost: &'static str,
}

/// What the program promises while its assumptions hold (protocol section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantee {
    pub id: Id,
    /// As the protocol calls it.
    pub clause: &'static str,
    pub text: &'static str,
    pub assumes: &'static [Id],
    pub by: &'static [Id],
}

/// A part of the program that brings a guarantee about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mechanism {
    pub id: Id,
    pub text: &'static str,
    pub source: &'static str,
    /// A file of tests, and what in it speaks of this mechanism.
    pub tests: &'static [&'static str],
}

/// `A3`, `G1`, `M7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    A(u8),
    G(u8),
    M(u8),
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::A(n) => write!(f, "A{n}"),
            Id::G(n) => write!(f, "G{n}"),
            Id::M(n) => write!(f, "M{n}"),
        }
    }
}

impl serde::Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

pub const DEVICES_TELL_THE_TRUTH: Id = Id::A(1);
pub const OPERATORS_TELL_THE_TRUTH: Id = Id::A(2);
pub const HARDWARE_WATCHDOG: Id = Id::A(3);
pub const DRIFT: Id = Id::A(4);
pub const PAUSES: Id = Id::A(5);
pub const STOPS: Id = Id::A(6);
pub const GUARD_RUNS: Id = Id::A(7);
pub const TOKEN_CHECKED: Id = Id::A(8);
pub const TAKE_IS_ATOMIC: Id = Id::A(9);
pub const SCOPE_COVERS: Id = Id::A(10);
pub const DEVICES_REACHABLE: Id = Id::A(11);
pub const KEY_SECRET: Id = Id::A(12);
pub const DISK_HONEST: Id = Id::A(13);
pub const RUN_TIME_IS_VOLATILE: Id = Id::A(14);
pub const TARGETS_RIGHT: Id = Id::A(15);
pub const SETTLE_HOLDS: Id = Id::A(16);
pub const READY_IS_TRUE: Id = Id::A(17);
pub const NO_OTHER_STARTER: Id = Id::A(18);
pub const STOPPED_IS_TRUE: Id = Id::A(19);

const fn assumption(id: Id, text: &'static str, else_lost: &'static str) -> Assumption {
    Assumption { id, text, else_lost }
}

/// In the order of their ids.
pub const ASSUMPTIONS: &[Assumption] = &[
    assumption(
        DEVICES_TELL_THE_TRUTH,
        "A fence agent that reports a verified success tells the truth, and covers every outlet and supply of its target.",
        "both nodes may act",
    ),
    assumption(
        OPERATORS_TELL_THE_TRUTH,
        "An operator who confirms a fence has seen the machine off, or has cut its power.",
        "both nodes may act",
    ),
    assumption(
        HARDWARE_WATCHDOG,
        "A hardware watchdog resets a node that hangs, before the peer relies on the end of its lease.",
        "a node that hangs and wakes may act after its lease",
    ),
    assumption(
        DRIFT,
        "The boot clock of each node runs right to within `lease.drift_ppm`.",
        "a lease may outlast the peer's wait for its end",
    ),
    assumption(
        PAUSES,
        "No node stands still, unseen by its own clock, for longer than `lease.pause`: no hypervisor pause, no migration, no \
         restore of a snapshot.",
        "a node that wakes may act after its lease",
    ),
    assumption(
        STOPS,
        "Every resource is stopped, and verified as stopped, within its `stop_timeout`.",
        "a resource may act after the lease",
    ),
    assumption(
        GUARD_RUNS,
        "The guard runs while resources are up: it ends what a daemon that is dead, stopped or starved leaves running, and \
         resets the node where that is not seen to be gone in time.",
        "resources may act after the lease",
    ),
    assumption(
        TOKEN_CHECKED,
        "A resource with `checks_token = true` refuses every write under a token older than the newest that it has seen.",
        "a late write may be accepted",
    ),
    assumption(
        TAKE_IS_ATOMIC,
        "An agent with `take` compares, stores durably and revokes in one step at the store.",
        "both nodes may have access",
    ),
    assumption(
        SCOPE_COVERS,
        "All that a resource must not do twice goes through what its agent of resource scope revokes.",
        "what goes another way is protected by the lease only",
    ),
    assumption(
        DEVICES_REACHABLE,
        "The fence devices answer while a node or a link is down: their power and their network are not those of what they fence.",
        "no take-over until an operator confirms (safety holds)",
    ),
    assumption(KEY_SECRET, "Nobody but the two nodes has the cluster key.", "whoever has it can speak as the peer"),
    assumption(
        DISK_HONEST,
        "What the disk reports as synced survives a power loss, and the state directory is never restored from an old copy.",
        "a promise may be forgotten; an old copy is noticed at the next contact",
    ),
    assumption(
        RUN_TIME_IS_VOLATILE,
        "The run-time directory does not outlive a boot.",
        "a lease of a former boot may be gone on with",
    ),
    assumption(
        TARGETS_RIGHT,
        "Each agent reaches the device of the node that it names, and no other.",
        "the wrong machine is switched off, and the right one runs",
    ),
    assumption(
        SETTLE_HOLDS,
        "No `off` lands later than the agent's `settle` after its attempt.",
        "a healthy node may be switched off (safety holds)",
    ),
    assumption(
        READY_IS_TRUE,
        "A resource's `ready` says the truth: with replicated data, that this replica has all acknowledged writes.",
        "a take-over may start on old data",
    ),
    assumption(
        NO_OTHER_STARTER,
        "Nobody but this daemon starts the resources: no unit enabled at boot, no second cluster manager, no operator.",
        "resources may be active on both nodes",
    ),
    assumption(
        STOPPED_IS_TRUE,
        "A resource that is reported as stopped is stopped: nothing that it started has left its process group, and the `stop` \
         of one in the background returns only when nothing of it is left.",
        "after a handover both nodes may act",
    ),
];

const fn guarantee(
    id: Id,
    clause: &'static str,
    text: &'static str,
    assumes: &'static [Id],
    by: &'static [Id],
) -> Guarantee {
    Guarantee { id, clause, text, assumes, by }
}

/// In the order of their ids.
pub const GUARANTEES: &[Guarantee] = &[
    guarantee(
        Id::G(1),
        "S1",
        "Resources are never active on both nodes. With resource scope alone this also needs the lease.",
        &[
            DEVICES_TELL_THE_TRUTH,
            OPERATORS_TELL_THE_TRUTH,
            TAKE_IS_ATOMIC,
            SCOPE_COVERS,
            KEY_SECRET,
            DISK_HONEST,
            RUN_TIME_IS_VOLATILE,
            TARGETS_RIGHT,
            NO_OTHER_STARTER,
            STOPPED_IS_TRUE,
        ],
        &[Id::M(1), Id::M(2), Id::M(3), Id::M(4), Id::M(6), Id::M(7), Id::M(8)],
    ),
    guarantee(
        Id::G(2),
        "S2",
        "A take-over from a paired primary with `promote.after = \"fence+lease\"` makes resources active on both not even where \
         a device lied or an operator confirmed wrongly.",
        &[HARDWARE_WATCHDOG, DRIFT, PAUSES, STOPS, GUARD_RUNS, KEY_SECRET, NO_OTHER_STARTER, STOPPED_IS_TRUE],
        &[Id::M(3), Id::M(5), Id::M(6), Id::M(7), Id::M(10)],
    ),
    guarantee(
        Id::G(3),
        "S3",
        "Tokens of successive promotions strictly increase, and no two promotions share one.",
        &[DISK_HONEST, TOKEN_CHECKED],
        &[Id::M(2), Id::M(8)],
    ),
    guarantee(
        Id::G(4),
        "S4",
        "No promotion without one of the five proofs, and each is recorded with its token.",
        &[],
        &[Id::M(1), Id::M(8)],
    ),
    guarantee(
        Id::G(5),
        "S5",
        "No acknowledged write of the record is lost by a crash at any point.",
        &[DISK_HONEST],
        &[Id::M(8)],
    ),
    guarantee(
        Id::G(6),
        "L1",
        "With a truthful, reachable fence path and one live, ready node there is a primary within the computed bound.",
        &[DEVICES_REACHABLE, SETTLE_HOLDS, READY_IS_TRUE],
        &[Id::M(4), Id::M(9)],
    ),
    guarantee(
        Id::G(7),
        "L2",
        "After faults end and power is back, the pair returns to a primary and a ready standby without an operator.",
        &[DEVICES_REACHABLE, READY_IS_TRUE],
        &[Id::M(7), Id::M(9)],
    ),
];

const fn mechanism(id: Id, text: &'static str, source: &'static str, tests: &'static [&'static str]) -> Mechanism {
    Mechanism { id, text, source, tests }
}

/// In the order of their ids.
pub const MECHANISMS: &[Mechanism] = &[
    mechanism(
        Id::M(1),
        "Promotion takes one of five proofs by value; there is no other way to have one.",
        "src/core/proof.rs",
        &["tests/spec/proofs.rs"],
    ),
    mechanism(
        Id::M(2),
        "Tokens are minted above all that was seen, by parity of the node, and are durable before use.",
        "src/core/ids.rs",
        &["tests/spec/tokens.rs"],
    ),
    mechanism(
        Id::M(3),
        "The promise: no start by the end of a lease before T after the last datagram received.",
        "src/core/lease.rs",
        &["tests/spec/time.rs"],
    ),
    mechanism(
        Id::M(4),
        "Fence plans run by levels, and a success is read back before it counts.",
        "src/fence/plan.rs",
        &["tests/spec/scopes.rs"],
    ),
    mechanism(
        Id::M(5),
        "The right: a primary stops by itself at t + T − M; after any gap that comparison comes first.",
        "src/core/node.rs",
        &["tests/spec/time.rs", "tests/spec/primary.rs"],
    ),
    mechanism(
        Id::M(6),
        "The group is stopped in reverse order, and nothing is released before that is verified.",
        "src/core/demoting.rs",
        &["tests/spec/demoting.rs"],
    ),
    mechanism(
        Id::M(7),
        "A datagram counts only if it echoes one of mine that is recent; contact voids what was proven of a silent peer.",
        "src/core/peer.rs",
        &["tests/spec/messages.rs", "tests/spec/standby.rs"],
    ),
    mechanism(
        Id::M(8),
        "The record is written whole and synced, in two slots, before any act that relies on it.",
        "src/os/record.rs",
        &["tests/spec/record.rs"],
    ),
    mechanism(
        Id::M(9),
        "A silent peer is probed, then fenced, again and again, the second shooter later than the first.",
        "src/core/fencing.rs",
        &["tests/spec/standby.rs", "tests/spec/joining.rs"],
    ),
    mechanism(
        Id::M(10),
        "A second process holds the deadline too: it cuts, kills, looks, and resets the node, without the daemon.",
        "src/guard/run.rs",
        &["tests/guard.rs", "tests/guard/alone.rs"],
    ),
];

/// The row of an assumption.
pub fn assumption_of(id: Id) -> &'static Assumption {
    ASSUMPTIONS.iter().find(|a| a.id == id).expect("every constant above stands in the table")
}
