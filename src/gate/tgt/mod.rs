//! tgt, the user-space iSCSI target: one target of the gate's own, by `tgtadm` and a file that `tgt-admin` reads.
//!
//! ```text
//! revoke:   own file without the node (synced) ─▶ unbind its names, and whatever lets in everybody ─▶ close its connections
//! restore:  own file with the node (synced)    ─▶ bind its names
//! access:   what tgtd shows, whole ─▶ names, sessions; what its next start would read; logins under way
//! ```
//!
//! Three things are not as they look, and each would leave a door open:
//! - an unbound initiator goes on writing in the session that it has: the list is read at login only;
//! - names and addresses are alternatives: one address that matches lets in every name;
//! - a target of which the file names no `initiator-address` is bound to ALL by `tgt-admin`, whatever names stand beside it.
//!   So the own file always has one, of nobody.
//!
//! Between the check of the list and the birth of the session a login takes several messages, and tgtd shows nothing of it.
//! Such a login is a TCP connection to the portal that is in no session: as long as there is one, nothing is proven.

mod logins;
mod picture;
mod startup;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::sleep;

use super::config::Node;
use super::initiators::{is_iscsi_name, is_of};
use super::{Access, Backend, BackendError, Pending, commands, files};
use picture::Picture;

/// How often is looked whether logins have ended and sessions are gone, and how far apart. A login has two or three
/// messages; a closed session waits for the writes that the disk has in hand.
const LOOKS: u32 = 20;
const APART: Duration = Duration::from_millis(100);
/// An address that no connection comes from (RFC 919, limited broadcast).
const NOBODY: &str = "255.255.255.255";

/// The keys of a gate of `kind = "tgt"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tgt {
    /// The name of the target, `iqn.…`. Its list of initiators belongs to the gate.
    pub target: String,
    /// Which tgtd, if there are several: the number behind `-C`.
    #[serde(default)]
    pub control_port: u16,
    /// The gate's own file, which `config` includes; default: `/etc/tgt/conf.d/leasehold-NAME.conf`.
    pub file: Option<PathBuf>,
    #[serde(default = "default_config")]
    pub config: PathBuf,
    #[serde(default = "default_program")]
    pub program: PathBuf,
}

fn default_config() -> PathBuf {
    "/etc/tgt/targets.conf".into()
}

fn default_program() -> PathBuf {
    "/usr/sbin/tgtadm".into()
}

impl Tgt {
    /// What is wrong with the keys.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !is_iscsi_name(&self.target) {
            wrong.push(format!(
                "`target` {:?}: write the name of the target, such as \"iqn.2026-01.example:disk\"",
                self.target
            ));
        }
        for path in self.file.iter().chain([&self.config, &self.program]).filter(|path| !path.is_absolute()) {
            wrong.push(format!("{path:?} does not begin with `/`"));
        }
        wrong
    }
}

/// One gate on a tgtd.
#[derive(Debug)]
pub struct TgtBackend {
    keys: Tgt,
    file: PathBuf,
    gate: String,
    nodes: [Node; 2],
}

impl TgtBackend {
    pub fn new(gate: &str, nodes: &[Node; 2], keys: &Tgt) -> TgtBackend {
        let default = || format!("/etc/tgt/conf.d/leasehold-{gate}.conf").into();
        let file = keys.file.clone().unwrap_or_else(default);
        TgtBackend { keys: keys.clone(), file, gate: gate.to_owned(), nodes: nodes.clone() }
    }

    async fn tgtadm(&self, words: &[&str]) -> Result<String, BackendError> {
        let port = self.keys.control_port.to_string();
        let program = self.keys.program.to_string_lossy();
        commands::output(&program, &[&["-C", &port, "--lld", "iscsi"], words].concat()).await
    }

    async fn look(&self) -> Result<Picture, BackendError> {
        let text = self.tgtadm(&["--op", "show", "--mode", "target"]).await?;
        Picture::of(&text, &self.keys.target).map_err(BackendError)
    }

    async fn each(&self, picture: &Picture, op: &str, option: &str, entries: &[String]) -> Result<(), BackendError> {
        for entry in entries {
            self.tgtadm(&["--op", op, "--mode", "target", "--tid", &picture.tid, option, entry]).await?;
        }
        Ok(())
    }

    async fn shut_out(&self, node: &Node) -> Result<(), BackendError> {
        let picture = self.look().await;
        // The file first, and even where tgtd is down: its next start must not let the node in.
        let other = self.nodes.iter().filter(|other| other.name != node.name);
        let stays = other.filter(|other| picture.as_ref().is_ok_and(|p| binds(p, other)));
        files::replace(&self.file, &self.text(stays.flat_map(|other| &other.initiators)))?;
        let picture = picture?;
        let (names, addresses): (Vec<_>, Vec<_>) = picture.acl.iter().cloned().partition(|entry| is_iscsi_name(entry));
        let names: Vec<_> = names.into_iter().filter(|name| is_of(node, name)).collect();
        let addresses: Vec<_> = addresses.into_iter().filter(|address| address != NOBODY).collect();
        self.each(&picture, "unbind", "-I", &addresses).await?;
        self.each(&picture, "unbind", "-Q", &names).await?;
        self.close_sessions(node).await
    }

