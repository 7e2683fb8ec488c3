//! `leasehold guard`: hands over to the guard itself, in a fresh image of this program.
//!
//! Reading a command line touches megabytes of this program, which the guard would keep locked in memory for as long as the
//! node runs. So what was read is put into an order that needs no reading, and the program begins anew.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use super::args::Guard;
use super::exit::Exit;
use crate::guard::GuardOptions;

/// What the fresh image is called, and how it is known.
const NAME: &str = "leasehold-guard";
/// In the place of an option that was not given.
const ABSENT: &str = "-";

/// Becomes the guard. Returns only if that fails.
pub fn run(options: Guard) -> anyhow::Result<Exit> {
    let Guard { runtime, boot_id, on_reset } = options;
    let absent = || OsString::from(ABSENT);
    let boot_id = boot_id.map_or_else(absent, OsString::from);
    let on_reset = on_reset.map_or_else(absent, OsString::from);
    // The second word stays the name of the subcommand, for those who look at the processes.
    let words = [OsString::from("guard"), runtime.into(), boot_id, on_reset];
    Err(Command::new(std::env::current_exe()?).arg0(NAME).args(words).exec().into())
}

/// If this is the fresh image: runs until the guard ends.
pub fn if_called() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    if words.next()? != NAME {
        return None;
    }
    let (_, runtime, boot_id, on_reset) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let given = |word: OsString| (word != ABSENT).then_some(word);
    let boot_id = given(boot_id).map(|word| word.to_string_lossy().into_owned());
    let options = GuardOptions { runtime: runtime.into(), boot_id, on_reset: given(on_reset).map(Into::into) };
    Some(match crate::guard::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nowhere is left to say it if stderr is closed as well.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("leasehold: {error}\n"));
            Exit::Error.into()
        }
    })
}
