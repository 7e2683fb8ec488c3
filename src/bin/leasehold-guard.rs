//! The guard as a program of its own: all that its node keeps locked in memory is what a guard needs.

fn main() -> std::process::ExitCode {
    leasehold::cli::guard_alone()
}
