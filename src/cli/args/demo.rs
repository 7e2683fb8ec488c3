//! The demo, and what runs in it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Debug, Clone, ClapArgs)]
pub struct Demo {
    /// Fence through ipmitool and ipmi_sim, which must be installed, instead of a stand-in program
    #[arg(long)]
    pub ipmi: bool,

    /// Plain lines: no colour, and nothing is drawn over
    #[arg(long)]
    pub plain: bool,

    /// Keep the directory with the configuration, the logs and the history of writes, and say where it is
    #[arg(long)]
    pub keep: bool,

    /// Instead of the demo: measure this many failovers of real daemons, and what an idle daemon costs
    #[arg(long, value_name = "COUNT", hide = true, conflicts_with = "ipmi", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub report: Option<u32>,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct DemoMachine {
    /// The directory of the world
    #[arg(long, value_name = "DIR")]
    pub directory: PathBuf,

    /// Which machine of it this is
    #[arg(long, value_name = "NAME")]
    pub node: String,

    /// What its daemon takes for the id of this boot
    #[arg(long, value_name = "UUID")]
    pub boot_id: String,

    /// What its daemon logs
    #[arg(long, value_name = "FILTER")]
    pub log: String,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct DemoService {
    /// The shared file
    #[arg(long, value_name = "PATH")]
    pub history: PathBuf,

    /// The node that it runs on
    #[arg(long, value_name = "NAME")]
    pub node: String,

    /// Answer each line that a client sends here with the token and the process id
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct DemoBmc {
    /// The directory of the world
    #[arg(long, value_name = "DIR")]
    pub directory: PathBuf,

    /// Whose BMC this is [default: the target in LEASEHOLD_FENCE]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// What to do
    #[arg(value_enum)]
    pub action: BmcAction,
}

/// The actions of an exec agent that a BMC knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BmcAction {
    Status,
    Off,
    On,
}
