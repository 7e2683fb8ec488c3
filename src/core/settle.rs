//! Two nodes in contact that both hold nothing settle: the one with the freshest data claims, the other grants (`Agreed`).

use super::ids::Token;
use super::io::Event;
use super::message::{Activity, Datagram, Role, Standing};
use super::mutant::{self, Mutant};
use super::node::{Claim, Node, Release, Resources};
use super::settings::DataModel;
use super::time::{Instant, Timer};

impl Node {
    /// In contact with a peer that holds nothing.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.waits_for_release(now) || !self.should_claim() {
            return self.withdraw_claim();
        }
        self.withdraw_release();
        // A node gives up its lease-free right, durably, before it asks for a grant.
        if self.record.wanted().standing == Standing::Sole {
            self.want_standing(Standing::Paired);
        }
        if self.claim.is_none() {
            let Some(token) = self.mint() else { return };
            self.claim = Some(Claim { token, since: None });
            self.named = false;
            self.report(Event::Claimed { token });
        }
    }

    /// A claim is shown once its token is durable, and `Sole` is given up.
    pub(super) fn shown_claim(&self) -> Option<Token> {
        let claim = self.claim?;
        let ready = self.is_minted(claim.token) && self.record.written().standing != Standing::Sole;
        ready.then_some(claim.token)
    }

    /// Whether, of two nodes that hold nothing, this one is to act.
    pub(super) fn should_claim(&self) -> bool {
        let Some(said) = self.hears() else { return false };
        self.both_idle(said) && self.may_claim() && (self.is_freshest(said) || self.peer_cannot_claim(said))
    }

    /// Both hold nothing, neither has a proof, and the peer knows it of this node (it echoes a datagram that said so).
    fn both_idle(&self, said: &Datagram) -> bool {
        let known = self.peer.accepted().zip(self.idle_since).is_some_and(|(a, since)| a.echo_seq >= since);
        let peer_idle = !said.holding
            && !said.resources_up
            && said.activity == Activity::Idle
            && matches!(said.role, Role::Joining | Role::Standby);
        known && peer_idle && self.resources == Resources::Stopped
    }

    fn may_claim(&self) -> bool {
        let fit = match self.settings.data {
            DataModel::Shared => self.is_ready,
            // The freshest data count, whatever a replication that has no partner says of itself.
            DataModel::Replicated => self.backoff_until.is_none(),
        };
        let thawed = !self.frozen() || self.record.written().was_primary() || mutant::on(Mutant::FrozenShoots);
        fit && thawed && !self.leaving() && !self.digest_differs && !self.record.failed() && self.cannot.is_none()
    }

    /// The higher `held_token` is the freshest data; at equal, the first in the configuration.
    fn is_freshest(&self, said: &Datagram) -> bool {
        let mine = (self.record.written().held_token, self.settings.me.peer().index());
        mine > (said.held_token, self.settings.me.index())
    }

    fn peer_cannot_claim(&self, said: &Datagram) -> bool {
        let refused = said.notices.cannot.is_some();
        let shared = self.settings.data == DataModel::Shared;
        refused || shared && (!said.ready || said.notices.leave || said.notices.freeze)
    }

    /// A node that released first waits for "cannot", or D + 4H (K23).
    fn waits_for_release(&mut self, now: Instant) -> bool {
        let Some(release) = self.release else { return false };
        let refused = self.hears().is_some_and(|d| d.notices.cannot == Some(release.token));
        let until = release.since.after(self.settings.dead_after).after(self.settings.interval.times(4));
        if refused || now >= until {
            return false;
        }
        self.wake(Timer::ReleaseWait, until, now);
        true
    }

    pub(super) fn withdraw_claim(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.report(Event::ClaimWithdrawn { token: claim.token });
        }
    }

    /// A release is withdrawn before this node claims, attempts or grants.
    pub(super) fn withdraw_release(&mut self) {
        if let Some(Release { token, .. }) = self.release.take() {
            self.report(Event::ReleaseWithdrawn { token });
        }
    }
}
