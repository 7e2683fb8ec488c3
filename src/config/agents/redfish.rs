//! Redfish: power control through a BMC by HTTPS.

use super::super::value::{Findings, Section};
use super::Facts;
use crate::core::Scope;

/// `kind = "redfish"`.
#[derive(Debug, Clone)]
pub struct RedfishAgent {}

impl Facts for RedfishAgent {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Node)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("redfish".to_owned(), String::new())]
    }
}

pub fn read(_s: &mut Section<'_>, _f: &mut Findings) -> Option<RedfishAgent> {
    None
}
