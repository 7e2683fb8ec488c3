//! A file system: a device, or a share of a server.
//!
//! ```text
//!   start   check (fsck) ─▶ mount ─▶ seen in the kernel's table, writable
//!   stop    umount … SIGTERM to its users … SIGKILL, forced umount … detach, when nobody is left who uses it
//! ```
//!
//! Whatever may touch the file system runs in a child with a limit, because a storage that does not answer holds up whoever
//! asks it, and no signal ends that. Whether it is mounted, and who uses it, is read from the kernel's tables alone.

mod device;
mod fstab;
mod stop;
mod users;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::config::{Fsck, MountResource, Probe, Resource as Configured};
use crate::core::Token;
use crate::process::unit::witness_of_mounts;
use crate::process::{Ending, Finished, Program, check_owner_aside, find_program, run};

use super::exec::told;
use super::mounts::{self, MountLine};
use super::strikes::Strikes;
use super::{Context, Pending, Remains, Resource, ResourceError};
use device::Claim;

/// What is kept of what `mount` and its like say.
const COMMAND_OUTPUT: usize = 4096;
/// One look at a path or a device that should answer in microseconds.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// fsck(8): up to this exit status all errors are corrected (1), or are once the system was started anew (2), which concerns
/// only file systems that were mounted meanwhile.
const FSCK_CORRECTED: i32 = 3;
/// The file that a probe writes.
const PROBE_FILE: &str = ".leasehold-probe";

/// One resource of kind `mount`.
#[derive(Debug, Clone)]
pub struct Mount(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    config: MountResource,
    start_timeout: Duration,
    stop_timeout: Duration,
    /// The mark of every child: one that hangs in the kernel may still mount or unmount something.
    id: String,
    /// Held while a start is under way, also when nobody waits for it any more.
    starting: Arc<tokio::sync::Mutex<()>>,
    /// Held while somebody looks at the device, which may hang.
    looking: Arc<tokio::sync::Mutex<()>>,
}

impl Mount {
    /// `instance` tells this node's resources from those of every other daemon on the machine, and must be the same
    /// after a restart.
    pub fn new(configured: &Configured, config: &MountResource, instance: &str) -> Mount {
        Mount(Arc::new(Inner {
            name: configured.name.clone(),
            config: config.clone(),
            start_timeout: configured.start_timeout.into(),
            stop_timeout: configured.stop_timeout.into(),
            id: format!("{}:{instance}", configured.name),
            starting: Arc::default(),
            looking: Arc::default(),
        }))
    }

    /// A task of its own: a `mount` that the kernel works on cannot be called back, so its end is awaited by somebody.
    async fn bring_up(&self) -> Result<(), ResourceError> {
        let (result, told) = oneshot::channel();
        let gate = Arc::clone(&self.0.starting).lock_owned().await;
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            let done = inner.steps(|| result.is_closed()).await;
            drop(gate);
            let _ = result.send(done);
        });
        let late = ResourceError::StartTimeout { resource: self.0.name.clone(), limit: self.0.start_timeout };
        match timeout(self.0.start_timeout, told).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(self.0.other("its start ended without an answer".to_owned())),
            Err(_) => Err(late),
        }
    }
}

impl Inner {
    async fn steps(&self, is_given_up: impl Fn() -> bool) -> Result<(), ResourceError> {
        self.refuse_unfit().await?;
        self.refuse_left_overs().await?;
        self.check_file_system().await?;
        if is_given_up() {
            return Err(ResourceError::Cancelled);
        }
        self.mount().await
    }

    async fn check_file_system(&self) -> Result<(), ResourceError> {
        if self.config.fsck == Fsck::None {
            return Ok(());
        }
        let program = format!("fsck.{}", self.config.file_system);
        let device = device::find(&self.config.what).map(|d| d.path);
        let device = device.ok_or_else(|| self.other(format!("there is no device {}", self.config.what)))?;
        let finished =
            self.command(&program, &["-p".to_owned(), device.display().to_string()], self.start_timeout).await?;
        match finished.ending {
            Ending::Exited(code) if code <= FSCK_CORRECTED => Ok(()),
            Ending::Exited(_) | Ending::Signalled(_) | Ending::TimedOut | Ending::Stuck => Err(self.start_error(format!(
                "{program} -p does not dare to repair it ({}); run `{program} {}` by hand on the node that owns it, or \
                 restore it",
                told(&finished),
                device.display()
            ))),
        }
    }

