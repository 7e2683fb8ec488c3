//! The group as a whole: stages, restarts in place, and when it has failed for good. With real shell services.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::config::{ExecResource, Resource, ResourceKind};
use leasehold::core::{Instant, ProofKind, Role, Span, Token};
use leasehold::resource::{Context, Failure, Group, ResourceError};
use tokio::time::{sleep, timeout};

/// Only for tests that hang.
const PATIENCE: Duration = Duration::from_secs(60);
const MINUTE: Span = Span::from_secs(60);

struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Lab {
        Lab(tempfile::tempdir().expect("a scratch folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn group(&self, resources: &[Resource]) -> Group {
        Group::new(resources, "heron", &self.0.path().display().to_string())
    }

    /// A service that notes its starts and stops in the file `acts`, and ends when the file `die-NAME` appears.
    fn service(&self, name: &str) -> Resource {
        let start = format!(
            "trap 'echo stop {name} >> acts; exit' TERM; echo start {name} >> acts
             while ! rm die-{name} 2>/dev/null; do sleep 0.02; done"
        );
        let exec = ExecResource {
            start: ["/bin/sh", "-c", &start].map(str::to_owned).to_vec(),
            stop: None,
            status: Some(["/bin/grep", "-q", &format!("start {name}"), "acts"].map(str::to_owned).to_vec()),
            interval: MINUTE,
            ready: None,
            foreground: true,
            environment: BTreeMap::new(),
            user: None,
            directory: Some(self.0.path().to_owned()),
        };
        Resource {
            name: name.to_owned(),
            start_timeout: Span::from_secs(20),
            stop_timeout: Span::from_secs(20),
            checks_token: false,
            beside: false,
            restarts: 2,
            restart_window: MINUTE,
            kind: ResourceKind::Exec(exec),
        }
    }

    fn beside(&self, name: &str) -> Resource {
        Resource { beside: true, ..self.service(name) }
    }

    fn acts(&self) -> Vec<String> {
        let acts = fs::read_to_string(self.path("acts")).unwrap_or_default();
        acts.lines().map(str::to_owned).collect()
    }

    /// The acts, once there are so many: a second start is believed by what the first one wrote, and writes a moment later.
    async fn acted(&self, count: usize) -> Vec<String> {
        let wait = async {
            while self.acts().len() < count {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{count} acts, not {:?}", self.acts()));
        self.acts()
    }

    async fn kill(&self, group: &Group, name: &str) -> Failure {
        fs::write(self.path(&format!("die-{name}")), "").expect("a file");
        timeout(PATIENCE, group.failed()).await.expect("a failure")
    }
}

fn primary() -> Context {
    Context { token: Token(7), role: Role::Primary, reason: "fenced".into(), proof: Some(ProofKind::Fenced) }
}

async fn up(group: &Group) {
    group.start(&primary(), &|| true).await.expect("a start");
}

async fn down(group: &Group) {
    let result = timeout(PATIENCE, group.stop(&Context::idle("handover"))).await.expect("an end");
    assert!(result.is_stopped(), "{result:?}");
}

async fn mend(group: &Group, failure: &Failure, second: u64) -> Result<bool, ResourceError> {
    group.mend(failure, &primary(), Instant(second * 1_000_000_000), &|| true).await
}

/// The acts without their order, for what happens side by side.
fn sorted(acts: &[String]) -> Vec<String> {
    let mut acts = acts.to_vec();
    acts.sort();
    acts
}

#[tokio::test]
async fn a_failed_resource_is_restarted_in_place_with_all_that_stands_upon_it() {
    let lab = Lab::new();
    let group = lab.group(&["disk", "db", "address"].map(|name| lab.service(name)));
    up(&group).await;
    let failure = lab.kill(&group, "db").await;
    assert!(mend(&group, &failure, 0).await.expect("a restart"));
    assert_eq!(
        lab.acted(6).await,
        ["start disk", "start db", "start address", "stop address", "start db", "start address"],
        "what stands below is left alone"
    );
    down(&group).await;
    assert_eq!(lab.acts()[6..], ["stop address", "stop db", "stop disk"]);
}

#[tokio::test]
async fn one_beside_the_failed_resource_is_left_alone() {
    let lab = Lab::new();
    let group = lab.group(&[lab.service("web"), lab.beside("mail"), lab.service("address")]);
    up(&group).await;
    assert_eq!(sorted(&lab.acts()[..2]), ["start mail", "start web"]);
    let failure = lab.kill(&group, "web").await;
    assert!(mend(&group, &failure, 0).await.expect("a restart"));
    assert_eq!(lab.acted(6).await[3..], ["stop address", "start web", "start address"]);
    // It is watched on.
    let failure = lab.kill(&group, "mail").await;
    assert_eq!(failure.resource, "mail");
    down(&group).await;
}

#[tokio::test]
async fn what_the_next_daemon_misses_is_restarted_in_place_with_all_that_stands_upon_it() {
    let lab = Lab::new();
    let former = lab.group(&["disk", "db", "address"].map(|name| lab.service(name)));
    up(&former).await;
    assert_eq!(lab.kill(&former, "db").await.resource, "db");
    drop(former);
    // Its configuration has a new one as well.
    let mail = lab.beside("mail");
    let group = lab.group(&[lab.service("disk"), lab.service("db"), mail, lab.service("address")]);
    let missing = group.adopt(&primary()).await.expect("a look");
    assert_eq!(missing.iter().map(|failure| failure.resource.as_str()).collect::<Vec<_>>(), ["db", "mail"]);
    for failure in &missing {
        assert!(mend(&group, failure, 0).await.expect("a restart"));
    }
    assert_eq!(
        lab.acted(9).await[3..],
        ["stop address", "start db", "start address", "stop address", "start mail", "start address"]
    );
    assert_eq!(group.adopt(&primary()).await.expect("a look"), []);
    // All are watched.
    assert_eq!(lab.kill(&group, "mail").await.resource, "mail");
    down(&group).await;
}

#[tokio::test]
async fn too_many_failures_within_the_window_are_for_good() {
    let lab = Lab::new();
    let group = lab.group(&[lab.service("db")]);
    up(&group).await;
    for (second, allowed) in [(0, true), (10, true), (20, false)] {
        let failure = lab.kill(&group, "db").await;
        assert_eq!(mend(&group, &failure, second).await.expect("an answer"), allowed, "after {second} s");
    }
    assert_eq!(lab.acts().len(), 3, "the third failure restarts nothing");
    down(&group).await;
}

#[tokio::test]
async fn failures_that_lie_apart_do_not_add_up_and_a_new_start_forgets() {
    let lab = Lab::new();
    let group = lab.group(&[lab.service("db")]);
    up(&group).await;
    for second in [0, 10, 65, 75] {
        let failure = lab.kill(&group, "db").await;
        assert!(mend(&group, &failure, second).await.expect("a restart"), "after {second} s");
    }
    down(&group).await;
    up(&group).await;
    let failure = lab.kill(&group, "db").await;
    assert!(mend(&group, &failure, 76).await.expect("a restart"));
    down(&group).await;
}

#[tokio::test]
async fn a_restart_in_place_starts_nothing_once_the_right_to_act_is_gone() {
    let lab = Lab::new();
    let group = lab.group(&[lab.service("db"), lab.service("address")]);
    up(&group).await;
    let failure = lab.kill(&group, "db").await;
    let mended = group.mend(&failure, &primary(), Instant(0), &|| false).await;
    assert!(matches!(mended, Err(ResourceError::MayNotContinue { .. })), "{mended:?}");
    assert_eq!(lab.acts()[2..], ["stop address"]);
    down(&group).await;
}

#[tokio::test]
async fn a_stop_ends_a_restart_in_place() {
    let lab = Lab::new();
    let mut never_up = lab.service("db");
    let ResourceKind::Exec(exec) = &mut never_up.kind else { unreachable!("an exec resource") };
    exec.status = Some(["/bin/sh", "-c", "grep -q 'start db' acts && test ! -e never"].map(str::to_owned).to_vec());
    let group = lab.group(&[never_up]);
    up(&group).await;
    let failure = lab.kill(&group, "db").await;
    fs::write(lab.path("never"), "").expect("a file");
    let (mended, ()) = tokio::join!(mend(&group, &failure, 0), async {
        while lab.acts().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        down(&group).await;
    });
    assert!(matches!(mended, Err(ResourceError::Cancelled)), "{mended:?}");
    assert_eq!(lab.acts(), ["start db", "start db", "stop db"]);
}

#[tokio::test]
async fn the_stop_budget_is_the_sum_of_the_slowest_of_each_stage() {
    let lab = Lab::new();
    let slow = |resource: Resource, seconds| Resource { stop_timeout: Span::from_secs(seconds), ..resource };
    let group = lab.group(&[slow(lab.service("web"), 3), slow(lab.beside("mail"), 5), slow(lab.service("address"), 2)]);
    assert_eq!(group.stop_budget(), Duration::from_secs(7));
}
