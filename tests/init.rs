//! `leasehold init`: what it writes for each kind of fence agent, what it asks, what it refuses, and what it says is left.
//!
//! `UPDATE_GOLDEN=1 cargo test --test init` writes tests/init anew; read each of them before you commit it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use leasehold::config;

const ETC: &str = "etc/leasehold";

/// A folder that stands for the root of a machine.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        Machine(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(ETC).join(name)
    }

    fn config(&self) -> PathBuf {
        self.file("leasehold.toml")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.arg("init").args(args).env("LEASEHOLD_CONFIG", self.config()).env("COLUMNS", "100");
        command
    }

    fn init(&self, args: &[&str], input: &str) -> Output {
        talk(&mut self.command(args), input)
    }

    /// A text of it as it would be on a real machine.
    fn real(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "/")
            .replace(&self.0.path().strip_prefix("/").unwrap().join("").display().to_string(), "")
    }

    fn written(&self) -> String {
        self.real(&std::fs::read_to_string(self.config()).unwrap())
    }
}

fn talk(command: &mut Command, input: &str) -> Output {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    // A program that ends without reading its input is no fault of this test.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const PAIR: [&str; 6] = [
    "--nodes=heron,plover",
    "--node=heron",
    "--link=lan=192.0.2.1,192.0.2.2",
    "--link=198.51.100.1,198.51.100.2",
    "--watchdog=none",
    "--resource=unit unit=kelp.service",
];

/// Every kind of agent once at least, with what it needs beside it.
const KINDS: [(&str, &[&str]); 13] = [
    ("ipmi", &["ipmi address=203.0.113.11,203.0.113.12 user=leasehold power=independent"]),
    ("redfish", &["redfish url=https://203.0.113.11,https://203.0.113.12 system=1,2"]),
    (
        "fence-agent",
        &[
            "fence-agent program=fence_apc options.ip=203.0.113.20 options.plug=3,4 options.ssh=1 power=independent scope=node",
        ],
    ),
    ("exec", &["exec program=/usr/local/libexec/fence-outlet settings.outlet=4,5 'args=--quiet --twice'"]),
    ("ec2-power", &["ec2-power region=eu-central-1 instance=i-0123456789abcdef0,i-0fedcba9876543210"]),
    (
        "ec2-volume",
        &[
            "ec2-power region=eu-central-1 instance=i-0123456789abcdef0,i-0fedcba9876543210",
            "ec2-volume region=eu-central-1 volume=vol-0123456789abcdef0 \
             instance=i-0123456789abcdef0,i-0fedcba9876543210 force_after=40s",
        ],
    ),
    (
        "openstack-power",
        &["openstack-power auth_url=https://cloud.example.net:5000/v3 \
           application_credential_id=21dced0fd20347869b93710d2b98aae0 \
           server=8f9f1d5a-4a2c-4b53-9d3c-0d1a2b3c4d5e,7e9f1d5a-4a2c-4b53-9d3c-0d1a2b3c4d5f guest_shutdown=5s"],
    ),
    (
        "openstack-volume",
        &["openstack-volume auth_url=https://cloud.example.net:5000/v3 \
           application_credential_id=21dced0fd20347869b93710d2b98aae0 volume=5aa119a8-d25b-45a7-8d1b-88e127885635 \
           server=8f9f1d5a-4a2c-4b53-9d3c-0d1a2b3c4d5e,7e9f1d5a-4a2c-4b53-9d3c-0d1a2b3c4d5f"],
    ),
    ("nfs-export", &["nfs-export server=192.0.2.31 gate=estuary"]),
    ("iscsi-acl", &["iscsi-acl server=192.0.2.31 gate=estuary"]),
    ("scsi-pr", &["scsi-pr 'devices=/dev/disk/by-id/wwn-0x600140512345678 /dev/disk/by-id/wwn-0x600140587654321'"]),
    ("manual", &["ipmi address=203.0.113.11,203.0.113.12", "manual"]),
    ("none", &["none"]),
];

