//! The one definition of every subcommand and option: feeds help, man pages and completions.

mod demo;
mod init;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};

use super::gate::Gate;
use super::simulate::faults::Fault;
use crate::sim::text::{self, Range};

pub use demo::{BmcAction, Demo, DemoBmc, DemoMachine, DemoService};
pub use init::{Data, Init, LonePrimary, Watchdog};

/// Where the packages put the configuration.
pub const CONFIG: &str = "/etc/leasehold/leasehold.toml";

/// Two-node primary/standby failover with leases, fencing tokens and STONITH
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, propagate_version = false, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Exit status:
  0  done, or everything is fine
  1  wrong usage, or an error that is none of the others
  2  the daemon cannot be reached
  3  refused: by the daemon's decision, or for want of permission
  4  the pair is degraded (only with status --exit-code); stored, but not verified (only gate)
  78 the daemon cannot start before its configuration, key or record is mended
  79 the daemon ended and left its resources up (stop --keep-resources)";

const STATUS_HELP: &str = "\
Exit status:
  0  the daemon answered; with --exit-code: and nothing is wrong
  1  wrong usage, or the answer could not be read
  2  the daemon cannot be reached
  3  you may not ask: see control.read_group in leasehold.toml(5)
  4  with --exit-code: something is wrong, and stands first on the screen";

#[derive(Debug, ClapArgs)]
pub struct Global {
    /// Control socket of the daemon on this machine [default: as the configuration says, else
    /// /run/leasehold/control.sock]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "LEASEHOLD_SOCKET",
        hide_env_values = true,
        display_order = 100
    )]
    pub socket: Option<PathBuf>,

    /// Configuration, the same file on both nodes
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "LEASEHOLD_CONFIG",
        hide_env_values = true,
        default_value = CONFIG,
        display_order = 101
    )]
    pub config: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon of this node, in the foreground
    Daemon(Daemon),
    /// Enforce the lease of this node, whatever becomes of the daemon: a process of its own, in the foreground
    ///
    /// It reads no configuration: the daemon hands over what to do. At the end of the lease it ends everything that the
    /// daemon started and, if that is not seen to be gone in time, resets this machine. Run it as leasehold-guard.service.
    Guard(Guard),
    /// Run one program for the daemon, in the unit that systemd has started for it
    #[command(hide = true)]
    Launch,
    /// Show a pair failing over on this machine, in 40 seconds and without root
    Demo(Demo),
    /// Check a configuration and print every time with its arithmetic; with --live look at every fence device
    Check(Check),
    /// Write the safety case of a configuration: what protects what, what that assumes, and what would be better
    Explain(Explain),
    /// Simulate faults in thousands of worlds of your pair: how long without service, how often for nothing
    ///
    /// Each world is a pair with the settings of your configuration, run by the same decisions that the daemon runs, and a
    /// fault at a random moment. The rest is figures: measured by you and given below, or assumed and told. Nothing
    /// touches a machine, and the same question always gets the same answer. docs/SIMULATE.md describes the JSON.
    ///
    /// Times are written 300ms, 1.5s, 2m or 24h; a range, drawn evenly, as 200ms..900ms.
    Simulate(Simulate),
    /// Describe a new pair: write its configuration and its key, and say what is left to do
    ///
    /// Without options it asks, one question at a time. With any that describes the pair it asks nothing, and says what is
    /// missing. What exists is never written over, and nothing is written that `leasehold check` would refuse. Secrets are
    /// no options and no answers: they go into files, which the last words name.
    Init(Init),
    /// Make a new cluster key
    Keygen(Keygen),
    /// Show both nodes, and whether a failover would work now
    #[command(after_help = STATUS_HELP)]
    Status(Status),
    /// Hand the service to the other node, planned
    Failover(Failover),
    /// Shoot the other node by the fence plan, now
    Fence(Fence),
    /// Really fence the standby, bring it back, and measure both
    ///
    /// Given on the primary, of a pair with which nothing is wrong: the service goes on, without a standby until that one
    /// is back. What was measured is kept, shown by `leasehold status`, and compared with the times of the configuration.
    Drill(Drill),
    /// Confirm by hand that the other node is down, where no fence device can
    ///
    /// Whoever confirms a node that still runs makes both nodes act at once: look at the machine, or cut its power,
    /// before. The evidence is shown first. The confirmation holds for this one incident, and is logged with your uid.
    ConfirmFenced(ConfirmFenced),
    /// Forbid role changes, for maintenance; the freeze survives restarts
    Freeze,
    /// End a freeze
    Thaw,
    /// Show the last decisions with their reasons
    Why(Why),
    /// Let a node without a record promote: once, when a pair is new
    ///
    /// On a node that lost its record while its peer has served, this can start old data. Start the peer instead.
    InitRecord,
    /// Clear the alarms, after their causes were mended
    ClearAlarms,
    /// Stop the daemon cleanly: a primary hands over first, a standby says that it leaves
    Stop(Stop),
    /// On a storage server: the arbiter that lets one node of a pair in at a time
    ///
    /// Answers to the fence agents nfs-export and iscsi-acl, over ssh, or to you. docs/gate.md describes the
    /// configuration, the rule, and the lines of JSON.
    Gate(Gate),
    /// Show the version of this program and of the running daemon
    Version,
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(Man),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions(Completions),
    /// One machine of the demo: what runs on it ends with it
    #[command(hide = true)]
    DemoMachine(DemoMachine),
    /// The service of the demo
    #[command(hide = true)]
    DemoService(DemoService),
    /// The BMC of a machine of the demo
    #[command(hide = true)]
    DemoBmc(DemoBmc),
}

