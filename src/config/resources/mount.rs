//! A file system.

use super::super::value::{Findings, Section};
use super::Usual;
use crate::core::Span;

/// A journal replay may take a while; a stop that has to kill its users too.
pub const USUAL: Usual = Usual { start: Span::from_secs(60), stop: Span::from_secs(10) };

/// `kind = "mount"`.
#[derive(Debug, Clone)]
pub struct MountResource {}

pub fn read(_s: &mut Section<'_>, _f: &mut Findings) -> Option<MountResource> {
    None
}
