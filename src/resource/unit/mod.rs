//! A systemd unit: started and stopped through the service manager, proven stopped by its empty control group.
//!
//! ```text
//!   start   written token ─▶ StartUnit ─▶ the job's end ─▶ ActiveState = active
//!   stop    StopUnit ─▶ the job's end ─▶ group empty      … KillUnit and cgroup.kill when the graceful time is over
//! ```
//!
//! The word of the manager alone proves nothing, and its silence hinders nothing: the processes are looked for in the
//! kernel's tree, where they can be stopped without it.

mod fitness;
mod manager;
mod stop;
mod token_file;
mod tree;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use zbus::MessageStream;

use crate::config::{Resource as Configured, UnitResource};
use crate::core::Token;

use super::exec::listed;
use super::{Context, Pending, Remains, Resource, ResourceError, UnitRemains};
use manager::{JobEnd, Manager, ManagerError, Picture, next};
use tree::Trees;

pub use manager::Host;

/// One resource of kind `unit`.
#[derive(Debug, Clone)]
pub struct Unit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    config: UnitResource,
    start_timeout: Duration,
    stop_timeout: Duration,
    host: Host,
    /// Under what it runs; `None` while it is not to run.
    context: Mutex<Option<Context>>,
    /// Held while the token's file is written, so that the newest content stays.
    writing: tokio::sync::Mutex<()>,
    /// Held until the manager has answered to a start, also when nobody waits for that any more: a stop must come after.
    starting: Arc<tokio::sync::Mutex<()>>,
    /// What was last said about its stop limit.
    told: Mutex<Option<String>>,
}

/// How a start went, as far as systemd tells. One at a time lives, so its size is no matter.
#[allow(clippy::large_enum_variant)]
enum Started {
    Up,
    Failed { end: JobEnd, picture: Picture },
}

impl Unit {
    /// `instance` is not needed: a machine has one unit of a name.
    pub fn new(configured: &Configured, config: &UnitResource, _instance: &str) -> Unit {
        Unit::on(configured, config, Host::default())
    }

    /// Of a service manager elsewhere, such as in a container.
    pub fn on(configured: &Configured, config: &UnitResource, host: Host) -> Unit {
        Unit(Arc::new(Inner {
            name: configured.name.clone(),
            config: config.clone(),
            start_timeout: configured.start_timeout.into(),
            stop_timeout: configured.stop_timeout.into(),
            host,
            context: Mutex::new(None),
            writing: tokio::sync::Mutex::new(()),
            starting: Arc::default(),
            told: Mutex::new(None),
        }))
    }
}

impl Inner {
    fn unit(&self) -> &str {
        &self.config.unit
    }

    async fn open(&self) -> Result<Manager, ResourceError> {
        Manager::open(&self.host).await.map_err(|error| self.failed(&error))
    }

