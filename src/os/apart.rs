//! Tests that need a namespace of their own run themselves again inside one, as root; elsewhere they say that they were skipped.

use std::io::Write;
use std::process::Command;

const INSIDE: &str = "LEASEHOLD_TEST_INSIDE";

/// True inside the namespace (`--net` or `--mount`): go on. Outside, the test of this full name is run inside, and has
/// to pass there; then there is nothing left to do.
pub(super) fn inside(test: &str, namespace: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let possible = Command::new("unshare").args([namespace, "true"]).output().is_ok_and(|o| o.status.success());
    if possible {
        run_again(test, namespace);
    } else {
        // Not by `eprintln!`, which the harness would swallow.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: it needs root, unshare(1), ip(8) and mount(8)");
    }
    false
}

fn run_again(test: &str, namespace: &str) {
    let mut command = Command::new("unshare");
    command.arg(namespace).arg(std::env::current_exe().expect("the test's own program is known"));
    let run = command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").output();
    let output = run.expect("unshare(1) was there a moment ago");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
