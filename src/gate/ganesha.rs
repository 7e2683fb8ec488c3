//! NFS-Ganesha: one EXPORT block of the gate's own, applied and read back over D-Bus (Ganesha 4, `export_mgr.c`).
//!
//! ```text
//! revoke, restore:  own file rewritten (synced) ─▶ UpdateExport, or AddExport where it is not loaded
//! access:           ShowExports: which exports reach the path ─▶ DisplayExport: who is let in, with which rights
//! ```
//!
//! The file is the truth, and each update reads it anew: an update that a killed gate sent lands with the content of the
//! younger one. The block says `Access_Type = None` for everybody, so that its CLIENT blocks alone let anybody in.
//! Ganesha checks the export's rights with every call, open files included, so that what a revoked client has open opens
//! no door.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use zbus::connection::Builder;
use zbus::message::Message;

use super::clients::{self, Match};
use super::config::Node;
use super::{Access, Backend, BackendError, Pending, files};

/// Of one call. An update takes 7 to 65 ms; one that waits longer than this is not waited for.
const LIMIT: Duration = Duration::from_secs(6);
/// The rights of a client (Ganesha 4, `exports.h`, EXPORT_OPTION_ACCESS_MASK): read, write, and both of metadata.
const ANY_ACCESS: u32 = 0x1e0;
/// The same, EXPORT_OPTION_RW_ACCESS.
const READ_AND_WRITE: u32 = 0x60;
/// The export of the pseudo file system, which Ganesha makes itself, above all others.
const PSEUDO_ROOT: u16 = 0;
/// What the gate writes itself, or what would let others in beside it.
const RESERVED: [&str; 4] = ["access_type", "client", "export_id", "%include"];

/// The keys of a gate of `kind = "ganesha"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ganesha {
    pub export_id: u16,
    /// What stands in the EXPORT block, but for its id, rights and clients.
    pub export: String,
    /// The block's file, which `config` includes; default: `/etc/ganesha/leasehold-NAME.conf`.
    pub file: Option<PathBuf>,
    #[serde(default = "default_config")]
    pub config: PathBuf,
    /// D-Bus address; default: the system bus.
    pub bus: Option<String>,
}

fn default_config() -> PathBuf {
    "/etc/ganesha/ganesha.conf".into()
}

impl Ganesha {
    /// What is wrong with the keys.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.export_id == PSEUDO_ROOT {
            wrong.push("`export_id` 0 is that of the pseudo file system: take another".to_owned());
        }
        let text = self.export.to_lowercase();
        for word in RESERVED.into_iter().filter(|word| text.contains(word)) {
            wrong.push(format!("`export` contains `{word}`, which the gate writes itself"));
        }
        let depths = self.export.chars().scan(0i32, |depth, c| {
            *depth += i32::from(c == '{') - i32::from(c == '}');
            Some(*depth)
        });
        let depths: Vec<i32> = depths.collect();
        if depths.iter().any(|depth| *depth < 0) || depths.last().is_some_and(|depth| *depth != 0) {
            wrong.push(
                "`export` has braces without their partners: write what stands between those of EXPORT".to_owned(),
            );
        }
        if text.contains('#') {
            wrong.push("`export` has a comment: keep comments in gate.toml outside of the text".to_owned());
        }
        if !text.contains("fsal") || !text.contains("path") {
            wrong.push("`export` needs at least `Path = …;` and `FSAL { Name = …; }`".to_owned());
        }
        for path in self.file.iter().chain([&self.config]).filter(|path| !path.is_absolute()) {
            wrong.push(format!("{path:?} does not begin with `/`"));
        }
        wrong
    }
}

/// One gate on a Ganesha.
#[derive(Debug)]
pub struct GaneshaBackend {
    keys: Ganesha,
    file: PathBuf,
    gate: String,
    nodes: [Node; 2],
}

