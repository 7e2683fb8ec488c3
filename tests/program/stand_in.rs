//! Small programs that stand in for fence agents: they describe themselves as those do, write down all that they get,
//! and then do what the test wants. One is built on the library of the real agents.
#![allow(dead_code)] // each test program uses another part

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::config::fence_agent::{Given, Value};
use leasehold::config::{self, SecretSource};
use leasehold::core::{AgentSet, FenceResult, NodeId, Scope, Span, Token};
use leasehold::fence::{Entry, Evidence, FenceAgent, FenceError, FencePlan, Order, Setup};

pub const MARKER: &str = "M4RK-kelp-77";
/// Long enough for a loaded machine; a test that passes ends long before.
pub const LONG: Span = Span::from_secs(40);
pub const CONFIRMED: FenceResult = FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet(1) };

const PRELUDE: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
cat > stdin.$$; action=$(sed -n 's/^action=//p' stdin.$$)
[ "$action" = metadata ] && { rm stdin.$$; cat metadata; exit 0; }
[ "$action" ] || exit 1
mv stdin.$$ stdin.$action; cp stdin.$action stdin
echo $action >> calls; env > environment; tr '\0' '\n' < /proc/$$/cmdline | tail -n +2 > argv
[ $action = off ] && { [ -e off ] || date +%s%3N > off; }
is() { [ $1 = on ] && { echo 'Status: ON'; exit 0; }; echo 'Status: OFF'; exit 2; }
fail() { echo "$(date '+%Y-%m-%d %H:%M:%S,000') ERROR: $1" >&2; echo >&2; exit 1; }
since() { [ -e off ] && [ $(($(date +%s%3N) - $(cat off))) -ge $1 ]; }
"#;

const LIBRARY: &str = r#"#!/usr/bin/python3
import os, sys
sys.path.append("/usr/share/fence")
from fencing import *

def power(_connection, options):
    with open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "password"), "wb") as file:
        file.write(options["--password"].encode("utf-8", "surrogateescape"))
    return "off"

device_opt = ["ipaddr", "login", "passwd", "web"]
options = check_input(device_opt, process_input(device_opt))
show_docs(options, {"shortdesc": "test", "longdesc": "test", "vendorurl": "http://example.net"})
sys.exit(fence_action(None, options, None, power))
"#;

/// Options as the agents' library declares them.
pub fn metadata(actions: &str) -> String {
    let text = |name: &str, more: &str| {
        format!("<parameter name=\"{name}\" required=\"0\"{more}><content type=\"string\"/></parameter>\n")
    };
    [
        "<?xml version=\"1.0\" ?>\n<resource-agent name=\"agent\" shortdesc=\"test\" >\n<parameters>\n\
         <parameter name=\"action\" required=\"1\"><content type=\"string\" default=\"reboot\"/></parameter>\n",
        &text("ip", " obsoletes=\"ipaddr\""),
        &text("ipaddr", " deprecated=\"1\""),
        "<parameter name=\"ipport\" required=\"0\"><content type=\"integer\" default=\"23\"/></parameter>\n",
        &text("username", ""),
        &text("password", " obsoletes=\"passwd\""),
        &text("passwd", " deprecated=\"1\""),
        &text("plug", ""),
        "<parameter name=\"port_as_ip\" required=\"0\"><content type=\"boolean\"/></parameter>\n\
         <parameter name=\"method\" required=\"0\"><content type=\"select\" default=\"onoff\">\
         <option value=\"onoff\"/><option value=\"cycle\"/></content></parameter>\n</parameters>\n<actions>\n",
        actions,
        "\n</actions>\n</resource-agent>\n",
    ]
    .concat()
}

pub struct Program(tempfile::TempDir);

impl Program {
    /// A power switch. `script` goes on where the prelude ends.
    pub fn new(script: &str) -> Program {
        let actions = ["on", "off", "status", "monitor"].map(|action| format!("<action name=\"{action}\"/>"));
        Program::described(&metadata(&actions.concat()), script)
    }

    pub fn described(metadata: &str, script: &str) -> Program {
        Program::written(metadata, &[PRELUDE, script, "\n"].concat())
    }

    /// An agent whose input is read by the library of the real ones; it notes the password and reads off.
    pub fn of_the_library() -> Program {
        Program::written("", LIBRARY)
    }

    fn written(metadata: &str, text: &str) -> Program {
        let program = Program(tempfile::tempdir().unwrap());
        fs::write(program.path("metadata"), metadata).unwrap();
        fs::write(program.path("secret"), MARKER).unwrap();
        fs::set_permissions(program.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        // Written elsewhere and moved: a program that is open for writing anywhere cannot be started.
        fs::write(program.path("draft"), text).unwrap();
        fs::set_permissions(program.path("draft"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(program.path("draft"), program.path("agent")).unwrap();
        program
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// How often it was called with this action.
    pub fn count(&self, action: &str) -> usize {
        self.read("calls").lines().filter(|line| *line == action).count()
    }

    /// With an address and a secret.
    pub fn agent(&self, limit: Span) -> Result<FenceAgent, FenceError> {
        let secret = self.path("secret");
        let config = agent(&self.path("agent"), &[("ip", "192.0.2.7")], &[("password", &secret)]);
        FenceAgent::new(setup(Scope::Node, limit), &config)
    }
}

pub fn setup(scope: Scope, limit: Span) -> Setup<'static> {
    Setup { name: "agent", scope, limit, target: "heron", caller: "plover", me: NodeId::Second }
}

pub fn agent(program: &Path, options: &[(&str, &str)], secrets: &[(&str, &Path)]) -> config::FenceAgent {
    let given = |name: &str, value| Given { name: name.to_owned(), value, place: 0..0 };
    let plain = options.iter().map(|(name, value)| given(name, Value::Plain((*value).to_owned())));
    let files = secrets.iter().map(|(name, file)| given(name, Value::Secret(SecretSource::File(file.to_path_buf()))));
    config::FenceAgent {
        program: program.to_owned(),
        options: plain.chain(files).collect(),
        stable_reads: 2,
        poll: Span::from_ms(200),
        independent_power: false,
        place: 0..0,
    }
}

pub fn secret_file(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    (dir, path)
}

pub fn plan(agent: FenceAgent, limit: Span) -> FencePlan {
    let entry = Entry { index: 0, name: "agent".to_owned(), level: 1, limit: limit.into(), agent: Arc::new(agent) };
    FencePlan::of(vec![entry], Vec::new())
}

pub fn order() -> Order {
    Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after: Duration::from_secs(90) }
}

pub fn told(evidence: &[Evidence]) -> String {
    evidence.iter().map(|e| format!("{} -> {} ({}x)\n", e.sent, e.read, e.times)).collect()
}
