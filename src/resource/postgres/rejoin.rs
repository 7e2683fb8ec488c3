//! Making a replica of data that are none: rewound where they fork from the primary's, or copied anew.
//!
//! The mark is durable before the first byte changes and is taken back only after a success (casebook C29). What can fail
//! without having changed anything is tried first: is the other node primary, does its control file show the timeline of
//! its promotion, may we read there, is its WAL still there. All programs act as the server's user, in its directories.

use std::time::Duration;

use crate::config::{OldCopy, Rejoin};
use crate::core::Severity;
use crate::process::{Ending, Program};

use super::super::exec::told;
use super::super::{Progress, ResourceError, Share};
use super::follow::Obstacle;
use super::mark::{Mark, Past};
use super::replication::{self, Source};
use super::tools::At;
use super::watch::create_slot;
use super::{Half, slot_of};

/// For what only renames, links or reads one file.
const QUICK: Duration = Duration::from_secs(30);
/// Removing a large directory.
const REMOVAL: Duration = Duration::from_secs(600);
const ANSWER: Duration = Duration::from_secs(5);
/// What belongs to a node and not to its data, where the configuration lies in the data directory.
const OWN_FILES: [&str; 3] = ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"];
/// What makes the server follow (PostgreSQL, "Standby Server Operation").
pub const SIGNAL: &str = "standby.signal";

/// What the control file says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Control {
    state: String,
    timeline: u32,
    /// Where its WAL ended when it was shut down.
    checkpoint: u64,
}

impl Half {
    /// Brings a former primary's data to the state of the primary's. `Some`: why that takes a full copy.
    pub(super) async fn rewind(&self) -> Result<Option<String>, Obstacle> {
        if self.tools.config.rejoin == Rejoin::Manual {
            return Err(Obstacle::Lasting(format!(
                "its data were a primary's and rejoin = \"manual\": rewind or copy them, create {SIGNAL} and remove {}",
                self.mark.path().display()
            )));
        }
        let timeline = self.final_timeline().await?;
        if self.server.is_running().await? {
            self.server.stop(self.stop_timeout).await?;
        }
        if self.is_signalled() && self.control().await?.timeline <= timeline {
            // The promotion did not get as far as its timeline: nothing was ever written here.
            return self.note(Past::Following).await.map(|()| None);
        }
        self.finish_recovery().await?;
        let Control { timeline: own, checkpoint: end, .. } = self.control().await?;
        if own == timeline {
            let why = format!("its data and the primary's are both of timeline {timeline}, and it is not its standby");
            return Ok(Some(why));
        }
        self.keep_slot_there().await?;
        let fork = self.find_fork().await?;
        self.save_own_files().await?;
        self.note(Past::Rewinding).await?;
        if let Some(fork) = fork {
            self.report_discarded(fork, end);
        }
        let rewinding = |line: &str| self.tell_share("rewind", "rewinding its data", line);
        if let Err(why) = self.pg_rewind(&[], rewinding).await {
            tracing::error!(resource = self.tools.resource, why, "the rewind failed in the middle");
            let mark = self.mark.load().await;
            return Ok(Some(format!("{} ({why})", self.mark.forbids(&mark).unwrap_or_default())));
        }
        self.restore_own_files(&self.tools.config.data_directory.clone()).await?;
        self.signal(&self.tools.config.data_directory.clone()).await?;
        self.note(Past::Following).await.map(|()| None)
    }

    /// The timeline of the primary, once its control file shows it: a rewind before would stamp an older one.
    async fn final_timeline(&self) -> Result<u32, Obstacle> {
        let peer = self.tools.peer()?;
        match replication::source(&self.tools).await {
            Ok(Source::Writes { timeline, checkpointed, .. }) if timeline == checkpointed => Ok(timeline),
            Ok(Source::Writes { timeline, .. }) => {
                Err(Obstacle::Passing(format!("waits for the first checkpoint of {peer} on timeline {timeline}")))
            }
            Ok(Source::Recovers) => Err(Obstacle::Passing(format!("waits for {peer} to be primary"))),
            Err(no) => Err(Obstacle::Passing(format!("the server of {peer} does not answer: {no}"))),
        }
    }

