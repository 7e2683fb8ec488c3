//! Starts, stops, adopts and watches the resources beside the loop: one act at a time, the newest order wins.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use crate::config::{Config, ResourceKind};
use crate::control::ResourceState;
use crate::core::{Epoch, Input, ProofKind, Role, StopReason, Token};
use crate::resource::{Context, Failure, Group, StopResult};

use super::armed::Armed;
use super::note::{Inbox, Note};

/// Pause between two tries of a stop that is stuck: the kernel needs time to end what SIGKILL has hit.
const STUCK_PAUSE: Duration = Duration::from_millis(500);
/// How often readiness is asked where no resource says how often.
const READY_EVERY: Duration = Duration::from_secs(5);

/// What the core wants of the resources.
#[derive(Debug)]
pub enum GroupOrder {
    Start { epoch: Epoch, token: Token, proof: ProofKind },
    Adopt { epoch: Epoch, token: Token },
    Stop { epoch: Epoch, reason: StopReason },
    TokenChanged { token: Token },
    Cut,
}

/// The resources of this node and the act under way.
#[derive(Debug)]
pub struct Executor {
    group: Arc<Group>,
    names: Vec<String>,
    armed: Arc<Armed>,
    inbox: Inbox,
    ready_every: Duration,
    act: Option<JoinHandle<()>>,
    /// The start or adoption whose failures count.
    up: Option<Epoch>,
}

impl Executor {
    pub fn new(config: &Config, node: &str, armed: Arc<Armed>, inbox: Inbox) -> Executor {
        let intervals = config.resources.iter().filter_map(|r| match &r.kind {
            ResourceKind::Exec(exec) => exec.ready.as_ref().map(|_| Duration::from(exec.interval)),
            ResourceKind::Address(_) | ResourceKind::Unit(_) | ResourceKind::Mount(_) | ResourceKind::Postgres(_) => {
                None
            }
        });
        Executor {
            ready_every: intervals.min().unwrap_or(READY_EVERY),
            group: Arc::new(Group::new(&config.resources, &instance(&config.cluster, node, &config.paths.runtime))),
            names: config.resources.iter().map(|r| r.name.clone()).collect(),
            armed,
            inbox,
            act: None,
            up: None,
        }
    }

    /// Takes orders until the loop ends. What runs then goes on running: the next daemon adopts it.
    pub async fn run(mut self, mut orders: UnboundedReceiver<GroupOrder>) {
        tokio::spawn(watch_readiness(Arc::clone(&self.group), self.ready_every, self.inbox.clone()));
        let group = Arc::clone(&self.group);
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(order) => self.begin(order),
                    None => return,
                },
                failure = group.failed() => self.tell_failure(&failure),
            }
        }
    }

    fn begin(&mut self, order: GroupOrder) {
        match order {
            GroupOrder::Start { epoch, token, proof } => self.start(epoch, token, proof),
            GroupOrder::Adopt { epoch, token } => self.adopt(epoch, token),
            GroupOrder::Stop { epoch, reason } => self.stop(epoch, reason),
            GroupOrder::TokenChanged { token } => self.group.set_token(token),
            GroupOrder::Cut => self.group.cut(),
        }
    }

    fn start(&mut self, epoch: Epoch, token: Token, proof: ProofKind) {
        self.up = Some(epoch);
        let reason = proof.to_string();
        let context = Context { token, role: Role::Primary, reason, proof: Some(proof) };
        let (group, armed, teller) = (Arc::clone(&self.group), Arc::clone(&self.armed), self.teller());
        self.perform(async move {
            teller.state(ResourceState::Starting, None);
            match group.start(&context, &move || armed.may_continue(epoch)).await {
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
        self.up = Some(epoch);
        let context = Context { token, role: Role::Primary, reason: "adopted".to_owned(), proof: None };
        let (group, teller) = (Arc::clone(&self.group), self.teller());
        self.perform(async move {
            match group.adopt(&context).await {
                Ok(true) => teller.state(ResourceState::Up, None),
                Ok(false) => teller.done(ResourceState::Failed, Input::ResourcesFailed(epoch)),
                Err(error) => {
                    tracing::error!(%error, "the running resources cannot be taken over");
                    teller.state(ResourceState::Failed, Some(error.to_string()));
                    teller.input(Input::ResourcesFailed(epoch));
                }
            }
        });
    }

    /// Goes on until nothing is left, verified: what is stuck is told once and killed again and again.
    fn stop(&mut self, epoch: Epoch, reason: StopReason) {
        self.up = None;
        let context = Context::idle(reason.to_string());
        let (group, teller) = (Arc::clone(&self.group), self.teller());
        self.perform(async move {
            teller.state(ResourceState::Stopping, None);
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
        });
    }

    /// The newest order wins. An act that is dropped in the middle leaves nothing that a stop would not find.
    fn perform(&mut self, act: impl Future<Output = ()> + Send + 'static) {
        if let Some(old) = self.act.replace(tokio::spawn(act)) {
            old.abort();
        }
    }

    fn tell_failure(&mut self, failure: &Failure) {
        tracing::error!(resource = failure.resource, what = failure.what, "a resource has failed");
        let detail = Some(failure.what.clone());
        let _ =
            self.inbox.send(Note::Resource { name: failure.resource.clone(), state: ResourceState::Failed, detail });
        if let Some(epoch) = self.up.take() {
            let _ = self.inbox.send(Note::Input(Input::ResourcesFailed(epoch)));
        }
    }

    fn teller(&self) -> Teller {
        Teller { names: self.names.clone(), inbox: self.inbox.clone() }
    }
}

/// Asks again and again, in a task of its own since an answer may take long, and tells only what has changed.
async fn watch_readiness(group: Arc<Group>, every: Duration, inbox: Inbox) {
    let mut ask = tokio::time::interval(every);
    ask.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        ask.tick().await;
        let readiness = group.readiness().await;
        let ready = readiness.is_ok();
        if told == Some(ready) {
            continue;
        }
        told = Some(ready);
        match readiness {
            Ok(()) => tracing::info!("this node is ready to serve"),
            Err(error) => tracing::warn!(%error, "this node is not ready to serve"),
        }
        let _ = inbox.send(Note::Input(Input::Readiness(ready)));
    }
}

/// Tells the loop what became of an act. The loop may have ended: then nobody listens, and that is fine.
struct Teller {
    names: Vec<String>,
    inbox: Inbox,
}

impl Teller {
    fn state(&self, state: ResourceState, detail: Option<String>) {
        for name in &self.names {
            let _ = self.inbox.send(Note::Resource { name: name.clone(), state, detail: detail.clone() });
        }
    }

    fn input(&self, input: Input) {
        let _ = self.inbox.send(Note::Input(input));
    }

    fn done(&self, state: ResourceState, input: Input) {
        self.state(state, None);
        self.input(input);
    }
}

/// Tells this node's resources from those of every other daemon on the machine, the same after a restart.
fn instance(cluster: &str, node: &str, runtime: &Path) -> String {
    format!("{cluster}/{node}@{}", runtime.display())
}
