//! Runs probes, attempts, takes and questions beside the loop, each as a task that can be cancelled.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use crate::core::{AgentSet, Input, Job, Severity, Take, Token};
use crate::fence::{Evidence, FencePlan, Order, Outcome};

use super::note::{Inbox, Note, Told};

/// What the core wants of the agents.
#[derive(Debug)]
pub enum FenceWork {
    Probe {
        job: Job,
        excluded: AgentSet,
    },
    Off {
        job: Job,
        order: Order,
    },
    /// The same for the record: a drill's own fence.
    Drill {
        job: Job,
        order: Order,
    },
    Highest {
        job: Job,
    },
    Take {
        job: Job,
        take: Take,
    },
    Access {
        job: Job,
        token: Token,
    },
    PowerOn {
        token: Token,
    },
    Cancel(Job),
}

/// Takes orders until the loop ends.
pub async fn run(plan: Arc<FencePlan>, mut orders: UnboundedReceiver<FenceWork>, inbox: Inbox) {
    let mut running: HashMap<Job, JoinHandle<()>> = HashMap::new();
    while let Some(work) = orders.recv().await {
        running.retain(|_, task| !task.is_finished());
        match work {
            // Dropping an attempt kills its children; what they sent may still land, which the core allows for.
            FenceWork::Cancel(job) => {
                running.remove(&job).inspect(JoinHandle::abort);
            }
            FenceWork::PowerOn { token } => {
                tokio::spawn(power_on(Arc::clone(&plan), token, inbox.clone()));
            }
            FenceWork::Probe { job, .. }
            | FenceWork::Off { job, .. }
            | FenceWork::Drill { job, .. }
            | FenceWork::Highest { job }
            | FenceWork::Take { job, .. }
            | FenceWork::Access { job, .. } => {
                running.insert(job, tokio::spawn(answer(Arc::clone(&plan), work, inbox.clone())));
            }
        }
    }
}

async fn answer(plan: Arc<FencePlan>, work: FenceWork, inbox: Inbox) {
    let (input, evidence) = match work {
        FenceWork::Probe { job, excluded } => {
            let (reading, evidence) = plan.probe(excluded).await;
            (Input::ProbeDone { job, reading }, evidence)
        }
        FenceWork::Off { job, order } => {
            let report = plan.off(&order).await;
            (Input::FenceDone { job, result: report.result }, report.evidence)
        }
        FenceWork::Drill { job, order } => {
            let report = plan.drill(&order).await;
            (Input::FenceDone { job, result: report.result }, report.evidence)
        }
        FenceWork::Highest { job } => (Input::HighestRead { job, highest: plan.highest().await }, Vec::new()),
        FenceWork::Take { job, take } => {
            let (result, evidence) = plan.take(take).await;
            (Input::TakeDone { job, result }, evidence)
        }
        FenceWork::Access { job, token } => {
            (Input::AccessDone { job, assured: plan.ensure_access(token).await }, Vec::new())
        }
        FenceWork::PowerOn { .. } | FenceWork::Cancel(_) => return,
    };
    tell(&inbox, evidence);
    let _ = inbox.send(Note::Input(input));
}

async fn power_on(plan: Arc<FencePlan>, token: Token, inbox: Inbox) {
    let (outcome, evidence) = plan.power_on(token).await;
    tell(&inbox, evidence);
    let told = match outcome {
        Outcome::Confirmed => Told::new(Severity::Notice, "powered-on", "the fenced peer reads on again"),
        Outcome::Refused { .. } | Outcome::Unknown => {
            let text =
                "the fenced peer could not be switched on: switch it on by hand; `leasehold fence --history` shows why";
            Told::new(Severity::Warning, "power-on-failed", text)
        }
    };
    let _ = inbox.send(Note::Told(told));
}

fn tell(inbox: &Inbox, evidence: Vec<Evidence>) {
    for e in &evidence {
        tracing::info!(agent = e.agent, sent = e.sent, read = e.read, times = e.times, "fence evidence");
    }
    if !evidence.is_empty() {
        let _ = inbox.send(Note::Evidence(evidence));
    }
}
