//! Starts, stops, adopts and watches the resources beside the loop: one act at a time, the newest order wins.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{Config, ResourceKind};
use crate::control::ResourceState;
use crate::core::{Epoch, Hindrance, Input, ProofKind, Role, Span, Standing, StopReason, Token};
use crate::os::clock;
use crate::resource::{Context, Failure, Group, ResourceError, StopResult};

use super::armed::Armed;
use super::cut::Settled;
use super::enforcer::Enforcer;
use super::note::{Inbox, Note, Told};
use super::past::Past;
use super::readiness::{Readiness, Verdict};
use super::strained::Strained;

/// Pause between two tries of a stop that is stuck: the kernel needs time to end what SIGKILL has hit.
const STUCK_PAUSE: Duration = Duration::from_millis(500);
/// How often readiness is asked where no resource says how often.
const READY_EVERY: Duration = Duration::from_secs(5);
/// A replica that falls behind must not be taken for a ready one for long; two questions take some 50 ms.
const REPLICA_READY_EVERY: Duration = Duration::from_secs(1);

/// A stop waits so long for the cut that was ordered before it: the bound of a cut. It is the kernel's work of a few
/// milliseconds; whatever holds it up longer must not hold up the stop.
const CUT_FIRST: Duration = Duration::from_millis(20);

/// How soon a guard that does not stand is asked after again: it may be starting.
pub(super) const GUARD_EVERY: Duration = Duration::from_millis(100);
/// A guard that is restarted by the service manager is back within this.
const GUARD_PATIENCE: Duration = Duration::from_secs(2);

/// What the core wants of the resources.
#[derive(Debug)]
pub enum GroupOrder {
    Start {
        epoch: Epoch,
        token: Token,
        proof: ProofKind,
    },
    Adopt {
        epoch: Epoch,
        token: Token,
    },
    Stop {
        epoch: Epoch,
        reason: StopReason,
    },
    TokenChanged {
        token: Token,
    },
    /// What the durable record says of the peer now.
    Standing(Standing),
    /// What stands in the way of handing over from this primary; `None`: nothing.
    Handover(Option<Hindrance>),
    Cut,
    /// An operator has looked at what failed: this node may serve again.
    Forgive,
}

/// The resources of this node and the act under way.
#[derive(Debug)]
pub struct Executor {
    group: Arc<Group>,
    names: Vec<String>,
    armed: Arc<Armed>,
    enforcer: Arc<Enforcer>,
    inbox: Inbox,
    ready_every: Duration,
    act: Option<JoinHandle<()>>,
    /// Looks after what stays up although it is of little use here.
    strained: Option<JoinHandle<()>>,
    handover: watch::Sender<Option<Hindrance>>,
    /// The start or adoption whose failures count, and under what it acts.
    up: Option<(Epoch, Context)>,
    past: Past,
    cut: Settled,
    /// What was last told of this node's readiness.
    verdict: Arc<Verdict>,
    /// Whether a resource here is a replica.
    replicates: bool,
}

impl Executor {
    #[allow(clippy::too_many_arguments)] // what it shares with the loop, and nothing else
    pub fn new(
        config: &Config,
        group: Arc<Group>,
        armed: Arc<Armed>,
        enforcer: Arc<Enforcer>,
        past: Past,
        cut: Settled,
        inbox: Inbox,
    ) -> Executor {
        let intervals = config.resources.iter().filter_map(|r| match &r.kind {
            ResourceKind::Exec(exec) => exec.ready.as_ref().map(|_| Duration::from(exec.interval)),
            ResourceKind::Postgres(_) => Some(REPLICA_READY_EVERY),
            ResourceKind::Address(address) => Some(before_the_peer_gives_up(address.hold)),
            ResourceKind::Unit(_) | ResourceKind::Mount(_) => None,
        });
        let replicates = config.resources.iter().any(|r| matches!(r.kind, ResourceKind::Postgres(_)));
        Executor {
            verdict: Arc::new(Verdict::new(inbox.clone())),
            replicates,
            ready_every: intervals.min().unwrap_or(READY_EVERY),
            group,
            names: config.resources.iter().map(|r| r.name.clone()).collect(),
            armed,
            enforcer,
            inbox,
            act: None,
            strained: None,
            handover: watch::Sender::new(Some(Hindrance::PeerSilent)),
            up: None,
            past,
            cut,
        }
    }

