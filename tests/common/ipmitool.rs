//! Programs that stand in for ipmitool and play BMCs that no simulator offers.
#![allow(dead_code)] // each test program uses another part

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold::config::{IdentityCheck, IpmiAgent, SecretSource};
use leasehold::core::{AgentSet, Scope, Span, Token};
use leasehold::fence::{Entry, FenceError, FencePlan, Ipmi, Order, Report, Secret};

/// The words of ipmitool 1.8.19.
const PRELUDE: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
echo "$*" >> argv; env > environment; cat > received; mv received password
while [ $# -gt 3 ]; do [ "$1" = -C ] && suite=$2; shift; done
verb=$3; now=$(date +%s%3N)
is() { echo "Chassis Power is $1"; exit 0; }
ok() { [ -e since ] || echo $now > since; echo off >> commands; echo "Chassis Power Control: Down/Off"; exit 0; }
no() { echo off >> commands; echo "Set Chassis Power Control to Down/Off failed: $1" >&2; exit 1; }
lost() { echo "$1" >&2; echo "Error: Unable to establish IPMI v2 / RMCP+ session" >&2; exit 1; }
guid() { echo "System GUID   : $1"; exit 0; }
after() { [ -e since ] && [ $((now - $(cat since))) -ge $1 ]; }
"#;

pub struct Fake(tempfile::TempDir);

impl Fake {
    /// `script` goes on where the prelude ends, with `$verb` and `$suite` set.
    pub fn new(script: &str) -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ipmitool");
        fs::write(&path, [PRELUDE, script].concat()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Fake(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn lines(&self, name: &str) -> usize {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().count()
    }

    fn config(&self, suite: Option<u8>) -> IpmiAgent {
        IpmiAgent {
            address: "192.0.2.7".to_owned(),
            port: 623,
            user: "admin".to_owned(),
            password: SecretSource::File(self.path("unused")),
            cipher_suite: suite,
            privilege: "ADMINISTRATOR".to_owned(),
            stable_reads: 3,
            independent_power: false,
            poll: Span::from_ms(50),
            identity: IdentityCheck::Uuid,
        }
    }

    pub fn agent(&self, limit: Span, password: &[u8], suite: Option<u8>) -> Result<Ipmi, FenceError> {
        let config = self.config(suite);
        Ipmi::with_program("bmc", Scope::Node, limit, &config, Secret::new(password.to_vec()), self.path("ipmitool"))
    }

    /// The same BMC with other settings.
    pub fn with(&self, limit: Span, change: impl FnOnce(IpmiAgent) -> IpmiAgent) -> Ipmi {
        let config = change(self.config(Some(3)));
        let secret = Secret::new(b"M4RK-kelp-77".to_vec());
        Ipmi::with_program("bmc", Scope::Node, limit, &config, secret, self.path("ipmitool")).unwrap()
    }

    pub fn plan(&self, limit: Span, suite: Option<u8>) -> FencePlan {
        let agent = Arc::new(self.agent(limit, b"M4RK-kelp-77", suite).unwrap());
        FencePlan::of(
            vec![Entry { index: 0, name: "bmc".to_owned(), level: 1, limit: limit.into(), agent }],
            Vec::new(),
        )
    }

    pub async fn off(&self, limit: Span) -> Report {
        self.plan(limit, Some(3)).off(&order()).await
    }
}

pub fn order() -> Order {
    Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after: Duration::from_secs(60) }
}
