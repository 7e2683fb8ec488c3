//! Runs a program to its end, within a limit, and keeps a bounded part of what it says.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::{OnDrop, ProcessError, Program, REAP_GRACE, Running, Streams, spawn};

/// How long the rest of the output may take once the group is dead. Only a process that left the group can still
/// hold the pipe open then, and nobody waits for that one.
const DRAIN: Duration = Duration::from_millis(200);

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It called `exit` with this status.
    Exited(i32),
    /// A signal that this program did not send ended it.
    Signalled(i32),
    /// The limit passed; the whole group was killed.
    TimedOut,
    /// The limit passed and SIGKILL did not end it: it hangs in the kernel.
    Stuck,
}

/// All that is known of a child that is over.
#[derive(Debug)]
pub struct Finished {
    pub ending: Ending,
    /// The first bytes, up to the bound that was asked for.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Bytes beyond the bound, which were read and thrown away.
    pub dropped: u64,
}

impl Finished {
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    fn never_started() -> Finished {
        Finished { ending: Ending::TimedOut, stdout: Vec::new(), stderr: Vec::new(), dropped: 0 }
    }
}

/// Runs `program` with `input` on its stdin, for at most `limit`, and keeps at most `bound` bytes of each stream.
///
/// When the leader ends, or the limit passes, whatever is left in its process group is killed: a grandchild that
/// holds stdout open delays nobody. Dropping the future kills the group as well.
pub async fn run(
    program: &Program,
    input: Option<Zeroizing<Vec<u8>>>,
    limit: Duration,
    bound: usize,
) -> Result<Finished, ProcessError> {
    let no_pipe = |source| ProcessError::Pipe { program: program.path.clone(), source };
    let Pipes { streams, stdin, stdout, stderr } = Pipes::new(input.is_some()).map_err(no_pipe)?;
    let mut stages =
        Stages { running: None, stdout: Gathered::new(stdout, bound), stderr: Gathered::new(stderr, bound) };
    let starting = spawn(program.clone(), streams, OnDrop::KillGroup, |running| running);
    let whole = stages.until_exit(starting, stdin.zip(input));
    let in_time = match timeout(limit, whole).await {
        Ok(Err(error)) => return Err(error),
        Ok(Ok(())) => true,
        Err(_) => false,
    };
    Ok(stages.wind_up(in_time).await)
}

/// Both ends of the child's streams.
struct Pipes {
    streams: Streams,
    stdin: Option<Sender>,
    stdout: Receiver,
    stderr: Receiver,
}

impl Pipes {
    fn new(with_input: bool) -> std::io::Result<Pipes> {
        let (stdout, out) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, err) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut streams = Streams { stdin: None, stdout: Some(out), stderr: Some(err) };
        let mut stdin = None;
        if with_input {
            let (input, sender) = pipe_with(PipeFlags::CLOEXEC)?;
            streams.stdin = Some(input);
            stdin = Some(Sender::from_owned_fd(sender)?);
        }
        let (stdout, stderr) = (Receiver::from_owned_fd(stdout)?, Receiver::from_owned_fd(stderr)?);
        Ok(Pipes { streams, stdin, stdout, stderr })
    }
}

/// What a run has gathered so far; it survives the cut by the limit.
struct Stages {
    running: Option<Running>,
    stdout: Gathered,
    stderr: Gathered,
}

impl Stages {
    async fn until_exit(
        &mut self,
        starting: impl Future<Output = Result<Running, ProcessError>>,
        input: Option<(Sender, Zeroizing<Vec<u8>>)>,
    ) -> Result<(), ProcessError> {
        let running = self.running.insert(starting.await?);
        let feed = async {
            if let Some((mut stdin, input)) = input {
                // A child that does not want its input closes the pipe; its exit status says what it thought of it.
                let _ = stdin.write_all(&input).await;
            }
        };
        let talk = async { tokio::join!(feed, self.stdout.gather(), self.stderr.gather()) };
        tokio::select! {
            () = running.exited() => {}
            () = async { talk.await; std::future::pending().await } => {}
        }
        Ok(())
    }

    /// Kills what is left, takes the rest of the output, reaps.
    async fn wind_up(mut self, in_time: bool) -> Finished {
        let Some(mut running) = self.running.take() else { return Finished::never_started() };
        match in_time {
            true => running.signal_group(Signal::KILL),
            false => running.kill(),
        }
        let _ = timeout(DRAIN, async { tokio::join!(self.stdout.gather(), self.stderr.gather()) }).await;
        let ending = match (running.reap(REAP_GRACE).await, in_time) {
            (None, _) => Ending::Stuck,
            (Some(_), false) => Ending::TimedOut,
            (Some(status), true) => ending_of(status),
        };
        let dropped = self.stdout.dropped + self.stderr.dropped;
        Finished { ending, stdout: self.stdout.kept, stderr: self.stderr.kept, dropped }
    }
}

