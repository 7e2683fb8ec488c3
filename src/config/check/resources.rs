//! What fails over: an ordered group.

use super::super::checked::{ExecResource, Resource, ResourceKind};
use super::super::diagnostics::Finding;
use super::super::raw::{self, PerNode};
use super::super::value::Findings;
use super::unique;
use crate::core::Span;

/// Long enough for a service that replays a journal; give more where it needs more.
const START_TIMEOUT: Span = Span::from_secs(30);

/// Share of S of one resource: SIGTERM, then SIGKILL, then the verification.
const STOP_TIMEOUT: Span = Span::from_secs(10);

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
    refuse_reserved(&raw.environment, f);
    let foreground = raw.foreground.value_or(true);
    if !foreground && raw.stop.given().is_none() && !raw.stop.is_bad() {
        let finding = Finding::error("a resource that is not in the foreground has no `stop`");
        let finding = finding.at_some(raw.foreground.span(), "its `start` returns when the service is up");
        f.push(finding.help("add `stop = [...]`, which returns when nothing of the service is left"));
    }
    if raw.start_timeout.is_bad() || raw.stop_timeout.is_bad() {
        return None;
    }
    let exec = ExecResource {
        start: raw.start.as_ref()?.value.clone(),
        stop: raw.stop.value(),
        status: raw.status.value(),
        interval: raw.interval.value_or(INTERVAL),
        ready: raw.ready.value(),
        foreground,
        environment: raw.environment.iter().map(|(k, v)| (k.value.clone(), v.value.clone())).collect(),
        user: raw.user.value(),
        directory: raw.directory.value(),
    };
    Some(Resource {
        name: raw.name.as_ref()?.value.clone(),
        start_timeout: raw.start_timeout.value_or(START_TIMEOUT),
        stop_timeout: raw.stop_timeout.value_or(STOP_TIMEOUT),
        checks_token: raw.checks_token.value_or(false),
        kind: ResourceKind::Exec(exec),
    })
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
