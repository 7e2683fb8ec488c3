//! No secret leaves this program, on any path that goes wrong (casebook C34): not in arguments, environments, logs,
//! answers, records or errors, and in no usual spelling.
//!
//! Each case is a pair of agents with secrets of their own, made so that something goes wrong. Every case goes through the
//! same round: `check`, `check --live`, a daemon that logs everything and fences in vain, all that it can be asked.

#[path = "redfish/certs.rs"]
mod certs;
mod common;
#[path = "ec2/http.rs"]
mod http;
#[path = "secrets/kinds.rs"]
mod kinds;
#[path = "secrets/marker.rs"]
mod marker;
#[path = "common/need.rs"]
mod need;
#[path = "redfish/fake.rs"]
mod redfish_fake;
#[path = "common/site.rs"]
mod site;

use std::any::Any;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leasehold::cli::demo::procs::descendants;
use leasehold::config;
use leasehold::core::NodeId;
use leasehold::fence::FencePlan;
use rustix::process::{Pid, Signal};

use common::ipmi::Bmc;
use marker::{Marker, found};
use site::{NODES, Site, exec_agent};

/// How often the children are looked at.
const SAMPLE: Duration = Duration::from_millis(5);
/// Cases side by side: most of their time they wait, but each watch looks at all processes all the time.
const AT_ONCE: usize = 6;
/// What stands where a secret was.
const MASK: &[u8] = b"<secret>";
/// Looks for a daemon that starts: it takes some 50 ms, and a busy machine longer.
const START_LOOKS: u32 = 1000;
const LOOK: Duration = Duration::from_millis(20);

// --- cases ---------------------------------------------------------------------------------------------------------

/// What a case is made of.
struct Case {
    agents: [String; 2],
    markers: Vec<Marker>,
    /// Put before the PATH of the program, for stand-ins of tools.
    tools: Option<std::path::PathBuf>,
    device: Device,
    /// The agents run programs; else they speak to their device themselves.
    works_by_children: bool,
    /// Lives as long as the case.
    _simulators: Box<dyn Any + Send + Sync>,
}

impl Case {
    fn of(agents: [String; 2]) -> Case {
        let (device, works_by_children) = (Device::Keeps, true);
        Case { agents, markers: Vec::new(), tools: None, device, works_by_children, _simulators: Box::new(()) }
    }
}

/// What the device does with a secret that it was given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Device {
    Keeps,
    /// Says it back: then the mask must stand where it was.
    Repeats,
}

