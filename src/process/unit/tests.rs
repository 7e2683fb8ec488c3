//! Both ends of the connection, with a thread in the place of the unit that systemd would start.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use super::super::{OnDrop, Program, Running, Streams};
use super::{Door, open_in_time, shim};

/// A socket at which each connection is served as `leasehold launch` does.
fn served() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for line in listener.incoming() {
            let line = line.unwrap();
            std::thread::spawn(move || shim::serve(line).unwrap());
        }
    });
    (dir, socket)
}

fn sh(script: &str) -> Program {
    Program::new("/bin/sh").args(["-c", script]).env("GIVEN", "kelp")
}

async fn start(socket: &Path, script: &str, on_drop: OnDrop) -> (Running, Receiver) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let streams = Streams { stdout: Some(writer), ..Streams::default() };
    let door = Door::open(socket).await.unwrap();
    let running = Running::start_in_unit(door, sh(script), streams, on_drop, None).await.unwrap();
    (running, Receiver::from_owned_fd(reader).unwrap())
}

async fn all(mut reader: Receiver) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_program_gets_its_environment_and_streams_and_its_end_is_told() {
    let (_dir, socket) = served();
    let (mut running, reader) = start(&socket, "env; exit 7", OnDrop::KillGroup).await;
    let said = all(reader).await;
    assert!(said.contains("GIVEN=kelp\n") && !said.contains("CARGO"), "{said}");
    assert_eq!(running.reap(Duration::from_secs(60)).await.unwrap().code(), Some(7));
    let (mut running, _reader) = start(&socket, "kill -TERM $$", OnDrop::KillGroup).await;
    let status = running.reap(Duration::from_secs(60)).await.unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_with_its_name_and_cause() {
    let (_dir, socket) = served();
    let door = Door::open(&socket).await.unwrap();
    let program = Program::new("/no/such/agent");
    let failed = Running::start_in_unit(door, program, Streams::default(), OnDrop::KillGroup, None).await;
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("/no/such/agent") && error.contains("No such file"), "{error}");
}

#[tokio::test]
async fn an_agent_that_nobody_wants_any_more_is_killed_and_a_service_lives_on() {
    let (dir, socket) = served();
    let (running, reader) = start(&socket, "exec sleep 4321", OnDrop::KillGroup).await;
    drop(running);
    // The pipe ends with its last process.
    assert_eq!(all(reader).await, "");
    let flag = dir.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.01; done; echo lives", flag.display());
    let (running, reader) = start(&socket, &script, OnDrop::Leave).await;
    drop(running);
    std::fs::write(flag, "").unwrap();
    assert_eq!(all(reader).await, "lives\n");
}

#[tokio::test]
async fn a_service_manager_that_starts_nothing_is_not_waited_for_and_its_late_unit_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    assert!(open_in_time(&socket).await.is_none(), "there is no socket at all");
    let listener = UnixListener::bind(&socket).unwrap();
    assert!(open_in_time(&socket).await.is_none(), "nobody takes the connection");
    let (late, _) = listener.accept().unwrap();
    // It finds the connection closed, and comes back at once.
    tokio::task::spawn_blocking(move || shim::serve(late)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_unit_that_dies_with_its_program_counts_as_killed() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    // Says that it started a program, and is killed with it.
    let mut child = std::process::Command::new("sleep").arg("4321").spawn().unwrap();
    let pid = child.id();
    let dies = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut line, _) = listener.accept().unwrap();
        writeln!(line, "ready 1").unwrap();
        line.read_exact(&mut [0; 4]).unwrap();
        writeln!(line, "started {pid}").unwrap();
        // Until the daemon has its descriptor of the process, which must not be reaped before.
        line.read_exact(&mut [0; 16]).unwrap();
        child.kill().unwrap();
        child
    });
    let (mut running, _reader) = start(&socket, "a letter longer than that", OnDrop::Leave).await;
    let status = running.reap(Duration::from_secs(60)).await.unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    dies.join().unwrap().wait().unwrap();
}