    /// Closes what the node has open, until tgtd shows none: a session ends with the last write that the disk has in hand.
    async fn close_sessions(&self, node: &Node) -> Result<(), BackendError> {
        for _ in 0..LOOKS {
            let picture = self.look().await?;
            let open: Vec<_> = picture.sessions.iter().filter(|session| is_of(node, &session.initiator)).collect();
            if open.is_empty() {
                return Ok(());
            }
            for session in open {
                for connection in &session.connections {
                    let place = ["--tid", &picture.tid, "--sid", &session.id, "--cid", &connection.id];
                    // It may have ended by itself meanwhile; the next look tells.
                    let _ = self.tgtadm(&[&["--op", "delete", "--mode", "conn"], &place[..]].concat()).await;
                }
            }
            sleep(APART).await;
        }
        Err(BackendError(format!("tgtd does not close the sessions of {}", node.name)))
    }

    async fn let_in(&self, node: &Node) -> Result<(), BackendError> {
        let picture = self.look().await?;
        let stays = self.nodes.iter().filter(|other| other.name == node.name || binds(&picture, other));
        files::replace(&self.file, &self.text(stays.flat_map(|node| &node.initiators)))?;
        let bound = |name: &String| picture.acl.iter().any(|entry| entry.eq_ignore_ascii_case(name));
        let missing: Vec<_> = node.initiators.iter().filter(|name| !bound(name)).cloned().collect();
        self.each(&picture, "bind", "-Q", &missing).await
    }

    fn text<'a>(&self, initiators: impl Iterator<Item = &'a String>) -> String {
        let names: String = initiators.map(|name| format!("    initiator-name {name}\n")).collect();
        format!(
            "# Written by `leasehold gate` for the gate {:?}: whom this target lets in. Changes are undone by the next take.\n\
             # The address is nobody's: without one, tgt-admin would let in ALL.\n\
             <target {}>\n    initiator-address {NOBODY}\n{names}</target>\n",
            self.gate, self.keys.target
        )
    }

    async fn judge(&self, node: &Node) -> Result<Access, String> {
        startup::check(&self.keys.config, &self.file, &self.keys.target)?;
        let mut why = String::new();
        for _ in 0..LOOKS {
            let picture = self.look().await.map_err(|error| error.to_string())?;
            let listed = startup::initiators(&self.file)?;
            match self.verdict(node, &picture, &listed)? {
                Access::Unknown(doubt) => why = doubt,
                known => return Ok(known),
            }
            sleep(APART).await;
        }
        Ok(Access::Unknown(why))
    }

    /// `Unknown` here is what may pass; `Err` is what stays.
    fn verdict(&self, node: &Node, picture: &Picture, listed: &[String]) -> Result<Access, String> {
        if let Some(open) = picture.acl.iter().find(|entry| !is_iscsi_name(entry) && *entry != NOBODY) {
            return Err(format!("the target lets in {open}, by whatever name; the next take removes that"));
        }
        let has = |list: &[String]| {
            node.initiators.iter().filter(|own| list.iter().any(|l| l.eq_ignore_ascii_case(own))).count()
        };
        let (now, later, all) = (has(&picture.acl), has(listed), node.initiators.len());
        if now != later {
            return Err(format!(
                "tgtd lets in {now} of {all} initiators of {}, {} has {later}",
                node.name,
                self.file.display()
            ));
        }
        let sessions = picture.sessions.iter().filter(|session| is_of(node, &session.initiator)).count();
        match (now, sessions) {
            (n, _) if n == all => Ok(Access::Admitted),
            (0, 0) => Ok(match logins::under_way(picture, self.keys.control_port)? {
                None => Access::Excluded,
                Some(whose) => {
                    Access::Unknown(format!("{whose} is connected without a session: a login may be under way"))
                }
            }),
            (0, n) => Ok(Access::Unknown(format!("{n} sessions of {} are open", node.name))),
            (n, _) => Err(format!("{n} of {all} initiators of {} are let in", node.name)),
        }
    }
}

fn binds(picture: &Picture, node: &Node) -> bool {
    node.initiators.iter().all(|own| picture.acl.iter().any(|entry| entry.eq_ignore_ascii_case(own)))
}

impl Backend for TgtBackend {
    fn revoke<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(self.shut_out(node))
    }

    fn restore<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(self.let_in(node))
    }

    fn access<'a>(&'a self, node: &'a Node) -> Pending<'a, Access> {
        Box::pin(async move { self.judge(node).await.unwrap_or_else(Access::Unknown) })
    }
}
