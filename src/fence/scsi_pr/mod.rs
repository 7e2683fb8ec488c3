//! SCSI persistent reservations: the disk itself is the arbiter of the pair (SPC-4, 5.12), through `sg_persist`.
//!
//! The reservation is "write exclusive, registrants only": whoever has a registration may write, nobody else. The
//! holder's key carries node and token ([`key`]), so **the stored token is that of the reservation's key**; keys that are
//! only registered are attempts under way, or what is left of them.
//!
//! # Why `take(new, seen)` is atomic (protocol section 1, "exclusive")
//!
//! A target executes one PERSISTENT RESERVE OUT after the other, and each of the three used here compares before it
//! changes anything:
//!
//! - REGISTER names the key that this very path (initiator, session and port) had before, or none;
//! - RESERVE succeeds if nobody holds;
//! - PREEMPT AND ABORT names the caller's key and the victim's: RESERVATION CONFLICT if either is gone. If the victim's
//!   is the holder's, the reservation changes hands in the same step, all registrations with that key go, and
//!   their queued commands are aborted.
//!
//! A take reads the holder's key *h*, refuses unless token(*h*) < `new` and (token(*h*) ≤ `seen` or *h* is of the
//! caller's node), registers `new` on each path, and preempts exactly *h*. No key returns, since no token is minted
//! twice: *h* still being there is *nothing was taken since*.
//!
//! | case | what happens |
//! | --- | --- |
//! | two nodes race for *h* | one preempts it; the other's preempt gets a conflict, it looks again, and is refused by the rule |
//! | two nodes race for a free disk | one RESERVE succeeds, the other gets a conflict, and so on |
//! | a disk without reservation on which the peer is registered (its holding path was removed by hand) | the peer's highest key counts as the stored one: `seen` must cover it |
//! | the holder itself takes anew while the peer preempts *h* | its REGISTER *h*→`new` moves the stored token in one step. It comes first: the peer's preempt finds no *h*. It comes second: it gets a conflict |
//! | a late preempt (a killed command that the kernel still sends) | it names a victim that is gone, or an own key that is gone: conflict. If both are still there it is the very step that was decided upon |
//! | a late register | it names what the path had then: conflict. Where the path had nothing and has nothing again, it leaves a registration without reservation: see below |
//! | an own registration of a former session (reboot) | it is a key of the caller's node: preempted like any other, once this session's paths are registered |
//! | a preempt that is answered GOOD but hit a key that no longer held | the look afterwards shows another holder: refused |
//!
//! REGISTER AND IGNORE EXISTING KEY is not used: a late one would overwrite a newer key of the same node, and so
//! move the stored token back. What it is recommended for (casebook C19: a key in the list may belong to a session that is
//! gone) is met by trying REGISTER on every path each time, whatever the list says, until the target says that the path has the key.
//!
//! `Taken` needs one look after the last change: holder and every registration of this node's new key, and after that look
//! a REGISTER `new`→`new` that each path answers with GOOD. A rival that had won in between would have removed them all.
//!
//! # What it does not give
//!
//! - *Durable* is the target's word: APTPL is demanded at each REGISTER and read back as active. Without it
//!   (`persist = "none"`) the agent does not take. A target that loses its keys all the same lets everybody write until
//!   the next take; [`Agent::prove`] notices.
//! - A registration cannot be made conditional on who holds. A node that starts registers before it knows that it wins, and has
//!   write access until it has lost and unregistered; it has stopped its resources before (protocol section 6). A *running* primary
//!   that takes anew while one of its paths has lost its registration could register that path just after the peer won, and keep
//!   access for the time of its next command. The peer starts only after the lease has ended as well, so no two services meet.
//! - Several disks are not one atomic step. The first of the list decides; the winner then overtakes each other disk by
//!   its higher token, against whoever holds it. A take that fails half way is `Unknown`, and the first disk is already taken.
//! - With `abort = "optional"` and a target without PREEMPT AND ABORT, commands that the peer had queued at the target
//!   may still be executed after the confirmation.

mod acquire;
mod key;
mod paths;
mod tool;
mod view;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::config::{self, Persistence};
use crate::core::{NodeId, Scope, Seen, Take, TakeResult, Token};
use crate::process::{check_owner, find_program};

use super::{Agent, Attempt, FenceError, Health, Outcome, Pending, Reading, Setup};
use acquire::Lun;
use key::{Key, NodeTag};
pub use paths::Places;
use tool::Tool;
use view::View;

/// The longest that one command may take. A disk that needs more to answer what it knows by heart is not well.
const LONGEST_CALL: Duration = Duration::from_secs(3);
/// One path that hangs must leave time for a whole take, some twelve commands, over another.
const CALLS_PER_ATTEMPT: u32 = 4;
/// Between two tries to let this node in.
const PACE: Duration = Duration::from_millis(200);

/// The disks of the service, and the node whose access to them is meant.
#[derive(Debug)]
pub struct ScsiPr {
    scope: Scope,
    me: NodeTag,
    minter: NodeId,
    target: NodeTag,
    caller: String,
    config: config::ScsiPr,
    tool: Tool,
    places: Places,
    /// For each disk, whether it was ever seen reserved: one that no longer is has forgotten its keys.
    reserved: Vec<AtomicBool>,
}

