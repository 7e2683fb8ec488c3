//! SCSI persistent reservations: the real `sg_persist` against a target that follows SPC-4 (tests/scsi/target.c), since
//! the kernels that run these tests have no SCSI. Real disks: tests/scsi/real-disks.sh.

#[path = "common/need.rs"]
mod need;
#[path = "scsi/lab.rs"]
mod scsi;

use std::time::Duration;

use leasehold::config::{AbortSupport, Persistence};
use leasehold::core::{Seen, Take, TakeResult, Token};
use leasehold::fence::{Agent, Attempt, Outcome, Reading, ScsiPr};
use leasehold::process::{Program, run};
use scsi::Lab;
use tokio::time::timeout;

/// Enough for a take that nothing disturbs, many times over; a row that must run out of time has its own.
const AMPLE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1500);

fn ready(test: &str) -> bool {
    need::all(test, &[need::program("sg_persist"), need::program("gcc")])
}

/// A disk that both nodes reach over two paths each.
fn pair() -> Lab {
    let lab = Lab::new();
    lab.node("heron", "lun0", &["1", "2"]);
    lab.node("plover", "lun0", &["1", "2"]);
    lab
}

fn attempt() -> Attempt {
    Attempt::new("disk", String::new)
}

fn told(attempt: &Attempt) -> String {
    attempt.evidence().iter().map(|e| format!("{} -> {} ({})\n", e.sent, e.read, e.times)).collect()
}

async fn take_within(limit: Duration, agent: &ScsiPr, new: u64, seen: Seen) -> (TakeResult, String) {
    let attempt = attempt();
    let take = Take { new: Token(new), seen };
    let result = timeout(limit, agent.take(take, &attempt)).await.unwrap_or(TakeResult::Unknown);
    (result, told(&attempt))
}

async fn take(agent: &ScsiPr, new: u64, seen: u64) -> TakeResult {
    let (result, told) = take_within(AMPLE, agent, new, Seen::AtMost(Token(seen))).await;
    assert_ne!(result, TakeResult::Unknown, "{told}");
    result
}

fn refused(highest: u64) -> TakeResult {
    TakeResult::Refused { highest: Token(highest) }
}

fn only(node: &str) -> Vec<String> {
    vec![format!("{node}-1"), format!("{node}-2")]
}

#[tokio::test]
async fn the_first_take_reserves_and_the_next_one_preempts_exactly_what_was_seen() {
    if !ready("the_first_take_reserves_and_the_next_one_preempts_exactly_what_was_seen") {
        return;
    }
    let lab = pair();
    let (heron, plover) = (lab.agent("heron"), lab.agent("plover"));
    assert_eq!(heron.status(&attempt()).await, Reading::On, "nothing is reserved: plover can write");
    assert_eq!(take(&heron, 2, 0).await, TakeResult::Taken);
    assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (2, only("heron")));
    assert_eq!(heron.status(&attempt()).await, Reading::Off);

    assert_eq!(take(&plover, 3, 2).await, TakeResult::Taken);
    assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (3, only("plover")));
    assert_eq!((plover.status(&attempt()).await, heron.status(&attempt()).await), (Reading::Off, Reading::On));
    assert_eq!(heron.highest(&attempt()).await, Some(Token(3)));
}

#[tokio::test]
async fn the_rule_of_the_compare_and_swap_is_kept_in_every_case() {
    if !ready("the_rule_of_the_compare_and_swap_is_kept_in_every_case") {
        return;
    }
    // Stored by whom, under which token; then plover, which mints odd tokens, takes.
    for (stored, new, seen, right) in [
        (("heron", 4), 5, Seen::AtMost(Token(4)), TakeResult::Taken),
        (("heron", 4), 5, Seen::AtMost(Token(9)), TakeResult::Taken),
        (("heron", 4), 5, Seen::Whatever, TakeResult::Taken),
        (("heron", 4), 5, Seen::AtMost(Token(3)), refused(4)),
        (("heron", 6), 5, Seen::AtMost(Token(6)), refused(6)),
        (("heron", 6), 5, Seen::Whatever, refused(6)),
        (("plover", 3), 5, Seen::AtMost(Token(0)), TakeResult::Taken),
        (("plover", 7), 5, Seen::Whatever, refused(7)),
        (("plover", 5), 5, Seen::AtMost(Token(0)), TakeResult::Taken),
    ] {
        let lab = pair();
        assert_eq!(take(&lab.agent(stored.0), stored.1, 0).await, TakeResult::Taken);
        let before = lab.writers("lun0");
        let (result, told) = take_within(AMPLE, &lab.agent("plover"), new, seen).await;
        assert_eq!(result, right, "stored {stored:?}, new {new}, seen {seen:?}:\n{told}");
        let (token, writers) = if right == TakeResult::Taken { (new, only("plover")) } else { (stored.1, before) };
        assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (token, writers), "{told}");
    }
}

