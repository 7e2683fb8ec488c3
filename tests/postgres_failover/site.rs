//! A pair on a segment with its clients, and the cables between.
//!
//! ```text
//!   c ── reef0 ──┬── a ─┐        the address, for the clients; the nodes' second link
//!                └── b ─┴ hb0    first link, and replication
//! ```

use std::fs;
use std::process::Command;
use std::time::Duration;

use leasehold::config;
use leasehold::control::{Op, Role, Verdict};
use leasehold::core::Span;
use leasehold::os::clock;
use rustix::process::Signal;

use crate::machine::Machine;
use crate::pg::{Lab, NAMES};
use crate::rows::Door;
use crate::segment::Segment;

pub const ADDRESS: &str = "192.0.2.50";
pub const PORT: u16 = 5432;
/// Only for what hangs: on a machine that does much else a failover with its rejoin was seen to take a minute.
const PATIENCE: Span = Span::from_secs(240);
const LOOK: Duration = Duration::from_millis(10);
/// What a partition drops: all that comes from the other node, by whichever way.
const CUT: &str = "table inet partition { chain input { type filter hook input priority -10; \
                   ip saddr { 198.51.100.1, 198.51.100.2, 192.0.2.11, 192.0.2.12 } iifname != \"lo\" drop; }; }";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL to everything that runs on the primary's machine.
    Kill,
    /// Heartbeats and replication at once; the clients still reach both.
    Partition,
    /// SIGSTOP to everything on the primary's machine. Its BMC is out of reach until the term is over.
    Stop,
    Planned,
}

pub const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Planned, Fault::Partition, Fault::Stop];

pub struct Site {
    pub machines: [Machine; 2],
    pub lab: Lab,
    segment: Segment,
}

impl Site {
    /// Both machines are off.
    pub fn build(synchronous: &str) -> Site {
        let segment = Segment::new(&["a", "b", "c"]);
        wire(&segment);
        let lab = Lab::apart(PORT, &["192.0.2.0/24", "198.51.100.0/24"]);
        let key = leasehold::wire::Keyring::generate().expect("randomness");
        let new = |index: usize, spaces| Machine::new(&segment, NAMES[index], spaces, key.as_bytes());
        let site = Site { machines: [new(0, ["a", "b"]), new(1, ["b", "a"])], lab, segment };
        for machine in &site.machines {
            fs::write(machine.file("leasehold.toml"), site.configuration(machine, synchronous)).unwrap();
        }
        site
    }

    /// Through the address, as the users come; and to each node itself, where nobody should be served twice.
    pub fn doors(&self) -> Vec<Door> {
        let space = self.segment.namespace("c");
        let door = |name, host: &str| Door { name, space: space.clone(), host: host.to_owned(), port: PORT };
        vec![door("address", ADDRESS), door("a", "192.0.2.11"), door("b", "192.0.2.12")]
    }

    pub fn switch_on(&mut self) {
        self.machines.iter_mut().for_each(|machine| machine.switch_on(&self.segment));
    }

    /// The primary, once the other node could take over and streams by its own word.
    pub fn until_whole(&mut self, what: &str) -> usize {
        let mut found = None;
        self.until(what, |site| {
            // Whose power was cut, gets it again.
            site.machines.iter_mut().filter(|machine| machine.is_off()).for_each(|m| m.switch_on(&site.segment));
            found = (0..2).find(|index| site.is_whole(*index));
            found.is_some()
        });
        found.expect("somebody was found")
    }

    fn is_whole(&self, primary: usize) -> bool {
        let [Some(first), Some(second)] = [primary, 1 - primary].map(|index| self.machines[index].status()) else {
            return false;
        };
        let streaming = || self.lab.sql(NAMES[1 - primary], "select status from pg_stat_wal_receiver");
        first.me.role == Role::Primary
            && second.me.role == Role::Standby
            && second.me.ready
            && first.can_fail_over.answer == Verdict::Yes
            && streaming().as_deref() == Ok("streaming")
            && self.has_address(primary)
    }

    pub fn has_address(&self, index: usize) -> bool {
        self.segment.has(self.machines[index].space, ADDRESS)
    }

    pub fn token(&self, index: usize) -> Option<u64> {
        self.machines[index].status()?.me.token
    }

    pub fn strike(&mut self, fault: Fault, primary: usize) {
        match fault {
            Fault::Kill => self.machines[primary].signal(Signal::KILL),
            Fault::Partition => self.partition(),
            Fault::Stop => self.machines[primary].signal(Signal::STOP),
            Fault::Planned => drop(self.machines[primary].ask(Op::Failover { force: false }).expect("it is accepted")),
        }
    }

    /// Of a stop: until the lease of the node that stands still is over for certain, nothing can be done to it.
    pub fn outlast_term(&mut self, primary: usize, begun: leasehold::core::Instant) {
        let checked = config::load(&self.machines[primary].file("leasehold.toml")).expect("it runs with this");
        let over = begun.after(checked.config.timing.term).after(Span::from_secs(1));
        self.until("the term is over", |_| clock::now() > over);
        assert_eq!(self.token(1 - primary), None, "nobody is promoted while nothing is proven");
        let Site { machines, segment, .. } = self;
        machines[primary].plug_bmc(segment);
    }

