//! Every event of the core in words, how loud it is, and its stable name.

use std::fmt::{self, Display, Formatter};

use crate::core::{Event, FenceResult, Severity, Standing, StopReason};

impl Event {
    /// How loud it is: an alarm wants an operator, a warning may want one soon.
    pub fn severity(&self) -> Severity {
        match self {
            Event::TakeFailed { .. }
            | Event::AccessFailed
            | Event::CannotPromote { .. }
            | Event::StopStuck
            | Event::StalePeer { .. }
            | Event::DeviceLied { .. }
            | Event::PeerRolledBack { .. }
            | Event::RolledBack
            | Event::RecordUnwritable
            | Event::DigestDiffers
            | Event::PowerOnLimit { .. }
            | Event::DrillFailed => Severity::Alarm,
            Event::PeerLost { .. }
            | Event::AttemptFailed { .. }
            | Event::AttemptTooLate { .. }
            | Event::PeerDoubtful { .. }
            | Event::Waiting { .. }
            | Event::LeaveUnacknowledged
            | Event::HandoverRefusedByPeer { .. } => Severity::Warning,
            Event::Demoting { reason, .. } => demotion_severity(*reason),
            Event::OperatorFenceDone { result: FenceResult::Confirmed { .. } } => Severity::Notice,
            Event::OperatorFenceDone { result: FenceResult::Refused { .. } | FenceResult::Unknown } => Severity::Alarm,
            Event::ContactMade { .. }
            | Event::StandingChanged { .. }
            | Event::Claimed { .. }
            | Event::ClaimWithdrawn { .. }
            | Event::GrantedFirst { .. }
            | Event::ProbeStarted
            | Event::ReleaseWithdrawn { .. } => Severity::Info,
            Event::Started { .. }
            | Event::LeaseAdopted { .. }
            | Event::PeerRestarted { .. }
            | Event::ContactRegained
            | Event::BecameStandby { .. }
            | Event::AttemptStarted { .. }
            | Event::AttemptVoided
            | Event::AttemptCalledOff
            | Event::ProofObtained { .. }
            | Event::ProofVoided { .. }
            | Event::ProofWaits { .. }
            | Event::Promoting { .. }
            | Event::Promoted { .. }
            | Event::Serving { .. }
            | Event::WentSole { .. }
            | Event::Admitted { .. }
            | Event::TokenReminted { .. }
            | Event::Released { .. }
            | Event::Frozen
            | Event::Thawed
            | Event::Confirmed { .. }
            | Event::AlarmsCleared
            | Event::Stopping
            | Event::KeepsResources { .. }
            | Event::DigestAgrees
            | Event::PeerLeaving
            | Event::LeaveAcknowledged
            | Event::OperatorFence
            | Event::DrillBegun
            | Event::DrillPowersOn
            | Event::DrillDone
            | Event::PowerOnDue { .. } => Severity::Notice,
        }
    }

    /// The stable name in the public JSON: the variant's name in kebab case, `peer-lost`.
    pub fn kind(&self) -> String {
        let debug = format!("{self:?}");
        let mut kind = String::new();
        for letter in debug.chars().take_while(char::is_ascii_alphanumeric) {
            if letter.is_ascii_uppercase() && !kind.is_empty() {
                kind.push('-');
            }
            kind.push(letter.to_ascii_lowercase());
        }
        kind
    }
}

/// A demotion that somebody asked for is no cause to wake anyone.
fn demotion_severity(reason: StopReason) -> Severity {
    match reason {
        StopReason::Handover | StopReason::Leaving | StopReason::Joining => Severity::Notice,
        StopReason::LeaseEnded
        | StopReason::StaleToken { .. }
        | StopReason::StartFailed
        | StopReason::ResourceFailed
        | StopReason::TakeRefused { .. }
        | StopReason::GenerationIdChanged
        | StopReason::WallClockJumped
        | StopReason::LostLeaseDuringStart => Severity::Alarm,
    }
}

