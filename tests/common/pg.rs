//! Two real PostgreSQL servers for tests: data directories, ports and sockets of their own, ended by Drop.

#![allow(dead_code)] // each test program uses another part

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold::config::{OldCopy, PostgresResource, Rejoin, Resource, ResourceKind, Synchronous};
use leasehold::core::Span;

pub const BIN: &str = "/usr/lib/postgresql/15/bin";
pub const NAMES: [&str; 2] = ["heron", "plover"];
/// Only for tests that hang.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Written files need not outlive this machine's power; segments are small, so that a data directory is 30 MB.
const SETTINGS: &str = "listen_addresses = '127.0.0.1'\nfsync = off\nshared_buffers = 16MB\nmax_connections = 20\n\
    wal_keep_size = 32MB\nmin_wal_size = 2MB\nmax_wal_size = 16MB\nlog_min_messages = warning\n";

/// One directory with both nodes' servers in it. The first node's data are a primary's, the second's a copy.
pub struct Lab {
    dir: tempfile::TempDir,
    ports: [u16; 2],
    template: Option<Arc<tempfile::TempDir>>,
}

impl Lab {
    pub fn new() -> Lab {
        Lab::new_in(&std::env::temp_dir())
    }

    pub fn new_in(dir: &Path) -> Lab {
        let mut lab = Lab::empty_in(dir);
        let template = template();
        for node in NAMES {
            copy(&template.path().join("data"), &lab.data(node));
        }
        lab.template = Some(template);
        as_postgres("touch", &[lab.data(NAMES[1]).join("standby.signal").to_str().unwrap()]);
        lab
    }

    /// Without data.
    pub fn empty() -> Lab {
        Lab::empty_in(&std::env::temp_dir())
    }

    fn empty_in(dir: &Path) -> Lab {
        let dir = tempfile::tempdir_in(dir).unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let ports = free_ports();
        let lab = Lab { dir, ports, template: None };
        for node in NAMES {
            fs::create_dir(lab.path(node)).unwrap();
            let (uid, gid) = postgres();
            chown(lab.path(node), Some(uid), Some(gid)).unwrap();
        }
        lab
    }

