//! Links on real sockets of 127.0.0.0/8 and ::1, and in a network namespace of their own where root may make one.

use std::net::UdpSocket as StdSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::os::apart;
use crate::os::clock::{self, Alarm};

const PATIENCE: Duration = Duration::from_secs(20);

fn free_port(ip: &str) -> SocketAddr {
    StdSocket::bind(SocketAddr::new(ip.parse().unwrap(), 0)).unwrap().local_addr().unwrap()
}

fn configured(first: SocketAddr, second: SocketAddr) -> config::Link {
    config::Link { name: "a".to_owned(), addresses: [first, second], devices: [None, None] }
}

fn pair(first: &str, second: &str) -> (Link, Link, config::Link) {
    let link = configured(free_port(first), free_port(second));
    (Link::bind(&link, NodeId::First), Link::bind(&link, NodeId::Second), link)
}

async fn received(link: &Link) -> Vec<u8> {
    let mut buffer = [0; RECEIVE_BUFFER];
    let length = tokio::time::timeout(PATIENCE, link.recv(&mut buffer)).await.expect("a datagram comes");
    buffer[..length].to_vec()
}

fn rejected(link: &Link, kind: &str) -> u64 {
    link.counters().rejected.iter().find(|(known, _)| *known == kind).map_or(0, |(_, n)| *n)
}

#[tokio::test]
async fn two_nodes_hear_each_other_over_ipv4_and_over_ipv6() {
    for (first, second) in [("127.0.0.1", "127.0.0.2"), ("::1", "::1")] {
        let (first, second, _) = pair(first, second);
        assert_eq!(first.send(b"to second"), Sent::Left, "also before anybody polled the socket");
        assert_eq!(received(&second).await, b"to second");
        assert_eq!(second.send(b"to first"), Sent::Left);
        assert_eq!(received(&first).await, b"to first");
        let told = first.counters();
        assert_eq!((told.sent, told.received, first.state_now()), (1, 1, LinkState::Up));
    }
}

#[tokio::test]
async fn a_datagram_from_a_foreign_source_is_counted_and_not_delivered() {
    let (first, second, link) = pair("127.0.0.1", "127.0.0.2");
    let stranger = StdSocket::bind("127.0.0.3:0").unwrap();
    for _ in 0..TURN * 3 {
        stranger.send_to(b"foreign", link.addresses[1]).unwrap();
    }
    first.send(b"ours");
    assert_eq!(received(&second).await, b"ours");
    assert_eq!(rejected(&second, "foreign source"), TURN as u64 * 3);
}

#[tokio::test]
async fn a_datagram_that_fills_the_buffer_is_counted_and_not_delivered() {
    let (first, second, _) = pair("127.0.0.1", "127.0.0.2");
    first.send(&[7; RECEIVE_BUFFER]);
    first.send(&[7; RECEIVE_BUFFER + 500]);
    first.send(&[7; RECEIVE_BUFFER - 1]);
    first.send(b"");
    assert_eq!(received(&second).await.len(), RECEIVE_BUFFER - 1);
    assert_eq!(received(&second).await.len(), 0, "an empty one is for the seal to reject");
    assert_eq!(rejected(&second, "oversized"), 2);
}

#[tokio::test]
async fn errors_of_sending_are_counted_by_kind_and_the_next_datagram_goes_out() {
    let (first, second, _) = pair("127.0.0.1", "127.0.0.2");
    assert_eq!(first.send(&[0; 70_000]), Sent::Lost(Fault::TooLong));
    assert_eq!(first.send(b"next"), Sent::Left);
    assert_eq!(received(&second).await, b"next");
    assert_eq!(first.counters().send_faults, [(Fault::TooLong, 1)]);
}

#[tokio::test]
async fn a_peer_that_does_not_listen_is_no_error() {
    let (first, second, _) = pair("127.0.0.1", "127.0.0.2");
    drop(second);
    for _ in 0..5 {
        assert_eq!(first.send(b"anybody?"), Sent::Left);
        tokio::task::yield_now().await;
    }
    assert_eq!(first.state_now(), LinkState::Up);
}