/// Each path on which something goes wrong: its name, what it needs, and how to make it. A new kind of agent adds rows.
type Row = (&'static str, &'static [&'static str], fn(&Site) -> Case);

const IPMI: &[&str] = &["ipmi_sim", "ipmitool"];

const CASES: &[Row] = &[
    ("exec_that_shows_all_it_gets", &[], exec_that_shows_all_it_gets),
    ("exec_that_hangs", &[], exec_that_hangs),
    ("ipmi_wrong_password", IPMI, ipmi_wrong_password),
    ("ipmi_right_password_and_a_machine_that_stays_on", IPMI, ipmi_stays_on),
    ("ipmi_silent", &["ipmitool"], ipmi_silent),
    ("ipmitool_that_echoes_all_it_gets", &[], ipmitool_that_echoes),
    ("ipmitool_that_spells_the_password_in_other_ways", &[], ipmitool_that_spells),
    ("ipmitool_that_dies_in_the_middle", &[], ipmitool_that_dies),
    ("redfish_wrong_password", &[], kinds::redfish_wrong_password),
    ("redfish_whose_errors_repeat_the_login", &[], kinds::redfish_whose_errors_repeat_the_login),
    ("redfish_with_a_strangers_certificate", &["openssl"], kinds::redfish_with_a_strangers_certificate),
    ("ec2_whose_errors_repeat_the_keys", &[], kinds::ec2_whose_errors_repeat_the_keys),
    ("openstack_whose_errors_repeat_the_secret", &[], kinds::openstack_whose_errors_repeat_the_secret),
    ("fence_agent_that_shows_all_it_gets", &[], kinds::fence_agent_that_shows_all_it_gets),
    ("nfs_gate_that_shows_all_it_gets", &[], kinds::nfs_gate_that_shows_all_it_gets),
    ("iscsi_gate_that_shows_all_it_gets", &[], kinds::iscsi_gate_that_shows_all_it_gets),
];

/// Its environment and stdin go to both of its outputs, as with a program under `set -x`.
const ECHO: &str = "{ env; cat; echo \"$@\"; tr '\\0' '\\n' < /proc/$PPID/cmdline; } | tee /dev/stderr; exit 1";

fn exec_that_shows_all_it_gets(site: &Site) -> Case {
    exec(site, ECHO)
}

fn exec_that_hangs(site: &Site) -> Case {
    exec(site, "env >&2; exec sleep 600")
}

fn exec(site: &Site, body: &str) -> Case {
    let program = site.script("fence", body);
    let password = unique("kelp");
    let file = site.secret("pdu", &password);
    let more = format!("timeout = \"2s\"\nsettings = {{ password_file = \"{}\" }}", file.display());
    let agents = NODES.map(|node| exec_agent(&format!("pdu-{node}"), node, &program, &more));
    Case { markers: vec![Marker::new("password", &password)], ..Case::of(agents) }
}

fn ipmi_wrong_password(site: &Site) -> Case {
    let devices = vec![Bmc::start(), Bmc::start()];
    let ports = [devices[0].port(), devices[1].port()];
    Case { _simulators: Box::new(devices), ..ipmi(site, ports, &unique("reef")) }
}

fn ipmi_stays_on(site: &Site) -> Case {
    let mut devices = vec![Bmc::start_with("true", "true"), Bmc::start_with("true", "true")];
    // Two BMCs that name one machine are refused.
    devices[1].set_guid("4c4c454400423510805200b4c04f4d58");
    let ports = [devices[0].port(), devices[1].port()];
    let case = ipmi(site, ports, common::ipmi::PASSWORD);
    // A look that has to succeed while all other cases run beside it.
    let agents = case.agents.clone().map(|agent| agent.replace("timeout = \"2s\"", "timeout = \"8s\""));
    Case { agents, _simulators: Box::new(devices), ..case }
}

fn ipmi_silent(site: &Site) -> Case {
    // Held until the end of this function only: whoever gets them next does not speak RMCP+ with us.
    let ports = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    ipmi(site, ports, &unique("tide"))
}

fn ipmitool_that_echoes(site: &Site) -> Case {
    let echo = format!("password=$(cat /proc/self/fd/0); echo \"$password\" >&2; {ECHO}");
    with_ipmitool(site, &echo)
}

/// As a BMC that repeats the password in the body of its error, encoded by whatever stands between.
fn ipmitool_that_spells(site: &Site) -> Case {
    let body = "password=$(cat); printf '%s' \"$password\" | base64 >&2; printf '%s' \"$password\" | od -An -tx1 | tr -d ' \\n' >&2
        echo >&2; printf '%s' \"$password\" | od -An -tx1 | tr -d ' \\n' | tr a-f A-F >&2
        echo \"&pw=$(printf '%s' \"$password\" | sed 's|%|%25|g; s|/|%2F|g')&\" >&2; exit 1";
    with_ipmitool(site, body)
}

fn ipmitool_that_dies(site: &Site) -> Case {
    with_ipmitool(site, "cat >&2; echo 'Chassis Power is'; kill -SEGV $$")
}

fn with_ipmitool(site: &Site, body: &str) -> Case {
    fs::create_dir(site.path("bin")).unwrap();
    site.script("bin/ipmitool", body);
    Case { tools: Some(site.path("bin")), device: Device::Repeats, ..ipmi(site, [6230, 6231], &unique("surf")) }
}

fn ipmi(site: &Site, ports: [u16; 2], password: &str) -> Case {
    let file = site.secret("bmc", &format!("{password}\n"));
    let agent = |node: usize| {
        format!(
            "[[fence.agent]]\nname = \"bmc-{0}\"\ntarget = \"{0}\"\nkind = \"ipmi\"\naddress = \"127.0.0.1\"\nport = {1}\n\
             user = \"admin\"\npassword_file = \"{2}\"\ncipher_suite = 3\npoll = \"50ms\"\ntimeout = \"2s\"\n\n",
            NODES[node],
            ports[node],
            file.display()
        )
    };
    let markers = vec![Marker::new("password", password)];
    Case { markers, ..Case::of([agent(0), agent(1)]) }
}

/// A password of at most 20 bytes that each spelling writes in another way, and that no other run has.
fn unique(word: &str) -> String {
    let number =
        u16::from_le_bytes(leasehold::os::machine::random_u64().unwrap().to_le_bytes()[..2].try_into().unwrap());
    format!("M4RK-{word}/7%{number:04x}>")
}

// --- one round -----------------------------------------------------------------------------------------------------

/// Everything that came out of the program, with where it was found.
struct Round<'a> {
    site: &'a Site,
    case: &'a Case,
    texts: Vec<(String, Vec<u8>)>,
}

impl Round<'_> {
    fn leasehold(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.site.leasehold(args);
        let path = std::env::var("PATH").unwrap_or_default();
        if let Some(tools) = &self.case.tools {
            command.env("PATH", format!("{}:{path}", tools.display()));
        }
        command
    }

    fn ask(&mut self, args: &[&str]) -> Output {
        let output = self.leasehold(args).output().expect("leasehold runs");
        self.texts.push((format!("{args:?}, standard output"), output.stdout.clone()));
        self.texts.push((format!("{args:?}, standard error"), output.stderr.clone()));
        output
    }

    /// A daemon with everything in its log, and a secret in its own environment that is nobody else's.
    fn daemon(&self, own: &str) -> Child {
        let log = File::create(self.site.path("daemon.log")).unwrap();
        let mut command = self.leasehold(&["daemon", "--node", NODES[0], "--log", "trace"]);
        command.env("AWS_SECRET_ACCESS_KEY", own).env("RUST_BACKTRACE", "full");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command.spawn().expect("a daemon")
    }

    fn until_it_answers(&self) {
        for _ in 0..START_LOOKS {
            if self.leasehold(&["status"]).output().unwrap().status.success() {
                return;
            }
            std::thread::sleep(LOOK);
        }
        panic!("no daemon: {}", fs::read_to_string(self.site.path("daemon.log")).unwrap_or_default());
    }
}

