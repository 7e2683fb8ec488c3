//! Kind `exec`.

use std::fs;
use std::path::Path;

use leasehold::config::{ExecResource, ResourceKind};
use leasehold::core::Span;
use leasehold::resource::{Exec, Resource};

use crate::hang::{self, Hanging};
use crate::lab::{configured, down, is_alive, stuck, until, until_hanging, up};
use crate::need;

fn service(dir: &Path, script: &str) -> Exec {
    service_with(dir, script, |_| {})
}

fn service_with(dir: &Path, script: &str, change: impl FnOnce(&mut ExecResource)) -> Exec {
    let mut exec = ExecResource {
        start: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        stop: None,
        status: None,
        interval: Span::from_ms(50),
        ready: None,
        foreground: true,
        environment: Default::default(),
        user: None,
        directory: Some(dir.to_owned()),
    };
    change(&mut exec);
    let configured = configured("kelp", Span::from_secs(3), ResourceKind::Exec(exec.clone()));
    Exec::new(&configured, &exec, &dir.display().to_string())
}

async fn pid(dir: &Path) -> String {
    let file = dir.join("pid");
    until("a pid", || fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))).await;
    fs::read_to_string(&file).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let kelp = service(dir.path(), "trap '' TERM; echo $$ > pid; while :; do sleep 1; done");
    up(&kelp).await;
    let pid = pid(dir.path()).await;
    down(&kelp).await;
    assert!(!is_alive(&pid));
}

#[tokio::test]
async fn a_program_that_forks_away_into_a_session_of_its_own_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let script = "(setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 1; done' &) & sleep 432";
    let kelp = service(dir.path(), script);
    up(&kelp).await;
    let pid = pid(dir.path()).await;
    down(&kelp).await;
    assert!(!is_alive(&pid));
}

#[tokio::test]
async fn a_program_that_hangs_on_a_dead_file_system_is_stuck_until_that_answers() {
    if !need::all("a_program_that_hangs_on_a_dead_file_system_is_stuck_until_that_answers", &hang::needs()) {
        return;
    }
    let (dir, dead) = (tempfile::tempdir().unwrap(), Hanging::mount());
    let script =
        format!("echo $$ > pid; exec dd if=/dev/zero of={} count=1 conv=notrunc,fsync", dead.path("device").display());
    dead.hang();
    let kelp = service(dir.path(), &script);
    up(&kelp).await;
    let pid = pid(dir.path()).await;
    until_hanging(|| vec![pid.clone()]).await;
    let told = stuck(&kelp).await;
    assert!(told.contains(&pid) && told.contains("dd") && told.contains("state D"), "{told}");
    dead.let_go();
    until("it is gone", || !is_alive(&pid)).await;
    down(&kelp).await;
}

/// C35: a strict sandbox makes a hook fail with a text that names no sandbox.
#[tokio::test]
async fn a_hook_that_may_not_write_is_told_where_it_may() {
    let test = "a_hook_that_may_not_write_is_told_where_it_may";
    if !need::all(test, &[need::root(), need::program("unshare"), need::program("mount")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o ro tmpfs . && cd \"$PWD\" && exec sh -c 'echo 1 > kelp.conf'";
    let hook = ["/usr/bin/unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script];
    let kelp = service_with(dir.path(), "exec sleep 432", |exec| exec.ready = Some(hook.map(str::to_owned).to_vec()));
    let told = kelp.ready().await.unwrap_err().to_string();
    assert!(told.contains("Read-only file system") && told.contains("ReadWritePaths="), "{told}");
}
