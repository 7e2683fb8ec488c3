//! The compare-and-swap on one disk: look, enrol every path, reserve or preempt the key that was *seen*, look again.
//! Why this is one is told in the module above.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use crate::config::{AbortSupport, Persistence};
use crate::core::{Seen, Take, TakeResult, Token};
use crate::fence::Attempt;

use super::ScsiPr;
use super::key::Key;
use super::paths::paths_of;
use super::tool::{Abort, Persist, Said, Verb};
use super::view::{Capabilities, View};

/// Between two rounds in which nothing got better: a target that is busy or failing over deserves a breath.
const PACE: Duration = Duration::from_millis(50);
/// An undisturbed take needs three looks; one that a rival disturbs needs a few more.
const QUICK_ROUNDS: u64 = 5;
/// Answers of different moments mean that somebody is at work on the same disk; that one needs a dozen commands.
const TORN: u32 = 12;

/// One disk in one attempt.
pub struct Lun<'a> {
    agent: &'a ScsiPr,
    attempt: &'a Attempt,
    pub device: &'a Path,
    /// The paths that answer, as far as is known. One that failed is not waited for again in this attempt.
    pub paths: Vec<PathBuf>,
    pub has_full_status: bool,
}

/// What a look at the disk means for a take.
enum Chance {
    Refused(Token),
    /// The reservation carries the very token of this take.
    Won,
    /// Nobody holds it.
    Free,
    /// This key holds it and may be preempted.
    Over(Key),
}

/// What one path said to the new key.
enum OnPath {
    /// It has it now, and had this one before.
    Was(u64),
    Refused,
    Silent,
}

/// What the enrolling of all paths came to.
pub enum Enrolled {
    /// Each path said that it had this very key already.
    Already,
    Changed,
    /// The target did not take the key.
    Failed,
}

