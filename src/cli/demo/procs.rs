//! The processes of a machine of the demo: everything that descends from it, whoever started it.

use std::fs;
use std::io;

use rustix::process::{Pid, Signal, kill_process};

/// One process, as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: Pid,
    pub parent: i32,
    /// Ended, and not collected yet: it can do nothing any more.
    pub zombie: bool,
}

impl Process {
    /// That it is gone already is no error.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal);
    }

    /// The second word of its command line: the subcommand of a `leasehold`.
    pub fn subcommand(&self) -> Option<String> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid.as_raw_nonzero())).ok()?;
        line.split(|byte| *byte == 0).nth(1).map(|word| String::from_utf8_lossy(word).into_owned())
    }
}

/// All descendants of a process that have not been collected, parents before their children.
///
/// # Errors
/// `/proc` cannot be read.
pub fn descendants(of: Pid) -> io::Result<Vec<Process>> {
    let all = all()?;
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![of.as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|process| process.parent == parent);
        parents.extend(children.clone().map(|process| process.pid.as_raw_nonzero().get()));
        found.extend(children.cloned());
    }
    Ok(found)
}

fn all() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        // A process may end between the two readings.
        all.extend(name.to_str().and_then(|name| name.parse().ok()).and_then(read));
    }
    Ok(all)
}

fn read(pid: i32) -> Option<Process> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything: what counts begins after the last bracket.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Process { pid: Pid::from_raw(pid)?, parent, zombie: matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::process::getpid;

    use super::*;

    #[test]
    fn grandchildren_are_found_and_strangers_are_not() {
        let mut shell =
            Command::new("sh").args(["-c", "sleep 60 & echo; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let _ = shell.stdout.take().unwrap().read(&mut [0]).unwrap();
        let pid = Pid::from_child(&shell);
        let below: Vec<Process> = descendants(pid).unwrap();
        assert_eq!(below.len(), 1);
        assert!(descendants(getpid()).unwrap().iter().any(|process| process.pid == below[0].pid));
        below[0].signal(Signal::KILL);
        shell.wait().unwrap();
    }
}
