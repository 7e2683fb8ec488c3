//! What the rows of the ladder share.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::config::{Resource as Configured, ResourceKind};
use leasehold::core::{ProofKind, Role, Span, Token};
use leasehold::resource::{Context, Resource};
use tokio::time::timeout;

/// Only for tests that hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn configured(name: &str, stop: Span, kind: ResourceKind) -> Configured {
    Configured {
        name: name.to_owned(),
        start_timeout: Span::from_secs(20),
        stop_timeout: stop,
        checks_token: false,
        beside: false,
        restarts: 0,
        restart_window: Span::from_secs(60),
        kind,
    }
}

pub fn primary() -> Context {
    let reason = "the peer was fenced".to_owned();
    Context { token: Token(7), role: Role::Primary, reason, proof: Some(ProofKind::Fenced) }
}

pub fn demoting() -> Context {
    Context { token: Token(7), role: Role::Demoting, reason: "the lease is over".to_owned(), proof: None }
}

pub async fn up(resource: &dyn Resource) {
    timeout(PATIENCE, resource.start(&primary())).await.unwrap().unwrap();
    assert!(!resource.is_stopped().await.unwrap(), "it is up");
}

/// Stops it in its budget, and looks.
pub async fn down(resource: &dyn Resource) {
    timeout(resource.stop_budget() + GRACE, resource.stop(&demoting())).await.expect("within its budget").unwrap();
    assert!(resource.is_stopped().await.unwrap());
}

/// It cannot be stopped, says so within its budget, and why.
pub async fn stuck(resource: &dyn Resource) -> String {
    let stopped = timeout(resource.stop_budget() + GRACE, resource.stop(&demoting())).await.expect("within its budget");
    assert!(!resource.is_stopped().await.unwrap_or(false), "stuck is not stopped");
    stopped.unwrap_err().to_string()
}

/// A loaded machine tells late.
const GRACE: Duration = Duration::from_secs(10);

pub async fn until(what: &str, mut seen: impl FnMut() -> bool) {
    let looking = async {
        while !seen() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never seen: {what}"));
}

/// The state letter of a process, as proc_pid_stat(5) has it; `None` for one that is gone.
pub fn state(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

pub fn is_alive(pid: &str) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// Waits until it is seen waiting in the kernel again and again: every question to such a file system waits a little.
pub async fn until_hanging(mut pids: impl FnMut() -> Vec<String>) {
    let mut seen = 0;
    until("it hangs in the kernel", || {
        seen = if pids().iter().any(|pid| hangs(pid)) { seen + 1 } else { 0 };
        seen > 30
    })
    .await;
}

fn hangs(pid: &str) -> bool {
    let place = fs::read_to_string(Path::new("/proc").join(pid).join("wchan")).unwrap_or_default();
    place.contains("request_wait") || state(pid) == Some('D')
}
