//! A world for one pair: a directory with everything in it, two machines, and the network between them.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};

use super::bmc::Power;
use super::ipmi::{self, Simulator};
use super::machine::{Case, Machine};
use super::partition::{LINKS, Network};
use crate::core::{FirstShooter, NodeId, PromoteAfter};
use crate::wire::Keyring;

/// Names of the nodes, the first of the configuration first.
pub const NAMES: [&str; 2] = ["heron", "plover"];
pub const BOTH: [NodeId; 2] = [NodeId::First, NodeId::Second];
/// sockaddr_un holds 108 bytes, and the longest socket lies 24 below the directory.
const LONGEST_DIRECTORY: usize = 80;

/// The name of a node.
pub fn name(node: NodeId) -> &'static str {
    NAMES[node.index()]
}

/// The node of this name.
pub fn node_named(name: &str) -> Option<NodeId> {
    BOTH.into_iter().find(|node| NAMES[node.index()] == name)
}

/// The times of a pair, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// H
    pub interval_ms: u64,
    /// D
    pub dead_after_ms: u64,
    /// L
    pub head_start_ms: u64,
    /// P
    pub pause_ms: u64,
    /// The service's stop budget, S.
    pub stop_ms: u64,
    /// Limit of a fence attempt, F.
    pub fence_ms: u64,
    /// How long the stand-in for a BMC usually takes.
    pub typical_ms: u64,
}

impl Timing {
    /// For people who watch: short, and far from what a busy machine takes for a silence.
    pub const DEMO: Timing = Timing {
        interval_ms: 100,
        dead_after_ms: 1000,
        head_start_ms: 500,
        pause_ms: 500,
        stop_ms: 1000,
        fence_ms: 3000,
        typical_ms: 400,
    };
    /// For many faults in little time.
    pub const SHORT: Timing = Timing {
        interval_ms: 50,
        dead_after_ms: 400,
        head_start_ms: 250,
        pause_ms: 300,
        stop_ms: 600,
        fence_ms: 1000,
        typical_ms: 200,
    };
}

/// What kind of BMC the machines have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// `leasehold demo-bmc` as an agent of kind `exec`.
    StandIn,
    /// `ipmi_sim`, spoken to by `ipmitool` over RMCP+.
    Ipmi,
}

/// Whether each machine has a guard beside its daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarding {
    None,
    /// It would reset the machine, of which these are only the processes: it writes `reset` into the node's directory.
    Process,
    /// The daemon wants one, and nobody has started it yet.
    Missing,
}

/// What a world is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The `leasehold` that daemons, machines, service and BMC are made of.
    pub program: PathBuf,
    pub timing: Timing,
    pub fencing: Fencing,
    pub guarding: Guarding,
    pub first: FirstShooter,
    pub after: PromoteAfter,
    /// Filter of the daemons' logs.
    pub log: String,
    /// The directory stays at the end.
    pub keep: bool,
}

impl Plan {
    /// The usual pair: the primary shoots first, and a verified fence suffices.
    pub fn new(program: PathBuf, timing: Timing, fencing: Fencing) -> Plan {
        Plan {
            program,
            timing,
            fencing,
            guarding: Guarding::None,
            first: FirstShooter::Primary,
            after: PromoteAfter::Fence,
            log: "info".to_owned(),
            keep: false,
        }
    }
}

/// A pair's world. Its end, by whatever way, leaves no process behind.
#[derive(Debug)]
pub struct World {
    pub network: Network,
    plan: Plan,
    keeper: Keeper,
    boots: u64,
}

impl World {
    /// Makes directory, key, configurations and network. Nothing runs yet.
    ///
    /// # Errors
    /// What cannot be made, and where.
    pub fn build(plan: Plan) -> anyhow::Result<World> {
        let random = super::random()?;
        let keeper = Keeper::new(directory(random)?, plan.keep);
        let network = Network::start(random).context("the loopback network 127.0.0.0/8")?;
        let world = World { network, plan, keeper, boots: random };
        world.write_key()?;
        fs::write(world.history(), "")?;
        for node in BOTH {
            let home = world.home(node);
            [home.clone(), home.join("state"), home.join("run")]
                .iter()
                .try_for_each(|folder| DirBuilder::new().mode(0o700).create(folder))?;
            Power::of(world.directory(), name(node)).install()?;
        }
        if world.plan.fencing == Fencing::Ipmi {
            BOTH.into_iter().try_for_each(|node| world.start_simulator(node))?;
        }
        for node in BOTH {
            fs::write(world.home(node).join("leasehold.toml"), world.configuration(node))?;
        }
        Ok(world)
    }

    pub fn directory(&self) -> &Path {
        &self.keeper.directory
    }

