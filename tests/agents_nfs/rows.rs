//! Gates and ways to them that misbehave. Nobody but a gate that proves it is ever believed.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use leasehold::core::{NodeId, TakeResult, Token};

use super::{lab, plan, take, told};

/// The agent's limit in the table, and what a row may take in all on a machine that does much else.
const LIMIT: &str = "1500ms";
const PATIENCE: Duration = Duration::from_secs(15);

/// What the stand-in says: `@ID@` becomes the id of the question.
fn answer(result: &str, highest: u64, owner: &str, heron: &str, plover: &str) -> String {
    format!(
        r#"{{"version":1,"id":"@ID@","gate":"estuary","result":"{result}","highest":{highest},"owner":"{owner}","phase":"held","text":"","program":"0","access":[{{"node":"heron","state":"{heron}"}},{{"node":"plover","state":"{plover}"}}]}}"#
    )
}

/// A script in place of ssh: reads the question, tells the truth about the access, and answers a take by `body`.
fn script(dir: &std::path::Path, name: &str, body: &str) -> String {
    let path = dir.join(name);
    let status = says(&answer("status", 3, "plover", "excluded", "admitted"));
    let head = "read -r question\nid=$(echo \"$question\" | sed 's/.*\"id\":\"\\([^\"]*\\).*/\\1/; s/\".*//')\n";
    let text =
        format!("#!/bin/sh\n{head}case \"$question\" in *'\"op\":\"status\"'*) {status}; exit ;; esac\n{body}\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("gate = \"estuary\"\ncommand = [{:?}]\n", path.display().to_string())
}

fn says(line: &str) -> String {
    format!("echo '{line}' | sed \"s/@ID@/$id/\"")
}

#[tokio::test]
async fn a_gate_that_misbehaves_is_never_believed() {
    let dir = tempfile::tempdir().unwrap();
    let unknown = TakeResult::Unknown;
    let taken = answer("taken", 3, "plover", "excluded", "admitted");
    let rows: Vec<(&str, String, TakeResult, &str)> = vec![
        ("says what is so", says(&taken), TakeResult::Taken, "heron excluded"),
        ("is slow but right", format!("sleep 0.4; {}", says(&taken)), TakeResult::Taken, "heron excluded"),
        (
            "is finished at the second try",
            format!(
                "if [ -e {0} ]; then {1}; else touch {0}; {2}; fi",
                dir.path().join("tried").display(),
                says(&taken),
                says(&answer("unverified", 3, "plover", "unknown", "unknown"))
            ),
            TakeResult::Taken,
            "unverified",
        ),
        ("says taken, peer in", says(&answer("taken", 3, "plover", "admitted", "admitted")), unknown, "heron admitted"),
        ("says taken, not sure", says(&answer("taken", 3, "plover", "unknown", "admitted")), unknown, "heron unknown"),
        (
            "says taken, caller out",
            says(&answer("taken", 3, "plover", "excluded", "excluded")),
            unknown,
            "plover excluded",
        ),
        (
            "says taken of another token",
            says(&answer("taken", 5, "plover", "excluded", "admitted")),
            unknown,
            "token 5",
        ),
        ("says taken of the peer", says(&answer("taken", 3, "heron", "excluded", "admitted")), unknown, "taken"),
        ("never proves it", says(&answer("unverified", 3, "plover", "unknown", "unknown")), unknown, "given up after"),
        (
            "refuses a stale token",
            says(&answer("refused", 8, "heron", "admitted", "excluded")),
            TakeResult::Refused { highest: Token(8) },
            "refused, token 8",
        ),
        ("has an error", says(&answer("error", 0, "", "unknown", "unknown")), unknown, "error"),
        (
            "answers an earlier question",
            format!("echo '{}'", taken.replace("@ID@", "plover-1-0")),
            unknown,
            "another question",
        ),
        ("answers for another gate", says(&taken.replace("estuary", "delta")), unknown, "another question"),
        ("speaks another version", says(&taken.replace("\"version\":1", "\"version\":2")), unknown, "version 2"),
        ("says nothing", "exit 0".into(), unknown, "said nothing"),
        ("says garbage", "echo '<html>502</html>'".into(), unknown, "no answer of a gate"),
        ("says half an answer", format!("printf '%s' '{}'", &taken[..60]), unknown, "no answer of a gate"),
        ("says half and hangs", format!("printf '%s' '{}'; sleep 600", &taken[..60]), unknown, "silent"),
        ("says two answers", format!("{0}; {0}", says(&taken)), unknown, "no answer of a gate"),
        ("answers without end", "exec yes".into(), unknown, "silent"),
        ("hangs", "sleep 600".into(), unknown, "silent"),
        ("says it, then hangs", format!("{}; sleep 600", says(&taken)), unknown, "silent"),
        ("dies in the middle", format!("printf '%s' '{}'; kill -9 $$", &taken[..60]), unknown, "signal 9"),
        (
            "is not there",
            "echo 'ssh: connect to host gate port 22: Connection refused' >&2; exit 255".into(),
            unknown,
            "cannot be reached",
        ),
    ];
    let work = rows.into_iter().enumerate().map(|(i, (what, body, expected, words))| {
        let keys = script(dir.path(), &format!("row{i}"), &body);
        tokio::spawn(async move {
            let start = Instant::now();
            let plan = plan(NodeId::Second, &keys, LIMIT, "");
            let (result, evidence) = plan.take(take(3, 2)).await;
            let told = told(&evidence);
            assert_eq!(result, expected, "{what}: {told}");
            assert!(told.contains(words), "{what}: {told}");
            assert!(start.elapsed() < PATIENCE, "{what} took {:?}", start.elapsed());
        })
    });
    for row in work.collect::<Vec<_>>() {
        row.await.unwrap();
    }
}

