//! The storage server's arbiter: of two nodes that take at once exactly one wins, whatever dies in the middle.
//!
//! The record, its lock and the processes are real. The server behind is one in memory, or a stand-in for `exportfs`;
//! real servers are in `tests/agents_nfs.rs`.

#[path = "gate/access.rs"]
mod access;
#[path = "common/need.rs"]
mod need;
#[path = "gate/standin.rs"]
mod standin;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex};

use leasehold::gate::config::Node;
use leasehold::gate::protocol::{Answer, Op, Request, State, VERSION, Verdict};
use leasehold::gate::{Access, Backend, BackendError, Pending, arbiter};
use standin::{CLIENTS, GATE, Server};

/// As many as the contract asks for.
const ROUNDS: u64 = 1000;
const NODES: [&str; 2] = ["heron", "plover"];

/// A server in memory that notices if both nodes are ever let in.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    nodes: BTreeSet<String>,
    both: bool,
    changes: u64,
}

impl Backend for Memory {
    fn revoke<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        let mut inside = self.0.lock().unwrap();
        inside.changes += u64::from(inside.nodes.remove(&node.name));
        Box::pin(async { Ok(()) })
    }

    fn restore<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        let mut inside = self.0.lock().unwrap();
        inside.changes += u64::from(inside.nodes.insert(node.name.clone()));
        inside.both |= inside.nodes.len() > 1;
        Box::pin(async { Ok(()) })
    }

    fn access<'a>(&'a self, node: &'a Node) -> Pending<'a, Access> {
        let is_in = self.0.lock().unwrap().nodes.contains(&node.name);
        Box::pin(async move { if is_in { Access::Admitted } else { Access::Excluded } })
    }
}

fn request(node: usize, token: u64, seen: u64) -> Request {
    Request {
        version: VERSION,
        id: String::new(),
        gate: GATE.into(),
        op: Op::Take,
        node: Some(NODES[node].into()),
        token: Some(token),
        seen: Some(seen),
        limit_ms: None,
    }
}

/// The lowest token of this node above `seen`.
fn mint(node: usize, seen: u64) -> u64 {
    let next = seen.max(1) + 1;
    if next % 2 == node as u64 { next } else { next + 1 }
}

fn ask(server: &Server, memory: &Memory, request: &Request) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(arbiter::answer(&server.gates(), request, |_| Box::new(memory.clone())))
}

#[test]
fn of_two_nodes_that_take_at_the_same_instant_exactly_one_wins_a_thousand_times() {
    let (server, memory, start) = (Server::start(), Memory::default(), Barrier::new(2));
    let won = Mutex::new([0u64; 2]);
    let play = |me: usize| {
        // What both know: the highest token of the round before.
        let mut stored = 0;
        for round in 0..ROUNDS {
            let mine = request(me, mint(me, stored), stored);
            start.wait();
            let first = ask(&server, &memory, &mine);
            // Nobody asks again before both have been answered.
            start.wait();
            let highest = first.highest.unwrap();
            let winner = (highest % 2) as usize;
            let expected = if winner == me { Verdict::Taken } else { Verdict::Refused };
            assert_eq!((first.result, highest > stored), (expected, true), "round {round}: {first:?}");
            won.lock().unwrap()[me] += u64::from(winner == me);
            let before = memory.0.lock().unwrap().changes;
            start.wait();
            // The same again, late: the winner is told the same, the loser too, and nothing moves.
            let again = ask(&server, &memory, &mine);
            assert_eq!((again.result, again.highest), (first.result, first.highest), "round {round}");
            // From the round before, replayed.
            if stored > 0 {
                let old = ask(&server, &memory, &request((stored % 2) as usize, stored, stored));
                assert_eq!((old.result, old.highest), (Verdict::Refused, Some(highest)), "round {round}");
            }
            start.wait();
            let inside = memory.0.lock().unwrap();
            assert_eq!(inside.changes, before, "round {round}: a repeat changed something");
            assert_eq!(inside.nodes, BTreeSet::from([NODES[winner].to_owned()]), "round {round}");
            stored = highest;
        }
    };
    std::thread::scope(|scope| [0, 1].map(|me| scope.spawn(move || play(me))).map(|t| t.join().unwrap()));
    assert!(!memory.0.lock().unwrap().both, "both nodes were in at once");
    let won = *won.lock().unwrap();
    assert_eq!(won[0] + won[1], ROUNDS);
    println!("{ROUNDS} rounds: heron won {}, plover {}", won[0], won[1]);
}

