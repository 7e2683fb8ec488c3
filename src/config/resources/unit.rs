//! A systemd unit.

use std::path::PathBuf;

use super::super::diagnostics::Finding;
use super::super::value::{At, Field, Findings, Least, Section};
use super::Usual;
use crate::core::Span;

/// As systemd's own default limits would have it, but for the stop, whose SIGKILL must fit in too.
pub const USUAL: Usual = Usual { start: Span::from_secs(30), stop: Span::from_secs(10) };
/// A change of the unit's state is told at once; this is for what is not told.
const INTERVAL: Span = Span::from_secs(1);
/// systemd(5): the longest name of a unit is 255 bytes.
const LONGEST: usize = 255;

/// `kind = "unit"`.
#[derive(Debug, Clone)]
pub struct UnitResource {
    /// With its suffix: "kelp.service".
    pub unit: String,
    /// What the unit may read its token from; `None`: it is not told.
    pub environment_file: Option<PathBuf>,
    /// The unit is reloaded when the token has changed.
    pub reload_on_token: bool,
    /// How often its state is looked at besides.
    pub interval: Span,
}

pub fn read(s: &mut Section<'_>, f: &mut Findings) -> Option<UnitResource> {
    let unit = s.string("unit", f);
    let file = s.path("environment_file", f);
    let reload = s.boolean("reload_on_token", f);
    let interval = s.duration("interval", Least::Millisecond, f);
    let unit = s.require(unit, "unit", "\"kelp.service\"", f)?;
    if !is_fit(&unit, f) || file.is_bad() || reload.is_bad() || interval.is_bad() {
        return None;
    }
    let usual = || PathBuf::from(format!("/run/leasehold/{}.env", unit.value));
    Some(UnitResource {
        environment_file: Some(match file {
            Field::Given(at) => at.value,
            Field::Absent | Field::Bad => usual(),
        }),
        unit: unit.value,
        reload_on_token: reload.value_or(false),
        interval: interval.value_or(INTERVAL),
    })
}

/// Only a service has processes of its own that a control group shows.
pub(super) fn is_fit(unit: &At<String>, f: &mut Findings) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let name = unit.value.as_str();
    let (label, help) = match name.rsplit_once('.') {
        _ if !name.chars().all(plain) || name.len() > LONGEST => {
            ("not the name of a unit", "write the name as `systemctl list-units` shows it, without a path".to_owned())
        }
        _ if name == "leasehold.service" => ("this daemon itself", "name the service that fails over".to_owned()),
        Some((stem, "service")) if stem.ends_with('@') => {
            ("a template", format!("name an instance, such as \"{stem}main.service\""))
        }
        Some((stem, "service")) if !stem.is_empty() => return true,
        Some((_, "mount" | "automount")) => ("a mount unit", "use kind = \"mount\"".to_owned()),
        Some((stem, "socket" | "timer" | "path" | "target")) => (
            "starts other units",
            format!("name the service itself, such as \"{stem}.service\", and disable what would start it"),
        ),
        _ => ("no service", format!("write the suffix too: \"{name}.service\"")),
    };
    let finding = Finding::error("`resource.unit` cannot be run by leasehold").at(&unit.span, label);
    f.push(finding.help(help));
    false
}
