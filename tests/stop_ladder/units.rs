//! Kind `unit`, with a real systemd in a container.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::config::{ResourceKind, UnitResource};
use leasehold::core::{Span, Token};
use leasehold::resource::{Host, Resource, ResourceError, Unit};
use tokio::time::timeout;

use crate::hang::{self, Hanging};
use crate::lab::{PATIENCE, configured, demoting, down, is_alive, primary, stuck, until, until_hanging, up};
use crate::need;
use crate::systemd::{self, Machine};

static NUMBER: AtomicU32 = AtomicU32::new(0);
const STOP: Span = Span::from_secs(6);
/// It says its process id, which is that of the container, and takes no notice of SIGTERM.
const DEAF: &str = "ExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1; done'\nTimeoutStopSec=90s";

fn can_run(test: &str) -> bool {
    need::all(test, &systemd::needs())
}

/// Each test has a unit of its own name.
fn name() -> String {
    format!("kelp{}.service", NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn resource(machine: &Machine, unit: &str, host: Host) -> Unit {
    resource_with(machine, unit, host, |_| {})
}

fn resource_with(machine: &Machine, unit: &str, host: Host, change: impl FnOnce(&mut UnitResource)) -> Unit {
    let mut config = UnitResource {
        unit: unit.to_owned(),
        environment_file: Some(machine.path(&format!("/run/leasehold/{unit}.env"))),
        reload_on_token: false,
        interval: Span::from_ms(200),
    };
    change(&mut config);
    Unit::on(&configured("kelp", STOP, ResourceKind::Unit(config.clone())), &config, host)
}

/// A unit of this text in the shared machine.
fn shared(service: &str) -> (std::sync::Arc<Machine>, String, Unit) {
    let (machine, unit) = (Machine::shared(), name());
    machine.unit(&unit, service, "");
    let kelp = resource(&machine, &unit, machine.host());
    (machine, unit, kelp)
}

/// The processes of a unit, in numbers of this host.
fn pids(machine: &Machine, unit: &str) -> Vec<String> {
    let inside = machine.run(&["cat", &format!("/sys/fs/cgroup/systemd/system.slice/{unit}/cgroup.procs")]);
    let unified = machine.run(&["cat", &format!("/sys/fs/cgroup/unified/system.slice/{unit}/cgroup.procs")]);
    let second = machine.run(&["cat", &format!("/sys/fs/cgroup/system.slice/{unit}/cgroup.procs")]);
    let all = [inside, unified, second].join("\n");
    let numbers: std::collections::BTreeSet<&str> = all.lines().filter(|l| l.parse::<u32>().is_ok()).collect();
    // The last number of NSpid is that in the container.
    let outside = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?.to_owned();
        let mut words = line.split_whitespace();
        let (first, last) = (words.next()?.to_owned(), words.next_back()?.to_owned());
        let same =
            fs::read_link(entry.path().join("ns/pid")).ok()? == fs::read_link(machine.path("/proc/1/ns/pid")).ok()?;
        (same && numbers.contains(last.as_str())).then_some(first)
    });
    outside.collect()
}

#[tokio::test]
async fn a_unit_gets_its_token_is_watched_and_stopped_in_order() {
    if !can_run("a_unit_gets_its_token_is_watched_and_stopped_in_order") {
        return;
    }
    let (machine, unit) = (Machine::shared(), name());
    machine.unit(
        &unit,
        &format!(
            "EnvironmentFile=-/run/leasehold/{unit}.env\n\
             ExecStart=/bin/sh -c 'env > /run/{unit}.got; exec sleep 4321'\n\
             ExecReload=/bin/sh -c '. /run/leasehold/{unit}.env; echo $LEASEHOLD_TOKEN > /run/{unit}.reloaded'"
        ),
        "",
    );
    let kelp = resource_with(&machine, &unit, machine.host(), |config| config.reload_on_token = true);
    kelp.ready().await.unwrap();
    assert!(kelp.is_stopped().await.unwrap());
    assert!(!kelp.adopt(&primary()).await.unwrap());
    up(&kelp).await;
    let got = format!("/run/{unit}.got");
    until("the environment", || machine.read(&got).contains("LEASEHOLD_REASON=the peer was fenced")).await;
    assert!(machine.read(&got).contains("LEASEHOLD_TOKEN=7\n"), "{}", machine.read(&got));
    kelp.set_token(Token(9));
    until("the reload", || machine.read(&format!("/run/{unit}.reloaded")) == "9\n").await;
    let next = resource(&machine, &unit, machine.host());
    assert!(next.adopt(&primary()).await.unwrap(), "a restarted daemon goes on with it");
    let started = next.start(&primary()).await.unwrap_err();
    assert!(matches!(started, ResourceError::Leftovers { .. }), "{started}");
    down(&kelp).await;
    assert!(!machine.path(&format!("/run/leasehold/{unit}.env")).exists(), "a stopped unit has no token");
    assert!(machine.systemctl(&["is-active", &unit]).contains("inactive"));
}

