//! A kernel NFS server that is none: `exportfs` as a script over a text file, and a folder in place of `/proc` and `/etc`.
//!
//! This kernel need not have nfsd; the formats are those of nfs-utils 2.6 and Linux 6. The script can kill the gate
//! that calls it, at any call, before or after it did its work, and it can hang.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use leasehold::gate::config::Gates;
use leasehold::gate::protocol::Answer;

pub const GATE: &str = "estuary";
pub const PATH: &str = "/srv/estuary data";
pub const CLIENTS: [&str; 2] = ["192.0.2.1", "2001:db8::2"];

/// `kill` holds `NUMBER before` or `NUMBER after`: at that call the gate dies. `hang` is a pipe that `-u` reads first.
/// `late` is what rpc.mountd answers right behind the next flush; while there is `silent` it answers nothing.
const EXPORTFS: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 9
echo "$*" >> calls
n=$(wc -l < calls)
[ "$(cat kill 2>/dev/null)" = "$n before" ] && { rm kill; kill -9 $PPID; }
list() { while IFS='|' read -r path client options; do printf '%s\n\t\t%s(%s)\n' "$path" "$client" "$options"; done < etab; }
status=0
case "$1" in
-v) [ -e list ] && cat list || list; [ -e fail ] && status=1 ;;
-u) [ -p hang ] && cat hang
    client=$(echo "${2%%:/*}" | tr -d '[]'); path=/${2#*:/}
    [ -e deaf ] || { grep -vF "$path|$client|" etab > etab.new; mv etab.new etab; } ;;
-o) client=$(echo "${3%%:/*}" | tr -d '[]'); path=/${3#*:/}
    grep -vF "$path|$client|" etab > etab.new; echo "$path|$client|$2" >> etab.new; mv etab.new etab ;;
-f) answers=root/proc/net/rpc/nfsd.export/content
    if [ -e late ]; then mv late $answers; elif [ -e $answers ] && [ ! -e silent ]; then : > $answers; fi ;;
*) status=7 ;;
esac
[ "$(cat kill 2>/dev/null)" = "$n after" ] && { rm kill; kill -9 $PPID; }
exit $status
"#;

/// The kernel's cache of what rpc.mountd said.
pub const ANSWERS: &str = "root/proc/net/rpc/nfsd.export/content";

pub struct Server {
    dir: tempfile::TempDir,
}

impl Server {
    /// A server that lets nobody in, with a record.
    pub fn start() -> Server {
        let server = Server { dir: tempfile::tempdir().expect("a temporary directory") };
        // No `/etc/exports.d`: Debian's package brings none along.
        for folder in ["root/proc/fs/nfsd/clients", "root/proc/fs/nfs", "root/proc/net/rpc/nfsd.export", "root/etc"] {
            fs::create_dir_all(server.path(folder)).expect("a folder");
        }
        server.write("root/proc/fs/nfsd/threads", "8\n");
        server.write("root/proc/fs/nfs/exports", "# Version 1.1\n# Path Client(Flags) # IPs\n");
        server.write(ANSWERS, "#path domain(flags)\n");
        server.write("etab", "");
        server.write("exportfs", EXPORTFS);
        fs::set_permissions(server.path("exportfs"), fs::Permissions::from_mode(0o755)).expect("an executable script");
        server.write("gate.toml", &server.config());
        assert!(server.gate(&["init", "--gate", GATE]).status.success());
        server
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a written file");
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn config(&self) -> String {
        let at = |name: &str| self.path(name).display().to_string();
        format!(
            "state = {:?}\n[[gate]]\nname = {GATE:?}\nkind = \"knfsd\"\npaths = [{PATH:?}]\nexportfs = {:?}\nroot = {:?}\n\
             node = [{{ name = \"heron\", clients = [{:?}] }}, {{ name = \"plover\", clients = [{:?}] }}]\n",
            at("state"),
            at("exportfs"),
            at("root"),
            CLIENTS[0],
            CLIENTS[1]
        )
    }

    pub fn gates(&self) -> Gates {
        Gates::parse(&self.config()).expect("a right configuration")
    }

    pub fn record(&self) -> PathBuf {
        self.path("state").join(format!("{GATE}.gate"))
    }

    /// The gate's own file for the next boot.
    pub fn persistent(&self) -> String {
        self.read(&format!("root/etc/exports.d/leasehold-{GATE}.exports"))
    }

    /// The clients that are let in now.
    pub fn admitted(&self) -> Vec<String> {
        self.read("etab").lines().filter_map(|line| Some(line.split('|').nth(1)?.to_owned())).collect()
    }

    /// From the next call of the script on.
    pub fn kill_at(&self, call: usize, when: &str) {
        self.write("calls", "");
        self.write("kill", &format!("{call} {when}\n"));
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.arg("gate").args(args).arg("--gate-config").arg(self.path("gate.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn gate(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the gate runs")
    }

    /// `None`: the gate died before it answered.
    pub fn take(&self, node: &str, token: u64, seen: Option<u64>) -> Option<Answer> {
        let (token, seen) = (token.to_string(), seen.map(|seen| seen.to_string()));
        let mut args = vec!["take", "--gate", GATE, "--node", node, "--token", &token, "--json"];
        args.extend(seen.iter().flat_map(|seen| ["--seen", seen]));
        answer(&self.gate(&args))
    }

    pub fn status(&self) -> Answer {
        answer(&self.gate(&["status", "--gate", GATE, "--json"])).expect("an answer")
    }

    /// One line to `gate serve`, and what comes back.
    pub fn serve(&self, line: &str) -> (Answer, Option<i32>) {
        let mut child = self.command(&["serve"]).stdin(Stdio::piped()).spawn().expect("the gate starts");
        // A gate that has heard enough closes its end.
        let _ = child.stdin.take().expect("a pipe").write_all(line.as_bytes());
        let output = child.wait_with_output().expect("the gate ends");
        (answer(&output).expect("an answer"), output.status.code())
    }
}

fn answer(output: &Output) -> Option<Answer> {
    serde_json::from_slice(&output.stdout).ok()
}

/// A pipe that holds up whoever reads it until [`let_go`].
pub fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

pub fn let_go(path: &Path) {
    drop(fs::OpenOptions::new().write(true).open(path).expect("somebody reads the pipe"));
}
