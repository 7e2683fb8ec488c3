//! Disks for the real `sg_persist`, made of the target in `target.c`: logical units, and the paths of nodes to them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use leasehold::config::{AbortSupport, Persistence, ScsiPr as Config};
use leasehold::core::{Scope, Span};
use leasehold::fence::{Places, ScsiPr, Setup};

/// The target as a library, compiled once for all tests of the file.
fn library() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) =
            (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scsi/target.c"), dir.path().join("target.so"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        assert!(gcc.status().unwrap().success(), "target.c does not compile");
        (dir, library)
    });
    path
}

/// One storage system and the nodes that reach it.
pub struct Lab(tempfile::TempDir);

impl Lab {
    pub fn new() -> Lab {
        let lab = Lab(tempfile::tempdir().unwrap());
        let script = format!("#!/bin/sh\nLD_PRELOAD={} exec /usr/bin/sg_persist \"$@\"\n", library().display());
        lab.program("sg_persist", &script);
        lab.disk("lun0");
        lab
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn program(&self, name: &str, script: &str) -> PathBuf {
        fs::write(self.at(name), script).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755)).unwrap();
        self.at(name)
    }

    pub fn disk(&self, lun: &str) {
        fs::write(self.at(lun), "gen 0\n").unwrap();
        fs::write(self.at(&format!("{lun}.log")), "").unwrap();
    }

    /// The kernel of one node, which sees each disk as one multipath map over the named sessions.
    pub fn node(&self, name: &str, lun: &str, sessions: &[&str]) {
        let dev = self.at(&format!("{name}/dev"));
        let (map, slaves) = (format!("dm-{lun}"), self.at(&format!("{name}/sys/block/dm-{lun}/slaves")));
        fs::create_dir_all(&dev).unwrap();
        fs::remove_dir_all(&slaves).unwrap_or_default();
        fs::create_dir_all(&slaves).unwrap();
        fs::create_dir_all(self.at("by-id")).unwrap();
        fs::write(dev.join(&map), "").unwrap();
        for session in sessions {
            let disk = format!("sd-{lun}-{session}");
            fs::create_dir_all(slaves.join(&disk)).unwrap();
            let text = format!("scsi-path\nlun {}\nnexus {name}-{session}\n", self.at(lun).display());
            fs::write(dev.join(&disk), text).unwrap();
        }
        let _ = symlink(dev.join(&map), dev.join(format!("id-{lun}")));
    }

    pub fn fault(&self, node: &str, lun: &str, session: &str, fault: &str) {
        let disk = self.at(&format!("{node}/dev/sd-{lun}-{session}"));
        let text = format!("scsi-path\nlun {}\nnexus {node}-{session}\nfault {fault}\n", self.at(lun).display());
        fs::write(disk, text).unwrap();
    }

    pub fn agent_of(&self, caller: &str, target: &str, luns: &[&str], change: impl Fn(&mut Config)) -> ScsiPr {
        let dev = self.at(&format!("{caller}/dev"));
        let mut config = Config {
            devices: luns.iter().map(|lun| dev.join(format!("id-{lun}"))).collect(),
            takes: true,
            abort: AbortSupport::Required,
            persistence: Persistence::Required,
        };
        change(&mut config);
        let limit = Span::from_secs(20);
        let me = if caller == "heron" { leasehold::core::NodeId::First } else { leasehold::core::NodeId::Second };
        let setup = Setup { name: "disk", scope: Scope::Resource, limit, target, caller, me };
        let places = Places { sys: self.at(&format!("{caller}/sys")), dev };
        ScsiPr::with_parts(setup, &config, self.at("sg_persist"), places).unwrap()
    }

    /// The agent of `caller` against the other of the two nodes.
    pub fn agent(&self, caller: &str) -> ScsiPr {
        let target = if caller == "heron" { "plover" } else { "heron" };
        self.agent_of(caller, target, &["lun0"], |_| {})
    }

    pub fn state(&self, lun: &str) -> String {
        fs::read_to_string(self.at(lun)).unwrap()
    }

    pub fn set_state(&self, lun: &str, state: &str) {
        fs::write(self.at(lun), state).unwrap();
    }

    /// Each PERSISTENT RESERVE OUT that arrived.
    pub fn log(&self, lun: &str) -> Vec<String> {
        fs::read_to_string(self.at(&format!("{lun}.log"))).unwrap().lines().map(str::to_owned).collect()
    }

    /// Who may write under "write exclusive, registrants only": everybody while nothing is reserved.
    pub fn writers(&self, lun: &str) -> Vec<String> {
        let state = self.state(lun);
        assert!(state.contains("\nhold "), "nothing is reserved: {state}");
        let of = |line: &str| line.strip_prefix("reg ").and_then(|l| l.split(' ').next()).map(str::to_owned);
        let mut writers: Vec<_> = state.lines().filter_map(of).collect();
        writers.sort();
        writers
    }

    /// The token of the reservation.
    pub fn stored(&self, lun: &str) -> u64 {
        let state = self.state(lun);
        let nexus = state.lines().find_map(|l| l.strip_prefix("hold ")).and_then(|l| l.split(' ').next());
        let Some(nexus) = nexus else { return 0 };
        let key =
            state.lines().find_map(|l| l.strip_prefix(&format!("reg {nexus} "))).expect("the holder is registered");
        u64::from_str_radix(&key[6..], 16).unwrap()
    }
}