/// One table, one line an event: long, but without a decision in it.
impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Event::Started { record_found: true } => f.write_str("daemon started, record read"),
            Event::Started { record_found: false } => f.write_str(
                "daemon started without a record: promotes only after contact, or after `leasehold init-record`",
            ),
            Event::LeaseAdopted { token, left } => {
                write!(f, "goes on as primary from before the restart: token {token}, {left} of the lease left")
            }
            Event::ContactMade { peer, boot } => write!(f, "contact with the peer (daemon {peer}, boot {boot})"),
            Event::PeerRestarted { peer, rebooted: true } => write!(f, "the peer rebooted (daemon {peer})"),
            Event::PeerRestarted { peer, rebooted: false } => write!(f, "the peer's daemon restarted (daemon {peer})"),
            Event::PeerDoubtful { silence } => write!(f, "the peer is doubtful: silent for {silence}"),
            Event::PeerLost { silence, incident } => {
                write!(f, "the peer is lost: silent for {silence} (incident {incident})")
            }
            Event::ContactRegained => f.write_str("contact with the peer regained"),
            Event::BecameStandby { standing } => {
                let meaning = match standing {
                    Standing::Paired => "paired: admitted, takes over when the primary is proven harmless",
                    Standing::Sole => "sole: the peer was proven harmless",
                    Standing::Out => "out: not admitted yet, takes over only by a fence",
                };
                write!(f, "became standby, {meaning}")
            }
            Event::StandingChanged { from, to } => write!(f, "standing changes from {from} to {to}"),
            Event::Claimed { token } => write!(f, "claims the service under token {token}, waits for the peer's grant"),
            Event::ClaimWithdrawn { token } => write!(f, "claim of token {token} withdrawn"),
            Event::GrantedFirst { token } => write!(f, "granted the peer its first lease for token {token}"),
            Event::ProbeStarted => f.write_str("reads the peer's power (status only, no command)"),
            Event::AttemptStarted { token, number } => write!(f, "fence attempt {number} started (highest token so far: {token})"),
            Event::AttemptFailed { result, retry_in } => write!(f, "fence attempt failed, next in {retry_in}: {result}"),
            Event::AttemptCalledOff => {
                f.write_str("the fence attempt under way is called off; an order that was sent already may still land")
            }
            Event::AttemptVoided => f.write_str("the peer was heard: the fence attempt under way proves nothing"),
            Event::AttemptTooLate { needs, left } => {
                write!(f, "no fence attempt: it needs {needs} and the lease ends in {left}")
            }
            Event::ProofObtained { proof } => write!(f, "proof `{proof}`: {}", proof.meaning()),
            Event::ProofVoided { proof } => write!(f, "proof `{proof}` is void: the peer was heard, its lease ended, or the store refused the token"),
            Event::ProofWaits { proof, wait } => {
                write!(f, "proof `{proof}` in hand, waits {wait} until the old lease has ended for certain")
            }
            Event::Promoting { proof, token } => write!(f, "promotes by proof `{proof}` with token {token}"),
            Event::Promoted { proof, token } => write!(f, "is primary by proof `{proof}` with token {token}"),
            Event::Serving { token } => write!(f, "all resources are up under token {token}"),
            Event::WentSole { proof: Some(proof) } => write!(f, "acts alone, without a lease: proof `{proof}`"),
            Event::WentSole { proof: None } => {
                f.write_str("acts alone, without a lease: the peer is not admitted (it left, is frozen or is not ready)")
            }
            Event::Admitted { peer } => write!(f, "admitted the peer as standby (daemon {peer})"),
            Event::TokenReminted { from, to } => write!(f, "a higher token was seen: goes on as primary with {to} for {from}"),
            Event::TakeFailed { result } => write!(f, "no take-over at the store: {result}"),
            Event::AccessFailed => f.write_str(
                "this node's own access to the resources could not be verified: starts nothing; see the fence agents in the journal",
            ),
            Event::Demoting { reason, token } => write!(f, "stops acting under token {token}: {reason}"),
            Event::Released { token } => write!(f, "stopped, verified, and gave token {token} up"),
            Event::ReleaseWithdrawn { token } => write!(f, "release of token {token} withdrawn"),
            Event::HandoverRefusedByPeer { token } => {
                write!(f, "the peer cannot promote by the release of token {token}; both settle who serves")
            }
            Event::CannotPromote { token, because } => {
                write!(f, "cannot promote by the peer's release of token {token}: {because}")
            }
            Event::Waiting { because } => write!(f, "waits: {because}"),
            Event::StopStuck => f.write_str(
                "a resource did not stop in its budget; goes on trying, and the peer gets no release until nothing is left",
            ),
            Event::Frozen => f.write_str("frozen: no role changes until `leasehold thaw`"),
            Event::Thawed => f.write_str("thawed: role changes are allowed again"),
            Event::Confirmed { uid, incident } => {
                write!(f, "uid {uid} confirmed by hand that the peer is down (incident {incident})")
            }
            Event::StalePeer { held } => {
                write!(f, "the peer acts under the older token {held} while this node holds a newer one; it has to stop")
            }
            Event::DeviceLied { boot, agents } => write!(
                f,
                "a fence device lied: the peer acts from boot {boot}, which {agents} had read as off; not trusted until \
                 it is mended and `leasehold clear-alarms`"
            ),
            Event::PeerRolledBack { announced, once } => write!(
                f,
                "the peer announces token {announced} and once announced {once}: its record was rolled back; check its \
                 data, then `leasehold clear-alarms` there"
            ),
            Event::RolledBack => f.write_str(
                "this node's record was rolled back (a restored disk or snapshot?): no promotion by fence until its \
                 data was checked and `leasehold clear-alarms`",
            ),
            Event::AlarmsCleared => f.write_str("an operator cleared the alarms"),
            Event::RecordUnwritable => f.write_str(
                "the record cannot be written: no promotion from here; mend the disk under the state directory and \
                 restart this daemon",
            ),
            Event::DigestDiffers => f.write_str(
                "the peer runs another configuration: nobody takes over; install the same file on both nodes and \
                 restart the daemons",
            ),
            Event::DigestAgrees => f.write_str("both nodes run the same configuration again"),
            Event::PeerLeaving => f.write_str("the peer's daemon is being stopped: it takes over nothing"),
            Event::LeaveAcknowledged => f.write_str("the peer knows that this daemon leaves"),
            Event::LeaveUnacknowledged => f.write_str("leaves without the peer's acknowledgement: it did not answer in time"),
            Event::OperatorFence => f.write_str("an operator ordered a fence of the peer"),
            Event::OperatorFenceDone { result } => write!(f, "the ordered fence ended: {result}"),
            Event::PowerOnDue { number } => write!(f, "switches the fenced peer on again (number {number})"),
            Event::PowerOnLimit { limit } => write!(
                f,
                "the fenced peer was switched on {limit} times, the limit: it stays off; see why it fails, then switch it on"
            ),
            Event::DrillBegun => f.write_str("a drill begins: the standby is fenced, and brought back"),
            Event::DrillPowersOn => f.write_str("the drill switches the fenced standby on again"),
            Event::DrillDone => f.write_str("the drill is over: the standby is back and could take over"),
            Event::DrillFailed => f.write_str(
                "the drill did not go to its end: see that the standby is on, switch it on by hand if not, \
                 then `leasehold clear-alarms`",
            ),
            Event::KeepsResources { token } => write!(
                f,
                "this daemon ends and leaves all resources up under token {token}: frozen, without a lease, watched by nobody"
            ),
            Event::Stopping => f.write_str("this daemon is asked to end: it hands over, or leaves, first"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{AgentSet, Hindrance, Refusal, Scope, Span, Token};

    #[test]
    fn a_wait_names_what_it_waits_for_and_the_command_that_ends_it() {
        let text = Event::Waiting { because: Hindrance::PoweredOnPeerNeverHeard }.to_string();
        assert!(text.contains("never heard since this machine booted"), "{text}");
        assert!(text.contains("`leasehold fence`") && text.contains("`leasehold confirm-fenced`"), "{text}");
    }

    #[test]
    fn the_stable_name_of_an_event_is_its_variant_in_kebab_case() {
        assert_eq!(Event::PeerLost { silence: Span::ZERO, incident: 1 }.kind(), "peer-lost");
        assert_eq!(Event::AccessFailed.kind(), "access-failed");
    }

    #[test]
    fn agents_are_counted_from_one_as_in_the_configuration() {
        let verified_by = AgentSet::EMPTY.with(0).with(31);
        let result = FenceResult::Confirmed { scope: Scope::Node, verified_by };
        assert_eq!(result.to_string(), "fence confirmed, node scope, read back by agent #1, #32");
    }

    #[test]
    fn a_handover_wakes_nobody_and_an_ended_lease_does() {
        let demoting = |reason| Event::Demoting { reason, token: Token(4) }.severity();
        assert_eq!(demoting(StopReason::Handover), Severity::Notice);
        assert_eq!(demoting(StopReason::LeaseEnded), Severity::Alarm);
    }

    #[test]
    fn a_refusal_says_what_to_do_instead() {
        let text = Refusal::NotNow(Hindrance::Frozen).to_string();
        assert_eq!(text, "role changes are frozen; `leasehold thaw` ends it");
    }
}
