//! Stopping a unit, with evidence that nothing is left.
//!
//! ```text
//!   StopUnit, and its job's end ── manager silent: SIGTERM to the control group ── until graceful time is over
//!      │                                                                                 ▼
//!      └── down, and the group empty twice ──▶ stopped        StopUnit, KillUnit, cgroup.kill, again and again
//!                                                                                        └── budget over ──▶ stuck
//! ```

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use super::super::ResourceError;
use super::super::exec::listed;
use super::super::search::Found;
use super::Inner;
use super::manager::{Manager, ManagerError, Picture};
use super::tree::{ControlGroup, Trees};

/// The part of the stop budget kept for killing and looking, at most; at least a third of the budget.
const LONGEST_RESERVE: Duration = Duration::from_secs(3);
/// How soon one looks again: first at once, then at growing gaps.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(50);
/// A manager that takes longer is done without in this stop, for its time is bounded.
const LONGEST_GLANCE: Duration = Duration::from_secs(1);
/// The same for a bus that does not let in: less than what is kept for killing, with the quiet below.
const LONGEST_KNOCK: Duration = Duration::from_millis(500);
/// Without the manager nobody says whether it is about to start the unit again (Restart=, 100 ms later by default): nothing
/// may appear for so long.
const QUIET_WITHOUT_MANAGER: Duration = Duration::from_secs(1);

/// What is seen at one look.
struct Look {
    left: Vec<Found>,
    /// `None`: the manager does not answer.
    picture: Option<Picture>,
}