#[test]
fn the_same_with_real_processes() {
    let server = Server::start();
    let mut stored = 0;
    for round in 0..25 {
        let answers = std::thread::scope(|scope| {
            let takes = [0, 1].map(|me| {
                scope.spawn({
                    let server = &server;
                    move || server.take(NODES[me], mint(me, stored), Some(stored)).unwrap()
                })
            });
            takes.map(|take| take.join().unwrap())
        });
        let winner = (answers[0].highest.unwrap() % 2) as usize;
        assert_eq!(answers[winner].result, Verdict::Taken, "round {round}: {answers:?}");
        assert_eq!(answers[1 - winner].result, Verdict::Refused, "round {round}: {answers:?}");
        assert_eq!(server.admitted(), [CLIENTS[winner]], "round {round}");
        stored = answers[winner].highest.unwrap();
    }
}

/// A take calls `exportfs` seven times: it lists, un-exports, flushes, lists to see the peer out, exports, and lists for
/// both.
const CALLS: usize = 7;

#[test]
fn whatever_a_killed_gate_left_undone_the_next_call_finishes() {
    let server = Server::start();
    let mut stored = server.take("heron", 2, Some(0)).unwrap().highest.unwrap();
    let points = (1..=CALLS).flat_map(|call| ["before", "after"].map(|when| (call, when)));
    for (turn, (call, when)) in points.flat_map(|point| [0, 1, 2].map(|next| (next, point))) {
        // Whoever is out takes, and dies.
        let (owner, other) = ((stored % 2) as usize, 1 - (stored % 2) as usize);
        let token = mint(other, stored);
        let point = format!("killed {when} call {call}, then {turn}");
        server.kill_at(call, when);
        assert!(server.take(NODES[other], token, Some(stored)).is_none(), "{point}: the gate was to die");
        let left = server.status();
        assert_eq!((left.highest, left.phase.as_deref()), (Some(token), Some("taking")), "{point}");
        let (expected, result, winner) = match turn {
            // The same take again.
            0 => (Verdict::Taken, server.take(NODES[other], token, Some(stored)), other),
            // A stale take of the former owner: refused, and locked out for good.
            1 => (Verdict::Refused, server.take(NODES[owner], mint(owner, token), Some(stored)), other),
            // The former owner has heard of the token, and takes in its turn.
            _ => (Verdict::Taken, server.take(NODES[owner], mint(owner, token), Some(token)), owner),
        };
        let result = result.unwrap();
        assert_eq!(result.result, expected, "{point}: {result:?}");
        assert_eq!(server.admitted(), [CLIENTS[winner]], "{point}");
        let markers: Vec<_> =
            server.persistent().lines().filter(|l| l.starts_with("# admits")).map(str::to_owned).collect();
        assert_eq!(markers, [format!("# admits {}", NODES[winner])], "{point}");
        assert_eq!(server.status().phase.as_deref(), Some("held"), "{point}");
        stored = result.highest.unwrap();
    }
}

#[test]
fn a_step_of_a_killed_gate_that_still_hangs_keeps_the_lock() {
    let server = Server::start();
    server.take("heron", 2, Some(0)).unwrap();
    let hang = server.path("hang");
    standin::pipe(&hang);
    server.write("calls", "");
    let token = ["take", "--gate", GATE, "--node", "plover", "--token", "3", "--seen", "2"];
    let mut gate = server.command(&token).spawn().unwrap();
    // The script is in its `-u` as soon as it has said so.
    while !server.read("calls").lines().any(|call| call.starts_with("-u")) {
        std::thread::yield_now();
    }
    gate.kill().unwrap();
    gate.wait().unwrap();
    let late = r#"{"version":1,"gate":"estuary","op":"take","node":"heron","token":4,"seen":3,"limit_ms":300}"#;
    let (answer, code) = server.serve(&format!("{late}\n"));
    assert_eq!((answer.result, code), (Verdict::Error, Some(1)), "{answer:?}");
    assert!(answer.text.contains("the lock"), "{answer:?}");
    standin::let_go(&hang);
    fs::remove_file(&hang).unwrap();
    assert_eq!(server.take("heron", 4, Some(3)).unwrap().result, Verdict::Taken);
    assert_eq!(server.admitted(), [CLIENTS[0]]);
}