    /// Takes orders until the loop ends. What runs then goes on running: the next daemon adopts it.
    pub async fn run(mut self, mut orders: UnboundedReceiver<GroupOrder>) {
        let (past, verdict, enforcer) = (self.past.clone(), Arc::clone(&self.verdict), Arc::clone(&self.enforcer));
        let readiness = Readiness { group: Arc::clone(&self.group), past, verdict, enforcer };
        tokio::spawn(readiness.watch(self.ready_every));
        let group = Arc::clone(&self.group);
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(order) => self.begin(order),
                    None => return,
                },
                failure = group.failed() => self.heal(failure),
            }
        }
    }

    fn begin(&mut self, order: GroupOrder) {
        match order {
            GroupOrder::Start { epoch, token, proof } => self.start(epoch, token, proof),
            GroupOrder::Adopt { epoch, token } => self.adopt(epoch, token),
            GroupOrder::Stop { epoch, reason } => self.stop(epoch, reason),
            GroupOrder::TokenChanged { token } => self.change_token(token),
            GroupOrder::Standing(standing) => self.group.set_standing(standing),
            GroupOrder::Handover(hindrance) => drop(self.handover.send_replace(hindrance)),
            GroupOrder::Cut => self.group.cut(),
            GroupOrder::Forgive => {
                let past = self.past.clone();
                tokio::spawn(async move { past.forgive().await });
            }
        }
    }

    fn start(&mut self, epoch: Epoch, token: Token, proof: ProofKind) {
        self.end_strain();
        let reason = proof.to_string();
        let context = Context { token, role: Role::Primary, reason, proof: Some(proof) };
        self.up = Some((epoch, context.clone()));
        let (group, armed, teller) = (Arc::clone(&self.group), Arc::clone(&self.armed), self.teller());
        let enforcer = Arc::clone(&self.enforcer);
        let lifted = self.cut.clone();
        self.perform(async move {
            teller.state(ResourceState::Starting, None);
            if let Err(why) = until_guarded(&enforcer).await {
                tracing::error!("the resources are not started: {why}");
                teller.state(ResourceState::Failed, Some(why));
                return teller.input(Input::ResourcesFailed(epoch));
            }
            lifted.wait().await;
            let started = group.start(&context, &move || armed.may_continue(epoch)).await;
            teller.news(&group);
            match started {
                Ok(()) => teller.done(ResourceState::Up, Input::ResourcesStarted(epoch)),
                Err(error) => {
                    tracing::error!(%error, "the resources did not start");
                    teller.state(ResourceState::Failed, Some(error.to_string()));
                    teller.input(Input::ResourcesFailed(epoch));
                }
            }
        });
    }

    fn adopt(&mut self, epoch: Epoch, token: Token) {
        self.end_strain();
        let context = Context { token, role: Role::Primary, reason: "adopted".to_owned(), proof: None };
        self.up = Some((epoch, context.clone()));
        let (teller, mender, enforcer) =
            (self.teller(), self.mender(epoch, context.clone()), Arc::clone(&self.enforcer));
        self.perform(async move {
            let missing = match mender.group.adopt(&context).await {
                Ok(missing) => missing,
                Err(error) => {
                    tracing::error!(%error, "the running resources cannot be taken over");
                    teller.state(ResourceState::Failed, Some(error.to_string()));
                    return teller.input(Input::ResourcesFailed(epoch));
                }
            };
            for failure in missing {
                tracing::error!(resource = failure.resource, what = failure.what, "a resource has failed");
                teller.one(&failure.resource, ResourceState::Failed, Some(failure.what.clone()));
                let up = match until_guarded(&enforcer).await {
                    Ok(()) => mender.mend(failure).await,
                    Err(why) => mender.give_up(&failure.resource, format!("{}; {why}", failure.what)).await,
                };
                if !up {
                    return;
                }
            }
            teller.state(ResourceState::Up, None);
        });
    }

    fn change_token(&mut self, token: Token) {
        self.group.set_token(token);
        if let Some((_, context)) = &mut self.up {
            context.token = token;
        }
    }

    /// Goes on until nothing is left, verified: what is stuck is told once and killed again and again. Then follows the
    /// primary on the other node, until the next order.
    fn stop(&mut self, epoch: Epoch, reason: StopReason) {
        self.end_strain();
        let was_up = self.up.take().is_some();
        if was_up && self.replicates {
            self.verdict.overrule("it is no primary any more, and does not follow yet".to_owned());
        }
        let context = Context::idle(reason.to_string());
        let (group, teller, past) = (Arc::clone(&self.group), self.teller(), self.past.clone());
        let cut = self.cut.clone();
        self.perform(async move {
            let begun = clock::now();
            teller.state(ResourceState::Stopping, None);
            // Late or not, the cut goes on beside the stop.
            let _ = tokio::time::timeout(CUT_FIRST, cut.wait()).await;
            let mut result = group.stop(&context).await;
            let mut told = false;
            while let StopResult::Stuck(errors) = &result {
                let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                if !told {
                    tracing::error!(error = text, "the stop is not verified; killing on");
                    teller.input(Input::StopStuck(epoch));
                    told = true;
                }
                teller.state(ResourceState::Stuck, Some(text));
                tokio::time::sleep(STUCK_PAUSE).await;
                result = group.kill().await;
            }
            teller.done(ResourceState::Stopped, Input::ResourcesStopped(epoch));
            if was_up {
                measure_stop(&past, clock::now().since(begun), group.stop_budget().into()).await;
            }
            follow(&group, &context).await;
            teller.news(&group);
        });
    }

    /// Restarts in place what has failed, where that may help; else the group has failed for good.
    fn heal(&mut self, failure: Failure) {
        tracing::error!(resource = failure.resource, what = failure.what, "a resource has failed");
        let teller = self.teller();
        teller.one(&failure.resource, ResourceState::Failed, Some(failure.what.clone()));
        let Some((epoch, context)) = self.up.clone() else { return };
        if self.group.strained().iter().any(|strained| strained.resource == failure.resource) {
            self.group.watch_on(&failure.resource);
            return self.bear(epoch);
        }
        // It is none of those that stay any more.
        self.bear(epoch);
        // Two failures at once are more than one resource's: the other node may be better off.
        let busy = self.act.as_ref().is_some_and(|act| !act.is_finished());
        let mender = self.mender(epoch, context);
        self.perform(async move {
            let up = match busy {
                true => mender.give_up(&failure.resource, failure.what).await,
                false => mender.mend(failure).await,
            };
            if up {
                mender.teller.state(ResourceState::Up, None);
            }
        });
    }

    fn mender(&self, epoch: Epoch, context: Context) -> Mender {
        let (group, armed) = (Arc::clone(&self.group), Arc::clone(&self.armed));
        Mender { group, armed, teller: self.teller(), past: self.past.clone(), epoch, context }
    }

    /// A restart in place helps against neither a full disk nor a lost carrier, and would end what still serves.
    fn bear(&mut self, epoch: Epoch) {
        self.end_strain();
        let (group, past, handover) = (Arc::clone(&self.group), self.past.clone(), self.handover.subscribe());
        let strained = Strained::new(group, self.teller(), past, epoch, handover);
        self.strained = Some(tokio::spawn(strained.bear()));
    }

    fn end_strain(&mut self) {
        if let Some(task) = self.strained.take() {
            task.abort();
        }
    }

    /// The newest order wins. An act that is dropped in the middle leaves nothing that a stop would not find.
    fn perform(&mut self, act: impl Future<Output = ()> + Send + 'static) {
        if let Some(old) = self.act.replace(tokio::spawn(act)) {
            old.abort();
        }
    }

    fn teller(&self) -> Teller {
        Teller { names: self.names.clone(), inbox: self.inbox.clone() }
    }
}

