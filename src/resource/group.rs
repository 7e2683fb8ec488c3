//! The resources of the service as one thing: up in order, down in reverse, one act at a time.
//!
//! Resources that do not depend on one another form a *stage* and start and stop side by side; stages follow one
//! another. One that fails while the node is well is restarted in place, with all that stands upon it, as often as its
//! [`Patience`] allows; after that the group has failed for good.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::config::{Resource as Configured, ResourceKind};
use crate::core::{Instant, Span, Standing, Token};

use super::address::Address;
use super::mount::Mount;
use super::postgres::Postgres;
use super::unit::Unit;
use super::{Context, Exec, Failure, News, Progress, Remains, Resource, ResourceError};

/// The end of a stop.
#[derive(Debug)]
pub enum StopResult {
    /// Nothing of the service is left here, verified.
    Stopped,
    /// Something may be left; try again, or reset the node.
    Stuck(Vec<ResourceError>),
}

/// How often one resource may fail before the group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Patience {
    pub restarts: u32,
    pub window: Span,
}

/// One resource in its place.
#[derive(Debug)]
struct Member {
    resource: Arc<dyn Resource>,
    /// Starts and stops beside the member before it.
    beside: bool,
    patience: Patience,
    /// When it was restarted in place, newest last.
    restarted: Mutex<VecDeque<Instant>>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

/// Both ends of the failures of all resources, each with the life of the group that it belongs to.
type Failures = (mpsc::UnboundedSender<(u64, Failure)>, tokio::sync::Mutex<mpsc::UnboundedReceiver<(u64, Failure)>>);

/// Asked before each step of a start: the lease may have ended meanwhile.
pub type MayContinue<'a> = &'a (dyn Fn() -> bool + Send + Sync);

/// Of what a daemon does not find when it goes on from before its restart.
const MISSING: &str =
    "it did not run when this daemon started: it ended while none was there, or the configuration has it anew";

/// All resources, in order of starting.
#[derive(Debug)]
pub struct Group {
    members: Vec<Member>,
    /// Held by the one act under way.
    turn: tokio::sync::Mutex<()>,
    /// The number of stops: each ends a start under way at once.
    stops: watch::Sender<u64>,
    failures: Failures,
}

impl Group {
    /// `instance` tells this node's resources from those of every other daemon on the machine, and must be the same after
    /// a restart: cluster, node and run-time directory. `node` is this node's name in the configuration.
    pub fn new(configured: &[Configured], node: &str, instance: &str) -> Group {
        let member = |c: &Configured| {
            let patience = Patience { restarts: c.restarts, window: c.restart_window };
            Member::new(build(c, node, instance), c.beside, patience)
        };
        Group::with(configured.iter().map(member).collect())
    }

    /// A group of given resources, one after another, that are never restarted in place.
    pub fn of(resources: Vec<Arc<dyn Resource>>) -> Group {
        Group::with(resources.into_iter().map(|r| Member::new(r, false, Patience::default())).collect())
    }

    fn with(members: Vec<Member>) -> Group {
        let (sender, receiver) = mpsc::unbounded_channel();
        Group {
            members,
            turn: tokio::sync::Mutex::new(()),
            stops: watch::Sender::new(0),
            failures: (sender, tokio::sync::Mutex::new(receiver)),
        }
    }

    /// The sum of the stop budgets of the stages: S of protocol section 2.
    pub fn stop_budget(&self) -> Duration {
        let slowest = |stage: &[Member]| stage.iter().map(|m| m.resource.stop_budget()).max().unwrap_or_default();
        self.stages().map(slowest).sum()
    }

    /// Starts all of them, stage by stage. `may_continue` is asked before each and after the last. What is up when this
    /// fails stays up until [`Group::stop`].
    pub async fn start(&self, context: &Context, may_continue: MayContinue<'_>) -> Result<(), ResourceError> {
        self.members.iter().for_each(|m| m.restarted().clear());
        self.unless_stopped(self.start_from(0, context, may_continue)).await
    }

    /// Takes over what a former daemon of this boot left running. What does not run comes back, of the first stage that has
    /// such: each is to be mended, and all later stages with it. They are not even looked at.
    ///
    /// # Errors
    /// What runs here is not what should: stop all of it.
    pub async fn adopt(&self, context: &Context) -> Result<Vec<Failure>, ResourceError> {
        let _turn = self.turn.lock().await;
        self.stop_watching(0);
        for stage in self.stages() {
            let mut missing = Vec::new();
            for member in stage {
                if member.resource.adopt(context).await? {
                    self.watch(member);
                } else {
                    missing.push(Failure { resource: member.resource.name().to_owned(), what: MISSING.to_owned() });
                }
            }
            if !missing.is_empty() {
                return Ok(missing);
            }
        }
        Ok(Vec::new())
    }

