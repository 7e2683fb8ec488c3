//! The server as a unit of systemd: started, stopped and killed through the service manager, found as any other.
//!
//! A unit has a command line of its own. What the server must be told therefore stands at the end of
//! `postgresql.auto.conf`, the last file that it reads; written before each start, since a rewind brings the other node's.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::time::{sleep, timeout};

use crate::config::{Resource as Configured, UnitResource};
use crate::core::Span;
use crate::process::Ending;

use super::super::exec::told;
use super::super::unit::{Host, Unit};
use super::super::{Context, Pending, Remains, Resource as _, ResourceError};
use super::server::{Direct, Server, Setting};
use super::tools::Tools;

/// The part of a stop kept for what is not the unit's: a server that somebody started by hand, a copy under way.
const REST: Duration = Duration::from_secs(1);
/// How soon one looks again for a server that systemd has just started.
const LOOK: Duration = Duration::from_millis(20);
/// Of writing a small file.
const QUICK: Duration = Duration::from_secs(30);
/// Settings that outrank `postgresql.conf` (PostgreSQL, "Parameter Interaction via the Configuration File").
const AUTO_CONF: &str = "postgresql.auto.conf";

/// A service such as `postgresql@15-main.service`.
#[derive(Debug)]
pub struct ByUnit {
    name: String,
    unit: Unit,
    /// Finds the server's processes, and ends those that are not the unit's.
    direct: Direct,
    tools: Tools,
    start_timeout: Duration,
}

impl ByUnit {
    pub fn new(configured: &Configured, unit: &str, tools: Tools, instance: &str, host: Host) -> ByUnit {
        let service = UnitResource {
            unit: unit.to_owned(),
            environment_file: None,
            reload_on_token: false,
            interval: Span::from_secs(1),
        };
        let own = Configured { stop_timeout: configured.stop_timeout.minus(REST.into()), ..configured.clone() };
        ByUnit {
            name: unit.to_owned(),
            unit: Unit::on(&own, &service, host),
            direct: Direct::new(tools.clone(), instance),
            tools,
            start_timeout: configured.start_timeout.into(),
        }
    }

    async fn launch(&self, settings: &[Setting]) -> Result<(), ResourceError> {
        self.write(settings).await?;
        self.unit.start(&Context::idle("its server is needed")).await?;
        let seen = timeout(self.start_timeout, self.until_seen()).await;
        seen.unwrap_or_else(|_| {
            let data = self.tools.config.data_directory.display();
            Err(self.tools.error(format!("{} runs no server in {data}; is its data_directory another one?", self.name)))
        })
    }

    /// systemd may call a unit active before its process works in the data directory.
    async fn until_seen(&self) -> Result<(), ResourceError> {
        while !self.direct.adopt().await? {
            if self.unit.is_stopped().await? {
                return Err(self.tools.error(format!("{0} ended at once; see `journalctl -u {0}`", self.name)));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn bring_down(&self) -> Result<(), ResourceError> {
        self.unit.stop(&Context::idle("its server is to stop")).await?;
        self.direct.stop(REST).await
    }

    async fn kill_all(&self) -> Result<(), ResourceError> {
        self.unit.kill().await?;
        self.direct.kill(REST).await
    }

    /// A server outside its unit would not end with it.
    async fn take_over(&self) -> Result<bool, ResourceError> {
        if !self.direct.adopt().await? {
            return Ok(false);
        }
        if !self.unit.is_stopped().await? {
            return Ok(true);
        }
        tracing::warn!(resource = self.tools.resource, "its server runs outside {} and is stopped", self.name);
        self.bring_down().await.map(|()| false)
    }

    /// As the server's user, and whole or not at all.
    async fn write(&self, settings: &[Setting]) -> Result<(), ResourceError> {
        let file = self.tools.config.data_directory.join(AUTO_CONF);
        let uid = self.tools.account()?.identity.uid;
        let (path, settings) = (file.clone(), settings.to_vec());
        let reading = tokio::task::spawn_blocking(move || Ok(merged(&read_own(&path, uid)?, &settings)));
        let text = reading.await.map_err(io::Error::other).and_then(|read: io::Result<String>| read);
        let text = text.map_err(|error| self.tools.error(format!("cannot read {}: {error}", file.display())))?;
        let new = PathBuf::from(format!("{}.leasehold", file.display()));
        let of = format!("of={}", new.display());
        self.run("dd", &[of, "conv=fsync".to_owned(), "status=none".to_owned()], Some(text)).await?;
        self.run("mv", &["-T".to_owned(), new.display().to_string(), file.display().to_string()], None).await
    }

    async fn run(&self, name: &str, args: &[String], input: Option<String>) -> Result<(), ResourceError> {
        let program = self.tools.as_user(name)?.args(args.iter().cloned());
        let finished = self.tools.feed(&program, input, QUICK).await?;
        match finished.ending {
            Ending::Exited(0) => Ok(()),
            Ending::Exited(_) | Ending::Signalled(_) | Ending::TimedOut | Ending::Stuck => {
                Err(self.tools.error(format!("its settings cannot be written: {name}: {}", told(&finished))))
            }
        }
    }
}

impl Server for ByUnit {
    fn start<'a>(&'a self, settings: &'a [Setting]) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.launch(settings))
    }

    /// The limit is the resource's own, of which the unit has all but [`REST`].
    fn stop(&self, _limit: Duration) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.bring_down())
    }

