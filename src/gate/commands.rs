//! The server's own tools, each with a limit; their whole output counts, or nothing.

use std::path::PathBuf;
use std::time::Duration;

use super::BackendError;
use crate::process::{Ending, Program, check_owner, run};

/// Of one command at the server. Longer than any of them takes on a loaded machine, and short enough that two of them
/// fit into an agent's usual limit of 20 s.
const LIMIT: Duration = Duration::from_secs(8);
/// Of the output. A list of exports beyond it is not judged.
const BOUND: usize = 4 << 20;

/// Runs it; anything but exit status 0 and a whole output is an error that quotes it.
pub async fn output(program: &str, args: &[&str]) -> Result<String, BackendError> {
    let shown = format!("{program} {}", args.join(" "));
    let path = PathBuf::from(program);
    check_owner(&path).map_err(|error| BackendError(error.to_string()))?;
    let command = Program::new(path).args(args.iter().copied()).env("LC_ALL", "C");
    let done = run(&command, None, LIMIT, BOUND).await.map_err(|error| BackendError(error.to_string()))?;
    let said = done.stderr_text().trim().to_owned();
    match done.ending {
        Ending::Exited(0) if done.dropped > 0 => {
            Err(BackendError(format!("`{shown}` printed more than can be judged")))
        }
        Ending::Exited(0) => {
            String::from_utf8(done.stdout).map_err(|_| BackendError(format!("`{shown}` printed no UTF-8")))
        }
        Ending::Exited(status) => Err(BackendError(format!("`{shown}` ended with status {status}: {said}"))),
        Ending::Signalled(signal) => Err(BackendError(format!("`{shown}` died of signal {signal}: {said}"))),
        Ending::TimedOut => {
            Err(BackendError(format!("`{shown}` took longer than {}s and was killed", LIMIT.as_secs())))
        }
        Ending::Stuck => {
            Err(BackendError(format!("`{shown}` hangs in the kernel; it keeps the lock until it is gone")))
        }
    }
}
