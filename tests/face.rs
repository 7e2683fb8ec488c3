//! What a node shows to its service: `token.json`, the hook and the HTTP endpoint, with two real daemons.

#[path = "common/pair.rs"]
mod pairs;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use leasehold::cli::demo::pair::Pair;
use leasehold::cli::demo::world::{BOTH, Fencing, Timing, name};
use leasehold::control::Op;
use leasehold::core::NodeId;
use pairs::PATIENCE;
use serde_json::Value;

/// A pair whose nodes show themselves over HTTP and to a hook.
struct Shown {
    pair: Pair,
    http: [SocketAddr; 2],
}

impl Shown {
    /// `hook` is a shell script; `$HOME_DIR` in it is the node's directory.
    fn start(hook: &str) -> (Shown, NodeId) {
        let mut pair = pairs::build(pairs::plan(Timing::DEMO, Fencing::StandIn));
        let http = BOTH.map(|node| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("its address");
            let home = pair.world.home(node);
            let script = hook.replace("$HOME_DIR", &home.display().to_string());
            let file = home.join("leasehold.toml");
            let text = fs::read_to_string(&file).expect("the configuration");
            let notify = format!("['/bin/sh', '-c', '''{script}''']");
            let service = format!("[service]\nhttp = \"{address}\"\nnotify = {notify}\n");
            assert!(text.contains("[service]\n"), "{text}");
            fs::write(&file, text.replace("[service]\n", &service)).expect("a file");
            address
        });
        let primary = pairs::start(&mut pair);
        (Shown { pair, http }, primary)
    }

    fn file(&self, node: NodeId, name: &str) -> PathBuf {
        self.pair.world.home(node).join(name)
    }

    fn get(&self, node: NodeId, path: &str) -> (u16, String) {
        let answer =
            raw(self.http[node.index()], &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        (code, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }

    fn token_file(&self, node: NodeId) -> Value {
        let text = fs::read_to_string(self.file(node, "run/token.json")).expect("token.json");
        serde_json::from_str(&text).expect("never half of one")
    }

    fn handover(&mut self, from: NodeId) {
        let token = self.token_file(from)["token"].as_u64().expect("a token");
        self.pair.command(from, Op::Failover { force: false }).expect("a handover");
        pairs::until_written(&mut self.pair, from.peer(), token);
    }
}

fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE.into())).expect("a limit");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    // A connection that is reset has answered all that it will.
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Asks until it is so: what is shown follows the decision by some turns of another thread.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        match ask() {
            Some(found) => return found,
            None if begun.elapsed() > Duration::from(PATIENCE) => panic!("never: {what}"),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
fn probes_see_one_primary_and_one_standby_and_follow_a_handover() {
    let (mut shown, primary) = Shown::start("true");
    for (primary, token_above) in [(primary, 0), (primary.peer(), 1)] {
        let standby = primary.peer();
        eventually("the primary says so", || (shown.get(primary, "/primary").0 == 200).then_some(()));
        eventually("the standby says so", || (shown.get(standby, "/standby").0 == 200).then_some(()));
        assert_eq!(shown.get(primary, "/standby").0, 503);
        assert_eq!(shown.get(standby, "/primary").0, 503);
        let (code, text) = shown.get(primary, "/token");
        let told: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((code, told["role"].as_str(), told["node"].as_str()), (200, Some("primary"), Some(name(primary))));
        assert!(told["token"].as_u64() > Some(token_above) && told["deadline_boot_ns"].is_u64(), "{told}");
        assert_eq!(shown.token_file(primary)["token"], told["token"]);
        let (code, text) = shown.get(standby, "/token");
        let told: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((code, &told["token"], &told["serving"]), (503, &Value::Null, &Value::Bool(false)), "{told}");
        let (code, text) = shown.get(standby, "/status");
        let status: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((code, status["me"]["name"].as_str()), (200, Some(name(standby))));
        if token_above == 0 {
            shown.handover(primary);
        }
    }
}

#[test]
fn what_is_no_request_for_a_page_is_answered_or_dropped_and_harms_nobody() {
    let (shown, primary) = Shown::start("true");
    let address = shown.http[primary.index()];
    assert_eq!(shown.get(primary, "/nonsense").0, 404);
    assert!(raw(address, "POST /primary HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(raw(address, "\u{1}\u{2}garbage\r\n\r\n").starts_with("HTTP/1.1 400"));
    let endless = format!("GET /primary HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(1 << 20));
    let _ = TcpStream::connect(address).expect("a connection").write_all(endless.as_bytes());
    // More clients that say nothing than there are places, for as long as they are let.
    let silent: Vec<_> = (0..80).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    eventually("it answers again", || (shown.get(primary, "/primary").0 == 200).then_some(()));
    drop(silent);
    assert!(shown.pair.daemon(primary).is_ok(), "the daemon lives");
}

#[test]
fn the_hook_is_told_each_role_in_order_and_one_that_hangs_is_cut_off_by_newer_news() {
    // The word of the primary hangs with a grandchild that holds its output open; what comes after must not wait for it.
    let hook = "echo $LEASEHOLD_ROLE $LEASEHOLD_TOKEN >> $HOME_DIR/told; \
                if [ $LEASEHOLD_ROLE = primary ]; then sleep 432 & echo $! > $HOME_DIR/grandchild; wait; fi";
    let (mut shown, primary) = Shown::start(hook);
    let told = |shown: &Shown, node| fs::read_to_string(shown.file(node, "told")).unwrap_or_default();
    let with_token = |line: &str| line.strip_prefix("primary ").is_some_and(|token| token.parse::<u64>().is_ok());
    eventually("the hook is told", || told(&shown, primary).lines().any(with_token).then_some(()));
    let grandchild = eventually("it hangs", || fs::read_to_string(shown.file(primary, "grandchild")).ok());
    shown.handover(primary);
    eventually("the newer news", || told(&shown, primary).lines().last().is_some_and(|l| l == "standby").then_some(()));
    let stat = PathBuf::from(format!("/proc/{}/stat", grandchild.trim()));
    let gone = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    eventually("its group is killed", || gone().then_some(()));
    let text = told(&shown, primary);
    let roles: Vec<&str> = text.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    let place = |role| roles.iter().position(|r| *r == role);
    assert!(place("primary") < place("standby") || place("standby") == Some(0), "{text}");
}
