//! LIO, the kernel's iSCSI target: `targetcli` changes it, configfs is read.
//!
//! ```text
//! revoke:   targetcli …/acls delete NAME (the kernel ends the sessions of the list's entry, and waits for them) ─▶ saveconfig
//! restore:  targetcli …/acls create NAME, with all LUNs ─▶ saveconfig
//! access:   configfs: every portal group's list, demo mode, sessions without an entry ─▶ the saved configuration, whole
//! ```
//!
//! In demo mode (`generate_node_acls`) a target makes an entry for whoever comes: nobody is excluded then. CHAP secrets of a
//! single initiator go with its entry and are not brought back; give them to the portal group.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::config::Node;
use super::initiators::{is_iscsi_name, is_of};
use super::{Access, Backend, BackendError, Pending, commands};

/// The keys of a gate of `kind = "lio"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lio {
    /// The name of the target, `iqn.…`. Its lists of initiators belong to the gate.
    pub target: String,
    /// The portal group that lets nodes in.
    #[serde(default = "default_tpg")]
    pub tpg: u16,
    #[serde(default = "default_configfs")]
    pub configfs: PathBuf,
    /// What `saveconfig` writes and the next start reads.
    #[serde(default = "default_saved")]
    pub saved: PathBuf,
    #[serde(default = "default_program")]
    pub program: PathBuf,
}

fn default_tpg() -> u16 {
    1
}

fn default_configfs() -> PathBuf {
    "/sys/kernel/config/target".into()
}

fn default_saved() -> PathBuf {
    "/etc/target/saveconfig.json".into()
}

fn default_program() -> PathBuf {
    "/usr/bin/targetcli".into()
}

impl Lio {
    /// What is wrong with the keys.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !is_iscsi_name(&self.target) {
            wrong.push(format!("`target` {:?}: write its name, such as \"iqn.2026-01.example:disk\"", self.target));
        }
        for path in [&self.configfs, &self.saved, &self.program].into_iter().filter(|path| !path.is_absolute()) {
            wrong.push(format!("{path:?} does not begin with `/`"));
        }
        wrong
    }
}

/// What `saveconfig` writes, as far as it says who is let in (rtslib-fb).
#[derive(Debug, Deserialize)]
struct Saved {
    targets: Vec<SavedTarget>,
}

#[derive(Debug, Deserialize)]
struct SavedTarget {
    wwn: String,
    tpgs: Vec<SavedGroup>,
}

#[derive(Debug, Deserialize)]
struct SavedGroup {
    tag: u16,
    #[serde(default)]
    attributes: SavedAttributes,
    node_acls: Vec<SavedEntry>,
}

#[derive(Debug, Default, Deserialize)]
struct SavedAttributes {
    #[serde(default)]
    generate_node_acls: u32,
}

#[derive(Debug, Deserialize)]
struct SavedEntry {
    node_wwn: String,
}

/// One portal group: now, or at the next start.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    tag: u16,
    demo: bool,
    entries: Vec<String>,
    /// Initiators with a session but without an entry.
    strangers: Vec<String>,
}

/// One gate on LIO.
#[derive(Debug)]
pub struct LioBackend {
    keys: Lio,
}

impl LioBackend {
    pub fn new(keys: &Lio) -> LioBackend {
        LioBackend { keys: keys.clone() }
    }

    async fn targetcli(&self, words: &[&str]) -> Result<(), BackendError> {
        commands::output(&self.keys.program.to_string_lossy(), words).await.map(drop)
    }

    fn list(&self, tag: u16) -> String {
        format!("/iscsi/{}/tpg{tag}/acls", self.keys.target)
    }

    async fn shut_out(&self, node: &Node) -> Result<(), BackendError> {
        for group in self.live().map_err(BackendError)? {
            for entry in group.entries.iter().filter(|entry| is_of(node, entry)) {
                self.targetcli(&[&self.list(group.tag), "delete", entry]).await?;
            }
        }
        self.targetcli(&["saveconfig"]).await
    }

    async fn let_in(&self, node: &Node) -> Result<(), BackendError> {
        let groups = self.live().map_err(BackendError)?;
        let has = |name: &str| {
            let mut entries = groups.iter().filter(|g| g.tag == self.keys.tpg).flat_map(|g| &g.entries);
            entries.any(|entry| entry.eq_ignore_ascii_case(name))
        };
        for name in node.initiators.iter().filter(|name| !has(name)) {
            self.targetcli(&[&self.list(self.keys.tpg), "create", name, "add_mapped_luns=true"]).await?;
        }
        self.targetcli(&["saveconfig"]).await
    }

