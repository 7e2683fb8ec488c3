//! `leasehold demo-service`: the service of the demo. It does one thing, and leaves a trace of each time.
//!
//! It checks nothing and trusts whoever started it: what the history shows is the work of the daemons alone.

use std::io;
use std::time::Duration;

use anyhow::Context;

use super::history::{Line, Writer};
use crate::cli::args::DemoService;
use crate::cli::exit::Exit;
use crate::os::clock;

/// Short beside everything that the demo measures.
const PACE: Duration = Duration::from_millis(10);

/// Appends until it is killed.
pub fn run(options: &DemoService) -> anyhow::Result<Exit> {
    let token = std::env::var("LEASEHOLD_TOKEN").ok().and_then(|token| token.parse().ok());
    let token = token.context("no token in LEASEHOLD_TOKEN: a resource of kind exec is started with one")?;
    let mut writer = Writer::open(&options.history).with_context(|| options.history.display().to_string())?;
    let pid = std::process::id();
    for counter in 1.. {
        let line = Line { token, node: options.node.clone(), pid, counter, boottime_ns: clock::now().0 };
        match writer.append(&line) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => result.context("the history")?,
        }
        std::thread::sleep(PACE);
    }
    Ok(Exit::Fine)
}