/// Looks at the children of a process, until it is told to end; gives what was found, and how many were seen.
fn watch(of: Pid, over: &AtomicBool, markers: &[Marker]) -> (BTreeSet<String>, usize) {
    let (mut wrong, mut seen) = (BTreeSet::new(), BTreeSet::new());
    while !over.load(Ordering::Relaxed) {
        for child in descendants(of).unwrap_or_default() {
            let pid = child.pid.as_raw_nonzero();
            for name in ["cmdline", "environ"] {
                // A process that is being started still has its parent's: it is looked at again at the next turn.
                let text = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
                let is_daemon = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("leasehold"));
                if !text.is_empty() && !is_daemon {
                    seen.insert(pid);
                    wrong.extend(found(markers, &format!("{name} of a child"), &text));
                }
            }
        }
        std::thread::sleep(SAMPLE);
    }
    (wrong, seen.len())
}

/// Ends it for certain.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The whole round of one case: what of its secrets was found where.
fn round(name: &str, make: fn(&Site) -> Case) -> Vec<String> {
    let site = Site::new();
    let mut case = make(&site);
    site.configure(&case.agents);
    let (own, key) = (unique("coral"), fs::read_to_string(site.path("key")).unwrap());
    case.markers.push(Marker::new("cloud secret", &own));
    let key = key.split_whitespace().next_back().expect("a key").to_owned();
    case.markers.push(Marker { what: "cluster key", bytes: STANDARD.decode(&key).unwrap_or(key.into_bytes()) });
    let case = case;
    let mut round = Round { site: &site, case: &case, texts: Vec::new() };
    round.ask(&["check"]);
    let live = round.ask(&["check", "--live", "--node", NODES[0]]);
    round.ask(&["check", "--live", "--json", "--node", NODES[0]]);
    let mut wrong = Vec::new();
    let works = name == "ipmi_right_password_and_a_machine_that_stays_on";
    if live.status.success() != works {
        wrong.push(format!("the look at the devices ended otherwise than meant: {}", site::stdout(&live)));
    }
    wrong.extend(fence_in_vain(&mut round, &own));
    round.texts.push(("the daemon's log".to_owned(), fs::read(site.path("daemon.log")).unwrap()));
    for folder in ["state", "run"] {
        files(&site.path(folder), &mut round.texts);
    }
    round.texts.push(("what a panic shows of the plan".to_owned(), panics(&site, &case)));
    let masked = round.texts.iter().any(|(_, text)| text.windows(MASK.len()).any(|window| window == MASK));
    if masked != (case.device == Device::Repeats) {
        wrong.push(format!("masked: {masked}, so the device did not do what the case is about"));
    }
    wrong.extend(round.texts.iter().flat_map(|(place, text)| found(&case.markers, place, text)));
    wrong
}