#[tokio::test]
async fn a_link_whose_address_is_taken_is_down_says_why_and_comes_up_when_it_is_free() {
    let link = configured(free_port("127.0.0.1"), free_port("127.0.0.2"));
    let taken = StdSocket::bind(link.addresses[0]).unwrap();
    let first = Link::bind(&link, NodeId::First);
    let second = Link::bind(&link, NodeId::Second);
    assert_eq!(first.send(b"x"), Sent::Lost(Fault::InUse));
    let LinkState::Down { because } = first.state_now() else { panic!("the link is down") };
    assert!(because.contains(&link.addresses[0].to_string()) && because.contains("trying again"), "{because}");
    drop(taken);
    // Nobody sends on it: the waiting receiver alone brings it up.
    let mut buffer = [0; RECEIVE_BUFFER];
    let receiving = first.recv(&mut buffer);
    let calling = async {
        loop {
            second.send(b"hello");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let length = tokio::time::timeout(PATIENCE, async {
        tokio::select! { n = receiving => n, () = calling => 0 }
    })
    .await;
    assert_eq!(length, Ok(5));
}

#[tokio::test]
async fn a_link_that_is_down_comes_up_although_its_receiver_is_cancelled_all_the_time() {
    let link = configured(free_port("127.0.0.1"), free_port("127.0.0.2"));
    let taken = StdSocket::bind(link.addresses[0]).unwrap();
    let first = Link::bind(&link, NodeId::First);
    drop(taken);
    let up = async {
        while first.state_now() != LinkState::Up {
            // A loop that wakes each 10 ms drops the other branches of its select.
            let _ = tokio::time::timeout(Duration::from_millis(10), first.recv(&mut [0; 16])).await;
        }
    };
    tokio::time::timeout(PATIENCE, up).await.expect("the retry is due by its own time");
}

#[tokio::test]
async fn a_task_that_waits_on_a_socket_hears_what_comes_to_the_one_made_in_its_place() {
    let (first, second, _) = pair("127.0.0.1", "127.0.0.2");
    let first = Arc::new(first);
    let waiting = Arc::clone(&first);
    let waiter = tokio::spawn(async move { waiting.recv(&mut [0; RECEIVE_BUFFER]).await });
    tokio::task::yield_now().await;
    first.close(&mut first.state(), &io::Error::from(rustix::io::Errno::NODEV));
    let calling = async {
        while !waiter.is_finished() {
            second.send(b"hello");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, calling).await.expect("the waiting task is woken");
    assert_eq!(waiter.await.unwrap(), b"hello".len());
    assert_eq!((first.counters().reopened, first.state_now()), (1, LinkState::Up));
}

#[tokio::test]
async fn a_device_that_does_not_exist_is_told_and_the_link_stays_down() {
    let mut link = configured(free_port("127.0.0.1"), free_port("127.0.0.2"));
    link.devices[0] = Some("bond0.77".to_owned());
    let first = Link::bind(&link, NodeId::First);
    assert!(matches!(first.send(b"x"), Sent::Lost(Fault::NoDevice | Fault::NotPermitted)));
    assert!(first.state_now().to_string().contains("on bond0.77"), "{}", first.state_now());
}

#[tokio::test]
async fn any_of_several_links_delivers_and_a_busy_one_does_not_silence_the_other() {
    let (first_a, second_a, _) = pair("127.0.0.1", "127.0.0.2");
    let (first_b, second_b, _) = pair("127.0.0.1", "127.0.0.2");
    (0..100).for_each(|_| assert_eq!(first_a.send(b"a"), Sent::Left));
    first_b.send(b"b");
    let (links, mut turn, mut buffer) = ([second_a, second_b], 0, [0; RECEIVE_BUFFER]);
    let mut from = Vec::new();
    while !from.contains(&1) {
        from.push(tokio::time::timeout(PATIENCE, recv_any(&links, &mut buffer, &mut turn)).await.unwrap().0);
    }
    assert!(from.len() <= 3, "link 1 waited for {} datagrams of link 0", from.len());
}

/// Sends as fast as told until dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Flood {
    fn of(from: StdSocket, to: SocketAddr) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut sent = 0;
            while !told.load(Ordering::Relaxed) {
                sent += (0..100).filter(|_| from.send_to(&[9; 200], to).is_ok()).count() as u64;
                std::thread::sleep(Duration::from_millis(8));
            }
            sent
        });
        Flood { stop, thread: Some(thread) }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it ends once").join().unwrap()
    }
}