    /// Where everything of a node lies.
    pub fn home(&self, node: NodeId) -> PathBuf {
        self.directory().join(name(node))
    }

    pub fn socket(&self, node: NodeId) -> PathBuf {
        self.home(node).join("control.sock")
    }

    /// The shared file.
    pub fn history(&self) -> PathBuf {
        self.directory().join("history")
    }

    pub fn timing(&self) -> Timing {
        self.plan.timing
    }

    /// Does something with the BMC of a machine, in a world with [`Fencing::Ipmi`].
    ///
    /// # Errors
    /// The world has none, or what was done fails.
    pub fn with_bmc<T>(
        &self,
        node: NodeId,
        act: impl FnOnce(&mut Simulator) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        match &mut self.keeper.inner().simulators[node.index()] {
            Some(simulator) => act(simulator),
            None => bail!("this world has no ipmi_sim"),
        }
    }

    /// For whoever must end the world from another thread.
    pub fn keeper(&self) -> Keeper {
        self.keeper.clone()
    }

    /// The power as the BMC reads it.
    ///
    /// # Errors
    /// The power file is gone.
    pub fn is_on(&self, node: NodeId) -> anyhow::Result<bool> {
        Power::of(self.directory(), name(node)).is_on()
    }

    /// Whether the machine's BMC was told to switch it on, since this was last asked.
    pub fn is_asked_for_on(&self, node: NodeId) -> bool {
        Power::of(self.directory(), name(node)).is_asked_for_on()
    }

    /// Switches a machine on, under a new boot id; its daemon starts. `off` is called when it is off again.
    ///
    /// # Errors
    /// The machine cannot be started, or is on.
    pub fn switch_on(&mut self, node: NodeId, off: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
        self.boots = self.boots.wrapping_add(1);
        let boot_id = format!("{:08x}-0000-4000-8000-{:012x}", node.index() + 1, self.boots & 0xffff_ffff_ffff);
        let case = Case {
            program: self.plan.program.clone(),
            directory: self.directory().to_owned(),
            node: name(node).to_owned(),
            log: self.plan.log.clone(),
            guarding: self.plan.guarding,
        };
        self.keeper.switch_on(node, || Machine::switch_on(&case, &boot_id, off))
    }

    /// Pulls the plug.
    ///
    /// # Errors
    /// It does not go off.
    pub fn switch_off(&self, node: NodeId) -> anyhow::Result<()> {
        self.keeper.switch_off(node)
    }

    /// Does something with a machine that is on.
    ///
    /// # Errors
    /// It is off, or what was done fails.
    pub fn with<T>(&self, node: NodeId, act: impl FnOnce(&mut Machine) -> anyhow::Result<T>) -> anyhow::Result<T> {
        match &mut self.keeper.inner().machines[node.index()] {
            Some(machine) => act(machine),
            None => bail!("{} is off", name(node)),
        }
    }

