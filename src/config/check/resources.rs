//! What fails over: an ordered group.

use super::super::checked::{ExecResource, Resource, ResourceKind, Service};
use super::super::diagnostics::Finding;
use super::super::raw::{self, PerNode};
use super::super::value::Findings;
use super::unique;
use crate::core::Span;

/// Restarts in place before the service is handed over: a crash that a restart heals needs no failover, and one that
/// two do not heal will not be healed by a third.
const RESTARTS: u32 = 2;

/// Failures that lie further apart are not one and the same.
const RESTART_WINDOW: Span = Span::from_secs(300);

/// Two failovers because of a failed resource within this time mean that the other node cannot run it either.
const FLAP_WINDOW: Span = Span::from_secs(600);

/// How often `status` runs.
const INTERVAL: Span = Span::from_secs(5);

/// `None`: a resource is not understood, and S cannot be computed.
pub fn check(resources: &[raw::Resource], f: &mut Findings) -> Option<Vec<Resource>> {
    unique("resource", resources.iter().map(|r| r.name.as_ref()), f);
    if resources.is_empty() {
        let finding = Finding::warning("no resource: nothing would start or stop on a take-over");
        f.push(finding.help("add a [[resource]] table: name, kind = \"exec\", start = [\"/usr/sbin/serviced\"]"));
    }
    let checked: Vec<Option<Resource>> = resources.iter().map(|r| one(r, f)).collect();
    checked.into_iter().collect()
}

fn one(raw: &raw::Resource, f: &mut Findings) -> Option<Resource> {
    let kind = match raw.kind? {
        raw::ResourceWord::Exec => ResourceKind::Exec(exec(raw, f)?),
        _ => raw.other.clone()?,
    };
    let bad = [raw.start_timeout.is_bad(), raw.stop_timeout.is_bad(), raw.restart_window.is_bad()];
    if bad.contains(&true) {
        return None;
    }
    let usual = kind.usual();
    Some(Resource {
        name: raw.name.as_ref()?.value.clone(),
        start_timeout: raw.start_timeout.value_or(usual.start),
        stop_timeout: raw.stop_timeout.value_or(usual.stop),
        checks_token: raw.checks_token.value_or(false),
        beside: raw.beside.value_or(false),
        restarts: raw.restarts.value_or(RESTARTS),
        restart_window: raw.restart_window.value_or(RESTART_WINDOW),
        kind,
    })
}

fn exec(raw: &raw::Resource, f: &mut Findings) -> Option<ExecResource> {
    refuse_reserved(&raw.environment, f);
    let foreground = raw.foreground.value_or(true);
    if !foreground && raw.stop.given().is_none() && !raw.stop.is_bad() {
        let finding = Finding::error("a resource that is not in the foreground has no `stop`");
        let finding = finding.at_some(raw.foreground.span(), "its `start` returns when the service is up");
        f.push(finding.help("add `stop = [...]`, which returns when nothing of the service is left"));
    }
    Some(ExecResource {
        start: raw.start.as_ref()?.value.clone(),
        stop: raw.stop.value(),
        status: raw.status.value(),
        interval: raw.interval.value_or(INTERVAL),
        ready: raw.ready.value(),
        foreground,
        environment: raw.environment.iter().map(|(k, v)| (k.value.clone(), v.value.clone())).collect(),
        user: raw.user.value(),
        directory: raw.directory.value(),
    })
}

/// What holds for the group as a whole.
pub fn service(raw: &raw::Service, f: &mut Findings) -> Service {
    warn_of_ssh(raw, f);
    Service {
        flap_window: raw.flap_window.value_or(FLAP_WINDOW),
        cut_ports: raw.cut_ports.value_or(Vec::new()),
        http: raw.http.value(),
        notify: raw.notify.value(),
    }
}

/// The port of ssh is hardly the service's.
fn warn_of_ssh(raw: &raw::Service, f: &mut Findings) {
    const SSH: u16 = 22;
    let Some(ports) = raw.cut_ports.given().filter(|ports| ports.value.contains(&SSH)) else { return };
    let finding = Finding::warning("ssh to this machine would be cut with the clients");
    let finding =
        finding.at(&ports.span, "names port 22").note("it would be refused until the service starts here again");
    f.push(finding.help("leave 22 out, unless ssh is the service that fails over"));
}

/// The daemon says token, role and reason in variables of its own.
fn refuse_reserved(environment: &PerNode, f: &mut Findings) {
    for (name, _) in environment {
        let (label, help) = match name.value.as_str() {
            "" => ("an empty name", "name the variable"),
            n if n.contains(['=', '\0']) => ("not a name", "a variable's name has no `=` and no NUL byte"),
            n if n.starts_with("LEASEHOLD_") => ("reserved", "variables of this prefix are set by the daemon"),
            _ => continue,
        };
        let title = format!("the environment variable `{}` cannot be set", name.value.escape_debug());
        f.push(Finding::error(title).at(&name.span, label).help(help));
    }
}