impl<'a> Lun<'a> {
    pub fn find(agent: &'a ScsiPr, device: &'a Path, attempt: &'a Attempt) -> Result<Lun<'a>, String> {
        let paths = paths_of(device, &agent.places)?;
        Ok(Lun { agent, attempt, device, paths, has_full_status: true })
    }

    /// One consistent picture, over the first path that answers; `Err` says why there is none.
    pub async fn view(&mut self) -> Result<View, String> {
        for _ in 0..TORN {
            let Some(keys) = self.ask(Verb::ReadKeys).await else { return Err(self.silent()) };
            let Some(held) = self.ask(Verb::ReadReservation).await else { return Err(self.silent()) };
            let full = self.full_status().await;
            if let Some(view) = View::of(&keys, &held, full.as_deref())? {
                return Ok(view);
            }
        }
        Err(format!("{}: its registrations never stood still while they were read", self.device.display()))
    }

    pub async fn capabilities(&mut self) -> Option<Capabilities> {
        self.ask(Verb::ReportCapabilities).await.map(|text| Capabilities::of(&text))
    }

    /// The paths over which nothing comes back, each asked once; they are given up.
    pub async fn silent_paths(&mut self) -> Vec<PathBuf> {
        let (mut living, mut silent) = (Vec::new(), Vec::new());
        for path in std::mem::take(&mut self.paths) {
            match self.agent.tool.call(&path, Verb::ReadKeys, self.attempt).await {
                Said::Good(_) => living.push(path),
                Said::Conflict | Said::Illegal(_) | Said::Unanswered(_) => silent.push(path),
            }
        }
        self.paths = living;
        silent
    }

    fn silent(&self) -> String {
        format!("{}: no path answers", self.device.display())
    }

    /// Asks over the first path that answers; those before it are given up.
    async fn ask(&mut self, verb: Verb) -> Option<String> {
        while let Some(path) = self.paths.first() {
            match self.agent.tool.call(path, verb, self.attempt).await {
                Said::Good(text) => return Some(text),
                Said::Conflict | Said::Illegal(_) | Said::Unanswered(_) => _ = self.paths.remove(0),
            }
        }
        None
    }

    /// Older targets have no READ FULL STATUS; the list of keys has one entry a registration as well.
    async fn full_status(&mut self) -> Option<String> {
        let path = self.paths.first().filter(|_| self.has_full_status)?;
        match self.agent.tool.call(path, Verb::ReadFullStatus, self.attempt).await {
            Said::Good(text) => Some(text),
            Said::Illegal(_) => {
                self.has_full_status = false;
                None
            }
            Said::Conflict | Said::Unanswered(_) => Some(String::new()),
        }
    }

    /// Works until the disk is this node's alone under the new token, or somebody else's for good.
    pub async fn acquire(&mut self, own: Key, seen: Seen) -> TakeResult {
        for round in 0u64.. {
            if round > QUICK_ROUNDS {
                sleep(PACE).await;
            }
            let Some(view) = self.look().await else { continue };
            if let Some(why) = view.stranger(|key| self.agent.is_ours(key)) {
                self.attempt.note(&format!("nothing to {}", self.device.display()), &why);
                return TakeResult::Unknown;
            }
            match self.agent.chance(&view, own, seen) {
                Chance::Refused(highest) => return self.give_up(&view, own, highest).await,
                Chance::Won if self.is_settled(&view, own).await => return TakeResult::Taken,
                Chance::Won => {}
                Chance::Free => self.reserve(&view, own).await,
                Chance::Over(holder) => self.overcome(&view, own, holder).await,
            }
        }
        TakeResult::Unknown
    }

    async fn look(&mut self) -> Option<View> {
        match self.view().await {
            Ok(view) => Some(view),
            Err(why) => {
                self.attempt.note(&format!("look at {}", self.device.display()), &why);
                // A path may be back in the next round.
                self.paths = paths_of(self.device, &self.agent.places).unwrap_or_default();
                sleep(PACE).await;
                None
            }
        }
    }

    async fn reserve(&mut self, view: &View, own: Key) {
        match self.enrol(view, own).await {
            Enrolled::Failed => {}
            Enrolled::Already | Enrolled::Changed => {
                // A conflict means that somebody was faster; the next look tells who.
                self.send(Verb::Reserve { own: own.raw() }).await;
            }
        }
    }

    async fn overcome(&mut self, view: &View, own: Key, holder: Key) {
        match (self.enrol(view, own).await, holder.node == own.node) {
            (Enrolled::Failed, _) => {}
            // Where the holder was one of these paths, the reservation went along with its key.
            (Enrolled::Changed, true) => {}
            (Enrolled::Already | Enrolled::Changed, _) => self.preempt(own, holder).await,
        }
    }

    /// Names exactly this key: the target refuses if it is gone, or if this node's own registration is.
    async fn preempt(&mut self, own: Key, victim: Key) {
        let (own, victim) = (own.raw(), victim.raw());
        let said = self.send(Verb::Preempt { own, victim, abort: Abort::Yes }).await;
        if let Some(Said::Illegal(_)) = said {
            match self.agent.config.abort {
                AbortSupport::Required => {
                    let why = "PREEMPT AND ABORT is required; a target that never had it needs `abort = \"optional\"`";
                    self.attempt.note("(nothing more)", why);
                }
                AbortSupport::Optional => _ = self.send(Verb::Preempt { own, victim, abort: Abort::No }).await,
            }
        }
    }

    /// Whether all is as it must be: nobody else registered, each path registered, kept over a loss of power. Mends
    /// what is not, and then says no: only a look at the mended disk counts.
    async fn is_settled(&mut self, view: &View, own: Key) -> bool {
        let others: BTreeSet<Key> = view.keys().into_iter().filter(|key| *key != own).collect();
        for other in &others {
            self.preempt(own, *other).await;
        }
        let enrolled = self.enrol(view, own).await;
        others.is_empty() && matches!(enrolled, Enrolled::Already) && self.is_kept().await
    }

    async fn is_kept(&mut self) -> bool {
        match (self.agent.config.persistence, self.capabilities().await) {
            (Persistence::None, _) => true,
            (Persistence::Required, Some(capabilities)) => capabilities.persists,
            (Persistence::Required, None) => false,
        }
    }

    /// Registers this node over each of its paths. A path's own key is swapped, never overwritten: what it was before
    /// is not inferred from the list but tried, and the target says whether it was so (casebook C19).
    pub async fn enrol(&mut self, view: &View, own: Key) -> Enrolled {
        let former: Vec<u64> =
            view.keys().into_iter().rev().filter(|key| key.node == own.node && *key != own).map(Key::raw).collect();
        let candidates: Vec<u64> = std::iter::once(own.raw()).chain(former).chain([0]).collect();
        let (mut changed, mut refused, mut living) = (false, false, Vec::new());
        for path in std::mem::take(&mut self.paths) {
            match self.enrol_path(&path, &candidates, own).await {
                OnPath::Was(from) => changed |= from != own.raw(),
                OnPath::Refused => refused = true,
                OnPath::Silent => continue,
            }
            living.push(path);
        }
        self.paths = living;
        match (self.paths.is_empty() || refused, changed) {
            (true, _) => Enrolled::Failed,
            (false, true) => Enrolled::Changed,
            (false, false) => Enrolled::Already,
        }
    }

    async fn enrol_path(&self, path: &Path, candidates: &[u64], own: Key) -> OnPath {
        for from in candidates {
            let verb = Verb::Register { from: *from, to: own.raw(), persist: self.agent.persist() };
            match self.agent.tool.call(path, verb, self.attempt).await {
                Said::Good(_) => return OnPath::Was(*from),
                Said::Conflict => {}
                Said::Illegal(_) => return OnPath::Refused,
                Said::Unanswered(_) => return OnPath::Silent,
            }
        }
        OnPath::Refused
    }

    /// Leaves nothing of a lost attempt behind: a registration alone would let this node write.
    async fn give_up(&mut self, view: &View, own: Key, highest: Token) -> TakeResult {
        if view.count(|key| key == own) > 0 {
            for path in &self.paths {
                let verb = Verb::Register { from: own.raw(), to: 0, persist: self.agent.persist() };
                self.agent.tool.call(path, verb, self.attempt).await;
            }
        }
        let sent = format!("take {} at {}", own.token, self.device.display());
        self.attempt.refusal(&sent, &format!("the disk holds token {highest}"), Some(highest));
        TakeResult::Refused { highest }
    }

    /// Over the first path that answers.
    async fn send(&mut self, verb: Verb) -> Option<Said> {
        while let Some(path) = self.paths.first() {
            match self.agent.tool.call(path, verb, self.attempt).await {
                Said::Unanswered(_) => _ = self.paths.remove(0),
                said => return Some(said),
            }
        }
        None
    }
}

impl ScsiPr {
    fn chance(&self, view: &View, own: Key, seen: Seen) -> Chance {
        let allowed = |key: Key| match seen {
            Seen::Whatever => true,
            Seen::AtMost(seen) => key.node == own.node || key.token <= seen,
        };
        // Without a holder, what the peer has registered may be what is left of one.
        let of_peer = || view.keys().into_iter().filter(|key| key.node != own.node).max_by_key(|key| key.token);
        match (view.holder(), of_peer()) {
            (Some(holder), _) if holder == own => Chance::Won,
            (Some(key), _) | (None, Some(key)) if key.token >= own.token || !allowed(key) => Chance::Refused(key.token),
            (Some(holder), _) => Chance::Over(holder),
            (None, _) => Chance::Free,
        }
    }

