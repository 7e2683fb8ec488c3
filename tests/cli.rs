//! The command line as people and scripts use it: texts, exit statuses, what it does with a daemon and without.

#[path = "common/daemon.rs"]
mod daemon;
#[path = "common/status.rs"]
mod fixture;
#[path = "common/need.rs"]
mod need;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use leasehold::control::{Access, Contact, Incident, Status};
use leasehold::core::Command as CoreCommand;

use daemon::Daemon;
use fixture::evidence;

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_leasehold")
}

/// Never the real machine's daemon or configuration.
fn leasehold(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(args)
        .env("LEASEHOLD_SOCKET", "/nonexistent/control.sock")
        .env("LEASEHOLD_CONFIG", "/nonexistent.toml");
    command.env("COLUMNS", "80");
    command
}

fn run(args: &[&str]) -> Output {
    leasehold(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

async fn with(daemon: &Daemon, args: &'static [&'static str], input: &'static str) -> Output {
    daemon.blocking(move |socket| talk(leasehold(args).arg("--socket").arg(socket), input)).await
}

fn talk(command: &mut Command, input: &str) -> Output {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    // A program that ends without reading its input is no fault of this test.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn help_names_every_subcommand_and_the_exit_statuses() {
    let text = stdout(&run(&["--help"]));
    for name in [
        "daemon",
        "demo",
        "check",
        "init",
        "keygen",
        "status",
        "failover",
        "fence",
        "drill",
        "confirm-fenced",
        "freeze",
        "thaw",
    ] {
        assert!(text.contains(&format!("\n  {name} ")), "{name} is missing in:\n{text}");
    }
    for name in ["why", "init-record", "clear-alarms", "stop", "version", "explain", "simulate"] {
        assert!(text.contains(&format!("\n  {name} ")), "{name} is missing in:\n{text}");
    }
    assert!(text.contains("2  the daemon cannot be reached"), "{text}");
    assert!(!text.contains("\n  man "), "{text}");
}

#[test]
fn wrong_usage_ends_with_one_and_help_with_zero() {
    assert_eq!(run(&["status", "--jsn"]).status.code(), Some(1));
    assert_eq!(run(&[]).status.code(), Some(1));
    assert_eq!(run(&["failover", "--help"]).status.code(), Some(0));
}

#[test]
fn without_a_daemon_status_says_how_to_start_one() {
    for command in ["status", "why", "freeze", "failover", "fence", "confirm-fenced", "stop", "clear-alarms"] {
        let output = run(&[command]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(stderr(&output).contains("systemctl start leasehold"), "{}", stderr(&output));
    }
    assert!(stdout(&run(&["version"])).contains("daemon    not running"));
}

#[test]
fn keygen_makes_a_private_file_and_never_overwrites_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let output = run(&["keygen", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let key = std::fs::read_to_string(&path).unwrap();
    leasehold::wire::Keyring::parse(&key).expect("a key that the daemon reads");
    let secret = key.split_whitespace().next_back().unwrap();
    assert!(!stdout(&output).contains(secret) && stdout(&output).contains("scp -p"));

    let again = run(&["keygen", path.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("is not overwritten"), "{}", stderr(&again));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), key);
}

#[test]
fn keygen_to_a_pipe_prints_nothing_but_the_key() {
    let text = stdout(&run(&["keygen", "-"]));
    leasehold::wire::Keyring::parse(&text).expect("a key that the daemon reads");
}

#[test]
fn every_visible_subcommand_gets_a_man_page() {
    let directory = tempfile::tempdir().unwrap();
    let output = run(&["man", directory.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = std::fs::read_to_string(directory.path().join("leasehold-confirm-fenced.8")).unwrap();
    assert!(page.contains("yes\\-i\\-have\\-seen\\-it\\-off"), "{page}");
    assert!(directory.path().join("leasehold.8").exists());
    assert!(!directory.path().join("leasehold-man.8").exists());
}

/// As Debian's checker reads them: not one warning.
#[test]
fn every_kind_of_fence_agent_and_resource_gets_a_man_page_that_renders_without_warnings() {
    let test = "every_kind_of_fence_agent_and_resource_gets_a_man_page_that_renders_without_warnings";
    let directory = tempfile::tempdir().unwrap();
    let output = run(&["man", directory.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let names =
        [names("docs/agents", "leasehold-fence", 12), names("docs/resources", "leasehold-resource", 5)].concat();
    for name in &names {
        let page = std::fs::read_to_string(directory.path().join(format!("{name}.7"))).unwrap();
        let told = page.split_once(".SH \"NAME\"\n").unwrap_or_else(|| panic!("{name}: no NAME")).1;
        assert!(told.starts_with(&format!("{} \\- ", name.replace('-', "\\-"))), "{name}: {told}");
        for section in ["SYNOPSIS", "DESCRIPTION", "LIMITS"] {
            assert!(page.contains(&format!(".SH \"{section}\"\n")), "{name}: no {section}");
        }
    }
    if !need::all(test, &[need::program("man")]) {
        return;
    }
    for name in names {
        let page = directory.path().join(format!("{name}.7"));
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]).arg(&page);
        let output = man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80").output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", stderr(&output));
    }
}

/// What the pages of a folder are called as man pages.
fn names(folder: &str, of: &str, least: usize) -> Vec<String> {
    let pages = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let kinds = pages.map(|page| page.file_stem().unwrap().to_str().unwrap().to_owned());
    let names: Vec<String> = kinds.filter(|kind| kind != "README").map(|kind| format!("{of}-{kind}")).collect();
    assert!(names.len() >= least, "{names:?}");
    names
}

#[test]
fn completions_know_the_subcommands() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&run(&["completions", shell])).contains("confirm-fenced"), "{shell}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = leasehold(&["completions", "bash"]).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[tokio::test]
async fn status_shows_the_screen_its_json_and_a_status_for_monitors() {
    let daemon = Daemon::start();
    let screen = with(&daemon, &["status", "--exit-code"], "").await;
    assert_eq!(screen.status.code(), Some(0), "{}", stderr(&screen));
    assert!(stdout(&screen).starts_with("shop: healthy, heron serves"), "no colour in a pipe: {}", stdout(&screen));
    let json = with(&daemon, &["status", "--json"], "").await;
    assert_eq!(serde_json::from_str::<Status>(&stdout(&json)).unwrap().me.name, "heron");
    daemon.set(|status| status.frozen = true);
    assert_eq!(with(&daemon, &["status", "--exit-code"], "").await.status.code(), Some(4));
    assert_eq!(with(&daemon, &["status"], "").await.status.code(), Some(0));
}

#[tokio::test]
async fn why_tells_the_decisions_or_that_there_are_none() {
    let daemon = Daemon::start();
    assert!(stdout(&with(&daemon, &["why"], "").await).starts_with("Nothing was decided yet"));
    daemon.journal.publish(daemon::decision("the peer is lost".into()));
    assert!(
        stdout(&with(&daemon, &["why", "-n", "3"], "").await).contains("03:00:00.000   standby     the peer is lost")
    );
    assert!(
        stdout(&with(&daemon, &["why", "--json"], "").await).starts_with(r#"{"number":1,"at":"2026-11-30T03:00:00Z""#)
    );
}

#[tokio::test]
async fn failover_shows_what_happens_until_the_other_node_serves() {
    let daemon = Daemon::start();
    let output = with(&daemon, &["failover"], "").await;
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.contains("03:00:00.000  stops acting under token 6: planned handover"), "{text}");
    assert!(text.ends_with("Done: plover serves, heron is its standby.\n"), "{text}");
}

#[tokio::test]
async fn a_handover_that_came_back_or_takes_too_long_is_an_error() {
    let daemon = Daemon::start();
    *daemon.state.back_with.lock().unwrap() = Some(8);
    let output = with(&daemon, &["failover"], "").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("plover could not take over: heron serves again, token 8"), "{}", stdout(&output));
    *daemon.state.back_with.lock().unwrap() = Some(6);
    daemon.set(|status| status.me.token = Some(6));
    let output = with(&daemon, &["failover", "--timeout", "0"], "").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("Not finished after 0 s. It goes on"), "{}", stdout(&output));
}

