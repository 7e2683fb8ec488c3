//! Two hosts that boot systemd, with BMCs whose "off" is the end of all their processes, and leasehold installed on both
//! from its package: what is promised, seen from outside.
//!
//! ```text
//! cargo test --test lab                                       some four minutes
//! LEASEHOLD_LAB=all cargo test --test lab -- --nocapture      everything: some twenty
//! LEASEHOLD_LAB="freeze,power cut of the primary" LEASEHOLD_LAB_RUNS=5 …     those that are called so, so often
//! LEASEHOLD_LAB_WRITE=1 …                                     writes the times to docs/evidence/failover-times.md
//! LEASEHOLD_LAB_MACHINES=1 …                                  the hosts are virtual machines instead of containers
//! tests/lab/up                                                the same two hosts, to play with
//! ```

#[path = "lab/ailments.rs"]
mod ailments;
#[path = "common/clients.rs"]
mod clients;
#[path = "lab/daemons.rs"]
mod daemons;
#[path = "lab/ledger.rs"]
mod ledger;
#[path = "common/need.rs"]
mod need;
#[path = "lab/outages.rs"]
mod outages;
#[path = "lab/promise.rs"]
mod promise;
#[path = "lab/scenarios.rs"]
mod scenarios;
#[path = "lab/site.rs"]
mod site;
#[path = "common/spans.rs"]
mod spans;
#[path = "lab/storage.rs"]
mod storage;
#[path = "lab/times.rs"]
mod times;
#[path = "lab/witness.rs"]
mod witness;

use std::path::Path;

use anyhow::Context;
use leasehold::os::clock;

use scenarios::{ALL, Scenario};
use site::Lab;
use times::Failover;

const PROGRAMS: [&str; 15] = [
    "mmdebstrap",
    "systemd-nspawn",
    "ipmi_sim",
    "ipmitool",
    "ip",
    "nft",
    "dpkg-shlibdeps",
    "python3",
    "mkfs.ext4",
    "gcc",
    "ganesha.nfsd",
    "dbus-daemon",
    "tgtd",
    "ssh-keygen",
    "/usr/lib/postgresql/15/bin/psql",
];

#[test]
fn a_pair_from_the_package_survives_what_happens_to_it() {
    let mut needs = vec![need::root()];
    needs.extend(PROGRAMS.into_iter().map(need::program));
    if !need::all("a_pair_from_the_package_survives_what_happens_to_it", &needs) {
        return;
    }
    promise::watch();
    let mut times = Vec::new();
    let mut failed = Vec::new();
    let mut lab = None;
    for scenario in chosen() {
        if let Err(error) = play(&mut lab, scenario, &mut times) {
            // What it left is no place for the next one.
            let state = lab.take().map(|lab| lab.described()).unwrap_or_default();
            failed.push(format!("{}: {error:#}\n{state}", scenario.name));
            println!(" FAILED     {}: {error:#}", scenario.name);
        }
    }
    let day = clock::wall().strftime("%F").to_string();
    println!("\n{}", times::table(&times, &day, ""));
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    if std::env::var_os("LEASEHOLD_LAB_WRITE").is_some() {
        write(&times, &day).expect("docs/evidence can be written");
    }
}

/// The scenarios that the environment names, as often as it says.
fn chosen() -> Vec<&'static Scenario> {
    let wanted = std::env::var("LEASEHOLD_LAB").unwrap_or_default();
    let runs = std::env::var("LEASEHOLD_LAB_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1);
    let picked = |scenario: &&Scenario| match wanted.as_str() {
        "" => !scenario.long,
        "all" => true,
        names => names.split(',').any(|name| scenario.name.contains(name)),
    };
    let found: Vec<&Scenario> = ALL.iter().filter(picked).collect();
    assert!(!found.is_empty(), "no scenario is called {wanted:?}");
    found.into_iter().flat_map(|scenario| std::iter::repeat_n(scenario, runs)).collect()
}

fn play(lab: &mut Option<Lab>, scenario: &Scenario, times: &mut Vec<Failover>) -> anyhow::Result<()> {
    if lab.as_ref().is_none_or(|lab| lab.site != scenario.site) {
        // One at a time.
        drop(lab.take());
        *lab = Some(fresh(scenario.site)?);
    }
    let lab = lab.as_mut().expect("it was made above");
    let primary = lab.until_whole()?;
    lab.set_clocks()?;
    lab.until_written()?;
    let (begun, late, first) = (clock::now(), promise::lateness(), lab.ledger.lines.len() - 1);
    (scenario.play)(lab, primary, times)?;
    lab.mend().context("afterwards")?;
    lab.until_written()?;
    let (pause, late) = (lab.ledger.longest_gap(first), promise::lateness().minus(late));
    if scenario.promised {
        promise::kept("the longest pause of the service", pause, lab.promise.served, late)?;
    }
    lab.ledger.judge()?;
    lab.witness.judge(scenario.beyond_the_margin)?;
    println!("{:>7} ms  {}; longest pause {pause}", clock::now().since(begun).0 / 1_000_000, scenario.name);
    Ok(())
}

/// From two bare machines and a package to a pair that serves; at the plain site by the commands of README.md, word for word.
fn fresh(site: &'static str) -> anyhow::Result<Lab> {
    let package = site::package(&[])?;
    let mut lab = Lab::up(site)?;
    let begun = clock::now();
    lab.install(&package)?;
    lab.until_whole()?;
    println!(
        "{:>7} ms  fresh install to working pair, by the commands of README.md",
        clock::now().since(begun).0 / 1_000_000
    );
    Ok(lab)
}

fn write(times: &[Failover], day: &str) -> anyhow::Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/evidence/failover-times.md");
    std::fs::create_dir_all(file.parent().context("a file lies in a folder")?)?;
    let table = times::table(times, day, &std::fs::read_to_string(&file).unwrap_or_default());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let text = format!("{}\nKernel {}.\n\n{table}", include_str!("lab/times.txt"), kernel.trim());
    Ok(std::fs::write(file, text)?)
}
