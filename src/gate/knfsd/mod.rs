//! The kernel's NFS server: `exportfs`, `/proc/fs/nfs/exports`, `/proc/fs/nfsd/clients` (casebook C20, C22).
//!
//! ```text
//! revoke:  own file without the node (synced) ─▶ exportfs -u, each entry of it ─▶ exportfs -f, until no answer is under
//!          way ─▶ its NFSv4 clients: "expire"
//! restore: own file with the node (synced)    ─▶ exportfs -o OPTIONS, each address and path
//! access:  exportfs -v · the kernel's list · the files of the next boot · open state of its clients
//! ```
//!
//! A node is out when all four were read to the end and none of them knows a way in: an entry for one of its addresses,
//! for a network or a wildcard around it, on the path itself, above it or below it. A name that might be the node's is
//! a doubt, and a doubt is no proof. The gate changes entries of the nodes alone: what lets everybody in is told, not
//! removed.

pub mod tables;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::clients::{self, Match};
use super::config::Node;
use super::{Access, Backend, BackendError, Pending, commands, files};
use tables::Entry;

/// What every export of a gate gets unless `options` says otherwise. `sync`: what was acknowledged is on the disk when
/// the other node takes over.
const OPTIONS: &str = "rw,sync,no_subtree_check,no_root_squash";
/// Calls that had passed the check of the export when it went may be in the server for this long; nothing tells of
/// their end. Far above the time of one write, far below an agent's limit.
const LINGER: Duration = Duration::from_millis(200);
/// What rpc.mountd was asked before the node was un-exported it may still answer by what it had read before; then the
/// kernel lets the node in for half an hour. It answers within milliseconds, unless it waits for a name server.
const ANSWERS_EVERY: Duration = Duration::from_millis(100);
/// Three seconds: a take that is not proven by then is asked again by its agent.
const ANSWERS_TRIES: u32 = 30;
/// Of one file of `/proc` or `/etc`; a list beyond it is not judged.
const LARGEST: u64 = 16 << 20;

/// The keys of a gate of `kind = "knfsd"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knfsd {
    /// What is exported.
    pub paths: Vec<String>,
    #[serde(default = "default_options")]
    pub options: String,
    #[serde(default = "default_exportfs")]
    pub exportfs: String,
    /// In front of `/proc` and `/etc`: for tests, on a machine without that server.
    #[serde(default = "default_root")]
    pub root: PathBuf,
}

fn default_options() -> String {
    OPTIONS.to_owned()
}

fn default_exportfs() -> String {
    "/usr/sbin/exportfs".to_owned()
}

fn default_root() -> PathBuf {
    "/".into()
}

impl Knfsd {
    /// What is wrong with the keys.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.paths.is_empty() {
            wrong.push("`paths` is empty: name what is exported".to_owned());
        }
        for path in &self.paths {
            let tidy = Path::new(path).components().collect::<PathBuf>();
            if !path.starts_with('/')
                || tidy.to_str() != Some(path)
                || path.contains("..")
                || path.contains(['\n', '\t'])
            {
                wrong.push(format!("path {path:?}: write it whole, as `realpath` prints it"));
            }
        }
        let odd = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '#');
        let words: Vec<&str> = self.options.split(',').collect();
        if !words.contains(&"rw") || self.options.contains(odd) {
            wrong.push(format!(
                "`options` {:?}: write options of exports(5) with commas, `rw` among them",
                self.options
            ));
        }
        if words.contains(&"async") {
            wrong
                .push("`options` has `async`: the server would acknowledge writes that a crash of it loses".to_owned());
        }
        wrong
    }
}

/// One gate on the kernel's server.
#[derive(Debug)]
pub struct KnfsdBackend {
    keys: Knfsd,
    gate: String,
    nodes: [Node; 2],
}

