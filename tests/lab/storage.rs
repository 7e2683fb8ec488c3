//! The service's data lie on a storage server that decides between the nodes, or in a database that replicates.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use leasehold::control::{ProofKind, Role};

use super::scenarios::{proof_is, taken_over, tells, token};
use super::site::{Lab, SERVICE_ADDRESS, in_network, peer_of};
use super::times::Failover;

/// The primary stands still, the standby takes the storage after the lease; then the primary wakes in the middle of a write.
/// Nothing here switches it off: the ledger, which is the storage's own, must not have that write.
pub fn woken_after_the_take(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let name = if lab.site == "nfs" { "NFS: freeze of the primary" } else { "iSCSI: freeze of the primary" };
    let survivor = peer_of(primary);
    times.push(taken_over(lab, name, primary, |lab| lab.freeze(primary, true))?);
    let fault = times.last().context("it was measured")?.fault;
    proof_is(lab, survivor, ProofKind::Fenced)?;
    tells(
        lab,
        survivor,
        fault,
        &["the peer is lost: silent for", "until the old lease has ended", "is primary by proof"],
    )?;
    ensure!(lab.is_on(primary)?, "{primary} was switched off, by whom?");
    let taken = token(lab)?;
    lab.freeze(primary, false)?;
    lab.until("the woken node is a standby", |lab| {
        lab.status(primary).filter(|status| status.me.role == Role::Standby)
    })?;
    lab.until_whole()?;
    lab.until_written()?;
    ensure!(token(lab)? == taken, "the woken node took over");
    Ok(())
}

/// A client on the clients' network commits rows at the service's address, whoever is there.
pub fn database_power_cut(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    lab.until("the database answers", |lab| sql(&lab.client(), "create table if not exists acked (n bigint)").ok())?;
    let client = Client::start(lab.client());
    lab.until("rows are acknowledged", |_| (client.count() > 5).then_some(()))?;
    let cut = |lab: &Lab| lab.power(primary, "off").map(drop);
    times.push(taken_over(lab, "PostgreSQL: power cut of the primary", primary, cut)?);
    let (fault, before) = (times.last().context("it was measured")?.fault, client.count());
    lab.until("rows are acknowledged by the other one", |_| (client.count() > before + 5).then_some(()))?;
    tells(lab, peer_of(primary), fault, &["proof `fenced`", "is primary by proof"])?;
    // The old primary is rewound, and follows.
    lab.mend()?;
    let acked = client.end();
    let kept = sql(&lab.client(), "select n from acked")?;
    let kept: Vec<u64> = kept.lines().map(str::parse).collect::<Result<_, _>>()?;
    let lost: Vec<&u64> = acked.iter().filter(|number| !kept.contains(number)).collect();
    ensure!(lost.is_empty(), "{} of {} acknowledged rows are lost: {lost:?}", lost.len(), acked.len());
    println!("    {} rows acknowledged, none lost", acked.len());
    Ok(())
}

fn sql(namespace: &str, statement: &str) -> anyhow::Result<String> {
    let words =
        ["timeout", "5", "/usr/lib/postgresql/15/bin/psql", "-X", "-w", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"];
    let place = ["-h", SERVICE_ADDRESS, "-U", "postgres", "-d", "postgres", "-c", statement];
    in_network(namespace, &[&words[..], &place].concat())
}

/// One row after another, until ended or dropped.
struct Client {
    over: Arc<AtomicBool>,
    acked: Arc<Mutex<Vec<u64>>>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn start(namespace: String) -> Client {
        let (over, acked) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<u64>>>::default());
        let (end, rows) = (Arc::clone(&over), Arc::clone(&acked));
        let thread = std::thread::spawn(move || {
            for number in 1.. {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                if sql(&namespace, &format!("insert into acked values ({number})")).is_ok() {
                    rows.lock().expect("no holder panics").push(number);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Client { over, acked, thread: Some(thread) }
    }

    fn count(&self) -> usize {
        self.acked.lock().expect("no holder panics").len()
    }

    fn end(self) -> Vec<u64> {
        let acked = Arc::clone(&self.acked);
        drop(self);
        acked.lock().expect("no holder panics").clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}