    /// Every portal group, as the kernel has it.
    fn live(&self) -> Result<Vec<Group>, String> {
        let target = self.keys.configfs.join("iscsi").join(&self.keys.target);
        let tagged = |name: &String| name.strip_prefix("tpgt_").and_then(|tag| tag.parse().ok());
        let tags = names_in(&target)?.iter().filter_map(tagged).collect::<Vec<u16>>();
        tags.into_iter().map(|tag| group(&target.join(format!("tpgt_{tag}")), tag)).collect()
    }

    /// Every portal group, as the next start will make it.
    fn saved(&self) -> Result<Vec<Group>, String> {
        let shown = self.keys.saved.display();
        let text = read(&self.keys.saved)?;
        let saved: Saved = serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}"))?;
        let target = saved.targets.into_iter().find(|target| target.wwn.eq_ignore_ascii_case(&self.keys.target));
        let target = target.ok_or_else(|| format!("{shown} does not have the target {}", self.keys.target))?;
        let group = |group: SavedGroup| Group {
            tag: group.tag,
            demo: group.attributes.generate_node_acls != 0,
            entries: group.node_acls.into_iter().map(|entry| entry.node_wwn).collect(),
            strangers: Vec::new(),
        };
        Ok(target.tpgs.into_iter().map(group).collect())
    }

    fn judge(&self, node: &Node) -> Result<Access, String> {
        let (now, later) = (self.verdict(node, &self.live()?)?, self.verdict(node, &self.saved()?)?);
        if now == later {
            return Ok(now);
        }
        Err(format!("the kernel says {now:?} of {}, {} says {later:?}", node.name, self.keys.saved.display()))
    }

    fn verdict(&self, node: &Node, groups: &[Group]) -> Result<Access, String> {
        if let Some(group) = groups.iter().find(|group| group.demo) {
            return Err(format!(
                "portal group {} is in demo mode and lets in everybody: set attribute generate_node_acls=0",
                group.tag
            ));
        }
        if let Some(name) = groups.iter().flat_map(|group| &group.strangers).find(|name| is_of(node, name)) {
            return Err(format!("{name} has a session without an entry in the list"));
        }
        let entries = |of: fn(u16, u16) -> bool| {
            let groups = groups.iter().filter(|group| of(group.tag, self.keys.tpg));
            let entries: Vec<&String> = groups.flat_map(|group| &group.entries).collect();
            node.initiators.iter().filter(|own| entries.iter().any(|e| e.eq_ignore_ascii_case(own))).count()
        };
        match (entries(|tag, own| tag == own), entries(|tag, own| tag != own)) {
            (0, 0) => Ok(Access::Excluded),
            (n, 0) if n == node.initiators.len() => Ok(Access::Admitted),
            (n, 0) => Err(format!("{n} of {} initiators of {} are let in", node.initiators.len(), node.name)),
            (_, n) => Err(format!("{n} initiators of {} are let in by another portal group", node.name)),
        }
    }
}

fn group(folder: &Path, tag: u16) -> Result<Group, String> {
    let demo = read(&folder.join("attrib/generate_node_acls"))?;
    let demo = match demo.trim() {
        "0" => false,
        "1" => true,
        other => return Err(format!("{}: generate_node_acls is {other:?}", folder.display())),
    };
    // The kernel writes one name after the other, each ended by a line break or a zero byte.
    let strangers = read(&folder.join("dynamic_sessions"))?;
    let strangers =
        strangers.split(['\n', '\0']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Ok(Group { tag, demo, entries: names_in(&folder.join("acls"))?, strangers })
}

fn names_in(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    // The files in such a folder are attributes of the folder itself.
    let folders = entries.into_iter().filter(|entry| entry.path().is_dir());
    Ok(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

impl Backend for LioBackend {
    fn revoke<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(self.shut_out(node))
    }

    fn restore<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(self.let_in(node))
    }

    fn access<'a>(&'a self, node: &'a Node) -> Pending<'a, Access> {
        Box::pin(async move { self.judge(node).unwrap_or_else(Access::Unknown) })
    }
}
