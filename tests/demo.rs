//! `leasehold demo` as people run it: it ends well, says so, and leaves nothing behind, whatever ends it.

#[path = "common/need.rs"]
mod need;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use leasehold::cli::demo::{checker, history};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Nobody, on every Linux.
const NOBODY: u32 = 65534;

/// A running demo, whose world lies in a directory of its own.
struct Run {
    child: Child,
    temporary: TempDir,
}

impl Run {
    fn start(options: &[&str]) -> Run {
        Run::start_as(env!("CARGO_BIN_EXE_leasehold").as_ref(), options, None)
    }

    fn start_as(program: &Path, options: &[&str], uid: Option<u32>) -> Run {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.arg("demo").arg("--plain").args(options).env("TMPDIR", temporary.path()).env("COLUMNS", "100");
        // Should the test itself be killed, the demo's pipe breaks and it ends.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/");
        if let Some(uid) = uid {
            std::os::unix::fs::chown(temporary.path(), Some(uid), Some(uid)).unwrap();
            command.uid(uid).gid(uid);
        }
        Run { child: command.spawn().unwrap(), temporary }
    }

    /// Reads the demo's output up to the first line that holds `text`.
    fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        let mut output = BufReader::new(self.child.stdout.as_mut().unwrap());
        while !seen.contains(text) {
            assert!(output.read_line(&mut seen).unwrap() > 0, "ended without {text:?}:\n{seen}{}", self.errors());
        }
        seen
    }

    fn end(&mut self) -> (ExitStatus, String) {
        let mut output = String::new();
        self.child.stdout.as_mut().unwrap().read_to_string(&mut output).unwrap();
        (self.child.wait().unwrap(), output)
    }

    fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut errors).unwrap();
        errors
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What the world's directory is called in the command lines of everything in it.
    fn processes(&self) -> Vec<String> {
        let marker = self.temporary.path().to_string_lossy().into_owned();
        let lines =
            fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .filter(|line| line.contains(&marker))
            .collect()
    }

    fn left(&self) -> Vec<PathBuf> {
        fs::read_dir(self.temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Processes that were killed may need a moment to vanish from the table.
    fn until_no_process_is_left(&self) {
        for _ in 0..2000 {
            if self.processes().is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("left: {:#?}", self.processes());
    }
}

fn assert_fine(run: &mut Run) {
    let (status, output) = run.end();
    assert_eq!(status.code(), Some(0), "{output}{}", run.errors());
    for text in ["All 7 checks hold.", "from the kill to the next write", "Read next"] {
        assert!(output.contains(text), "no {text:?} in:\n{output}");
    }
    assert!(!output.contains('\u{1b}'), "--plain has no escape sequences");
}

#[test]
fn it_ends_well_and_the_history_that_it_keeps_passes_the_judges_again() {
    let mut run = Run::start(&["--keep"]);
    assert_fine(&mut run);
    let kept = run.left();
    assert_eq!(kept.len(), 1);
    let lines = history::read(&kept[0].join("history")).unwrap();
    let broken: Vec<_> = checker::judge(&lines).into_iter().filter(|check| !check.holds()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    let tokens: Vec<u64> = checker::terms(&lines).iter().map(|term| term.token).collect();
    assert_eq!(tokens.len(), 3, "start, failover, handover; the partition changes nothing: {tokens:?}");
    run.until_no_process_is_left();
}

#[test]
fn interrupted_it_switches_everything_off_and_removes_its_directory() {
    let mut run = Run::start(&[]);
    run.until("SERVICE WRITES");
    assert!(run.processes().len() >= 5, "two machines, two daemons, a service: {:?}", run.processes());
    run.signal(Signal::INT);
    let (status, output) = run.end();
    assert_eq!(status.code(), Some(130), "{output}");
    assert!(run.errors().contains("everything was switched off"));
    assert_eq!(run.left(), Vec::<PathBuf>::new());
    run.until_no_process_is_left();
}

#[test]
fn even_killed_it_leaves_no_process_behind() {
    let mut run = Run::start(&[]);
    run.until("KILLED");
    run.signal(Signal::KILL);
    run.end();
    run.until_no_process_is_left();
}

#[test]
fn an_ordinary_user_can_run_it() {
    if !need::all("an_ordinary_user_can_run_it", &[need::root()]) {
        return;
    }
    // Where the build lies, another user may not be able to go.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("leasehold");
    fs::copy(env!("CARGO_BIN_EXE_leasehold"), &program).unwrap();
    let mut run = Run::start_as(&program, &[], Some(NOBODY));
    assert_fine(&mut run);
    assert_eq!(run.left(), Vec::<PathBuf>::new());
    run.until_no_process_is_left();
}

#[test]
fn with_ipmi_it_fences_through_a_real_bmc() {
    let needs = [need::program("ipmi_sim"), need::program("ipmitool")];
    if !need::all("with_ipmi_it_fences_through_a_real_bmc", &needs) {
        return;
    }
    let mut run = Run::start(&["--ipmi"]);
    assert_fine(&mut run);
    assert_eq!(run.left(), Vec::<PathBuf>::new());
    run.until_no_process_is_left();
}