/// One stream, read to its end but kept only up to a bound.
struct Gathered {
    pipe: Option<Receiver>,
    bound: usize,
    kept: Vec<u8>,
    dropped: u64,
}

impl Gathered {
    fn new(pipe: Receiver, bound: usize) -> Gathered {
        Gathered { pipe: Some(pipe), bound, kept: Vec::new(), dropped: 0 }
    }

    async fn gather(&mut self) {
        let mut chunk = [0; 8192];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut chunk).await {
                Ok(0) | Err(_) => self.pipe = None,
                Ok(n) => {
                    let room = self.bound.saturating_sub(self.kept.len()).min(n);
                    self.kept.extend_from_slice(&chunk[..room]);
                    self.dropped += (n - room) as u64;
                }
            }
        }
    }
}

fn ending_of(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, signal) => Ending::Signalled(signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn sh(script: &str) -> Program {
        Program::new("/bin/sh").args(["-c", script])
    }

    #[tokio::test]
    async fn what_a_child_says_and_how_it_ends_is_told() {
        let got = run(&sh("echo out; echo err >&2; exit 7"), None, LONG, 100).await.unwrap();
        assert_eq!(
            (got.ending, got.stdout.as_slice(), got.stderr.as_slice()),
            (Ending::Exited(7), &b"out\n"[..], &b"err\n"[..])
        );
        let got = run(&sh("kill -TERM $$"), None, LONG, 100).await.unwrap();
        assert_eq!(got.ending, Ending::Signalled(15));
    }

    #[tokio::test]
    async fn input_arrives_byte_for_byte_and_the_environment_is_clean() {
        let input = Zeroizing::new(b"a\n\tb\xff ".to_vec());
        let got = run(&Program::new("/bin/cat"), Some(input), LONG, 100).await.unwrap();
        assert_eq!(got.stdout, b"a\n\tb\xff ");
        let got = run(&Program::new("/usr/bin/env").env("A", "b"), None, LONG, 1000).await.unwrap();
        let mut lines: Vec<_> = got.stdout_text().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["A=b".to_owned(), format!("PATH={}", super::super::DEFAULT_PATH)]);
    }

    #[tokio::test]
    async fn a_child_that_prints_without_end_is_bounded_and_killed_at_the_limit() {
        let got = run(&sh("exec yes"), None, Duration::from_millis(300), 1024).await.unwrap();
        assert_eq!((got.ending, got.stdout.len()), (Ending::TimedOut, 1024));
        assert!(got.dropped > 0);
    }

    #[tokio::test]
    async fn a_grandchild_that_holds_stdout_is_killed_with_the_group() {
        let got = run(&sh("sleep 4321 & echo $!"), None, LONG, 100).await.unwrap();
        assert_eq!(got.ending, Ending::Exited(0));
        gone(got.stdout_text().trim()).await;
    }

    #[tokio::test]
    async fn at_the_limit_the_whole_group_dies_even_one_that_ignores_sigterm() {
        let script = "trap '' TERM; sleep 4321 & echo $!; wait";
        let got = run(&sh(script), None, Duration::from_millis(300), 100).await.unwrap();
        assert_eq!(got.ending, Ending::TimedOut);
        gone(got.stdout_text().trim()).await;
    }

    #[tokio::test]
    async fn a_grandchild_outside_the_group_holds_up_nobody() {
        let got = run(&sh("setsid sleep 3 & echo here"), None, LONG, 100).await.unwrap();
        assert_eq!((got.ending, got.stdout.as_slice()), (Ending::Exited(0), &b"here\n"[..]));
    }

    #[tokio::test]
    async fn dropping_the_run_kills_the_group() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("sleep 4321 & echo $! > {}; wait", file.path().display());
        let program = sh(&script);
        let mut running = Box::pin(run(&program, None, LONG, 100));
        let pid = loop {
            let _ = timeout(Duration::from_millis(10), &mut running).await;
            let text = std::fs::read_to_string(file.path()).unwrap();
            if text.ends_with('\n') {
                break text;
            }
        };
        drop(running);
        gone(pid.trim()).await;
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let error = run(&Program::new("/no/such/agent"), None, LONG, 100).await.unwrap_err();
        assert!(error.to_string().contains("/no/such/agent"), "{error}");
    }

    /// Waits until the process has ended; a zombie that init has not yet reaped has.
    async fn gone(pid: &str) {
        let stat = format!("/proc/{pid}/stat");
        for _ in 0..1000 {
            match std::fs::read_to_string(&stat) {
                Ok(text) if !text.contains(") Z ") => tokio::time::sleep(Duration::from_millis(10)).await,
                _ => return,
            }
        }
        panic!("process {pid} is still there");
    }
}
