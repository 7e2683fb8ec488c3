//! The agents as a plan, from the text of a configuration on: what is tested is what an operator gets.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::config::{self, AgentKind};
use leasehold::core::{AgentSet, FenceResult, NodeId, Span, Token};
use leasehold::fence::{
    Agent, Attempt, Ec2Power, Ec2Volume, Entry, Evidence, FenceError, FencePlan, Health, Order, Outcome, Setup,
};
use tempfile::TempDir;

use super::fake::{OTHER, TARGET, VOLUME};

pub const SECRET: &str = "M4RK-kelp/secret+77";

/// Marks that must appear nowhere.
pub const MARKS: [&str; 3] = ["M4RK", "TTRSS", "4d34524b"];

/// The two agents that are tested: both aimed at heron, run by plover.
pub struct Kit {
    pub text: String,
    folder: TempDir,
}

impl Kit {
    /// The keys of one agent of this kind, without its source of keys.
    fn agent(kind: &str, endpoint: &str, more: &str) -> Kit {
        // Both directions must be able to prove the same.
        let (scope, lone) = if kind == "ec2-power" { ("node", "") } else { ("resource", "lone_primary = \"stop\"\n") };
        let text = format!(
            "[cluster]\nname = \"estuary\"\nkey = \"/etc/leasehold/key\"\ndata = \"shared\"\n{lone}\
             [[node]]\nname = \"heron\"\nvirtual = true\n[[node]]\nname = \"plover\"\nvirtual = true\n\
             [[link]]\nname = \"a\"\naddresses = {{ heron = \"192.0.2.1\", plover = \"192.0.2.2\" }}\n\
             [[link]]\nname = \"b\"\naddresses = {{ heron = \"198.51.100.1\", plover = \"198.51.100.2\" }}\n\
             [[resource]]\nname = \"gauges\"\nkind = \"exec\"\nstart = [\"/usr/local/bin/gauges\"]\n\
             [[fence.agent]]\nname = \"back\"\ntarget = \"plover\"\nkind = \"exec\"\nscope = \"{scope}\"\nprogram = \"/bin/true\"\n\
             [[fence.agent]]\nname = \"ec2\"\ntarget = \"heron\"\nkind = \"{kind}\"\nregion = \"eu-central-1\"\n\
             endpoint = \"{endpoint}\"\n{more}\n"
        );
        Kit { text, folder: tempfile::tempdir().unwrap() }
    }

    pub fn power(endpoint: &str) -> Kit {
        Kit::agent("ec2-power", endpoint, &format!("instance = \"{TARGET}\""))
    }

    pub fn volume(endpoint: &str) -> Kit {
        let ids = format!("instance = \"{TARGET}\"\nother_instance = \"{OTHER}\"\nvolume = \"{VOLUME}\"");
        Kit::agent("ec2-volume", endpoint, &format!("{ids}\ndevice = \"/dev/sdf\""))
    }

    pub fn with(mut self, line: &str) -> Kit {
        self.text.push_str(line);
        self.text.push('\n');
        self
    }

    pub fn replaced(mut self, from: &str, to: &str) -> Kit {
        assert!(self.text.contains(from), "{from} is not in the text");
        self.text = self.text.replace(from, to);
        self
    }

    pub fn paced(self, limit_ms: u64, poll_ms: u64) -> Kit {
        self.with(&format!("timeout = \"{limit_ms}ms\"\npoll = \"{poll_ms}ms\""))
    }

    /// A file with these lines, and the key that names it.
    pub fn keys(self, key: &str, lines: &str) -> Kit {
        let path = self.folder.path().join(key);
        fs::write(&path, lines).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let line = format!("{key} = \"{}\"", path.display());
        self.with(&line)
    }

    pub fn static_keys(self) -> Kit {
        let lines = format!("[default]\naws_access_key_id = AKIATEST\naws_secret_access_key = {SECRET}\n");
        self.keys("credentials_file", &lines)
    }

    pub fn role(self, metadata: &str) -> Kit {
        self.with(&format!("metadata = true\nmetadata_endpoint = \"{metadata}\""))
    }

    pub fn plaintext(self) -> Kit {
        self.with("plaintext = true")
    }

    pub fn build(&self) -> Built {
        self.try_build().unwrap()
    }

    pub fn try_build(&self) -> Result<Built, FenceError> {
        let checked = config::parse("leasehold.toml", &self.text).unwrap_or_else(|wrong| panic!("{wrong}"));
        let configured = checked.config.fence.agents.iter().find(|a| a.name == "ec2").unwrap();
        let (name, scope, limit) = (configured.name.as_str(), configured.scope, configured.timeout);
        let setup =
            Setup { name, scope, limit, target: "heron", caller: "plover", me: leasehold::core::NodeId::Second };
        let agent: Arc<dyn Agent> = match &configured.kind {
            AgentKind::Ec2Power(power) => Arc::new(Ec2Power::new(setup, power)?),
            AgentKind::Ec2Volume(volume) => Arc::new(Ec2Volume::new(setup, volume)?),
            other => panic!("another kind: {other:?}"),
        };
        // The whole configuration builds a plan too.
        FencePlan::new(&checked.config, NodeId::Second)?;
        Ok(Built { agent, limit })
    }
}

/// One agent, ready.
#[derive(Clone)]
pub struct Built {
    pub agent: Arc<dyn Agent>,
    pub limit: Span,
}

/// How an attempt ended.
pub struct Ended {
    pub result: FenceResult,
    pub evidence: Vec<Evidence>,
    pub took: Duration,
}

impl Ended {
    pub fn told(&self) -> String {
        told(&self.evidence)
    }

    pub fn is_confirmed(&self) -> bool {
        matches!(self.result, FenceResult::Confirmed { .. })
    }
}

pub fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// A clock that is seven minutes late.
pub fn late() -> String {
    jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - 423).unwrap().to_string()
}

pub fn told(evidence: &[Evidence]) -> String {
    let text: String = evidence.iter().map(|e| format!("{} -> {} (x{})\n", e.sent, e.read, e.times)).collect();
    MARKS.iter().for_each(|mark| assert!(!text.contains(mark), "a secret was told:\n{text}"));
    text
}

impl Built {
    pub async fn off(&self) -> Ended {
        self.off_by(now).await
    }

    pub async fn off_by(&self, stamp: fn() -> String) -> Ended {
        let limit = Duration::from(self.limit);
        let entry = Entry { index: 0, name: "ec2".to_owned(), level: 1, limit, agent: self.agent.clone() };
        let plan = FencePlan::of(vec![entry], Vec::new()).with_stamp(stamp);
        let deadline_after = limit + Duration::from_secs(1);
        let order = Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after };
        let begin = Instant::now();
        let report = plan.off(&order).await;
        Ended { result: report.result, evidence: report.evidence, took: begin.elapsed() }
    }

    pub async fn on(&self) -> (Outcome, String) {
        let attempt = Attempt::new("ec2", now);
        let outcome = tokio::time::timeout(self.limit.into(), self.agent.on(Token(4), &attempt)).await;
        (outcome.unwrap_or_else(|_| attempt.verdict()), told(&attempt.evidence()))
    }

    pub async fn prove(&self) -> Health {
        self.prove_by(now).await
    }

    pub async fn prove_by(&self, stamp: fn() -> String) -> Health {
        let attempt = Attempt::new("ec2", stamp);
        let health = self.agent.prove(&attempt).await;
        let text = format!("{health:?}{}", told(&attempt.evidence()));
        MARKS.iter().for_each(|mark| assert!(!text.contains(mark), "a secret was told:\n{text}"));
        health
    }
}
