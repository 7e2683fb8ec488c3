//! What the service manager wants of this daemon (org.freedesktop.systemd1(5)).
//!
//! `systemctl restart`, a package upgrade and needrestart send the same SIGTERM as `systemctl stop`. They mean something
//! else: the next daemon goes on inside the lease, and handing the service over would be an outage for nothing. The job
//! that systemd runs for the unit says which of them it is.

use std::time::Duration;

use zbus::{Connection, OwnedObjectPath, Proxy};

const BUS: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "/org/freedesktop/systemd1";
/// A bus that does not answer by then is one of a machine that goes down: then the service is handed over. An emulated
/// machine, or one under load, needs a second for the four questions.
const LIMIT: Duration = Duration::from_secs(3);

/// Why the daemon is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// For good: a primary hands over, a standby says that it leaves.
    Stop,
    /// Another daemon is started at once in its place: the resources go on.
    Replaced,
}

/// Asks the service manager. Whatever cannot be learned is a stop, which is safe and slow.
pub async fn ending() -> Ending {
    match tokio::time::timeout(LIMIT, job_type()).await {
        Ok(Ok(job)) if is_restart(&job) => Ending::Replaced,
        Ok(Ok(job)) => {
            tracing::debug!(job, "asked to end");
            Ending::Stop
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "the service manager does not say why");
            Ending::Stop
        }
        Err(_) => {
            tracing::warn!("the service manager does not answer why this daemon shall end: a clean stop");
            Ending::Stop
        }
    }
}

/// A restart that has begun by stopping (systemd: src/core/job.c, `job_type_table`).
fn is_restart(job: &str) -> bool {
    matches!(job, "restart" | "try-restart" | "reload-or-start")
}

async fn job_type() -> zbus::Result<String> {
    let bus = Connection::system().await?;
    let manager = Proxy::new(&bus, BUS, MANAGER, "org.freedesktop.systemd1.Manager").await?;
    let unit: OwnedObjectPath = manager.call("GetUnitByPID", &(std::process::id(),)).await?;
    let unit = Proxy::new(&bus, BUS, unit, "org.freedesktop.systemd1.Unit").await?;
    let (_, job): (u32, OwnedObjectPath) = unit.get_property("Job").await?;
    let job = Proxy::new(&bus, BUS, job, "org.freedesktop.systemd1.Job").await?;
    job.get_property("JobType").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_restart_is_one() {
        assert!(is_restart("restart") && is_restart("try-restart"));
        for job in ["stop", "start", "reload", "verify-active", "nop", ""] {
            assert!(!is_restart(job), "{job}");
        }
    }
}