    /// Restarts what has failed in place, with everything of the later stages. `false`: it failed too often within its
    /// window, and nothing was done.
    ///
    /// # Errors
    /// It does not start again: the group has failed for good.
    pub async fn mend(
        &self,
        failure: &Failure,
        context: &Context,
        now: Instant,
        may_continue: MayContinue<'_>,
    ) -> Result<bool, ResourceError> {
        let Some(place) = self.members.iter().position(|m| m.resource.name() == failure.resource) else {
            return Ok(false);
        };
        if !self.members[place].may_restart(now) {
            return Ok(false);
        }
        self.unless_stopped(self.restart_from(place, context, may_continue)).await.map(|()| true)
    }

    /// Ends a start under way, then stops all in reverse order and verifies it. One that is stuck does not keep those
    /// before it from being stopped.
    pub async fn stop(&self, context: &Context) -> StopResult {
        self.stops.send_modify(|n| *n += 1);
        self.stop_watching(0);
        let _turn = self.turn.lock().await;
        let mut stuck = Vec::new();
        for stage in self.stages().rev() {
            stuck.extend(stop_side_by_side(stage, context).await);
        }
        StopResult::of(stuck)
    }

    /// SIGKILL to all of them, side by side, without waiting for a stop under way.
    pub async fn kill(&self) -> StopResult {
        self.stops.send_modify(|n| *n += 1);
        self.stop_watching(0);
        let mut tasks = JoinSet::new();
        for member in &self.members {
            let resource = member.resource.clone();
            tasks.spawn(async move { resource.kill().await });
        }
        StopResult::of(tasks.join_all().await.into_iter().filter_map(Result::err).collect())
    }

    /// Makes every resource follow the primary on the other node, in order; the first that cannot ends it.
    pub async fn stand_by(&self, context: &Context) -> Result<(), ResourceError> {
        for member in &self.members {
            member.resource.stand_by(context).await?;
        }
        Ok(())
    }

    /// What each resource is doing now, where that takes long.
    pub fn progress(&self) -> Vec<(String, Progress)> {
        let told = |m: &Member| Some((m.resource.name().to_owned(), m.resource.progress()?));
        self.members.iter().filter_map(told).collect()
    }

    /// See [`Resource::take_news`].
    pub fn take_news(&self) -> Vec<News> {
        self.members.iter().flat_map(|m| m.resource.take_news()).collect()
    }

    /// Refuses and resets the clients at once, before anything stops.
    pub fn cut(&self) {
        self.members.iter().for_each(|m| m.resource.cut());
    }