#[tokio::test]
async fn a_flood_from_a_stranger_or_from_the_peers_address_delays_no_alarm() {
    for source in ["127.0.0.3:0", "127.0.0.1:0"] {
        let (first, second, link) = pair("127.0.0.1", "127.0.0.2");
        let flood = Flood::of(StdSocket::bind(source).unwrap(), link.addresses[1]);
        let alarm = Alarm::new().unwrap();
        let (mut heard, mut fired) = (0u64, 0u64);
        let mut buffer = [0; RECEIVE_BUFFER];
        let end = clock::now().after(Span::from_secs(1));
        alarm.set(Some(clock::now()));
        let turns = async {
            while clock::now() < end {
                tokio::select! {
                    biased;
                    () = alarm.fired() => {
                        fired += 1;
                        first.send(b"heartbeat");
                        alarm.set(Some(clock::now().after(Span::from_ms(10))));
                    }
                    n = second.recv(&mut buffer) => heard += u64::from(&buffer[..n] == b"heartbeat"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, turns).await.expect("the loop goes round");
        let sent = flood.end();
        // At most 100 are possible; a loaded machine gets fewer, a starved loop none.
        assert!(
            fired >= 20 && heard >= fired / 2,
            "{fired} alarms, {heard} heartbeats beside {sent} datagrams of a flood"
        );
    }
}

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

fn device(kind_and_end: &str) {
    ip(&format!("link add bond0.77 type {kind_and_end}"));
    ip("addr add 10.99.0.1/24 dev bond0.77");
    ip("link set bond0.77 up");
}

async fn until_sent(link: &Link) {
    let sent = async {
        while link.send(b"x") != Sent::Left {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, sent)
        .await
        .unwrap_or_else(|_| panic!("{}: {:?}", link.state_now(), link.counters()));
}

#[tokio::test]
async fn a_link_comes_up_with_its_interface_and_again_when_that_is_made_anew() {
    if !apart::inside("os::links::tests::a_link_comes_up_with_its_interface_and_again_when_that_is_made_anew", "--net")
    {
        return;
    }
    let mut link = configured("10.99.0.1:5405".parse().unwrap(), "10.99.0.2:5405".parse().unwrap());
    link.devices[0] = Some("bond0.77".to_owned());
    let first = Link::bind(&link, NodeId::First);
    assert_eq!(first.send(b"x"), Sent::Lost(Fault::NoDevice));
    device("veth peer name other");
    ip("link set other up");
    until_sent(&first).await;
    assert_eq!(first.state_now(), LinkState::Up);

    ip("link del bond0.77");
    assert!(matches!(first.send(b"x"), Sent::Lost(_)));
    device("veth peer name other");
    ip("link set other up");
    until_sent(&first).await;
    assert!(first.counters().reopened >= 1);
}

#[tokio::test]
async fn a_link_without_a_device_comes_up_when_its_address_does() {
    if !apart::inside("os::links::tests::a_link_without_a_device_comes_up_when_its_address_does", "--net") {
        return;
    }
    let link = configured("10.99.0.1:5405".parse().unwrap(), "10.99.0.2:5405".parse().unwrap());
    // A namespace without any address lets everything be bound.
    ip("link set lo up");
    let first = Link::bind(&link, NodeId::First);
    assert_eq!(first.send(b"x"), Sent::Lost(Fault::NoAddress));
    device("veth peer name other");
    ip("link set other up");
    until_sent(&first).await;

    ip("addr del 10.99.0.1/24 dev bond0.77");
    assert!(matches!(first.send(b"x"), Sent::Lost(_)));
    ip("addr add 10.99.0.1/24 dev bond0.77");
    until_sent(&first).await;
}
