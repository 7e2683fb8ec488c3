//! Stopping a resource of kind `exec`, with evidence that nothing is left.
//!
//! ```text
//!   ask (stop command, or SIGTERM to all of it) ── until graceful time is over ──▶ SIGKILL to all of it, again and again
//!        └── nothing found, twice in a row ──▶ stopped          └── budget over ──▶ stuck, with what is left
//! ```

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::process::Ending;

use super::exec::{Exec, listed, told};
use super::search::Found;
use super::{Context, ResourceError};

/// The part of the stop budget kept for SIGKILL and looking, at most; at least a quarter of the budget.
const LONGEST_RESERVE: Duration = Duration::from_secs(2);
/// How soon after a signal one looks again: first at once, since most processes end in no time, then at growing gaps.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(50);

impl Exec {
    pub(super) async fn bring_down(&self, context: &Context) -> Result<(), ResourceError> {
        self.set_context(context);
        let reserve = (self.stop_timeout / 4).min(LONGEST_RESERVE);
        // Where nothing can be looked at, only the stop command's own word tells, and it has not spoken yet.
        let mut complaint = self.is_blind().then(|| "its stop command did not end in time".to_owned());
        let graceful = async {
            // A start that nobody waits for any more may still be under way in the kernel.
            drop(self.starting.lock().await);
            complaint = self.ask().await;
            self.until_gone(Persuasion::Wait).await
        };
        let stopped = match timeout(self.stop_timeout.saturating_sub(reserve), graceful).await {
            Ok(stopped) => stopped,
            Err(_) => self.kill_within(reserve).await,
        };
        stopped.and(match complaint {
            Some(what) => Err(self.stuck(what)),
            None => Ok(()),
        })
    }

    pub(super) async fn kill_all(&self) -> Result<(), ResourceError> {
        self.kill_within(self.stop_timeout).await?;
        match self.is_blind() {
            true => Err(self.stuck("what its start command did cannot be seen without a status command".to_owned())),
            false => Ok(()),
        }
    }

    /// Two clean looks in a row: a process that forks and ends between two lines of one look escapes that look only.
    pub(super) async fn nothing_left(&self) -> Result<bool, ResourceError> {
        Ok(self.processes().await?.is_empty() && self.processes().await?.is_empty() && self.is_silent().await?)
    }

    /// Asks in the way that is configured. What a stop command complains of counts if nothing else can be looked at.
    async fn ask(&self) -> Option<String> {
        if !self.config.foreground {
            self.end_start_command().await;
        }
        if let Some(stop) = &self.config.stop {
            let said = match self.command(stop, self.stop_timeout, true).await {
                Ok(finished) if finished.ending == Ending::Exited(0) => return None,
                Ok(finished) => told(&finished),
                Err(error) => error.to_string(),
            };
            tracing::warn!(resource = self.name, said, "the stop command failed");
            self.signal_all(Signal::TERM).await;
            return self.is_blind().then(|| format!("its stop command failed: {said}"));
        }
        self.signal_all(Signal::TERM).await;
        None
    }

    /// Commands without a status command may bring about what no look at the processes shows, such as an address.
    fn is_blind(&self) -> bool {
        !self.config.foreground && self.config.status.is_none() && self.config.stop.is_some()
    }

    async fn signal_all(&self, signal: Signal) {
        for process in self.processes().await.unwrap_or_default() {
            process.signal(signal);
            // A stopped process takes no notice until it goes on.
            process.signal(Signal::CONT);
        }
    }

    async fn kill_within(&self, limit: Duration) -> Result<(), ResourceError> {
        let killing = async {
            // A start that is under way would be found only when it is over.
            let started = self.starting.lock();
            tokio::pin!(started);
            loop {
                self.until_gone(Persuasion::Kill).await?;
                if timeout(LAST_LOOK, &mut started).await.is_ok() {
                    return self.until_gone(Persuasion::Kill).await;
                }
            }
        };
        match timeout(limit, killing).await {
            Ok(killed) => killed,
            Err(_) => Err(self.stuck(self.what_is_left().await)),
        }
    }

    /// Looks until nothing is left, twice in a row. Ends only then: the caller has the limit.
    async fn until_gone(&self, persuasion: Persuasion) -> Result<(), ResourceError> {
        let (mut gap, mut clean) = (FIRST_LOOK, 0);
        loop {
            let left = self.processes().await?;
            clean = if left.is_empty() { clean + 1 } else { 0 };
            if clean >= 2 && self.is_silent().await? {
                self.collect().await;
                self.forget();
                return Ok(());
            }
            if persuasion == Persuasion::Kill {
                if let Some(cgroup) = self.cgroup.as_ref().filter(|_| !left.is_empty()) {
                    cgroup.kill();
                }
                left.iter().for_each(|process| process.signal(Signal::KILL));
            }
            if !left.is_empty() || clean > 2 {
                self.pause(gap, &left).await;
                gap = (gap * 2).min(LAST_LOOK);
            }
        }
    }

    /// Waits for `gap`, or until the service itself has ended if it was still there.
    async fn pause(&self, gap: Duration, left: &[Found]) {
        match self.leader().filter(|leader| left.iter().any(|p| p.pid == leader.pid().as_raw_nonzero().get())) {
            Some(leader) => drop(timeout(gap, leader.exited()).await),
            None => sleep(gap).await,
        }
    }

    /// What start and stop commands bring about need not be a process: there the status command has the last word,
    /// and only a clear "no" of it means stopped.
    async fn is_silent(&self) -> Result<bool, ResourceError> {
        match &self.config.status {
            Some(status) if !self.config.foreground => {
                let finished = self.command(status, self.stop_timeout, false).await?;
                Ok(matches!(finished.ending, Ending::Exited(code) if code != 0))
            }
            Some(_) | None => Ok(true),
        }
    }

    async fn what_is_left(&self) -> String {
        match timeout(LONGEST_RESERVE, self.processes()).await {
            Ok(Ok(left)) if left.is_empty() => {
                "no process is left, but the status command still says that it serves".to_owned()
            }
            Ok(Ok(left)) => listed(&left),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "looking for its processes hangs".to_owned(),
        }
    }

    fn stuck(&self, left: String) -> ResourceError {
        ResourceError::Stuck { resource: self.name.clone(), limit: self.stop_timeout, left }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Persuasion {
    Wait,
    Kill,
}