    fn partition(&self) {
        for machine in &self.machines {
            let mut nft = self.segment.command(machine.space, "nft");
            assert!(nft.arg(CUT).status().unwrap().success());
        }
    }

    pub fn mend(&self) {
        for machine in &self.machines {
            let mut nft = self.segment.command(machine.space, "nft");
            assert!(nft.args(["delete", "table", "inet", "partition"]).status().unwrap().success());
        }
    }

    /// Fails with both nodes' stories.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Site) -> bool) {
        let begun = clock::now();
        while !holds(self) {
            assert!(clock::now().since(begun) < PATIENCE, "never: {what}\n{}", self.story());
            std::thread::sleep(LOOK);
        }
    }

    fn story(&self) -> String {
        let of = |machine: &Machine| {
            let status = machine.status().map(|s| format!("{:?} {:?} {:?}", s.me, s.can_fail_over, s.resources));
            let status = status.unwrap_or_else(|| "no answer".to_owned());
            format!("===== {} ({}): {status}\n{}", machine.node, machine.space, machine.last_lines())
        };
        self.machines.iter().map(of).collect::<Vec<_>>().join("\n")
    }

    fn configuration(&self, me: &Machine, synchronous: &str) -> String {
        let agent = |machine: &Machine| {
            format!(
                "[[fence.agent]]\nname = \"bmc-{0}\"\ntarget = \"{0}\"\nkind = \"ipmi\"\naddress = \"127.0.0.1\"\n\
                 port = {1}\nuser = \"{2}\"\npassword_file = \"{3}\"\ncipher_suite = 3\npoll = \"100ms\"\n\
                 power = \"independent\"\nidentity = \"none\"\ntimeout = \"3s\"\ntypical = \"400ms\"\nsettle = \"0s\"\n",
                machine.node,
                machine.bmc.port(),
                crate::ipmi::USER,
                machine.bmc.password_file().display()
            )
        };
        let nodes = NAMES.map(|name| format!("[[node]]\nname = \"{name}\"\n")).concat();
        let at = |name: &str| me.file(name).display().to_string();
        format!(
            "[cluster]\nname = \"estuary\"\nkey = \"{key}\"\ndata = \"replicated\"\n{nodes}\
             [[link]]\nname = \"direct\"\naddresses = {{ heron = \"198.51.100.1\", plover = \"198.51.100.2\" }}\n\
             [[link]]\nname = \"lan\"\naddresses = {{ heron = \"192.0.2.11\", plover = \"192.0.2.12\" }}\n\
             [heartbeat]\ninterval = \"100ms\"\ndead_after = \"1s\"\n[lease]\npause = \"500ms\"\n\
             [guard]\nprocess = \"none\"\nwatchdog = \"none\"\nreset = \"200ms\"\n\
             [fence]\nfirst = \"standby\"\nhead_start = \"2s\"\nprobe_interval = \"10s\"\n{agents}\
             [promote]\nstart_backoff = \"2s\"\n[join]\nwait = \"2s\"\n[leave]\ntimeout = \"2s\"\n\
             [[resource]]\nname = \"db\"\nkind = \"postgres\"\nstart_timeout = \"60s\"\nstop_timeout = \"3s\"\n\
             data_directory = \"{data}\"\nport = {PORT}\nsocket_directory = \"{socket}\"\nreplication_user = \"postgres\"\n\
             primary_conninfo = {{ heron = \"host=198.51.100.1 port={PORT}\", plover = \"host=198.51.100.2 port={PORT}\" }}\n\
             min_free_mb = 32\nsynchronous = \"{synchronous}\"\n\
             [[resource]]\nname = \"reef\"\nkind = \"address\"\naddress = \"{ADDRESS}/24\"\ninterface = \"reef0\"\n\
             [service]\nflap_window = \"100ms\"\n\
             [control]\nsocket = \"{control}\"\n[paths]\nstate = \"{state}\"\nruntime = \"{run}\"\n",
            key = at("key"),
            agents = self.machines.iter().map(agent).collect::<String>(),
            data = self.lab.data(me.node).display(),
            socket = self.lab.path(me.node).display(),
            control = at("control.sock"),
            state = at("state"),
            run = at("run"),
        )
    }
}

fn wire(segment: &Segment) {
    let [a, b] = ["a", "b"].map(|machine| segment.namespace(machine));
    let cable = ["-n", &a, "link", "add", "hb0", "type", "veth", "peer", "name", "hb0", "netns", &b];
    assert!(Command::new("ip").args(cable).status().unwrap().success());
    for (machine, last) in [("a", 1), ("b", 2)] {
        segment.ip(machine, &format!("addr add 198.51.100.{last}/24 dev hb0"));
        segment.ip(machine, "link set hb0 up");
    }
    segment.ip("c", "addr add 192.0.2.20/24 dev reef0");
}
