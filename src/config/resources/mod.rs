//! The kinds of resources that are read and checked in one go: one file a kind, from its keys to its checked type.
//!
//! What all kinds have (`name`, `start_timeout`, `stop_timeout`, `checks_token`, `beside`, `restarts`) is read before.

mod address;
mod mount;
mod postgres;
mod unit;

use super::checked::ResourceKind;
use super::raw::ResourceWord;
use super::value::{Findings, Section};
use crate::core::Span;

pub use address::{AddressResource, Announce, Interfaces};
pub use mount::{Fsck, MountResource, Probe};
pub use postgres::{OldCopy, PostgresResource, Rejoin, Synchronous};
pub use unit::UnitResource;

/// Start and stop limits of a kind, where the file gives none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usual {
    pub start: Span,
    pub stop: Span,
}

impl ResourceKind {
    pub fn usual(&self) -> Usual {
        match self {
            ResourceKind::Exec(_) => Usual { start: Span::from_secs(30), stop: Span::from_secs(10) },
            ResourceKind::Address(_) => address::USUAL,
            ResourceKind::Unit(_) => unit::USUAL,
            ResourceKind::Mount(_) => mount::USUAL,
            ResourceKind::Postgres(_) => postgres::USUAL,
        }
    }

    /// Its name in the file.
    pub fn word(&self) -> &'static str {
        match self {
            ResourceKind::Exec(_) => "exec",
            ResourceKind::Address(_) => "address",
            ResourceKind::Unit(_) => "unit",
            ResourceKind::Mount(_) => "mount",
            ResourceKind::Postgres(_) => "postgres",
        }
    }
}

/// Reads the keys that this kind adds. `None`: a kind that is read elsewhere, or an error that has been reported.
pub(super) fn read(kind: ResourceWord, s: &mut Section<'_>, f: &mut Findings) -> Option<ResourceKind> {
    match kind {
        ResourceWord::Address => address::read(s, f).map(ResourceKind::Address),
        ResourceWord::Unit => unit::read(s, f).map(ResourceKind::Unit),
        ResourceWord::Mount => mount::read(s, f).map(ResourceKind::Mount),
        ResourceWord::Postgres => postgres::read(s, f).map(ResourceKind::Postgres),
        ResourceWord::Exec => None,
    }
}
