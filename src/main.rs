//! The thin binary: everything is in the library.

fn main() -> std::process::ExitCode {
    leasehold::cli::main()
}