impl ScsiPr {
    pub fn new(setup: Setup<'_>, config: &config::ScsiPr) -> Result<ScsiPr, FenceError> {
        let untrusted = |source| FenceError::Program { agent: setup.name.to_owned(), source };
        let program = find_program("sg_persist").map_err(untrusted)?;
        ScsiPr::with_parts(setup, config, program, Places::default())
    }

    /// As [`ScsiPr::new`], with a given program in place of `sg_persist` and another view of the kernel's devices.
    pub fn with_parts(
        setup: Setup<'_>,
        config: &config::ScsiPr,
        program: PathBuf,
        places: Places,
    ) -> Result<ScsiPr, FenceError> {
        let agent = setup.name.to_owned();
        check_owner(&program).map_err(|source| FenceError::Program { agent: agent.clone(), source })?;
        let (me, target) = (NodeTag::of(setup.caller), NodeTag::of(setup.target));
        if me == target && setup.caller != setup.target {
            let why =
                format!("{} and {} give the same node in a reservation key; rename one", setup.caller, setup.target);
            return Err(FenceError::Unusable { agent, why });
        }
        let limit = (Duration::from(setup.limit) / CALLS_PER_ATTEMPT).min(LONGEST_CALL);
        let reserved = config.devices.iter().map(|_| AtomicBool::new(false)).collect();
        let (scope, caller, config) = (setup.scope, setup.caller.to_owned(), config.clone());
        Ok(ScsiPr {
            scope,
            me,
            minter: setup.me,
            target,
            caller,
            config,
            tool: Tool { program, limit },
            places,
            reserved,
        })
    }

    fn is_ours(&self, key: Key) -> bool {
        // An agent aimed at its own node does not know the other's name.
        self.aims_at_me() || key.node == self.me || key.node == self.target
    }

    fn aims_at_me(&self) -> bool {
        self.me == self.target
    }

    async fn look(&self, device: &Path, attempt: &Attempt) -> Result<(View, usize), String> {
        let mut lun = Lun::find(self, device, attempt)?;
        if self.aims_at_me() {
            // Only these can be registered, and only these can write.
            lun.silent_paths().await;
        }
        let paths = lun.paths.len();
        Ok((lun.view().await?, paths))
    }

    /// Whether the target may write to this disk.
    fn judge(&self, view: &View, paths: usize) -> (Reading, String) {
        if let Some(why) = view.stranger(|key| self.is_ours(key)) {
            return (Reading::Unknown, why);
        }
        let (registered, holder) = (view.count(|key| key.node == self.target), view.holder());
        let Some(holder) = holder else { return (Reading::On, "not reserved: everybody can write".to_owned()) };
        let text = format!("held under token {}; the target has {registered} registrations", holder.token);
        match (registered, self.aims_at_me()) {
            (0, _) => (Reading::Off, text),
            (n, true) if n < paths => (Reading::Unknown, format!("{text} for {paths} paths")),
            (_, _) => (Reading::On, text),
        }
    }

    /// Off only where every disk is; on where one is.
    async fn read(&self, attempt: &Attempt) -> Reading {
        let mut all = Reading::Off;
        for device in &self.config.devices {
            let (reading, text) = match self.look(device, attempt).await {
                Ok((view, paths)) => self.judge(&view, paths),
                Err(why) => (Reading::Unknown, why),
            };
            all = match (all, reading) {
                (Reading::On, _) | (_, Reading::On) => Reading::On,
                (Reading::Unknown, _) | (_, Reading::Unknown) => Reading::Unknown,
                (Reading::Off, Reading::Off) => Reading::Off,
            };
            attempt.reading(&format!("look at {}", device.display()), &text, all);
        }
        all
    }

    async fn shut_out(&self, token: Token, attempt: &Attempt) -> Outcome {
        if self.aims_at_me() {
            attempt.note("(nothing)", "an agent does not fence the node that it runs on");
            return Outcome::Unknown;
        }
        if self.read(attempt).await == Reading::Off {
            return Outcome::Confirmed;
        }
        let Some(new) = self.number(token, attempt).await else { return Outcome::Unknown };
        match self.take_all(Take { new, seen: Seen::Whatever }, attempt).await {
            TakeResult::Taken => match self.read(attempt).await {
                Reading::Off => Outcome::Confirmed,
                Reading::On | Reading::Unknown => Outcome::Unknown,
            },
            TakeResult::Refused { highest } => Outcome::Refused { highest: Some(highest) },
            TakeResult::Unknown => Outcome::Unknown,
        }
    }

    /// The token of the take. Where the disk only adds to a plan of node scope, the attempt's own is the highest that this
    /// node knows, which may be stored already: then the next one that it mints.
    async fn number(&self, token: Token, attempt: &Attempt) -> Option<Token> {
        if self.config.takes {
            return Some(token);
        }
        let stored = self.highest_stored(attempt).await?;
        if token > stored { Some(token) } else { Token::mint_above(self.minter, stored) }
    }

