//! `leasehold demo`: a pair on one machine, killed and watched.

use std::io::Write;

use anyhow::bail;

use super::args::Demo;
use super::exit::Exit;

/// What the command line tells the demo.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Fence through `ipmitool` and `ipmi_sim`.
    pub ipmi: bool,
    /// No colour, nothing drawn over.
    pub plain: bool,
    /// Keep the directory.
    pub keep: bool,
}

impl From<Demo> for DemoOptions {
    fn from(Demo { ipmi, plain, keep }: Demo) -> DemoOptions {
        DemoOptions { ipmi, plain, keep }
    }
}

/// Runs the demo to its end.
pub fn run(_options: DemoOptions, _out: &mut dyn Write) -> anyhow::Result<Exit> {
    bail!("this build has no demo")
}