    fn kill(&self, _limit: Duration) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.kill_all())
    }

    fn is_running(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(async { Ok(self.direct.is_running().await? || !self.unit.is_stopped().await?) })
    }

    fn adopt(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(self.take_over())
    }

    fn ended(&self) -> Pending<'_, String> {
        Box::pin(async { format!("{}; see `journalctl -u {}`", self.direct.ended().await, self.name) })
    }

    /// The unit's, and a server outside of it.
    fn remains(&self) -> Remains {
        self.unit.remains().and(self.direct.remains())
    }

    fn fitness(&self) -> Pending<'_, Result<(), ResourceError>> {
        self.unit.ready()
    }
}

/// Nothing but what belongs to the server's user: a link would lead root elsewhere.
fn read_own(path: &Path, uid: u32) -> io::Result<String> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file = match fs::File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        opened => opened?,
    };
    let about = file.metadata()?;
    if !about.is_file() || about.uid() != uid {
        return Err(io::Error::other("it is no file of the server's user"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// The file with these settings at its end, instead of others of their names.
fn merged(text: &str, settings: &[Setting]) -> String {
    let is_ours = |line: &str| {
        let name = line.trim_start().split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or_default();
        settings.iter().any(|(ours, _)| ours.eq_ignore_ascii_case(name))
    };
    let kept = text.lines().filter(|line| !is_ours(line)).map(str::to_owned);
    let value = |value: &str| value.replace('\\', "\\\\").replace('\'', "''");
    let ours = settings.iter().map(|(name, of)| format!("{name} = '{}'", value(of)));
    kept.chain(ours).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_replace_their_namesakes_and_spare_the_others() {
        let text = "# Do not edit\nport = '1'\nPort=2\n  work_mem = '4MB'\nport_of_call = 'x'\n";
        let settings = [("port", "5432".to_owned()), ("primary_conninfo", "user='it\\'s'".to_owned())];
        let wanted = "# Do not edit\n  work_mem = '4MB'\nport_of_call = 'x'\nport = '5432'\n\
                      primary_conninfo = 'user=''it\\\\''s'''\n";
        assert_eq!(merged(text, &settings), wanted);
        assert_eq!(merged(wanted, &settings), wanted);
    }

    #[test]
    fn a_link_in_the_place_of_the_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (own, link) = (dir.path().join("own"), dir.path().join("link"));
        fs::write(&own, "secret").unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(read_own(&own, uid).unwrap(), "secret");
        assert!(read_own(&link, uid).is_err() && read_own(&own, uid + 1).is_err());
        assert_eq!(read_own(&dir.path().join("none"), uid).unwrap(), "");
    }
}