#[derive(Debug, ClapArgs)]
pub struct Daemon {
    /// Which node of the configuration this machine is [default: the one named like this machine's host name]
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_NODE")]
    pub node: Option<String>,

    /// What to log: a level (error, warn, info, debug, trace), or level by part, such as `info,leasehold::fence=debug`
    #[arg(long, value_name = "FILTER", env = "LEASEHOLD_LOG", default_value = "info")]
    pub log: String,

    /// Boot id instead of the kernel's, where several nodes share a kernel: in the demo, in tests, in containers
    #[arg(long, value_name = "UUID", hide = true)]
    pub boot_id: Option<String>,

    /// Start programs through the sockets in this folder, each in a unit of its own, instead of as children
    #[arg(long, value_name = "DIR")]
    pub units: Option<PathBuf>,

    /// For tests: SIGUSR1 makes the loop panic, SIGUSR2 makes it hang
    #[arg(long, hide = true)]
    pub test_hooks: bool,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct Guard {
    /// Run-time directory of the daemon that it watches
    #[arg(long, value_name = "DIR", default_value = "/run/leasehold")]
    pub runtime: PathBuf,

    /// Boot id instead of the kernel's, as the daemon has it
    #[arg(long, value_name = "UUID", hide = true)]
    pub boot_id: Option<String>,

    /// For tests: append the reason of a reset to this file, and reset nothing
    #[arg(long, value_name = "PATH", hide = true)]
    pub on_reset: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct Check {
    /// The configuration to check [default: that of --config]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,

    /// Look at every fence device as well: login, privilege, state and identity; changes nothing, needs no daemon
    #[arg(long)]
    pub live: bool,

    /// With --live: which node of the configuration this is [default: the one named like this machine]
    #[arg(long, value_name = "NAME", requires = "live")]
    pub node: Option<String>,

    /// With --live: print the JSON that docs/agents/README.md describes
    #[arg(long, requires = "live")]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Explain {
    /// The configuration to explain [default: that of --config]
    #[arg(value_name = "FILE")]
    pub path: Option<PathBuf>,

    /// Print it as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Default, ClapArgs)]
pub struct Simulate {
    /// The configuration to simulate [default: that of --config]
    #[arg(value_name = "FILE")]
    pub path: Option<PathBuf>,

    /// What happens, once in each world; may be given several times: primary-crash, standby-crash, partition[=30s],
    /// pause[=20s] (of the primary's machine), flap[=2s] (all links), stall (as --stalls), or mix (two or three of them)
    /// [default: primary-crash, standby-crash, partition, pause, flap]
    #[arg(long, value_name = "FAULT", value_delimiter = ',')]
    pub fault: Vec<Fault>,

    /// How many worlds for each fault [default: 2000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub worlds: Option<u32>,

    /// Round trip between the nodes [default: a quarter of heartbeat.round_trip up to all of it]
    #[arg(long, value_name = "TIME[..TIME]", value_parser = text::range)]
    pub round_trip: Option<Range>,

    /// Share of datagrams lost on each link, such as 0.5% [default: 0%]
    #[arg(long, value_name = "SHARE", value_parser = text::share)]
    pub loss: Option<u32>,

    /// A whole fence attempt, from the order to its verified end [default: the typical time of the agents, a quarter less
    /// or more]
    #[arg(long, value_name = "TIME[..TIME]", value_parser = text::range)]
    pub fence_latency: Option<Range>,

    /// Start of all resources [default: 500ms..2s, at most their limits]
    #[arg(long, value_name = "TIME[..TIME]", value_parser = text::range)]
    pub start_time: Option<Range>,

    /// Stop of all resources [default: 200ms..1s, at most their limits]
    #[arg(long, value_name = "TIME[..TIME]", value_parser = text::range)]
    pub stop_time: Option<Range>,

    /// How long a node stands still when it stalls [default: 100ms..4s]
    #[arg(long, value_name = "TIME[..TIME]", value_parser = text::range)]
    pub stalls: Option<Range>,

    /// How often each node stalls; only scales what is told for a year [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = text::time)]
    pub stall_every: Option<u64>,

    /// Replay one world, and print everything that happens in it
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["json", "html", "worlds"])]
    pub seed: Option<u64>,

    /// Print the JSON that docs/SIMULATE.md describes
    #[arg(long)]
    pub json: bool,

    /// Also write a page with plots, which needs no network and no script
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct Keygen {
    /// The file to make, mode 0600; one that exists is never overwritten. `-` prints the key instead
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub struct Status {
    /// Print the JSON that docs/CONTROL.md describes
    #[arg(long)]
    pub json: bool,

    /// Show it again every second, until interrupted
    #[arg(long)]
    pub watch: bool,

    /// Exit with 4 when anything is wrong, for monitoring
    #[arg(long, conflicts_with = "watch")]
    pub exit_code: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Failover {
    /// Do not wait until the primary has admitted the standby; one that says that it is not ready is never forced
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub wait: Wait,
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Fence {
    #[command(subcommand)]
    pub action: Option<FenceAction>,

    #[command(flatten)]
    pub history: History,

    #[command(flatten)]
    pub wait: Wait,
}

#[derive(Debug, ClapArgs)]
pub struct Drill {
    /// For scripts: fence the standby NAME without a question
    #[arg(long, value_name = "NAME")]
    pub yes_fence: Option<String>,

    /// Stop watching after this many seconds; the drill itself goes on [default: what the configuration allows, doubled]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub enum FenceAction {
    /// Try the contract of fence agents on one agent of the configuration, without the daemon
    ///
    /// It looks at state, proof, limits and tokens, and changes nothing as long as the agent keeps its contract; one that
    /// breaks it may do harm. With --really, if all of that is right, the target is switched off or cut off, and let in
    /// again. Exit status 0: every clause that was tried is kept; 1: one is not.
    Test(FenceTest),
}

#[derive(Debug, ClapArgs)]
pub struct FenceTest {
    /// The agent's name in the configuration
    #[arg(value_name = "AGENT")]
    pub agent: String,

    /// Really make the target harmless, and let it in again; asks for its name before
    #[arg(long)]
    pub really: bool,

    /// For scripts: the same without a question, if NAME is the target
    #[arg(long, value_name = "NAME")]
    pub yes_really: Option<String>,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct History {
    /// Shoot nobody: show what every fence attempt of this node sent and read, and verify that record
    #[arg(long, conflicts_with_all = ["no_wait", "timeout"])]
    pub history: bool,

    /// With --history: print it as one JSON object, which docs/fencing.md describes
    #[arg(long, requires = "history")]
    pub json: bool,

    /// With --history: only the newest attempts
    #[arg(short = 'n', long = "last", value_name = "COUNT", requires = "history")]
    pub last: Option<u32>,
}

#[derive(Debug, Clone, Copy, ClapArgs)]
pub struct Wait {
    /// Return as soon as the daemon has accepted the command
    #[arg(long)]
    pub no_wait: bool,

    /// Stop watching after this many seconds; the command itself goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 120, conflicts_with = "no_wait")]
    pub timeout: u32,
}

#[derive(Debug, ClapArgs)]
pub struct ConfirmFenced {
    /// For scripts: confirm without a question that the node NAME was seen to be off
    #[arg(long, value_name = "NAME")]
    pub yes_i_have_seen_it_off: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub struct Why {
    /// Print the JSON that docs/CONTROL.md describes, one decision a line
    #[arg(long)]
    pub json: bool,

    /// How many decisions; the daemon keeps the last 1000
    #[arg(short = 'n', long = "last", value_name = "COUNT", default_value_t = 20)]
    pub last: u32,
}

#[derive(Debug, ClapArgs)]
pub struct Stop {
    /// Wait until the daemon has ended, and show what it does
    #[arg(long)]
    pub wait: bool,

    /// With --wait and --keep-resources: stop watching after this many seconds; the stop itself goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u32,

    /// On the primary: freeze the pair, then end this daemon alone, and wait for that. Its resources stay up, untouched,
    /// and nobody takes over until it is started again and `leasehold thaw` is given
    #[arg(long)]
    pub keep_resources: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Man {
    /// The directory, which must exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub struct Completions {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

impl Wait {
    /// The time to watch, if any.
    pub fn limit(self) -> Option<Duration> {
        (!self.no_wait).then(|| Duration::from_secs(self.timeout.into()))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_option_says_what_it_does() {
        let root = Args::command();
        for command in root.get_subcommands().chain([&root]) {
            assert!(command.get_about().is_some(), "{} has no text", command.get_name());
            for argument in command.get_arguments().filter(|a| a.get_id() != "shell") {
                assert!(argument.get_help().is_some(), "{} {} has no text", command.get_name(), argument.get_id());
            }
        }
    }
}
