//! Storage servers that run `leasehold gate`: NFS exports and iSCSI access lists.

use super::super::value::{Findings, Section};
use super::Facts;
use crate::core::Scope;

/// `kind = "nfs-export"`.
#[derive(Debug, Clone)]
pub struct NfsExport {}

impl Facts for NfsExport {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Resource)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("nfs-export".to_owned(), String::new())]
    }
}

pub fn read_nfs(_s: &mut Section<'_>, _f: &mut Findings) -> Option<NfsExport> {
    None
}

/// `kind = "iscsi-acl"`.
#[derive(Debug, Clone)]
pub struct IscsiAcl {}

impl Facts for IscsiAcl {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Resource)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("iscsi-acl".to_owned(), String::new())]
    }
}

pub fn read_iscsi(_s: &mut Section<'_>, _f: &mut Findings) -> Option<IscsiAcl> {
    None
}
