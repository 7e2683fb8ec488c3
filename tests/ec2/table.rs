//! One table for all that EC2 can do to an agent: each row states the device, the right outcome, the words and the commands.

use std::time::Duration;

use leasehold::core::FenceResult;

use super::agents::Kit;
use super::fake::{Fake, Script, accepted, target};
use super::http::{Deaf, Reply};

/// No attempt may take longer than its limit; what is added is for a loaded machine.
const SLACK: Duration = Duration::from_secs(10);

/// Limit of an attempt that ends by itself, and of one that runs into it, in ms. A request may take a quarter of it.
pub const WITH_END: u64 = 30_000;
pub const WITHOUT_END: u64 = 4_000;

/// Between two readings, in ms.
pub const POLL: u64 = 50;

pub const DESCRIBE: &str = "DescribeInstances";
pub const VOLUMES: &str = "DescribeVolumes";
pub const STOP: &str = "StopInstances";
pub const DETACH: &str = "DetachVolume";
pub const SHOT: &str = "StopInstances Force SkipOsShutdown";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    Confirmed,
    Refused,
    Unknown,
}

/// One device, and what must come of it.
pub struct Row {
    pub name: &'static str,
    pub device: Device,
    pub limit_ms: u64,
    pub right: Right,
    /// What the evidence must say.
    pub words: &'static [&'static str],
    /// The commands that must have arrived, where it matters.
    pub commands: Option<&'static [&'static str]>,
    /// More lines for the agent's configuration.
    pub more: &'static str,
}

pub enum Device {
    Scripted(Script),
    /// Nothing gets through to it.
    Deaf,
}

pub fn row(name: &'static str, script: Script, right: Right, words: &'static [&'static str]) -> Row {
    Row {
        name,
        device: Device::Scripted(script),
        limit_ms: if right == Right::Unknown { WITHOUT_END } else { WITH_END },
        right,
        words,
        commands: None,
        more: "",
    }
}

impl Row {
    pub fn commands(self, commands: &'static [&'static str]) -> Row {
        Row { commands: Some(commands), ..self }
    }

    pub fn with(self, more: &'static str) -> Row {
        Row { more, ..self }
    }

    async fn check(self, kit: fn(&str) -> Kit) -> Option<String> {
        let (deaf, fake) = match self.device {
            Device::Deaf => (Some(Deaf::new()), None),
            Device::Scripted(script) => (None, Some(Fake::start(script))),
        };
        let url = match (&deaf, &fake) {
            (Some(deaf), _) => format!("http://{}", deaf.address),
            (None, fake) => fake.as_ref().expect("one of the two").http.url(),
        };
        let agent = kit(&url).plaintext().static_keys().paced(self.limit_ms, POLL).with(self.more).build();
        let ended = agent.off().await;
        let said = match ended.result {
            FenceResult::Confirmed { .. } => Right::Confirmed,
            FenceResult::Refused { .. } => Right::Refused,
            FenceResult::Unknown => Right::Unknown,
        };
        let commands = fake.map(|fake| fake.commands()).unwrap_or_default();
        let wrong = said != self.right
            || !self.words.iter().all(|word| ended.told().contains(word))
            || self.commands.is_some_and(|right| commands != right)
            || ended.took > Duration::from_millis(self.limit_ms) + SLACK;
        let words = self.words;
        let text = ended.told();
        wrong.then(|| format!("{}: {said:?} after {:?}, {commands:?}, wanted {words:?}\n{text}", self.name, ended.took))
    }
}

/// Checks all rows side by side, and tells of all that are wrong.
pub async fn check(rows: Vec<Row>, kit: fn(&str) -> Kit) {
    let mut tasks = tokio::task::JoinSet::new();
    rows.into_iter().for_each(|row| drop(tasks.spawn(row.check(kit))));
    let wrong: Vec<String> = tasks.join_all().await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A running instance that takes the command and then reads as told.
pub fn stops(then: &[&str]) -> Script {
    let script = Script::default().says(DESCRIBE, [target("running")]).says(STOP, [accepted(STOP)]);
    script.after(STOP, DESCRIBE, then.iter().map(|state| target(state)))
}

/// A running instance whose every command gets this answer.
pub fn answers(reply: Reply) -> Script {
    Script::default().says(DESCRIBE, [target("running")]).says(STOP, [reply])
}

/// The first thing that is asked gets this answer, always.
pub fn always(reply: Reply) -> Script {
    Script::default().says(DESCRIBE, [reply.clone()]).says(VOLUMES, [reply])
}

pub fn whole(reply: Reply) -> String {
    let Reply::Whole { body, .. } = reply else { panic!("no whole answer") };
    body
}