impl Look {
    fn is_clean(&self) -> bool {
        self.left.is_empty() && self.picture.as_ref().is_none_or(Picture::is_down)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Persuasion {
    Wait,
    Kill,
}

impl Inner {
    pub(super) async fn bring_down(&self) -> Result<(), ResourceError> {
        let reserve = (self.stop_timeout / 3).min(LONGEST_RESERVE);
        let graceful = async {
            // A start that nobody waits for any more may still be on its way to the manager.
            drop(self.starting.lock().await);
            self.ask().await;
            self.until_gone(Persuasion::Wait).await
        };
        match timeout(self.stop_timeout.saturating_sub(reserve), graceful).await {
            Ok(gone) => gone?,
            Err(_) => self.kill_within(reserve).await?,
        }
        self.forget_token().await;
        Ok(())
    }

    pub(super) async fn kill_all(&self) -> Result<(), ResourceError> {
        self.kill_within(self.stop_timeout).await?;
        self.forget_token().await;
        Ok(())
    }

    /// Two clean looks in a row: a process that forks and ends between two lines of one look escapes that look only.
    pub(super) async fn nothing_left(&self) -> Result<bool, ResourceError> {
        let mut manager = Manager::open(&self.host).await.ok();
        for _ in 0..2 {
            if !self.look(&mut manager).await?.is_clean() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) async fn processes(&self) -> Result<Vec<Found>, ResourceError> {
        let (pid, unit) = (self.host.pid, self.unit().to_owned());
        let looked = tokio::task::spawn_blocking(move || Trees::of(pid)?.group(&unit)?.processes()).await;
        let failed = |source| ResourceError::Search { resource: self.name.clone(), source };
        looked.map_err(|error| failed(std::io::Error::other(error)))?.map_err(failed)
    }

    /// Asks the manager and waits for the end of the job; where there is no manager, the processes.
    async fn ask(&self) {
        let Err(error) = self.ask_manager().await else { return };
        tracing::warn!(resource = self.name, %error, "the unit is stopped through its control group");
        self.with_group(|group| {
            group.signal(Signal::TERM);
            // A stopped process takes no notice until it goes on.
            group.signal(Signal::CONT);
        });
    }

    async fn ask_manager(&self) -> Result<(), ManagerError> {
        let manager = Manager::open(&self.host).await?;
        let picture = manager.picture(self.unit()).await?;
        // What is not loaded cannot be stopped, and what is down need not.
        if picture.is_down() {
            return Ok(());
        }
        let mut jobs = manager.jobs().await?;
        let job = manager.stop(self.unit()).await?;
        manager.end_of(&mut jobs, &job, self.unit()).await.map(drop)
    }

    async fn kill_within(&self, limit: Duration) -> Result<(), ResourceError> {
        let killing = async {
            // A start that is not answered yet may come to effect later.
            let started = self.starting.lock();
            tokio::pin!(started);
            let mut settled = timeout(Duration::ZERO, &mut started).await.is_ok();
            loop {
                self.until_gone(Persuasion::Kill).await?;
                if settled {
                    return Ok(());
                }
                settled = timeout(LAST_LOOK, &mut started).await.is_ok();
            }
        };
        match timeout(limit, killing).await {
            Ok(killed) => killed,
            Err(_) => Err(self.stuck().await),
        }
    }

    /// Looks until nothing is left, twice in a row. Ends only then: the caller has the limit.
    async fn until_gone(&self, persuasion: Persuasion) -> Result<(), ResourceError> {
        if persuasion == Persuasion::Kill {
            self.with_group(ControlGroup::kill);
        }
        let mut manager = self.try_open().await;
        let (mut gap, mut clean, mut quiet) = (FIRST_LOOK, 0, Duration::ZERO);
        loop {
            let look = self.look(&mut manager).await?;
            clean = if look.is_clean() { clean + 1 } else { 0 };
            if clean == 0 {
                quiet = Duration::ZERO;
            }
            if clean >= 2 && (look.picture.is_some() || quiet >= QUIET_WITHOUT_MANAGER) {
                return Ok(());
            }
            if persuasion == Persuasion::Kill && clean == 0 {
                self.strike(manager.as_ref()).await;
            }
            sleep(gap).await;
            quiet += gap;
            gap = (gap * 2).min(LAST_LOOK);
        }
    }

    /// Kills what is there; the stop before it keeps systemd from starting it again.
    async fn strike(&self, manager: Option<&Manager>) {
        self.with_group(ControlGroup::kill);
        let Some(manager) = manager else { return };
        // Of a unit that is down already both say so, which is no harm.
        let _ = manager.stop(self.unit()).await;
        let _ = manager.kill(self.unit()).await;
        self.with_group(ControlGroup::kill);
    }

    /// A connection that does not answer is given up, and not tried again within this stop.
    async fn look(&self, manager: &mut Option<Manager>) -> Result<Look, ResourceError> {
        let mut picture = self.glance(manager.as_ref()).await;
        if manager.is_some() && picture.is_none() {
            *manager = self.try_open().await;
            picture = self.glance(manager.as_ref()).await;
        }
        if picture.is_none() {
            *manager = None;
        }
        Ok(Look { left: self.processes().await?, picture })
    }

    async fn try_open(&self) -> Option<Manager> {
        timeout(LONGEST_KNOCK, Manager::open(&self.host)).await.ok()?.ok()
    }

    async fn glance(&self, manager: Option<&Manager>) -> Option<Picture> {
        timeout(LONGEST_GLANCE, manager?.picture(self.unit())).await.ok()?.ok()
    }

    /// Writes to the kernel's own files only: nothing here waits for a disk.
    fn with_group(&self, act: impl FnOnce(&ControlGroup)) {
        match Trees::of(self.host.pid).and_then(|trees| trees.group(self.unit())) {
            Ok(group) => act(&group),
            Err(error) => tracing::warn!(resource = self.name, %error, "its control group cannot be found"),
        }
    }

    async fn forget_token(&self) {
        self.set_context(None);
        if let Err(error) = self.write_token().await {
            tracing::warn!(%error, "a stopped unit keeps its token's file");
        }
    }

    async fn stuck(&self) -> ResourceError {
        let left = match timeout(LONGEST_RESERVE, self.what_is_left()).await {
            Ok(left) => left,
            Err(_) => "looking for its processes hangs".to_owned(),
        };
        ResourceError::Stuck { resource: self.name.clone(), limit: self.stop_timeout, left }
    }

    async fn what_is_left(&self) -> String {
        let left = match self.processes().await {
            Ok(left) if left.is_empty() => "no process is left".to_owned(),
            Ok(left) => listed(&left),
            Err(error) => error.to_string(),
        };
        let state = async { Manager::open(&self.host).await?.picture(self.unit()).await }.await;
        let state = state.map_or_else(|error| error.to_string(), |p| format!("{} is {}", self.unit(), p.active));
        let start = match Arc::clone(&self.starting).try_lock_owned() {
            Ok(_) => "",
            Err(_) => "; a start of it was sent and has not been answered",
        };
        format!("{left}; {state}{start}")
    }
}