#[tokio::test]
async fn a_way_that_is_not_the_right_one_is_no_way() {
    let Some(lab) = lab("a_way_that_is_not_the_right_one_is_no_way") else { return };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).unwrap().port();
    let (port, right) = (lab.port.to_string(), lab.agent());
    for (what, keys, words) in [
        ("the host key of another server", right.replace("known-hosts", "wrong-hosts"), "host key"),
        ("no known host", right.replace("known-hosts", "no-hosts"), "host key"),
        ("a key that the server does not know", right.replace("/key\"", "/other-key\""), "does not take the key"),
        ("another user", format!("{right}user = \"nobody\"\n"), "does not take the key"),
        ("a closed port", right.replace(&port, &closed.to_string()), "cannot be reached"),
        (
            "a port that never answers",
            right.replace(&port, &silent.local_addr().unwrap().port().to_string()),
            "take 3 -> ",
        ),
        ("a gate that is not there", right.replace("estuary", "delta"), "no gate \"delta\""),
    ] {
        let start = Instant::now();
        let (result, evidence) = plan(NodeId::Second, &keys, "3s", "").take(take(3, 2)).await;
        let told = told(&evidence);
        assert!(result == TakeResult::Unknown && told.contains(words), "{what}: {told}");
        assert!(start.elapsed() < PATIENCE, "{what} took {:?}", start.elapsed());
    }
    // The key opens nothing but the gate: what was asked to run is not what runs.
    let mut ssh = std::process::Command::new("ssh");
    ssh.args(["-F", "/dev/null", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-p", &port, "-l", "root"]);
    ssh.args(["-i", &lab.at("key"), "-o", &format!("UserKnownHostsFile={}", lab.at("known-hosts")), "127.0.0.1", "id"]);
    let output = ssh.stdin(std::process::Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("one line of JSON") && !said.contains("uid="), "{said}");
    assert_eq!(plan(NodeId::Second, &right, "30s", "").take(take(3, 0)).await.0, TakeResult::Taken);
}
