//! Bad input to real daemons: it is refused, counted and told, and changes nothing.

#[path = "common/pair.rs"]
mod pairs;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use leasehold::cli::demo::pair::Pair;
use leasehold::cli::demo::world::{Fencing, Timing};
use leasehold::config::{self, Config, SecretSource};
use leasehold::control::Status;
use leasehold::core::{
    Activity, BootId, Datagram, Digest, Incarnation, NodeId, Notices, Role, Seq, Standing, SystemUuid, Token,
};
use leasehold::sim::Rng;
use leasehold::wire::{Keyring, seal};

const DATAGRAMS: u64 = 10_000;
/// Few enough for the socket's buffer: each burst is counted before the next one leaves.
const BURST: u64 = 200;
/// The end of a refused start: configuration, key or record must be mended first.
const UNUSABLE: i32 = 78;

fn configuration(pair: &Pair, node: NodeId) -> Config {
    config::load(&pair.world.home(node).join("leasehold.toml")).expect("it runs with this").config
}

/// Where the key of the pair lies.
fn key_file(config: &Config) -> &Path {
    match &config.key {
        SecretSource::File(path) => path,
        SecretSource::Credential(name) => panic!("this pair has no credential {name}"),
    }
}

fn status(pair: &Pair, node: NodeId) -> Status {
    pair.status(node).expect("the daemon answers")
}

fn rejected(pair: &Pair, node: NodeId) -> u64 {
    status(pair, node).links[0].rejected.values().sum()
}

/// What changes when a datagram or request that should be nothing was something.
fn essence(status: &Status) -> (leasehold::control::Role, Option<u64>, u64, leasehold::control::Standing, bool) {
    let me = &status.me;
    (me.role, me.token, me.highest_token, me.standing, me.admitted)
}

/// A datagram that would matter: the peer holds a token far above all others.
fn alarming(me: NodeId) -> Datagram {
    Datagram {
        sender: me.peer(),
        incarnation: Incarnation(7),
        boot: BootId([7; 16]),
        seq: Seq(1),
        role: Role::Primary,
        claim: None,
        highest_token: Token(9_001),
        held_token: Token(9_001),
        holding: true,
        resources_up: true,
        standing: Standing::Sole,
        admitted: None,
        wish: false,
        ready: true,
        activity: Activity::Idle,
        echo: None,
        grant: None,
        release: Some(Token(2)),
        notices: Notices::default(),
        digest: Digest::default(),
        uuid: SystemUuid::default(),
    }
}

/// Random bytes, or a piece of a well-sealed datagram, or one with a flipped bit.
fn bad_bytes(rng: &mut Rng, sealed: &[u8]) -> Vec<u8> {
    let mut bytes = sealed.to_vec();
    match rng.below(3) {
        0 => (0..rng.below(1400)).map(|_| rng.below(256) as u8).collect(),
        1 => {
            bytes.truncate(rng.below(sealed.len() as u64) as usize);
            bytes
        }
        _ => {
            let at = rng.below(sealed.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            bytes
        }
    }
}

#[test]
fn ten_thousand_bad_datagrams_are_counted_and_change_nothing() {
    let mut pair = pairs::build(pairs::plan(Timing::SHORT, Fencing::StandIn));
    let primary = pairs::start(&mut pair);
    let config = configuration(&pair, primary);
    let keyring = Keyring::parse(&fs::read_to_string(key_file(&config)).expect("the key of the pair")).expect("a key");
    let sealed = seal(&keyring, 0, &alarming(primary));
    let (before, counted) = (essence(&status(&pair, primary)), rejected(&pair, primary));

    // From the address of the peer, by any port: the link lets them through to the seal.
    let link = &config.links[0];
    let socket = UdpSocket::bind((link.addresses[primary.peer().index()].ip(), 0)).expect("an address of this machine");
    let mut rng = Rng::new(2026);
    for burst in 1..=DATAGRAMS / BURST {
        for _ in 0..BURST {
            let bytes = bad_bytes(&mut rng, &sealed);
            socket.send_to(&bytes, link.addresses[primary.index()]).expect("a send on loopback");
        }
        let all = counted + burst * BURST;
        let arrived = |pair: &mut Pair, _: Option<&_>| Ok((rejected(pair, primary) >= all).then_some(()));
        pairs::told(pair.until("the burst is counted", pairs::PATIENCE, arrived));
    }
    assert_eq!(rejected(&pair, primary), counted + DATAGRAMS);
    assert_eq!(essence(&status(&pair, primary)), before);
    pairs::judged(&pair).expect("one writer, and no token but its own");
}

/// Runs a daemon that is expected to refuse to start; gives exit status and words.
fn refused(home: &Path, name: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["--config", &home.join("leasehold.toml").to_string_lossy(), "daemon", "--node", name])
        .output()
        .expect("the program runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_damaged_record_refuses_to_start_and_says_how_to_go_on() {
    let mut pair = pairs::build(pairs::plan(Timing::SHORT, Fencing::StandIn));
    let primary = pairs::start(&mut pair);
    let (home, config) = (pair.world.home(primary), configuration(&pair, primary));
    pair.world.switch_off(primary).expect("it can be switched off");
    let record = config.paths.state.join("record");
    fs::write(&record, vec![0xa5; 8192]).expect("the record lies there");

    let (code, words) = refused(&home, &config.node(primary).name);
    assert_eq!(code, Some(UNUSABLE), "{words}");
    for word in ["damaged", "record", "init-record", "mv "] {
        assert!(words.contains(word), "{word:?} is missing:\n{words}");
    }
    assert_eq!(fs::read(&record).expect("still there"), vec![0xa5; 8192], "never reset in silence");
}

#[test]
fn a_key_that_others_can_read_refuses_to_start() {
    use std::os::unix::fs::PermissionsExt;
    let pair = pairs::build(pairs::plan(Timing::SHORT, Fencing::StandIn));
    let config = configuration(&pair, NodeId::First);
    let key = key_file(&config);
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).expect("our own file");
    let (code, words) = refused(&pair.world.home(NodeId::First), &config.nodes[0].name);
    assert_eq!(code, Some(UNUSABLE), "{words}");
    assert!(words.contains("chmod") && words.contains(&*key.to_string_lossy()), "{words}");
}

#[test]
fn a_key_that_systemd_was_to_hand_over_and_did_not_is_named_with_its_place() {
    let pair = pairs::build(pairs::plan(Timing::SHORT, Fencing::StandIn));
    let home = pair.world.home(NodeId::First);
    let (file, config) = (home.join("leasehold.toml"), configuration(&pair, NodeId::First));
    let text = fs::read_to_string(&file).expect("our own file");
    let key = format!("key = \"{}\"", key_file(&config).display());
    assert!(text.contains(&key));
    fs::write(&file, text.replace(&key, "key_credential = \"pair\"")).expect("our own file");
    let (code, words) = refused(&home, &config.nodes[0].name);
    assert_eq!(code, Some(UNUSABLE), "{words}");
    assert!(words.contains("/etc/leasehold/credentials/pair") && words.contains("LoadCredential=pair:"), "{words}");
}
