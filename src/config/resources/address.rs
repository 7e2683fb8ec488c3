//! An address that moves with the service.

use super::super::value::{Findings, Section};
use super::Usual;
use crate::core::Span;

/// Duplicate detection and the first announcements; removal is one netlink message.
pub const USUAL: Usual = Usual { start: Span::from_secs(10), stop: Span::from_secs(2) };

/// `kind = "address"`.
#[derive(Debug, Clone)]
pub struct AddressResource {}

pub fn read(_s: &mut Section<'_>, _f: &mut Findings) -> Option<AddressResource> {
    None
}
