//! Resources of kind `postgres` with real servers of PostgreSQL 15 (casebook C28, C29, C31).

#[path = "postgres/alone.rs"]
mod alone;
#[path = "postgres/by_unit.rs"]
mod by_unit;
#[path = "postgres/cut_off.rs"]
mod cut_off;
#[path = "postgres/disk.rs"]
mod disk;
#[path = "postgres/loss.rs"]
mod loss;
#[path = "common/need.rs"]
mod need;
#[path = "common/pg.rs"]
mod pg;
#[path = "common/systemd.rs"]
mod systemd;

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::config::{PostgresResource, Rejoin, Synchronous};
use leasehold::core::{ProofKind, Role, Span, Standing, Token};
use leasehold::resource::{Context, Group, ResourceError};
use pg::{Lab, NAMES, PATIENCE};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

const POLL: Duration = Duration::from_millis(50);
const HERON: &str = NAMES[0];
const PLOVER: &str = NAMES[1];

fn available(test: &str) -> bool {
    need::all(test, &[need::root(), need::file(&format!("{}/postgres", pg::BIN)), need::program("setpriv")])
}

/// Both nodes' groups, as two daemons would have them.
struct Pair {
    lab: Lab,
    groups: [Group; 2],
}

impl Pair {
    fn new() -> Pair {
        Pair::with(|_| {})
    }

    fn with(change: impl Fn(&mut PostgresResource)) -> Pair {
        Pair::of(Lab::new(), change)
    }

    fn of(lab: Lab, change: impl Fn(&mut PostgresResource)) -> Pair {
        let groups = NAMES.map(|node| group(&lab, node, &change));
        Pair { lab, groups }
    }

    fn group(&self, node: &str) -> &Group {
        &self.groups[usize::from(node == PLOVER)]
    }

    async fn start(&self, node: &str, token: u64) -> Result<(), ResourceError> {
        let context = Context {
            token: Token(token),
            role: Role::Primary,
            reason: "test".to_owned(),
            proof: Some(ProofKind::Fenced),
        };
        timeout(PATIENCE, self.group(node).start(&context, &|| true)).await.expect("a start ends")
    }

    async fn stop(&self, node: &str) {
        let result = timeout(PATIENCE, self.group(node).stop(&Context::idle("test"))).await.expect("a stop ends");
        assert!(result.is_stopped(), "{result:?}");
        assert!(self.group(node).is_stopped().await.unwrap());
    }

    async fn follow(&self, node: &str) {
        let followed = timeout(PATIENCE, self.group(node).stand_by(&Context::idle("test"))).await;
        followed.unwrap_or_else(|_| panic!("{node} does not follow: {:?}", self.group(node).progress())).unwrap();
    }

    async fn until_ready(&self, node: &str) {
        let mut last = String::new();
        let ready = async {
            while let Err(error) = self.group(node).readiness().await {
                last = error.to_string();
                sleep(POLL).await;
            }
        };
        if timeout(PATIENCE, ready).await.is_err() {
            panic!("{node} does not become ready: {last}");
        }
    }

    async fn why_not_ready(&self, node: &str) -> String {
        self.group(node).readiness().await.expect_err("not ready").to_string()
    }

    /// A primary with a ready standby.
    async fn whole(&self) {
        self.group(HERON).set_standing(Standing::Sole);
        self.start(HERON, 2).await.unwrap();
        self.sql(HERON, "create table row (number int primary key)");
        self.follow(PLOVER).await;
        self.until_ready(PLOVER).await;
        self.group(PLOVER).set_standing(Standing::Paired);
    }

    fn sql(&self, node: &str, statement: &str) -> String {
        self.lab.sql(node, statement).unwrap_or_else(|error| panic!("{node}: {statement}: {error}"))
    }
}

fn group(lab: &Lab, node: &str, change: impl Fn(&mut PostgresResource)) -> Group {
    let mut config = lab.config(node);
    change(&mut config);
    Group::new(&[lab.resource(config)], node, &lab.instance(node))
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            sleep(POLL).await;
        }
    };
    timeout(PATIENCE, holds).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

fn mark(lab: &Lab, node: &str) -> String {
    fs::read_to_string(lab.path(node).join("data.leasehold")).unwrap_or_default()
}

