//! The resources of the service as one thing: up in order, down in reverse, one act at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::config::{Resource as Configured, ResourceKind};
use crate::core::Token;

use super::address::Address;
use super::mount::Mount;
use super::postgres::Postgres;
use super::unit::Unit;
use super::{Context, Exec, Failure, Resource, ResourceError};

/// The end of a stop.
#[derive(Debug)]
pub enum StopResult {
    /// Nothing of the service is left here, verified.
    Stopped,
    /// Something may be left; try again, or reset the node.
    Stuck(Vec<ResourceError>),
}

/// Both ends of the failures of all resources, each with the life of the group that it belongs to.
type Failures = (mpsc::UnboundedSender<(u64, Failure)>, tokio::sync::Mutex<mpsc::UnboundedReceiver<(u64, Failure)>>);

/// All resources, in order of starting.
#[derive(Debug)]
pub struct Group {
    resources: Vec<Arc<dyn Resource>>,
    /// Held by the one act under way.
    turn: tokio::sync::Mutex<()>,
    /// The number of stops: each ends a start under way at once.
    stops: watch::Sender<u64>,
    watchers: Mutex<Vec<JoinHandle<()>>>,
    failures: Failures,
}

impl Group {
    /// `instance` tells this node's resources from those of every other daemon on the machine, and must be the same after
    /// a restart: cluster, node and run-time directory.
    pub fn new(configured: &[Configured], instance: &str) -> Group {
        let build = |c: &Configured| -> Arc<dyn Resource> {
            match &c.kind {
                ResourceKind::Exec(exec) => Arc::new(Exec::new(c, exec, instance)),
                ResourceKind::Address(address) => Arc::new(Address::new(c, address, instance)),
                ResourceKind::Unit(unit) => Arc::new(Unit::new(c, unit, instance)),
                ResourceKind::Mount(mount) => Arc::new(Mount::new(c, mount, instance)),
                ResourceKind::Postgres(postgres) => Arc::new(Postgres::new(c, postgres, instance)),
            }
        };
        Group::of(configured.iter().map(build).collect())
    }

    /// A group of given resources.
    pub fn of(resources: Vec<Arc<dyn Resource>>) -> Group {
        let (sender, receiver) = mpsc::unbounded_channel();
        Group {
            resources,
            turn: tokio::sync::Mutex::new(()),
            stops: watch::Sender::new(0),
            watchers: Mutex::default(),
            failures: (sender, tokio::sync::Mutex::new(receiver)),
        }
    }

    /// The sum of the stop budgets: S of protocol section 2.
    pub fn stop_budget(&self) -> Duration {
        self.resources.iter().map(|r| r.stop_budget()).sum()
    }

    /// Starts all of them in order. `may_continue` is asked before each and after the last: the lease may have ended
    /// meanwhile. What is up when this fails stays up until [`Group::stop`].
    pub async fn start(
        &self,
        context: &Context,
        may_continue: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<(), ResourceError> {
        let mut stops = self.stops.subscribe();
        tokio::select! {
            biased;
            _ = stops.changed() => Err(ResourceError::Cancelled),
            started = self.start_in_order(context, may_continue) => started,
        }
    }

    /// Takes over what a former daemon of this boot left running. `false`: not all of it runs, so stop and start.
    pub async fn adopt(&self, context: &Context) -> Result<bool, ResourceError> {
        let _turn = self.turn.lock().await;
        self.stop_watching();
        for resource in &self.resources {
            if !resource.adopt(context).await? {
                self.stop_watching();
                return Ok(false);
            }
            self.watch(resource);
        }
        Ok(true)
    }

    /// Ends a start under way, then stops all in reverse order and verifies it. One that is stuck does not keep those
    /// before it from being stopped.
    pub async fn stop(&self, context: &Context) -> StopResult {
        self.stops.send_modify(|n| *n += 1);
        self.stop_watching();
        let _turn = self.turn.lock().await;
        let mut stuck = Vec::new();
        for resource in self.resources.iter().rev() {
            stuck.extend(resource.stop(context).await.err());
        }
        StopResult::of(stuck)
    }

    /// SIGKILL to all of them, side by side, without waiting for a stop under way.
    pub async fn kill(&self) -> StopResult {
        self.stops.send_modify(|n| *n += 1);
        self.stop_watching();
        let mut tasks = tokio::task::JoinSet::new();
        for resource in &self.resources {
            let resource = resource.clone();
            tasks.spawn(async move { resource.kill().await });
        }
        StopResult::of(tasks.join_all().await.into_iter().filter_map(Result::err).collect())
    }

    /// Makes every resource follow the primary on the other node, in order; the first that cannot ends it.
    pub async fn stand_by(&self, context: &Context) -> Result<(), ResourceError> {
        for resource in &self.resources {
            resource.stand_by(context).await?;
        }
        Ok(())
    }

    /// Refuses and resets the clients at once, before anything stops.
    pub fn cut(&self) {
        self.resources.iter().for_each(|r| r.cut());
    }

    /// Whether nothing is left here, by looking.
    pub async fn is_stopped(&self) -> Result<bool, ResourceError> {
        for resource in &self.resources {
            if !resource.is_stopped().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next failure of a resource that was up. Waits for ever while nothing fails. Of an earlier life of the group
    /// nothing is told: a stop ends each life.
    pub async fn failed(&self) -> Failure {
        let mut failures = self.failures.1.lock().await;
        loop {
            match failures.recv().await {
                Some((life, failure)) if life == self.life() => return failure,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Whether this node could serve, with the first reason why not.
    pub async fn readiness(&self) -> Result<(), ResourceError> {
        for resource in &self.resources {
            resource.ready().await?;
        }
        Ok(())
    }

    /// As [`Group::readiness`], in one word.
    pub async fn ready(&self) -> bool {
        self.readiness().await.is_ok()
    }

    /// The primary goes on under a newer token: commands from now on get it.
    pub fn set_token(&self, token: Token) {
        self.resources.iter().for_each(|r| r.set_token(token));
    }

    async fn start_in_order(
        &self,
        context: &Context,
        may_continue: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<(), ResourceError> {
        let _turn = self.turn.lock().await;
        for resource in &self.resources {
            let ended = || ResourceError::MayNotContinue { resource: resource.name().to_owned() };
            if !may_continue() {
                return Err(ended());
            }
            resource.start(context).await?;
            self.watch(resource);
            if !may_continue() {
                return Err(ended());
            }
        }
        Ok(())
    }

    fn watch(&self, resource: &Arc<dyn Resource>) {
        let (resource, sender, life) = (resource.clone(), self.failures.0.clone(), self.life());
        let task = tokio::spawn(async move {
            let what = resource.watch().await;
            let failure = Failure { resource: resource.name().to_owned(), what };
            // Nobody listens any more only when the group itself is gone.
            let _ = sender.send((life, failure));
        });
        self.watchers().push(task);
    }

    /// The number of stops so far.
    fn life(&self) -> u64 {
        *self.stops.borrow()
    }

    fn stop_watching(&self) {
        self.watchers().drain(..).for_each(|task| task.abort());
    }

    fn watchers(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop_watching();
    }
}

impl StopResult {
    fn of(stuck: Vec<ResourceError>) -> StopResult {
        if stuck.is_empty() { StopResult::Stopped } else { StopResult::Stuck(stuck) }
    }

    pub fn is_stopped(&self) -> bool {
        matches!(self, StopResult::Stopped)
    }
}
