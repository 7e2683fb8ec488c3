//! What is played in the laboratory. Each begins with a whole pair and ends with one; the ledger and the witness are
//! judged after each.

use anyhow::{Context, ensure};
use leasehold::control::ProofKind;

use super::ailments::*;
use super::daemons::*;
use super::outages::*;
use super::promise;
use super::site::{HOSTS, Lab, peer_of};
use super::storage::{database_power_cut, woken_after_the_take};
use super::times::{Failover, Moment};

pub type Play = fn(&mut Lab, &'static str, &mut Vec<Failover>) -> anyhow::Result<()>;

/// Gets the laboratory and its primary.
pub struct Scenario {
    pub name: &'static str,
    /// Not among those that every run plays.
    pub long: bool,
    /// Whether somebody could serve all the time, so that no pause may be longer than what `explain` promises.
    pub promised: bool,
    /// What stands beside the two hosts: see tests/lab/up.
    pub site: &'static str,
    /// The primary stood still for longer than its margin, and nothing switches it off: when it wakes, clients may still
    /// be answered by it until its guard has looked at the clock. What the storage takes is another matter.
    pub beyond_the_margin: bool,
    pub play: Play,
}

const fn scenario(name: &'static str, play: Play) -> Scenario {
    Scenario { name, long: false, promised: true, site: "plain", beyond_the_margin: false, play }
}

impl Scenario {
    const fn long(self) -> Scenario {
        Scenario { long: true, ..self }
    }

    /// Nobody can serve for as long as the fault lasts.
    const fn down_by_design(self) -> Scenario {
        Scenario { promised: false, ..self }
    }

    const fn at(self, site: &'static str) -> Scenario {
        Scenario { site, ..self }
    }

    const fn beyond_the_margin(self) -> Scenario {
        Scenario { beyond_the_margin: true, ..self }
    }
}

pub const ALL: &[Scenario] = &[
    scenario("restart of the primary's daemon", |lab, primary, _| undisturbed(lab, primary, restart)),
    scenario("restart of the standby's daemon", |lab, primary, _| undisturbed(lab, peer_of(primary), restart)),
    scenario("ten restarts of the primary's daemon in ten seconds", |lab, primary, _| {
        undisturbed(lab, primary, |lab, host| (0..10).try_for_each(|_| spaced(|| restart(lab, host))))
    }),
    scenario("SIGKILL of the primary's daemon", |lab, primary, _| undisturbed(lab, primary, kill_daemon)),
    scenario("restart of the primary's daemon while its journal stands still", |lab, primary, _| {
        undisturbed(lab, primary, restart_without_journal)
    }),
    scenario("daemon-reexec of the primary", |lab, primary, _| reexec(lab, primary)),
    scenario("needrestart on the primary", |lab, primary, _| undisturbed(lab, primary, needrestart)),
    scenario("upgrade of the standby's package", |lab, primary, _| undisturbed(lab, peer_of(primary), upgrade)),
    scenario("upgrade of the primary's package", |lab, primary, _| undisturbed(lab, primary, upgrade)),
    scenario("upgrade to a version that refuses the configuration", refused_upgrade),
    scenario("stop of the primary's daemon", stop_primary),
    scenario("stop of the standby's daemon", stop_standby),
    scenario("the primary's clock stepped by hours", |lab, primary, _| clock_stepped(lab, primary)),
    scenario("the standby's clock stepped by hours", |lab, primary, _| clock_stepped(lab, peer_of(primary))),
    scenario("the standby's state directory full", disk_full_of_standby),
    scenario("the primary's state directory full", disk_full_of_primary),
    scenario("the standby's state directory read-only", disk_read_only).down_by_design(),
    scenario("the primary's state directory read-only", disk_read_only_of_primary).down_by_design().long(),
    scenario("reboot of the primary", reboot_primary),
    scenario("reboot of the standby", reboot_standby),
    scenario("power cut of the primary", power_cut),
    scenario("freeze of the primary's kernel", freeze),
    scenario("power cut of the standby", power_cut_of_standby),
    scenario("the link between both cut", direct_link_cut),
    scenario("the primary's link to the clients cut", client_link_cut).long(),
    scenario("both links cut", both_links_cut),
    scenario("the standby hears nothing", |lab, primary, _| deaf(lab, peer_of(primary))),
    scenario("the primary hears nothing", |lab, primary, _| deaf(lab, primary)),
    scenario("one link flaps", one_link_flaps),
    scenario("links and fence network cut", all_networks_cut).down_by_design(),
    scenario("power cut of both, one back", power_cut_of_both_one_back).down_by_design(),
    scenario("power cut of both, both back", |lab, _, _| power_cut_of_both(lab, HOSTS)).down_by_design(),
    scenario("power cut of both, back in the other order", |lab, _, _| power_cut_of_both(lab, [HOSTS[1], HOSTS[0]]))
        .down_by_design(),
    scenario("both links flap for ten minutes", |lab, _, _| both_links_flap(lab, 600)).down_by_design().long(),
    scenario("both links flap for a while", |lab, _, _| both_links_flap(lab, 10)).down_by_design(),
    scenario("removal of the primary's package and reinstallation", remove_and_reinstall).long(),
    scenario("purge of the standby's package and reinstallation", purge_and_reinstall).long(),
    scenario("NFS: the primary frozen, revoked, and woken", woken_after_the_take).at("nfs").beyond_the_margin().long(),
    scenario("iSCSI: the primary frozen, revoked, and woken", woken_after_the_take)
        .at("iscsi")
        .beyond_the_margin()
        .long(),
    scenario("PostgreSQL: power cut of the primary", database_power_cut).at("postgres").long(),
];

pub fn token(lab: &Lab) -> anyhow::Result<u64> {
    Ok(lab.ledger.last().context("nothing was ever written")?.token)
}

/// The same token as before: nobody was promoted.
pub fn nobody_promoted(lab: &Lab, since: u64) -> anyhow::Result<()> {
    let now = token(lab)?;
    ensure!(now == since, "the token has changed from {since} to {now}: {}", lab.described());
    Ok(())
}

/// Until the other node serves, which a fault at this moment leads to: within what `explain` promises.
pub fn taken_over(
    lab: &mut Lab,
    name: &'static str,
    primary: &str,
    fault: impl FnOnce(&Lab) -> anyhow::Result<()>,
) -> anyhow::Result<Failover> {
    let (token, late) = (token(lab)?, promise::lateness());
    let moment = Moment::now();
    fault(lab)?;
    let survivor = peer_of(primary);
    let first = lab.until_serves(survivor, token)?;
    let failover = Failover::measure(name, moment, lab, survivor, &first);
    let late = promise::lateness().minus(late);
    promise::kept("the take-over", failover.total, lab.promise.served, late)?;
    if let Some(began) = failover.began() {
        promise::kept("the take-over up to the start of the service", began, lab.promise.begins, late)?;
    }
    Ok(failover)
}

pub fn proof_is(lab: &Lab, host: &str, wanted: ProofKind) -> anyhow::Result<()> {
    let proof = lab.status(host).and_then(|status| status.last_proof).context("a promotion has a proof")?;
    ensure!(proof.kind == wanted, "{host} was promoted by {proof:?}");
    Ok(())
}

/// `leasehold why` on this host says each of these, in this order, since the moment.
pub fn tells(lab: &mut Lab, host: &str, since: Moment, words: &[&str]) -> anyhow::Result<()> {
    let told = |lab: &Lab| -> Vec<String> {
        let decisions = lab.decisions(host).into_iter().filter(|decision| since.is_before(decision.at));
        decisions.map(|decision| decision.text).collect()
    };
    let in_order = |told: Vec<String>| {
        let mut left = told.iter();
        words.iter().all(|word| left.any(|text| text.contains(word)))
    };
    let found = lab.until(&format!("`why` on {host} says {words:?}"), |lab| in_order(told(lab)).then_some(()));
    found.with_context(|| format!("it says {:#?}", told(lab)))
}