    async fn mount(&self) -> Result<(), ResourceError> {
        let mut args = vec!["-t".to_owned(), self.config.file_system.clone()];
        if let Some(options) = &self.config.options {
            args.extend(["-o".to_owned(), options.clone()]);
        }
        args.extend(["--".to_owned(), self.config.what.clone(), self.config.point.display().to_string()]);
        let finished = self.command("mount", &args, self.start_timeout).await?;
        match (finished.ending, self.standing()?) {
            (Ending::Exited(0), Standing::Up) => Ok(()),
            (Ending::Exited(0), other) => Err(self.start_error(self.describe(&other))),
            (_, Standing::Up | Standing::Gone | Standing::Foreign(_) | Standing::ReadOnly) => {
                Err(self.start_error(format!("mount: {}", told(&finished))))
            }
        }
    }

    /// Runs one of the system's own programs, marked as belonging to this resource.
    async fn command(&self, program: &str, args: &[String], limit: Duration) -> Result<Finished, ResourceError> {
        let untrusted = |source| ResourceError::Untrusted { resource: self.name.clone(), source };
        let failed = |source| ResourceError::Process { resource: self.name.clone(), source };
        let path = find_program(program).map_err(untrusted)?;
        check_owner_aside(&path).await.map_err(failed)?;
        let program = Program::of_resource(path).args(args.iter().cloned()).env("LC_ALL", "C");
        let program = program.env("LEASEHOLD_RESOURCE", &self.id);
        run(&program, None, limit, COMMAND_OUTPUT).await.map_err(failed)
    }

    async fn refuse_unfit(&self) -> Result<(), ResourceError> {
        let objection = match device::link(&self.config.what) {
            Some(link) if device::find(&self.config.what).is_none() => {
                Some(format!("there is no block device {}; see that this node reaches its storage", link.display()))
            }
            Some(_) | None => None,
        };
        let fstab = std::fs::read_to_string("/etc/fstab").unwrap_or_default();
        let objection = objection.or_else(|| fstab::objection(&fstab, &self.config.what, &self.config.point));
        match objection {
            Some(what) => Err(ResourceError::NotReady { resource: self.name.clone(), what }),
            None => self.refuse_bad_point().await,
        }
    }

    /// Only asked while nothing of ours is mounted there: then the answer comes from the file system below.
    async fn refuse_bad_point(&self) -> Result<(), ResourceError> {
        let what = match self.standing()? {
            Standing::Up | Standing::ReadOnly => return Ok(()),
            standing @ Standing::Foreign(_) => self.describe(&standing),
            Standing::Gone => {
                let point = self.config.point.clone();
                let is_folder = tokio::task::spawn_blocking(move || point.is_dir());
                match timeout(LOOK_LIMIT, is_folder).await {
                    Ok(Ok(true)) => return Ok(()),
                    Ok(_) => format!("there is no folder {0}; run `mkdir -p {0}`", self.config.point.display()),
                    Err(_) => format!("looking at {} hangs", self.config.point.display()),
                }
            }
        };
        Err(ResourceError::NotReady { resource: self.name.clone(), what })
    }

    async fn refuse_left_overs(&self) -> Result<(), ResourceError> {
        let left = match self.what_is_left().await? {
            Some(left) => left,
            None => return Ok(()),
        };
        Err(ResourceError::Leftovers { resource: self.name.clone(), left })
    }

    /// What the kernel's table says of the mount point.
    fn standing(&self) -> Result<Standing, ResourceError> {
        let table = self.table()?;
        // The last one lies on top.
        let Some(top) = table.iter().rfind(|m| m.point == self.config.point) else { return Ok(Standing::Gone) };
        let read_only = top.options.iter().any(|o| o == "ro");
        Ok(match self.is_mine(top) {
            false => Standing::Foreign(top.source.clone()),
            true if read_only && !self.wants_read_only() => Standing::ReadOnly,
            true => Standing::Up,
        })
    }

    /// Names like `tmpfs` stand for many: they count only at the mount point itself.
    fn is_mine(&self, mount: &MountLine) -> bool {
        match device::find(&self.config.what) {
            Some(device) => mount.source == device.path.display().to_string() || mount.device == device.numbers,
            // A device that is gone, or has another name now, may have left its file system behind.
            None if device::link(&self.config.what).is_some() => mount.point == self.config.point,
            None => mount.source == self.config.what && mount.point == self.config.point,
        }
    }

