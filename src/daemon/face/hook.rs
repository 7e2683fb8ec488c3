//! `service.notify`: one command, told each change of role or token, for services that must be told.
//!
//! One at a time and in order (casebook C35): a newer change cuts off the command that still runs, with its process
//! group, so the last thing that a service is told is always the newest. What a hook answers changes nothing.

use std::time::Duration;

use tokio::sync::watch;

use super::Face;
use crate::core::{Role, Token};
use crate::os::clock;
use crate::process::{Ending, Finished, ProcessError, Program, check_owner_aside, find_program, run as run_program};

/// Longer than any reload; a hook that hangs must not keep the next change from being told.
const LIMIT: Duration = Duration::from_secs(30);
/// What is told of a hook that failed.
const OUTPUT: usize = 4096;

/// What a hook is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct News {
    role: Role,
    token: Option<Token>,
}

/// Runs the hook at each change, until the loop ends.
pub async fn run(command: Vec<String>, mut face: watch::Receiver<Face>) {
    let mut told = None;
    loop {
        let news = news(&face.borrow_and_update());
        if told != Some(news) {
            told = Some(news);
            tokio::select! {
                biased;
                () = until_other(&mut face, news) => continue,
                result = call(&command, news) => tell(&command, result),
            }
        }
        if face.changed().await.is_err() {
            return;
        }
    }
}

async fn until_other(face: &mut watch::Receiver<Face>, current: News) {
    // An error means that the loop has ended: then the hook under way is the last one, and may end.
    if face.wait_for(|face| news(face) != current).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn news(face: &Face) -> News {
    News { role: face.role, token: face.token(clock::now()) }
}

async fn call(command: &[String], news: News) -> Result<Finished, String> {
    let (first, args) = command.split_first().ok_or("no command")?;
    let path = find_program(first).map_err(|e| e.to_string())?;
    check_owner_aside(&path).await.map_err(|e| e.to_string())?;
    let token = news.token.map_or(String::new(), |token| token.to_string());
    let program = Program::new(path).args(args.iter().cloned()).env("LC_ALL", "C");
    let program = program.env("LEASEHOLD_ROLE", crate::control::Role::from(news.role).to_string());
    let program = program.env("LEASEHOLD_TOKEN", token);
    run_program(&program, None, LIMIT, OUTPUT).await.map_err(|e: ProcessError| e.to_string())
}

fn tell(command: &[String], result: Result<Finished, String>) {
    let command = command.join(" ");
    match result {
        Ok(Finished { ending: Ending::Exited(0), .. }) => tracing::debug!(command, "the service was told"),
        Ok(finished) => {
            let said = finished.stderr_text();
            tracing::warn!(command, ending = ?finished.ending, said = said.trim(), "service.notify failed");
        }
        Err(error) => tracing::warn!(command, error, "service.notify could not be run"),
    }
}
