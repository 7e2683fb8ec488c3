//! The nftables table that refuses clients: made ahead, and shut by one message.
//!
//! ```text
//!   table inet leasehold-heron-1f00ba77
//!     set cut { }                  ◀── shut: the elements { tcp, udp } are added, by a message made ahead
//!     sets addresses4/6, ports     the service's own ends of connections
//!     sets peers4/6                the other node is no client: replication goes on until the stop
//!     chain input   { hook input;  meta l4proto @cut jump to-service }
//!     chain output  { hook output; meta l4proto @cut jump from-service }
//!     chain to-service, from-service: resets pass; of an address, or of a port: goto refuse
//!     chain refuse  { TCP: reject with tcp reset; else port unreachable }
//! ```
//!
//! While open, a packet costs one look into an empty set. Nothing is compiled, loaded or looked up when it is shut: the
//! rules stand in the kernel already. The table belongs to no process, so it outlives the daemon, as a cut has to.
//! Numbers: `linux/netfilter/nf_tables.h`, `linux/netfilter/nfnetlink.h`.

use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::netlink::NETFILTER;

use super::cut::Spec;
use super::netlink::{ACK, APPEND, CREATE, Channel, DUMP, Message, Writer, attributes};
use super::rule::{Comparison, IPV4, Rule, Verdict};

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const NEW_SET: u16 = 9;
const NEW_ELEMENTS: u16 = 12;
const GET_ELEMENTS: u16 = 13;
const DELETE_ELEMENTS: u16 = 14;

/// `NFPROTO_INET`: IPv4 and IPv6 in one table.
const INET: u8 = 1;
const IPV6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Ahead of the usual filter (0), whose silent drops would leave a client waiting.
const PRIORITY: i32 = -10;
/// Elements that fit into one attribute, whose length has 16 bits.
const ELEMENTS_AT_ONCE: usize = 512;

/// The set whose elements shut the table.
const CUT: &str = "cut";
/// Name, type as `nft` knows it (it is for showing only), length of the key in bytes.
const SETS: [(&str, u32, u32); 6] =
    [(CUT, 12, 1), ("addresses4", 7, 4), ("addresses6", 8, 16), ("peers4", 7, 4), ("peers6", 8, 16), ("ports", 13, 2)];

/// Whether clients get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// There is no such table: never made, or removed by someone.
    Absent,
    Open,
    Shut,
}

/// One table, and the messages that change it.
#[derive(Debug)]
pub struct Barrier {
    channel: Channel,
    messages: Messages,
}

/// Bytes that need nothing but a socket to send them.
#[derive(Debug)]
struct Messages {
    /// Makes the table anew, open.
    made_open: Vec<u8>,
    /// Makes the table anew, shut.
    made_shut: Vec<u8>,
    /// Shuts the table that is there.
    shut: Vec<u8>,
    /// Opens the table that is there.
    open: Vec<u8>,
    remove: Vec<u8>,
    /// Asks for the elements of the set `cut`.
    look: Vec<u8>,
}

impl Barrier {
    /// Makes the table as `spec` says. One that a former daemon left shut stays shut.
    ///
    /// # Errors
    /// The kernel's: `PERM` without CAP_NET_ADMIN, `PROTONOSUPPORT` or `OPNOTSUPP` without nf_tables.
    pub fn prepare(spec: &Spec) -> Result<Barrier, Errno> {
        let mut barrier = Barrier::attach(spec)?;
        match barrier.look()? {
            Gate::Absent | Gate::Open => barrier.channel.request(&barrier.messages.made_open)?,
            Gate::Shut => barrier.channel.request(&barrier.messages.made_shut)?,
        }
        Ok(barrier)
    }

    /// Uses the table that another process makes. Nothing is sent yet.
    ///
    /// # Errors
    /// As of opening a socket.
    pub fn attach(spec: &Spec) -> Result<Barrier, Errno> {
        Ok(Barrier { channel: Channel::open(Some(NETFILTER))?, messages: Messages::of(spec) })
    }

    /// Clients are refused when this returns. A table that somebody has removed is made again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn shut(&mut self) -> Result<(), Errno> {
        match self.channel.request(&self.messages.shut) {
            Err(Errno::NOENT) => self.channel.request(&self.messages.made_shut),
            done => done,
        }
    }

    /// Clients get through again when this returns.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(&mut self) -> Result<(), Errno> {
        match self.channel.request(&self.messages.open) {
            Err(Errno::NOENT) => self.channel.request(&self.messages.made_open),
            done => done,
        }
    }

    /// Nothing is left of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&mut self) -> Result<(), Errno> {
        match self.channel.request(&self.messages.remove) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }

    /// As the kernel has it now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&mut self) -> Result<Gate, Errno> {
        let mut kept = 0;
        match self.channel.dump(&self.messages.look, |message| kept += protocols(message)) {
            Ok(()) if kept == 2 => Ok(Gate::Shut),
            Ok(()) => Ok(Gate::Open),
            Err(Errno::NOENT) => Ok(Gate::Absent),
            Err(error) => Err(error),
        }
    }
}

