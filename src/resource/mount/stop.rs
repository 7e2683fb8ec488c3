//! Unmounting, with evidence that nothing of the file system is left on this node.
//!
//! ```text
//!   umount, SIGTERM to its users ── it hangs, or graceful time is over ──▶ SIGKILL to its users, forced umount
//!      │                                                                     │ nobody uses it, and it still does not go
//!      └── not in the table, device free, no child left ──▶ stopped          └──▶ detached; then as on the left, or stuck
//! ```
//!
//! A detached file system is out of sight, not gone. It is detached only when no process uses it any more, and with a device
//! the kernel still tells whether it holds that (`O_EXCL`). Of a share nothing tells: what the kernel had not yet written may
//! reach the server when that answers again, and only the fence at the server keeps it out.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::process::Ending;

use super::super::ResourceError;
use super::super::exec::listed;
use super::super::mounts::MountLine;
use super::super::search::{self, Found};
use super::device::{self, Claim};
use super::users::{self, Target, Users};
use super::{Inner, LOOK_LIMIT};

/// The part of the stop budget kept for killing, forcing and looking, at most; at least half of the budget.
const LONGEST_RESERVE: Duration = Duration::from_secs(5);
/// How soon one looks again after a try.
const GAP: Duration = Duration::from_millis(30);
/// One `umount` gets an eighth of the budget, and no more than this: what hangs so long is dead.
const LONGEST_UMOUNT: Duration = Duration::from_secs(2);
/// Tries without any user in sight, after which it is detached.
const PATIENT_TRIES: u32 = 2;
/// init is not to be killed, and takes SIGTERM for another wish.
const INIT: i32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Persuasion {
    Wait,
    Kill,
}

/// How `umount` is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Plain,
    /// Ends what waits for a server, where the file system can.
    Forced,
    Lazy,
}

/// What came of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    Clean,
    Left,
    /// An `umount` did not come back: the file system does not answer.
    Hung,
}

impl Inner {
    pub(super) async fn bring_down(&self) -> Result<(), ResourceError> {
        let reserve = (self.stop_timeout / 2).min(LONGEST_RESERVE);
        let graceful = async {
            // What a start that nobody waits for is doing is ended first, so that it comes to nothing after the stop.
            self.end_start(Signal::TERM).await?;
            self.until_gone(Persuasion::Wait).await
        };
        match timeout(self.stop_timeout.saturating_sub(reserve), graceful).await {
            Ok(Ok(Round::Clean)) => Ok(()),
            Ok(Ok(Round::Left | Round::Hung)) | Err(_) => self.kill_within(reserve).await,
            Ok(Err(error)) => Err(error),
        }
    }

    pub(super) async fn kill_all(&self) -> Result<(), ResourceError> {
        self.kill_within(self.stop_timeout).await
    }

    /// What is left of it on this node, in words; `None`: nothing.
    pub(super) async fn what_is_left(&self) -> Result<Option<String>, ResourceError> {
        if let Some(mount) = self.mounted()?.last() {
            return Ok(Some(format!("{} is mounted at {}", mount.source, mount.point.display())));
        }
        let commands = self.commands().await?;
        if !commands.is_empty() {
            return Ok(Some(format!("not yet over: {}", listed(&commands))));
        }
        Ok(match self.claim().await? {
            Some(Claim::Held) => Some(format!(
                "{} is held by the kernel although it is not mounted here; see `lsblk` and other mount namespaces{}",
                self.config.what,
                self.elsewhere().await?
            )),
            Some(Claim::Free | Claim::Absent) | None => None,
        })
    }

    async fn kill_within(&self, limit: Duration) -> Result<(), ResourceError> {
        let killing = async {
            self.end_start(Signal::KILL).await?;
            while self.until_gone(Persuasion::Kill).await? != Round::Clean {}
            Ok(())
        };
        match timeout(limit, killing).await {
            Ok(killed) => killed,
            Err(_) => Err(self.stuck().await),
        }
    }

    /// A start under way holds the gate until its child is over.
    async fn end_start(&self, signal: Signal) -> Result<(), ResourceError> {
        let started = self.starting.lock();
        tokio::pin!(started);
        while timeout(GAP, &mut started).await.is_err() {
            self.commands().await?.iter().for_each(|process| process.signal(signal));
        }
        Ok(())
    }

    /// Until nothing is left, or a hint that patience is in vain.
    async fn until_gone(&self, persuasion: Persuasion) -> Result<Round, ResourceError> {
        let (mut unseen, mut asked) = (0, BTreeSet::new());
        loop {
            if self.what_is_left().await?.is_none() {
                return Ok(Round::Clean);
            }
            let mut users = self.users().await?;
            users.processes.extend(self.commands().await?);
            self.persuade(&users, persuasion, &mut asked).await;
            unseen = if users.processes.is_empty() { unseen + 1 } else { 0 };
            let manner = match persuasion {
                Persuasion::Wait => Manner::Plain,
                Persuasion::Kill if unseen > PATIENT_TRIES => Manner::Lazy,
                Persuasion::Kill => Manner::Forced,
            };
            if self.unmount_all(manner).await? == Round::Hung && persuasion == Persuasion::Wait {
                return Ok(Round::Hung);
            }
            sleep(GAP).await;
        }
    }