#[tokio::test]
async fn a_refused_take_leaves_no_registration_and_a_replayed_one_changes_nothing() {
    if !ready("a_refused_take_leaves_no_registration_and_a_replayed_one_changes_nothing") {
        return;
    }
    let lab = pair();
    let (heron, plover) = (lab.agent("heron"), lab.agent("plover"));
    assert_eq!(take(&heron, 2, 0).await, TakeResult::Taken);
    assert_eq!(take(&plover, 3, 2).await, TakeResult::Taken);
    let commands = lab.log("lun0").len();
    // The same take once more, late: heron saw 0 then, and the disk has moved on.
    assert_eq!(take(&heron, 2, 0).await, refused(3));
    assert_eq!(lab.log("lun0").len(), commands, "a take that is refused at sight sends nothing");
    assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (3, only("plover")));
    // A preempt of the former key that the kernel still sends after its program was killed.
    let late = ["--no-inquiry", "--out", "--preempt-abort", "--prout-type=5"];
    let state = lab.state("lun0");
    let keys: Vec<_> = lab.log("lun0").iter().filter(|l| l.contains("preempt")).cloned().collect();
    let words: Vec<_> = keys[0].split(' ').collect();
    let program = Program::new(lab.at("sg_persist")).args(late).args([
        format!("--param-rk={}", words[2]),
        format!("--param-sark={}", words[3]),
        lab.at("heron/dev/sd-lun0-1").display().to_string(),
    ]);
    for _ in 0..2 {
        run(&program, None, AMPLE, 4096).await.unwrap();
    }
    assert_eq!(lab.state("lun0").replace("ua heron-1\n", ""), state.replace("ua heron-1\n", ""));
}

/// How many takes race by default, and in the long campaign.
fn races() -> u64 {
    if std::env::var_os("LEASEHOLD_LONG").is_some() { 1000 } else { 40 }
}

#[tokio::test]
async fn of_two_nodes_that_take_at_the_same_instant_exactly_one_wins() {
    if !ready("of_two_nodes_that_take_at_the_same_instant_exactly_one_wins") {
        return;
    }
    let lab = pair();
    let (heron, plover) = (lab.agent("heron"), lab.agent("plover"));
    assert_eq!(take(&heron, 2, 0).await, TakeResult::Taken);
    let mut stored = 2;
    let mut won = [0, 0];
    for _ in 0..races() {
        let even = stored + 2 - stored % 2;
        let seen = Seen::AtMost(Token(stored));
        let ((a, told_a), (b, told_b)) =
            tokio::join!(take_within(AMPLE, &heron, even, seen), take_within(AMPLE, &plover, even + 1, seen));
        let both = format!("heron {even}: {a:?}\n{told_a}\nplover {}: {b:?}\n{told_b}", even + 1);
        let (node, token) = match (a, b) {
            (TakeResult::Taken, TakeResult::Refused { highest }) if highest == Token(even) => ("heron", even),
            (TakeResult::Refused { highest }, TakeResult::Taken) if highest == Token(even + 1) => ("plover", even + 1),
            _ => panic!("not exactly one won\n{both}\n{}", lab.state("lun0")),
        };
        assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (token, only(node)), "{both}");
        won[(token % 2) as usize] += 1;
        stored = token;
    }
    eprintln!("heron won {} races, plover {}", won[0], won[1]);
}

