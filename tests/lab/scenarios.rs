//! What is played in the laboratory. Each begins with a whole pair and ends with one; the ledger is judged after each.

use std::time::Duration;

use anyhow::{Context, ensure};
use leasehold::control::{Flow, LeaseKind, ProofKind, Role};

use super::site::{HOSTS, Lab, peer_of};
use super::times::{Failover, Moment};

pub struct Scenario {
    pub name: &'static str,
    /// Not among those that every run plays.
    pub long: bool,
    pub play: fn(&mut Lab, &'static str, &mut Vec<Failover>) -> anyhow::Result<()>,
}

const fn short(
    name: &'static str,
    play: fn(&mut Lab, &'static str, &mut Vec<Failover>) -> anyhow::Result<()>,
) -> Scenario {
    Scenario { name, long: false, play }
}

const fn long(
    name: &'static str,
    play: fn(&mut Lab, &'static str, &mut Vec<Failover>) -> anyhow::Result<()>,
) -> Scenario {
    Scenario { name, long: true, play }
}

/// Each gets the laboratory and its primary.
pub const ALL: &[Scenario] = &[
    short("restart of the primary's daemon", |lab, primary, _| undisturbed(lab, primary, restart)),
    short("restart of the standby's daemon", |lab, primary, _| undisturbed(lab, peer_of(primary), restart)),
    short("ten restarts of the primary's daemon in ten seconds", |lab, primary, _| {
        undisturbed(lab, primary, |lab, host| (0..10).try_for_each(|_| spaced(|| restart(lab, host))))
    }),
    short("SIGKILL of the primary's daemon", |lab, primary, _| undisturbed(lab, primary, kill_daemon)),
    short("restart of the primary's daemon while its journal stands still", |lab, primary, _| {
        undisturbed(lab, primary, restart_without_journal)
    }),
    short("daemon-reexec of the primary", |lab, primary, _| {
        let begun = lab.daemon(primary)?;
        unnoticed(lab, |lab| lab.on(primary, &["systemctl", "daemon-reexec"]).map(drop))?;
        ensure!(lab.daemon(primary)? == begun, "the service manager alone was to begin anew");
        Ok(())
    }),
    short("needrestart on the primary", |lab, primary, _| undisturbed(lab, primary, needrestart)),
    short("upgrade of the standby's package", |lab, primary, _| undisturbed(lab, peer_of(primary), upgrade)),
    short("upgrade of the primary's package", |lab, primary, _| undisturbed(lab, primary, upgrade)),
    short("upgrade to a version that refuses the configuration", refused_upgrade),
    short("stop of the primary's daemon", stop_primary),
    short("stop of the standby's daemon", stop_standby),
    short("reboot of the primary", reboot_primary),
    short("reboot of the standby", reboot_standby),
    short("power cut of the primary", power_cut),
    short("freeze of the primary's kernel", freeze),
    short("power cut of the standby", power_cut_of_standby),
    short("one link cut", one_link_cut),
    short("both links cut", both_links_cut),
    short("the standby hears nothing", |lab, primary, _| deaf(lab, peer_of(primary))),
    short("the primary hears nothing", |lab, primary, _| deaf(lab, primary)),
    short("links and fence network cut", all_networks_cut),
    long("power cut of both, both back", |lab, _, _| power_cut_of_both(lab, HOSTS)),
    long("power cut of both, back in the other order", |lab, _, _| power_cut_of_both(lab, [HOSTS[1], HOSTS[0]])),
    long("removal of the primary's package and reinstallation", remove_and_reinstall),
];

fn restart(lab: &Lab, host: &str) -> anyhow::Result<()> {
    lab.on(host, &["systemctl", "restart", "leasehold"]).map(drop)
}

/// One a second: as fast as a person who does not give up, or a broken script.
fn spaced(act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let second = std::thread::spawn(|| std::thread::sleep(Duration::from_secs(1)));
    act()?;
    second.join().map_err(|_| anyhow::anyhow!("the pause panicked"))
}

fn kill_daemon(lab: &Lab, host: &str) -> anyhow::Result<()> {
    lab.on(host, &["systemctl", "kill", "--kill-whom=main", "--signal=KILL", "leasehold"]).map(drop)
}

/// What apt does at an upgrade, with a package whose version is higher.
fn upgrade(lab: &Lab, host: &str) -> anyhow::Result<()> {
    lab.put(&super::site::package(&["--next"])?, host, "/root/next.deb")?;
    lab.on(host, &["dpkg", "--install", "/root/next.deb"])?;
    let version = lab.on(host, &["dpkg-query", "--show", "--showformat=${Version}", "leasehold"])?;
    ensure!(version.ends_with("+next"), "{version} is installed");
    Ok(())
}

/// The old daemon stays: while none runs, nothing renews the lease.
fn refused_upgrade(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    const FILE: &str = "/etc/leasehold/leasehold.toml";
    let (daemon, begun) = (lab.daemon(primary)?, token(lab)?);
    lab.on(primary, &["cp", "--archive", FILE, "/root/right.toml"])?;
    lab.on(primary, &["sed", "-i", "1i nonsense = 1", FILE])?;
    upgrade(lab, primary)?;
    lab.on(primary, &["cp", "--archive", "/root/right.toml", FILE])?;
    ensure!(lab.daemon(primary)? == daemon, "the daemon was replaced by one that does not start");
    lab.until_whole()?;
    ensure!(token(lab)? == begun, "the token has changed");
    Ok(())
}

/// A new file in the place of a library that daemon and guard use: what follows an upgrade of that.
fn needrestart(lab: &Lab, host: &str) -> anyhow::Result<()> {
    let library = "/lib/x86_64-linux-gnu/libgcc_s.so.1";
    lab.on(host, &["cp", "--archive", library, "/lib/new"])?;
    lab.on(host, &["mv", "/lib/new", library])?;
    let said = lab.on(host, &["needrestart", "-l", "-r", "a"])?;
    ensure!(said.contains("leasehold.service"), "{said}");
    Ok(())
}

/// Nobody reads what the old daemon and the new one have to say.
fn restart_without_journal(lab: &Lab, host: &str) -> anyhow::Result<()> {
    let signal = |signal| {
        let kill = format!("kill -{signal} $(systemctl show --property=MainPID --value systemd-journald)");
        lab.on(host, &["sh", "-c", &kill])
    };
    signal("STOP")?;
    let restarted = restart(lab, host);
    signal("CONT")?;
    restarted
}

/// Another daemon on this host, and nobody notices.
fn undisturbed(lab: &mut Lab, host: &str, act: impl FnOnce(&Lab, &str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let daemon = lab.daemon(host)?;
    unnoticed(lab, |lab| {
        act(lab, host)?;
        lab.until("another daemon", |lab| lab.daemon(host).ok().filter(|now| *now != daemon && now.trim() != "0"))?;
        lab.until_whole().map(drop)
    })
}

/// The same process of the service writes on under the same token and answers all that its clients ask, no node was
/// presumed lost, and nothing was fenced.
fn unnoticed(lab: &mut Lab, act: impl FnOnce(&mut Lab) -> anyhow::Result<()>) -> anyhow::Result<()> {
    lab.ledger.take(Duration::ZERO);
    let begun = lab.ledger.lines.len() - 1;
    let before = lab.ledger.lines[begun].clone();
    let clients = lab.clients(&before.node);
    let fault = Moment::now();
    let acted = act(lab);
    let settled = lab.ledger.lines.len();
    let written = lab.until("the service writes on", |lab| (lab.ledger.lines.len() > settled + 10).then_some(()));
    let tally = clients.end();
    acted.and(written)?;
    let other = lab.ledger.lines[begun..]
        .iter()
        .find(|line| (line.token, &line.node, line.pid) != (before.token, &before.node, before.pid));
    ensure!(other.is_none(), "{before:?} was followed by {other:?}\n{}", lab.described());
    for host in HOSTS {
        let alarmed = lab.decisions(host).into_iter().find(|decision| {
            fault.is_before(decision.at)
                && ["peer-lost", "attempt-started", "demoting"].contains(&decision.kind.as_str())
        });
        ensure!(alarmed.is_none(), "{host}: {alarmed:?}");
    }
    println!("    {tally}; longest pause between two writes {}", lab.ledger.longest_gap(begun));
    ensure!(tally.errors.is_empty(), "{:?}\n{}", tally.errors, lab.described());
    ensure!(tally.servers() == 1, "{} processes answered", tally.servers());
    Ok(())
}

fn token(lab: &Lab) -> anyhow::Result<u64> {
    Ok(lab.ledger.last().context("nothing was ever written")?.token)
}

/// Until the other node serves, which a fault at this moment leads to.
fn taken_over(
    lab: &mut Lab,
    name: &'static str,
    primary: &str,
    fault: impl FnOnce(&Lab) -> anyhow::Result<()>,
) -> anyhow::Result<Failover> {
    let token = token(lab)?;
    let moment = Moment::now();
    fault(lab)?;
    let survivor = peer_of(primary);
    let first = lab.until_serves(survivor, token)?;
    Ok(Failover::measure(name, moment, lab, survivor, &first))
}

fn proof_is(lab: &Lab, host: &str, wanted: ProofKind) -> anyhow::Result<()> {
    let proof = lab.status(host).and_then(|status| status.last_proof).context("a promotion has a proof")?;
    ensure!(proof.kind == wanted, "{host} was promoted by {proof:?}");
    Ok(())
}

fn stop_primary(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let stop = |lab: &Lab| lab.on(primary, &["systemctl", "stop", "leasehold"]).map(drop);
    times.push(taken_over(lab, "stop of the primary's daemon", primary, stop)?);
    proof_is(lab, peer_of(primary), ProofKind::Released)?;
    lab.on(primary, &["systemctl", "start", "leasehold"])?;
    lab.until_whole().map(drop)
}

fn stop_standby(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (standby, begun) = (peer_of(primary), token(lab)?);
    lab.on(standby, &["systemctl", "stop", "leasehold"])?;
    lab.until("the primary acts alone", |lab| {
        lab.status(primary).filter(|status| status.lease.kind == LeaseKind::Sole)
    })?;
    lab.on(standby, &["systemctl", "start", "leasehold"])?;
    lab.until_whole()?;
    ensure!(token(lab)? == begun, "the token has changed");
    Ok(())
}

fn rebooted(lab: &mut Lab, host: &str, leader: Option<u32>) -> anyhow::Result<()> {
    lab.until("another boot", |lab| lab.leader(host).filter(|now| Some(*now) != leader && lab.status(host).is_some()))?;
    Ok(())
}

fn reboot_primary(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let leader = lab.leader(primary);
    let reboot = |lab: &Lab| lab.on(primary, &["systemctl", "reboot"]).map(drop);
    times.push(taken_over(lab, "reboot of the primary", primary, reboot)?);
    proof_is(lab, peer_of(primary), ProofKind::Released)?;
    rebooted(lab, primary, leader)
}

fn reboot_standby(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (standby, begun) = (peer_of(primary), token(lab)?);
    let leader = lab.leader(standby);
    lab.on(standby, &["systemctl", "reboot"])?;
    rebooted(lab, standby, leader)?;
    lab.until_whole()?;
    ensure!(token(lab)? == begun, "the token has changed");
    Ok(())
}

fn power_cut(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let cut = |lab: &Lab| lab.power(primary, "off").map(drop);
    times.push(taken_over(lab, "power cut of the primary", primary, cut)?);
    proof_is(lab, peer_of(primary), ProofKind::Fenced)
}

/// Its BMC reads "on" until the standby has switched it off.
fn freeze(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    times.push(taken_over(lab, "freeze of the primary's kernel", primary, |lab| lab.freeze(primary))?);
    proof_is(lab, peer_of(primary), ProofKind::Fenced)?;
    ensure!(!lab.is_on(primary)?, "{primary} was not switched off");
    Ok(())
}

fn power_cut_of_standby(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let begun = token(lab)?;
    lab.power(peer_of(primary), "off")?;
    lab.until("the primary acts alone", |lab| {
        lab.status(primary).filter(|status| status.lease.kind == LeaseKind::Sole)
    })?;
    ensure!(token(lab)? == begun, "the token has changed");
    Ok(())
}

fn one_link_cut(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let begun = token(lab)?;
    lab.cable(primary, "eth0", "down")?;
    lab.until("the loss of the link is seen", |lab| {
        let links = lab.status(primary)?.links;
        links.iter().any(|link| link.flow != Flow::Both).then_some(())
    })?;
    ensure!(token(lab)? == begun, "the token has changed");
    ensure!(HOSTS.into_iter().all(|host| lab.is_on(host).unwrap_or_default()), "a node was fenced");
    Ok(())
}

/// Both live and neither hears the other: exactly one is switched off, and the other one serves.
fn both_links_cut(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    ["eth0", "eth1"].into_iter().try_for_each(|interface| lab.cable(primary, interface, "down"))?;
    one_survives(lab)
}

fn one_survives(lab: &mut Lab) -> anyhow::Result<()> {
    let off = lab.until("one is fenced", |lab| HOSTS.into_iter().find(|host| matches!(lab.is_on(host), Ok(false))))?;
    let survivor = peer_of(off);
    lab.until("the other one serves", |lab| lab.status(survivor).filter(|status| status.me.role == Role::Primary))?;
    let written = lab.ledger.lines.len();
    lab.until("it writes", |lab| lab.ledger.lines[written..].iter().any(|line| line.node == survivor).then_some(()))?;
    ensure!(lab.is_on(survivor)?, "both were fenced");
    println!("    {off} was fenced");
    Ok(())
}

/// One direction fails, on both links. Whatever is decided, the service goes on, and the pair is whole once it hears.
fn deaf(lab: &mut Lab, host: &'static str) -> anyhow::Result<()> {
    lab.deafen(host)?;
    one_survives(lab)
}

/// Nothing can be proven: the service stays down and the standby says why, until an operator has looked.
fn all_networks_cut(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (standby, begun) = (peer_of(primary), token(lab)?);
    ["eth0", "eth1"].into_iter().try_for_each(|interface| lab.cable(primary, interface, "down"))?;
    HOSTS.into_iter().try_for_each(|host| lab.cable(host, "eth2", "down"))?;
    let reason =
        lab.until("the standby is blocked", |lab| lab.status(standby)?.blocked.map(|blocked| blocked.reason))?;
    lab.until("the primary has stopped by itself", |lab| {
        lab.status(primary).filter(|status| status.me.token.is_none())
    })?;
    let last = token(lab)?;
    ensure!(last == begun, "somebody serves under token {last}: {}", lab.described());
    println!("    blocked: {}", reason.text);
    lab.power(primary, "off")?;
    let confirm =
        |lab: &Lab| lab.on(standby, &["leasehold", "confirm-fenced", "--yes-i-have-seen-it-off", primary]).map(drop);
    times.push(taken_over(lab, "an operator's confirmation", primary, confirm)?);
    proof_is(lab, standby, ProofKind::Confirmed)
}

fn power_cut_of_both(lab: &mut Lab, order: [&'static str; 2]) -> anyhow::Result<()> {
    let begun = token(lab)?;
    HOSTS.into_iter().try_for_each(|host| lab.power(host, "off").map(drop))?;
    order.into_iter().try_for_each(|host| lab.power_on(host))?;
    lab.until_whole()?;
    lab.until("the service is back", |lab| token(lab).ok().filter(|token| *token > begun))?;
    Ok(())
}

/// A removal hands over first; what is installed again finds the configuration where it was.
fn remove_and_reinstall(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let remove = |lab: &Lab| lab.on(primary, &["apt-get", "-qq", "-y", "remove", "leasehold"]).map(drop);
    times.push(taken_over(lab, "removal of the primary's package", primary, remove)?);
    lab.put(&super::site::package(&[])?, primary, "/root/again.deb")?;
    lab.on(primary, &["apt-get", "-qq", "-y", "install", "/root/again.deb"])?;
    lab.on(primary, &["systemctl", "--quiet", "enable", "--now", "leasehold"])?;
    lab.until_whole().map(drop)
}