    fn write_key(&self) -> anyhow::Result<()> {
        let key = Keyring::generate()?;
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.directory().join("key"))?;
        Ok(file.write_all(key.as_bytes())?)
    }

    fn start_simulator(&self, node: NodeId) -> anyhow::Result<()> {
        let home = self.home(node).join("bmc");
        let chassis = ipmi::chassis(&self.plan.program, self.directory(), name(node));
        let simulator = Simulator::start(&home, &format!("{:016x}", super::random()?), &chassis)?;
        self.keeper.inner().simulators[node.index()] = Some(simulator);
        Ok(())
    }

    fn configuration(&self, node: NodeId) -> String {
        let t = self.timing();
        let home = self.home(node);
        let first = match self.plan.first {
            FirstShooter::Primary => "primary",
            FirstShooter::Standby => "standby",
        };
        let after = match self.plan.after {
            PromoteAfter::Fence => "fence",
            PromoteAfter::FenceAndLease => "fence+lease",
        };
        let process = match self.plan.guarding {
            Guarding::None => "none",
            Guarding::Process | Guarding::Missing => "required",
        };
        let mut text = format!(
            "[cluster]\nname = \"demo\"\nkey = {key}\ndata = \"shared\"\n\n",
            key = quoted(&self.directory().join("key"))
        );
        NAMES.iter().for_each(|name| text += &format!("[[node]]\nname = \"{name}\"\n\n"));
        for (index, link) in LINKS.iter().enumerate() {
            let [first, second] = self.network.addresses(index, node);
            text += &format!(
                "[[link]]\nname = \"{link}\"\naddresses = {{ {} = \"{first}\", {} = \"{second}\" }}\n\n",
                NAMES[0], NAMES[1]
            );
        }
        text += &format!(
            "[heartbeat]\ninterval = \"{}ms\"\ndead_after = \"{}ms\"\n\n[lease]\npause = \"{}ms\"\n\n\
             [guard]\nprocess = \"{process}\"\nwatchdog = \"none\"\nreset = \"200ms\"\n\n[fence]\nfirst = \"{first}\"\nhead_start = \"{}ms\"\n\n",
            t.interval_ms, t.dead_after_ms, t.pause_ms, t.head_start_ms
        );
        BOTH.iter().for_each(|target| text += &self.agent(*target));
        text += &format!(
            "[promote]\nafter = \"{after}\"\nstart_backoff = \"2s\"\n\n[join]\nwait = \"2s\"\n\n[leave]\ntimeout = \"2s\"\n\n\
             [[resource]]\nname = \"writer\"\nkind = \"exec\"\nrestarts = 0\nstop_timeout = \"{}ms\"\n\
             start = [{}, \"demo-service\", \"--node\", \"{}\", \"--history\", {}]\n\n\
             [service]\nflap_window = \"100ms\"\n\n[control]\nsocket = {}\n\n[paths]\nstate = {}\nruntime = {}\n",
            t.stop_ms,
            quoted(&self.plan.program),
            name(node),
            quoted(&self.history()),
            quoted(&self.socket(node)),
            quoted(&home.join("state")),
            quoted(&home.join("run")),
        );
        text
    }

    fn agent(&self, target: NodeId) -> String {
        let t = self.timing();
        let common = format!(
            "[[fence.agent]]\nname = \"bmc-{0}\"\ntarget = \"{0}\"\nscope = \"node\"\ntimeout = \"{1}ms\"\n\
             typical = \"{2}ms\"\nsettle = \"0s\"\n",
            name(target),
            t.fence_ms,
            t.typical_ms
        );
        let special = match self.with_bmc(target, |bmc| Ok(bmc.agent())) {
            Err(_) => format!(
                "kind = \"exec\"\nprogram = {}\nargs = [\"demo-bmc\", \"--directory\", {}]\n\n",
                quoted(&self.plan.program),
                quoted(self.directory())
            ),
            Ok(agent) => agent,
        };
        common + &special
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(error) = self.keeper.end() {
            // Nowhere is left to say it if stderr is closed as well.
            let _ = writeln!(anstream::stderr(), "leasehold: {error:#}");
        }
    }
}

/// A path as a string of TOML.
pub fn quoted(path: &Path) -> String {
    toml::Value::from(path.to_string_lossy().into_owned()).to_string()
}

/// Below the directory for temporary files; below /tmp where that one's name is too long for a socket.
fn directory(random: u64) -> anyhow::Result<PathBuf> {
    let name = format!("leasehold-demo-{random:016x}");
    let usual = std::env::temp_dir().join(&name);
    let path = if usual.as_os_str().len() > LONGEST_DIRECTORY { Path::new("/tmp").join(&name) } else { usual };
    DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("making {}", path.display()))?;
    // Programs are run from paths that are looked at: no symbolic link in them.
    path.canonicalize().with_context(|| path.display().to_string())
}

/// Ends a world, once, from whatever thread comes first.
#[derive(Debug, Clone)]
pub struct Keeper {
    directory: PathBuf,
    keep: bool,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    machines: [Option<Machine>; 2],
    simulators: [Option<Simulator>; 2],
    ended: bool,
}

impl Keeper {
    fn new(directory: PathBuf, keep: bool) -> Keeper {
        Keeper { directory, keep, inner: Arc::default() }
    }

    /// Switches everything off, and removes the directory unless it is to be kept.
    ///
    /// # Errors
    /// What is left behind.
    pub fn end(&self) -> anyhow::Result<()> {
        let mut inner = self.inner();
        if std::mem::replace(&mut inner.ended, true) {
            return Ok(());
        }
        let machines = inner.machines.iter_mut().filter_map(Option::take);
        let off: Vec<anyhow::Result<()>> = machines.map(Machine::switch_off).collect();
        inner.simulators = Default::default();
        if !self.keep {
            fs::remove_dir_all(&self.directory).with_context(|| format!("removing {}", self.directory.display()))?;
        }
        off.into_iter().collect()
    }

    fn switch_on(&self, node: NodeId, on: impl FnOnce() -> anyhow::Result<Machine>) -> anyhow::Result<()> {
        let mut inner = self.inner();
        if inner.ended {
            bail!("this world is over");
        }
        // The one before is off already, or goes off now.
        let former = inner.machines[node.index()].take();
        former.map_or(Ok(()), Machine::switch_off)?;
        inner.machines[node.index()] = Some(on()?);
        Ok(())
    }

    fn switch_off(&self, node: NodeId) -> anyhow::Result<()> {
        let machine = self.inner().machines[node.index()].take();
        machine.map_or(Ok(()), Machine::switch_off)
    }

    /// A panic of another thread leaves whole values behind.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