#[tokio::test]
async fn a_fence_that_failed_is_an_error_and_a_refusal_is_three() {
    let daemon = Daemon::start();
    let output = with(&daemon, &["fence"], "").await;
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("Not fenced: nothing may be assumed"));
    let output = with(&daemon, &["thaw"], "").await;
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(3), "leasehold: resources are still being stopped\n")
    );
}

#[tokio::test]
async fn stop_waits_until_the_daemon_is_gone() {
    let daemon = Daemon::start();
    let waiting = with(&daemon, &["stop", "--wait"], "");
    let ended = async {
        while daemon.commands().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        daemon.end();
    };
    let (output, ()) = tokio::join!(waiting, ended);
    assert!(stdout(&output).ends_with("Stopped.\n"), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0));
}

fn lost(daemon: &Daemon) {
    daemon.set(|status| {
        status.peer.contact = Contact::Lost;
        status.peer.silence_ms = Some(42_000);
        let evidence = vec![evidence("03:12:03", "bmc-plover", "no answer from 10.1.1.11")];
        status.incident = Some(Incident { id: 7, since_ms: 42_000, evidence });
    });
}

#[tokio::test]
async fn a_confirmation_shows_the_evidence_and_wants_the_right_name() {
    let daemon = Daemon::start();
    lost(&daemon);
    let wrong = with(&daemon, &["confirm-fenced"], "yes\n").await;
    assert_eq!(wrong.status.code(), Some(3));
    assert!(stdout(&wrong).contains("Incident 7: plover is silent for 42.0s."), "{}", stdout(&wrong));
    assert!(stdout(&wrong).contains("bmc-plover: no answer from 10.1.1.11"), "{}", stdout(&wrong));
    assert!(daemon.commands().is_empty());
    let right = with(&daemon, &["confirm-fenced"], "plover\n").await;
    assert_eq!(right.status.code(), Some(0), "{}", stderr(&right));
    assert!(matches!(daemon.commands()[..], [(CoreCommand::ConfirmFenced { incident: 7, .. }, _)]));
}