#[test]
fn a_token_of_the_wrong_parity_is_an_error_and_no_take() {
    let server = Server::start();
    let answer = server.take("heron", 3, None).unwrap();
    assert!(answer.result == Verdict::Error && answer.text.contains("in the order of leasehold.toml"), "{answer:?}");
    assert_eq!((server.status().highest, server.read("calls").contains("-u")), (Some(0), false));
}

#[test]
fn a_release_needs_the_owners_stored_token_and_a_take_ends_it() {
    let server = Server::start();
    let release = |node: &str, token: &str| {
        server.gate(&["release", "--gate", GATE, "--node", node, "--token", token, "--json"]).status.code()
    };
    assert_eq!(server.take("heron", 2, Some(0)).unwrap().result, Verdict::Taken);
    assert_eq!((release("plover", "3"), release("heron", "4")), (Some(3), Some(3)));
    assert_eq!(server.admitted(), [CLIENTS[0]]);
    assert_eq!(release("heron", "2"), Some(0));
    assert_eq!((server.admitted().len(), server.status().phase.as_deref()), (2, Some("shared")));
    assert_eq!(server.take("plover", 3, Some(2)).unwrap().result, Verdict::Taken);
    assert_eq!(release("heron", "2"), Some(3));
    assert_eq!(server.admitted(), [CLIENTS[1]]);
}

#[test]
fn a_missing_or_damaged_record_refuses_with_the_way_out_and_one_bad_copy_loses_nothing() {
    let server = Server::start();
    server.take("heron", 2, Some(0)).unwrap();
    let whole = fs::read(server.record()).unwrap();
    let spoil = |place: u64| {
        let file = fs::OpenOptions::new().write(true).open(server.record()).unwrap();
        file.write_all_at(b"rot", place * 4096 + 30).unwrap();
    };
    for place in [0, 1] {
        spoil(place);
        assert_eq!(server.status().highest, Some(2), "copy {place} is rotten");
        fs::write(server.record(), &whole).unwrap();
    }
    for (what, bytes) in [("emptied", &b""[..]), ("cut", &whole[..5000]), ("zeros", &[0; 8192])] {
        fs::write(server.record(), bytes).unwrap();
        let answer = server.take("plover", 3, Some(2)).unwrap();
        assert!(answer.result == Verdict::Error && answer.text.contains("--highest"), "{what}: {answer:?}");
    }
    spoil(0);
    fs::remove_file(server.record()).unwrap();
    let answer = server.take("plover", 3, Some(2)).unwrap();
    assert!(answer.result == Verdict::Error && answer.text.contains("gate init"), "{answer:?}");
    assert_eq!(server.admitted(), [CLIENTS[0]]);
    // The way out, and no second one beside it.
    let init = || server.gate(&["init", "--gate", GATE, "--highest", "2"]).status.success();
    assert!(init() && !init());
    assert_eq!(server.take("heron", 2, None).unwrap().result, Verdict::Refused);
    assert_eq!(server.take("plover", 3, Some(2)).unwrap().result, Verdict::Taken);
}

#[test]
fn a_record_of_nodes_in_another_order_is_not_used() {
    let server = Server::start();
    let names = [("\"heron\"", "\"owl\""), ("\"plover\"", "\"heron\""), ("\"owl\"", "\"plover\"")];
    let config = names.iter().fold(server.read("gate.toml"), |config, (from, to)| config.replace(from, to));
    server.write("gate.toml", &config);
    let answer = server.take("plover", 2, Some(0)).unwrap();
    assert!(answer.result == Verdict::Error && answer.text.contains("in this order"), "{answer:?}");
}

/// Fails every fdatasync of the process while the file exists.
const SHIM: &str = r#"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int fd) { (void)fd; if (access(getenv("FAIL_SYNC"), F_OK) == 0) { errno = EIO; return -1; } return 0; }
"#;