fn fence_in_vain(round: &mut Round<'_>, own: &str) -> Vec<String> {
    let mut daemon = Running(round.daemon(own));
    let pid = Pid::from_child(&daemon.0);
    let over = Arc::new(AtomicBool::new(false));
    let (told, sampled) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(pid, &over, &round.case.markers));
        // Also when it fails: the watch would go on for ever.
        let told = std::panic::catch_unwind(AssertUnwindSafe(|| give_orders_to(round.site, round)));
        over.store(true, Ordering::Relaxed);
        let told = told.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (told, watching.join().expect("the watch"))
    });
    round.texts.extend(told);
    rustix::process::kill_process(pid, Signal::TERM).expect("it is ours");
    let ended = daemon.0.wait();
    let (wrong, seen) = sampled;
    let mut wrong: Vec<String> = wrong.into_iter().collect();
    if (seen == 0) == round.case.works_by_children || ended.is_err() {
        wrong.push(format!(
            "{seen} children were seen: the watch looked in the wrong place, or the agent works otherwise"
        ));
    }
    wrong
}

/// Everything that the daemon can be asked while its agents fail.
fn give_orders_to(site: &Site, round: &Round<'_>) -> Vec<(String, Vec<u8>)> {
    let mut asked = Round { site, case: round.case, texts: Vec::new() };
    asked.until_it_answers();
    asked.ask(&["init-record"]);
    let fenced = asked.ask(&["fence", "--timeout", "60"]);
    assert_eq!(fenced.status.code(), Some(1), "a fence in vain: {}{}", site::stdout(&fenced), site::stderr(&fenced));
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["why", "--json", "-n", "1000"],
        &["check", "--live", "--node", NODES[0]],
    ] {
        asked.ask(args);
    }
    asked.ask(&["drill", "--yes-fence", NODES[1]]);
    asked.ask(&["confirm-fenced", "--yes-i-have-seen-it-off", "nobody"]);
    asked.texts
}

fn files(folder: &Path, texts: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_file() {
            texts.push((entry.path().display().to_string(), fs::read(entry.path()).unwrap()));
        } else if entry.path().is_dir() {
            files(&entry.path(), texts);
        }
    }
}

/// The words of a panic with configuration and plan in them, secrets read.
fn panics(site: &Site, case: &Case) -> Vec<u8> {
    let config = config::load(&site.path("leasehold.toml")).unwrap_or_else(|e| panic!("{e}")).config;
    // Found where the case keeps its stand-in, or not at all: then the error is what a panic would show.
    let plan = FencePlan::new(&config, NodeId::First);
    assert!(plan.is_ok() || case.tools.is_some(), "{plan:?}");
    let payload = std::panic::catch_unwind(AssertUnwindSafe(|| panic!("{config:?} {plan:?}"))).expect_err("it panics");
    payload.downcast_ref::<String>().expect("words").clone().into_bytes()
}