    /// Registers this node over each path, without touching the reservation.
    async fn let_in(&self, token: Token, attempt: &Attempt) -> Outcome {
        loop {
            match (self.read(attempt).await, Key::new(self.me, token)) {
                (Reading::On, _) => return Outcome::Confirmed,
                (Reading::Off | Reading::Unknown, Some(own)) if self.aims_at_me() => self.enrol_all(own, attempt).await,
                (Reading::Off | Reading::Unknown, _) => {
                    let why = format!("only the node itself can register again; {} cannot do it for it", self.caller);
                    attempt.note("(nothing)", &why);
                    return Outcome::Unknown;
                }
            }
            sleep(PACE).await;
        }
    }

    async fn enrol_all(&self, own: Key, attempt: &Attempt) {
        for device in &self.config.devices {
            let Ok(mut lun) = Lun::find(self, device, attempt) else { continue };
            match lun.view().await {
                Ok(view) if view.stranger(|key| self.is_ours(key)).is_none() => _ = lun.enrol(&view, own).await,
                Ok(_) | Err(_) => {}
            }
        }
    }

    async fn highest_stored(&self, attempt: &Attempt) -> Option<Token> {
        let mut highest = Token::NONE;
        for device in &self.config.devices {
            match self.look(device, attempt).await {
                Ok((view, _)) => highest = view.keys().into_iter().map(|key| key.token).fold(highest, Token::max),
                Err(why) => {
                    attempt.note(&format!("look at {}", device.display()), &why);
                    return None;
                }
            }
        }
        Some(highest)
    }

    /// Everything that a take will need, disk by disk and path by path.
    async fn examine(&self, attempt: &Attempt) -> Health {
        let reading = self.read(attempt).await;
        let mut health = Health { reading, faults: Vec::new(), notes: Vec::new() };
        for (device, reserved) in self.config.devices.iter().zip(&self.reserved) {
            health = match Lun::find(self, device, attempt) {
                Ok(lun) => self.examine_one(lun, reserved, health).await,
                Err(why) => health.fault(why),
            };
        }
        health
    }

    async fn examine_one(&self, mut lun: Lun<'_>, reserved: &AtomicBool, mut health: Health) -> Health {
        let shown = lun.device.display();
        for path in lun.silent_paths().await {
            health = health.fault(format!("{shown}: the path {} does not answer", path.display()));
        }
        let paths = lun.paths.len();
        let view = match lun.view().await {
            Ok(view) => view,
            Err(why) => return health.fault(why),
        };
        if let Some(why) = view.stranger(|key| self.is_ours(key)) {
            health = health.fault(format!("{shown}: {why}; find out whose it is and clear it with sg_persist"));
        }
        health = self.examine_keys(&view, paths, reserved, health, lun.device);
        if !lun.has_full_status {
            health =
                health.note(format!("{shown}: no READ FULL STATUS, registrations are counted by the list of keys"));
        }
        match lun.capabilities().await {
            None => health.fault(format!("{shown}: it does not tell what it is capable of")),
            Some(c) if c.knows_type == Some(false) => health
                .fault(format!("{shown}: the target has no reservation of type \"write exclusive, registrants only\"")),
            Some(c) if self.config.persistence == Persistence::Required && !c.can_persist => {
                health.fault(format!("{shown}: the target forgets its keys when it loses power (no APTPL)"))
            }
            Some(c) if self.config.persistence == Persistence::Required && view.is_reserved() && !c.persists => health
                .fault(format!(
                    "{shown}: APTPL is not active: the keys would not outlive a loss of the target's power"
                )),
            Some(_) => health,
        }
    }

    fn examine_keys(&self, view: &View, paths: usize, reserved: &AtomicBool, health: Health, device: &Path) -> Health {
        let shown = device.display();
        let before = reserved.fetch_or(view.is_reserved(), Ordering::Relaxed);
        let own = view.count(|key| key.node == self.me);
        match view.holder() {
            None if before => health.fault(format!(
                "{shown}: its reservation is gone, everybody can write; did the target lose its keys in a restart? \
                 The next take makes a new one"
            )),
            None => health.note(format!("{shown}: not reserved yet, everybody can write")),
            Some(holder) if holder.node == self.me && own < paths => {
                let short = format!("{shown}: {own} registrations for {paths} paths: writes over the others will fail");
                health.fault(short)
            }
            Some(holder) => {
                let whose = if holder.node == self.me { "this node" } else { "the peer" };
                health.note(format!("{shown}: held by {whose} under token {}, {paths} paths", holder.token))
            }
        }
    }
}

impl Agent for ScsiPr {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.shut_out(token, attempt))
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(self.read(attempt))
    }

    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(self.examine(attempt))
    }

    fn on<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.let_in(token, attempt))
    }

    fn takes(&self) -> bool {
        self.config.takes
    }

    fn take<'a>(&'a self, take: Take, attempt: &'a Attempt) -> Pending<'a, TakeResult> {
        Box::pin(self.take_all(take, attempt))
    }

    fn highest<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Option<Token>> {
        Box::pin(self.highest_stored(attempt))
    }
}
