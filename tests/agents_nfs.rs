//! `nfs-export` against a real NFS-Ganesha through a real sshd: the next write fails, none lands after the confirmation.
//!
//! And against gates that misbehave: one row each, with its outcome, its limit and its words.

#[path = "agents_nfs/lab.rs"]
mod lab;
#[path = "common/need.rs"]
mod need;
#[path = "agents_nfs/rows.rs"]
mod rows;

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use lab::Lab;
use leasehold::config;
use leasehold::core::{AgentSet, FenceResult, NodeId, Scope, Seen, Take, TakeResult, Token};
use leasehold::fence::{Evidence, FencePlan, Order};

/// Rounds of revocation under write, in turn on both nodes.
const ROUNDS: u64 = 8;
/// More than a writer can do in a round.
const ENDLESS: u64 = 10_000_000;

/// The plan of one node of a pair that has these agent keys for both.
pub fn plan(me: NodeId, keys: &str, timeout: &str, more: &str) -> FencePlan {
    let agent = |target: &str| {
        format!(
            "[[fence.agent]]\nname = \"gate-{target}\"\ntarget = \"{target}\"\nkind = \"nfs-export\"\n\
             timeout = \"{timeout}\"\n{keys}"
        )
    };
    let text = format!(
        "[cluster]\nname = \"estuary\"\nkey = \"/etc/leasehold/key\"\ndata = \"shared\"\n\
         [[node]]\nname = \"heron\"\n[[node]]\nname = \"plover\"\n\
         [[link]]\nname = \"lan\"\naddresses = {{ heron = \"192.0.2.1\", plover = \"192.0.2.2\" }}\n\
         [guard]\nwatchdog = \"auto\"\n{}{}{more}\
         [[resource]]\nname = \"gauges\"\nkind = \"exec\"\nstart = [\"/usr/local/bin/gauges\"]\n",
        agent("heron"),
        agent("plover")
    );
    let checked = config::parse("leasehold.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    FencePlan::new(&checked.config, me).unwrap_or_else(|error| panic!("{error}"))
}

/// A plan of node scope, by programs that find their machine off, to which the gate adds.
fn plan_with_power(me: NodeId, lab: &Lab) -> FencePlan {
    let program = lab.at("pdu");
    lab.write("pdu", "#!/bin/sh\n[ \"$1\" = status ] && echo off && exit 2; exit 1\n");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let outlets = ["heron", "plover"].map(|target| {
        format!(
            "[[fence.agent]]\nname = \"pdu-{target}\"\ntarget = \"{target}\"\nkind = \"exec\"\nscope = \"node\"\n\
             program = \"{program}\"\nsettings = {{ outlet = \"{target}\" }}\n"
        )
    });
    plan(me, &format!("take = false\n{}", lab.agent()), "30s", &outlets.concat())
}

pub fn told(evidence: &[Evidence]) -> String {
    evidence.iter().map(|e| format!("{} -> {}\n", e.sent, e.read)).collect()
}

fn lab(test: &str) -> Option<Lab> {
    let programs = ["ganesha.nfsd", "dbus-daemon", "ssh", "ssh-keygen", "gcc", "ip"].map(need::program);
    let files = ["/usr/sbin/sshd", "/usr/include/nfsc/libnfs.h", "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so"];
    let needs: Vec<_> = programs.into_iter().chain(files.map(need::file)).chain([need::root()]).collect();
    need::all(test, &needs).then(Lab::start)
}

fn take(new: u64, seen: u64) -> Take {
    Take { new: Token(new), seen: Seen::AtMost(Token(seen)) }
}

#[tokio::test]
async fn no_write_lands_after_the_confirmation_and_the_survivor_goes_on() {
    let Some(lab) = lab("no_write_lands_after_the_confirmation_and_the_survivor_goes_on") else { return };
    let plans = [NodeId::First, NodeId::Second].map(|me| plan(me, &lab.agent(), "30s", ""));
    let (first, evidence) = plans[0].take(take(2, 0)).await;
    assert_eq!(first, TakeResult::Taken, "{}", told(&evidence));
    let (mut stored, mut times, mut cut) = (2, Vec::new(), 0);
    for round in 0..ROUNDS {
        let (old, new) = ((stored % 2) as usize, 1 - (stored % 2) as usize);
        let file = format!("round{round}");
        let mut writer = lab.writer(old, &file, ENDLESS);
        writer.acknowledged(30);
        let start = Instant::now();
        let (result, evidence) = plans[new].take(take(stored + 1, stored)).await;
        times.push(start.elapsed());
        let at_confirmation = lab.size(&file);
        assert_eq!(result, TakeResult::Taken, "round {round}: {}", told(&evidence));
        let (_, end) = writer.rest();
        assert_eq!(lab.size(&file), at_confirmation, "round {round}: a write landed after the confirmation");
        assert!(at_confirmation >= 30 * 512, "round {round}");
        // The very next write failed with a refusal (NFS4ERR_ACCESS), and so did the new mount.
        let [failed, mount] = &end[..] else { panic!("round {round}: {end:?}") };
        assert!(failed.starts_with("failed ") && failed.ends_with(" -13"), "round {round}: {end:?}");
        assert!(mount.starts_with("mount -"), "round {round}: the revoked node was let in again: {end:?}");
        cut += 1;
        // The survivor goes on, also while the former owner tries with what it knows, and while it takes again itself.
        let mut survivor = lab.writer(new, &format!("survivor{round}"), 400);
        survivor.acknowledged(10);
        let (stale, evidence) = plans[old].take(take(stored + 2, stored)).await;
        assert_eq!(stale, TakeResult::Refused { highest: Token(stored + 1) }, "round {round}: {}", told(&evidence));
        let (again, evidence) = plans[new].take(take(stored + 1, stored)).await;
        assert_eq!(again, TakeResult::Taken, "round {round}: {}", told(&evidence));
        let (_, end) = survivor.rest();
        assert_eq!(end, ["done 0"], "round {round}: the survivor was disturbed");
        stored += 1;
    }
    times.sort();
    println!("{cut} of {ROUNDS} writers cut, none late; take over ssh: {:?} to {:?}", times[0], times[times.len() - 1]);
}

#[tokio::test]
async fn the_plan_reads_proves_and_names_the_highest_token() {
    let Some(lab) = lab("the_plan_reads_proves_and_names_the_highest_token") else { return };
    let plans = [NodeId::First, NodeId::Second].map(|me| plan(me, &lab.agent(), "30s", ""));
    assert_eq!(plans[0].highest().await, Some(Token::NONE));
    let (result, evidence) = plans[1].take(take(3, 0)).await;
    assert_eq!(result, TakeResult::Taken, "{}", told(&evidence));
    assert_eq!(plans[0].highest().await, Some(Token(3)));
    // As an attempt of an exclusive plan.
    let order = Order {
        token: Token(4),
        take: Some(take(4, 3)),
        excluded: AgentSet::EMPTY,
        deadline_after: std::time::Duration::from_secs(60),
    };
    let report = plans[0].off(&order).await;
    assert!(matches!(report.result, FenceResult::Confirmed { .. }), "{}", told(&report.evidence));
    // A door beside the gate: an export of the folder above, that nobody told the gate about.
    let beside = lab
        .read("export.conf")
        .replace("Export_Id = 1", "Export_Id = 9")
        .replace("/data; Pseudo = /data;", "; Pseudo = /beside;");
    lab.write("beside.conf", &beside);
    let bus = format!("--address=unix:path={}", lab.at("bus"));
    let add =
        ["call", "org.ganesha.nfsd", "/org/ganesha/nfsd/ExportMgr", "org.ganesha.nfsd.exportmgr", "AddExport", "ss"];
    let mut command = std::process::Command::new("busctl");
    assert!(
        command.arg(bus).args(add).args([&lab.at("beside.conf"), "EXPORT(Export_Id=9)"]).status().unwrap().success()
    );
    let short = plan(NodeId::Second, &lab.agent(), "3s", "");
    let (result, evidence) = short.take(take(5, 4)).await;
    assert!(result == TakeResult::Unknown && told(&evidence).contains("export 9 reaches"), "{}", told(&evidence));
}

/// The attempt's token is the highest that the node knows, which its peer may have minted: the gate counts for itself.
#[tokio::test]
async fn added_to_a_plan_of_node_scope_it_revokes_under_any_token_and_each_node_lets_itself_in() {
    let test = "added_to_a_plan_of_node_scope_it_revokes_under_any_token_and_each_node_lets_itself_in";
    let Some(lab) = lab(test) else { return };
    let plans = [NodeId::First, NodeId::Second].map(|me| plan_with_power(me, &lab));
    for (round, me) in [0, 1, 0, 0].into_iter().enumerate() {
        assert!(plans[me].ensure_access(Token(2)).await, "round {round}: its own way in");
        let mut writer = lab.writer(me, &format!("round{round}"), 200);
        let (_, end) = writer.rest();
        assert_eq!(end, ["ready", "done 0"], "round {round}");
        let order = Order {
            token: Token(2),
            take: None,
            excluded: AgentSet::EMPTY,
            deadline_after: std::time::Duration::from_secs(60),
        };
        let report = plans[1 - me].off(&order).await;
        let verified_by = AgentSet::EMPTY.with(me).with(2 + me);
        let confirmed = FenceResult::Confirmed { scope: Scope::Node, verified_by };
        assert_eq!(report.result, confirmed, "round {round}: {}", told(&report.evidence));
        // Once more, with nothing left to do.
        assert_eq!(plans[1 - me].off(&order).await.result, confirmed, "round {round}");
        let (_, end) = lab.writer(me, &format!("late{round}"), 1).rest();
        assert!(end.iter().any(|line| line.starts_with("mount -")), "round {round}: it is still let in: {end:?}");
    }
}
