//! The daemon's end of the connection.

use std::fs::{self, File};
use std::io::{self, Error, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;

use super::super::{Class, OnDrop, PidWatch, Program, Streams};
use super::letter::{Letter, READY, number};

/// A unit that waits to be told what to run.
#[derive(Debug)]
pub struct Door(BufReader<UnixStream>);

/// A program that runs in another unit, as the child of `leasehold launch` there.
#[derive(Debug)]
pub struct Lent {
    line: BufReader<UnixStream>,
    /// Of the unit of an agent, which ends with it.
    group: Option<PathBuf>,
}

impl Door {
    /// Connects, and waits until somebody is there. Dropped meanwhile, nothing is ever started.
    pub async fn open(socket: &Path) -> io::Result<Door> {
        let mut line = BufReader::new(UnixStream::connect(socket).await?);
        let said = next(&mut line).await?;
        match said == READY {
            true => Ok(Door(line)),
            false => Err(Error::other(format!("`leasehold launch` is of another version: {said:?}"))),
        }
    }

    /// Has it run; the process is there when this returns, and remains at least as a zombie while [`Lent`] does.
    pub async fn start(mut self, program: &Program, streams: Streams, on_drop: OnDrop) -> io::Result<(PidWatch, Lent)> {
        let letter = serde_json::to_vec(&Letter::new(program, on_drop))?;
        let length = u32::try_from(letter.len()).map_err(Error::other)?.to_be_bytes();
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let [stdin, stdout, stderr] = [&streams.stdin, &streams.stdout, &streams.stderr].map(|stream| match stream {
            Some(stream) => stream.as_fd(),
            None => null.as_fd(),
        });
        let send = || {
            let fds = [stdin, stdout, stderr];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut streams = SendAncillaryBuffer::new(&mut space);
            streams.push(SendAncillaryMessage::ScmRights(&fds));
            // Four bytes into an empty buffer go whole or not at all.
            Ok(sendmsg(self.0.get_ref(), &[IoSlice::new(&length)], &mut streams, SendFlags::NOSIGNAL).map(drop)?)
        };
        self.0.get_ref().async_io(Interest::WRITABLE, send).await?;
        self.0.get_mut().write_all(&letter).await?;
        drop(streams);
        let said = next(&mut self.0).await?;
        if let Some(errno) = number(&said, "failed ") {
            return Err(Error::from_raw_os_error(errno));
        }
        let pid = number(&said, "started ").filter(|pid| *pid > 1).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::other(format!("`leasehold launch` says {said:?}")))?;
        let group = (program.class == Class::Agent).then(|| control_group(pid)).flatten();
        Ok((PidWatch::of(pid)?, Lent { line: self.0, group }))
    }
}

impl Lent {
    /// How it ended, of one that has. Killed with its unit, nobody is left who could tell.
    pub async fn status(&mut self, watch: &PidWatch) -> ExitStatus {
        loop {
            match next(&mut self.line).await {
                Ok(said) => {
                    if let Some(status) = number(&said, "ended ") {
                        return ExitStatus::from_raw(status);
                    }
                }
                Err(_) => {
                    watch.exited().await;
                    return ExitStatus::from_raw(rustix::process::Signal::KILL.as_raw());
                }
            }
        }
    }

    /// SIGKILL to everything in the unit of an agent at once, `leasehold launch` too.
    pub fn kill_unit(&self) {
        if let Some(group) = &self.group {
            let _ = fs::write(group.join("cgroup.kill"), "1");
        }
    }
}

async fn next(line: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut said = String::new();
    if line.read_line(&mut said).await? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(said.trim_end().to_owned())
}

/// Where the control group of a process lies in the tree of version 2 (proc_pid_mountinfo(5), cgroups(7)); that it is the
/// unit's own is told by its name.
fn control_group(pid: Pid) -> Option<PathBuf> {
    let places = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).ok()?;
    let place = places.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let root = table.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("cgroup2 ").then(|| left.split(' ').nth(4))?
    })?;
    let name = Path::new(place).file_name()?.to_str()?;
    name.starts_with("leasehold-agent@").then(|| Path::new(root).join(place))
}