/// Removes the table of this name, where there is one.
///
/// # Errors
/// The kernel's.
pub fn remove(spec: &Spec) -> Result<(), Errno> {
    Barrier::attach(spec)?.remove()
}

/// How many of the two protocols stand in this part of the set.
fn protocols(message: &Message<'_>) -> usize {
    let (list, element, key, value) = (3, 1, 1, 1);
    let body = message.body.get(4..).unwrap_or_default();
    let elements = attributes(body).filter(|(kind, _)| *kind == list).flat_map(|(_, list)| attributes(list));
    let keys = elements.filter(|(kind, _)| *kind == element).flat_map(|(_, element)| attributes(element));
    let values = keys.filter(|(kind, _)| *kind == key).flat_map(|(_, key)| attributes(key));
    values.filter(|(kind, bytes)| *kind == value && matches!(bytes, [TCP | UDP])).count()
}

impl Messages {
    fn of(spec: &Spec) -> Messages {
        let table = spec.table.as_str();
        let mut look = Writer::default();
        message(&mut look, GET_ELEMENTS, DUMP, |w| {
            w.text(1, table);
            w.text(2, CUT);
        });
        Messages {
            made_open: batch(|w| whole(w, spec)),
            made_shut: batch(|w| {
                whole(w, spec);
                shut(w, table);
            }),
            shut: batch(|w| shut(w, table)),
            // Without elements, all go (`nf_tables_delsetelem`).
            open: batch(|w| {
                message(w, DELETE_ELEMENTS, ACK, |w| {
                    w.text(1, table);
                    w.text(2, CUT);
                });
            }),
            remove: batch(|w| message(w, DELETE_TABLE, ACK, |w| w.text(1, table))),
            look: look.into_bytes(),
        }
    }
}

// --- the parts of a batch --------------------------------------------------------------------------------------------

/// All of it happens at once, or nothing does.
fn batch(body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    // struct nfgenmsg: family, version, the subsystem in network order.
    let head = [0, 0, 0, SUBSYSTEM.to_be_bytes()[1]];
    let mut w = Writer::default();
    w.message(BATCH_BEGIN, 0, |w| w.raw(&head));
    body(&mut w);
    w.message(BATCH_END, 0, |w| w.raw(&head));
    w.into_bytes()
}

fn message(w: &mut Writer, kind: u16, flags: u16, body: impl FnOnce(&mut Writer)) {
    w.message(SUBSYSTEM << 8 | kind, flags, |w| {
        w.raw(&[INET, 0, 0, 0]);
        body(w);
    });
}

fn shut(w: &mut Writer, table: &str) {
    elements(w, table, CUT, &[&[TCP], &[UDP]]);
}

/// Made, removed and made again: so that whatever was there before is replaced.
fn whole(w: &mut Writer, spec: &Spec) {
    let table = spec.table.as_str();
    for (kind, flags) in [(NEW_TABLE, CREATE), (DELETE_TABLE, 0), (NEW_TABLE, CREATE)] {
        message(w, kind, flags | ACK, |w| w.text(1, table));
    }
    sets(w, spec);
    let (local_in, local_out) = (1, 3);
    chain(w, table, "input", Some(local_in));
    chain(w, table, "output", Some(local_out));
    ["to-service", "from-service", "refuse"].iter().for_each(|name| chain(w, table, name, None));
    for (from, to) in [("input", "to-service"), ("output", "from-service")] {
        rule(w, table, from, |r| {
            r.protocol();
            r.is_in(CUT);
            r.verdict(Verdict::Jump(to));
        });
    }
    service(w, table, "to-service", &Ends::TO_SERVICE);
    service(w, table, "from-service", &Ends::FROM_SERVICE);
    rule(w, table, "refuse", |r| {
        r.is_protocol(TCP);
        r.reject_with_reset();
    });
    rule(w, table, "refuse", |r| r.reject());
}