#[tokio::test]
async fn a_unit_that_ignores_sigterm_is_killed_before_its_own_limit() {
    if !can_run("a_unit_that_ignores_sigterm_is_killed_before_its_own_limit") {
        return;
    }
    let (machine, unit, kelp) = shared(DEAF);
    up(&kelp).await;
    let pids = pids(&machine, &unit);
    assert!(!pids.is_empty());
    down(&kelp).await;
    assert!(pids.iter().all(|pid| !is_alive(pid)));
}

#[tokio::test]
async fn a_stop_command_that_hangs_does_not_hold_up_the_stop() {
    if !can_run("a_stop_command_that_hangs_does_not_hold_up_the_stop") {
        return;
    }
    let (_machine, _, kelp) =
        shared("ExecStart=/bin/sleep 4321\nExecStop=/bin/sh -c 'trap \"\" TERM; sleep 4321; true'\nTimeoutStopSec=90s");
    up(&kelp).await;
    down(&kelp).await;
}

/// systemd is content when the main process has ended (KillMode=process), and leaves the others be.
#[tokio::test]
async fn what_forks_away_and_is_left_behind_by_systemd_is_found_in_the_control_group() {
    if !can_run("what_forks_away_and_is_left_behind_by_systemd_is_found_in_the_control_group") {
        return;
    }
    let hidden = "setsid env -i /bin/sh -c \"trap : TERM; while :; do sleep 1; done\" & ";
    let (machine, unit, kelp) =
        shared(&format!("KillMode=process\nExecStart=/bin/sh -c '({hidden}) ; exec sleep 4321'"));
    up(&kelp).await;
    until("both run", || pids(&machine, &unit).len() >= 2).await;
    let pids = pids(&machine, &unit);
    down(&kelp).await;
    assert!(pids.iter().all(|pid| !is_alive(pid)), "{pids:?}");
}

#[tokio::test]
async fn a_unit_that_systemd_restarts_by_itself_stays_down() {
    if !can_run("a_unit_that_systemd_restarts_by_itself_stays_down") {
        return;
    }
    let restarting = format!("{DEAF}\nRestart=always\nRestartSec=10ms");
    let (_machine, _, kelp) = shared(&restarting);
    up(&kelp).await;
    timeout(PATIENCE, kelp.kill()).await.unwrap().unwrap();
    assert!(kelp.is_stopped().await.unwrap());
    up(&kelp).await;
    down(&kelp).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(kelp.is_stopped().await.unwrap(), "it does not come back");
}

#[tokio::test]
async fn what_would_start_behind_our_back_is_refused_with_the_remedy() {
    if !can_run("what_would_start_behind_our_back_is_refused_with_the_remedy") {
        return;
    }
    let machine = Machine::shared();
    let refused = async |unit: &str, remedy: &str| {
        let kelp = resource(&machine, unit, machine.host());
        for told in [kelp.ready().await, kelp.start(&primary()).await] {
            let told = told.unwrap_err().to_string();
            assert!(told.contains(remedy), "{unit}: {told}");
        }
    };
    let unit = name();
    machine.unit(&unit, "ExecStart=/bin/sleep 4321", "WantedBy=multi-user.target");
    machine.systemctl(&["enable", &unit]);
    refused(&unit, &format!("systemctl disable --now {unit}")).await;
    machine.systemctl(&["disable", &unit]);
    resource(&machine, &unit, machine.host()).ready().await.unwrap();
    machine.systemctl(&["enable", "--runtime", &unit]);
    refused(&unit, "systemctl disable --runtime --now").await;
    machine.systemctl(&["disable", "--runtime", &unit]);
    let stem = unit.trim_end_matches(".service");
    let timer = format!("{stem}.timer");
    machine.file(&timer, "[Timer]\nOnBootSec=1h\n");
    machine.systemctl(&["start", &timer]);
    refused(&unit, &format!("systemctl disable --now {timer}")).await;
    machine.systemctl(&["stop", &timer]);
    resource(&machine, &unit, machine.host()).ready().await.unwrap();
    machine.systemctl(&["add-wants", "multi-user.target", &unit]);
    refused(&unit, &format!("systemctl disable --now {unit}")).await;
    refused("no-such-unit.service", "there is no unit").await;
}

#[tokio::test]
async fn a_start_that_fails_is_told_and_a_start_limit_is_forgiven_once() {
    if !can_run("a_start_that_fails_is_told_and_a_start_limit_is_forgiven_once") {
        return;
    }
    // One of its own: reading all units anew, as other tests do, forgets how often one was started.
    let (machine, unit) = (Machine::boot(None), name());
    let kelp = resource(&machine, &unit, machine.host());
    let limit = "[Unit]\nStartLimitBurst=2\nStartLimitIntervalSec=1h\n[Service]\nExecStart=/bin/sleep 4321\n";
    machine.file(&unit, limit);
    for _ in 0..2 {
        machine.systemctl(&["start", &unit]);
        machine.systemctl(&["kill", "-s", "KILL", &unit]);
        until("it has failed", || machine.systemctl(&["is-active", &unit]).contains("failed")).await;
    }
    machine.systemctl(&["start", &unit]);
    assert_eq!(machine.systemctl(&["is-active", &unit]), "failed", "systemd starts it no more");
    up(&kelp).await;
    down(&kelp).await;
    let (_machine, _, bad) = shared("Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/false");
    let told = bad.start(&primary()).await.unwrap_err().to_string();
    assert!(told.contains("exit-code") && told.contains("journalctl"), "{told}");
    down(&bad).await;
    let (_machine, _, brief) = shared("Type=oneshot\nExecStart=/bin/true");
    let told = brief.start(&primary()).await.unwrap_err().to_string();
    assert!(told.contains("inactive"), "a unit that ends at once is not up: {told}");
}

