//! `leasehold check --live`: what an operator learns of the fence devices before they are needed.

mod common;
#[path = "common/need.rs"]
mod need;
#[path = "common/pair.rs"]
mod pairs;
#[path = "common/site.rs"]
mod site;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Output;

use leasehold::cli::check_live::{Fault, Known, Privilege, Row, judge, render};
use leasehold::cli::demo::world::{BOTH, Fencing, Timing};
use leasehold::config::{self, Config};
use leasehold::core::{NodeId, Scope, Span, SystemUuid};
use leasehold::fence::Reading;
use serde_json::Value;

use common::ipmi::{Bmc, PASSWORD};
use site::{Site, exec_agent, stderr, stdout};

/// A machine behind a program that says what it is told to.
const ON: &str = "[ \"$1\" = status ] && echo on && exit 0; exit 1";
const OFF: &str = "[ \"$1\" = status ] && echo off && exit 2; exit 1";

/// A site whose two machines have these programs.
fn site_of(heron: &str, plover: &str, more: &str) -> Site {
    let site = Site::new();
    let [heron, plover] = [site.script("fence-heron", heron), site.script("fence-plover", plover)];
    site.configure(&[exec_agent("pdu-heron", "heron", &heron, ""), exec_agent("pdu-plover", "plover", &plover, more)]);
    site
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

/// The faults of the agent of this place, in one text.
fn faults(document: &Value, index: usize) -> String {
    document["agents"][index]["faults"].to_string()
}

#[test]
fn devices_that_can_fence_are_told_in_an_aligned_table() {
    let output = site_of(ON, ON, "").check_live(&[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    let lines: Vec<&str> = text.lines().collect();
    let column = |name: &str| lines[0].find(name).unwrap_or_else(|| panic!("no {name} in {text}"));
    for name in ["agent", "kind", "target", "level", "state", "identity", "time", "finding"] {
        let before = column(name).saturating_sub(1);
        assert!(lines[1..3].iter().all(|line| line.as_bytes()[before] == b' ' || before == 0), "{name}: {text}");
    }
    assert!(lines[1].starts_with("pdu-heron ") && lines[1].contains(" on ") && lines[1].ends_with(" ok"), "{text}");
    assert!(text.contains("Seen from heron: 2 agents, none with a fault."), "{text}");
}

#[test]
fn the_json_says_the_same() {
    let document = json(&site_of(ON, ON, "").check_live(&["--json"]));
    assert_eq!((document["node"].as_str(), document["verdict"].as_str()), (Some("heron"), Some("ok")));
    let agent = &document["agents"][1];
    assert_eq!((agent["name"].as_str(), agent["state"].as_str()), (Some("pdu-plover"), Some("on")));
    assert!(agent["took_ms"].is_u64() && agent["faults"] == serde_json::json!([]), "{agent}");
}

#[test]
fn a_device_that_says_that_this_running_node_is_off_controls_something_else() {
    let output = site_of(OFF, ON, "").check_live(&[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("pdu-heron: reads off while heron runs: it controls another machine"), "{text}");
    assert!(
        text.contains("-> find the device of heron") && text.contains("REFUSED, seen from heron: 1 of 2"),
        "{text}"
    );
}

#[test]
fn a_peer_that_is_off_and_silent_may_well_be_off() {
    let output = site_of(ON, OFF, "").check_live(&["--json"]);
    assert_eq!(json(&output)["agents"][1]["state"].as_str(), Some("off"));
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

/// A device that hangs costs its own limit, is told of meanwhile, and keeps nobody from being seen.
#[test]
fn a_device_that_hangs_is_named_while_it_is_waited_for_and_refused_at_its_limit() {
    let output = site_of(ON, "exec sleep 600", "timeout = \"2500ms\"").check_live(&["--json"]);
    let document = json(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(faults(&document, 1).contains("no verdict within its limit of 2.500s"), "{document}");
    assert_eq!(faults(&document, 0), "[]");
    let took = document["agents"][1]["took_ms"].as_u64().unwrap();
    assert!((2500..25_000).contains(&took), "{took}");
    let told = stderr(&output);
    assert!(told.contains("1s: waits for pdu-plover (at most 2.500s)") && !told.contains("pdu-heron"), "{told}");
}

#[test]
fn garbage_is_a_fault_with_what_was_read_and_where_to_look() {
    let output = site_of("echo 'offline?'; exit 7", ON, "").check_live(&[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("offline?") && text.contains("leasehold-fence-exec(7)"), "{text}");
}

#[test]
fn an_agent_that_cannot_even_be_made_is_a_fault_of_it_alone() {
    let site = site_of(ON, ON, "");
    std::fs::remove_file(site.path("fence-plover")).unwrap();
    let output = site.check_live(&["--json"]);
    let document = json(&output);
    assert_eq!((output.status.code(), faults(&document, 0).as_str()), (Some(1), "[]"));
    assert!(faults(&document, 1).contains("fence-plover"), "{document}");
}

#[test]
fn a_configuration_that_is_refused_is_told_as_check_tells_it() {
    let site = Site::new();
    site.configure(&[]);
    let live = site.check_live(&[]);
    let plain = site.leasehold(&["check"]).output().unwrap();
    assert_eq!((live.status.code(), plain.status.code()), (Some(1), Some(1)));
    assert_eq!(stdout(&live), stdout(&plain));
}

#[test]
fn a_node_that_is_not_in_the_configuration_is_named_with_those_that_are() {
    let output = site_of(ON, ON, "").leasehold(&["check", "--live", "--node", "gull"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("\"gull\"") && stderr(&output).contains("\"plover\""), "{}", stderr(&output));
}

#[test]
fn options_of_the_live_check_alone_are_wrong_usage() {
    for option in [&["--json"][..], &["--node", "heron"]] {
        let args: Vec<&str> = ["check"].iter().chain(option).copied().collect();
        assert_eq!(Site::new().leasehold(&args).output().unwrap().status.code(), Some(1), "{option:?}");
    }
}

#[test]
fn a_wrong_password_of_a_real_bmc_is_found_and_not_shown() {
    let needs = [need::program("ipmi_sim"), need::program("ipmitool")];
    if !need::all("a_wrong_password_of_a_real_bmc_is_found_and_not_shown", &needs) {
        return;
    }
    let (heron, mut plover) = (Bmc::start(), Bmc::start());
    plover.set_guid(OTHER_GUID);
    let site = Site::new();
    site.configure(&[bmc_agent("heron", &heron), bmc_agent("plover", &plover)]);
    let fine = site.check_live(&[]);
    assert_eq!(fine.status.code(), Some(0), "{}{}", stdout(&fine), stderr(&fine));
    std::fs::write(plover.password_file(), "wr0ng-M4RK").unwrap();
    let output = site.check_live(&[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("bmc-plover: ") && text.contains("the BMC refuses the password"), "{text}");
    assert!(!text.contains("M4RK") && !stderr(&output).contains("M4RK"), "{text}");
    for bmc in [&heron, &plover] {
        assert!(bmc.calls().iter().all(|call| !call.contains("set power")), "{:?}", bmc.calls());
    }
    assert!(!text.contains(PASSWORD));
}

/// Not the one that a simulator shows unless it is told to.
const OTHER_GUID: &str = "4c4c454400423510805200b4c04f4d58";

/// Two addresses, one machine: no address that is compared could tell that.
#[test]
fn two_bmcs_that_name_one_machine_are_refused_on_both_agents() {
    let needs = [need::program("ipmi_sim"), need::program("ipmitool")];
    if !need::all("two_bmcs_that_name_one_machine_are_refused_on_both_agents", &needs) {
        return;
    }
    let (heron, plover) = (Bmc::start(), Bmc::start());
    let site = Site::new();
    site.configure(&[bmc_agent("heron", &heron), bmc_agent("plover", &plover)]);
    let output = site.check_live(&["--json"]);
    let document = json(&output);
    assert_eq!(output.status.code(), Some(1), "{document}");
    for (index, other) in [(0, "bmc-plover"), (1, "bmc-heron")] {
        assert!(faults(&document, index).contains(&format!("the one behind {other} as well")), "{document}");
        assert!(document["agents"][index]["identity"].is_string(), "{document}");
    }
}

fn bmc_agent(target: &str, bmc: &Bmc) -> String {
    let (port, file) = (bmc.port(), bmc.password_file());
    format!(
        "[[fence.agent]]\nname = \"bmc-{target}\"\ntarget = \"{target}\"\nkind = \"ipmi\"\naddress = \"127.0.0.1\"\n\
         port = {port}\nuser = \"admin\"\npassword_file = \"{}\"\ncipher_suite = 3\npoll = \"50ms\"\n\n",
        file.display()
    )
}

/// Beside a running daemon the peer is known to run: a device that calls it off is then the wrong one.
#[test]
fn beside_running_daemons_all_agents_of_both_nodes_are_looked_through() {
    let mut pair = pairs::build(pairs::plan(Timing::DEMO, Fencing::StandIn));
    pairs::start(&mut pair);
    for node in BOTH {
        let config = pair.world.home(node).join("leasehold.toml");
        let name = leasehold::cli::demo::world::name(node);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["check", "--live", "--json", "--node", name]).arg(&config).env_remove("LEASEHOLD_SOCKET");
        let output = command.output().unwrap();
        let document = json(&output);
        assert_eq!(output.status.code(), Some(0), "{document}");
        assert!(document["agents"].as_array().unwrap().iter().all(|a| a["state"] == "on"), "{document}");
    }
    let lying = pair.world.home(NodeId::First).join("lying.toml");
    let text = std::fs::read_to_string(pair.world.home(NodeId::First).join("leasehold.toml")).unwrap();
    let site = Site::new();
    let program = site.script("fence-plover", OFF);
    let (before, after) = text.split_once("name = \"bmc-plover\"").unwrap();
    let (keys, after) = after.split_once("\n[promote]").unwrap();
    let keys: String = keys
        .lines()
        .filter(|l| !l.starts_with("args") && !l.starts_with("program"))
        .fold(String::new(), |text, line| text + line + "\n");
    let program = program.display();
    let lie = format!("{before}name = \"bmc-plover\"{keys}program = \"{program}\"\n\n[promote]{after}");
    std::fs::write(&lying, lie).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let output = command.args(["check", "--live", "--json", "--node", "heron"]).arg(&lying).output().unwrap();
    let document = json(&output);
    assert_eq!(output.status.code(), Some(1), "{document}");
    assert!(faults(&document, 1).contains("reads off while plover runs"), "{document}");
}

// --- whose machine is it ------------------------------------------------------------------------------------------

const HERON: &str = "00112233-4455-6677-8899-aabbccddeeff";
/// The same machine as firmware of the other kind spells it (SMBIOS 7.2.1).
const HERON_SWAPPED: &str = "33221100-5544-7766-8899-aabbccddeeff";
/// And as a BMC may tell it, from the other end.
const HERON_REVERSED: &str = "ffeeddcc-bbaa-9988-7766-554433221100";
const PLOVER: &str = "4c4c4544-0042-3510-8052-b4c04f4d5831";

fn config() -> Config {
    config::load(&site_of(ON, ON, "").path("leasehold.toml")).unwrap_or_else(|e| panic!("{e}")).config
}

fn row(target: NodeId, identity: Option<&str>) -> Row {
    Row {
        name: format!("bmc-{}", site::NODES[target.index()]),
        kind: "redfish",
        target,
        level: 1,
        scope: Scope::Node,
        reading: Reading::On,
        identity: identity.map(str::to_owned),
        took: Span::from_ms(7),
        faults: Vec::new(),
        notes: Vec::new(),
    }
}

/// The judgement on a row for each node; heron looks, and knows these machines.
fn judged(known: [Option<&str>; 2], mut rows: [Row; 2]) -> [String; 2] {
    let uuid = |text: &str| leasehold::os::machine::uuid_given(text).expect("a UUID");
    let uuids: [Option<SystemUuid>; 2] = known.map(|text| text.map(uuid));
    judge(&config(), &Known { me: NodeId::First, uuids, peer_runs: true }, &mut rows);
    rows.map(|row| row.faults.into_iter().map(|fault| format!("{} -> {}\n", fault.text, fault.remedy)).collect())
}

fn rows(heron: Option<&str>, plover: Option<&str>) -> [Row; 2] {
    [row(NodeId::First, heron), row(NodeId::Second, plover)]
}

#[test]
fn each_node_behind_its_own_device_is_right() {
    for known in [[None, None], [Some(HERON), Some(PLOVER)]] {
        assert_eq!(judged(known, rows(Some(HERON), Some(PLOVER))), ["", ""]);
    }
    assert_eq!(judged([Some(HERON), None], rows(None, None)), ["", ""], "a device that names nobody proves nothing");
}

#[test]
fn an_agent_against_the_peer_that_controls_this_very_node_is_refused() {
    for own in [HERON, HERON_SWAPPED, HERON_REVERSED] {
        let [heron, plover] = judged([Some(HERON), None], rows(None, Some(own)));
        assert!(plover.contains("controls this node itself"), "{plover}");
        assert!(plover.contains("exchange the addresses") && heron.is_empty(), "{heron}");
    }
}

#[test]
fn crossed_cables_are_seen_on_both_agents() {
    let [heron, plover] = judged([Some(HERON), Some(PLOVER)], rows(Some(PLOVER), Some(HERON)));
    assert!(
        heron.contains("controls the other node") && plover.contains("controls this node itself"),
        "{heron}{plover}"
    );
}

#[test]
fn one_machine_behind_the_agents_of_both_nodes_is_refused() {
    for (one, other) in [(PLOVER, PLOVER), (HERON, HERON_SWAPPED), ("i-0abc", "i-0abc")] {
        let [heron, plover] = judged([None, None], rows(Some(one), Some(other)));
        assert!(heron.contains("behind bmc-plover as well") && plover.contains("behind bmc-heron as well"), "{heron}");
    }
}

#[test]
fn a_volume_is_rightly_the_same_for_both_nodes() {
    let mut same = rows(Some("vol-1"), Some("vol-1"));
    same.iter_mut().for_each(|row| (row.scope, row.reading) = (Scope::Resource, Reading::Off));
    assert_eq!(judged([Some(HERON), None], same), ["", ""]);
}

#[test]
fn an_identity_is_shortened_in_the_table_and_whoever_is_not_root_is_told_to_be() {
    let mut rows = rows(Some(HERON), None);
    let shown = |rows: &[Row], privilege| {
        let text = render(&config(), NodeId::First, rows, 120, privilege);
        text.replace("\x1b[0m", "")
    };
    let fine = shown(&rows, Privilege::User);
    assert!(fine.contains(" 00112233-445…  7ms") && !fine.contains("as root"), "{fine}");
    let fault = Fault { text: "the password file cannot be read".into(), remedy: "see the page".into() };
    rows[1].faults.push(fault);
    assert!(shown(&rows, Privilege::User).contains("run it as root"));
    assert!(!shown(&rows, Privilege::Root).contains("run it as root"));
}

/// Secrets and programs of fence agents belong to root: anybody else is told that in so many words.
#[test]
fn an_ordinary_user_is_told_what_is_out_of_reach_and_to_come_as_root() {
    if !need::all("an_ordinary_user_is_told_what_is_out_of_reach_and_to_come_as_root", &[need::root()]) {
        return;
    }
    let site = site_of(ON, ON, "");
    let program = site.path("leasehold");
    std::fs::copy(env!("CARGO_BIN_EXE_leasehold"), &program).unwrap();
    std::fs::set_permissions(site.path("."), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new(program);
    command.args(["check", "--live", "--node", "heron"]).arg(site.path("leasehold.toml")).env("COLUMNS", "200");
    let output = command.uid(54_321).gid(54_321).output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("ermission denied") && text.contains("run it as root"), "{text}");
}