/// With an example of every other kind of resource.
const RESOURCES: [&str; 4] = [
    "--resource=address address=192.0.2.50/24 interface=eth1,enp9s0",
    "--resource=mount what=/dev/disk/by-id/scsi-3600140512345678 where=/srv/kelp options=noatime",
    "--resource=postgres stop_timeout=15s",
    "--resource=exec name=gauges 'start=/usr/local/bin/gauges --data \"/srv/my gauges\"' environment.LEVEL=info user=gauges",
];

fn arguments(kind: &str, agents: &[&str]) -> Vec<String> {
    let mut args: Vec<String> = PAIR.iter().map(|arg| (*arg).to_owned()).collect();
    args.extend(agents.iter().map(|agent| format!("--fence={agent}")));
    if kind == "openstack-volume" {
        args.push("--lone-primary=stop".into());
    }
    if kind == "ipmi" {
        args.extend(RESOURCES.iter().map(|arg| (*arg).to_owned()));
    }
    args
}

#[test]
fn for_each_kind_of_agent_it_writes_a_configuration_that_passes_the_check() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = String::new();
    for (kind, agents) in KINDS {
        let machine = Machine::new();
        let args = arguments(kind, agents);
        let output = machine.init(&args.iter().map(String::as_str).collect::<Vec<_>>(), "");
        assert_eq!(output.status.code(), Some(0), "{kind}: {}{}", stdout(&output), stderr(&output));
        let text = machine.written();
        if let Err(diagnostics) = config::parse(kind, &text) {
            wrong += &format!("{diagnostics}\n");
        }
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/init/{kind}.toml"));
        let told = golden.with_extension("txt");
        let said = machine.real(&stdout(&output));
        if update {
            std::fs::write(&golden, &text).unwrap();
            std::fs::write(&told, &said).unwrap();
        }
        for (file, found) in [(&golden, &text), (&told, &said)] {
            if std::fs::read_to_string(file).unwrap_or_default() != *found {
                wrong += &format!("{} is different now:\n{found}\n", file.display());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_kind_that_the_configuration_knows_has_its_golden_file() {
    let tables = config::keys();
    let kinds: Vec<&str> =
        tables.iter().filter_map(|table| table.label.strip_prefix("[[fence.agent]] of kind ")).collect();
    assert!(kinds.len() >= 12, "{kinds:?}");
    for kind in kinds {
        let kind = kind.trim_matches('"');
        assert!(KINDS.iter().any(|(name, _)| *name == kind), "{kind} is not tried");
    }
}

#[test]
fn the_key_is_private_shown_nowhere_and_never_written_over() {
    let machine = Machine::new();
    let args = [&PAIR[..], &["--fence=none"]].concat();
    let output = machine.init(&args, "");
    let key = std::fs::read_to_string(machine.file("key")).unwrap();
    leasehold::wire::Keyring::parse(&key).expect("a key that the daemon reads");
    assert_eq!(machine.file("key").metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(!stdout(&output).contains(key.split_whitespace().next_back().unwrap()));
    std::fs::remove_file(machine.config()).unwrap();
    let again = machine.init(&args, "");
    assert!(stdout(&again).contains("Kept the key"), "{}{}", stdout(&again), stderr(&again));
    assert_eq!(std::fs::read_to_string(machine.file("key")).unwrap(), key);
}

#[test]
fn the_same_again_changes_nothing_and_an_edited_file_is_refused() {
    let machine = Machine::new();
    let args = [&PAIR[..], &["--fence=none"]].concat();
    machine.init(&args, "");
    let same = machine.init(&args, "");
    assert_eq!(same.status.code(), Some(0), "{}", stderr(&same));
    assert!(stdout(&same).contains("says so already"), "{}", stdout(&same));
    let edited = machine.written() + "# by hand\n";
    std::fs::write(machine.config(), &edited).unwrap();
    for args in [&args[..], &[]] {
        let refused = machine.init(args, "heron\n");
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains("is not written over"), "{}", stderr(&refused));
        assert_eq!(stdout(&refused), "", "it asked before it refused");
    }
    assert_eq!(std::fs::read_to_string(machine.config()).unwrap(), edited);
}

#[test]
fn a_dialogue_asks_again_after_a_wrong_answer_and_writes_what_was_said() {
    let machine = Machine::new();
    let answers = "heron\nheron\nplover\nheron.example.net\n192.0.2.1\n192.0.2.2\n\nsteel\nipmi\n203.0.113.11\n203.0.113.12\n\n\n\n\n\
                   unit\nkelp.service\n\n";
    let output = machine.init(&["--node", "heron", "--watchdog", "none"], answers);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for told in ["both nodes are called 'heron'", "'heron.example.net' is no IP address", "there is no kind 'steel'"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    let asked = text.lines().filter(|line| line.contains("password_file of plover [")).count();
    assert_eq!(asked, 1, "{text}");
    let written = machine.written();
    assert!(config::parse("said", &written).is_ok(), "{written}");
    for line in
        ["address = \"203.0.113.12\"", "password_file = \"/etc/leasehold/bmc-heron\"", "unit = \"kelp.service\""]
    {
        assert!(written.contains(line), "{line}: {written}");
    }
}

#[test]
fn answers_that_end_early_leave_nothing_behind() {
    let machine = Machine::new();
    let output = machine.init(&[], "heron\nplover\n192.0.2.1\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the answers ended before \"link 1: address of plover\"; nothing was written"));
    assert!(!machine.file("key").exists() && !machine.config().exists());
}

#[test]
fn what_is_missing_or_wrong_is_said_with_its_remedy_and_nothing_is_written() {
    let link = "--link=192.0.2.1,192.0.2.2";
    let nodes = "--nodes=heron,plover";
    let cases: [(&[&str], &str); 12] = [
        (&[link], "--nodes FIRST,SECOND is missing"),
        (&[nodes], "--link FIRST,SECOND is missing"),
        (&[nodes, link], "--fence is missing"),
        (&["--nodes=heron", link, "--fence=none"], "--nodes takes two names with a comma, not 'heron'"),
        (&["--nodes=heron,heron", link, "--fence=none"], "both nodes are called 'heron'"),
        (&[nodes, "--node=kim", link, "--fence=none"], "--node kim is neither of heron and plover"),
        (&[nodes, "--link=heron,plover", "--fence=none"], "'heron' is no IP address"),
        (&[nodes, link, "--fence=impi"], "there is no kind 'impi': write one of ipmi, redfish"),
        (&[nodes, link, "--fence=ipmi user=x"], "lacks\n  address: Of the node's BMC"),
        (&[nodes, link, "--fence=ipmi address"], "'address' is not KEY=VALUE"),
        (&[nodes, link, "--fence=none", "--resource=exec 'start=/bin/x"], "a quote ' has no end"),
        (&[nodes, link, "--fence=none", "--fence=manual"], "--fence none excludes every other --fence"),
    ];
    for (args, wanted) in cases {
        let machine = Machine::new();
        let output = machine.init(args, "");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains(wanted), "{args:?}: {}", stderr(&output));
        assert!(!machine.config().parent().unwrap().exists(), "{args:?} wrote something");
    }
}

#[test]
fn what_the_check_refuses_is_shown_as_it_would_have_been_written_and_is_not() {
    let machine = Machine::new();
    let fence = "--fence=ipmi address=203.0.113.11,203.0.113.12 password=hunter2 passwrd_file=/x";
    let output = machine.init(&[&PAIR[..], &[fence]].concat(), "");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("a password stands in the configuration") && text.contains("passwrd_file"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    assert!(!machine.config().parent().unwrap().exists());
}

/// The reader of README.md gets what it shows: the same command to copy everything to the other node.
#[test]
fn the_command_of_the_readme_writes_a_pair_and_names_the_copy_that_it_shows() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let readme = readme.replace("\\\n", " ");
    let line =
        readme.lines().map(str::trim).find(|line| line.starts_with("leasehold init --nodes")).expect("its command");
    let machine = Machine::new();
    let folder = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{line} --node heron")]).env("LEASEHOLD_CONFIG", machine.config()).env("PATH", path);
    let output = talk(&mut shell, "");
    let text = machine.real(&stdout(&output));
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    let copy = readme.lines().map(str::trim).find(|line| line.starts_with("tar ")).expect("its copy");
    assert!(text.contains(&format!("     {copy}\n")), "{copy}\n{text}");
    assert!(config::parse("README", &machine.written()).is_ok());
}
