//! The kinds of fence agents that are read and checked in one go: one file a kind, from its keys to its checked type.
//!
//! What all kinds have (`name`, `target`, `level`, `scope`, the limits) is read before; what checks, digest and
//! arithmetic need to know of any kind are its [`Facts`].

mod ec2;
pub mod fence_agent;
mod gate;
mod openstack;
pub(super) mod password;
mod redfish;
mod scsi_pr;
mod tls;

use super::checked::{AgentKind, ExecAgent, IpmiAgent, SecretSource};
use super::raw::Kind;
use super::secrets;
use super::value::{Findings, Section};
use crate::core::{Scope, Span};

pub use ec2::{Ec2Access, Ec2Credentials, Ec2Power, Ec2Volume};
pub use fence_agent::FenceAgent;
pub use gate::{GateAgent, GateClient};
pub use openstack::{OpenstackCloud, OpenstackPower, OpenstackVolume, STABLE_READS as OPENSTACK_STABLE_READS};
pub use redfish::{Login, RedfishAgent, SystemName};
pub use scsi_pr::{AbortSupport, Persistence, ScsiPr};
pub use tls::Trust;

/// What the rest of this room must know of an agent, whatever its kind.
pub trait Facts {
    /// The scope that every agent of this kind has; `None`: the file must say.
    fn scope(&self) -> Option<Scope>;

    /// Has the operations `take` and `highest`: the resource itself is the arbiter (protocol section 1).
    fn takes(&self) -> bool {
        false
    }

    /// What it acts on, in words that are the same on both nodes and hold neither secret nor path: for the digest.
    fn device(&self) -> Vec<(String, String)>;

    /// A device that belongs to one node alone, so that agents against both nodes must not share it.
    fn own_device(&self) -> Option<String> {
        None
    }

    /// Host name or address over which the device is reached, if it is one that may lie on a link's network.
    fn address(&self) -> Option<&str> {
        None
    }

    /// The least time that one settled reading takes.
    fn reading(&self) -> Span {
        Span::ZERO
    }

    /// Whether it falls silent when its target has lost its power.
    fn on_host_power(&self) -> bool {
        false
    }

    /// The secrets that it needs, for the check of their files.
    fn secrets(&self) -> Vec<&SecretSource> {
        Vec::new()
    }
}

impl AgentKind {
    /// `None` for the manual agent, of which there is nothing to know.
    pub fn facts(&self) -> Option<&dyn Facts> {
        Some(match self {
            AgentKind::Ipmi(kind) => kind,
            AgentKind::Redfish(kind) => kind,
            AgentKind::FenceAgent(kind) => kind,
            AgentKind::Ec2Power(kind) => kind,
            AgentKind::Ec2Volume(kind) => kind,
            AgentKind::OpenstackPower(kind) => kind,
            AgentKind::OpenstackVolume(kind) => kind,
            AgentKind::NfsExport(kind) => kind,
            AgentKind::IscsiAcl(kind) => kind,
            AgentKind::ScsiPr(kind) => kind,
            AgentKind::Exec(kind) => kind,
            AgentKind::Manual => return None,
        })
    }

    pub fn takes(&self) -> bool {
        self.facts().is_some_and(Facts::takes)
    }

    /// Its name in the file.
    pub fn word(&self) -> &'static str {
        match self {
            AgentKind::Ipmi(_) => "ipmi",
            AgentKind::Redfish(_) => "redfish",
            AgentKind::FenceAgent(_) => "fence-agent",
            AgentKind::Ec2Power(_) => "ec2-power",
            AgentKind::Ec2Volume(_) => "ec2-volume",
            AgentKind::OpenstackPower(_) => "openstack-power",
            AgentKind::OpenstackVolume(_) => "openstack-volume",
            AgentKind::NfsExport(_) => "nfs-export",
            AgentKind::IscsiAcl(_) => "iscsi-acl",
            AgentKind::ScsiPr(_) => "scsi-pr",
            AgentKind::Exec(_) => "exec",
            AgentKind::Manual => "manual",
        }
    }
}

/// Reads the keys that this kind adds. `None`: a kind that is read elsewhere, or an error that has been reported.
pub(super) fn read(kind: Kind, s: &mut Section<'_>, f: &mut Findings) -> Option<AgentKind> {
    match kind {
        Kind::Redfish => redfish::read(s, f).map(AgentKind::Redfish),
        Kind::FenceAgent => fence_agent::read(s, f).map(AgentKind::FenceAgent),
        Kind::Ec2Power => ec2::read_power(s, f).map(AgentKind::Ec2Power),
        Kind::Ec2Volume => ec2::read_volume(s, f).map(AgentKind::Ec2Volume),
        Kind::OpenstackPower => openstack::read_power(s, f).map(AgentKind::OpenstackPower),
        Kind::OpenstackVolume => openstack::read_volume(s, f).map(AgentKind::OpenstackVolume),
        Kind::NfsExport => gate::read("nfs-export", s, f).map(AgentKind::NfsExport),
        Kind::IscsiAcl => gate::read("iscsi-acl", s, f).map(AgentKind::IscsiAcl),
        Kind::ScsiPr => scsi_pr::read(s, f).map(AgentKind::ScsiPr),
        Kind::Ipmi | Kind::Exec | Kind::Manual => None,
    }
}

impl Facts for IpmiAgent {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Node)
    }

    fn device(&self) -> Vec<(String, String)> {
        vec![("ipmi".to_owned(), format!("{} {}", self.address, self.port))]
    }

    fn own_device(&self) -> Option<String> {
        Some(format!("{} port {}", self.address.to_lowercase(), self.port))
    }

    fn address(&self) -> Option<&str> {
        Some(&self.address)
    }

    fn reading(&self) -> Span {
        self.poll.times(u64::from(self.stable_reads))
    }

    fn on_host_power(&self) -> bool {
        !self.independent_power
    }

    fn secrets(&self) -> Vec<&SecretSource> {
        vec![&self.password]
    }
}

impl Facts for ExecAgent {
    fn scope(&self) -> Option<Scope> {
        None
    }

    fn takes(&self) -> bool {
        self.takes
    }

    fn device(&self) -> Vec<(String, String)> {
        let shown = self.settings.iter().filter(|(key, value)| !is_private(key, value));
        let settings = shown.map(|(key, value)| (format!("setting {key}"), value.clone()));
        std::iter::once(("exec".to_owned(), format!("take {}", self.takes))).chain(settings).collect()
    }
}

/// Paths may differ between the nodes, and secrets are nobody's business.
fn is_private(key: &str, value: &str) -> bool {
    secrets::is_secret(key) || value.starts_with('/')
}
