//! The guard and a real systemd: a unit that would be started again after every kill.

use std::fs;

use leasehold::config::{ResourceKind, UnitResource};
use leasehold::core::Span;
use leasehold::os::clock;
use leasehold::os::shared::Fired;
use leasehold::resource::{Remains, Resource as _, Unit};
use rustix::process::{Pid, Signal, kill_process};

use super::alone::Alone;
use super::systemd::{self, Machine};
use super::{need, until};

const UNIT: &str = "kelp.service";
const SERVICE: &str = "ExecStart=sleep infinity\nRestart=always\nRestartSec=50ms\nStartLimitIntervalSec=0";

fn remains(machine: &Machine) -> Remains {
    let config = UnitResource {
        unit: UNIT.to_owned(),
        interval: Span::from_secs(1),
        environment_file: Some("/nonexistent/token".into()),
        reload_on_token: false,
    };
    let configured = leasehold::config::Resource {
        name: "kelp".to_owned(),
        start_timeout: Span::from_secs(10),
        stop_timeout: Span::from_secs(10),
        checks_token: false,
        beside: false,
        restarts: 0,
        restart_window: Span::from_secs(10),
        kind: ResourceKind::Unit(config.clone()),
    };
    Unit::on(&configured, &config, machine.host()).remains()
}

fn started() -> Machine {
    let machine = Machine::boot(None);
    machine.unit(UNIT, SERVICE, "");
    machine.systemctl(&["start", UNIT]);
    assert_eq!(machine.systemctl(&["is-active", UNIT]), "active");
    machine
}

#[test]
fn a_unit_that_systemd_would_start_again_is_stopped_for_good_and_nothing_is_reset() {
    if !need::all("a_unit_that_systemd_would_start_again_is_stopped_for_good_and_nothing_is_reset", &systemd::needs()) {
        return;
    }
    let machine = started();
    let alone = Alone::new();
    let _guard = alone.guard_within(machine.host().pid);
    let remains = remains(&machine);
    assert!(remains.hidden.is_empty() && remains.units.len() == 1, "{remains:?}");
    let told = alone.lease(300, &remains);
    alone.until_fired(Fired::Proven);
    // Far beyond the 50 ms after which it would be started again.
    until("it looked again and again", || alone.said().unwrap().alive_at > told.deadline.after(Span::from_secs(5)));
    // Killed, and not waiting for its next start ("activating").
    let state = machine.systemctl(&["is-active", UNIT]);
    assert!(matches!(state.as_str(), "inactive" | "failed"), "{state}");
    assert_eq!((alone.reset().as_str(), alone.said().unwrap().fired), ("", Fired::Proven));
}

#[test]
fn a_unit_whose_manager_does_not_answer_is_killed_and_the_node_is_reset_for_it_may_come_back() {
    if !need::all(
        "a_unit_whose_manager_does_not_answer_is_killed_and_the_node_is_reset_for_it_may_come_back",
        &systemd::needs(),
    ) {
        return;
    }
    let machine = started();
    let alone = Alone::new();
    let _guard = alone.guard_within(machine.host().pid);
    let remains = remains(&machine);
    let group = |remains: &Remains| remains.units[0].trees.iter().any(|tree| is_populated(tree));
    until("its group is there", || group(&remains));
    let manager = Pid::from_raw(machine.host().pid).unwrap();
    kill_process(manager, Signal::STOP).unwrap();
    let told = alone.lease(300, &remains);
    until("a reset was ordered", || !alone.reset().is_empty());
    assert!(clock::now() >= told.deadline.after(told.reset_after));
    assert!(!group(&remains), "killed all the same");
    kill_process(manager, Signal::CONT).unwrap();
}

/// The zombies of a manager that stands still count nowhere.
fn is_populated(tree: &std::path::Path) -> bool {
    let group = tree.join("system.slice").join(UNIT);
    let pids = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    pids.lines().any(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    })
}
