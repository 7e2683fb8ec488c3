//! A systemd unit.

use super::super::value::{Findings, Section};
use super::Usual;
use crate::core::Span;

/// As systemd's own default limits would have it, but for the stop, whose SIGKILL must fit in too.
pub const USUAL: Usual = Usual { start: Span::from_secs(30), stop: Span::from_secs(10) };

/// `kind = "unit"`.
#[derive(Debug, Clone)]
pub struct UnitResource {}

pub fn read(_s: &mut Section<'_>, _f: &mut Findings) -> Option<UnitResource> {
    None
}
