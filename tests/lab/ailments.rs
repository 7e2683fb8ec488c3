//! A node that lives and is not well: its clock jumps, or the disk under its record takes no write.

use anyhow::{Context, ensure};
use leasehold::control::ProofKind;
use leasehold::core::Span;

use super::daemons::restart;
use super::outages::power_cut_of_standby;
use super::scenarios::{nobody_promoted, proof_is, taken_over, tells, token};
use super::site::{HOSTS, Lab, peer_of};
use super::times::{Failover, Moment};

const DROP_IN: &str = "/etc/systemd/system/leasehold.service.d/clock.conf";
/// Only the wall clock, and only that of the daemon: the hosts share this machine's.
const CLOCK: &str = "[Service]\n\
    Environment=LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME_DONT_FAKE_MONOTONIC=1\n\
    Environment=FAKETIME_TIMESTAMP_FILE=/etc/wall-clock FAKETIME_NO_CACHE=1\n";
const HOUR: Span = Span::from_secs(3600);

/// Back and forth: nothing that is decided depends on it, not even a take-over afterwards.
pub fn clock_stepped(lab: &mut Lab, host: &'static str) -> anyhow::Result<()> {
    let (begun, fault) = (token(lab)?, Moment::now());
    lab.write(host, "/etc/wall-clock", "+0\n")?;
    lab.write(host, DROP_IN, CLOCK)?;
    lab.on(host, &["systemctl", "daemon-reload"])?;
    restart(lab, host)?;
    let primary = lab.until_whole()?;
    for (step, ahead) in [("-7h\n", false), ("+5h\n", true)] {
        lab.write(host, "/etc/wall-clock", step)?;
        lab.until("its daemon reads the stepped clock", |lab| {
            let at = lab.status(host)?.at.as_second() - leasehold::os::clock::wall().as_second();
            let far = at.unsigned_abs() > 4 * HOUR.0 / 1_000_000_000;
            (far && (at > 0) == ahead).then_some(())
        })?;
        lab.until_written()?;
    }
    lab.until_whole()?;
    nobody_promoted(lab, begun)?;
    let alarmed = HOSTS.into_iter().flat_map(|host| lab.decisions(host)).find(|d| d.kind == "peer-lost");
    ensure!(alarmed.is_none_or(|decision| !fault.is_before(decision.at)), "somebody was presumed lost");
    let survivor = peer_of(primary);
    taken_over(lab, "a stepped clock", primary, |lab| lab.power(primary, "off").map(drop))?;
    proof_is(lab, survivor, ProofKind::Fenced)?;
    tells(lab, survivor, fault, &["the peer is doubtful: silent for", "proof `fenced`"])?;
    lab.mend()?;
    lab.on(host, &["rm", DROP_IN])?;
    lab.on(host, &["systemctl", "daemon-reload"])?;
    restart(lab, host)?;
    lab.until_whole().map(drop)
}

/// The record was given its blocks when it was made: a full disk keeps nobody from being promoted.
pub fn disk_full_of_standby(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let victim = on_a_disk_of_its_own(lab, primary)?;
    lab.disk(victim, "full")?;
    let cut = |lab: &Lab| lab.power(primary, "off").map(drop);
    times.push(taken_over(lab, "power cut of the primary, disk of the standby full", primary, cut)?);
    let fault = times.last().context("it was measured")?.fault;
    tells(lab, victim, fault, &["proof `fenced`", "is primary by proof"])?;
    lab.mend()?;
    on_the_old_disk(lab, victim)
}

/// It serves on, alone as well, and over a restart of its daemon.
pub fn disk_full_of_primary(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let victim = on_a_disk_of_its_own(lab, primary)?;
    handed_over(lab, primary)?;
    let (begun, fault) = (token(lab)?, Moment::now());
    lab.disk(victim, "full")?;
    power_cut_of_standby(lab, victim, times)?;
    restart(lab, victim)?;
    tells(lab, victim, fault, &["goes on as primary from before the restart"])?;
    nobody_promoted(lab, begun)?;
    lab.mend()?;
    on_the_old_disk(lab, victim)
}

/// No token is used that is not durable: nobody serves, the one that cannot says why, and serves once it can.
pub fn disk_read_only(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let victim = on_a_disk_of_its_own(lab, primary)?;
    let (begun, fault) = (token(lab)?, Moment::now());
    lab.disk(victim, "read-only")?;
    lab.power(primary, "off")?;
    let reason = lab.until("it is blocked", |lab| lab.status(victim)?.blocked.map(|blocked| blocked.reason))?;
    println!("    blocked: {}", reason.text);
    ensure!(reason.text.contains("record cannot be written"), "another reason: {}", reason.text);
    tells(lab, victim, fault, &["proof `fenced`", "the record cannot be written"])?;
    nobody_promoted(lab, begun)?;
    on_the_old_disk(lab, victim)?;
    lab.until_serves(victim, begun).map(drop)
}

/// It serves on while it is renewed; alone it cannot write that it is, and stops with its lease.
pub fn disk_read_only_of_primary(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let victim = on_a_disk_of_its_own(lab, primary)?;
    handed_over(lab, primary)?;
    let (begun, fault) = (token(lab)?, Moment::now());
    lab.disk(victim, "read-only")?;
    lab.until_written()?;
    lab.power(primary, "off")?;
    tells(lab, victim, fault, &["the record cannot be written", "its lease ended without a new grant"])?;
    nobody_promoted(lab, begun)?;
    on_the_old_disk(lab, victim)?;
    lab.until_serves(victim, begun).map(drop)
}

/// The standby's record goes to a small disk; gives who that is.
fn on_a_disk_of_its_own(lab: &mut Lab, primary: &str) -> anyhow::Result<&'static str> {
    let victim = peer_of(primary);
    lab.on(victim, &["systemctl", "stop", "leasehold"])?;
    lab.disk(victim, "small")?;
    lab.on(victim, &["systemctl", "start", "leasehold"])?;
    lab.until_whole()?;
    Ok(victim)
}

fn on_the_old_disk(lab: &mut Lab, victim: &str) -> anyhow::Result<()> {
    lab.on(victim, &["systemctl", "stop", "leasehold"])?;
    lab.disk(victim, "away")?;
    lab.on(victim, &["systemctl", "start", "leasehold"]).map(drop)
}

fn handed_over(lab: &mut Lab, primary: &str) -> anyhow::Result<()> {
    lab.on(primary, &["leasehold", "failover"])?;
    lab.until("the other node is primary", |lab| lab.whole().filter(|now| *now != primary)).map(drop)
}