/// What a restart in place needs.
#[derive(Debug)]
struct Mender {
    group: Arc<Group>,
    armed: Arc<Armed>,
    teller: Teller,
    past: Past,
    epoch: Epoch,
    context: Context,
}

impl Mender {
    /// Whether what has failed is up again. Else it has failed for good, which is told, or an order ended the try.
    async fn mend(&self, failure: Failure) -> bool {
        let may_continue = || self.armed.may_continue(self.epoch);
        let why = match self.group.mend(&failure, &self.context, clock::now(), &may_continue).await {
            Ok(true) => {
                tracing::warn!(resource = failure.resource, "restarted in place");
                return true;
            }
            Err(ResourceError::Cancelled) => return false,
            Ok(false) => failure.what,
            Err(error) => format!("{}; restarted in place: {error}", failure.what),
        };
        self.give_up(&failure.resource, why).await
    }

    async fn give_up(&self, resource: &str, why: String) -> bool {
        let text = format!("resource {resource} failed for good: {why}");
        tracing::error!("{text}");
        self.teller.one(resource, ResourceState::Failed, Some(why));
        // Told first: remembering it may wait for a disk, the service must not.
        self.teller.input(Input::ResourcesFailed(self.epoch));
        self.past.note_failed(clock::wall(), text).await;
        false
    }
}

