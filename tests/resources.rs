//! Resources of kind `exec` with real processes that behave badly (casebook C35).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::config::{ExecResource, Resource, ResourceKind};
use leasehold::core::{ProofKind, Role, Span, Token};
use leasehold::resource::{Context, Failure, Group, ResourceError};
use tokio::time::timeout;

/// Only for tests that hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// A scratch folder whose name is the instance: tests run side by side on one machine.
struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Lab {
        Lab(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn group(&self, resources: &[Resource]) -> Group {
        Group::new(resources, "heron", &self.0.path().display().to_string())
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until the file has a whole line, and returns it without its end.
    async fn line(&self, name: &str) -> String {
        let appears = async {
            while !self.read(name).ends_with('\n') {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.read(name).trim_end().to_owned()
        };
        timeout(PATIENCE, appears).await.unwrap_or_else(|_| panic!("{name} does not appear"))
    }

    /// A foreground service: a shell script that runs in the scratch folder.
    fn service(&self, name: &str, script: &str) -> Resource {
        self.resource(name, script, |_| {})
    }

    fn resource(&self, name: &str, script: &str, change: impl FnOnce(&mut ExecResource)) -> Resource {
        let mut exec = ExecResource {
            start: sh(script),
            stop: None,
            status: None,
            interval: Span::from_ms(50),
            ready: None,
            foreground: true,
            environment: BTreeMap::new(),
            user: None,
            directory: Some(self.0.path().to_owned()),
        };
        change(&mut exec);
        let (start_timeout, stop_timeout) = (Span::from_secs(10), Span::from_secs(8));
        Resource {
            name: name.to_owned(),
            start_timeout,
            stop_timeout,
            checks_token: false,
            beside: false,
            restarts: 0,
            restart_window: Span::from_secs(60),
            kind: ResourceKind::Exec(exec),
        }
    }
}

fn sh(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
}

fn short(mut resource: Resource, start_ms: u64, stop_ms: u64) -> Resource {
    resource.start_timeout = Span::from_ms(start_ms);
    resource.stop_timeout = Span::from_ms(stop_ms);
    resource
}

fn primary() -> Context {
    let reason = "the peer was fenced".to_owned();
    Context { token: Token(7), role: Role::Primary, reason, proof: Some(ProofKind::Fenced) }
}

fn demoting() -> Context {
    Context { token: Token(7), role: Role::Demoting, reason: "handover".to_owned(), proof: None }
}

async fn up(group: &Group) {
    group.start(&primary(), &|| true).await.unwrap();
}

async fn down(group: &Group) {
    let result = timeout(PATIENCE, group.stop(&demoting())).await.unwrap();
    assert!(result.is_stopped(), "{result:?}");
    assert!(group.is_stopped().await.unwrap());
}

async fn failure(group: &Group) -> Failure {
    timeout(PATIENCE, group.failed()).await.expect("a failure")
}

fn alive(pid: &str) -> bool {
    fs::read_to_string(Path::new("/proc").join(pid).join("stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_service_gets_its_token_and_role_and_nothing_from_the_daemon() {
    let lab = Lab::new();
    let group = lab.group(&[lab.service("kelp", "env > got; echo done > end; exec sleep 432")]);
    up(&group).await;
    lab.line("end").await;
    let got = lab.read("got");
    for line in [
        "LEASEHOLD_TOKEN=7",
        "LEASEHOLD_ROLE=primary",
        "LEASEHOLD_REASON=the peer was fenced",
        "LEASEHOLD_PROOF=fenced",
        "LEASEHOLD_NAME=kelp",
    ] {
        assert!(got.lines().any(|l| l == line), "{line} is missing in {got}");
    }
    assert!(got.contains("LEASEHOLD_RESOURCE=kelp:") && !got.contains("CARGO"), "{got}");
    assert!(!group.is_stopped().await.unwrap());
    down(&group).await;
}

#[tokio::test]
async fn a_service_that_ignores_sigterm_is_killed_in_its_budget() {
    let lab = Lab::new();
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done";
    let group = lab.group(&[short(lab.service("kelp", script), 10_000, 2_000)]);
    up(&group).await;
    let pid = lab.line("pid").await;
    down(&group).await;
    assert!(!alive(&pid));
}

#[tokio::test]
async fn processes_that_left_the_group_and_the_session_are_found_and_killed() {
    let lab = Lab::new();
    let script = "setsid sh -c 'trap \"\" TERM; echo $$ > far; while :; do sleep 1; done' & exec sleep 432";
    let group = lab.group(&[short(lab.service("kelp", script), 10_000, 2_000)]);
    up(&group).await;
    let far = lab.line("far").await;
    down(&group).await;
    assert!(!alive(&far));
}

#[tokio::test]
async fn a_process_that_cleared_its_environment_is_found_by_its_group() {
    let lab = Lab::new();
    let script = "env -i sh -c 'echo $$ > bare; exec sleep 432' & exec sleep 432";
    let group = lab.group(&[lab.service("kelp", script)]);
    up(&group).await;
    let bare = lab.line("bare").await;
    down(&group).await;
    assert!(!alive(&bare));
}

#[tokio::test]
async fn a_stopped_service_is_killed_too() {
    let lab = Lab::new();
    let group = lab.group(&[short(lab.service("kelp", "echo $$ > pid; kill -STOP $$; sleep 432"), 10_000, 2_000)]);
    up(&group).await;
    let pid = lab.line("pid").await;
    down(&group).await;
    assert!(!alive(&pid));
}

#[tokio::test]
async fn a_service_that_floods_its_output_holds_up_nothing() {
    let lab = Lab::new();
    let group = lab.group(&[lab.service("kelp", "head -c 1000000000 /dev/zero | tr '\\0' '\\n'; exec sleep 432")]);
    up(&group).await;
    let mut late = Duration::ZERO;
    for _ in 0..50 {
        let before = std::time::Instant::now();
        tokio::time::sleep(Duration::from_millis(10)).await;
        late = late.max(before.elapsed());
    }
    assert!(late < Duration::from_secs(2), "the loop stood still for {late:?}");
    down(&group).await;
}

#[tokio::test]
async fn a_service_that_ends_is_a_failure_that_tells_how() {
    let lab = Lab::new();
    let group = lab.group(&[lab.service("reef", "exec sleep 432"), lab.service("kelp", "exit 3")]);
    up(&group).await;
    let failure = failure(&group).await;
    assert_eq!(failure.resource, "kelp");
    assert!(failure.what.contains("exit status: 3"), "{}", failure.what);
    down(&group).await;
}

#[tokio::test]
async fn a_stop_is_no_failure_and_the_next_life_hears_nothing_of_the_former() {
    let lab = Lab::new();
    let group = lab.group(&[lab.service("kelp", "exec sleep 432")]);
    for _ in 0..2 {
        up(&group).await;
        down(&group).await;
    }
    assert!(timeout(Duration::from_millis(200), group.failed()).await.is_err());
}

#[tokio::test]
async fn a_service_is_up_when_its_status_command_says_so() {
    let lab = Lab::new();
    let script = "sleep 0.3; echo up > serving; exec sleep 432";
    let group = lab.group(&[lab.resource("kelp", script, |e| e.status = Some(sh("test -s serving")))]);
    up(&group).await;
    assert_eq!(lab.read("serving"), "up\n");
    fs::remove_file(lab.path("serving")).unwrap();
    assert!(failure(&group).await.what.contains("does not serve"));
    down(&group).await;
}

#[tokio::test]
async fn a_service_that_ends_or_does_not_come_up_while_starting_fails_the_start() {
    let lab = Lab::new();
    let never = |script| lab.resource("kelp", script, |e| e.status = Some(sh("exit 1")));
    let group = lab.group(&[never("exit 4")]);
    let error = group.start(&primary(), &|| true).await.unwrap_err();
    assert!(error.to_string().contains("exit status: 4"), "{error}");
    let group = lab.group(&[short(never("exec sleep 432"), 300, 2_000)]);
    let error = group.start(&primary(), &|| true).await.unwrap_err();
    assert!(matches!(error, ResourceError::StartTimeout { .. }), "{error}");
    down(&group).await;
}

#[tokio::test]
async fn resources_start_in_order_and_stop_in_reverse_with_their_stop_commands() {
    let lab = Lab::new();
    let one = |name: &str| {
        lab.resource(name, &format!("echo start {name} >> log"), |e| {
            e.foreground = false;
            e.stop = Some(sh(&format!("echo stop {name} $LEASEHOLD_ROLE $LEASEHOLD_REASON >> log")));
        })
    };
    let group = lab.group(&[one("disk"), one("db")]);
    up(&group).await;
    down(&group).await;
    let want = "start disk\nstart db\nstop db demoting handover\nstop disk demoting handover\n";
    assert_eq!(lab.read("log"), want);
}

#[tokio::test]
async fn a_daemonizing_start_command_leaves_a_service_that_is_found_and_stopped() {
    let lab = Lab::new();
    let script =
        "setsid sh -c 'echo $$ > pid; exec sleep 432' >/dev/null 2>&1 & while [ ! -s pid ]; do sleep 0.01; done";
    let group = lab.group(&[lab.resource("kelp", script, |e| e.foreground = false)]);
    up(&group).await;
    let pid = lab.line("pid").await;
    assert!(alive(&pid) && !group.is_stopped().await.unwrap());
    down(&group).await;
    assert!(!alive(&pid));
}

#[tokio::test]
async fn a_stop_that_cannot_be_verified_is_stuck_and_says_why() {
    let lab = Lab::new();
    let mounted = lab.resource("disk", "touch mounted", |e| {
        e.foreground = false;
        e.status = Some(sh("test -e mounted"));
        e.stop = Some(sh("echo busy; exit 1"));
    });
    let group = lab.group(&[short(mounted, 10_000, 800)]);
    up(&group).await;
    let result = group.stop(&demoting()).await;
    assert!(!result.is_stopped() && format!("{result:?}").contains("still says that it serves"), "{result:?}");
    fs::remove_file(lab.path("mounted")).unwrap();
    down(&group).await;
    let unseen = lab.resource("vip", "true", |e| {
        e.foreground = false;
        e.stop = Some(sh("echo busy; exit 1"));
    });
    let result = lab.group(&[unseen]).stop(&demoting()).await;
    assert!(format!("{result:?}").contains("exit status 1: busy"), "{result:?}");
    let hanging = lab.resource("vip", "true", |e| {
        e.foreground = false;
        e.stop = Some(sh("sleep 432"));
    });
    let group = lab.group(&[short(hanging, 10_000, 800)]);
    let result = group.stop(&demoting()).await;
    assert!(format!("{result:?}").contains("did not end in time"), "{result:?}");
    assert!(format!("{:?}", group.kill().await).contains("cannot be seen"));
}

#[tokio::test]
async fn a_start_asks_between_any_two_resources_whether_it_may_go_on() {
    let lab = Lab::new();
    let group = lab.group(&[lab.service("disk", "exec sleep 432"), lab.service("db", "touch db; exec sleep 432")]);
    let asked = AtomicU32::new(0);
    let error = group.start(&primary(), &|| asked.fetch_add(1, Ordering::Relaxed) < 1).await.unwrap_err();
    assert!(matches!(error, ResourceError::MayNotContinue { .. }), "{error}");
    assert!(!lab.path("db").exists());
    down(&group).await;
}

#[tokio::test]
async fn a_stop_ends_a_start_under_way_and_no_command_runs_beside_another() {
    let lab = Lab::new();
    let slow = lab.resource("disk", "echo $$ > pid; sleep 432; touch late", |e| {
        e.foreground = false;
        e.stop = Some(sh("kill -0 $(cat pid) 2>/dev/null && touch beside; exit 0"));
    });
    let group = lab.group(&[slow]);
    let context = primary();
    let starting = group.start(&context, &|| true);
    let stopping = async {
        lab.line("pid").await;
        down(&group).await;
    };
    let (started, ()) = tokio::join!(starting, stopping);
    assert!(matches!(started, Err(ResourceError::Cancelled)), "{started:?}");
    assert!(!lab.path("late").exists() && !lab.path("beside").exists());
}

#[tokio::test]
async fn a_start_that_was_dropped_leaves_nothing_that_a_stop_does_not_find() {
    let lab = Lab::new();
    for wait_us in [0, 200, 500, 1000, 2000, 5000] {
        let group = lab.group(&[lab.service("kelp", "exec sleep 432")]);
        let _ = timeout(Duration::from_micros(wait_us), group.start(&primary(), &|| true)).await;
        down(&group).await;
    }
}

#[tokio::test]
async fn a_restarted_daemon_adopts_the_running_service_and_watches_it() {
    let lab = Lab::new();
    let resources = [lab.service("kelp", "echo $$ > pid; while :; do echo tick; sleep 0.01; done")];
    let former = lab.group(&resources);
    up(&former).await;
    let pid = lab.line("pid").await;
    drop(former);
    let group = lab.group(&resources);
    assert!(!group.is_stopped().await.unwrap());
    assert_eq!(group.adopt(&primary()).await.unwrap(), [], "all of it runs");
    assert!(timeout(Duration::from_millis(300), group.failed()).await.is_err(), "it died of its own output");
    let victim = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
    assert_eq!(failure(&group).await.resource, "kelp");
    down(&group).await;
    let missing = group.adopt(&primary()).await.unwrap();
    assert_eq!(missing.iter().map(|failure| failure.resource.as_str()).collect::<Vec<_>>(), ["kelp"]);
}

#[tokio::test]
async fn left_overs_of_a_former_daemon_are_found_and_keep_a_second_start_away() {
    let lab = Lab::new();
    let resources = [lab.service("kelp", "exec sleep 432")];
    up(&lab.group(&resources)).await;
    let group = lab.group(&resources);
    let error = group.start(&primary(), &|| true).await.unwrap_err();
    assert!(matches!(error, ResourceError::Leftovers { .. }), "{error}");
    down(&group).await;
}

#[tokio::test]
async fn another_instance_on_the_same_machine_is_left_alone() {
    let (here, there) = (Lab::new(), Lab::new());
    let mine = here.group(&[here.service("kelp", "exec sleep 432")]);
    let other = there.group(&[there.service("kelp", "echo $$ > pid; exec sleep 432")]);
    up(&mine).await;
    up(&other).await;
    let pid = there.line("pid").await;
    down(&mine).await;
    assert!(alive(&pid));
    down(&other).await;
}

#[tokio::test]
async fn kill_needs_no_stop_command_and_does_not_wait_for_one_that_hangs() {
    let lab = Lab::new();
    let stubborn = |e: &mut ExecResource| e.stop = Some(sh("echo $$ > stopper; sleep 432"));
    let group = lab.group(&[lab.resource("kelp", "trap '' TERM; while :; do sleep 1; done", stubborn)]);
    up(&group).await;
    let context = demoting();
    let mut stopping = Box::pin(group.stop(&context));
    tokio::select! {
        _ = &mut stopping => panic!("the stop command hangs"),
        _ = lab.line("stopper") => {}
    }
    let killing = async { assert!(group.kill().await.is_stopped()) };
    let ((), result) = timeout(PATIENCE, async { tokio::join!(killing, &mut stopping) }).await.unwrap();
    assert!(result.is_stopped() && !alive(lab.read("stopper").trim_end()), "{result:?}");
}

#[tokio::test]
async fn readiness_is_the_resources_own_word() {
    let lab = Lab::new();
    let group = lab.group(&[lab.resource("kelp", "true", |e| e.ready = Some(sh("echo no disk; test -e disk")))]);
    let error = group.readiness().await.unwrap_err();
    assert!(error.to_string().contains("no disk"), "{error}");
    fs::write(lab.path("disk"), "").unwrap();
    assert!(group.ready().await);
}

#[tokio::test]
async fn a_program_that_others_may_change_is_not_run() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    fs::write(lab.path("hook"), "#!/bin/sh\ntouch ran\n").unwrap();
    fs::set_permissions(lab.path("hook"), fs::Permissions::from_mode(0o757)).unwrap();
    let hook = lab.path("hook").display().to_string();
    let group = lab.group(&[lab.resource("kelp", "", |e| e.start = vec![hook])]);
    let error = group.start(&primary(), &|| true).await.unwrap_err();
    assert!(error.to_string().contains("chmod go-w"), "{error}");
    assert!(!group.ready().await && !lab.path("ran").exists());
}

#[tokio::test]
async fn a_service_runs_as_its_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let lab = Lab::new();
    let as_nobody = |e: &mut ExecResource| {
        e.user = Some("nobody".to_owned());
        e.directory = None;
        e.status = Some(sh("test $(id -un) = nobody"));
    };
    let group = lab.group(&[lab.resource("kelp", "exec sleep 432", as_nobody)]);
    up(&group).await;
    down(&group).await;
    let group = lab.group(&[lab.resource("kelp", "true", |e| e.user = Some("no-such-user".to_owned()))]);
    assert!(matches!(group.readiness().await, Err(ResourceError::NoUser { .. })));
}

#[tokio::test]
async fn a_start_that_is_told_no_before_its_first_resource_starts_nothing() {
    let lab = Lab::new();
    let may = AtomicBool::new(false);
    let group = lab.group(&[lab.service("kelp", "touch ran; exec sleep 432")]);
    assert!(group.start(&primary(), &|| may.load(Ordering::Relaxed)).await.is_err());
    assert!(group.is_stopped().await.unwrap() && !lab.path("ran").exists());
}
