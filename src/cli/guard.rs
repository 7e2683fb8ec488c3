//! `leasehold guard`: hands over to the guard itself, a program of its own.
//!
//! Reading a command line touches megabytes of this program, which the guard would keep locked in memory for as long as the
//! node runs. So what was read is put into an order that needs no reading, and goes to a program that has nothing else in it.
//! Where that is not installed, this one begins anew in its place.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::args::Guard;
use super::exit::Exit;
use crate::guard::GuardOptions;

/// What the guard is called, and how a fresh image of this program is known.
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
    Err(Command::new(program()?).arg0(NAME).args(words).exec().into())
}

/// Where the package has it, or beside this program, as cargo builds it; else this program itself.
fn program() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let installed = own.parent().and_then(Path::parent).map(|prefix| prefix.join("libexec/leasehold").join(NAME));
    let candidates = installed.into_iter().chain([own.with_file_name(NAME)]);
    let found = candidates.into_iter().find(|program| is_as_trusted(program, &own));
    Ok(found.unwrap_or(own))
}

/// Nobody else could have put it there.
fn is_as_trusted(program: &Path, own: &Path) -> bool {
    let (Ok(theirs), Ok(ours)) = (program.metadata(), own.metadata()) else { return false };
    theirs.is_file() && theirs.uid() == ours.uid() && theirs.mode() & 0o022 == 0 && theirs.mode() & 0o111 != 0
}

/// The whole of the program that is nothing but a guard.
pub fn alone() -> ExitCode {
    if_called().unwrap_or_else(|| {
        let _ = io::Write::write_all(&mut io::stderr(), b"leasehold-guard: it is started by `leasehold guard`\n");
        Exit::Error.into()
    })
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
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("leasehold: {error}\n"));
            Exit::Error.into()
        }
    })
}