    /// Tries whether the data can be rewound, without a change. Gives where they fork, if it says so.
    async fn find_fork(&self) -> Result<Option<u64>, Obstacle> {
        self.tell(Progress::step("check", "looks whether its data can be rewound"));
        let mut fork = None;
        let tried = self.pg_rewind(&["--dry-run"], |line| fork = fork.or_else(|| diverged(line))).await;
        tried.map_err(|why| Obstacle::Passing(format!("cannot be rewound: {why}")))?;
        Ok(fork)
    }

    /// Exactly what the failover has lost: all that the old primary had and its successor never got.
    fn report_discarded(&self, fork: u64, end: u64) {
        let discarded = end.saturating_sub(fork);
        let what = format!("{discarded} bytes of WAL that only this node had are discarded by the rewind");
        self.report(Severity::Notice, "discarded", &what);
    }

    /// A line of a program that says how far it is, or something else.
    fn tell_share(&self, step: &'static str, text: &str, line: &str) {
        if let Some(share) = Share::read(line) {
            self.tell(Progress { done: Some(share), ..Progress::step(step, text) });
        }
    }

    async fn pg_rewind(&self, more: &[&str], line: impl FnMut(&str)) -> Result<(), String> {
        let build = || {
            let program = self.tools.program("pg_rewind")?;
            let data = format!("--target-pgdata={}", self.tools.config.data_directory.display());
            let source = format!("--source-server={}", self.tools.source()?);
            Ok(program.args([data, source, "--progress".to_owned()]).args(more.iter().copied()))
        };
        let program: Program = build().map_err(|error: ResourceError| error.to_string())?;
        let file = self.tools.config.config_file.iter().map(|file| format!("--config-file={}", file.display()));
        self.tools.run_long(program.args(file), line).await
    }

    /// Replays what a killed primary had in its WAL, in single-user mode: no client can connect meanwhile.
    async fn finish_recovery(&self) -> Result<(), Obstacle> {
        let state = self.control().await?.state;
        if matches!(state.as_str(), "shut down" | "shut down in recovery") && !self.is_signalled() {
            return Ok(());
        }
        self.tell(Progress::step("replay", "replays its own WAL"));
        let data = self.tools.config.data_directory.display().to_string();
        self.quick("rm", &["-f".to_owned(), format!("{data}/{SIGNAL}")], QUICK).await?;
        let program = self.tools.program("postgres")?.args(["--single".to_owned(), "-D".to_owned(), data]);
        let file = self.tools.config.config_file.iter().map(|file| format!("config_file={}", file.display()));
        // Each run notes its own settings in the control file, where pg_rewind looks for this one.
        let settings = file.chain(["wal_log_hints=on".to_owned()]).flat_map(|setting| ["-c".to_owned(), setting]);
        let program = program.args(settings).args(["template1"]);
        let failed = |why| Obstacle::Passing(format!("its own WAL cannot be replayed: {why}"));
        self.tools.run_long(program, |_| {}).await.map_err(failed)
    }

    async fn control(&self) -> Result<Control, Obstacle> {
        let data = self.tools.config.data_directory.display().to_string();
        let program = self.tools.program("pg_controldata")?.args(["-D".to_owned(), data]);
        let finished = self.tools.run(&program, QUICK).await?;
        let control = (finished.ending == Ending::Exited(0)).then(|| Control::read(&finished.stdout_text())).flatten();
        control.ok_or_else(|| Obstacle::Passing(format!("its control file cannot be read: {}", told(&finished))))
    }

