//! Two hosts that boot systemd, with BMCs whose "off" is the end of all their processes, and leasehold installed on both
//! from its package: what is promised, seen from outside.
//!
//! ```text
//! cargo test --test lab                                       some three minutes
//! LEASEHOLD_LAB=all cargo test --test lab -- --nocapture      everything
//! LEASEHOLD_LAB="freeze,power cut of the primary" LEASEHOLD_LAB_RUNS=5 …     those that are called so, so often
//! LEASEHOLD_LAB_WRITE=1 …                                     writes the times to docs/evidence/failover-times.md
//! tests/lab/up                                                the same two hosts, to play with
//! ```

#[path = "common/clients.rs"]
mod clients;
#[path = "lab/ledger.rs"]
mod ledger;
#[path = "common/need.rs"]
mod need;
#[path = "lab/scenarios.rs"]
mod scenarios;
#[path = "lab/site.rs"]
mod site;
#[path = "lab/times.rs"]
mod times;

use std::path::Path;

use anyhow::Context;
use leasehold::os::clock;

use scenarios::{ALL, Scenario};
use site::Lab;
use times::Failover;

const PROGRAMS: [&str; 7] = ["mmdebstrap", "systemd-nspawn", "ipmi_sim", "ipmitool", "ip", "nft", "dpkg-shlibdeps"];

#[test]
fn a_pair_from_the_package_survives_what_happens_to_it() {
    let mut needs = vec![need::root()];
    needs.extend(PROGRAMS.into_iter().map(need::program));
    if !need::all("a_pair_from_the_package_survives_what_happens_to_it", &needs) {
        return;
    }
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
    let table = times::table(&times);
    println!("\n{table}");
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    if std::env::var_os("LEASEHOLD_LAB_WRITE").is_some() {
        write(&table).expect("docs/evidence can be written");
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
    if lab.is_none() {
        *lab = Some(fresh()?);
    }
    let lab = lab.as_mut().expect("it was made above");
    let primary = lab.until_whole()?;
    lab.until("the service writes", |lab| lab.ledger.last().map(drop))?;
    let begun = clock::now();
    (scenario.play)(lab, primary, times)?;
    lab.mend().context("afterwards")?;
    lab.ledger.judge()?;
    println!("{:>7} ms  {}", clock::now().since(begun).0 / 1_000_000, scenario.name);
    Ok(())
}

/// From two bare machines and a package to a pair that serves.
fn fresh() -> anyhow::Result<Lab> {
    let package = site::package(&[])?;
    let mut lab = Lab::up()?;
    let begun = clock::now();
    lab.install(&package)?;
    lab.until_whole()?;
    println!("{:>7} ms  from the package to a pair that serves", clock::now().since(begun).0 / 1_000_000);
    Ok(lab)
}

fn write(table: &str) -> anyhow::Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/evidence/failover-times.md");
    std::fs::create_dir_all(file.parent().context("a file lies in a folder")?)?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let text = format!(
        "# Failover times\n\nWritten by `LEASEHOLD_LAB_WRITE=1 cargo test --test lab` on {}: two hosts in containers (systemd), \
         the package,\nipmi_sim as their BMCs, the configuration of config/leasehold.toml (`dead_after` 1.5 s), kernel {}. The \
         service\nwrites a line each 10 ms; `total` is from the fault to the first line of the other node. Parts are medians; `-` \
         where\nnothing was lost or fenced. `silence` lasts until the reading or the attempt that brought the proof began: D/2 where a\n\
         reading suffices (the power is off), D and the head start L where the standby has to shoot.\n\n{table}",
        clock::wall().strftime("%F"),
        kernel.trim()
    );
    Ok(std::fs::write(file, text)?)
}
