//! The iSCSI gates: a real tgtd with libiscsi initiators that write through the revocation, and LIO by a stand-in for
//! its configfs and `targetcli` (LIO needs kernel modules that the test machines do not have).

#[path = "iscsi/lab.rs"]
mod iscsi;
#[path = "common/need.rs"]
mod need;

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use iscsi::Server;
use leasehold::config;
use leasehold::core::{NodeId, Seen, Take, TakeResult, Token};
use leasehold::fence::FencePlan;
use leasehold::gate::config::Gates;
use leasehold::gate::protocol::{Answer, State, Verdict};
use leasehold::gate::{Access, Backend, backend, store};

fn ready(test: &str) -> bool {
    let programs = ["tgtd", "tgtadm", "tgt-admin", "gcc"].map(need::program);
    let library = need::file("/usr/include/iscsi/iscsi.h");
    need::all(test, &programs.into_iter().chain([library, need::root()]).collect::<Vec<_>>())
}

fn states(answer: &Answer) -> Vec<(String, State)> {
    let mut states: Vec<_> = answer.access.iter().map(|a| (a.node.clone(), a.state)).collect();
    states.sort_by(|a, b| a.0.cmp(&b.0));
    states
}

fn only(node: &str) -> Vec<(String, State)> {
    let state = |name: &str| if name == node { State::Admitted } else { State::Excluded };
    ["heron", "plover"].map(|name| (name.to_owned(), state(name))).to_vec()
}

async fn taken(server: &Server, node: &str, token: u64) -> Answer {
    let answer = server.ask("take", node, token).await;
    assert_eq!((answer.result, states(&answer)), (Verdict::Taken, only(node)), "{answer:?}");
    answer
}

/// The plan of a node against its peer, over the gate's own program in place of ssh.
fn plan(server: &Server, me: NodeId) -> FencePlan {
    let (program, gate) = (env!("CARGO_BIN_EXE_leasehold"), server.at("gate.toml").display().to_string());
    let keys =
        format!("gate = \"estuary\"\ncommand = [{program:?}, \"gate\", \"serve\", \"--gate-config\", {gate:?}]\n");
    let agent = |target: &str| {
        format!("[[fence.agent]]\nname = \"disk-{target}\"\ntarget = \"{target}\"\nkind = \"iscsi-acl\"\n{keys}")
    };
    FencePlan::new(&parsed(&(agent("heron") + &agent("plover"))).config, me).unwrap()
}