#[tokio::test]
async fn a_script_confirms_by_naming_the_node() {
    let daemon = Daemon::start();
    lost(&daemon);
    let output = with(&daemon, &["confirm-fenced", "--yes-i-have-seen-it-off", "plover"], "").await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = with(&daemon, &["confirm-fenced", "--yes-i-have-seen-it-off", "heron"], "").await;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(daemon.commands().len(), 1);
}

#[tokio::test]
async fn with_the_peer_in_contact_there_is_nothing_to_confirm() {
    let daemon = Daemon::start();
    let output = with(&daemon, &["confirm-fenced", "--yes-i-have-seen-it-off", "plover"], "").await;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stdout(&output), "plover is in contact: there is nothing to confirm.\n");
}

/// Somebody who is neither root nor the daemon's user, with a user database in which we say what he belongs to.
struct Stranger {
    directory: tempfile::TempDir,
    uid: u32,
}

impl Stranger {
    fn new(groups: &str) -> Stranger {
        let me = rustix::process::geteuid().as_raw();
        let uid = if me == 0 { 54_321 } else { me };
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(directory.path().join("passwd"), format!("kim:x:{uid}:54321::/:/bin/sh\n")).unwrap();
        std::fs::write(directory.path().join("group"), groups).unwrap();
        std::fs::copy(program(), directory.path().join("leasehold")).unwrap();
        Stranger { directory, uid }
    }

    fn access(&self) -> Access {
        let database = PathBuf::from(self.directory.path());
        let access = Access::new(Some("watchers".into()), Some("ops".into()));
        Access { own_uid: self.uid + 1, database, ..access }
    }

    fn run(&self, socket: &Path, subcommand: &str) -> Output {
        let mut command = Command::new(self.directory.path().join("leasehold"));
        if rustix::process::geteuid().is_root() {
            command.uid(self.uid).gid(54_321);
        }
        command.arg(subcommand).arg("--socket").arg(socket).output().unwrap()
    }
}

async fn tries(groups: &str) -> (Output, Output, usize) {
    let stranger = Stranger::new(groups);
    let daemon = Daemon::start_for(stranger.access());
    let both = move |socket: &Path| (stranger.run(socket, "status"), stranger.run(socket, "freeze"));
    let (read, command) = daemon.blocking(both).await;
    (read, command, daemon.commands().len())
}

#[tokio::test]
async fn a_stranger_gets_nothing_but_the_groups_that_would_do() {
    let (read, command, commands) = tries("watchers:x:70001:\nops:x:70002:\n").await;
    assert_eq!((read.status.code(), command.status.code(), commands), (Some(3), Some(3), 0));
    assert!(stderr(&read).contains("join the group ops or watchers"), "{}", stderr(&read));
}

#[tokio::test]
async fn a_member_of_the_read_group_may_look_and_not_touch() {
    let (read, command, commands) = tries("watchers:x:70001:kim\nops:x:70002:\n").await;
    assert_eq!((read.status.code(), command.status.code(), commands), (Some(0), Some(3), 0), "{}", stderr(&read));
    assert!(
        stderr(&command).contains("may not ask for `freeze`; use root, or join the group ops"),
        "{}",
        stderr(&command)
    );
}

#[tokio::test]
async fn a_member_of_the_command_group_may_do_both() {
    let (read, command, commands) = tries("watchers:x:70001:\nops:x:70002:kim\n").await;
    assert_eq!((read.status.code(), command.status.code(), commands), (Some(0), Some(0), 1), "{}", stderr(&command));
}
