//! OpenStack: stop a server, detach a volume.

use super::super::value::{Findings, Section};
use super::Facts;
use crate::core::Scope;

/// `kind = "openstack-power"`.
#[derive(Debug, Clone)]
pub struct OpenstackPower {}

impl Facts for OpenstackPower {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Node)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("openstack-power".to_owned(), String::new())]
    }
}

pub fn read_power(_s: &mut Section<'_>, _f: &mut Findings) -> Option<OpenstackPower> {
    None
}

/// `kind = "openstack-volume"`.
#[derive(Debug, Clone)]
pub struct OpenstackVolume {}

impl Facts for OpenstackVolume {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Resource)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("openstack-volume".to_owned(), String::new())]
    }
}

pub fn read_volume(_s: &mut Section<'_>, _f: &mut Findings) -> Option<OpenstackVolume> {
    None
}