#[tokio::test]
async fn the_standby_takes_over_and_the_old_primary_is_rewound_and_follows() {
    if !available("the_standby_takes_over_and_the_old_primary_is_rewound_and_follows") {
        return;
    }
    let pair = Pair::new();
    pair.whole().await;
    assert_eq!(pair.sql(HERON, "select sync_state from pg_stat_replication"), "sync");
    pair.sql(HERON, "insert into row values (1)");
    assert!(!pair.group(HERON).is_stopped().await.unwrap(), "a primary acts");
    assert!(pair.group(PLOVER).is_stopped().await.unwrap(), "a standby does not act");
    // What nobody but the old primary has: it must be gone in the end.
    pair.lab.kill_all(PLOVER);
    pair.sql(HERON, "set synchronous_commit = local; insert into row values (2)");
    pair.lab.kill_all(HERON);

    pair.start(PLOVER, 3).await.unwrap();
    pair.stop(HERON).await;
    pair.sql(PLOVER, "set synchronous_commit = local; insert into row values (3)");
    pair.group(PLOVER).set_standing(Standing::Sole);
    let watching = pair.group(PLOVER);
    tokio::select! {
        failure = watching.failed() => panic!("{failure:?}"),
        () = pair.follow(HERON) => {}
    }
    pair.until_ready(HERON).await;
    assert_eq!(pair.sql(PLOVER, "select timeline_id from pg_control_checkpoint()"), "2");
    assert_eq!(pair.sql(HERON, "select string_agg(number::text, ' ' order by number) from row"), "1 3");
    assert_eq!(pair.sql(HERON, "select pg_is_in_recovery()"), "t");
    assert!(mark(&pair.lab, HERON).contains("following"), "{}", mark(&pair.lab, HERON));
    assert_eq!(pair.sql(PLOVER, "select slot_name, active from pg_replication_slots"), "leasehold_heron|t");
    assert_eq!(
        pair.sql(HERON, "select count(*) from pg_replication_slots"),
        "0",
        "a slot here would keep WAL for ever"
    );

    assert_eq!(pair.sql(PLOVER, "select leasehold_check(3)"), "");
    let stale = pair.lab.sql(PLOVER, "select leasehold_check(2)").unwrap_err();
    assert!(stale.contains("stale token 2: the primary holds 3"), "{stale}");
    // A node with an older token than the database has seen must not act.
    pair.stop(PLOVER).await;
    let refused = pair.start(PLOVER, 1).await.unwrap_err().to_string();
    assert!(refused.contains("has seen token 3, above 1"), "{refused}");
    pair.stop(PLOVER).await;
}

#[tokio::test]
async fn a_planned_move_there_and_back_loses_nothing_and_needs_no_rewind() {
    if !available("a_planned_move_there_and_back_loses_nothing_and_needs_no_rewind") {
        return;
    }
    let pair = Pair::with(|config| config.synchronous = Synchronous::Required);
    pair.group(HERON).set_standing(Standing::Sole);
    pair.start(HERON, 2).await.unwrap();
    pair.follow(PLOVER).await;
    pair.until_ready(PLOVER).await;
    pair.sql(HERON, "create table row (number int primary key)");
    for (round, (from, to)) in [(HERON, PLOVER), (PLOVER, HERON)].into_iter().enumerate() {
        let number = round + 10;
        pair.sql(from, &format!("insert into row values ({number})"));
        pair.stop(from).await;
        pair.start(to, 3 + round as u64).await.unwrap();
        assert_eq!(pair.sql(to, &format!("select number from row where number = {number}")), number.to_string());
        pair.follow(from).await;
        pair.until_ready(from).await;
    }
    assert_eq!(pair.sql(HERON, "select count(*) from row"), "2");
}

