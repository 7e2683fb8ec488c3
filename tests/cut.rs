//! Clients are cut at once: refused, reset, told apart from everyone else. In network namespaces, with real sockets.

#[path = "cut/daemons.rs"]
mod daemons;
#[path = "common/need.rs"]
mod need;
#[path = "cut/net.rs"]
mod net;
#[path = "cut/stories.rs"]
mod stories;

use std::io::ErrorKind::{ConnectionRefused, ConnectionReset};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use leasehold::os::net::cut::{Cutter, Spec};
use leasehold::os::net::nft::{Barrier, Gate};
use net::{CLIENT, HERON, Net, PLOVER, answers, error, p50_and_max};

const PORT: u16 = 7000;
const OTHER: u16 = 7001;
/// How long a client that hears nothing is watched.
const WATCHED: Duration = Duration::from_millis(300);
const ROUNDS: usize = 20;

fn can_run(test: &str) -> bool {
    need::all(test, &[need::root(), need::program("ip"), need::program("nft")])
}

/// What is cut: the port on every address, and the address 10.77.0.9 with fd77::9.
fn spec() -> Spec {
    let ip = |text: &str| text.parse().expect("an address");
    Spec {
        table: Spec::table_name(HERON, "test"),
        addresses: vec![ip("10.77.0.9"), ip("fd77::9")],
        ports: vec![PORT],
        peers: vec![ip("10.77.0.2"), ip("fd77::2")],
    }
}

/// A network with services on the node heron, and its cutter, which can do everything.
fn prepared() -> (Net, Cutter) {
    let net = Net::new();
    net.address(HERON, "eth0", 9);
    [PORT, OTHER].into_iter().for_each(|port| net.serve(HERON, port));
    let cutter = net.within(HERON, || Cutter::prepare(spec()));
    assert_eq!((cutter.cannot_refuse(), cutter.cannot_reset()), (None, None));
    (net, cutter)
}

fn refused(net: &Net, to: &str) -> ErrorKind {
    net.try_connect(CLIENT, to).expect_err("it is cut").kind()
}