#[tokio::test]
async fn of_two_nodes_that_take_a_free_disk_at_the_same_instant_exactly_one_wins() {
    if !ready("of_two_nodes_that_take_a_free_disk_at_the_same_instant_exactly_one_wins") {
        return;
    }
    let lab = pair();
    let (heron, plover) = (lab.agent("heron"), lab.agent("plover"));
    for _ in 0..races() / 4 {
        lab.set_state("lun0", "gen 0\n");
        let seen = Seen::AtMost(Token::NONE);
        let ((a, told_a), (b, told_b)) =
            tokio::join!(take_within(AMPLE, &heron, 2, seen), take_within(AMPLE, &plover, 3, seen));
        let node = match (a, b) {
            (TakeResult::Taken, TakeResult::Refused { highest: Token(2) }) => "heron",
            (TakeResult::Refused { highest: Token(3) }, TakeResult::Taken) => "plover",
            _ => panic!("not exactly one won\nheron: {a:?}\n{told_a}\nplover: {b:?}\n{told_b}"),
        };
        assert_eq!(lab.writers("lun0"), only(node));
    }
}

#[tokio::test]
async fn a_peer_that_is_registered_on_a_disk_without_reservation_is_not_overlooked() {
    if !ready("a_peer_that_is_registered_on_a_disk_without_reservation_is_not_overlooked") {
        return;
    }
    let lab = pair();
    assert_eq!(take(&lab.agent("heron"), 6, 0).await, TakeResult::Taken);
    let state = lab.state("lun0");
    // Somebody removed the registration of the holding path, and the reservation went with it.
    let holder = state.lines().find_map(|l| l.strip_prefix("hold ")).unwrap().split(' ').next().unwrap().to_owned();
    let left = state.lines().filter(|l| !l.starts_with("hold ") && !l.starts_with(&format!("reg {holder} ")));
    lab.set_state("lun0", &left.map(|l| format!("{l}\n")).collect::<String>());
    assert_eq!(take(&lab.agent("plover"), 5, 4).await, refused(6));
    assert_eq!(take(&lab.agent("plover"), 7, 4).await, refused(6));
    assert_eq!(take(&lab.agent("plover"), 7, 6).await, TakeResult::Taken);
    assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (7, only("plover")));
}

#[tokio::test]
async fn a_node_that_comes_back_as_another_session_registers_before_it_preempts() {
    if !ready("a_node_that_comes_back_as_another_session_registers_before_it_preempts") {
        return;
    }
    // Casebook C19: the keys of both nodes are listed, heron holds; plover's session is another one.
    let lab = Lab::new();
    lab.node("heron", "lun0", &["1"]);
    lab.node("plover", "lun0", &["1"]);
    assert_eq!(take(&lab.agent("plover"), 1, 0).await, TakeResult::Taken);
    let former = lab.state("lun0").lines().find(|l| l.starts_with("reg plover-1")).unwrap().to_owned();
    assert_eq!(take(&lab.agent("heron"), 2, 1).await, TakeResult::Taken);
    lab.set_state("lun0", &lab.state("lun0").replace("aptpl", &format!("{former}\naptpl")));
    lab.node("plover", "lun0", &["2"]);
    assert_eq!(take(&lab.agent("plover"), 3, 2).await, TakeResult::Taken);
    assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (3, vec!["plover-2".to_owned()]), "{}", lab.state("lun0"));
    // The same node again after a reboot, with nobody else about: its own former session holds.
    lab.node("plover", "lun0", &["3"]);
    assert_eq!(take(&lab.agent("plover"), 5, 0).await, TakeResult::Taken);
    assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (5, vec!["plover-3".to_owned()]));
}

#[tokio::test]
async fn a_registration_that_a_preempt_lost_is_mended_before_success() {
    if !ready("a_registration_that_a_preempt_lost_is_mended_before_success") {
        return;
    }
    let lab = pair();
    assert_eq!(take(&lab.agent("heron"), 2, 0).await, TakeResult::Taken);
    lab.set_state("lun0", &format!("{}flag halfhearted\n", lab.state("lun0")));
    assert_eq!(take(&lab.agent("plover"), 3, 2).await, TakeResult::Taken);
    assert!(!lab.state("lun0").contains("halfhearted"), "the target did lose one");
    assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (3, only("plover")));
}

