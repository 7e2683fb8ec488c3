//! Exit statuses, the same for every subcommand and told in `leasehold --help`.

use std::io;
use std::process::ExitCode;

use crate::control::ClientError;

/// How a subcommand ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Fine,
    /// Wrong usage, or an error that is none of the others.
    Error,
    /// The daemon cannot be reached.
    Unreachable,
    /// The daemon, or a permission, says no.
    Refused,
    /// `status --exit-code`: something is wrong with the pair. (`gate` has the same status for a take that is stored, but
    /// not verified.)
    Degraded,
    /// The daemon cannot start with this configuration, key or record, now or later: no use in trying again.
    Unusable,
    /// The daemon has ended and left its resources up, as `stop --keep-resources` ordered.
    Kept,
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Fine => 0,
            Exit::Error => 1,
            Exit::Unreachable => 2,
            Exit::Refused => 3,
            Exit::Degraded => 4,
            // EX_CONFIG of sysexits.h: the unit does not restart after it.
            Exit::Unusable => 78,
            // The first that sysexits.h leaves free: nor after this one.
            Exit::Kept => 79,
        }
    }

    /// The status for an error, by its cause.
    pub fn of(error: &anyhow::Error) -> Exit {
        if crate::daemon::is_permanent(error) {
            return Exit::Unusable;
        }
        match error.downcast_ref::<ClientError>() {
            Some(error) if error.is_unreachable() => Exit::Unreachable,
            Some(error) if error.is_refusal() => Exit::Refused,
            _ => Exit::Error,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// The error with its causes, each told once: many name their cause in their own text.
pub fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        so_far if so_far.contains(&cause) => told,
        so_far => format!("{so_far}: {cause}"),
    })
}

/// Whoever read our output has seen enough (`leasehold why | head -1`): no error, and no panic.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