/// Casebook C29: the mark forbids every start, over a restart of everything; nothing is removed; only a full copy helps.
#[tokio::test]
async fn a_rewind_that_fails_in_the_middle_leaves_a_mark_until_a_full_copy_is_made() {
    if !available("a_rewind_that_fails_in_the_middle_leaves_a_mark_until_a_full_copy_is_made") {
        return;
    }
    let pair = Pair::new();
    pair.whole().await;
    pair.lab.kill_all(HERON);
    pair.start(PLOVER, 3).await.unwrap();
    pair.sql(PLOVER, "checkpoint");
    let broken = "case \"$*\" in *--dry-run*) exec $REAL \"$@\";; esac; echo '37/90 kB (41%) copied' >&2; exit 1";
    let bin = pair.lab.stand_ins("broken", &[("pg_rewind", broken)]);
    let heron = group(&pair.lab, HERON, |config| config.bin_directory = bin.clone());
    heron.stop(&Context::idle("test")).await;
    let told = heron.stand_by(&Context::idle("test")).await.unwrap_err().to_string();
    assert!(told.contains("needs a full copy") && told.contains("41%"), "{told}");

    // As after a reboot, and with a pg_rewind that works.
    let again = Pair::of(pair.lab, |_| {});
    assert!(again.why_not_ready(HERON).await.contains("needs a full copy"));
    let refused = again.start(HERON, 4).await.unwrap_err().to_string();
    assert!(refused.contains("not started") && refused.contains("needs a full copy"), "{refused}");
    let told = again.group(HERON).stand_by(&Context::idle("test")).await.unwrap_err().to_string();
    assert!(told.contains("needs a full copy"), "{told}");
    assert!(pg::processes_in(&again.lab.data(HERON)).is_empty(), "no server may run on these data");
    assert!(again.lab.data(HERON).join("PG_VERSION").exists());
    assert_eq!(again.sql(PLOVER, "select count(*) from row"), "0", "the primary goes on meanwhile");

    let cloning = Pair::of(again.lab, |config| config.rejoin = Rejoin::RewindOrClone);
    fs::write(cloning.lab.data(HERON).join("keepsake"), "old").unwrap();
    cloning.group(PLOVER).set_standing(Standing::Sole);
    cloning.start(PLOVER, 5).await.unwrap();
    cloning.follow(HERON).await;
    cloning.until_ready(HERON).await;
    let aside = cloning.lab.path(HERON).join("data.old-1/keepsake");
    assert_eq!(fs::read_to_string(aside).unwrap(), "old", "data are never removed unless the configuration says so");
}

/// Casebook C29: what can be refused is refused before anything has changed.
#[tokio::test]
async fn a_rewind_that_the_primary_refuses_leaves_no_mark_and_is_tried_again() {
    if !available("a_rewind_that_the_primary_refuses_leaves_no_mark_and_is_tried_again") {
        return;
    }
    let pair = Pair::new();
    pair.whole().await;
    pair.lab.kill_all(HERON);
    pair.start(PLOVER, 3).await.unwrap();
    let allowed = pair.lab.path("allowed");
    let refusing = format!(
        "[ -e {} ] || {{ echo 'permission denied for function' >&2; exit 1; }}; exec $REAL \"$@\"",
        allowed.display()
    );
    let bin = pair.lab.stand_ins("refusing", &[("pg_rewind", &refusing)]);
    let heron = group(&pair.lab, HERON, |config| config.bin_directory = bin.clone());
    heron.stop(&Context::idle("test")).await;
    let follow = async { heron.stand_by(&Context::idle("test")).await };
    let allow = async {
        let told = || heron.progress().first().map(|(_, told)| told.text.clone()).unwrap_or_default();
        until("the refusal is told", || told().contains("permission denied")).await;
        assert!(mark(&pair.lab, HERON).contains("acting"), "{}", mark(&pair.lab, HERON));
        fs::write(&allowed, "").unwrap();
    };
    let both = timeout(PATIENCE, async { tokio::join!(follow, allow) }).await;
    let (followed, ()) = both.unwrap_or_else(|_| panic!("it does not follow: {:?}", heron.progress()));
    followed.unwrap();
    assert!(mark(&pair.lab, HERON).contains("following"));
}

/// A stand-in for psql that counts promotions in a file and does with them what the test says.
fn counting(lab: &Lab, name: &str, promotion: &str) -> std::path::PathBuf {
    let log = lab.path(HERON).join("promotions");
    let script =
        format!("case \"$*\" in *pg_promote*) echo asked >> {0}; {promotion};; esac; exec $REAL \"$@\"", log.display());
    lab.stand_ins(name, &[("psql", &script)])
}

fn promotions(lab: &Lab) -> usize {
    fs::read_to_string(lab.path(HERON).join("promotions")).unwrap_or_default().lines().count()
}

fn standby_of(lab: Lab, bin: &Path, limit: Span) -> (Lab, Group) {
    pg::as_postgres("touch", &[lab.data(HERON).join("standby.signal").to_str().unwrap()]);
    let mut config = lab.config(HERON);
    config.bin_directory = bin.to_owned();
    let mut resource = lab.resource(config);
    resource.start_timeout = limit;
    let group = Group::new(&[resource], HERON, &lab.instance(HERON));
    (lab, group)
}

fn primary(token: u64) -> Context {
    Context { token: Token(token), role: Role::Primary, reason: "test".to_owned(), proof: Some(ProofKind::Fenced) }
}

