//! The guard's hold on the network: when the daemon is dead, or stands still, and the lease runs out, the clients are cut,
//! the service is killed and its address is gone, all seen by the guard itself, so that nothing has to be reset.

#[allow(dead_code)]
#[path = "cut/daemons.rs"]
mod daemons;
#[path = "common/need.rs"]
mod need;
#[allow(dead_code)]
#[path = "cut/net.rs"]
mod net;
#[path = "common/page.rs"]
mod shared_page;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold::control::Role;
use leasehold::core::{Instant, NodeId};
use leasehold::os::clock;
use leasehold::os::shared::{Fired, Shared};
use rustix::process::{Signal, kill_process};

use daemons::{Daemons, Rights, name, until};
use net::{CLIENT, answers, error};
use shared_page::{page_in, said, told};

const PORT: u16 = 7000;
const OTHER: u16 = 7001;
/// The service would take that long.
const STOP: Duration = Duration::from_secs(1);
const ADDRESS: &str = "10.77.0.9";
const NODES: [NodeId; 2] = [NodeId::First, NodeId::Second];

/// A guard that resets nothing.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// With an address below the service, and a guard on each node.
fn configuration(text: String) -> String {
    let address = format!(
        "[[resource]]\nname = \"address\"\nkind = \"address\"\naddress = \"{ADDRESS}/24\"\ninterface = \"eth0\"\n\
         probe = false\n\n[[resource]]\nname = \"server\""
    );
    let guarded = text.replace("process = \"none\"", "process = \"required\"");
    guarded.replace("[[resource]]\nname = \"server\"", &address)
}

