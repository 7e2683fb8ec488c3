//! Any ClusterLabs fence agent program.

use super::super::value::{Findings, Section};
use super::Facts;
use crate::core::Scope;

/// `kind = "fence-agent"`.
#[derive(Debug, Clone)]
pub struct FenceAgent {}

impl Facts for FenceAgent {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Node)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("fence-agent".to_owned(), String::new())]
    }
}

pub fn read(_s: &mut Section<'_>, _f: &mut Findings) -> Option<FenceAgent> {
    None
}
