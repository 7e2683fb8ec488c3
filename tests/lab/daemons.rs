//! The daemon ends, restarts, is replaced or removed, by the commands that an operator types.

use std::time::Duration;

use anyhow::ensure;
use leasehold::control::ProofKind;

use super::scenarios::{nobody_promoted, proof_is, taken_over, tells, token};
use super::site::{HOSTS, Lab, package, peer_of};
use super::times::{Failover, Moment};

pub fn restart(lab: &Lab, host: &str) -> anyhow::Result<()> {
    lab.on(host, &["systemctl", "restart", "leasehold"]).map(drop)
}

/// One a second: as fast as a person who does not give up, or a broken script.
pub fn spaced(act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let second = std::thread::spawn(|| std::thread::sleep(Duration::from_secs(1)));
    act()?;
    second.join().map_err(|_| anyhow::anyhow!("the pause panicked"))
}

pub fn kill_daemon(lab: &Lab, host: &str) -> anyhow::Result<()> {
    lab.on(host, &["systemctl", "kill", "--kill-whom=main", "--signal=KILL", "leasehold"]).map(drop)
}

/// What apt does at an upgrade, with a package whose version is higher.
pub fn upgrade(lab: &Lab, host: &str) -> anyhow::Result<()> {
    lab.put(&package(&["--next"])?, host, "/root/next.deb")?;
    lab.on(host, &["dpkg", "--install", "/root/next.deb"])?;
    let version = lab.on(host, &["dpkg-query", "--show", "--showformat=${Version}", "leasehold"])?;
    ensure!(version.ends_with("+next"), "{version} is installed");
    Ok(())
}

/// The old daemon stays: while none runs, nothing renews the lease.
pub fn refused_upgrade(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    const FILE: &str = "/etc/leasehold/leasehold.toml";
    let (daemon, begun) = (lab.daemon(primary)?, token(lab)?);
    lab.on(primary, &["cp", "--archive", FILE, "/root/right.toml"])?;
    lab.on(primary, &["sed", "-i", "1i nonsense = 1", FILE])?;
    upgrade(lab, primary)?;
    lab.on(primary, &["cp", "--archive", "/root/right.toml", FILE])?;
    ensure!(lab.daemon(primary)? == daemon, "the daemon was replaced by one that does not start");
    lab.until_whole()?;
    nobody_promoted(lab, begun)
}

/// A new file in the place of a library that daemon and guard use: what follows an upgrade of that.
pub fn needrestart(lab: &Lab, host: &str) -> anyhow::Result<()> {
    let library = "/lib/x86_64-linux-gnu/libgcc_s.so.1";
    lab.on(host, &["cp", "--archive", library, "/lib/new"])?;
    lab.on(host, &["mv", "/lib/new", library])?;
    let said = lab.on(host, &["needrestart", "-l", "-r", "a"])?;
    ensure!(said.contains("leasehold.service"), "{said}");
    Ok(())
}

/// Nobody reads what the old daemon and the new one have to say.
pub fn restart_without_journal(lab: &Lab, host: &str) -> anyhow::Result<()> {
    let signal = |signal| {
        let kill = format!("kill -{signal} $(systemctl show --property=MainPID --value systemd-journald)");
        lab.on(host, &["sh", "-c", &kill])
    };
    signal("STOP")?;
    let restarted = restart(lab, host);
    signal("CONT")?;
    restarted
}

/// The service manager alone begins anew.
pub fn reexec(lab: &mut Lab, primary: &str) -> anyhow::Result<()> {
    let daemon = lab.daemon(primary)?;
    unnoticed(lab, |lab| lab.on(primary, &["systemctl", "daemon-reexec"]).map(drop))?;
    ensure!(lab.daemon(primary)? == daemon, "the daemon was replaced");
    Ok(())
}