    async fn persuade(&self, users: &Users, persuasion: Persuasion, asked: &mut BTreeSet<(i32, u64)>) {
        for process in users.processes.iter().filter(|process| process.pid != INIT) {
            match persuasion {
                // Once each: some take a second one for impatience.
                Persuasion::Wait if asked.insert((process.pid, process.started)) => {
                    tracing::info!(
                        resource = self.name,
                        pid = process.pid,
                        command = process.command,
                        "uses it: SIGTERM"
                    );
                    process.signal(Signal::TERM);
                    process.signal(Signal::CONT);
                }
                Persuasion::Wait => {}
                Persuasion::Kill => process.signal(Signal::KILL),
            }
        }
        if persuasion == Persuasion::Kill && users.processes.is_empty() {
            for (process, points) in &users.elsewhere {
                self.unmount_elsewhere(process, points).await;
            }
        }
    }

    async fn unmount_all(&self, manner: Manner) -> Result<Round, ResourceError> {
        let mut round = Round::Left;
        for mount in self.mounted()?.iter().rev() {
            if self.unmount(mount, manner).await? == Round::Hung {
                round = Round::Hung;
            }
        }
        Ok(round)
    }

    /// `-i`: no helper that would ask a dead server; `-c`: no path is followed into the file system.
    async fn unmount(&self, mount: &MountLine, manner: Manner) -> Result<Round, ResourceError> {
        let mut args = vec!["-i", "-c"];
        match manner {
            Manner::Plain => {}
            Manner::Forced => args.push("-f"),
            Manner::Lazy => args.extend(["-f", "-l"]),
        }
        let point = mount.point.display().to_string();
        args.extend(["--", &point]);
        if manner == Manner::Lazy {
            tracing::warn!(resource = self.name, point, "detached: no process uses it, and it cannot be unmounted");
        }
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let finished = self.command("umount", &args, self.umount_limit()).await?;
        Ok(match finished.ending {
            Ending::Exited(_) | Ending::Signalled(_) => Round::Left,
            Ending::TimedOut | Ending::Stuck => Round::Hung,
        })
    }

    /// In a mount namespace that the host's unmounting does not reach, such as that of a container.
    async fn unmount_elsewhere(&self, process: &Found, points: &[std::path::PathBuf]) {
        for point in points.iter().rev() {
            let namespace = format!("--mount=/proc/{}/ns/mnt", process.pid);
            let point = point.display().to_string();
            let args = [namespace.as_str(), "--", "umount", "-i", "-c", "-l", "--", &point].map(str::to_owned);
            match self.command("nsenter", &args, self.umount_limit()).await {
                Ok(finished) if finished.ending == Ending::Exited(0) => {}
                Ok(finished) => {
                    let said = super::told(&finished);
                    tracing::warn!(
                        resource = self.name,
                        pid = process.pid,
                        said,
                        "still mounted in its mount namespace"
                    );
                }
                Err(error) => tracing::warn!(%error, "still mounted in another mount namespace"),
            }
        }
    }

    fn umount_limit(&self) -> Duration {
        (self.stop_timeout / 8).min(LONGEST_UMOUNT)
    }

    /// All mounts of it in this namespace, wherever they are, and what is mounted upon them; the last lies on top. Whatever
    /// lies at its mount point counts as its own: it may be what is left of a device that has another name now.
    fn mounted(&self) -> Result<Vec<MountLine>, ResourceError> {
        let table = self.table()?;
        let is_mine = |m: &&MountLine| m.point == self.config.point || self.is_mine(m);
        let mine: Vec<MountLine> = table.iter().filter(is_mine).cloned().collect();
        if mine.iter().any(|m| m.point == std::path::Path::new("/")) {
            return Err(self.other(format!("{} is the root file system of this node", self.config.what)));
        }
        let concerned = |m: &MountLine| mine.iter().any(|own| m.point.starts_with(&own.point));
        Ok(table.into_iter().filter(concerned).collect())
    }

    async fn users(&self) -> Result<Users, ResourceError> {
        let device = device::find(&self.config.what);
        let mut target = Target { sources: BTreeSet::new(), devices: BTreeSet::new() };
        for mount in self.mounted()? {
            target.devices.insert(mount.device);
        }
        if let Some(device) = device {
            target.devices.insert(device.numbers);
            target.sources.insert(device.path.display().to_string());
        }
        let looked = tokio::task::spawn_blocking(move || users::find(&target)).await;
        let failed = |source| ResourceError::Search { resource: self.name.clone(), source };
        looked.map_err(|error| failed(std::io::Error::other(error)))?.map_err(failed)
    }

    /// Children of this resource that are not over: one that hangs may still come to effect.
    async fn commands(&self) -> Result<Vec<Found>, ResourceError> {
        let marks = vec![format!("LEASEHOLD_RESOURCE={}", self.id)];
        let looked = tokio::task::spawn_blocking(move || search::find(&marks, &[])).await;
        let failed = |source| ResourceError::Search { resource: self.name.clone(), source };
        looked.map_err(|error| failed(std::io::Error::other(error)))?.map_err(failed)
    }

    async fn elsewhere(&self) -> Result<String, ResourceError> {
        let users = self.users().await?;
        let places: Vec<Found> = users.elsewhere.into_iter().map(|(process, _)| process).collect();
        Ok(if places.is_empty() { String::new() } else { format!(" (such as that of {})", listed(&places)) })
    }

    async fn stuck(&self) -> ResourceError {
        let look = async {
            let left = self.what_is_left().await.unwrap_or_else(|error| Some(error.to_string()));
            let users = self.users().await.map(|users| users.processes).unwrap_or_default();
            let used = if users.is_empty() { String::new() } else { format!(", used by {}", listed(&users)) };
            format!("{}{used}", left.unwrap_or_else(|| "it went only after the limit".to_owned()))
        };
        let left = timeout(LOOK_LIMIT, look).await.unwrap_or_else(|_| "looking for its users hangs".to_owned());
        ResourceError::Stuck { resource: self.name.clone(), limit: self.stop_timeout, left }
    }
}
