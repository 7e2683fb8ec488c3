//! A server that systemd runs: with a real systemd in a container, and the programs of this machine in it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use leasehold::core::{Standing, Token};
use leasehold::resource::{Context, Group, Postgres};
use tokio::time::timeout;

use super::systemd::{self, Machine};
use super::{HERON, Lab, PATIENCE, available, need, pg, primary, until};

const UNIT: &str = "postgresql@15-main.service";

/// What a server needs of this machine, and the lab at its own place. Both are the same Debian.
fn machine(lab: &Lab) -> Machine {
    let lab_dir = lab.path(HERON).parent().unwrap().display().to_string();
    let mut binds = vec![format!("--bind={lab_dir}")];
    binds.extend(["postgresql", "zoneinfo"].map(|name| format!("--bind-ro=/usr/share/{name}")));
    binds.extend(["--bind-ro=/usr/lib/postgresql", "--bind-ro=/usr/lib/x86_64-linux-gnu:/hostlib"].map(str::to_owned));
    let machine = Machine::boot_with(&binds);
    let (uid, gid) = pg::postgres();
    let add = |file: &str, line: String| {
        let path = machine.path(file);
        fs::write(&path, fs::read_to_string(&path).unwrap() + &line).unwrap();
    };
    add("/etc/passwd", format!("postgres:x:{uid}:{gid}::/var/tmp:/bin/sh\n"));
    add("/etc/group", format!("postgres:x:{gid}:\n"));
    let service = format!(
        "User=postgres\nEnvironment=LD_LIBRARY_PATH=/hostlib LC_ALL=C\nExecStart={}/postgres -D {}\n\
         KillMode=mixed\nKillSignal=SIGINT\nTimeoutStopSec=5",
        pg::BIN,
        lab.data(HERON).display()
    );
    machine.unit(UNIT, &service, "");
    machine
}

fn group(lab: &Lab, machine: &Machine) -> Group {
    let mut config = lab.config(HERON);
    config.unit = Some(UNIT.to_owned());
    let resource = lab.resource(config.clone());
    let postgres = Postgres::on(&resource, &config, &lab.instance(HERON), HERON, machine.host());
    Group::of(vec![Arc::new(postgres)])
}

#[tokio::test]
async fn a_server_that_is_a_unit_is_started_watched_and_stopped_through_systemd() {
    let test = "a_server_that_is_a_unit_is_started_watched_and_stopped_through_systemd";
    if !available(test) || !need::all(test, &systemd::needs()) {
        return;
    }
    let lab = Lab::new_in(Path::new("/var/tmp"));
    let machine = machine(&lab);
    let is_active = || machine.systemctl(&["is-active", UNIT]);

    // As Debian's own does.
    machine.file("postgresql.service", &format!("[Unit]\nWants={UNIT}\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"));
    machine.systemctl(&["enable", "postgresql.service"]);
    let refused = group(&lab, &machine).start(&primary(2), &|| true).await.unwrap_err().to_string();
    assert!(refused.contains("`manual` into /etc/postgresql/15/main/start.conf"), "{refused}");
    let unready = group(&lab, &machine).readiness().await.unwrap_err().to_string();
    assert!(unready.contains("start.conf"), "{unready}");
    machine.systemctl(&["disable", "postgresql.service"]);

    let db = group(&lab, &machine);
    db.set_standing(Standing::Sole);
    timeout(PATIENCE, db.start(&primary(2), &|| true)).await.unwrap().unwrap();
    assert_eq!(is_active(), "active");
    assert_eq!(lab.sql(HERON, "select token from leasehold.token"), Ok("2".to_owned()));
    // What would stand on the command line stands in the file that outranks the others.
    assert_eq!(lab.sql(HERON, "show wal_retrieve_retry_interval"), Ok("500ms".to_owned()));
    assert!(!db.is_stopped().await.unwrap());

    // The next daemon takes it over, and sees its end.
    let next = group(&lab, &machine);
    next.set_standing(Standing::Sole);
    assert!(next.adopt(&Context { token: Token(4), ..primary(4) }).await.unwrap().is_empty());
    machine.systemctl(&["kill", "--signal=KILL", UNIT]);
    let failure = timeout(PATIENCE, next.failed()).await.expect("its end is noticed");
    assert!(failure.what.contains(&format!("journalctl -u {UNIT}")), "{failure:?}");
    assert!(next.stop(&Context::idle("test")).await.is_stopped());

    timeout(PATIENCE, next.start(&primary(6), &|| true)).await.unwrap().unwrap();
    assert!(next.stop(&Context::idle("test")).await.is_stopped());
    assert_eq!(is_active(), "inactive");
    assert!(next.is_stopped().await.unwrap() && pg::processes_in(&lab.data(HERON)).is_empty());

    // A server that somebody started by hand is no unit's, and would outlive it.
    timeout(PATIENCE, next.start(&primary(8), &|| true)).await.unwrap().unwrap();
    assert!(next.kill().await.is_stopped());
    pg::as_postgres(
        &format!("{}/pg_ctl", pg::BIN),
        &["-w", "-D", lab.data(HERON).to_str().unwrap(), "-l", "/dev/null", "start"],
    );
    assert!(!next.is_stopped().await.unwrap());
    assert!(next.stop(&Context::idle("test")).await.is_stopped());
    until("it is gone", || pg::processes_in(&lab.data(HERON)).is_empty()).await;
}