#[tokio::test]
async fn a_half_done_attempt_of_the_peer_is_cleared_by_the_winner() {
    if !ready("a_half_done_attempt_of_the_peer_is_cleared_by_the_winner") {
        return;
    }
    let lab = pair();
    let plover = lab.agent("plover");
    assert_eq!(take(&plover, 1, 0).await, TakeResult::Taken);
    let key = lab.state("lun0").lines().find_map(|l| l.strip_prefix("reg plover-1 ")).unwrap().to_owned();
    assert_eq!(take(&lab.agent("heron"), 2, 1).await, TakeResult::Taken);
    // plover registered under a higher token and died before its preempt: it can write although it holds nothing.
    let attempted = format!("reg plover-1 {}0000000009\naptpl", &key[..6]);
    lab.set_state("lun0", &lab.state("lun0").replace("aptpl", &attempted));
    assert_eq!(lab.agent("heron").status(&attempt()).await, Reading::On);
    assert_eq!(lab.agent("heron").highest(&attempt()).await, Some(Token(9)));
    assert_eq!(take(&lab.agent("heron"), 4, 2).await, TakeResult::Taken);
    assert_eq!((lab.stored("lun0"), lab.writers("lun0")), (4, only("heron")));
}

#[tokio::test]
async fn several_disks_follow_the_first() {
    if !ready("several_disks_follow_the_first") {
        return;
    }
    let lab = pair();
    lab.disk("lun1");
    let both = ["lun0", "lun1"];
    for node in ["heron", "plover"] {
        lab.node(node, "lun1", &["1", "2"]);
    }
    let agent = |caller, target| lab.agent_of(caller, target, &both, |_| {});
    let (heron, plover) = (agent("heron", "plover"), agent("plover", "heron"));
    assert_eq!(take(&heron, 2, 0).await, TakeResult::Taken);
    assert_eq!(take(&plover, 3, 2).await, TakeResult::Taken);
    assert_eq!(both.map(|lun| (lab.stored(lun), lab.writers(lun))), both.map(|_| (3, only("plover"))));
    // A higher token on the second disk: nothing is sent to the first.
    let lone = lab.agent_of("heron", "plover", &["lun1"], |_| {});
    assert_eq!(take(&lone, 8, 3).await, TakeResult::Taken);
    let commands = lab.log("lun0").len();
    assert_eq!(take(&plover, 5, 3).await, refused(8));
    assert_eq!((lab.log("lun0").len(), heron.status(&attempt()).await), (commands, Reading::On));
}

#[tokio::test]
async fn misbehaving_targets_get_their_right_result_and_words() {
    if !ready("misbehaving_targets_get_their_right_result_and_words") {
        return;
    }
    type Change = fn(&Lab);
    let rows: [(&str, Change, TakeResult, &str); 11] = [
        ("says GOOD and does nothing", |lab| flag(lab, "liar"), TakeResult::Unknown, "Reservation follows"),
        ("has no PREEMPT AND ABORT", |lab| flag(lab, "noabort"), TakeResult::Unknown, "`abort = \"optional\"`"),
        ("cannot keep keys", |lab| flag(lab, "noaptpl"), TakeResult::Unknown, "does not take this command"),
        ("has no READ FULL STATUS", |lab| flag(lab, "nofull"), TakeResult::Taken, "does not take this command"),
        ("one path is gone", |lab| lab.fault("plover", "lun0", "1", "gone"), TakeResult::Taken, "No such device"),
        ("both paths are gone", |lab| gone(lab, "gone"), TakeResult::Unknown, "no path answers"),
        ("hangs", |lab| gone(lab, "hang"), TakeResult::Unknown, ""),
        ("a key of nobody", |lab| reg(lab, "1234"), TakeResult::Unknown, "is of neither node of this pair"),
        ("another type", |lab| retype(lab, "7"), TakeResult::Unknown, "\"Write Exclusive, all registrants\""),
        (
            "garbage",
            |lab| _ = lab.program("sg_persist", "#!/bin/sh\necho PR generation=fish\n"),
            TakeResult::Unknown,
            "not understood",
        ),
        ("no end", |lab| _ = lab.program("sg_persist", "#!/bin/sh\nexec yes\n"), TakeResult::Unknown, ""),
    ];
    for (name, change, right, words) in rows {
        let lab = pair();
        assert_eq!(take(&lab.agent("heron"), 2, 0).await, TakeResult::Taken);
        change(&lab);
        let limit = if right == TakeResult::Taken { AMPLE } else { SHORT };
        let (result, told) = take_within(limit, &lab.agent("plover"), 3, Seen::AtMost(Token(2))).await;
        assert_eq!(result, right, "{name}:\n{told}");
        assert!(told.contains(words), "{name}: no {words:?} in\n{told}");
        if right == TakeResult::Unknown {
            assert!(lab.state("lun0").contains("hold heron"), "{name}: {}", lab.state("lun0"));
        } else {
            let own = lab.agent_of("plover", "plover", &["lun0"], |_| {});
            assert_eq!(
                own.status(&attempt()).await,
                Reading::On,
                "{name}: the plan also asks whether the winner is in"
            );
        }
    }
}

