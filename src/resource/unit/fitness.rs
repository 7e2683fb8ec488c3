//! Whether a unit is fit to be run by this daemon alone.
//!
//! A unit that is enabled, or that a socket, a timer or an enabled unit starts, would come up behind the daemon's back: at
//! boot, on both nodes, before anybody has a token.

use std::time::Duration;

use super::manager::{Manager, ManagerError, Picture};

/// The first reason against it, with the remedy; `None`: it is fit.
pub async fn objection(manager: &Manager, unit: &str, picture: &Picture) -> Result<Option<String>, ManagerError> {
    if let Some(why) = of_itself(unit, picture) {
        return Ok(Some(why));
    }
    for other in &picture.triggered_by {
        let trigger = manager.picture(other).await?;
        if starts_at_boot(&trigger.file_state) || !trigger.is_down() {
            return Ok(Some(format!(
                "{other} starts {unit} behind leasehold's back; run `systemctl disable --now {other}` on both nodes"
            )));
        }
    }
    for other in &picture.pulled_by {
        if other.ends_with(".target") || starts_at_boot(&manager.picture(other).await?.file_state) {
            return Ok(Some(format!(
                "{other} starts {unit} along with itself, behind leasehold's back; {}",
                remedy_of_pull(unit, other)
            )));
        }
    }
    Ok(None)
}

/// On Debian a generator has `postgresql.service` want each cluster, as that one's `start.conf` says.
fn remedy_of_pull(unit: &str, other: &str) -> String {
    let cluster = unit.strip_prefix("postgresql@").and_then(|rest| rest.strip_suffix(".service"));
    match cluster.and_then(|cluster| cluster.split_once('-')).filter(|_| other == "postgresql.service") {
        Some((version, name)) => format!(
            "write `manual` into /etc/postgresql/{version}/{name}/start.conf on both nodes, then run `systemctl daemon-reload`"
        ),
        None => format!(
            "run `systemctl disable --now {unit}` on both nodes, or take {unit} out of Wants= and Requires= of {other}"
        ),
    }
}

/// What the unit's own state says.
fn of_itself(unit: &str, picture: &Picture) -> Option<String> {
    match (picture.load.as_str(), picture.file_state.as_str()) {
        ("not-found", _) => Some(format!("there is no unit {unit}; install it, or mend its name")),
        ("masked", _) | (_, "masked" | "masked-runtime") => {
            Some(format!("{unit} is masked and cannot start; run `systemctl unmask {unit}`"))
        }
        ("loaded", "enabled-runtime") => Some(format!(
            "{unit} is enabled by a generator or until the next boot, and starts behind leasehold's back; run `systemctl \
             disable --runtime --now {unit}`, or tell what generates it (for PostgreSQL on Debian: `manual` in start.conf)"
        )),
        ("loaded", state) if starts_at_boot(state) => Some(format!(
            "{unit} is enabled: it starts at boot behind leasehold's back; run `systemctl disable --now {unit}` on both nodes"
        )),
        ("loaded", _) => None,
        (load, _) => Some(format!("{unit} cannot be loaded ({load}); see `systemctl status {unit}`")),
    }
}

fn starts_at_boot(file_state: &str) -> bool {
    matches!(file_state, "enabled" | "enabled-runtime")
}

/// A unit that may take longer to stop than it gets is killed by this daemon, in the middle of its own stop.
pub fn hasty(unit: &str, picture: &Picture, stop_timeout: Duration) -> Option<String> {
    let own = picture.stop_limit;
    let shown = if own == Duration::MAX { "infinity".to_owned() } else { format!("{own:?}") };
    (own > stop_timeout).then(|| {
        format!(
            "{unit} gives itself TimeoutStopSec={shown}, more than its stop_timeout here ({stop_timeout:?}): leasehold kills \
             it before; raise stop_timeout, or lower TimeoutStopSec with `systemctl edit {unit}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(load: &str, file_state: &str) -> Picture {
        Picture { load: load.to_owned(), file_state: file_state.to_owned(), ..Picture::default() }
    }

    #[test]
    fn each_state_that_starts_behind_our_back_has_its_remedy() {
        for (load, state, remedy) in [
            ("loaded", "enabled", Some("systemctl disable --now kelp.service")),
            ("loaded", "enabled-runtime", Some("disable --runtime")),
            ("masked", "masked", Some("systemctl unmask kelp.service")),
            ("not-found", "", Some("install it")),
            ("bad-setting", "disabled", Some("systemctl status kelp.service")),
            ("loaded", "disabled", None),
            ("loaded", "static", None),
            ("loaded", "indirect", None),
            ("loaded", "linked", None),
            ("loaded", "transient", None),
        ] {
            let told = of_itself("kelp.service", &picture(load, state));
            assert_eq!(told.is_some(), remedy.is_some(), "{load} {state}: {told:?}");
            assert!(told.unwrap_or_default().contains(remedy.unwrap_or_default()), "{load} {state}");
        }
    }

    #[test]
    fn a_cluster_of_debian_has_a_remedy_of_its_own() {
        let told = remedy_of_pull("postgresql@15-main.service", "postgresql.service");
        assert!(told.contains("`manual` into /etc/postgresql/15/main/start.conf"), "{told}");
        let told = remedy_of_pull("kelp.service", "postgresql.service");
        assert!(told.contains("disable --now kelp.service"), "{told}");
    }

    #[test]
    fn a_unit_that_stops_slower_than_it_may_is_told() {
        let slow = Picture { stop_limit: Duration::from_secs(90), ..Picture::default() };
        let told = hasty("kelp.service", &slow, Duration::from_secs(10)).unwrap();
        assert!(told.contains("TimeoutStopSec=90s") && told.contains("10s"), "{told}");
        assert_eq!(hasty("kelp.service", &slow, Duration::from_secs(90)), None);
        let endless = Picture { stop_limit: Duration::MAX, ..Picture::default() };
        assert!(hasty("kelp.service", &endless, Duration::from_secs(90)).unwrap().contains("infinity"));
    }
}
