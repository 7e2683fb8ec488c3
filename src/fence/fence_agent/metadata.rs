//! Asks a program to describe itself.

use std::path::Path;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::process::{Ending, Finished, Program, check_owner, run};

/// The agents are interpreted programs that load for some tenths of a second; a loaded machine takes longer.
const LIMIT: Duration = Duration::from_secs(15);
/// The largest description of Debian's agents has 20 KB.
const BOUND: usize = 512 * 1024;

/// The metadata of an installed program, for `leasehold check`; `None` where there is none at that path.
pub fn metadata_of(program: &Path) -> Option<Result<String, String>> {
    program.exists().then(|| ask(program))
}

/// Runs the action `metadata`, over stdin as every other action, else by the option that all agents know.
pub fn ask(program: &Path) -> Result<String, String> {
    check_owner(program).map_err(|error| error.to_string())?;
    let by_lines = finish(&bare(program), Some(Zeroizing::new(b"action=metadata\n".to_vec())))?;
    if let Some(text) = document(&by_lines) {
        return Ok(text);
    }
    let by_option = finish(&bare(program).args(["-o", "metadata"]), None)?;
    document(&by_option).ok_or_else(|| {
        format!("{} does not describe itself when asked for its metadata; is it a fence agent?", program.display())
    })
}

/// The program with the environment that it always gets. Its own warnings about Python are nobody's business here.
pub fn bare(program: &Path) -> Program {
    Program::new(program).env("LC_ALL", "C.UTF-8").env("PYTHONWARNINGS", "ignore")
}

fn document(finished: &Finished) -> Option<String> {
    let whole = finished.ending == Ending::Exited(0) && finished.dropped == 0;
    Some(finished.stdout_text()).filter(|text| whole && text.contains("<resource-agent"))
}

/// Waits for the program on a thread of its own: whoever makes a plan may be within a runtime already.
fn finish(program: &Program, input: Option<Zeroizing<Vec<u8>>>) -> Result<Finished, String> {
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(run(program, input, LIMIT, BOUND)).map_err(|e| e.to_string())
    };
    let joined = std::thread::scope(|scope| scope.spawn(wait).join());
    joined.unwrap_or_else(|_| Err(format!("asking {} for its metadata failed", program.path.display())))
}
