//! Which mutants the small models do not tell, shared by the two tests that hunt mutants.

use leasehold::core::mutant::Mutant;

/// What no corner of the model checker tells within 12,000 states: `mutation.rs` has to, by the swarm or, for the last
/// five, by a golden scenario that aims at it.
pub const BEYOND: &[Mutant] = &[
    Mutant::PromiseForgottenAtStart,
    Mutant::ReleaseStays,
    Mutant::PairedBesideSole,
    Mutant::NoTakeAtStart,
    Mutant::SeenTokenIgnored,
    Mutant::WritesNotTakenBack,
    Mutant::LeaseRecordStays,
    Mutant::StalePrimaryGoesOn,
    Mutant::AccessNotRestored,
    Mutant::LeaseNotEnforced,
    Mutant::GrantsWhileClaiming,
    Mutant::HelloDoesNotProlong,
    Mutant::ShortTermAtOnce,
    Mutant::ContactLeavesProbe,
    Mutant::OldEchoCounts,
    Mutant::EchoOfAcceptedOnly,
];