/// A client of DisplayExport: its name, four numbers of its address, two anonymous ids, cache time, rights, and which
/// of the rights were given here.
type RawClient = (String, i32, u8, u8, i32, u32, u32, u32, u32, u32);
type RawExport = (u16, String, String, String, Vec<RawClient>);
type Flag = (String, bool);
type Flags = (Flag, Flag, Flag, Flag, Flag, Flag, Flag, Flag);
type RawExports = ((u64, u64), Vec<(u16, String, Flags, (u64, u64))>);

/// One CLIENT as the server has it.
struct Client {
    name: String,
    rights: u32,
    /// Rights given to it, not inherited from somewhere that D-Bus does not show.
    own: bool,
}

impl GaneshaBackend {
    pub fn new(gate: &str, nodes: &[Node; 2], keys: &Ganesha) -> GaneshaBackend {
        let default = || format!("/etc/ganesha/leasehold-{gate}.conf").into();
        let file = keys.file.clone().unwrap_or_else(default);
        GaneshaBackend { keys: keys.clone(), file, gate: gate.to_owned(), nodes: nodes.clone() }
    }

    fn rewrite(&self, node: &Node, admitted: bool) -> Result<(), BackendError> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let was = |other: &Node| text.lines().any(|line| line == marker(other));
        let stays = |other: &&Node| if other.name == node.name { admitted } else { was(other) };
        let clients: String = self.nodes.iter().filter(stays).map(block).collect();
        let out = format!(
            "# Written by `leasehold gate` for gate {}; changes are lost.\n\
             EXPORT {{\nExport_Id = {};\nAccess_Type = None;\n{}\n{clients}}}\n",
            self.gate,
            self.keys.export_id,
            self.keys.export.trim()
        );
        files::replace(&self.file, &out)
    }

    /// Makes the server read the file.
    async fn apply(&self) -> Result<(), BackendError> {
        let bus = self.bus().await?;
        let loaded = exports(&bus).await?.iter().any(|(id, _)| *id == self.keys.export_id);
        let method = if loaded { "UpdateExport" } else { "AddExport" };
        let config = self.keys.config.display().to_string();
        let which = format!("EXPORT(Export_Id={})", self.keys.export_id);
        let reply = call(&bus, method, &(config, which)).await?;
        let said: String = reply.body().deserialize().map_err(|error| odd(method, &error))?;
        // "1 exports updated", "1 exports added": none means that the configuration does not include the file.
        match said.starts_with("1 ") {
            true => Ok(()),
            false => Err(BackendError(format!(
                "{method} says {said:?}; see that {} includes {}",
                self.keys.config.display(),
                self.file.display()
            ))),
        }
    }

    async fn bus(&self) -> Result<zbus::Connection, BackendError> {
        let builder = match &self.keys.bus {
            Some(address) => Builder::address(address.as_str()),
            None => Builder::system(),
        };
        let failed = |error: zbus::Error| BackendError(format!("no D-Bus: {error}"));
        let connecting = builder.method_timeout(LIMIT).build();
        match tokio::time::timeout(LIMIT, connecting).await {
            Ok(connected) => connected.map_err(failed),
            Err(_) => Err(BackendError(format!("no D-Bus within {}s", LIMIT.as_secs()))),
        }
    }

    async fn look(&self, node: &Node) -> Result<Access, BackendError> {
        let bus = self.bus().await?;
        let exports = exports(&bus).await?;
        let Some((_, path)) = exports.iter().find(|(id, _)| *id == self.keys.export_id) else {
            return self.look_without_export(&exports);
        };
        let mut doors = Vec::new();
        for (id, other) in exports.iter().filter(|(id, _)| *id != self.keys.export_id && *id != PSEUDO_ROOT) {
            if is_within(other, path) || is_within(path, other) {
                doors.push(format!(
                    "export {id} reaches {path} as well, by {other}; D-Bus does not tell whom it lets in"
                ));
            }
        }
        let clients = clients_of(&bus, self.keys.export_id).await?;
        if is_admitted(&clients, &addresses(node)) {
            return Ok(Access::Admitted);
        }
        doors.extend(clients.iter().filter_map(|client| opening(client, node)));
        Ok(if doors.is_empty() { Access::Excluded } else { Access::Unknown(doors.join("; ")) })
    }

    /// The server is up and exports nothing of the gate: nobody is in, unless somebody should be.
    fn look_without_export(&self, exports: &[(u16, String)]) -> Result<Access, BackendError> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let expected = self.nodes.iter().any(|node| text.lines().any(|line| line == marker(node)));
        let other = exports.iter().find(|(id, _)| *id != PSEUDO_ROOT);
        match (expected, other) {
            (true, _) => {
                Ok(Access::Unknown(format!("export {} is not loaded, though it should be", self.keys.export_id)))
            }
            (false, Some((id, path))) => Ok(Access::Unknown(format!(
                "export {id} of {path} may reach what the gate guards, whose own is not loaded"
            ))),
            (false, None) => Ok(Access::Excluded),
        }
    }
}

