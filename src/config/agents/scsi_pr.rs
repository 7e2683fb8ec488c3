//! SCSI persistent reservations.

use super::super::value::{Findings, Section};
use super::Facts;
use crate::core::Scope;

/// `kind = "scsi-pr"`.
#[derive(Debug, Clone)]
pub struct ScsiPr {}

impl Facts for ScsiPr {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Resource)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("scsi-pr".to_owned(), String::new())]
    }
}

pub fn read(_s: &mut Section<'_>, _f: &mut Findings) -> Option<ScsiPr> {
    None
}
