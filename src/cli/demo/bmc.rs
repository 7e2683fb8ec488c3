//! `leasehold demo-bmc`: the stand-in for a BMC, as a fence agent of kind `exec` and as the chassis of `ipmi_sim`.
//!
//! ```text
//!   power file, locked by the machine for as long as anything of it lives   = on
//!   nobody holds the lock                                                   = off
//! ```
//!
//! It cannot lie: the kernel lets go of the lock when the machine's process ends, and that ends last.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::args::{BmcAction, DemoBmc};
use crate::core::Instant;
use crate::os::clock;

/// Exit statuses of the contract of exec agents.
const OFF: u8 = 2;

/// Carries out one action.
pub fn run(options: &DemoBmc, out: &mut dyn Write) -> anyhow::Result<std::process::ExitCode> {
    let node = match &options.node {
        Some(node) => node.clone(),
        None => target(&std::env::var("LEASEHOLD_FENCE").unwrap_or_default())?,
    };
    let begun = clock::now();
    let code = act(&Power::of(&options.directory, &node), options.action, out)?;
    note_call(&options.directory, &Call { node, begun_ns: begun.0, ended_ns: clock::now().0 })?;
    Ok(code.into())
}

fn act(power: &Power, action: BmcAction, out: &mut dyn Write) -> anyhow::Result<u8> {
    Ok(match action {
        BmcAction::Status if power.is_on()? => {
            writeln!(out, "on")?;
            0
        }
        BmcAction::Status => {
            writeln!(out, "off")?;
            OFF
        }
        BmcAction::Off => {
            power.switch_off()?;
            0
        }
        BmcAction::On => {
            power.ask_for_on()?;
            0
        }
    })
}

/// One call of this program.
#[derive(Debug, Serialize, Deserialize)]
struct Call {
    node: String,
    begun_ns: u64,
    ended_ns: u64,
}

fn calls(directory: &Path) -> PathBuf {
    directory.join("bmc-calls")
}

fn note_call(directory: &Path, call: &Call) -> anyhow::Result<()> {
    let mut file = File::options().create(true).append(true).open(calls(directory))?;
    Ok(file.write_all(format!("{}\n", serde_json::to_string(call)?).as_bytes())?)
}

/// When the first call about a node since then began, and when the last one ended.
///
/// # Errors
/// There was none.
pub fn calls_since(directory: &Path, node: &str, since: Instant) -> anyhow::Result<[Instant; 2]> {
    let text = std::fs::read_to_string(calls(directory))?;
    let all = text.lines().filter_map(|line| serde_json::from_str::<Call>(line).ok());
    let mut wanted = all.filter(|call| call.node == node && call.begun_ns >= since.0);
    let first = wanted.next().with_context(|| format!("no call of the BMC of {node}"))?;
    let ended = wanted.next_back().map_or(first.ended_ns, |last| last.ended_ns);
    Ok([Instant(first.begun_ns), Instant(ended)])
}

fn target(context: &str) -> anyhow::Result<String> {
    let context: Value = serde_json::from_str(context).context("LEASEHOLD_FENCE, which the daemon sets")?;
    match context["target"].as_str() {
        Some(target) => Ok(target.to_owned()),
        None => bail!("LEASEHOLD_FENCE names no target"),
    }
}

/// The power of one machine, as its lock shows it.
#[derive(Debug, Clone)]
pub struct Power(PathBuf);

impl Power {
    /// Of the node in a directory of the demo.
    pub fn of(directory: &Path, node: &str) -> Power {
        Power(directory.join(node).join("power"))
    }

    /// Made once, with the world: reading the power of a machine that never ran reads off.
    ///
    /// # Errors
    /// The directory is not there.
    pub fn install(&self) -> std::io::Result<()> {
        File::create(&self.0).map(drop)
    }

    /// # Errors
    /// The file is gone.
    pub fn is_on(&self) -> anyhow::Result<bool> {
        match self.open()?.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(std::fs::TryLockError::WouldBlock) => Ok(true),
            Err(std::fs::TryLockError::Error(error)) => Err(error).context("the lock of the power file"),
        }
    }

    /// Tells the machine, and returns when nothing of it is left. What was told lands also if the caller dies.
    ///
    /// # Errors
    /// The power file cannot be used.
    pub fn switch_off(&self) -> anyhow::Result<()> {
        let mut file = self.open()?;
        if !self.is_on()? {
            return Ok(());
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
            // Gone already is as good.
            let _ = kill_process(pid, Signal::TERM);
        }
        file.lock_shared().context("the lock of the power file")
    }

    /// Held by the machine itself until its end.
    ///
    /// # Errors
    /// The power file cannot be used.
    pub fn switch_on(&self) -> anyhow::Result<File> {
        let mut file = File::options().write(true).open(&self.0).with_context(|| self.0.display().to_string())?;
        file.lock().context("the lock of the power file")?;
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(file)
    }

    /// Who switches a machine on is the demo itself, or the test: here it is only asked to.
    ///
    /// # Errors
    /// The directory is not there.
    pub fn ask_for_on(&self) -> std::io::Result<()> {
        File::create(self.asked()).map(drop)
    }

    /// Whether somebody has asked to switch the machine on; asked once, answered once.
    pub fn is_asked_for_on(&self) -> bool {
        std::fs::remove_file(self.asked()).is_ok()
    }

    fn asked(&self) -> PathBuf {
        self.0.with_file_name("asked-on")
    }

    fn open(&self) -> anyhow::Result<File> {
        File::open(&self.0).with_context(|| self.0.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_comes_from_what_the_daemon_hands_over() {
        assert_eq!(target(r#"{"version":1,"target":"heron","caller":"plover"}"#).unwrap(), "heron");
        assert!(target("").is_err());
        assert!(target("{}").is_err());
    }

    #[test]
    fn power_reads_on_exactly_while_the_machine_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("heron")).unwrap();
        let power = Power::of(dir.path(), "heron");
        power.install().unwrap();
        assert!(!power.is_on().unwrap());
        let held = power.switch_on().unwrap();
        assert!(power.is_on().unwrap());
        drop(held);
        assert!(!power.is_on().unwrap());
        power.switch_off().unwrap();
    }
}