    fn persist(&self) -> Persist {
        match self.config.persistence {
            Persistence::Required => Persist::Yes,
            Persistence::None => Persist::No,
        }
    }

    /// All disks, in the order of the configuration. The first is the arbiter, by `seen`; the others follow its winner,
    /// whose token is higher than that of every winner before.
    pub(super) async fn take_all(&self, take: Take, attempt: &Attempt) -> TakeResult {
        let Some(own) = Key::new(self.me, take.new) else {
            attempt.note(
                &format!("take {}", take.new),
                "a token of more than 40 bits does not fit into a reservation key",
            );
            return TakeResult::Unknown;
        };
        if let Some(refused) = self.refused_at_sight(own, attempt).await {
            return refused;
        }
        let mut seen = take.seen;
        for device in &self.config.devices {
            let mut lun = match Lun::find(self, device, attempt) {
                Ok(lun) => lun,
                Err(why) => {
                    attempt.note("(nothing)", &why);
                    return TakeResult::Unknown;
                }
            };
            match lun.acquire(own, seen).await {
                TakeResult::Taken => seen = Seen::Whatever,
                other => return other,
            }
        }
        TakeResult::Taken
    }

    /// Looks at every disk before the first is touched: one that cannot be had spares the others.
    async fn refused_at_sight(&self, own: Key, attempt: &Attempt) -> Option<TakeResult> {
        for device in self.config.devices.iter().skip(1) {
            let looked = match Lun::find(self, device, attempt) {
                Ok(mut lun) => lun.view().await,
                Err(why) => Err(why),
            };
            match looked {
                Err(why) => {
                    attempt.note(&format!("look at {}", device.display()), &why);
                    return Some(TakeResult::Unknown);
                }
                Ok(view) => {
                    if let Some(why) = view.stranger(|key| self.is_ours(key)) {
                        attempt.note(&format!("nothing to {}", device.display()), &why);
                        return Some(TakeResult::Unknown);
                    }
                    if let Chance::Refused(highest) = self.chance(&view, own, Seen::Whatever) {
                        attempt.refusal(
                            "(nothing)",
                            &format!("{} holds token {highest}", device.display()),
                            Some(highest),
                        );
                        return Some(TakeResult::Refused { highest });
                    }
                }
            }
        }
        None
    }
}