fn flag(lab: &Lab, flag: &str) {
    lab.set_state("lun0", &format!("{}flag {flag}\n", lab.state("lun0")));
}

fn gone(lab: &Lab, how: &str) {
    ["1", "2"].iter().for_each(|session| lab.fault("plover", "lun0", session, how));
}

fn reg(lab: &Lab, key: &str) {
    lab.set_state("lun0", &format!("{}reg x {key}\n", lab.state("lun0")));
}

fn retype(lab: &Lab, kind: &str) {
    let state = lab.state("lun0");
    let held = state.lines().find(|l| l.starts_with("hold ")).unwrap();
    lab.set_state("lun0", &state.replace(held, &format!("{}{kind}", &held[..held.len() - 1])));
}

#[tokio::test]
async fn plain_preempt_is_used_only_where_the_configuration_allows_it() {
    if !ready("plain_preempt_is_used_only_where_the_configuration_allows_it") {
        return;
    }
    let lab = pair();
    assert_eq!(take(&lab.agent("heron"), 2, 0).await, TakeResult::Taken);
    flag(&lab, "noabort");
    let lax = lab.agent_of("plover", "heron", &["lun0"], |c| c.abort = AbortSupport::Optional);
    assert_eq!(take(&lax, 3, 2).await, TakeResult::Taken);
    assert_eq!(lab.writers("lun0"), only("plover"));
    assert!(lab.log("lun0").iter().any(|l| l.contains(" preempt ") && l.ends_with("good")));
}

#[tokio::test]
async fn without_take_the_agent_shuts_out_and_lets_its_own_node_in_again() {
    if !ready("without_take_the_agent_shuts_out_and_lets_its_own_node_in_again") {
        return;
    }
    let lab = pair();
    let adds = |c: &mut leasehold::config::ScsiPr| (c.takes, c.persistence) = (false, Persistence::None);
    let plover = lab.agent_of("plover", "heron", &["lun0"], adds);
    let own = lab.agent_of("heron", "heron", &["lun0"], adds);
    assert!(!plover.takes());
    assert_eq!(plover.off(Token(3), &attempt()).await, Outcome::Confirmed);
    assert_eq!(lab.writers("lun0"), only("plover"));
    let commands = lab.log("lun0").len();
    assert_eq!(plover.off(Token(3), &attempt()).await, Outcome::Confirmed, "off already");
    assert_eq!(lab.log("lun0").len(), commands);
    assert_eq!(own.status(&attempt()).await, Reading::Off);
    assert_eq!(own.on(Token(4), &attempt()).await, Outcome::Confirmed);
    assert_eq!((own.status(&attempt()).await, plover.status(&attempt()).await), (Reading::On, Reading::On));
    assert_eq!(lab.writers("lun0").len(), 4);
    assert_eq!(own.off(Token(4), &attempt()).await, Outcome::Unknown, "no agent shoots its own node");
    assert_eq!(plover.off(Token(5), &attempt()).await, Outcome::Confirmed);
    assert_eq!(plover.on(Token(5), &attempt()).await, Outcome::Unknown, "only heron can register heron");
    // The attempt's token is the highest that a node knows: its peer may have it on the disk already.
    let heron = lab.agent_of("heron", "plover", &["lun0"], adds);
    assert_eq!(heron.off(Token(5), &attempt()).await, Outcome::Confirmed);
    assert_eq!(lab.writers("lun0"), only("heron"));
    assert_eq!(plover.off(Token(5), &attempt()).await, Outcome::Confirmed);
    assert_eq!(lab.writers("lun0"), only("plover"));
}

