//! Whether systemd-networkd owns the interface of an address: when it is restarted, it removes what it does not know
//! unless it is told to keep it (casebook C25). Read from its files alone; nothing is said where it is not in use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::checked::ResourceKind;
use super::super::diagnostics::Finding;
use super::super::raw;
use super::super::value::Findings;

/// In the order of their precedence: a file of one name in an earlier folder hides those in later ones.
const FOLDERS: [&str; 4] =
    ["etc/systemd/network", "run/systemd/network", "usr/local/lib/systemd/network", "usr/lib/systemd/network"];
/// Signs that it runs here, or will after the next boot.
const IN_USE: [&str; 2] = ["run/systemd/netif", "etc/systemd/system/multi-user.target.wants/systemd-networkd.service"];

/// Warns of each interface that is owned without `KeepConfiguration=`. `root` is "/" but in tests.
pub fn check_networkd(resources: &[raw::Resource], root: &Path, f: &mut Findings) {
    if !IN_USE.iter().any(|sign| root.join(sign).symlink_metadata().is_ok()) {
        return;
    }
    let networks = networks(root);
    for raw in resources {
        let Some(ResourceKind::Address(address)) = &raw.other else { continue };
        for interface in address.interfaces.all() {
            // The first file that matches is the one that counts.
            let owner = networks.iter().find(|network| network.matches(interface));
            if let Some(owner) = owner.filter(|network| !network.keeps()) {
                f.push(finding(raw, interface, owner));
            }
        }
    }
}

fn finding(raw: &raw::Resource, interface: &str, owner: &Network) -> Finding {
    let title = format!("systemd-networkd owns {interface} and removes what it does not know when it is restarted");
    let name = owner.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let finding = Finding::warning(title).at(&raw.span, "its address would be removed, and put back each time");
    let finding = finding.note(format!("by {}", owner.path.display()));
    finding.help(format!("write into /etc/systemd/network/{name}.d/keep.conf:\n[Network]\nKeepConfiguration=yes"))
}

/// One `.network` file with its drop-ins.
struct Network {
    path: PathBuf,
    /// Section, key, value.
    lines: Vec<(String, String, String)>,
}

impl Network {
    fn read(path: PathBuf, root: &Path) -> Network {
        let mut text = std::fs::read_to_string(&path).unwrap_or_default();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        for drop_in in files(root, &format!("{name}.d"), "conf").into_values() {
            text += "\n";
            text += &std::fs::read_to_string(drop_in).unwrap_or_default();
        }
        Network { path, lines: lines(&text) }
    }

    fn values<'a>(&'a self, section: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
        let wanted = move |line: &&(String, String, String)| line.0 == section && line.1 == key;
        self.lines.iter().filter(wanted).map(|(_, _, value)| value.as_str())
    }

    /// By name. What matches by other signs alone (hardware address, driver) cannot be told from here.
    fn matches(&self, interface: &str) -> bool {
        let names = self.values("Match", "Name").flat_map(str::split_whitespace).collect::<Vec<_>>();
        match names.first().map(|first| first.strip_prefix('!')) {
            None => false,
            Some(Some(_)) => !names.iter().any(|name| fits(name.trim_start_matches('!'), interface)),
            Some(None) => names.iter().any(|name| fits(name, interface)),
        }
    }

    fn keeps(&self) -> bool {
        let said = self.values("Network", "KeepConfiguration").last().unwrap_or("");
        matches!(said.to_ascii_lowercase().as_str(), "yes" | "true" | "on" | "1" | "static")
    }
}

/// All `.network` files that count, in the order in which they are tried.
fn networks(root: &Path) -> Vec<Network> {
    files(root, "", "network").into_values().map(|path| Network::read(path, root)).collect()
}