    async fn bring_up(&self, context: &Context) -> Result<(), ResourceError> {
        let late = || ResourceError::StartTimeout { resource: self.name.clone(), limit: self.start_timeout };
        timeout(self.start_timeout, self.start_in_turn(context)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn start_in_turn(&self, context: &Context) -> Result<(), ResourceError> {
        let manager = self.open().await?;
        self.refuse_unfit(&manager).await?;
        self.refuse_left_overs(&manager).await?;
        self.set_context(Some(context.clone()));
        self.write_token().await?;
        // systemd keeps the reason of an earlier failure, and hides behind it that it starts nothing any more.
        if self.picture(&manager).await?.active == "failed" {
            return self.start_after_reset().await;
        }
        match self.start_once().await? {
            Started::Up => Ok(()),
            Started::Failed { picture, .. } if picture.result == "start-limit-hit" => self.start_after_reset().await,
            failed @ Started::Failed { .. } => Err(self.start_error(&failed)),
        }
    }

    /// The limit counts starts of a service that crashed by itself; this one is on purpose, and was counted by the group.
    async fn start_after_reset(&self) -> Result<(), ResourceError> {
        tracing::warn!(
            resource = self.name,
            unit = self.unit(),
            "its start limit was hit: reset once, and started again"
        );
        self.open().await?.reset_failed(self.unit()).await.map_err(|error| self.failed(&error))?;
        match self.start_once().await? {
            Started::Up => Ok(()),
            failed @ Started::Failed { .. } => Err(self.start_error(&failed)),
        }
    }

    async fn start_once(&self) -> Result<Started, ResourceError> {
        let gate = Arc::clone(&self.starting).lock_owned().await;
        let manager = self.open().await?;
        let mut jobs = manager.jobs().await.map_err(|error| self.failed(&error))?;
        let (asked, unit) = (manager.clone(), self.unit().to_owned());
        let asking = tokio::spawn(async move {
            let answer = asked.start(&unit).await;
            drop(gate);
            answer
        });
        let job = asking.await.map_err(|error| self.other(error.to_string()))?;
        let job = job.map_err(|error| self.failed(&error))?;
        let end = manager.end_of(&mut jobs, &job, self.unit()).await.map_err(|error| self.failed(&error))?;
        let picture = self.picture(&manager).await?;
        Ok(if picture.is_up() { Started::Up } else { Started::Failed { end, picture } })
    }

    async fn refuse_unfit(&self, manager: &Manager) -> Result<(), ResourceError> {
        let picture = self.picture(manager).await?;
        let objection =
            fitness::objection(manager, self.unit(), &picture).await.map_err(|error| self.failed(&error))?;
        self.tell_of_haste(&picture);
        match objection {
            Some(what) => Err(ResourceError::NotReady { resource: self.name.clone(), what }),
            None => Ok(()),
        }
    }

    async fn refuse_left_overs(&self, manager: &Manager) -> Result<(), ResourceError> {
        let (picture, left) = (self.picture(manager).await?, self.processes().await?);
        if picture.is_down() && left.is_empty() {
            return Ok(());
        }
        let left = if left.is_empty() { format!("{} is {}", self.unit(), picture.active) } else { listed(&left) };
        Err(ResourceError::Leftovers { resource: self.name.clone(), left })
    }

    /// Once for each new thing to say, not at every look.
    fn tell_of_haste(&self, picture: &Picture) {
        let now = fitness::hasty(self.unit(), picture, self.stop_timeout);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(what) = now.as_ref().filter(|_| *told != now) {
            tracing::warn!(resource = self.name, "{what}");
        }
        *told = now;
    }

    async fn take_over(&self, context: &Context) -> Result<bool, ResourceError> {
        let manager = self.open().await?;
        if !self.picture(&manager).await?.is_up() {
            return Ok(false);
        }
        self.set_context(Some(context.clone()));
        self.write_token().await?;
        Ok(true)
    }

    /// Until its state or, where the manager does not answer, its processes say that it has failed.
    async fn until_failed(&self) -> String {
        let mut watched: Option<(Manager, MessageStream)> = None;
        let mut restarting = Duration::ZERO;
        loop {
            if watched.is_none() {
                watched = self.watched().await.ok();
            }
            let picture = match &watched {
                Some((manager, _)) => manager.picture(self.unit()).await.ok(),
                None => None,
            };
            match picture {
                Some(picture) if picture.is_up() => restarting = Duration::ZERO,
                // systemd starts it again by itself (Restart=), or somebody else does.
                Some(picture) if picture.active == "activating" && restarting < self.start_timeout => {
                    restarting += Duration::from(self.config.interval);
                }
                Some(picture) => return self.fallen(&picture),
                None => {
                    watched = None;
                    if self.processes().await.is_ok_and(|left| left.is_empty()) {
                        return format!(
                            "no process of {} is left, and the service manager does not answer",
                            self.unit()
                        );
                    }
                }
            }
            self.until_changed(watched.as_mut()).await;
        }
    }

    async fn watched(&self) -> Result<(Manager, MessageStream), ManagerError> {
        let manager = Manager::open(&self.host).await?;
        let changes = manager.changes(self.unit()).await?;
        Ok((manager, changes))
    }

    async fn until_changed(&self, watched: Option<&mut (Manager, MessageStream)>) {
        let interval = sleep(self.config.interval.into());
        match watched {
            Some((_, changes)) => tokio::select! {
                changed = next(changes) => if changed.is_none() { sleep(self.config.interval.into()).await },
                () = interval => {}
            },
            None => interval.await,
        }
    }

    fn fallen(&self, picture: &Picture) -> String {
        let Picture { active, sub, result, .. } = picture;
        format!("{} is {active} ({sub}), result {result}; see `journalctl -u {}`", self.unit(), self.unit())
    }

    async fn could_run(&self) -> Result<(), ResourceError> {
        let manager = self.open().await?;
        self.refuse_unfit(&manager).await
    }

    async fn picture(&self, manager: &Manager) -> Result<Picture, ResourceError> {
        manager.picture(self.unit()).await.map_err(|error| self.failed(&error))
    }

    /// The file says what the context is at this moment.
    async fn write_token(&self) -> Result<(), ResourceError> {
        let _turn = self.writing.lock().await;
        let context = self.context().clone();
        let Some(file) = &self.config.environment_file else { return Ok(()) };
        let (path, name) = (file.clone(), self.name.clone());
        let writing = tokio::task::spawn_blocking(move || match context {
            Some(context) => {
                let mut variables = context.environment();
                variables.push(("LEASEHOLD_NAME".to_owned(), name));
                token_file::write(&path, &variables)
            }
            None => token_file::remove(&path),
        });
        let written = writing.await.map_err(std::io::Error::other).and_then(|written| written);
        written.map_err(|error| self.other(format!("cannot write its token to {}: {error}", file.display())))
    }

    /// Of a unit that goes on under a newer token.
    async fn tell_token(&self) {
        if let Err(error) = self.write_token().await {
            tracing::warn!(%error, "the unit does not learn its new token");
            return;
        }
        if !self.config.reload_on_token || self.context().is_none() {
            return;
        }
        let reloaded = async { Manager::open(&self.host).await?.reload(self.unit()).await }.await;
        if let Err(error) = reloaded {
            tracing::warn!(resource = self.name, %error, "the unit was not reloaded after its token changed");
        }
    }

    fn set_context(&self, context: Option<Context>) {
        *self.context() = context;
    }

    /// A panic while the lock was held leaves whole values behind.
    fn context(&self) -> MutexGuard<'_, Option<Context>> {
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_error(&self, failed: &Started) -> ResourceError {
        let what = match failed {
            Started::Up => "it is up".to_owned(),
            Started::Failed { end: JobEnd::Told(end), picture } if end != "done" => {
                format!("its job ended as \"{end}\": {}", self.fallen(picture))
            }
            Started::Failed { picture, .. } => self.fallen(picture),
        };
        ResourceError::Start { resource: self.name.clone(), what }
    }

    fn failed(&self, error: &ManagerError) -> ResourceError {
        self.other(error.to_string())
    }

    fn other(&self, what: String) -> ResourceError {
        ResourceError::Other { resource: self.name.clone(), what }
    }
}

impl Resource for Unit {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn stop_budget(&self) -> Duration {
        self.0.stop_timeout
    }

    fn start<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.0.bring_up(context))
    }

    fn adopt<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<bool, ResourceError>> {
        Box::pin(self.0.take_over(context))
    }

    fn stop<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.0.bring_down())
    }

    fn kill(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.0.kill_all())
    }

    fn is_stopped(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(self.0.nothing_left())
    }

    fn ready(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.0.could_run())
    }

    fn watch(&self) -> Pending<'_, String> {
        Box::pin(self.0.until_failed())
    }

    fn set_token(&self, token: Token) {
        if let Some(context) = self.0.context().as_mut() {
            context.token = token;
        }
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move { inner.tell_token().await });
    }

    /// Without control groups to look at, nobody but the manager knows.
    fn remains(&self) -> Remains {
        let (unit, host) = (self.0.unit().to_owned(), &self.0.host);
        match (Trees::of(host.pid), manager::stop_call(&unit)) {
            (Ok(trees), Some(stop)) => {
                let manager = host.private_socket();
                let unit = UnitRemains { unit, trees: trees.into_paths(), manager, stop };
                Remains { units: vec![unit], ..Remains::default() }
            }
            (Err(_), _) | (_, None) => Remains { hidden: vec![self.0.name.clone()], ..Remains::default() },
        }
    }
}
