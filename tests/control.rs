//! The control server on a real socket: what a client may do, and what no client can do to the daemon.

#[path = "common/daemon.rs"]
mod daemon;
#[path = "common/status.rs"]
mod fixture;

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::control::{
    Access, Answer, Client, ClientError, ControlError, ErrorCode, Event, Journal, Op, Reply, Server, Status,
};
use leasehold::core::Command;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use daemon::{Daemon, LIMIT, decision, options};

async fn say(stream: &mut BufReader<UnixStream>, line: &[u8]) -> Reply {
    stream.write_all(line).await.unwrap();
    stream.write_all(b"\n").await.unwrap();
    hear(stream).await
}

async fn hear(stream: &mut BufReader<UnixStream>) -> Reply {
    let mut line = String::new();
    let read = tokio::time::timeout(LIMIT, stream.read_line(&mut line)).await.expect("an answer in time");
    read.unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

#[tokio::test]
async fn a_command_reaches_the_daemon_with_the_uid_of_its_sender() {
    let daemon = Daemon::start();
    daemon
        .blocking(|socket| {
            let mut client = Client::connect(socket, LIMIT).unwrap();
            assert_eq!(client.ask(Op::Failover { force: true }).unwrap(), Answer::Accepted);
            let confirm = Op::ConfirmFenced { incident: 7, node: "plover".into() };
            assert_eq!(client.ask(confirm).unwrap(), Answer::Accepted);
        })
        .await;
    let uid = rustix::process::geteuid().as_raw();
    let wanted = [(Command::Failover { force: true }, uid), (Command::ConfirmFenced { incident: 7, uid }, uid)];
    assert_eq!(daemon.commands(), wanted);
}

#[tokio::test]
async fn a_refusal_comes_back_with_its_reason() {
    let daemon = Daemon::start();
    let error = daemon.blocking(|socket| Client::connect(socket, LIMIT).unwrap().ask(Op::Thaw)).await.unwrap_err();
    assert!(error.is_refusal());
    assert_eq!(error.to_string(), "resources are still being stopped");
}

#[tokio::test]
async fn confirming_another_node_than_the_peer_never_reaches_the_daemon() {
    let daemon = Daemon::start();
    let op = Op::ConfirmFenced { incident: 7, node: "heron".into() };
    let error = daemon.blocking(|socket| Client::connect(socket, LIMIT).unwrap().ask(op)).await.unwrap_err();
    assert!(error.to_string().contains("`plover`, not `heron`"), "{error}");
    assert_eq!(daemon.commands(), []);
}

#[tokio::test]
async fn a_watch_gets_every_later_decision_and_why_all_of_them() {
    let daemon = Daemon::start();
    daemon.journal.publish(decision("before".into()));
    let mut stream = daemon.connect().await;
    let reply = say(&mut stream, br#"{"v":1,"id":5,"op":"watch"}"#).await;
    assert_eq!(reply.ok, Some(Answer::Watching));
    daemon.journal.publish(decision("after".into()));
    let Reply { id: Some(5), event: Some(Event::Decision(seen)), .. } = hear(&mut stream).await else { panic!() };
    assert_eq!((seen.number, seen.text.as_str()), (2, "after"));
    let reply = say(&mut stream, br#"{"v":1,"id":6,"op":"why","last":9}"#).await;
    let Some(Answer::Decisions(all)) = reply.ok else { panic!("{reply:?}") };
    assert_eq!(all.len(), 2);
}

#[tokio::test]
async fn the_client_s_watch_waits_no_longer_than_it_is_told() {
    let daemon = Daemon::start();
    let journal = daemon.journal.clone();
    daemon
        .blocking(move |socket| {
            let mut watch = Client::connect(socket, LIMIT).unwrap().watch().unwrap();
            assert_eq!(watch.next_within(Duration::from_millis(10)).unwrap(), None);
            journal.publish(decision("now".into()));
            assert!(matches!(watch.next_within(LIMIT).unwrap(), Some(Event::Decision(_))));
        })
        .await;
}

/// A fixed generator: a failure repeats itself.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    /// A truncated request, a request with a changed byte, or noise; never a newline, never a whole request.
    fn garbage(&mut self) -> Vec<u8> {
        let whole = br#"{"v":1,"id":1,"op":"confirm-fenced","incident":7,"node":"plover"}"#;
        let mut line = match self.below(3) {
            0 => whole[..self.below(whole.len())].to_vec(),
            1 => {
                let mut line = whole.to_vec();
                // Only in the operation's name: elsewhere a change can give a request that is a right one.
                line[21 + self.below(10)] = self.next() as u8;
                line
            }
            _ => (0..self.below(200)).map(|_| self.next() as u8).collect(),
        };
        line.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b'?');
        if line == whole { b"{".to_vec() } else { line }
    }
}

#[tokio::test]
async fn ten_thousand_random_or_truncated_requests_change_nothing_and_are_counted() {
    let daemon = Daemon::start();
    let before = daemon.status().await;
    let mut random = Random(2026);
    let mut stream = daemon.connect().await;
    for number in 0..10_000 {
        if number % 100 == 0 {
            stream = daemon.connect().await;
        }
        let line = random.garbage();
        let reply = say(&mut stream, &line).await;
        let failure = reply.error.unwrap_or_else(|| panic!("{:?} was taken", String::from_utf8_lossy(&line)));
        assert!(matches!(failure.code, ErrorCode::BadRequest | ErrorCode::UnknownOp), "{failure:?}");
        assert!(failure.remedy.is_some());
    }
    let after = daemon.status().await;
    assert_eq!(after.control.bad_requests, 10_000);
    assert_eq!(daemon.commands(), []);
    assert_eq!(Status { control: before.control, ..after }, before);
}

#[tokio::test]
async fn a_line_without_end_is_refused_at_its_cap() {
    let daemon = Daemon::start();
    let mut stream = daemon.connect().await;
    // The server stops reading at the cap and closes; how much of the rest still fits into the buffer is not ours.
    let _ = stream.write_all(&vec![b' '; 1 << 20]).await;
    let reply = hear(&mut stream).await;
    assert_eq!(reply.error.unwrap().code, ErrorCode::TooLong);
    assert_eq!(daemon.status().await.control.bad_requests, 1);
}

#[tokio::test]
async fn a_request_cut_off_by_the_end_of_the_connection_is_not_carried_out() {
    let daemon = Daemon::start();
    let mut stream = daemon.connect().await;
    stream.write_all(br#"{"v":1,"id":1,"op":"fence""#).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(hear(&mut stream).await.error.unwrap().code, ErrorCode::BadRequest);
    assert_eq!(daemon.commands(), []);
}

#[tokio::test]
async fn a_reader_that_does_not_read_is_dropped_and_holds_nobody_up() {
    let daemon = Daemon::start();
    for number in 0..1000 {
        daemon.journal.publish(decision(format!("{number} {}", "x".repeat(500))));
    }
    let mut slow = daemon.connect().await;
    for id in 0..50 {
        slow.write_all(format!("{{\"v\":1,\"id\":{id},\"op\":\"why\"}}\n").as_bytes()).await.unwrap();
    }
    let mut dropped = 0;
    while dropped == 0 {
        // Answered all the while, far within the limit after which the slow one is given up.
        let asked = tokio::time::timeout(LIMIT, daemon.status()).await.expect("others are served");
        dropped = asked.control.dropped;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut rest = Vec::new();
    tokio::time::timeout(LIMIT, slow.read_to_end(&mut rest)).await.expect("the connection was closed").ok();
}

#[tokio::test]
async fn a_watcher_that_lags_is_told_what_it_missed() {
    let daemon = Daemon::start();
    let mut stream = daemon.connect().await;
    say(&mut stream, br#"{"v":1,"id":1,"op":"watch"}"#).await;
    // The server gets no turn meanwhile: this loop never waits.
    for number in 0..1000 {
        daemon.journal.publish(decision(number.to_string()));
    }
    let reply = hear(&mut stream).await;
    assert!(matches!(reply.event, Some(Event::Missed(missed)) if missed > 0), "{reply:?}");
}

#[tokio::test]
async fn too_many_connections_are_turned_away_with_a_reason() {
    let daemon = Daemon::start();
    let mut held = Vec::new();
    for id in 0..64 {
        let mut stream = daemon.connect().await;
        say(&mut stream, format!("{{\"v\":1,\"id\":{id},\"op\":\"version\"}}").as_bytes()).await;
        held.push(stream);
    }
    let mut one_more = daemon.connect().await;
    assert_eq!(hear(&mut one_more).await.error.unwrap().code, ErrorCode::Busy);
    held.clear();
    // The seats come back as the server notices; until then it says "busy", never nothing.
    while daemon.blocking(|socket| Client::connect(socket, LIMIT).unwrap().ask(Op::Version)).await.is_err() {}
    assert_eq!(daemon.status().await.control.connections, 1);
}

#[tokio::test]
async fn a_daemon_that_is_ending_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let (calls, asked) = mpsc::channel(1);
    let server = Server::bind(options(socket.clone(), Access::new(None, None)), Journal::default(), calls).unwrap();
    tokio::spawn(server.run());
    drop(asked);
    let asked = tokio::task::spawn_blocking(move || Client::connect(&socket, LIMIT).unwrap().ask(Op::Status));
    let error = asked.await.unwrap().unwrap_err();
    assert!(error.is_unreachable(), "{error}");
}

#[tokio::test]
async fn a_leftover_socket_is_replaced_and_any_other_file_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let bind =
        |path: PathBuf| Server::bind(options(path, Access::new(None, None)), Journal::default(), mpsc::channel(1).0);
    drop(bind(socket.clone()).unwrap());
    assert!(!socket.exists(), "the server leaves no socket behind");
    std::fs::write(&socket, "data").unwrap();
    assert!(matches!(bind(socket.clone()), Err(ControlError::NotASocket { .. })));
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "data");
}

#[test]
fn without_a_daemon_the_client_says_how_to_start_it() {
    let error = Client::connect(Path::new("/nonexistent/control.sock"), LIMIT).unwrap_err();
    assert!(matches!(error, ClientError::NotRunning { .. }) && error.to_string().contains("systemctl start leasehold"));
}

#[test]
fn a_daemon_that_accepts_nobody_is_given_up_within_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut client = Client::connect(&socket, Duration::from_millis(50)).unwrap();
    assert!(matches!(client.ask(Op::Status), Err(ClientError::Silent { .. })));
    // The backlog fills up, and then connecting itself has to end in time.
    let mut held = Vec::new();
    let error = loop {
        match Client::connect(&socket, Duration::from_millis(50)) {
            Ok(_) if held.len() > 10_000 => return,
            Ok(client) => held.push(client),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ClientError::Silent { .. }), "{error}");
}