/// A configuration with these agents.
fn parsed(agents: &str) -> config::Checked {
    let around = include_str!("config/take_on_one_agent_only.toml");
    let (head, rest) = around.split_once("[[fence.agent]]").unwrap();
    let (_, tail) = rest.split_once("[[resource]]").unwrap();
    config::parse("sample", &format!("{head}{agents}[[resource]]{tail}")).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn the_sample_of_the_page_is_accepted() {
    let page = include_str!("../docs/agents/iscsi-acl.md");
    let samples: Vec<_> = page.split("```toml").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [node, tgt, lio] = samples[..] else { panic!("{} samples", samples.len()) };
    parsed(node);
    for gate in [tgt, lio] {
        Gates::parse(gate).unwrap();
    }
}

#[tokio::test]
async fn the_next_write_fails_none_lands_after_the_confirmation_and_the_survivor_goes_on() {
    if !ready("the_next_write_fails_none_lands_after_the_confirmation_and_the_survivor_goes_on") {
        return;
    }
    let mut server = Server::start();
    taken(&server, "heron", 2).await;
    let mut token = 2;
    for (loser, winner) in [("heron", "plover"), ("plover", "heron"), ("heron", "plover"), ("plover", "heron")] {
        let released = server.ask("release", loser, token).await;
        assert_eq!(released.result, Verdict::Released, "{released:?}");
        let [mut losing, mut winning] = [loser, winner].map(|node| server.initiator(node));
        for initiator in [&mut losing, &mut winning] {
            assert_eq!(initiator.line(), "login ok");
            initiator.writes(50);
        }
        let (me, seen) = (if winner == "heron" { NodeId::First } else { NodeId::Second }, Seen::AtMost(Token(token)));
        token += 1;
        let (result, evidence) = plan(&server, me).take(Take { new: Token(token), seen }).await;
        assert_eq!(result, TakeResult::Taken, "{evidence:?}");
        let confirmed = server.part(loser);
        let (last, failed, again) = losing.end();
        assert!(last >= 50 && failed.contains("failed"), "{last} {failed}");
        assert!(again.starts_with("again failed: ") && again.contains("Target not found"), "{again}");
        // Long after: the survivor has written hundreds of blocks meanwhile.
        winning.writes(500);
        assert!(confirmed == server.part(loser), "a write of {loser} landed after the confirmation");
        let late = Take { new: Token(token + 1), seen: Seen::AtMost(Token(token - 1)) };
        let refused = TakeResult::Refused { highest: Token(token) };
        assert_eq!(plan(&server, me.peer()).take(late).await.0, refused, "the loser, with what it knew");
        let text = format!("iqn.2026-01.test:{loser} wrote {last}\0");
        assert!(confirmed.windows(text.len()).any(|w| w == text.as_bytes()), "the last good write is on the disk");
    }
    server.restart();
    assert_eq!(server.initiator("heron").line(), "login ok", "the winner, after a restart of the server");
    assert!(server.initiator("plover").line().contains("login failed"), "the loser");
    assert_eq!(states(&server.ask("status", "heron", token).await), only("heron"));
}

#[tokio::test]
async fn what_lets_in_everybody_is_no_exclusion_and_is_removed_by_the_take() {
    if !ready("what_lets_in_everybody_is_no_exclusion_and_is_removed_by_the_take") {
        return;
    }
    let server = Server::start();
    taken(&server, "heron", 2).await;
    for address in ["ALL", "192.0.2.7"] {
        server.tgtadm(&format!("--op bind --mode target --tid 1 -I {address}"));
        let answer = server.ask("status", "heron", 2).await;
        assert!(answer.access.iter().all(|a| a.state == State::Unknown), "{answer:?}");
        assert!(format!("{answer:?}").contains(&format!("lets in {address}")), "{answer:?}");
        taken(&server, "heron", 2).await;
    }
    // One more name of the same node in tgtd, but not in the file.
    server.tgtadm("--op bind --mode target --tid 1 -Q IQN.2026-01.test:PLOVER");
    let answer = server.ask("status", "heron", 2).await;
    assert!(format!("{answer:?}").contains("tgtd lets in 1 of 1 initiators of plover"), "{answer:?}");
    taken(&server, "heron", 2).await;
}

#[tokio::test]
async fn a_file_that_would_let_the_peer_in_at_the_next_start_is_no_exclusion() {
    if !ready("a_file_that_would_let_the_peer_in_at_the_next_start_is_no_exclusion") {
        return;
    }
    let server = Server::start();
    let other = server.at("conf.d/other.conf");
    fs::write(&other, format!("<target {}>\n    initiator-address ALL\n</target>\n", iscsi::TARGET)).unwrap();
    let answer = server.ask("take", "heron", 2).await;
    assert_eq!(answer.result, Verdict::Unverified, "{answer:?}");
    assert!(answer.text.contains("`initiator-address ALL`"), "{answer:?}");
    fs::remove_file(other).unwrap();
    fs::write(server.at("targets.conf"), "").unwrap();
    let answer = server.ask("take", "heron", 2).await;
    assert!(answer.text.contains("a restart would forget it"), "{answer:?}");
}

#[tokio::test]
async fn a_login_that_is_under_way_is_waited_for() {
    if !ready("a_login_that_is_under_way_is_waited_for") {
        return;
    }
    let server = Server::start();
    let half = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let answer = server.ask("take", "heron", 2).await;
    assert_eq!(answer.result, Verdict::Unverified, "{answer:?}");
    assert!(answer.text.contains("127.0.0.1 is connected without a session"), "{answer:?}");
    drop(half);
    taken(&server, "heron", 2).await;
}

#[tokio::test]
async fn tools_that_misbehave_prove_nothing() {
    if !ready("tools_that_misbehave_prove_nothing") {
        return;
    }
    let rows = [
        ("says OK and unbinds nothing", "case \"$*\" in *unbind*) exit 0 ;; esac", "lets in 1 of 1"),
        ("says OK and closes nothing", "case \"$*\" in *'delete --mode conn'*) exit 0 ;; esac", "does not close"),
        ("refuses", "case \"$*\" in *unbind*) echo no >&2; exit 22 ;; esac", "ended with status 22: no"),
        (
            "half a list",
            "case \"$*\" in *show*) /usr/sbin/tgtadm \"$@\" | head -5; exit 0 ;; esac",
            "ends in the middle",
        ),
        ("garbage", "echo fish; exit 0", "not understood"),
        ("dies", "kill -9 $$", "died of signal 9"),
        ("hangs", "case \"$*\" in *show*) sleep 1000 ;; esac", "took longer than"),
        ("no end", "case \"$*\" in *show*) exec yes ;; esac", ""),
    ];
    let mut running = tokio::task::JoinSet::new();
    for (name, script, words) in rows {
        running.spawn(misbehave(name, script, words));
    }
    while let Some(row) = running.join_next().await {
        row.unwrap();
    }
}

/// heron is in and connected; plover's take must not be believed.
async fn misbehave(name: &'static str, script: &'static str, words: &'static str) {
    let server = Server::start();
    taken(&server, "heron", 2).await;
    let mut heron = server.initiator("heron");
    assert_eq!(heron.line(), "login ok");
    heron.writes(1);
    let program = server.at("tgtadm");
    fs::write(&program, format!("#!/bin/bash\n{script}\nexec /usr/sbin/tgtadm \"$@\"\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    server.gate(&format!("program = \"{}\"", program.display()));
    let answer = server.ask("take", "plover", 3).await;
    assert_eq!(answer.result, Verdict::Unverified, "{name}: {answer:?}");
    assert!(format!("{answer:?}").contains(words), "{name}: no {words:?} in {answer:?}");
    // With the tool as it should be, the same take goes on from there.
    server.gate("");
    taken(&server, "plover", 3).await;
    let line = server.initiator("heron").line();
    assert!(line.starts_with("login failed: "), "{name}: {line}");
}

const LIO: &str = "iqn.2026-01.test:lio";

/// A stand-in for what LIO shows in configfs, with a `targetcli` that changes it.
struct Lio(tempfile::TempDir);

impl Lio {
    fn new() -> Lio {
        let lio = Lio(tempfile::tempdir().unwrap());
        let group = lio.group();
        fs::create_dir_all(group.join("attrib")).unwrap();
        fs::create_dir_all(group.join("acls")).unwrap();
        fs::write(group.join("attrib/generate_node_acls"), "0\n").unwrap();
        fs::write(group.join("dynamic_sessions"), "").unwrap();
        lio.targetcli("");
        let text = format!(
            "state = \"{dir}/state\"\n[[gate]]\nname = \"estuary\"\nkind = \"lio\"\ntarget = \"{LIO}\"\nconfigfs = \"{dir}/configfs\"\n\
             saved = \"{dir}/saveconfig.json\"\nprogram = \"{dir}/targetcli\"\n\
             node = [{{ name = \"heron\", initiators = [\"iqn.x:heron\", \"iqn.x:heron2\"] }}, \
             {{ name = \"plover\", initiators = [\"iqn.x:plover\"] }}]\n",
            dir = lio.0.path().display()
        );
        fs::write(lio.0.path().join("gate.toml"), text).unwrap();
        let gates = lio.gates();
        store::create(&gates.state, gates.gate("estuary").unwrap(), Token::NONE).unwrap();
        lio
    }

    fn group(&self) -> std::path::PathBuf {
        self.0.path().join("configfs/iscsi").join(LIO).join("tpgt_1")
    }

    /// Knows `PATH create NAME OPTION`, `PATH delete NAME` and `saveconfig`.
    fn targetcli(&self, before: &str) {
        let script = format!(
            r#"#!/bin/bash
cd {dir} || exit 1
acls=configfs/iscsi/{LIO}/tpgt_1/acls
{before}
case $2 in
    create) mkdir "$acls/$3" ;;
    delete) rmdir "$acls/$3" ;;
    *) entries=$(ls $acls | sed 's/.*/{{"node_wwn":"&"}}/' | paste -sd,)
       echo '{{"targets":[{{"wwn":"{LIO}","fabric":"iscsi","tpgs":[{{"tag":1,"attributes":{{"generate_node_acls":0}},"node_acls":['"$entries"']}}]}}]}}' > saveconfig.json ;;
esac
"#,
            dir = self.0.path().display()
        );
        fs::write(self.0.path().join("targetcli"), script).unwrap();
        fs::set_permissions(self.0.path().join("targetcli"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn gates(&self) -> Gates {
        Gates::load(&self.0.path().join("gate.toml")).unwrap()
    }

    async fn ask(&self, op: &str, node: &str, token: u64) -> Answer {
        iscsi::ask(&self.0.path().join("gate.toml"), op, node, token).await
    }

    async fn access(&self, node: usize) -> Access {
        let gates = self.gates();
        let gate = gates.gate("estuary").unwrap();
        let lio: Box<dyn Backend> = backend(gate);
        lio.access(&gate.nodes[node]).await
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.group().join(file), text).unwrap();
    }
}