/// Another daemon on this host, and nobody notices.
pub fn undisturbed(
    lab: &mut Lab,
    host: &str,
    act: impl FnOnce(&Lab, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (daemon, fault) = (lab.daemon(host)?, Moment::now());
    let serving = unnoticed(lab, |lab| {
        act(lab, host)?;
        lab.until("another daemon", |lab| lab.daemon(host).ok().filter(|now| *now != daemon && now.trim() != "0"))?;
        lab.until_whole().map(drop)
    })?;
    if host == serving {
        tells(lab, host, fault, &["goes on as primary from before the restart"])?;
    }
    tells(lab, peer_of(host), fault, &["the peer's daemon restarted"])
}

/// The same process of the service writes on under the same token and answers all that its clients ask, no node was
/// presumed lost, and nothing was fenced. Gives the node that serves.
fn unnoticed(lab: &mut Lab, act: impl FnOnce(&mut Lab) -> anyhow::Result<()>) -> anyhow::Result<String> {
    lab.ledger.take(Duration::ZERO);
    let begun = lab.ledger.lines.len() - 1;
    let before = lab.ledger.lines[begun].clone();
    let clients = lab.clients();
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
    Ok(before.node)
}

pub fn stop_primary(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let stop = |lab: &Lab| lab.on(primary, &["systemctl", "stop", "leasehold"]).map(drop);
    times.push(taken_over(lab, "stop of the primary's daemon", primary, stop)?);
    released(lab, primary, times)?;
    lab.on(primary, &["systemctl", "start", "leasehold"])?;
    lab.until_whole().map(drop)
}

/// The last take-over was a handover, and the new primary says so.
pub fn released(lab: &mut Lab, former: &str, times: &[Failover]) -> anyhow::Result<()> {
    let fault = times.last().expect("it was measured").fault;
    proof_is(lab, peer_of(former), ProofKind::Released)?;
    tells(lab, peer_of(former), fault, &["proof `released`: the peer stopped the service"])
}

pub fn stop_standby(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (standby, begun, fault) = (peer_of(primary), token(lab)?, Moment::now());
    lab.on(standby, &["systemctl", "stop", "leasehold"])?;
    lab.until_sole(primary)?;
    tells(lab, primary, fault, &["the peer's daemon is being stopped", "acts alone, without a lease"])?;
    lab.on(standby, &["systemctl", "start", "leasehold"])?;
    lab.until_whole()?;
    nobody_promoted(lab, begun)
}

/// A removal hands over first; what is installed again finds the configuration where it was.
pub fn remove_and_reinstall(lab: &mut Lab, primary: &'static str, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    let remove = |lab: &Lab| lab.on(primary, &["apt-get", "-qq", "-y", "remove", "leasehold"]).map(drop);
    times.push(taken_over(lab, "removal of the primary's package", primary, remove)?);
    released(lab, primary, times)?;
    reinstall(lab, primary)
}

/// What a purged node knew is gone: it comes back as a standby that learns from its peer.
pub fn purge_and_reinstall(lab: &mut Lab, primary: &'static str, _: &mut Vec<Failover>) -> anyhow::Result<()> {
    let (standby, begun, fault) = (peer_of(primary), token(lab)?, Moment::now());
    lab.on(standby, &["apt-get", "-qq", "-y", "purge", "leasehold"])?;
    lab.until_sole(primary)?;
    tells(lab, primary, fault, &["the peer's daemon is being stopped"])?;
    let left = lab.on(standby, &["sh", "-c", "ls /var/lib/leasehold /usr/bin/leasehold 2>/dev/null || true"])?;
    ensure!(left.is_empty(), "a purge leaves {left}");
    reinstall(lab, standby)?;
    tells(lab, standby, fault, &["daemon started without a record", "became standby"])?;
    nobody_promoted(lab, begun)
}

fn reinstall(lab: &mut Lab, host: &str) -> anyhow::Result<()> {
    lab.put(&package(&[])?, host, "/root/again.deb")?;
    lab.on(host, &["apt-get", "-qq", "-y", "install", "/root/again.deb"])?;
    lab.on(host, &["systemctl", "--quiet", "enable", "--now", "leasehold"])?;
    lab.until_whole().map(drop)
}