#[tokio::test]
async fn the_proof_ahead_of_need_notices_what_a_take_would_miss() {
    if !ready("the_proof_ahead_of_need_notices_what_a_take_would_miss") {
        return;
    }
    let lab = pair();
    let (heron, plover) = (lab.agent("heron"), lab.agent("plover"));
    let health = plover.prove(&attempt()).await;
    assert!(health.is_good() && health.notes[0].contains("not reserved yet"), "{health:?}");
    assert_eq!(take(&heron, 2, 0).await, TakeResult::Taken);
    for agent in [&heron, &plover] {
        let health = agent.prove(&attempt()).await;
        assert!(health.is_good() && health.notes[0].contains("under token 2"), "{health:?}");
    }
    assert!(lab.log("lun0").iter().all(|l| l.starts_with("heron")), "a proof changes nothing");

    lab.fault("plover", "lun0", "2", "gone");
    assert!(plover.prove(&attempt()).await.faults[0].contains("does not answer"));
    let held = lab.state("lun0");
    lab.set_state(
        "lun0",
        &held.lines().filter(|l| !l.contains("reg heron-2")).map(|l| format!("{l}\n")).collect::<String>(),
    );
    assert!(heron.prove(&attempt()).await.faults[0].contains("1 registrations for 2 paths"));
    lab.set_state("lun0", &format!("{held}reg x a1\n"));
    assert!(heron.prove(&attempt()).await.faults[0].contains("neither node of this pair"));
    // Casebook C19, last variant: the target was restarted and knows no keys any more.
    lab.set_state("lun0", "gen 0\n");
    for agent in [&heron, &plover] {
        let health = agent.prove(&attempt()).await;
        assert!(health.faults.iter().any(|f| f.contains("its reservation is gone")), "{health:?}");
        assert_eq!(agent.status(&attempt()).await, Reading::On);
    }
    flag(&lab, "noaptpl");
    assert!(heron.prove(&attempt()).await.faults.iter().any(|f| f.contains("forgets its keys")));
    // A primary that takes anew makes it whole again.
    lab.set_state("lun0", "gen 0\n");
    assert_eq!(take(&heron, 4, 2).await, TakeResult::Taken);
    assert!(heron.prove(&attempt()).await.is_good());
}

#[tokio::test]
async fn tokens_that_do_not_fit_are_refused_in_words() {
    if !ready("tokens_that_do_not_fit_are_refused_in_words") {
        return;
    }
    let lab = pair();
    let (result, told) = take_within(AMPLE, &lab.agent("heron"), 1 << 40, Seen::Whatever).await;
    assert_eq!((result, lab.log("lun0").len()), (TakeResult::Unknown, 0));
    assert!(told.contains("more than 40 bits"), "{told}");
}

#[tokio::test]
async fn the_real_program_knows_the_options_and_says_what_is_wrong_with_a_file() {
    if !ready("the_real_program_knows_the_options_and_says_what_is_wrong_with_a_file") {
        return;
    }
    let call = |args: &[&str]| run_real(args.iter().map(|a| (*a).to_owned()).collect());
    let help = call(&["--help", "--help"]).await + &call(&["--help"]).await;
    for option in [
        "--in",
        "--out",
        "--read-keys",
        "--read-reservation",
        "--read-full-status",
        "--report-capabilities",
        "--register",
        "--reserve",
        "--preempt",
        "--preempt-abort",
        "--param-rk",
        "--param-sark",
        "--param-aptpl",
        "--prout-type",
        "--no-inquiry",
    ] {
        assert!(help.contains(option), "{option} is not in {help}");
    }
    // The agent over the program itself, without a target below: a plain file is no disk.
    let lab = pair();
    lab.program("sg_persist", "#!/bin/sh\nexec /usr/bin/sg_persist \"$@\"\n");
    let (result, told) = take_within(SHORT, &lab.agent("heron"), 2, Seen::Whatever).await;
    assert_eq!(result, TakeResult::Unknown);
    assert!(told.contains("no path answers"), "{told}");
}

async fn run_real(args: Vec<String>) -> String {
    let done = run(&Program::new("/usr/bin/sg_persist").args(args), None, AMPLE, 64 * 1024).await.unwrap();
    done.stdout_text() + &done.stderr_text()
}

#[test]
fn the_sample_of_the_page_is_accepted() {
    let page = include_str!("../docs/agents/scsi-pr.md");
    let sample = page.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).expect("a sample");
    let around = include_str!("config/take_on_one_agent_only.toml");
    let (head, rest) = around.split_once("[[fence.agent]]").expect("agents");
    let (_, tail) = rest.split_once("[[resource]]").expect("a resource");
    let text = format!("{head}{sample}[[resource]]{tail}");
    if let Err(wrong) = leasehold::config::parse("sample", &text) {
        panic!("{wrong}");
    }
}