/// How often a node must know whether it has a carrier: where both lose theirs at once, as with their switch, the one
/// that serves must have heard so from the other before its `hold` is over, or it hands over to nobody.
fn before_the_peer_gives_up(hold: Span) -> Duration {
    Duration::from(hold.half()).clamp(GUARD_EVERY, READY_EVERY)
}

/// Nothing starts before the guard stands.
async fn until_guarded(enforcer: &Enforcer) -> Result<(), String> {
    let begun = clock::now();
    loop {
        let now = clock::now();
        match enforcer.stands(now) {
            Err(_) if now.since(begun) < Span::from(GUARD_PATIENCE) => tokio::time::sleep(GUARD_EVERY).await,
            stands => return stands,
        }
    }
}

/// A stop that came near its budget will exceed it one day: then the node resets itself.
async fn measure_stop(past: &Past, took: Span, budget: Span) {
    past.note_stop(took).await;
    let text = format!("the stop took {took} of its budget S = {budget}");
    match took > budget.half() {
        true => tracing::warn!("{text}: raise the resources' stop_timeout before it takes longer"),
        false => tracing::info!("{text}"),
    }
}

/// A resource that cannot follow the primary keeps this node from being ready; its own readiness says why.
async fn follow(group: &Group, context: &Context) {
    if let Err(error) = group.stand_by(context).await {
        tracing::error!(%error, "this node does not follow the primary");
    }
}

/// Tells the loop what became of an act. The loop may have ended: then nobody listens, and that is fine.
#[derive(Debug)]
pub(super) struct Teller {
    names: Vec<String>,
    inbox: Inbox,
}

impl Teller {
    fn state(&self, state: ResourceState, detail: Option<String>) {
        for name in &self.names {
            let _ = self.inbox.send(Note::Resource { name: name.clone(), state, detail: detail.clone() });
        }
    }

    pub(super) fn one(&self, name: &str, state: ResourceState, detail: Option<String>) {
        let _ = self.inbox.send(Note::Resource { name: name.to_owned(), state, detail });
    }

    pub(super) fn input(&self, input: Input) {
        let _ = self.inbox.send(Note::Input(input));
    }

    fn news(&self, group: &Group) {
        for news in group.take_news() {
            let _ = self.inbox.send(Note::Told(Told::new(news.severity, news.kind, news.text)));
        }
    }

    fn done(&self, state: ResourceState, input: Input) {
        self.state(state, None);
        self.input(input);
    }
}

/// The resources of this node.
pub fn group_of(config: &Config, node: &str) -> Group {
    Group::new(&config.resources, node, &instance(&config.cluster, node, &config.paths.runtime))
}

/// Tells this node's resources from those of every other daemon on the machine, the same after a restart.
pub(super) fn instance(cluster: &str, node: &str, runtime: &Path) -> String {
    format!("{cluster}/{node}@{}", runtime.display())
}