#[tokio::test]
async fn lio_lets_in_the_winner_alone_now_and_after_a_restart() {
    let lio = Lio::new();
    for (node, token, entries) in [("heron", 2, "heron"), ("plover", 3, "plover"), ("heron", 4, "heron")] {
        let answer = lio.ask("take", node, token).await;
        assert_eq!((answer.result, states(&answer)), (Verdict::Taken, only(node)), "{answer:?}");
        let saved = fs::read_to_string(lio.0.path().join("saveconfig.json")).unwrap();
        let other = if entries == "heron" { "iqn.x:plover" } else { "iqn.x:heron" };
        assert!(saved.contains(entries) && !saved.contains(other), "{saved}");
    }
    assert!(Path::new(&lio.group().join("acls/iqn.x:heron2")).is_dir());
}

#[tokio::test]
async fn lio_proves_nothing_that_it_does_not_show() {
    let lio = Lio::new();
    assert_eq!(lio.ask("take", "heron", 2).await.result, Verdict::Taken);
    assert_eq!(lio.access(1).await, Access::Excluded);
    let unknown = async |words: &str| {
        let access = lio.access(1).await;
        assert!(matches!(&access, Access::Unknown(why) if why.contains(words)), "{access:?}");
    };
    lio.write("attrib/generate_node_acls", "1\n");
    unknown("demo mode").await;
    lio.write("attrib/generate_node_acls", "0\n");
    lio.write("dynamic_sessions", "iqn.x:PLOVER\n\0");
    unknown("has a session without an entry").await;
    lio.write("dynamic_sessions", "iqn.x:somebody\n\0");
    assert_eq!(lio.access(1).await, Access::Excluded);
    let second = lio.group().with_file_name("tpgt_2");
    fs::create_dir_all(second.join("acls/iqn.x:plover")).unwrap();
    fs::create_dir_all(second.join("attrib")).unwrap();
    fs::write(second.join("attrib/generate_node_acls"), "0\n").unwrap();
    fs::write(second.join("dynamic_sessions"), "").unwrap();
    unknown("another portal group").await;
    fs::remove_dir_all(second).unwrap();
    let saved = lio.0.path().join("saveconfig.json");
    let text = fs::read_to_string(&saved).unwrap();
    fs::write(&saved, text.replace("iqn.x:heron2", "iqn.x:plover")).unwrap();
    unknown("saveconfig.json says Admitted").await;
    fs::write(&saved, &text[..text.len() / 2]).unwrap();
    unknown("saveconfig.json").await;
    fs::write(&saved, text).unwrap();
    fs::remove_dir_all(lio.group().join("acls")).unwrap();
    unknown("acls").await;
}

#[tokio::test]
async fn a_targetcli_that_misbehaves_proves_nothing() {
    for (before, words) in [
        ("[ \"$2\" = delete ] && exit 0", "is in"),
        ("[ \"$2\" = delete ] && { echo busy >&2; exit 1; }", "ended with status 1: busy"),
        ("[ \"$1\" = saveconfig ] && exit 0", "saveconfig.json says Admitted"),
        ("kill -9 $$", "died of signal 9"),
    ] {
        let lio = Lio::new();
        assert_eq!(lio.ask("take", "heron", 2).await.result, Verdict::Taken);
        lio.targetcli(before);
        let answer = lio.ask("take", "plover", 3).await;
        assert_eq!(answer.result, Verdict::Unverified, "{before}: {answer:?}");
        assert!(format!("{answer:?}").contains(words), "{before}: {answer:?}");
        lio.targetcli("");
        assert_eq!(lio.ask("take", "plover", 3).await.result, Verdict::Taken);
    }
}
