//! Power, kernels and cables fail.

use std::time::Duration;

use anyhow::ensure;
use leasehold::control::{Flow, ProofKind, Role};
use leasehold::core::Span;

use super::daemons::released;
use super::scenarios::{nobody_promoted, proof_is, taken_over, tells, token};
use super::site::{HOSTS, Lab, peer_of};
use super::times::{Failover, Moment};

pub fn rebooted(lab: &mut Lab, host: &str, boot: Option<&str>) -> anyhow::Result<()> {
    lab.until("another boot", |lab| {
        lab.boot(host).filter(|now| Some(now.as_str()) != boot && lab.status(host).is_some())
    })?;
    Ok(())
}

pub fn reboot_primary(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let boot = lab.boot(primary);
    let reboot = |lab: &Lab| lab.on(primary, &["systemctl", "reboot"]).map(drop);
    times.push(taken_over(lab, "reboot of the primary", primary, reboot)?);
    released(lab, primary, times)?;
    rebooted(lab, primary, boot.as_deref())
}

pub fn reboot_standby(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (standby, begun, fault) = (peer_of(primary), token(lab)?, Moment::now());
    let boot = lab.boot(standby);
    lab.on(standby, &["systemctl", "reboot"])?;
    rebooted(lab, standby, boot.as_deref())?;
    lab.until_whole()?;
    tells(lab, primary, fault, &["the peer's daemon is being stopped", "the peer rebooted"])?;
    nobody_promoted(lab, begun)
}

pub fn power_cut(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let cut = |lab: &Lab| lab.power(primary, "off").map(drop);
    times.push(taken_over(lab, "power cut of the primary", primary, cut)?);
    fenced(lab, primary, times)
}

/// Its BMC reads "on" until the standby has switched it off.
pub fn freeze(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    times.push(taken_over(lab, "freeze of the primary's kernel", primary, |lab| lab.freeze(primary, true))?);
    fenced(lab, primary, times)?;
    tells(lab, peer_of(primary), last(times), &["the peer is lost: silent for", "fence attempt 1 started"])?;
    ensure!(!lab.is_on(primary)?, "{primary} was not switched off");
    Ok(())
}

fn last(times: &[Failover]) -> Moment {
    times.last().expect("it was measured").fault
}

/// The last take-over was by a fence, and the new primary says so.
fn fenced(lab: &mut Lab, former: &str, times: &[Failover]) -> anyhow::Result<()> {
    proof_is(lab, peer_of(former), ProofKind::Fenced)?;
    tells(
        lab,
        peer_of(former),
        last(times),
        &["the peer is doubtful: silent for", "proof `fenced`", "is primary by proof"],
    )
}

pub fn power_cut_of_standby(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (begun, fault) = (token(lab)?, Moment::now());
    lab.power(peer_of(primary), "off")?;
    lab.until_sole(primary)?;
    tells(lab, primary, fault, &["the peer is doubtful: silent for", "acts alone, without a lease: proof `fenced`"])?;
    nobody_promoted(lab, begun)
}

/// Any one link suffices: nobody is even doubtful of the other.
pub fn direct_link_cut(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (begun, fault) = (token(lab)?, Moment::now());
    lab.cable(primary, "eth1", "down")?;
    lab.until("the loss of the link is seen", |lab| {
        let links = lab.status(primary)?.links;
        links.iter().any(|link| link.flow != Flow::Both).then_some(())
    })?;
    nothing_happened(lab, begun, fault)
}

/// The primary's service cannot be reached: it is handed over, and nobody is shot.
pub fn client_link_cut(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let cut = |lab: &Lab| lab.cable(primary, "eth0", "down");
    times.push(taken_over(lab, "the primary's link to the clients cut", primary, cut)?);
    released(lab, primary, times)?;
    tells(lab, primary, last(times), &["a resource failed for good"])?;
    ensure!(lab.is_on(primary)?, "{primary} was fenced");
    // What failed for good stays away for `service.flap_window`, unless an operator has mended it.
    lab.cable(primary, "eth0", "up")?;
    lab.on(primary, &["leasehold", "clear-alarms"]).map(drop)
}

/// One link comes and goes, as with a bad plug.
pub fn one_link_flaps(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (begun, fault) = (token(lab)?, Moment::now());
    for turn in 0..12 {
        lab.cable(primary, "eth1", if turn % 2 == 0 { "down" } else { "up" })?;
        lab.pause(Duration::from_millis(400));
    }
    nothing_happened(lab, begun, fault)
}

fn nothing_happened(lab: &mut Lab, begun: u64, since: Moment) -> anyhow::Result<()> {
    lab.until_written()?;
    nobody_promoted(lab, begun)?;
    for host in HOSTS {
        ensure!(lab.is_on(host)?, "{host} was fenced");
        let alarmed = lab.decisions(host).into_iter().find(|d| since.is_before(d.at) && d.kind == "peer-lost");
        ensure!(alarmed.is_none(), "{host}: {alarmed:?}");
    }
    Ok(())
}