    /// As [`Lab::new`], for nodes with a network of their own each: both servers listen on this port, and let in
    /// everybody from `network`.
    pub fn apart(port: u16, network: &[&str]) -> Lab {
        let mut lab = Lab::new();
        lab.ports = [port; 2];
        for data in NAMES.map(|node| lab.data(node)) {
            append(&data.join("postgresql.conf"), "listen_addresses = '*'\n");
            let all = |net: &&str| format!("host all all {net} trust\nhost replication all {net} trust\n");
            append(&data.join("pg_hba.conf"), &network.iter().map(all).collect::<String>());
        }
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn data(&self, node: &str) -> PathBuf {
        self.path(node).join("data")
    }

    pub fn port(&self, node: &str) -> u16 {
        self.ports[usize::from(node == NAMES[1])]
    }

    pub fn config(&self, node: &str) -> PostgresResource {
        let conninfo = |name: &str| (name.to_owned(), format!("host=127.0.0.1 port={}", self.port(name)));
        PostgresResource {
            data_directory: self.data(node),
            config_file: None,
            bin_directory: BIN.into(),
            unit: None,
            user: "postgres".to_owned(),
            database: "postgres".to_owned(),
            port: self.port(node),
            socket_directory: self.path(node),
            primary_conninfo: NAMES.map(conninfo).into_iter().collect::<BTreeMap<_, _>>(),
            replication_user: "postgres".to_owned(),
            passfile: None,
            slots: true,
            max_lag_bytes: 16 << 20,
            max_lag: Span::from_secs(60),
            max_silence: Span::from_secs(600),
            min_free_bytes: 32 << 20,
            synchronous: Synchronous::Preferred,
            rejoin: Rejoin::Rewind,
            old_copy: OldCopy::Keep,
            install_token: true,
        }
    }

    pub fn resource(&self, config: PostgresResource) -> Resource {
        Resource {
            name: "db".to_owned(),
            start_timeout: Span::from_secs(60),
            stop_timeout: Span::from_secs(20),
            checks_token: true,
            beside: false,
            restarts: 0,
            restart_window: Span::from_secs(60),
            kind: ResourceKind::Postgres(config),
        }
    }

    /// The same name each time: what a daemon that is started again calls itself.
    pub fn instance(&self, node: &str) -> String {
        self.path(node).display().to_string()
    }

    /// Asks a server over its socket, as a person would. `Err`: what it said instead.
    pub fn sql(&self, node: &str, statement: &str) -> Result<String, String> {
        self.sql_within(node, statement, PATIENCE)
    }

    /// As [`Lab::sql`]; `Err` as well when there is no answer in time.
    pub fn sql_within(&self, node: &str, statement: &str, limit: Duration) -> Result<String, String> {
        let (socket, port) = (self.path(node), self.port(node).to_string());
        let mut command = run_as_postgres("timeout");
        command.args(["--signal=KILL", &limit.as_secs().to_string(), &format!("{BIN}/psql")]);
        command.args(["-X", "-w", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-p", &port, "-d", "postgres", "-h"]);
        let output = command.arg(socket).args(["-c", statement]).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// The pids of a node's server, by what PostgreSQL itself wrote down.
    pub fn postmaster(&self, node: &str) -> Option<String> {
        let text = fs::read_to_string(self.data(node).join("postmaster.pid")).ok()?;
        text.lines().next().map(str::to_owned)
    }

    /// A directory of programs in which some are replaced by scripts; `$REAL` there is PostgreSQL's own.
    pub fn stand_ins(&self, name: &str, scripts: &[(&str, &str)]) -> PathBuf {
        let bin = self.path(name);
        fs::create_dir(&bin).unwrap();
        for entry in fs::read_dir(BIN).unwrap() {
            let real = entry.unwrap().path();
            let link = bin.join(real.file_name().unwrap());
            std::os::unix::fs::symlink(&real, &link).unwrap();
        }
        for (program, script) in scripts {
            let path = bin.join(program);
            fs::remove_file(&path).unwrap();
            fs::write(&path, format!("#!/bin/bash\nREAL={BIN}/{program}\n{script}\n")).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        bin
    }

    /// Moves a node's data, whose server does not run, to a file system of their own. `kind`: what `mount` gets.
    pub fn on_own_disk(&self, node: &str, kind: &[&str]) {
        let (data, aside) = (self.data(node), self.path(node).join("aside"));
        fs::rename(&data, &aside).unwrap();
        fs::create_dir(&data).unwrap();
        assert!(Command::new("mount").args(kind).arg(&data).status().unwrap().success());
        // What mkfs makes at the top of its own.
        let _ = fs::remove_dir(data.join("lost+found"));
        let (uid, gid) = postgres();
        chown(&data, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).unwrap();
        as_postgres("cp", &["-aT", aside.to_str().unwrap(), data.to_str().unwrap()]);
        fs::remove_dir_all(aside).unwrap();
    }

    /// Fills the disk of a node's data until users other than root have `left` bytes.
    pub fn fill(&self, node: &str, left: u64) {
        let free = rustix::fs::statvfs(self.data(node)).unwrap();
        let size = (free.f_bavail * free.f_frsize).saturating_sub(left);
        let written = Command::new("fallocate").args(["-l", &size.to_string()]).arg(self.ballast(node)).status();
        assert!(written.unwrap().success());
    }

    pub fn make_room(&self, node: &str) {
        fs::remove_file(self.ballast(node)).unwrap();
    }

    fn ballast(&self, node: &str) -> PathBuf {
        self.data(node).join("ballast")
    }

    /// SIGKILL to every process of a node's server.
    pub fn kill_all(&self, node: &str) {
        for pid in processes_in(&self.data(node)) {
            signal(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        NAMES.into_iter().for_each(|node| self.kill_all(node));
        let _ = Command::new("umount").args(["-l"]).args(NAMES.map(|n| self.data(n))).stderr(Stdio::null()).status();
    }
}

pub fn signal(pid: i32, signal: rustix::process::Signal) {
    let _ = rustix::process::Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, signal));
}

/// The server processes that work in this directory.
pub fn processes_in(data: &Path) -> Vec<i32> {
    let data = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data)).collect()
}

/// A stopped cluster that every lab copies: making one takes seconds. It goes with the last lab that holds it.
fn template() -> Arc<tempfile::TempDir> {
    static TEMPLATE: Mutex<Weak<tempfile::TempDir>> = Mutex::new(Weak::new());
    let mut template = TEMPLATE.lock().unwrap_or_else(PoisonError::into_inner);
    template.upgrade().unwrap_or_else(|| {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let (uid, gid) = postgres();
        chown(dir.path(), Some(uid), Some(gid)).unwrap();
        let data = dir.path().join("data");
        let options = ["--auth-local=peer", "--auth-host=trust", "--no-sync", "--wal-segsize=1", "--no-locale", "-D"];
        as_postgres(&format!("{BIN}/initdb"), &[options.as_slice(), &[data.to_str().unwrap()]].concat());
        let conf = data.join("postgresql.conf");
        fs::write(&conf, format!("{}\n{SETTINGS}", fs::read_to_string(&conf).unwrap())).unwrap();
        // A standby compares its limits with those that the control file holds from the last start.
        let socket = format!("-c listen_addresses='' -c unix_socket_directories={}", dir.path().display());
        let log = dir.path().join("log");
        let (data, log) = (data.to_str().unwrap(), log.to_str().unwrap());
        as_postgres(&format!("{BIN}/pg_ctl"), &["-w", "-D", data, "-l", log, "-o", &socket, "start"]);
        as_postgres(&format!("{BIN}/pg_ctl"), &["-w", "-D", data, "stop"]);
        let dir = Arc::new(dir);
        *template = Arc::downgrade(&dir);
        dir
    })
}

pub fn append(path: &Path, text: &str) {
    fs::write(path, fs::read_to_string(path).unwrap() + text).unwrap();
}

pub fn copy(from: &Path, to: &Path) {
    as_postgres("cp", &["-a", from.to_str().unwrap(), to.to_str().unwrap()]);
}

pub fn as_postgres(program: &str, args: &[&str]) {
    let output = run_as_postgres(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn run_as_postgres(program: &str) -> Command {
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--", program]).current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
    command
}

pub fn postgres() -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.starts_with("postgres:")).expect("the user postgres");
    let mut numbers = line.split(':').skip(2).map(|n| n.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Two at once, so that they differ.
fn free_ports() -> [u16; 2] {
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
