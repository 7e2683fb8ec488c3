//! Failovers of two real daemons with real servers of PostgreSQL 15 and clients that commit numbered rows: nothing that was
//! acknowledged is lost, and the old primary comes back by itself.
//!
//! `LEASEHOLD_PG_ROUNDS=N` sets how many of each kind; `LONG=1` makes it 20.

#[path = "common/need.rs"]
mod need;
#[path = "common/pair.rs"]
mod pairs;
#[path = "common/pg.rs"]
mod pg;
#[path = "common/rows.rs"]
mod rows;

use std::fs;

use leasehold::cli::demo::pair::Pair;
use leasehold::cli::demo::world::{BOTH, Fencing, Plan, Timing, name, quoted};
use leasehold::control::Op;
use leasehold::core::{FirstShooter, NodeId, Span};
use leasehold::os::clock;
use pg::Lab;
use rows::{Clients, Relay};
use rustix::process::Signal;

const PATIENCE: Span = Span::from_secs(120);

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Of everything that runs on the primary's machine.
    Kill,
    Planned,
    /// Heartbeats and replication at once.
    Partition,
    /// Everything on the primary's machine stands still until it is fenced.
    Stop,
}

const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Planned, Fault::Partition, Fault::Stop];

fn rounds() -> usize {
    let given = std::env::var("LEASEHOLD_PG_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    given.unwrap_or(if std::env::var_os("LONG").is_some() { 20 } else { 1 })
}

/// The pair, its servers, and the network between these.
struct Site {
    pair: Pair,
    lab: Lab,
    relays: [Relay; 2],
}

impl Site {
    fn build() -> Site {
        let plan = Plan { first: FirstShooter::Standby, ..pairs::plan(Timing::DEMO, Fencing::StandIn) };
        let (pair, lab) = (pairs::build(plan), Lab::new());
        let relays = BOTH.map(|node| Relay::start(lab.port(name(node))));
        let site = Site { pair, lab, relays };
        BOTH.into_iter().for_each(|node| site.configure(node));
        site
    }

    /// The database before the demo's own service: it replicates, so the data are each node's own.
    fn configure(&self, node: NodeId) {
        let path = self.pair.world.home(node).join("leasehold.toml");
        let text = fs::read_to_string(&path).unwrap().replace("data = \"shared\"", "data = \"replicated\"");
        let [heron, plover] = &self.relays;
        let database = format!(
            "[[resource]]\nname = \"db\"\nkind = \"postgres\"\nstart_timeout = \"60s\"\nstop_timeout = \"6s\"\n\
             data_directory = {data}\nport = {port}\nsocket_directory = {socket}\nreplication_user = \"postgres\"\n\
             primary_conninfo = {{ heron = \"host=127.0.0.1 port={heron}\", plover = \"host=127.0.0.1 port={plover}\" }}\n\
             min_free_mb = 32\n\n[[resource]]",
            data = quoted(&self.lab.data(name(node))),
            port = self.lab.port(name(node)),
            socket = quoted(&self.lab.path(name(node))),
            heron = heron.port,
            plover = plover.port,
        );
        fs::write(&path, text.replacen("[[resource]]", &database, 1)).unwrap();
    }

    fn cut(&self, cut: bool) {
        self.pair.world.network.set_all_cut(cut);
        self.relays.iter().for_each(|relay| relay.set_cut(cut));
    }

    fn strike(&self, fault: Fault, primary: NodeId) {
        match fault {
            Fault::Kill => drop(self.pair.signal_all(primary, Signal::KILL).unwrap()),
            Fault::Planned => self.pair.command(primary, Op::Failover { force: false }).unwrap(),
            Fault::Partition => self.cut(true),
            Fault::Stop => drop(self.pair.signal_all(primary, Signal::STOP).unwrap()),
        }
    }

    /// Waits until the other node serves; then mends, and waits until the pair is whole.
    fn failover(&mut self, fault: Fault, primary: NodeId) {
        let token = self.pair.status(primary).and_then(|status| status.me.token).expect("a primary has a token");
        let begun = clock::now();
        self.strike(fault, primary);
        pairs::until_written(&mut self.pair, primary.peer(), token);
        let served = clock::now().since(begun);
        self.cut(false);
        let lab = &self.lab;
        // By the server's own word: what a node says of its readiness may be a second old.
        let streams =
            || lab.sql(name(primary), "select status from pg_stat_wal_receiver").as_deref() == Ok("streaming");
        let whole = self.pair.until("the pair is whole again", PATIENCE, |pair, _| {
            if !pair.world.is_on(primary)? {
                pair.switch_on(primary)?;
            }
            Ok(pair.whole().filter(|now| *now == primary.peer() && streams()))
        });
        if let Err(error) = whole {
            panic!("{fault:?}: {error:#}\n{}", self.why());
        }
        println!("{fault:?}: serves after {served}, whole after {}", clock::now().since(begun));
    }

    fn why(&self) -> String {
        let of = |node| self.pair.status(node).map(|s| format!("{} {:?} {:?}", name(node), s.me, s.can_fail_over));
        let logs = pairs::logs(&self.pair).map(|log| {
            let lines: Vec<_> = log.lines().collect();
            lines[lines.len().saturating_sub(60)..].join("\n")
        });
        format!("{:#?}\n{}", BOTH.map(of), logs.join("\n=====\n"))
    }
}

#[test]
fn no_acknowledged_row_is_lost_in_any_failover_and_the_old_primary_comes_back() {
    let test = "no_acknowledged_row_is_lost_in_any_failover_and_the_old_primary_comes_back";
    if !need::all(test, &[need::root(), need::file(&format!("{}/postgres", pg::BIN)), need::program("setpriv")]) {
        return;
    }
    let mut site = Site::build();
    BOTH.into_iter().for_each(|node| site.pair.switch_on(node).expect("a machine starts"));
    let whole = site.pair.until("the pair is whole", PATIENCE, |pair, _| Ok(pair.whole()));
    let mut primary = whole.unwrap_or_else(|error| panic!("{error:#}\n{}", site.why()));
    pairs::until_written(&mut site.pair, primary, 0);
    site.lab.sql(name(primary), "create table acked (number bigint primary key, token bigint)").unwrap();
    let clients = Clients::start(BOTH.map(|node| site.lab.port(name(node))));
    for round in 0..rounds() * FAULTS.len() {
        let before = clients.count();
        let acknowledged =
            site.pair.until("rows are acknowledged", PATIENCE, |_, _| Ok((clients.count() > before + 5).then_some(())));
        acknowledged.unwrap_or_else(|error| panic!("{error:#}\n{}", site.why()));
        site.failover(FAULTS[round % FAULTS.len()], primary);
        primary = primary.peer();
    }
    let before = clients.count();
    site.pair.until("rows are acknowledged", PATIENCE, |_, _| Ok((clients.count() > before).then_some(()))).unwrap();
    let acks = clients.end();
    let kept = site.lab.sql(name(primary), "select number from acked").unwrap();
    let kept: Vec<u64> = kept.lines().map(|line| line.parse().unwrap()).collect();
    let wrong = rows::judge(&acks, &kept);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let tokens: std::collections::BTreeSet<u64> = acks.iter().map(|ack| ack.token).collect();
    assert_eq!(tokens.len(), rounds() * FAULTS.len() + 1, "rows under each primary: {tokens:?}");
    println!("{} rows acknowledged, {} kept, under tokens {tokens:?}", acks.len(), kept.len());
    pairs::judged(&site.pair).unwrap_or_else(|broken| panic!("{broken}"));
}

/// The judge of the acknowledgements can find fault.
#[test]
fn a_lost_row_and_a_late_acknowledgement_are_found() {
    let ack = |number, token, sent_ns, acked_ns| rows::Ack { number, port: 1, token, sent_ns, acked_ns };
    let good = [ack(1, 2, 10, 20), ack(2, 3, 30, 40), ack(3, 2, 35, 45)];
    assert_eq!(rows::judge(&good, &[1, 2, 3]), Vec::<String>::new());
    assert!(rows::judge(&good, &[1, 2])[0].contains("lost"));
    assert!(rows::judge(&[ack(2, 3, 30, 40), ack(3, 2, 41, 45)], &[2, 3])[0].contains("after its successor"));
}
