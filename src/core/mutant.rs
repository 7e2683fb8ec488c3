//! Deliberate wrong changes, one at a time, for the check of the proof itself: swarm and model checker must catch each.
//!
//! Without the feature `mutants` nothing of this is in the program: `on` is `false` at compile time.

// Tried and struck, because another rule makes them harmless: a grant of another incarnation or token (every authentic
// datagram prolongs the promise in any case), a datagram without an echo (whoever echoes nothing has heard nothing that
// could matter), claiming back at once after a release (the successor's proof shows), and a reboot that holds or claims
// (it needs this node's own grant). `tests/spec` tells each of these clauses by itself.

/// One wrong change, named by what the protocol says and the mutant does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// The holder counts its lease from the receipt of the grant (section 2).
    RightFromReceipt,
    /// The holder subtracts no margin (section 2).
    NoMargin,
    /// A start by a proof that rests on the end of the lease does not wait for it (section 1, scope).
    NoWaitForLease,
    /// A hello does not prolong the promise (section 2).
    HelloDoesNotProlong,
    /// A node forgets what it may have promised in an earlier life (K4).
    PromiseForgottenAtStart,
    /// A shortened T is used for waiting at once (K14).
    ShortTermAtOnce,
    /// A grant leaves before its token is durable (section 3).
    GrantNotDurable,
    /// A fence that nobody can vouch for promotes (section 1).
    UnknownPromotes,
    /// A plan with node scope is content with resource scope (section 1).
    ResourceScopeIsEnough,
    /// Contact leaves a proof standing (section 6).
    ContactLeavesProof,
    /// Contact leaves a probe running, whose answer then counts (K5).
    ContactLeavesProbe,
    /// The second shooter does not wait (section 2, L).
    NoHeadStart,
    /// A datagram counts with an old echo (section 5).
    OldEchoCounts,
    /// A datagram of a former incarnation counts (K3).
    FormerIncarnationCounts,
    /// An overtaken datagram counts (section 5).
    OvertakenCounts,
    /// The echo names only what counted (K22).
    EchoOfAcceptedOnly,
    /// Silence is dated by receipt (K12).
    SilenceByReceipt,
    /// A release of any token counts (section 1, Released).
    AnyReleaseCounts,
    /// A release stays up when its node grants or claims (K2).
    ReleaseStays,
    /// A release is shown before the stop is verified (section 6).
    ReleaseBeforeStopped,
    /// A standby stays `Paired` beside a `Sole` primary (K11).
    PairedBesideSole,
    /// An "admitted" sent before `Out` was written counts (K17).
    OldAdmissionCounts,
    /// `Sole` is written without a take (K16).
    SoleWithoutTake,
    /// No take immediately before the start (K19).
    NoTakeAtStart,
    /// A merely seen higher token is not minted above (K8).
    SeenTokenIgnored,
    /// A voided proof leaves its writes (K21).
    WritesNotTakenBack,
    /// A frozen node shoots (K24).
    FrozenShoots,
    /// The run-time record outlives the demotion (K6).
    LeaseRecordStays,
    /// A joiner shoots a powered-on peer that it never heard (K7).
    JoinerShoots,
    /// A primary ignores a peer that holds a higher token (section 3).
    StalePrimaryGoesOn,
    /// Both nodes mint even tokens (section 3).
    SameParity,
    /// A token is minted above the own one only (section 3).
    MintBelowSeen,
    /// A former primary of a yielding pair shoots (K15).
    FormerPrimaryShoots,
    /// Own access is not restored (K20).
    AccessNotRestored,
    /// Resources start before the record is durable (section 4).
    StartBeforeDurable,
    /// The lease's end is not looked at (section 6).
    LeaseNotEnforced,
    /// A claim and a grant to the other's claim at once (section 6, settle).
    GrantsWhileClaiming,
}

#[cfg(feature = "mutants")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Plants one mutant in every node that this thread runs, or none.
#[cfg(feature = "mutants")]
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.set(mutant);
}

/// Whether this mutant is planted.
#[cfg(feature = "mutants")]
pub(super) fn on(mutant: Mutant) -> bool {
    PLANTED.get() == Some(mutant)
}

/// Whether this mutant is planted: never, in the shipped program.
#[cfg(not(feature = "mutants"))]
pub(super) const fn on(_: Mutant) -> bool {
    false
}

impl Mutant {
    pub const ALL: [Mutant; 37] = [
        Mutant::RightFromReceipt,
        Mutant::NoMargin,
        Mutant::NoWaitForLease,
        Mutant::HelloDoesNotProlong,
        Mutant::PromiseForgottenAtStart,
        Mutant::ShortTermAtOnce,
        Mutant::GrantNotDurable,
        Mutant::UnknownPromotes,
        Mutant::ResourceScopeIsEnough,
        Mutant::ContactLeavesProof,
        Mutant::ContactLeavesProbe,
        Mutant::NoHeadStart,
        Mutant::OldEchoCounts,
        Mutant::FormerIncarnationCounts,
        Mutant::OvertakenCounts,
        Mutant::EchoOfAcceptedOnly,
        Mutant::SilenceByReceipt,
        Mutant::AnyReleaseCounts,
        Mutant::ReleaseStays,
        Mutant::ReleaseBeforeStopped,
        Mutant::PairedBesideSole,
        Mutant::OldAdmissionCounts,
        Mutant::SoleWithoutTake,
        Mutant::NoTakeAtStart,
        Mutant::SeenTokenIgnored,
        Mutant::WritesNotTakenBack,
        Mutant::FrozenShoots,
        Mutant::LeaseRecordStays,
        Mutant::JoinerShoots,
        Mutant::StalePrimaryGoesOn,
        Mutant::SameParity,
        Mutant::MintBelowSeen,
        Mutant::FormerPrimaryShoots,
        Mutant::AccessNotRestored,
        Mutant::StartBeforeDurable,
        Mutant::LeaseNotEnforced,
        Mutant::GrantsWhileClaiming,
    ];
}
