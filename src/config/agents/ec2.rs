//! EC2: stop an instance, detach a volume.

use super::super::value::{Findings, Section};
use super::Facts;
use crate::core::Scope;

/// `kind = "ec2-power"`.
#[derive(Debug, Clone)]
pub struct Ec2Power {}

impl Facts for Ec2Power {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Node)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("ec2-power".to_owned(), String::new())]
    }
}

pub fn read_power(_s: &mut Section<'_>, _f: &mut Findings) -> Option<Ec2Power> {
    None
}

/// `kind = "ec2-volume"`.
#[derive(Debug, Clone)]
pub struct Ec2Volume {}

impl Facts for Ec2Volume {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Resource)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("ec2-volume".to_owned(), String::new())]
    }
}

pub fn read_volume(_s: &mut Section<'_>, _f: &mut Findings) -> Option<Ec2Volume> {
    None
}