    /// Whether nothing is left here, by looking.
    pub async fn is_stopped(&self) -> Result<bool, ResourceError> {
        for member in &self.members {
            if !member.resource.is_stopped().await? {
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

    /// What is up and of little use here, with the reasons: see [`Resource::strain`].
    pub fn strained(&self) -> Vec<Failure> {
        let one = |m: &Member| Some(Failure { resource: m.resource.name().to_owned(), what: m.resource.strain()? });
        self.members.iter().filter_map(one).collect()
    }

    /// Whatever strains it is over everywhere, and only has to last.
    pub fn is_mending(&self) -> bool {
        self.members.iter().all(|m| m.resource.strain().is_none() || m.resource.is_mending())
    }

    /// Goes on watching one that stays up under its strain.
    pub fn watch_on(&self, resource: &str) {
        self.members.iter().filter(|m| m.resource.name() == resource).for_each(|m| self.watch(m));
    }

    /// Whether this node could serve, with the first reason why not.
    pub async fn readiness(&self) -> Result<(), ResourceError> {
        for member in &self.members {
            member.resource.ready().await?;
        }
        Ok(())
    }

    /// As [`Group::readiness`], in one word.
    pub async fn ready(&self) -> bool {
        self.readiness().await.is_ok()
    }

    /// How the guard ends all of it.
    pub fn remains(&self) -> Remains {
        self.members.iter().fold(Remains::default(), |all, member| all.and(member.resource.remains()))
    }

    /// The primary goes on under a newer token: commands from now on get it.
    pub fn set_token(&self, token: Token) {
        self.members.iter().for_each(|m| m.resource.set_token(token));
    }

    /// See [`Resource::set_standing`].
    pub fn set_standing(&self, standing: Standing) {
        self.members.iter().for_each(|m| m.resource.set_standing(standing));
    }

    async fn unless_stopped(&self, work: impl Future<Output = Result<(), ResourceError>>) -> Result<(), ResourceError> {
        let mut stops = self.stops.subscribe();
        tokio::select! {
            biased;
            _ = stops.changed() => Err(ResourceError::Cancelled),
            done = work => done,
        }
    }

    async fn start_from(
        &self,
        first: usize,
        context: &Context,
        may_continue: MayContinue<'_>,
    ) -> Result<(), ResourceError> {
        let _turn = self.turn.lock().await;
        self.bring_up(first, context, may_continue).await
    }

    /// The failed one alone of its stage, and all stages above it.
    async fn restart_from(
        &self,
        place: usize,
        context: &Context,
        may_continue: MayContinue<'_>,
    ) -> Result<(), ResourceError> {
        let _turn = self.turn.lock().await;
        let above = self.end_of_stage(place);
        self.stop_watching(above);
        for stage in stages(&self.members[above..]).rev() {
            if let Some(error) = stop_side_by_side(stage, context).await.into_iter().next() {
                return Err(error);
            }
        }
        let failed = std::slice::from_ref(&self.members[place]);
        if let Some(error) = stop_side_by_side(failed, context).await.into_iter().next() {
            return Err(error);
        }
        self.bring_up_stage(failed, context, may_continue).await?;
        self.bring_up(above, context, may_continue).await
    }

    async fn bring_up(
        &self,
        first: usize,
        context: &Context,
        may_continue: MayContinue<'_>,
    ) -> Result<(), ResourceError> {
        for stage in stages(&self.members[first..]) {
            self.bring_up_stage(stage, context, may_continue).await?;
        }
        Ok(())
    }

    async fn bring_up_stage(
        &self,
        stage: &[Member],
        context: &Context,
        may_continue: MayContinue<'_>,
    ) -> Result<(), ResourceError> {
        let may = || match stage.first() {
            Some(member) if !may_continue() => {
                Err(ResourceError::MayNotContinue { resource: member.resource.name().to_owned() })
            }
            _ => Ok(()),
        };
        may()?;
        let mut tasks = JoinSet::new();
        for (place, member) in stage.iter().enumerate() {
            let (resource, context) = (member.resource.clone(), context.clone());
            tasks.spawn(async move { (place, resource.start(&context).await) });
        }
        while let Some(ended) = tasks.join_next().await {
            // A panic in one resource is that resource's failure, not the group's.
            let (place, started) = ended.map_err(|e| panicked(stage, &e))?;
            started?;
            self.watch(&stage[place]);
        }
        may()
    }

    fn watch(&self, member: &Member) {
        let (resource, sender, life) = (member.resource.clone(), self.failures.0.clone(), self.life());
        let task = tokio::spawn(async move {
            let what = resource.watch().await;
            let failure = Failure { resource: resource.name().to_owned(), what };
            // Nobody listens any more only when the group itself is gone.
            let _ = sender.send((life, failure));
        });
        if let Some(old) = member.watcher().replace(task) {
            old.abort();
        }
    }

    /// The number of stops so far.
    fn life(&self) -> u64 {
        *self.stops.borrow()
    }

    fn stop_watching(&self, first: usize) {
        self.members[first..].iter().filter_map(|m| m.watcher().take()).for_each(|task| task.abort());
    }

    fn stages(&self) -> impl DoubleEndedIterator<Item = &[Member]> {
        stages(&self.members)
    }

    /// The first place of the next stage.
    fn end_of_stage(&self, place: usize) -> usize {
        let rest = self.members[place + 1..].iter().position(|m| !m.beside);
        rest.map_or(self.members.len(), |n| place + 1 + n)
    }
}

impl Member {
    fn new(resource: Arc<dyn Resource>, beside: bool, patience: Patience) -> Member {
        Member { resource, beside, patience, restarted: Mutex::default(), watcher: Mutex::default() }
    }

    /// Counts a restart, if one more is allowed within the window.
    fn may_restart(&self, now: Instant) -> bool {
        let mut restarted = self.restarted();
        restarted.retain(|at| now.since(*at) < self.patience.window);
        let allowed = restarted.len() < self.patience.restarts as usize;
        if allowed {
            restarted.push_back(now);
        }
        allowed
    }

    fn restarted(&self) -> MutexGuard<'_, VecDeque<Instant>> {
        self.restarted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watcher(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn build(configured: &Configured, node: &str, instance: &str) -> Arc<dyn Resource> {
    match &configured.kind {
        ResourceKind::Exec(exec) => Arc::new(Exec::new(configured, exec, instance)),
        ResourceKind::Address(address) => Arc::new(Address::new(configured, address, node)),
        ResourceKind::Unit(unit) => Arc::new(Unit::new(configured, unit, instance)),
        ResourceKind::Mount(mount) => Arc::new(Mount::new(configured, mount, instance)),
        ResourceKind::Postgres(postgres) => Arc::new(Postgres::new(configured, postgres, instance, node)),
    }
}

fn stages(members: &[Member]) -> impl DoubleEndedIterator<Item = &[Member]> {
    members.chunk_by(|_, next| next.beside)
}

async fn stop_side_by_side(stage: &[Member], context: &Context) -> Vec<ResourceError> {
    let mut tasks = JoinSet::new();
    for member in stage {
        let (resource, context) = (member.resource.clone(), context.clone());
        tasks.spawn(async move { resource.stop(&context).await });
    }
    let mut stuck = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        stuck.extend(match ended {
            Ok(stopped) => stopped.err(),
            Err(error) => Some(panicked(stage, &error)),
        });
    }
    stuck
}

fn panicked(stage: &[Member], error: &tokio::task::JoinError) -> ResourceError {
    let names = stage.iter().map(|m| m.resource.name()).collect::<Vec<_>>().join(", ");
    ResourceError::Other { resource: names, what: format!("its task ended by itself: {error}") }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop_watching(0);
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