    /// The primary keeps for this node what it has not received yet.
    async fn keep_slot_there(&self) -> Result<(), Obstacle> {
        if !self.tools.config.slots {
            return Ok(());
        }
        let peer = self.tools.peer()?;
        let made = self.tools.ask(At::Peer, &[&create_slot(&self.tools.node)], ANSWER).await;
        made.map(drop).map_err(|no| Obstacle::Passing(format!("no replication slot on {peer}: {no}")))
    }

    /// Copies all of the primary's data beside the old ones, and puts them in their place. Only if configured.
    pub(super) async fn replace(&self, why: String) -> Result<(), Obstacle> {
        if self.tools.config.rejoin != Rejoin::RewindOrClone {
            return Err(Obstacle::Lasting(why));
        }
        self.final_timeline().await?;
        self.keep_slot_there().await?;
        tracing::warn!(resource = self.tools.resource, why, "copying all data of the primary");
        let copy = self.tools.beside(".copy");
        // Of a copy that was cut off, which is of no use to anybody.
        self.quick("rm", &["-rf".to_owned(), copy.display().to_string()], REMOVAL).await?;
        let mut program = self.tools.program("pg_basebackup")?;
        program = program.args([format!("--pgdata={}", copy.display()), format!("--dbname={}", self.tools.source()?)]);
        program = program.args(["--wal-method=stream", "--checkpoint=fast", "--progress", "--no-password"]);
        if self.tools.config.slots {
            program = program.args([format!("--slot={}", slot_of(&self.tools.node))]);
        }
        let copied =
            self.tools.run_long(program, |line| self.tell_share("copy", "copying all data of the primary", line)).await;
        copied.map_err(|why| Obstacle::Passing(format!("the full copy failed: {why}")))?;
        if self.has_data() && !self.has_saved_own_files().await {
            self.save_own_files().await?;
        }
        self.restore_own_files(&copy).await?;
        self.signal(&copy).await?;
        self.note(Past::Replacing).await?;
        self.take_place().await
    }

    /// The complete copy becomes the data directory; the old one stays beside it unless the configuration says otherwise.
    pub(super) async fn take_place(&self) -> Result<(), Obstacle> {
        let (data, copy) = (self.tools.config.data_directory.clone(), self.tools.beside(".copy"));
        if copy.exists() {
            if data.exists() {
                self.set_aside().await?;
            }
            self.quick("mv", &["-T".to_owned(), copy.display().to_string(), data.display().to_string()], QUICK).await?;
        }
        if !self.is_signalled() {
            return Err(Obstacle::Lasting(format!(
                "a full copy was to take the place of {}, and is not there; make one and remove {}",
                data.display(),
                self.mark.path().display()
            )));
        }
        self.note(Past::Following).await
    }

    async fn set_aside(&self) -> Result<(), Obstacle> {
        let data = self.tools.config.data_directory.display().to_string();
        let aside = (1..).map(|n| self.tools.beside(&format!(".old-{n}"))).find(|path| !path.exists());
        let aside = aside.expect("not every number names a directory").display().to_string();
        self.quick("mv", &["-T".to_owned(), data, aside.clone()], QUICK).await?;
        match self.tools.config.old_copy {
            OldCopy::Remove => self.quick("rm", &["-rf".to_owned(), aside], REMOVAL).await,
            OldCopy::Keep => {
                tracing::warn!(
                    resource = self.tools.resource,
                    aside,
                    "the old data are kept; remove them when nobody needs them"
                );
                Ok(())
            }
        }
    }

    /// What `pg_rewind` would replace by the other node's.
    async fn save_own_files(&self) -> Result<(), Obstacle> {
        let kept = self.tools.beside(".conf");
        self.quick("mkdir", &["-p".to_owned(), "-m".to_owned(), "0700".to_owned(), kept.display().to_string()], QUICK)
            .await?;
        self.copy_own_files(&self.tools.config.data_directory.clone(), &kept).await
    }

