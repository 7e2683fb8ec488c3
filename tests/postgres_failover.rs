//! Failovers of two real daemons with real servers of PostgreSQL 15, an address and `ipmi_sim`, each node in a network of
//! its own, while clients in a third one commit numbered rows through the address: nothing that was acknowledged is lost,
//! no node acknowledges anything after its successor, and the old primary comes back by itself.
//!
//! `LONG=1` makes it twenty failovers of each kind instead of one, `LEASEHOLD_PG_ROUNDS=N` any other number; with
//! `LEASEHOLD_PG_WRITE=1` the figures go to docs/evidence/postgres.md.

#[path = "postgres_failover/full.rs"]
mod full;
#[path = "common/ipmi.rs"]
mod ipmi;
#[path = "postgres_failover/machine.rs"]
mod machine;
#[path = "common/need.rs"]
mod need;
#[path = "common/pg.rs"]
mod pg;
#[path = "common/rows.rs"]
mod rows;
#[path = "common/segment.rs"]
mod segment;
#[path = "postgres_failover/site.rs"]
mod site;
#[path = "common/spans.rs"]
mod spans;
#[path = "postgres_failover/times.rs"]
mod times;

use std::collections::BTreeSet;

use leasehold::os::clock;
use pg::NAMES;
use rows::Clients;
use site::{FAULTS, Fault, Site};
use times::Failover;

fn rounds() -> usize {
    let given = std::env::var("LEASEHOLD_PG_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    given.unwrap_or(if std::env::var_os("LONG").is_some() { 20 } else { 1 })
}

fn available(test: &str) -> bool {
    let programs = ["setpriv", "ip", "nft", "ipmi_sim", "ipmitool"].map(need::program);
    let mut needs = vec![need::root(), need::file(&format!("{}/postgres", pg::BIN))];
    needs.extend(programs);
    need::all(test, &needs)
}

/// A pair with its clients, that has served rows.
fn begin(synchronous: &str) -> (Site, Clients, usize) {
    let mut site = Site::build(synchronous);
    site.switch_on();
    let primary = site.until_whole("the pair is whole");
    site.lab.sql(NAMES[primary], "create table acked (number bigint primary key, token bigint)").unwrap();
    let clients = Clients::start(site.doors());
    (site, clients, primary)
}

/// Strikes until the other node has taken over, and waits until the struck one is its standby. Gives the new primary.
fn failover(site: &mut Site, clients: &Clients, fault: Fault, primary: usize) -> (Failover, usize) {
    let before = clients.count("address");
    site.until("rows are acknowledged", |_| clients.count("address") > before + 5);
    let token = site.token(primary).expect("a primary has a token");
    if fault == Fault::Stop {
        site.machines[primary].unplug_bmc();
    }
    let (begun, wall) = (clock::now(), clock::wall());
    site.strike(fault, primary);
    if fault == Fault::Stop {
        site.outlast_term(primary, begun);
    }
    let mut first = None;
    site.until(&format!("{fault:?}: the other node serves"), |site| {
        first = clients.first_after("address", begun.0).filter(|ack| ack.token > token);
        first.is_some() || site.machines[1 - primary].is_off()
    });
    if first.is_none() {
        // In a partition both may shoot. The standby was too slow this time, and nothing has failed over.
        assert_eq!(fault, Fault::Partition, "nobody else shoots the standby");
        println!("{fault:?}: the primary has shot first");
        site.mend();
        let primary = site.until_whole("the pair is whole after a lost race");
        return failover(site, clients, fault, primary);
    }
    let acked = leasehold::core::Instant(first.map_or(0, |ack| ack.acked_ns)).since(begun);
    let decisions = site.machines[1 - primary].decisions();
    let (served, parts) = times::read(&decisions, wall).expect("it says that it serves");
    if fault == Fault::Partition {
        site.mend();
    }
    let now = site.until_whole(&format!("{fault:?}: the pair is whole again"));
    assert_eq!(now, 1 - primary, "nothing moves but once");
    assert!(!site.has_address(primary), "one holder of the address");
    let failover = Failover { fault, served, acked, whole: clock::now().since(begun), parts };
    println!("{failover:?}");
    (failover, now)
}

#[test]
fn no_acknowledged_row_is_lost_in_any_failover_and_the_old_primary_comes_back() {
    if !available("no_acknowledged_row_is_lost_in_any_failover_and_the_old_primary_comes_back") {
        return;
    }
    let (mut site, clients, mut primary) = begin("preferred");
    let mut failovers = Vec::new();
    for round in 0..rounds() * FAULTS.len() {
        let (failover, now) = failover(&mut site, &clients, FAULTS[round % FAULTS.len()], primary);
        failovers.push(failover);
        primary = now;
    }
    let before = clients.count("address");
    site.until("rows are acknowledged", |_| clients.count("address") > before);
    let acks = clients.end();
    let kept = site.lab.sql(NAMES[primary], "select number from acked").unwrap();
    let kept: Vec<u64> = kept.lines().map(|line| line.parse().unwrap()).collect();
    let wrong = rows::judge(&acks, &kept);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let tokens: BTreeSet<u64> = acks.iter().map(|ack| ack.token).collect();
    assert!(tokens.len() > failovers.len(), "rows under each primary: {tokens:?}");
    let by_address = acks.iter().filter(|ack| ack.door == "address").count();
    let text = format!(
        "{}\n{} rows acknowledged, {by_address} of them through the address; lost: 0; acknowledged by a node after its \
         successor: 0.\n",
        times::table(&failovers),
        acks.len()
    );
    println!("{text}");
    if std::env::var_os("LEASEHOLD_PG_WRITE").is_some() {
        write_evidence(&text);
    }
}

/// Everything before the first table is written by hand.
fn write_evidence(figures: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/evidence/postgres.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let (head, _) = page.split_once("| fault |").expect("it has a table");
    std::fs::write(path, format!("{head}{figures}")).expect("writable");
}

/// Asynchronous replication: what is lost is told by the node that took over, and exactly by the one that comes back.
#[test]
fn an_asynchronous_failover_tells_its_loss_in_the_record() {
    if !available("an_asynchronous_failover_tells_its_loss_in_the_record") {
        return;
    }
    let (mut site, clients, primary) = begin("off");
    failover(&mut site, &clients, Fault::Kill, primary);
    let told = |index: usize, kind: &str| {
        let decisions = site.machines[index].decisions();
        decisions.into_iter().find(|d| d.kind == kind).map(|d| d.text).unwrap_or_default()
    };
    let loss = told(1 - primary, "loss");
    assert!(loss.contains("replication was asynchronous") && loss.contains("bytes"), "{loss:?}");
    let discarded = told(primary, "discarded");
    assert!(discarded.contains("bytes of WAL that only this node had"), "{discarded:?}");
    println!("{loss}\n{discarded}");
}

/// The judge of the acknowledgements can find fault.
#[test]
fn a_lost_row_and_a_late_acknowledgement_are_found() {
    let ack = |number, token, sent_ns, acked_ns| rows::Ack { number, door: "address", token, sent_ns, acked_ns };
    let good = [ack(1, 2, 10, 20), ack(2, 3, 30, 40), ack(3, 2, 35, 45)];
    assert_eq!(rows::judge(&good, &[1, 2, 3]), Vec::<String>::new());
    assert!(rows::judge(&good, &[1, 2])[0].contains("lost"));
    assert!(rows::judge(&[ack(2, 3, 30, 40), ack(3, 2, 41, 45)], &[2, 3])[0].contains("after its successor"));
}