/// The table as a person sees it.
fn listed(net: &Net) -> Option<String> {
    let output = net.try_run(HERON, &["nft", "list", "table", "inet", &spec().table]);
    output.status.success().then(|| String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn clients_are_reset_and_refused_and_everyone_else_is_left_alone() {
    if !can_run("clients_are_reset_and_refused_and_everyone_else_is_left_alone") {
        return;
    }
    let (net, mut cutter) = prepared();
    let mut clients = ["10.77.0.1:7000", "[fd77::1]:7000", "10.77.0.1:7000"].map(|to| net.connect(CLIENT, to));
    clients[2].write_all(b"slow\n").expect("a request under way");
    let others =
        [(CLIENT, "10.77.0.1:7001"), (PLOVER, "10.77.0.1:7000"), (HERON, "127.0.0.1:7000"), (HERON, "[::1]:7000")];
    let mut streams = others.map(|(from, to)| net.connect(from, to));
    assert!(!cutter.is_cut());
    cutter.lift().expect("what is open may be opened");

    let report = cutter.cut();
    let ended = report.reset.expect("this kernel can");
    assert_eq!((ended.count, ended.error, report.refused.is_ok()), (3, None, true), "{report:?}");
    assert!(cutter.is_cut());
    for client in &mut clients {
        assert_eq!(error(client).0, ConnectionReset);
    }
    assert_eq!(["10.77.0.1:7000", "[fd77::1]:7000"].map(|to| refused(&net, to)), [ConnectionRefused; 2]);
    for ((from, to), stream) in others.iter().zip(&mut streams) {
        assert!(answers(stream), "{from} has lost {to}");
        net.connect(from, to);
    }
    assert_eq!(cutter.cut().reset.expect("this kernel can").count, 0, "once more is no harm");
    insta::assert_snapshot!(
        "table",
        listed(&net).expect("it is there").replace(&spec().table, "leasehold-heron-NUMBER")
    );

    cutter.lift().expect("lifted");
    assert_eq!(cutter.look(), Ok(Gate::Open));
    net.connect(CLIENT, "10.77.0.1:7000");
    cutter.remove().expect("removed");
    assert_eq!(listed(&net), None);
}

#[test]
fn all_of_an_address_of_the_service_is_cut_and_nothing_of_the_others() {
    if !can_run("all_of_an_address_of_the_service_is_cut_and_nothing_of_the_others") {
        return;
    }
    let (net, mut cutter) = prepared();
    let mut clients = ["10.77.0.9:7001", "[fd77::9]:7001"].map(|to| net.connect(CLIENT, to));
    let mut other = net.connect(CLIENT, "10.77.0.1:7001");
    let server = net.within(HERON, || UdpSocket::bind("10.77.0.9:7002").expect("a socket"));
    let client = net.within(CLIENT, || UdpSocket::bind("10.77.0.3:0").expect("a socket"));
    client.connect(server.local_addr().expect("bound")).expect("connected");
    client.set_read_timeout(Some(net::PATIENCE)).expect("a limit");

    assert_eq!(cutter.cut().reset.expect("this kernel can").count, 2);
    assert_eq!(clients.each_mut().map(|c| error(c).0), [ConnectionReset; 2]);
    assert_eq!(["10.77.0.9:7001", "[fd77::9]:7001"].map(|to| refused(&net, to)), [ConnectionRefused; 2]);
    client.send(b"request").expect("it leaves");
    assert_eq!(client.recv(&mut [0; 8]).expect_err("it is refused").kind(), ConnectionRefused);
    assert!(answers(&mut other));
}

/// Why there are two means: `docs/cut.md` tells what one alone would give.
#[test]
fn without_the_reset_from_within_a_client_learns_of_the_cut_with_its_next_packet() {
    if !can_run("without_the_reset_from_within_a_client_learns_of_the_cut_with_its_next_packet") {
        return;
    }
    let net = Net::new();
    net.serve(HERON, PORT);
    let mut barrier = net.within(HERON, || Barrier::prepare(&spec())).expect("a table");
    let mut client = net.connect(CLIENT, "10.77.0.1:7000");
    barrier.shut().expect("shut");
    client.set_read_timeout(Some(WATCHED)).expect("a limit");
    let silence = client.read(&mut [0; 8]).expect_err("nothing is told").kind();
    assert!(matches!(silence, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence:?}");
    client.write_all(b"ping\n").expect("it leaves");
    client.set_read_timeout(Some(net::PATIENCE)).expect("a limit");
    assert_eq!(error(&mut client).0, ConnectionReset);
}

#[test]
fn a_table_that_somebody_has_removed_is_made_again() {
    if !can_run("a_table_that_somebody_has_removed_is_made_again") {
        return;
    }
    let (net, mut cutter) = prepared();
    // As when another firewall is loaded.
    net.run(HERON, &["nft", "flush", "ruleset"]);
    assert_eq!(cutter.look(), Ok(Gate::Absent));
    assert!(cutter.cut().refused.is_ok());
    assert_eq!(refused(&net, "10.77.0.1:7000"), ConnectionRefused);
    net.run(HERON, &["nft", "flush", "ruleset"]);
    cutter.lift().expect("lifted");
    assert_eq!(cutter.look(), Ok(Gate::Open));
    net.connect(CLIENT, "10.77.0.1:7000");
}

#[test]
fn clients_that_were_cut_stay_cut_when_the_next_one_prepares() {
    if !can_run("clients_that_were_cut_stay_cut_when_the_next_one_prepares") {
        return;
    }
    let (net, mut cutter) = prepared();
    cutter.cut();
    drop(cutter);
    // Its configuration has changed meanwhile.
    let changed = Spec { ports: vec![PORT, OTHER], ..spec() };
    let mut next = net.within(HERON, || Cutter::prepare(changed));
    assert!(next.is_cut());
    assert_eq!(["10.77.0.1:7000", "10.77.0.1:7001"].map(|to| refused(&net, to)), [ConnectionRefused; 2]);
    next.lift().expect("lifted");
    drop(next);
    let mut third = net.within(HERON, || Cutter::prepare(spec()));
    assert!(!third.is_cut());
    net.connect(CLIENT, "10.77.0.1:7000");
}

/// As the guard does it, whatever became of the daemon and its table.
#[test]
fn another_process_can_cut_with_or_without_the_table() {
    if !can_run("another_process_can_cut_with_or_without_the_table") {
        return;
    }
    let (net, mut cutter) = prepared();
    let mut other = net.within(HERON, || Cutter::attach(spec()));
    for table in ["kept", "removed"] {
        let mut client = net.connect(CLIENT, "10.77.0.1:7000");
        let report = other.cut();
        assert_eq!(report.reset.map(|ended| ended.count), Some(1), "{table}: {report:?}");
        assert_eq!(error(&mut client).0, ConnectionReset, "{table}");
        assert_eq!(refused(&net, "10.77.0.1:7000"), ConnectionRefused, "{table}");
        assert!(cutter.is_cut(), "{table}");
        cutter.lift().expect("lifted");
        net.run(HERON, &["nft", "flush", "ruleset"]);
    }
}

#[test]
fn a_hundred_clients_learn_of_it_at_once() {
    if !can_run("a_hundred_clients_learn_of_it_at_once") {
        return;
    }
    const CLIENTS: usize = 100;
    let (net, mut cutter) = prepared();
    let (mut shut, mut whole, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut clients: Vec<TcpStream> = net.within(CLIENT, || {
            let connect = |_| TcpStream::connect("10.77.0.1:7000").expect("it is open");
            (0..CLIENTS).map(connect).collect()
        });
        clients.iter_mut().for_each(|client| assert!(answers(client)));
        let begun = Instant::now();
        let report = cutter.cut();
        let last =
            clients.iter_mut().map(error).inspect(|(kind, _)| assert_eq!(*kind, ConnectionReset)).map(|(_, at)| at);
        told.push(last.max().expect("clients") - begun);
        shut.push(Duration::from(report.refused.expect("refused")));
        whole.push(Duration::from(report.took));
        cutter.lift().expect("lifted");
    }
    let figures = [("refused", shut), ("all reset", whole), ("the last client knows", told)];
    for (what, (p50, max)) in figures.map(|(what, all)| (what, p50_and_max(all))) {
        println!("cut of {CLIENTS} clients, {what} after: p50 {p50:?}, max {max:?}");
        assert!(max < Duration::from_secs(1), "{what}: {max:?}");
    }
}
