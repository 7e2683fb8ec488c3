//! Who answers for the service's address on the clients' network, asked from the client's host ten times a second.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

use super::site::SERVICE_ADDRESS;

/// Ended when dropped.
pub struct Witness {
    child: Child,
    file: PathBuf,
}

impl Witness {
    /// In the network namespace of the client's host.
    pub fn start(namespace: &str, file: PathBuf) -> anyhow::Result<Witness> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/witness.py");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}")).arg("--").arg("python3").arg(program);
        command.args(["eth0", "192.0.2.100", SERVICE_ADDRESS]).arg(&file);
        let child = command.stdin(Stdio::null()).spawn().context("python3")?;
        Ok(Witness { child, file })
    }

    /// Before its network goes.
    pub fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Nobody was ever answered by two, unless that is `tolerated`. Some questions were answered.
    pub fn judge(&self, tolerated: bool) -> anyhow::Result<()> {
        judge(&std::fs::read_to_string(&self.file)?, tolerated)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.end();
    }
}

fn judge(text: &str, tolerated: bool) -> anyhow::Result<()> {
    let answers = |line: &str| line.split(' ').count() - 1;
    let both: Vec<&str> = text.lines().filter(|line| answers(line) > 1).collect();
    ensure!(tolerated || both.is_empty(), "{SERVICE_ADDRESS} was answered for by two at once: {both:#?}");
    ensure!(text.lines().any(|line| answers(line) > 0), "nobody ever answered for {SERVICE_ADDRESS}");
    Ok(())
}

#[test]
fn two_answers_to_one_question_are_found() {
    let (alone, both) = ("10 aa:01\n20\n30 bb:02\n", "10 aa:01\n20 aa:01 bb:02\n");
    assert!(judge(alone, false).is_ok());
    assert!(judge(both, false).unwrap_err().to_string().contains("two at once"));
    assert!(judge(both, true).is_ok());
    assert!(judge("10\n20\n", true).unwrap_err().to_string().contains("nobody ever answered"));
}