#[test]
fn no_secret_is_found_anywhere_whatever_goes_wrong() {
    let possible: Vec<&Row> = CASES.iter().filter(|case| is_possible(case)).collect();
    let wrong: Vec<String> = possible.chunks(AT_ONCE).flat_map(wave).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Some cases side by side: what went wrong in them.
fn wave(cases: &[&Row]) -> Vec<String> {
    std::thread::scope(|scope| {
        let rounds: Vec<_> =
            cases.iter().map(|(name, _, make)| (*name, scope.spawn(move || round(name, *make)))).collect();
        rounds
            .into_iter()
            .flat_map(|(name, round)| {
                let wrong = round.join().unwrap_or_else(|_| vec!["the round itself failed, see above".to_owned()]);
                wrong.into_iter().map(move |found| format!("{name}: {found}"))
            })
            .collect()
    })
}

fn is_possible((name, programs, _): &Row) -> bool {
    let needs: Vec<need::Need> = programs.iter().map(|program| need::program(program)).collect();
    need::all(name, &needs)
}

// --- the search can find -------------------------------------------------------------------------------------------

#[test]
fn every_usual_spelling_is_found_and_nothing_else() {
    let marker = Marker::new("password", "M4RK-kelp/7%0a1b>");
    let encoded = |text: &str| STANDARD.encode(text);
    let texts = [
        "-P M4RK-kelp/7%0a1b> chassis".to_owned(),
        "4d34524b2d6b656c702f3725306131623e".to_owned(),
        "0x4D34524B2D6B656C702F3725306131623E".to_owned(),
        "https://bmc/?pw=M4RK-kelp%2F7%250a1b%3E&".to_owned(),
        format!("Authorization: Basic {}", encoded("admin:M4RK-kelp/7%0a1b>")),
        encoded("M4RK-kelp/7%0a1b>\n"),
        encoded("ab:M4RK-kelp/7%0a1b> and more"),
    ];
    for text in texts {
        assert_eq!(
            found(&[Marker::new("password", "M4RK-kelp/7%0a1b>")], "here", text.as_bytes()),
            ["password in here"],
            "{text}"
        );
    }
    assert!(!marker.is_in(b"M4RK-kelp/7%0a1c> TTRSSy1rZWxw"));
}

#[test]
fn the_watch_sees_what_a_child_was_given_and_nothing_of_a_child_that_was_given_nothing() {
    let marker = || vec![Marker::new("password", "M4RK-kelp/7%0a1b>")];
    for (word, wanted) in [("M4RK-kelp/7%0a1b>", true), ("M4RK-kelp/7%0a1c>", false)] {
        // A child with the word in its arguments and in its environment, and a grandchild.
        let script = r#"MARK=$1 sh -c "sleep 600; :" "$1" & wait"#;
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", script, "sh", word]);
        let shell = Running(shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let pid = Pid::from_child(&shell.0);
        let over = AtomicBool::new(false);
        let (wrong, seen) = std::thread::scope(|scope| {
            let watching = scope.spawn(|| watch(pid, &over, &marker()));
            until_a_child_runs(pid, "sleep");
            // One whole turn after it runs.
            std::thread::sleep(SAMPLE * 20);
            over.store(true, Ordering::Relaxed);
            watching.join().unwrap()
        });
        descendants(pid).unwrap().iter().for_each(|child| child.signal(Signal::KILL));
        assert!(seen > 0);
        for place in ["environ", "cmdline"] {
            assert_eq!(wrong.contains(&format!("password in {place} of a child")), wanted, "{wrong:?}");
        }
    }
}

fn until_a_child_runs(of: Pid, program: &str) {
    let runs = |child: &leasehold::cli::demo::procs::Process| {
        let exe = fs::read_link(format!("/proc/{}/exe", child.pid.as_raw_nonzero()));
        exe.is_ok_and(|exe| exe.ends_with(program))
    };
    for _ in 0..START_LOOKS {
        if descendants(of).unwrap().iter().any(runs) {
            return;
        }
        std::thread::sleep(LOOK);
    }
    panic!("no {program} runs below {of:?}");
}