#[tokio::test]
async fn the_death_of_a_unit_is_told() {
    if !can_run("the_death_of_a_unit_is_told") {
        return;
    }
    let (machine, unit, kelp) = shared("ExecStart=/bin/sleep 4321");
    up(&kelp).await;
    let watch = kelp.watch();
    machine.systemctl(&["kill", "-s", "KILL", &unit]);
    let told = timeout(PATIENCE, watch).await.unwrap();
    assert!(told.contains("failed") && told.contains("signal"), "{told}");
    down(&kelp).await;
}

#[tokio::test]
async fn a_start_that_was_dropped_leaves_nothing_that_a_stop_does_not_find() {
    if !can_run("a_start_that_was_dropped_leaves_nothing_that_a_stop_does_not_find") {
        return;
    }
    let (machine, unit, kelp) = shared("Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sleep 4321");
    let context = primary();
    let mut start = kelp.start(&context);
    while !machine.systemctl(&["is-active", &unit]).contains("activating") {
        assert!(timeout(Duration::from_millis(50), &mut start).await.is_err());
    }
    drop(start);
    down(&kelp).await;
}

/// C32 D. The bus is gone in the middle of the stop, and does not come back.
#[tokio::test]
async fn without_a_bus_the_stop_goes_on_through_the_control_group() {
    if !can_run("without_a_bus_the_stop_goes_on_through_the_control_group") {
        return;
    }
    let machine = Machine::boot(None);
    let slow = "ExecStart=/bin/sleep 4321\nExecStop=/bin/sleep 3";
    let (slow_one, deaf_one) = (name(), name());
    machine.unit(&slow_one, slow, "");
    machine.unit(&deaf_one, DEAF, "");
    let one = resource(&machine, &slow_one, machine.host());
    let two = resource(&machine, &deaf_one, machine.host());
    let three = resource(&machine, &deaf_one, machine.host());
    up(&one).await;
    up(&two).await;
    let deaf = pids(&machine, &deaf_one);
    let cut = async {
        until("it is stopping", || machine.systemctl(&["is-active", &slow_one]).contains("deactivating")).await;
        machine.systemctl(&["kill", "-s", "KILL", "dbus.service"]);
        machine.systemctl(&["mask", "--runtime", "--now", "dbus.socket", "dbus.service"]);
    };
    tokio::join!(down(&one), down(&two), cut);
    assert!(!deaf.is_empty() && deaf.iter().all(|pid| !is_alive(pid)));
    // From now on there is no bus from the beginning.
    let told = three.ready().await.unwrap_err().to_string();
    assert!(told.contains("cannot be reached"), "{told}");
    machine.systemctl(&["start", &deaf_one]);
    let again = pids(&machine, &deaf_one);
    assert!(!again.is_empty() && !three.is_stopped().await.unwrap());
    down(&three).await;
    assert!(again.iter().all(|pid| !is_alive(pid)));
}

/// A bus that takes every question and answers none.
#[tokio::test]
async fn a_bus_that_does_not_answer_holds_up_nothing() {
    if !can_run("a_bus_that_does_not_answer_holds_up_nothing") {
        return;
    }
    let machine = Machine::boot(None);
    let unit = name();
    machine.unit(&unit, DEAF, "");
    let kelp = resource(&machine, &unit, machine.host());
    up(&kelp).await;
    machine.systemctl(&["kill", "-s", "STOP", "dbus.service"]);
    let told = timeout(PATIENCE, kelp.ready()).await.unwrap().unwrap_err().to_string();
    assert!(told.contains("cannot be reached"), "{told}");
    down(&kelp).await;
}

#[tokio::test]
async fn a_unit_that_hangs_on_a_dead_file_system_is_stuck_until_that_answers() {
    let test = "a_unit_that_hangs_on_a_dead_file_system_is_stuck_until_that_answers";
    if !can_run(test) || !need::all(test, &hang::needs()) {
        return;
    }
    let dead = Hanging::mount();
    let machine = Machine::boot(dead.path("device").parent());
    let unit = name();
    machine.unit(&unit, "ExecStart=/bin/dd if=/dev/zero of=/shared/device count=1 conv=notrunc,fsync", "");
    dead.hang();
    let kelp = resource(&machine, &unit, machine.host());
    up(&kelp).await;
    until_hanging(|| pids(&machine, &unit)).await;
    let told = stuck(&kelp).await;
    assert!(told.contains("dd (state D)"), "{told}");
    dead.let_go();
    down(&kelp).await;
    assert!(kelp.stop(&demoting()).await.is_ok(), "a second stop finds nothing to do");
}