    /// Before the mark of a rewind they were saved; since then the rewind may have torn those in the data directory.
    async fn has_saved_own_files(&self) -> bool {
        let torn = matches!(self.mark.load().await, Mark::Known(Past::Rewinding) | Mark::Unreadable(_));
        torn && self.tools.beside(".conf").exists()
    }

    async fn restore_own_files(&self, data: &std::path::Path) -> Result<(), Obstacle> {
        self.copy_own_files(&self.tools.beside(".conf"), data).await
    }

    async fn copy_own_files(&self, from: &std::path::Path, to: &std::path::Path) -> Result<(), Obstacle> {
        let there: Vec<&str> = OWN_FILES.into_iter().filter(|name| from.join(name).exists()).collect();
        if there.is_empty() {
            return Ok(());
        }
        let mut args: Vec<String> = there.iter().map(|name| from.join(name).display().to_string()).collect();
        let mut made: Vec<String> = there.iter().map(|name| to.join(name).display().to_string()).collect();
        made.push(to.display().to_string());
        args.splice(0..0, ["-p".to_owned(), "-t".to_owned(), to.display().to_string(), "--".to_owned()]);
        self.quick("cp", &args, QUICK).await?;
        // The mark that comes next is durable, and would outlive them.
        self.quick("sync", &made, QUICK).await
    }

    /// Durable before the mark is taken back: without it the server would start as a second primary.
    async fn signal(&self, data: &std::path::Path) -> Result<(), Obstacle> {
        let (file, data) = (data.join(SIGNAL).display().to_string(), data.display().to_string());
        self.quick("touch", std::slice::from_ref(&file), QUICK).await?;
        self.quick("sync", &[file, data], QUICK).await
    }

    async fn quick(&self, name: &str, args: &[String], limit: Duration) -> Result<(), Obstacle> {
        let mut program = self.tools.as_user(name)?;
        program.args = args.to_vec();
        let finished = self.tools.run(&program, limit).await?;
        match finished.ending {
            Ending::Exited(0) => Ok(()),
            Ending::Exited(_) | Ending::Signalled(_) | Ending::TimedOut | Ending::Stuck => {
                Err(Obstacle::Passing(format!("{name} failed: {}", told(&finished))))
            }
        }
    }
}

impl Control {
    /// The output of `pg_controldata` in the C locale.
    fn read(text: &str) -> Option<Control> {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some(Control {
            state: value("Database cluster state:")?.to_owned(),
            timeline: value("Latest checkpoint's TimeLineID:")?.parse().ok()?,
            checkpoint: position(value("Latest checkpoint location:")?)?,
        })
    }
}

/// A place in the WAL as PostgreSQL writes it: "0/30001C8".
fn position(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let part = |hex| u32::from_str_radix(hex, 16).ok().map(u64::from);
    Some((part(high)? << 32) | part(low)?)
}

/// The place that `pg_rewind` names: "servers diverged at WAL location 0/30001C8 on timeline 1".
fn diverged(line: &str) -> Option<u64> {
    position(line.split_once("diverged at WAL location ")?.1.split(' ').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_is_read_from_what_its_program_prints() {
        let text = "pg_control version number:            1300\nDatabase cluster state:               in production\n\
                    Latest checkpoint location:           1/30001C8\n\
                    Latest checkpoint's TimeLineID:       4\nLatest checkpoint's PrevTimeLineID:   3\n";
        let read = Control { state: "in production".to_owned(), timeline: 4, checkpoint: 0x1_0300_01C8 };
        assert_eq!(Control::read(text), Some(read));
        assert_eq!(Control::read("garbage"), None);
    }

    #[test]
    fn the_place_of_the_fork_is_read_from_what_pg_rewind_says() {
        let line = "pg_rewind: servers diverged at WAL location 0/30001C8 on timeline 1";
        assert_eq!(diverged(line), Some(0x0300_01C8));
        assert_eq!(diverged("pg_rewind: Done!"), None);
    }
}