impl Backend for GaneshaBackend {
    fn revoke<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(async move {
            self.rewrite(node, false)?;
            self.apply().await
        })
    }

    fn restore<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(async move {
            self.rewrite(node, true)?;
            self.apply().await
        })
    }

    fn access<'a>(&'a self, node: &'a Node) -> Pending<'a, Access> {
        Box::pin(async move { self.look(node).await.unwrap_or_else(|error| Access::Unknown(error.to_string())) })
    }
}

async fn exports(bus: &zbus::Connection) -> Result<Vec<(u16, String)>, BackendError> {
    let reply = call(bus, "ShowExports", &()).await?;
    let (_, exports): RawExports = reply.body().deserialize().map_err(|error| odd("ShowExports", &error))?;
    Ok(exports.into_iter().map(|(id, path, _, _)| (id, path)).collect())
}

async fn clients_of(bus: &zbus::Connection, export: u16) -> Result<Vec<Client>, BackendError> {
    let reply = call(bus, "DisplayExport", &export).await?;
    let (id, _, _, _, clients): RawExport = reply.body().deserialize().map_err(|error| odd("DisplayExport", &error))?;
    if id != export {
        return Err(BackendError(format!("DisplayExport answered for export {id} instead of {export}")));
    }
    let read = |raw: RawClient| Client { name: raw.0, rights: raw.8, own: raw.9 & ANY_ACCESS != 0 };
    Ok(clients.into_iter().map(read).collect())
}