    fn wants_read_only(&self) -> bool {
        self.config.options.as_deref().is_some_and(|options| options.split(',').any(|o| o == "ro"))
    }

    fn table(&self) -> Result<Vec<MountLine>, ResourceError> {
        mounts::of_process(witness_of_mounts())
            .map_err(|source| ResourceError::Search { resource: self.name.clone(), source })
    }

    fn describe(&self, standing: &Standing) -> String {
        let point = self.config.point.display();
        match standing {
            Standing::Up => format!("{point} is mounted"),
            Standing::Gone => format!("nothing is mounted at {point}"),
            Standing::Foreign(source) => format!("{source} is mounted at {point}; unmount it, or name another `where`"),
            Standing::ReadOnly => {
                format!("{point} is read-only: the kernel found errors, or the device is write-protected; see `dmesg`")
            }
        }
    }

    async fn until_failed(&self) -> String {
        let mut strikes = Strikes::default();
        loop {
            sleep(self.config.interval.into()).await;
            match self.standing() {
                Ok(Standing::Up) => {}
                Ok(standing) => return self.describe(&standing),
                Err(error) => tracing::warn!(%error, "whether it is mounted is unknown"),
            }
            if self.config.probe == Probe::None || self.wants_read_only() {
                continue;
            }
            if let Some(said) = strikes.count(self.probe().await) {
                return format!("a small synced write to {} fails: {said}", self.config.point.display());
            }
        }
    }

    async fn probe(&self) -> Result<Finished, ResourceError> {
        let file: PathBuf = self.config.point.join(PROBE_FILE);
        let of = format!("of={}", file.display());
        let args = ["if=/dev/zero", &of, "bs=512", "count=1", "conv=notrunc,fsync", "status=none"];
        self.command("dd", &args.map(str::to_owned), self.config.probe_timeout.into()).await
    }

    /// Whether something holds the device; `None` for what is no device.
    async fn claim(&self) -> Result<Option<Claim>, ResourceError> {
        if device::link(&self.config.what).is_none() {
            return Ok(None);
        }
        let hangs = || self.other(format!("looking at {} hangs: it does not answer", self.config.what));
        // One look at a time: those that hang must not add up.
        let turn = Arc::clone(&self.looking).try_lock_owned().map_err(|_| hangs())?;
        let what = self.config.what.clone();
        let look = tokio::task::spawn_blocking(move || {
            let claim = device::claim(&what);
            drop(turn);
            claim
        });
        let failed = |error: std::io::Error| self.other(format!("cannot look at {}: {error}", self.config.what));
        let looked = timeout(LOOK_LIMIT, look).await.map_err(|_| hangs())?;
        looked.map_err(|error| failed(std::io::Error::other(error)))?.map(Some).map_err(failed)
    }

    fn start_error(&self, what: String) -> ResourceError {
        ResourceError::Start { resource: self.name.clone(), what }
    }

    fn other(&self, what: String) -> ResourceError {
        ResourceError::Other { resource: self.name.clone(), what }
    }
}

/// What lies at the mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Up,
    Gone,
    /// Something else, from this source.
    Foreign(String),
    /// Ours, but it takes no writes although it should.
    ReadOnly,
}

impl Resource for Mount {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn stop_budget(&self) -> Duration {
        self.0.stop_timeout
    }

    fn start<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.bring_up())
    }

    fn adopt<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<bool, ResourceError>> {
        Box::pin(async { Ok(self.0.standing()? == Standing::Up) })
    }

    fn stop<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.0.bring_down())
    }

    fn kill(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.0.kill_all())
    }

    fn is_stopped(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(async { Ok(self.0.what_is_left().await?.is_none()) })
    }

    fn ready(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.0.refuse_unfit())
    }

    fn watch(&self) -> Pending<'_, String> {
        Box::pin(self.0.until_failed())
    }

    /// A file system knows no tokens; a share's server learns them by its gate.
    fn set_token(&self, _token: Token) {}

    /// Its commands can be killed, but what the kernel still has to write it writes also when nobody is left, and to
    /// unmount may hang for ever. A file system that was detached (MNT_DETACH) is out of sight and still written back. So
    /// only a daemon that unmounts it in good order can see it stopped.
    fn remains(&self) -> Remains {
        let marks = vec![format!("LEASEHOLD_RESOURCE={}", self.0.id)];
        Remains { marks, hidden: vec![self.0.name.clone()], ..Remains::default() }
    }
}