#[test]
fn nothing_is_revoked_on_the_word_of_a_sync_that_failed() {
    let name = "nothing_is_revoked_on_the_word_of_a_sync_that_failed";
    if !need::all(name, &[need::program("gcc")]) {
        return;
    }
    let server = Server::start();
    server.take("heron", 2, Some(0)).unwrap();
    server.write("shim.c", SHIM);
    let (source, shim) = (server.path("shim.c"), server.path("shim.so"));
    assert!(Command::new("gcc").args(["-shared", "-fPIC", "-o"]).args([&shim, &source]).status().unwrap().success());
    server.write("fail", "");
    fs::rename(server.path("fail"), server.path("bad-disk")).unwrap();
    server.write("calls", "");
    let mut take =
        server.command(&["take", "--gate", GATE, "--node", "plover", "--token", "3", "--seen", "2", "--json"]);
    let output = take.env("LD_PRELOAD", &shim).env("FAIL_SYNC", server.path("bad-disk")).output().unwrap();
    let answer: Answer = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer.result == Verdict::Error && answer.text.contains("write the record"), "{answer:?}");
    assert_eq!((server.read("calls"), server.admitted()), (String::new(), vec![CLIENTS[0].to_owned()]));
    // On a good disk again: whatever of the two the medium holds, the same take wins.
    assert_eq!(server.take("plover", 3, Some(2)).unwrap().result, Verdict::Taken);
}

#[test]
fn a_line_that_is_no_question_is_answered_with_the_reason() {
    let server = Server::start();
    for (line, word) in [
        ("", "one line of JSON"),
        ("\n", "one line of JSON"),
        ("take it\n", "one line of JSON"),
        ("{\"version\":9}\n", "same version"),
        ("{\"version\":1,\"gate\":\"estuary\",\"op\":\"take\",\"force\":true}\n", "unknown field"),
        ("{\"version\":1,\"gate\":\"estuary\",\"op\":\"take\"}\n", "needs `node`"),
        ("{\"version\":1,\"gate\":\"other\",\"op\":\"status\"}\n", "there are: estuary"),
        ("{\"version\":1,\"gate\":\"estuary\",\"op\":\"take\",\"node\":\"owl\",\"token\":2}\n", "no node"),
        (&" ".repeat(9000), "longer than"),
    ] {
        let (answer, code) = server.serve(line);
        assert!(answer.text.contains(word), "{line}: {answer:?}");
        assert_eq!((answer.result, code), (Verdict::Error, Some(1)), "{line}");
    }
    let (answer, code) = server.serve("{\"version\":1,\"id\":\"77\",\"gate\":\"estuary\",\"op\":\"status\"}\n");
    assert_eq!((answer.id.as_str(), answer.result, code), ("77", Verdict::Status, Some(0)));
    assert!(answer.access.iter().all(|node| node.state == State::Excluded), "{answer:?}");
}

/// The blocks of TOML in a page.
fn samples(page: &str) -> Vec<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    let text = fs::read_to_string(path).expect("the page");
    text.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_samples_of_the_pages_are_accepted() {
    let gate = &samples("gate.md")[0];
    leasehold::gate::config::Gates::parse(gate).unwrap_or_else(|findings| panic!("{findings:?}"));
    let agents = &samples("agents/nfs-export.md")[0];
    let text = format!(
        "[cluster]\nname = \"estuary\"\nkey = \"/etc/leasehold/key\"\ndata = \"shared\"\n\
         [[node]]\nname = \"heron\"\n[[node]]\nname = \"plover\"\n\
         [[link]]\nname = \"lan\"\naddresses = {{ heron = \"192.0.2.1\", plover = \"192.0.2.2\" }}\n\
         [[link]]\nname = \"cross\"\naddresses = {{ heron = \"198.51.100.1\", plover = \"198.51.100.2\" }}\n\
         [guard]\nwatchdog = \"auto\"\n{agents}\
         [[resource]]\nname = \"gauges\"\nkind = \"exec\"\nstart = [\"/usr/local/bin/gauges\"]\n"
    );
    let checked = leasehold::config::parse("leasehold.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(checked.config.fence.plan, leasehold::core::Plan::Exclusive);
    assert!(checked.config.fence.agents.iter().all(|agent| agent.kind.takes()));
}
