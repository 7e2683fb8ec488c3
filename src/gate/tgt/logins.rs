//! Logins under way: connections to a portal of tgtd that are in none of its sessions.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::picture::Picture;

/// States of a socket in /proc/net/tcp (include/net/tcp_states.h).
const ESTABLISHED: &str = "01";
const LISTENING: &str = "0A";
/// Where tgtd listens for tgtadm, before the number of the control port (tgt, `usr/mgmt.h`).
const CONTROL: &str = "/run/tgtd/socket.";

struct Socket {
    port: u16,
    peer: IpAddr,
    state: String,
    inode: String,
}

/// The address of a connection that belongs to no session, if there is one.
///
/// Only the sockets of the process that answers on this control port count. `Err`: it has no portal here, so that the
/// view is of another network namespace.
pub fn under_way(picture: &Picture, control_port: u16) -> Result<Option<IpAddr>, String> {
    let own = inodes_of_tgtd(control_port);
    let sockets: Vec<Socket> = ["/proc/net/tcp", "/proc/net/tcp6"].iter().flat_map(|file| sockets_of(file)).collect();
    let sockets: Vec<Socket> = sockets.into_iter().filter(|socket| own.contains(&socket.inode)).collect();
    let ports: Vec<u16> = sockets.iter().filter(|s| s.state == LISTENING).map(|s| s.port).collect();
    if ports.is_empty() {
        return Err("tgtd's portal is not seen in this network namespace: run the gate beside tgtd".to_owned());
    }
    let mut without: BTreeMap<IpAddr, i64> = BTreeMap::new();
    for socket in sockets.iter().filter(|s| s.state == ESTABLISHED && ports.contains(&s.port)) {
        *without.entry(socket.peer).or_default() += 1;
    }
    for address in picture.connected.iter().filter_map(|text| text.trim_matches(['[', ']']).parse::<IpAddr>().ok()) {
        *without.entry(address.to_canonical()).or_default() -= 1;
    }
    Ok(without.into_iter().find(|(_, count)| *count > 0).map(|(address, _)| address))
}

/// The sockets of the process that has the control port's.
fn inodes_of_tgtd(control_port: u16) -> Vec<String> {
    let name = format!("{CONTROL}{control_port}");
    let unix = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let is_control = |line: &&str| line.ends_with(&name);
    let control: Vec<_> = unix.lines().filter(is_control).filter_map(|l| l.split_whitespace().nth(6)).collect();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let sockets = pids.filter(|name| name.bytes().all(|b| b.is_ascii_digit())).map(|pid| inodes_of(&pid));
    sockets.filter(|inodes| inodes.iter().any(|inode| control.contains(&inode.as_str()))).flatten().collect()
}

fn inodes_of(pid: &str) -> Vec<String> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    links.filter_map(|link| inode(&link.to_string_lossy())).collect()
}

fn inode(link: &str) -> Option<String> {
    link.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
}

fn sockets_of(file: &str) -> Vec<Socket> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().skip(1).filter_map(socket).collect()
}

/// `0: 0100007F:B42C 0100007F:1B94 01 … inode …` (proc_net_tcp in the kernel's documentation).
fn socket(line: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let port = u16::from_str_radix(words.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    let peer = address(words.get(2)?.rsplit_once(':')?.0)?;
    Some(Socket { port, peer, state: (*words.get(3)?).to_owned(), inode: (*words.get(9)?).to_owned() })
}

/// Words of four bytes, each in the byte order of this machine.
fn address(hex: &str) -> Option<IpAddr> {
    let words = (0..hex.len()).step_by(8).map(|at| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok());
    let bytes: Vec<u8> = words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|b| IpAddr::V4(Ipv4Addr::from(b))),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|b| IpAddr::V6(Ipv6Addr::from(b)).to_canonical()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        let line =
            "   0: 0100007F:1B94 0700A8C0:B42C 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 20";
        let socket = socket(line).unwrap();
        if cfg!(target_endian = "little") {
            assert_eq!((socket.port, socket.peer.to_string().as_str()), (7060, "192.168.0.7"));
            assert_eq!(address("0000000000000000FFFF00000700A8C0").unwrap().to_string(), "192.168.0.7");
        }
        assert_eq!((socket.inode.as_str(), socket.state.as_str()), ("4711", ESTABLISHED));
    }

    #[test]
    fn where_no_tgtd_listens_nothing_is_proven() {
        assert_eq!(inode("socket:[12]").as_deref(), Some("12"));
        assert_eq!(inode("anon_inode:[eventpoll]"), None);
        // No tgtd has this number: they are 16 bits, and the tests take theirs from the other end.
        assert!(under_way(&Picture::default(), u16::MAX).unwrap_err().contains("is not seen"));
    }
}