/// Casebook C28: the tool fails, and the promotion happens all the same, later.
#[tokio::test]
async fn a_promotion_whose_tool_died_is_waited_for_and_asked_for_once() {
    if !available("a_promotion_whose_tool_died_is_waited_for_and_asked_for_once") {
        return;
    }
    let lab = Lab::new();
    let later =
        "setsid --fork bash -c 'sleep 3; exec \"$0\" \"$@\"' $REAL \"$@\" >/dev/null 2>&1; sleep 0.3; kill -9 $$";
    let bin = counting(&lab, "slow", later);
    let (lab, group) = standby_of(lab, &bin, Span::from_secs(60));
    timeout(PATIENCE, group.start(&primary(2), &|| true)).await.unwrap().unwrap();
    assert_eq!(promotions(&lab), 1);
    assert_eq!(lab.sql(HERON, "select token from leasehold.token"), Ok("2".to_owned()));
    assert!(group.stop(&Context::idle("test")).await.is_stopped());
}

/// Casebook C28: never.
#[tokio::test]
async fn a_promotion_that_never_comes_fails_is_stopped_and_counts_as_a_fork() {
    if !available("a_promotion_that_never_comes_fails_is_stopped_and_counts_as_a_fork") {
        return;
    }
    let lab = Lab::new();
    let bin = counting(&lab, "never", "exit 0");
    let (lab, group) = standby_of(lab, &bin, Span::from_secs(4));
    let told = group.start(&primary(2), &|| true).await.unwrap_err().to_string();
    assert!(told.contains("does not write within 4s") && told.contains("read-only"), "{told}");
    assert_eq!(promotions(&lab), 1);
    assert!(mark(&lab, HERON).contains("acting"), "{}", mark(&lab, HERON));
    assert!(!group.is_stopped().await.unwrap(), "it may still be promoted");
    assert!(group.stop(&Context::idle("test")).await.is_stopped());
    assert!(pg::processes_in(&lab.data(HERON)).is_empty());
}

/// Casebook C28: a server that accepts and cannot write has not started.
#[tokio::test]
async fn a_primary_that_takes_no_writes_has_not_started() {
    if !available("a_primary_that_takes_no_writes_has_not_started") {
        return;
    }
    let lab = Lab::new();
    let conf = lab.data(HERON).join("postgresql.conf");
    fs::write(&conf, format!("{}\ndefault_transaction_read_only = on\n", fs::read_to_string(&conf).unwrap())).unwrap();
    let (lab, group) = standby_of(lab, Path::new(pg::BIN), Span::from_secs(6));
    let told = group.start(&primary(2), &|| true).await.unwrap_err().to_string();
    assert!(told.contains("read-only transaction"), "{told}");
    assert!(group.stop(&Context::idle("test")).await.is_stopped());
    drop(lab);
}

#[test]
fn the_sample_of_the_man_page_is_accepted_and_shows_the_defaults() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let page = read("docs/resources/postgres.md");
    let sample = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a sample");
    let base = read("config/leasehold.toml").replace("data = \"shared\"", "data = \"replicated\"");
    let checked = leasehold::config::parse("leasehold.toml", &format!("{base}\n{sample}")).expect("no errors");
    let [.., resource] = checked.config.resources.as_slice() else { panic!("no resource") };
    let leasehold::config::ResourceKind::Postgres(db) = &resource.kind else { panic!("{resource:?}") };
    assert_eq!((db.synchronous, db.rejoin, db.port), (Synchronous::Preferred, Rejoin::Rewind, 5432));
    assert_eq!((db.max_silence, db.min_free_bytes >> 20, db.slots), (Span::from_secs(600), 256, true));
    assert_eq!((resource.start_timeout, resource.stop_timeout), (Span::from_secs(60), Span::from_secs(15)));
}

