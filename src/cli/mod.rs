//! One file a subcommand.

pub mod check;

/// Runs the command line and returns the exit status.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
