//! One half of a PostgreSQL streaming-replication pair.

use super::super::value::{Findings, Section};
use super::Usual;
use crate::core::Span;

/// Promotion replays what is left; an immediate stop is quick.
pub const USUAL: Usual = Usual { start: Span::from_secs(60), stop: Span::from_secs(15) };

/// `kind = "postgres"`.
#[derive(Debug, Clone)]
pub struct PostgresResource {}

pub fn read(_s: &mut Section<'_>, _f: &mut Findings) -> Option<PostgresResource> {
    None
}