/// The children of a killed postmaster live on for a while, and are part of the server.
#[tokio::test]
async fn the_orphans_of_a_killed_postmaster_are_found_and_ended() {
    if !available("the_orphans_of_a_killed_postmaster_are_found_and_ended") {
        return;
    }
    let pair = Pair::new();
    pair.start(HERON, 2).await.unwrap();
    // Stopped, so that they cannot notice that their parent is gone.
    let postmaster: i32 = pair.lab.postmaster(HERON).unwrap().parse().unwrap();
    let children: Vec<i32> = pg::processes_in(&pair.lab.data(HERON)).into_iter().filter(|p| *p != postmaster).collect();
    assert!(children.len() >= 3, "{children:?}");
    children.iter().for_each(|pid| pg::signal(*pid, Signal::STOP));
    pg::signal(postmaster, Signal::KILL);
    let failure = timeout(PATIENCE, pair.group(HERON).failed()).await.expect("its end is noticed");
    assert!(failure.what.contains("ended"), "{failure:?}");
    assert!(!pair.group(HERON).is_stopped().await.unwrap());
    pair.stop(HERON).await;
    assert!(pg::processes_in(&pair.lab.data(HERON)).is_empty());
}

#[tokio::test]
async fn the_next_daemon_takes_a_running_primary_over_and_watches_it() {
    if !available("the_next_daemon_takes_a_running_primary_over_and_watches_it") {
        return;
    }
    let pair = Pair::new();
    pair.start(HERON, 2).await.unwrap();
    let next = group(&pair.lab, HERON, |_| {});
    assert!(next.adopt(&primary(4)).await.unwrap().is_empty());
    assert_eq!(pair.sql(HERON, "select token from leasehold.token"), "4");
    next.set_token(Token(6));
    until("the renewed token is written", || pair.sql(HERON, "select token from leasehold.token") == "6").await;
    let stale = next.adopt(&primary(4)).await.unwrap_err().to_string();
    assert!(stale.contains("has seen token 6"), "{stale}");
    assert!(next.adopt(&primary(6)).await.unwrap().is_empty());
    next.readiness().await.unwrap();
    pair.lab.kill_all(HERON);
    timeout(PATIENCE, next.failed()).await.expect("its end is noticed");
    assert!(!next.adopt(&primary(6)).await.unwrap().is_empty());
    let standby = group(&pair.lab, PLOVER, |_| {});
    assert!(!standby.adopt(&primary(6)).await.unwrap().is_empty());
}

/// Somebody promotes the standby by hand: two primaries. It is stopped, and its data are brought back.
#[tokio::test]
async fn a_standby_that_somebody_promoted_is_stopped_and_rewound() {
    if !available("a_standby_that_somebody_promoted_is_stopped_and_rewound") {
        return;
    }
    let pair = Pair::new();
    pair.whole().await;
    pair.sql(PLOVER, "select pg_promote(true)");
    pair.lab.sql(PLOVER, "set synchronous_commit = local; insert into row values (666)").unwrap();
    until("it is stopped, and follows again", || {
        pair.lab.sql(PLOVER, "select pg_is_in_recovery()").as_deref() == Ok("t")
    })
    .await;
    pair.until_ready(PLOVER).await;
    assert_eq!(pair.sql(PLOVER, "select count(*) from row"), "0");
}

/// A dead primary answers nobody: its standby stays fit to take over, but only while nobody else may have acted.
#[tokio::test]
async fn a_standby_stays_ready_when_its_primary_dies_and_only_while_it_is_admitted() {
    if !available("a_standby_stays_ready_when_its_primary_dies_and_only_while_it_is_admitted") {
        return;
    }
    let pair = Pair::new();
    pair.whole().await;
    pair.lab.kill_all(HERON);
    pair.group(PLOVER).readiness().await.expect("it had everything");
    pair.group(PLOVER).set_standing(Standing::Out);
    assert!(pair.why_not_ready(PLOVER).await.contains("does not answer"));
}

/// Alone, a primary waits for nobody only where the peer was proven harmless.
#[tokio::test]
async fn commits_wait_for_the_standby_as_long_as_it_may_take_over() {
    if !available("commits_wait_for_the_standby_as_long_as_it_may_take_over") {
        return;
    }
    let pair = Pair::new();
    pair.whole().await;
    pair.group(HERON).set_standing(Standing::Paired);
    pair.group(PLOVER).kill().await;
    // Until the primary has missed its standby for longer than a lone one would wait.
    sleep(Duration::from_secs(5)).await;
    let stuck = pair.lab.sql_within(HERON, "insert into row values (1)", Duration::from_secs(2));
    assert!(stuck.is_err(), "{stuck:?}");
    pair.group(HERON).set_standing(Standing::Sole);
    until("a proven harmless peer is not waited for", || pair.sql(HERON, "show synchronous_standby_names").is_empty())
        .await;
    pair.sql(HERON, "insert into row values (2)");
    assert_eq!(pair.sql(HERON, "select string_agg(number::text, ' ' order by number) from row"), "1 2");
}