fn sets(w: &mut Writer, spec: &Spec) {
    let table = spec.table.as_str();
    for (id, (name, kind, length)) in (1..).zip(SETS) {
        message(w, NEW_SET, CREATE | ACK, |w| {
            w.text(1, table);
            w.text(2, name);
            w.number(3, 0);
            w.number(4, kind);
            w.number(5, length);
            w.number(10, id);
        });
    }
    for (addresses, of_4, of_6) in [(&spec.addresses, "addresses4", "addresses6"), (&spec.peers, "peers4", "peers6")] {
        let octets: Vec<Vec<u8>> = addresses.iter().map(octets).collect();
        let of_length = |length| octets.iter().map(Vec::as_slice).filter(|o| o.len() == length).collect::<Vec<_>>();
        elements(w, table, of_4, &of_length(4));
        elements(w, table, of_6, &of_length(16));
    }
    let ports: Vec<[u8; 2]> = spec.ports.iter().map(|port| port.to_be_bytes()).collect();
    elements(w, table, "ports", &ports.iter().map(<[u8; 2]>::as_slice).collect::<Vec<_>>());
}

fn octets(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn elements(w: &mut Writer, table: &str, set: &str, keys: &[&[u8]]) {
    for keys in keys.chunks(ELEMENTS_AT_ONCE) {
        message(w, NEW_ELEMENTS, CREATE | ACK, |w| {
            w.text(1, table);
            w.text(2, set);
            w.nest(3, |w| keys.iter().for_each(|key| w.nest(1, |w| w.nest(1, |w| w.attr(1, key)))));
        });
    }
}

fn chain(w: &mut Writer, table: &str, name: &str, hook: Option<u32>) {
    message(w, NEW_CHAIN, CREATE | ACK, |w| {
        w.text(1, table);
        w.text(3, name);
        if let Some(hook) = hook {
            w.nest(4, |w| {
                w.number(1, hook);
                w.number(2, PRIORITY.cast_unsigned());
            });
            // Policy: accept.
            w.number(5, 1);
            w.text(7, "filter");
        }
    });
}

fn rule(w: &mut Writer, table: &str, chain: &str, body: impl FnOnce(&mut Rule<'_>)) {
    message(w, NEW_RULE, CREATE | APPEND | ACK, |w| {
        w.text(1, table);
        w.text(2, chain);
        w.nest(4, |w| body(&mut Rule::new(w)));
    });
}

// --- the rules about the service ---------------------------------------------------------------------------------------

/// Where in a packet the service's end and the client's stand: offsets in the headers of IPv4, IPv6 and TCP.
struct Ends {
    local: (u32, u32),
    remote: (u32, u32),
    port: u32,
}

impl Ends {
    const SOURCE: (u32, u32) = (12, 8);
    const DESTINATION: (u32, u32) = (16, 24);
    const TO_SERVICE: Ends = Ends { local: Ends::DESTINATION, remote: Ends::SOURCE, port: 2 };
    const FROM_SERVICE: Ends = Ends { local: Ends::SOURCE, remote: Ends::DESTINATION, port: 0 };
}

/// `sockdiag` ends connections by the same words: whoever changes one changes the other.
fn service(w: &mut Writer, table: &str, chain: &str, ends: &Ends) {
    // Resets pass: those that end the connections, those that this table itself sends, and the client's.
    rule(w, table, chain, |r| {
        r.is_protocol(TCP);
        r.is_reset();
        r.verdict(Verdict::Return);
    });
    for (family, address, set) in [(IPV4, ends.local.0, "addresses4"), (IPV6, ends.local.1, "addresses6")] {
        rule(w, table, chain, |r| {
            r.address(family, address);
            r.is_in(set);
            r.verdict(Verdict::Goto("refuse"));
        });
    }
    for (family, address, set) in [(IPV4, ends.remote.0, "peers4"), (IPV6, ends.remote.1, "peers6")] {
        rule(w, table, chain, |r| {
            r.address(family, address);
            r.is_in(set);
            r.verdict(Verdict::Return);
        });
    }
    // The loopback addresses are for the service's own commands, such as the one that stops it.
    rule(w, table, chain, |r| {
        r.address(IPV4, ends.local.0);
        r.mask(&[255, 0, 0, 0]);
        r.compare(Comparison::Equal, &[127, 0, 0, 0]);
        r.verdict(Verdict::Return);
    });
    rule(w, table, chain, |r| {
        r.address(IPV6, ends.local.1);
        r.compare(Comparison::Equal, &std::net::Ipv6Addr::LOCALHOST.octets());
        r.verdict(Verdict::Return);
    });
    rule(w, table, chain, |r| {
        r.is_protocol(TCP);
        r.transport(ends.port, 2);
        r.is_in("ports");
        r.verdict(Verdict::Goto("refuse"));
    });
}