fn files(root: &Path, below: &str, extension: &str) -> BTreeMap<std::ffi::OsString, PathBuf> {
    let mut found = BTreeMap::new();
    for folder in FOLDERS.iter().rev() {
        let entries = std::fs::read_dir(root.join(folder).join(below)).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == extension));
        found.extend(paths.filter_map(|path| Some((path.file_name()?.to_owned(), path))));
    }
    found
}

fn lines(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, value)) = line.split_once('=') {
            found.push((section.clone(), key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

/// `*` and `?` as in a shell. Sets in brackets are taken for a fit: better one warning too many.
fn fits(pattern: &str, name: &str) -> bool {
    let mut rest = pattern.chars();
    match (rest.next(), name.chars().next()) {
        (None, at) => at.is_none(),
        (Some('['), _) => true,
        (Some('*'), _) => {
            let tails = name.char_indices().map(|(at, _)| &name[at..]).chain([""]);
            tails.into_iter().any(|tail| fits(rest.as_str(), tail))
        }
        (Some('?'), Some(c)) => fits(rest.as_str(), &name[c.len_utf8()..]),
        (Some(p), Some(c)) => p == c && fits(rest.as_str(), &name[c.len_utf8()..]),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(files: &[(&str, &str)]) -> Vec<Finding> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let text = "[[resource]]\nname = \"reef\"\nkind = \"address\"\naddress = \"192.0.2.50/24\"\n\
                    interface = { heron = \"eth1\", plover = \"enp9s0\" }\n";
        let document = toml::de::DeTable::parse(text).unwrap();
        let mut findings = Findings::default();
        let raw = raw::read(&document, &mut findings);
        let mut findings = Findings::default();
        check_networkd(&raw.resources, root.path(), &mut findings);
        findings.list
    }

    const RUNS: (&str, &str) = ("run/systemd/netif/state", "");
    const FILE: &str = "etc/systemd/network/10-eth.network";

    #[test]
    fn an_interface_that_networkd_owns_is_told_with_the_line_to_add() {
        let found = warnings(&[RUNS, (FILE, "[Match]\nName=eth*\n[Network]\nDHCP=no\n")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].title.contains("owns eth1"), "{found:?}");
        let help = &found[0].helps[0];
        assert!(help.contains("10-eth.network.d/keep.conf") && help.contains("KeepConfiguration=yes"), "{help}");
    }

    #[test]
    fn nothing_is_said_where_it_keeps_or_is_not_in_use_or_owns_others() {
        let owns = "[Match]\nName=eth1 enp9s0\n";
        assert!(warnings(&[(FILE, owns)]).is_empty(), "not in use");
        assert_eq!(warnings(&[RUNS, (FILE, owns)]).len(), 2);
        let keeps = format!("{owns}[Network]\nKeepConfiguration=static\n");
        assert!(warnings(&[RUNS, (FILE, &keeps)]).is_empty(), "kept");
        let drop_in = ("etc/systemd/network/10-eth.network.d/keep.conf", "[Network]\nKeepConfiguration = yes\n");
        assert!(warnings(&[RUNS, (FILE, owns), drop_in]).is_empty(), "kept by a drop-in");
        assert!(warnings(&[RUNS, (FILE, "[Match]\nName=!eth1 enp9s0\n")]).is_empty(), "all but these");
        assert!(warnings(&[RUNS, (FILE, "[Match]\nDriver=virtio_net\n")]).is_empty(), "cannot be told");
    }

    #[test]
    fn the_first_file_that_matches_counts_and_etc_hides_usr() {
        let keeps = "[Match]\nName=*\n[Network]\nKeepConfiguration=yes\n";
        let drops = "[Match]\nName=*\n";
        let first = ("run/systemd/network/05-all.network", keeps);
        assert!(warnings(&[RUNS, (FILE, drops), first]).is_empty());
        let hidden = ("usr/lib/systemd/network/10-eth.network", drops);
        assert!(warnings(&[RUNS, (FILE, keeps), hidden]).is_empty());
    }
}