impl KnfsdBackend {
    pub fn new(gate: &str, nodes: &[Node; 2], keys: &Knfsd) -> KnfsdBackend {
        KnfsdBackend { keys: keys.clone(), gate: gate.to_owned(), nodes: nodes.clone() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.keys.root.join(path.trim_start_matches('/'))
    }

    fn own_file(&self) -> PathBuf {
        self.at("/etc/exports.d").join(format!("leasehold-{}.exports", self.gate))
    }

    /// Writes who is in, for the next boot: those who were, with or without `node`.
    fn rewrite(&self, node: &Node, admitted: bool) -> Result<(), BackendError> {
        let text = std::fs::read_to_string(self.own_file()).unwrap_or_default();
        let was = |other: &Node| text.lines().any(|line| line == marker(other));
        let stays = |other: &&Node| if other.name == node.name { admitted } else { was(other) };
        let mut out = format!("# Written by `leasehold gate` for gate {}; changes are lost.\n", self.gate);
        for node in self.nodes.iter().filter(stays) {
            out += &format!("{}\n", marker(node));
            for path in &self.keys.paths {
                let clients = node.clients.iter().map(|c| format!(" {c}({})", self.keys.options)).collect::<String>();
                out += &format!("{}{clients}\n", tables::escape(path));
            }
        }
        files::make_folder(&self.at("/etc/exports.d"))?;
        files::replace(&self.own_file(), &out)
    }

    /// Un-exports every address of the node, listed or not, and every other spelling of one that is listed.
    async fn unexport(&self, node: &Node, listed: &[Entry]) -> Result<(), BackendError> {
        let ours = |e: &&Entry| self.keys.paths.contains(&e.path) && is_exactly(&e.client, node);
        for entry in listed.iter().filter(ours) {
            let what = format!("{}:{}", bracketed(&entry.client), entry.path);
            commands::output(&self.keys.exportfs, &["-u", &what]).await?;
        }
        for path in &self.keys.paths {
            for client in &node.clients {
                if !listed.iter().any(|e| e.path == *path && e.client == *client) {
                    let what = format!("{}:{path}", bracketed(client));
                    // It is an error where there is nothing to un-export, as it should be; the list decides.
                    let _ = commands::output(&self.keys.exportfs, &["-u", &what]).await;
                }
            }
        }
        Ok(())
    }

    /// Flushes the kernel's cache of rpc.mountd's answers until nothing of the node is in it: neither a "yes" that came
    /// behind an earlier flush nor a question that waits for its answer, which no flush takes away. What is asked from
    /// then on is answered by the new list.
    async fn drain_answers(&self, node: &Node) -> Result<(), BackendError> {
        let mut awaited = None;
        for _ in 0..ANSWERS_TRIES {
            commands::output(&self.keys.exportfs, &["-f"]).await?;
            awaited = self.answers_under_way(node).map_err(BackendError)?.into_iter().next();
            if awaited.is_none() {
                break;
            }
            tokio::time::sleep(ANSWERS_EVERY).await;
        }
        let late = |Entry { client, path, .. }| {
            format!(
                "rpc.mountd has not answered for seconds whether {client} may use {path}, and may still say yes by an older \
                 list; see whether it hangs or waits for a name server"
            )
        };
        awaited.map_or(Ok(()), |entry| Err(BackendError(late(entry))))
    }

    fn answers_under_way(&self, node: &Node) -> Result<Vec<Entry>, String> {
        let cache = self.at("/proc/net/rpc/nfsd.export/content");
        let entries = tables::questions(&read(&cache)?)
            .map_err(|line| format!("{} says what is not understood: {line:?}", cache.display()))?;
        let may_be = |e: &Entry| clients::matches(&e.client, &addresses(node)) != Match::No;
        Ok(entries.into_iter().filter(|e| self.is_near(e) && may_be(e)).collect())
    }

    /// On a path of the gate, above or below one.
    fn is_near(&self, entry: &Entry) -> bool {
        self.keys.paths.iter().any(|path| is_within(path, &entry.path) || is_within(&entry.path, path))
    }

    /// The list, unless it is empty where it cannot be: then nobody knows who is in.
    async fn credible_list(&self) -> Result<Vec<Entry>, String> {
        let listed = self.listed().await?;
        match self.nodes.iter().find(|node| listed.is_empty() && self.should_be_in(node)) {
            Some(node) => Err(format!(
                "`exportfs -v` prints nothing, although {} should be in; see that the server runs, then exportfs -ra",
                node.name
            )),
            None => Ok(listed),
        }
    }

    /// Ends the node's NFSv4 clients, with all that they have open. Waits until the server has done so.
    async fn expire(&self, node: &Node) -> Result<(), BackendError> {
        for client in self.clients_of(node).map_err(BackendError)? {
            let ctl = client.join("ctl");
            let shown = ctl.display().to_string();
            let expire = move || OpenOptions::new().write(true).open(ctl)?.write_all(b"expire\n");
            let written = tokio::task::spawn_blocking(expire).await;
            match written.map_err(std::io::Error::other).and_then(|done| done) {
                Ok(()) => {}
                // It has gone by itself.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(BackendError(format!("cannot expire {shown}: {error}"))),
            }
        }
        Ok(())
    }

    async fn listed(&self) -> Result<Vec<Entry>, String> {
        let text = commands::output(&self.keys.exportfs, &["-v"]).await.map_err(|error| error.to_string())?;
        tables::exportfs(&text).map_err(|line| format!("`exportfs -v` says what is not understood: {line:?}"))
    }

    /// Directories of the server's NFSv4 clients that come from the node, or from nobody knows where.
    fn clients_of(&self, node: &Node) -> Result<Vec<PathBuf>, String> {
        let directory = self.at("/proc/fs/nfsd/clients");
        let failed =
            |error| format!("cannot read {}: {error}; it needs Linux 5.3 and a running server", directory.display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(failed)? {
            let client = entry.map_err(failed)?.path();
            match read(&client.join("info")) {
                Ok(info) if comes_from(&info, node)? => found.push(client),
                Ok(_) => {}
                // It has gone meanwhile.
                Err(_) if !client.exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn doors(&self, listed: &[Entry], node: &Node) -> Result<Vec<String>, String> {
        let kernel = self.at("/proc/fs/nfs/exports");
        let cached = tables::kernel(&read(&kernel)?)
            .map_err(|line| format!("{} says what is not understood: {line:?}", kernel.display()))?;
        let mut doors = self.openings(listed, node, "`exportfs -v`");
        doors.extend(self.openings(&cached, node, "the kernel's list"));
        for file in self.export_files()? {
            let shown = file.display().to_string();
            let entries = tables::file(&read(&file)?).map_err(|line| format!("{shown} is not understood: {line:?}"))?;
            doors.extend(self.openings(&entries, node, &shown));
        }
        for client in self.clients_of(node)? {
            match read(&client.join("states")) {
                Ok(states) if states.trim().is_empty() => {}
                Ok(_) => doors.push(format!("{} has files open", client.display())),
                Err(_) if !client.exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(doors)
    }

    /// What in a table lets the node in, or might.
    fn openings(&self, entries: &[Entry], node: &Node, table: &str) -> Vec<String> {
        let told = |e: &Entry| match clients::matches(&e.client, &addresses(node)) {
            Match::No => None,
            Match::Yes => Some(format!("{table}: {} is exported to {}", e.path, e.client)),
            Match::Maybe => {
                Some(format!("{table}: {} is exported to {}, a name that may be {}'s", e.path, e.client, node.name))
            }
        };
        entries.iter().filter(|e| self.is_near(e)).filter_map(told).collect()
    }

    fn export_files(&self) -> Result<Vec<PathBuf>, String> {
        let directory = self.at("/etc/exports.d");
        let mut found: Vec<PathBuf> = Some(self.at("/etc/exports")).into_iter().filter(|f| f.exists()).collect();
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(format!("cannot read {}: {error}", directory.display())),
        };
        for entry in entries {
            let path = entry.map_err(|error| format!("cannot read {}: {error}", directory.display()))?.path();
            // Only such names are read by exportfs (exports(5)).
            let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
            if path.extension().is_some_and(|e| e == "exports") && !hidden {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// Each path is exported, writable, to each address.
    fn is_admitted(&self, listed: &[Entry], node: &Node) -> bool {
        let lets_in = |path: &String, ip: IpAddr| {
            let here = listed.iter().filter(|e| e.path == *path && e.has("rw"));
            here.into_iter().any(|e| clients::matches(&e.client, &[ip]) == Match::Yes)
        };
        let nodes = addresses(node);
        self.keys.paths.iter().all(|path| nodes.iter().all(|ip| lets_in(path, *ip)))
    }

    async fn look(&self, node: &Node) -> Result<Access, String> {
        let listed = self.credible_list().await?;
        let threads = self.at("/proc/fs/nfsd/threads");
        let serves = read(&threads)?.trim().parse::<u32>().is_ok_and(|threads| threads > 0);
        // What else lets it in is told by name: somebody has to take that away.
        if serves && self.should_be_in(node) && self.is_admitted(&listed, node) {
            return Ok(Access::Admitted);
        }
        let doors = self.doors(&listed, node)?;
        Ok(match doors.is_empty() {
            true => Access::Excluded,
            false => Access::Unknown(doors.join("; ")),
        })
    }

    fn should_be_in(&self, node: &Node) -> bool {
        read(&self.own_file()).is_ok_and(|text| text.lines().any(|line| line == marker(node)))
    }
}

impl Backend for KnfsdBackend {
    fn revoke<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(async move {
            // First of all: the file is what tells an empty list from a broken one.
            let listed = self.credible_list().await.map_err(BackendError)?;
            self.rewrite(node, false)?;
            let unexported = self.unexport(node, &listed).await;
            // Even if that failed: what is open ends all the same.
            let drained = self.drain_answers(node).await;
            let expired = self.expire(node).await;
            tokio::time::sleep(LINGER).await;
            unexported.and(drained).and(expired)
        })
    }

    fn restore<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(async move {
            self.rewrite(node, true)?;
            for path in &self.keys.paths {
                for client in &node.clients {
                    let what = format!("{}:{path}", bracketed(client));
                    commands::output(&self.keys.exportfs, &["-o", &self.keys.options, &what]).await?;
                }
            }
            Ok(())
        })
    }

    fn access<'a>(&'a self, node: &'a Node) -> Pending<'a, Access> {
        Box::pin(async move { self.look(node).await.unwrap_or_else(Access::Unknown) })
    }
}

/// The addresses of a node; the configuration has checked that each is one.
fn addresses(node: &Node) -> Vec<IpAddr> {
    node.clients.iter().filter_map(|client| clients::address(client)).collect()
}

/// Names one of the node's addresses and nothing more.
fn is_exactly(client: &str, node: &Node) -> bool {
    clients::address(client).is_some_and(|ip| addresses(node).contains(&ip))
}

/// IPv6 addresses have colons of their own (exportfs(8)).
fn bracketed(client: &str) -> String {
    if client.contains(':') && !client.starts_with('[') { format!("[{client}]") } else { client.to_owned() }
}

fn is_within(inner: &str, outer: &str) -> bool {
    Path::new(inner).starts_with(Path::new(outer))
}

/// Whether a client is the node's; an address that is not understood is an error, since it may be.
fn comes_from(info: &str, node: &Node) -> Result<bool, String> {
    let line = info.lines().find_map(|line| line.strip_prefix("address:"));
    let shown = line.map(|text| text.trim().trim_matches('"'));
    match shown.and_then(clients::address_of_peer) {
        Some(ip) => Ok(addresses(node).contains(&ip)),
        None => Err(format!("a client of the server has no address that is understood: {:?}", shown.unwrap_or(info))),
    }
}

fn marker(node: &Node) -> String {
    format!("# admits {}", node.name)
}

fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut text = String::new();
    let read = File::open(path).map_err(failed)?.take(LARGEST).read_to_string(&mut text).map_err(failed)?;
    if read as u64 == LARGEST {
        return Err(format!("{} is longer than can be judged", path.display()));
    }
    Ok(text)
}
