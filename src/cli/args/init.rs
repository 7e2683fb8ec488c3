//! What `leasehold init` takes instead of asking.

use clap::{Args as ClapArgs, ValueEnum};

#[derive(Debug, Clone, Default, ClapArgs)]
pub struct Init {
    /// The names of both nodes, best their host names; their order must never change
    #[arg(long, value_name = "FIRST,SECOND")]
    pub nodes: Option<String>,

    /// Which of them this machine is [default: the one named like this machine's host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// A heartbeat link: the address of each node on one network; give two, over networks that share nothing
    #[arg(long, value_name = "[NAME=]FIRST,SECOND")]
    pub link: Vec<String>,

    /// A fence agent for each node: its kind and its keys, such as 'ipmi address=203.0.113.11,203.0.113.12 user=fence'; two
    /// values with a comma are those of the first and the second node. `none`: an operator confirms every take-over
    #[arg(long, value_name = "KIND KEY=VALUE…")]
    pub fence: Vec<String>,

    /// What fails over, in the order of starting: kind and keys, such as 'unit unit=kelp.service'
    #[arg(long, value_name = "KIND KEY=VALUE…")]
    pub resource: Vec<String>,

    /// Name of the pair [default: FIRST-SECOND]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,

    /// Whether both nodes reach one set of data, or each has a replica [default: replicated with a postgres resource, else
    /// shared]
    #[arg(long)]
    pub data: Option<Data>,

    /// Whether both nodes have a hardware watchdog [default: auto if this machine has one]
    #[arg(long)]
    pub watchdog: Option<Watchdog>,

    /// Accept that the loss of the standby stops the service, where only volumes are fenced
    #[arg(long, value_name = "stop")]
    pub lone_primary: Option<LonePrimary>,
}

/// Where the data of the service lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Data {
    Shared,
    Replicated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Watchdog {
    Auto,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LonePrimary {
    Stop,
}

impl Init {
    /// Whether anything of the pair was described: then nothing is asked.
    pub fn describes(&self) -> bool {
        let lists = [&self.link, &self.fence, &self.resource];
        self.nodes.is_some() || lists.into_iter().any(|list| !list.is_empty())
    }
}
