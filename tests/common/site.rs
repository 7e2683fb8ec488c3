//! A configuration for two nodes with fence agents of the test's choice, in a directory of its own.

#![allow(dead_code)] // each test program uses another part

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output};

/// The first node is the one that looks.
pub const NODES: [&str; 2] = ["heron", "plover"];

/// A directory with a configuration, a key, programs and secrets.
pub struct Site(tempfile::TempDir);

impl Site {
    pub fn new() -> Site {
        let site = Site(tempfile::tempdir().expect("a temporary directory"));
        let key = leasehold::wire::Keyring::generate().expect("randomness");
        site.secret("key", std::str::from_utf8(key.as_bytes()).expect("a key is text"));
        ["state", "run"].iter().for_each(|name| fs::create_dir(site.path(name)).expect("a directory"));
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file of mode 0600.
    pub fn secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        let file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a secret file");
        path
    }

    /// A program that may be run as a fence agent.
    pub fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("its mode");
        path
    }

    /// Writes the configuration with these agents.
    pub fn configure(&self, agents: &[String]) {
        fs::write(self.path("leasehold.toml"), self.text(agents)).expect("a configuration");
    }

    fn text(&self, agents: &[String]) -> String {
        let at = |name: &str| self.path(name).display().to_string();
        let nodes = NODES.map(|name| format!("[[node]]\nname = \"{name}\"\n\n")).concat();
        format!(
            "[cluster]\nname = \"site\"\nkey = \"{}\"\ndata = \"shared\"\n\n{nodes}\
             [[link]]\nname = \"lan\"\naddresses = {{ heron = \"127.0.0.1\", plover = \"127.0.0.2\" }}\n\n\
             [guard]\nprocess = \"none\"\nwatchdog = \"none\"\nreset = \"1s\"\n\n{}\
             [[resource]]\nname = \"service\"\nkind = \"exec\"\nstart = [\"/bin/true\"]\nstop_timeout = \"1s\"\n\n\
             [control]\nsocket = \"{}\"\n\n[paths]\nstate = \"{}\"\nruntime = \"{}\"\n",
            at("key"),
            agents.concat(),
            at("control.sock"),
            at("state"),
            at("run"),
        )
    }

    /// `leasehold ARGS` with this configuration, never that of the machine.
    pub fn leasehold(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(args).arg("--config").arg(self.path("leasehold.toml")).env("COLUMNS", "160");
        command.env_remove("LEASEHOLD_SOCKET").env_remove("LEASEHOLD_CONFIG");
        command
    }

    /// `leasehold check --live` as the first node.
    pub fn check_live(&self, more: &[&str]) -> Output {
        let args: Vec<&str> = ["check", "--live", "--node", NODES[0]].iter().chain(more).copied().collect();
        self.leasehold(&args).output().expect("leasehold runs")
    }
}

/// An agent of kind `exec` and node scope. `more` are further keys.
pub fn exec_agent(name: &str, target: &str, program: &std::path::Path, more: &str) -> String {
    let program = program.display();
    format!(
        "[[fence.agent]]\nname = \"{name}\"\ntarget = \"{target}\"\nkind = \"exec\"\nscope = \"node\"\n\
         program = \"{program}\"\n{more}\n\n"
    )
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}