/// Both live, both reach the clients, and neither hears the other: exactly one is switched off, and the other one serves.
pub fn both_links_cut(lab: &mut Lab, _: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let fault = Moment::now();
    lab.part(true)?;
    one_survives(lab, fault)
}

fn one_survives(lab: &mut Lab, fault: Moment) -> anyhow::Result<()> {
    let off = lab.until("one is fenced", |lab| HOSTS.into_iter().find(|host| matches!(lab.is_on(host), Ok(false))))?;
    let survivor = peer_of(off);
    lab.until("the other one serves", |lab| lab.status(survivor).filter(|status| status.me.role == Role::Primary))?;
    let written = lab.ledger.lines.len();
    lab.until("it writes", |lab| lab.ledger.lines[written..].iter().any(|line| line.node == survivor).then_some(()))?;
    ensure!(lab.is_on(survivor)?, "both were fenced");
    tells(lab, survivor, fault, &["the peer is lost: silent for", "fence attempt 1 started", "proof `fenced`"])?;
    println!("    {off} was fenced");
    Ok(())
}

/// One direction fails, on both links. Whatever is decided, the service goes on, and the pair is whole once it hears.
pub fn deaf(lab: &mut Lab, host: &'static str) -> anyhow::Result<()> {
    let fault = Moment::now();
    lab.deafen(host)?;
    one_survives(lab, fault)
}

/// Nothing can be proven: the service stays down and the standby says why, until an operator has looked.
pub fn all_networks_cut(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (standby, begun, fault) = (peer_of(primary), token(lab)?, Moment::now());
    lab.part(true)?;
    HOSTS.into_iter().try_for_each(|host| lab.cable(host, "eth2", "down"))?;
    let reason =
        lab.until("the standby is blocked", |lab| lab.status(standby)?.blocked.map(|blocked| blocked.reason))?;
    lab.until("the primary has stopped by itself", |lab| {
        lab.status(primary).filter(|status| status.me.token.is_none())
    })?;
    nobody_promoted(lab, begun)?;
    println!("    blocked: {}", reason.text);
    ensure!(reason.remedy.is_some_and(|remedy| remedy.contains("confirm-fenced")), "no command that ends it");
    tells(lab, standby, fault, &["the peer is lost: silent for", "fence attempt failed"])?;
    tells(lab, primary, fault, &["its lease ended without a new grant", "gave token"])?;
    lab.power(primary, "off")?;
    let confirm =
        |lab: &Lab| lab.on(standby, &["leasehold", "confirm-fenced", "--yes-i-have-seen-it-off", primary]).map(drop);
    times.push(taken_over(lab, "an operator's confirmation", primary, confirm)?);
    proof_is(lab, standby, ProofKind::Confirmed)?;
    tells(lab, standby, fault, &["uid 0 confirmed by hand that the peer is down", "is primary by proof `confirmed`"])
}

pub fn power_cut_of_both(lab: &mut Lab, order: [&'static str; 2]) -> anyhow::Result<()> {
    let begun = token(lab)?;
    HOSTS.into_iter().try_for_each(|host| lab.power(host, "off").map(drop))?;
    let fault = Moment::now();
    order.into_iter().try_for_each(|host| lab.power_on(host))?;
    let primary = lab.until_whole()?;
    lab.until("the service is back", |lab| token(lab).ok().filter(|token| *token > begun))?;
    tells(lab, primary, fault, &["daemon started, record read", "is primary by proof"])
}

/// The one that comes back is the former standby: it finds its peer's power off, after the patience of a fresh daemon.
pub fn power_cut_of_both_one_back(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (standby, begun) = (peer_of(primary), token(lab)?);
    HOSTS.into_iter().try_for_each(|host| lab.power(host, "off").map(drop))?;
    let fault = Moment::now();
    lab.power_on(standby)?;
    lab.until_serves(standby, begun)?;
    proof_is(lab, standby, ProofKind::Fenced)?;
    tells(lab, standby, fault, &["daemon started, record read", "reads the peer's power", "proof `fenced`"])?;
    ensure!(!lab.is_on(primary)?, "{primary} came on by itself");
    Ok(())
}

/// Both links come and go at random times around the silence that counts as death. Who is fenced is switched on again, as
/// an operator would do. What must hold is safety alone, and a whole pair once the links are well.
pub fn both_links_flap(lab: &mut Lab, seconds: u64) -> anyhow::Result<()> {
    let (begun, fault, mut fenced, mut cut) = (token(lab)?, Moment::now(), 0, false);
    // Any sequence does; the same one each time tells more.
    let mut random = 20_261_130_u64;
    while fault.elapsed() < Span::from_secs(seconds) {
        cut = !cut;
        lab.part(cut)?;
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        lab.pause(Duration::from_millis(200 + (random >> 33) % 3000));
        for host in HOSTS.into_iter().filter(|host| matches!(lab.is_on(host), Ok(false))).collect::<Vec<_>>() {
            fenced += 1;
            lab.power_on(host)?;
        }
    }
    lab.part(false)?;
    lab.mend()?;
    println!("    {fenced} times a node was fenced; token {begun} became {}", token(lab)?);
    Ok(())
}