async fn call<B>(bus: &zbus::Connection, method: &'static str, body: &B) -> Result<Message, BackendError>
where
    B: serde::Serialize + zbus::zvariant::DynamicType,
{
    let interface = Some("org.ganesha.nfsd.exportmgr");
    let done = bus.call_method(Some("org.ganesha.nfsd"), "/org/ganesha/nfsd/ExportMgr", interface, method, body).await;
    done.map_err(|error| BackendError(format!("{method}: {error}")))
}

fn odd(method: &str, error: &zbus::Error) -> BackendError {
    BackendError(format!("{method} answered in a form that is not that of Ganesha 4: {error}"))
}

/// What of a CLIENT lets the node in, or might.
fn opening(client: &Client, node: &Node) -> Option<String> {
    let who = clients::matches(&client.name, &addresses(node));
    match (who, client.own, client.rights & ANY_ACCESS) {
        (Match::No, _, _) | (_, true, 0) => None,
        (_, false, _) => Some(format!("CLIENT {} has rights that D-Bus does not show", client.name)),
        (Match::Yes, true, _) => Some(format!("CLIENT {} lets it in", client.name)),
        (Match::Maybe, true, _) => Some(format!("CLIENT {} may be {}", client.name, node.name)),
    }
}

/// The first CLIENT that fits an address decides about it, as it does in the server.
fn is_admitted(clients: &[Client], addresses: &[IpAddr]) -> bool {
    let decides = |ip: &IpAddr| clients.iter().find(|c| clients::matches(&c.name, &[*ip]) != Match::No);
    let writes = |c: &Client| c.own && c.rights & READ_AND_WRITE == READ_AND_WRITE;
    let sure = |ip: &IpAddr| decides(ip).is_some_and(|c| clients::matches(&c.name, &[*ip]) == Match::Yes && writes(c));
    addresses.iter().all(sure)
}

fn addresses(node: &Node) -> Vec<IpAddr> {
    node.clients.iter().filter_map(|client| clients::address(client)).collect()
}

fn block(node: &Node) -> String {
    let clients = node.clients.join(", ");
    format!("{}\nCLIENT {{ Clients = {clients}; Access_Type = RW; }}\n", marker(node))
}

fn marker(node: &Node) -> String {
    format!("# admits {}", node.name)
}

fn is_within(inner: &str, outer: &str) -> bool {
    Path::new(inner).starts_with(Path::new(outer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, rights: u32, own: bool) -> Client {
        Client { name: name.to_owned(), rights, own }
    }

    fn node() -> Node {
        Node { name: "heron".into(), clients: vec!["192.0.2.1".into()], initiators: Vec::new() }
    }

    /// Rights as Ganesha 4.3 showed them for RW, RO, MDONLY and None.
    const RW: u32 = 0x33031e2;
    const RO: u32 = 0x33030a2;
    const MDONLY: u32 = 0x3303182;
    const NONE: u32 = 0x3303002;

    #[test]
    fn whatever_is_not_none_lets_a_node_in_and_only_rw_admits_it() {
        for (entry, open, admitted) in [
            (client("192.0.2.1/32", RW, true), true, true),
            (client("192.0.2.1/32", RO, true), true, false),
            (client("192.0.2.1/32", MDONLY, true), true, false),
            (client("192.0.2.1/32", NONE, true), false, false),
            (client("192.0.2.1/32", NONE, false), true, false),
            (client("::ffff:192.0.2.1/128", RW, true), true, true),
            (client("*", RW, true), true, true),
            (client("*.example.com", RW, true), true, false),
            (client("*.example.com", NONE, true), false, false),
            (client("192.0.2.2/32", RW, true), false, false),
        ] {
            let name = format!("{} {:x}", entry.name, entry.rights);
            assert_eq!(opening(&entry, &node()).is_some(), open, "{name}");
            assert_eq!(is_admitted(&[entry], &addresses(&node())), admitted, "{name}");
        }
    }

    #[test]
    fn the_first_client_that_fits_decides() {
        let admitted = |clients: &[Client]| is_admitted(clients, &addresses(&node()));
        assert!(!admitted(&[client("192.0.2.0/24", NONE, true), client("192.0.2.1/32", RW, true)]));
        assert!(!admitted(&[client("@who", NONE, true), client("192.0.2.1/32", RW, true)]));
        assert!(admitted(&[client("192.0.2.2/32", NONE, true), client("192.0.2.1/32", RW, true)]));
    }

    #[test]
    fn a_text_that_would_open_another_door_is_refused() {
        let check = |export: &str| {
            let config = default_config();
            Ganesha { export_id: 1, export: export.into(), file: None, config, bus: None }.check()
        };
        assert_eq!(check("Path = /srv; Pseudo = /srv; FSAL { Name = VFS; }"), Vec::<String>::new());
        for wrong in [
            "Path = /srv; FSAL { Name = VFS; } Access_Type = RW;",
            "Path = /srv; FSAL { Name = VFS; } client { Clients = *; }",
            "Path = /srv; FSAL { Name = VFS; } } EXPORT {",
            "Path = /srv; FSAL { Name = VFS; ",
            "Path = /srv; # FSAL",
            "",
        ] {
            assert!(!check(wrong).is_empty(), "{wrong}");
        }
    }
}
