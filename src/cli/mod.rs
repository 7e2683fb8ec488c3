//! The face to people: one file a subcommand, one definition of all options in [`args`].
//!
//! Every subcommand writes to the stream that it is given and returns an [`Exit`]; nothing here decides anything
//! about the service, and nothing prints past a closed pipe.

pub mod args;
pub mod check;
pub mod check_live;
mod clear_alarms;
mod completions;
mod confirm_fenced;
pub mod daemon;
pub mod demo;
pub mod drill;
mod exit;
pub mod explain;
mod failover;
mod fence;
pub mod fence_history;
mod fence_test;
mod follow;
mod freeze;
mod gate;
mod guard;
pub mod init;
mod init_record;
mod keygen;
mod launch;
mod man;
mod page;
pub mod simulate;
mod socket;
pub mod status;
mod stop;
mod version;
mod why;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

pub use args::Args;
pub use exit::Exit;
pub use guard::alone as guard_alone;

use args::{Command, Fence, FenceAction};

/// Runs the command line and returns the exit status.
pub fn main() -> ExitCode {
    if let Some(code) = guard::if_called() {
        return code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let mut out = anstream::stdout();
    let result = run(args, &mut out).and_then(|code| Ok(out.flush().map(|()| code)?));
    match result {
        Ok(code) => code,
        Err(error) if exit::is_closed_pipe(&error) => Exit::Fine.into(),
        Err(error) => {
            // Nowhere is left to say it if stderr is closed as well.
            let _ = writeln!(anstream::stderr(), "leasehold: {}", exit::told(&error));
            Exit::of(&error).into()
        }
    }
}

/// clap ends with 2 for wrong usage; here that says "unreachable".
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { Exit::Error.into() } else { Exit::Fine.into() }
}

fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let global = args.global;
    let exit = match args.command {
        Command::Daemon(options) => daemon::run(global, options),
        Command::Guard(options) => guard::run(options),
        Command::Launch => launch::run(),
        Command::Demo(options) => demo::run(&options, out),
        Command::Check(options) if options.live => check_live::run(&global, &options, out),
        Command::Check(options) => check::run(&options.path.unwrap_or(global.config), out),
        Command::Explain(options) => {
            let global = args::Global { config: options.path.clone().unwrap_or(global.config), ..global };
            explain::run(&global.config, &socket::of(&global), &options, out)
        }
        Command::Simulate(options) => simulate::run(options.path.as_ref().unwrap_or(&global.config), &options, out),
        Command::Init(options) => init::run(&global, &options, out),
        Command::Keygen(options) => keygen::run(&options.path, out),
        Command::Status(options) => status::run(&socket::of(&global), &options, out),
        Command::Failover(options) => failover::run(&socket::of(&global), &options, out),
        Command::Fence(Fence { action: Some(FenceAction::Test(options)), .. }) => {
            fence_test::run(&global.config, &options, out)
        }
        Command::Fence(options) if options.history.history => fence_history::run(&global.config, &options.history, out),
        Command::Fence(options) => fence::run(&socket::of(&global), &options, out),
        Command::Drill(options) => drill::run(&global, &options, out),
        Command::ConfirmFenced(options) => confirm_fenced::run(&socket::of(&global), options, out),
        Command::Freeze => freeze::freeze(&socket::of(&global), out),
        Command::Thaw => freeze::thaw(&socket::of(&global), out),
        Command::Why(options) => why::run(&socket::of(&global), &options, out),
        Command::InitRecord => init_record::run(&socket::of(&global), out),
        Command::ClearAlarms => clear_alarms::run(&socket::of(&global), out),
        Command::Stop(options) => stop::run(&socket::of(&global), &options, out),
        Command::Version => version::run(&socket::of(&global), out),
        Command::Man(options) => man::run(&options.directory),
        Command::Completions(options) => completions::run(options.shell, out),
        Command::Gate(options) => return gate::run(&options, out),
        Command::DemoMachine(options) => demo::machine::run(&options),
        Command::DemoService(options) => demo::service::run(&options),
        Command::DemoBmc(options) => return demo::bmc::run(&options, out),
    };
    exit.map(ExitCode::from)
}