fn guard(daemons: &Daemons, node: NodeId) -> Guard {
    let home = daemons.path(name(node));
    let log = File::create(home.join("guard.log")).expect("a log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["guard", "--boot-id", &boot(node), "--runtime"]).arg(home.join("run"));
    command.arg("--on-reset").arg(home.join("reset")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Guard(daemons.net.within(name(node), move || command.spawn().expect("a guard")))
}

fn boot(node: NodeId) -> String {
    format!("{:08x}-0000-4000-8000-000000000001", node.index() + 1)
}

fn page(daemons: &Daemons, node: NodeId) -> Shared {
    page_in(&daemons.path(name(node)).join("run"))
}

/// A pair that serves, and its primary.
fn started() -> (Daemons, [Guard; 2], NodeId) {
    let mut daemons = Daemons::edited(STOP, configuration);
    let guards = NODES.map(|node| guard(&daemons, node));
    NODES.into_iter().for_each(|node| daemons.start(node, Rights::All));
    let primary = daemons.until_whole();
    (daemons, guards, primary)
}

fn ends_without_a_reset(signal: Signal) {
    let (daemons, _guards, primary) = started();
    let on_node = || daemons.net.run(name(primary), &["ip", "-o", "address"]);
    assert!(on_node().contains(ADDRESS), "{}", on_node());
    let mut client = daemons.net.connect(CLIENT, &format!("{ADDRESS}:{PORT}"));
    let page = page(&daemons, primary);

    daemons.isolate(primary);
    kill_process(daemons.pid(primary), signal).expect("it runs");
    assert_eq!(error(&mut client).0, ErrorKind::ConnectionReset, "a client in the middle of its work learns of it");
    until("the guard has seen that nothing is left", || (said(&page).fired == Fired::Proven).then_some(()));
    assert!(!on_node().contains(ADDRESS), "{}", on_node());
    let told = told(&page);
    until("it looked beyond the reset point", || {
        (said(&page).alive_at > told.deadline.after(told.reset_after)).then_some(())
    });
    let log = fs::read_to_string(daemons.path(name(primary)).join("guard.log")).expect("a log");
    let reset = fs::read_to_string(daemons.path(name(primary)).join("reset")).unwrap_or_default();
    assert_eq!(reset, "", "{log}");
    assert_eq!(said(&page).fired, Fired::Proven, "{log}");
    assert!(clock::now() > told.deadline && !on_node().contains(ADDRESS));
    assert!(daemons.tables(primary).contains("elements = { 6, 17 }") || daemons.tables(primary).contains("tcp, udp"));
}

/// Asks the service again and again over one connection, until it is told to end; how often it was answered.
fn client_at_work(daemons: &Daemons, done: Arc<AtomicBool>) -> JoinHandle<u32> {
    let mut stream = daemons.net.connect(CLIENT, &format!("{ADDRESS}:{PORT}"));
    std::thread::spawn(move || {
        let mut count = 0;
        while !done.load(Ordering::SeqCst) {
            assert!(answers(&mut stream), "a request failed after {count} that did not");
            count += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        count
    })
}

fn leasehold(daemons: &Daemons, node: NodeId, words: &[&str]) -> (Option<i32>, String) {
    let socket = daemons.path(name(node)).join("control.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold")).arg("--socket").arg(socket).args(words).output();
    let output = output.expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn kept_resources_serve_on_without_a_daemon_beyond_every_lease_and_the_next_daemon_goes_on_with_them() {
    let test = "kept_resources_serve_on_without_a_daemon_beyond_every_lease_and_the_next_daemon_goes_on_with_them";
    if !can_run(test) {
        return;
    }
    let (mut daemons, _guards, primary) = started();
    let (standby, page) = (primary.peer(), page(&daemons, primary));
    let done = Arc::new(AtomicBool::new(false));
    let client = client_at_work(&daemons, Arc::clone(&done));
    let before = told(&page);
    let (code, text) = leasehold(&daemons, standby, &["stop", "--keep-resources"]);
    assert!(code == Some(3) && text.contains("not the primary"), "{code:?} {text}");

    let (code, text) = leasehold(&daemons, primary, &["stop", "--keep-resources"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Its resources are UP") && text.contains("leasehold thaw"), "{text}");
    assert_eq!(daemons.ended(primary).code(), Some(79), "the unit must not start it again");
    let kept = told(&page);
    assert_eq!((kept.deadline, kept.token), (Instant::NEVER, before.token));
    let beyond = clock::now().after(before.right).after(before.reset_after);
    until("every lease would have ended", || (clock::now() > beyond).then_some(()));
    let peer = daemons.status(standby).expect("it runs");
    assert!(peer.me.role == Role::Standby && peer.frozen, "{peer:?}");
    assert_eq!(said(&page).fired, Fired::No);

    daemons.start(primary, Rights::All);
    let status = until("it goes on", || daemons.status(primary).filter(|status| status.me.role == Role::Primary));
    assert!(status.frozen && status.me.token == Some(before.token.0), "{status:?}");
    until("its lease has an end again", || (told(&page).deadline < Instant::NEVER).then_some(()));
    until("thawed", || (leasehold(&daemons, primary, &["thaw"]).0 == Some(0)).then_some(()));
    assert_eq!(daemons.until_whole(), primary);
    done.store(true, Ordering::SeqCst);
    println!("a client was answered {} times over all of it", client.join().expect("no request failed"));
    let reset = fs::read_to_string(daemons.path(name(primary)).join("reset")).unwrap_or_default();
    assert_eq!(reset, "");
}

fn can_run(test: &str) -> bool {
    need::all(test, &[need::root(), need::program("ip"), need::program("nft"), need::program("python3")])
}

#[test]
fn a_daemon_that_is_killed_leaves_no_client_no_address_and_no_process_and_the_node_stays_up() {
    if can_run("a_daemon_that_is_killed_leaves_no_client_no_address_and_no_process_and_the_node_stays_up") {
        ends_without_a_reset(Signal::KILL);
    }
}

#[test]
fn a_daemon_that_stands_still_leaves_no_client_no_address_and_no_process_and_the_node_stays_up() {
    if can_run("a_daemon_that_stands_still_leaves_no_client_no_address_and_no_process_and_the_node_stays_up") {
        ends_without_a_reset(Signal::STOP);
    }
}
