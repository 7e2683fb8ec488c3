//! stand-in until the resource room lands
use super::armed::Armed;
use super::note::{Inbox, Note};
use crate::config::Config;
use crate::core::{Epoch, Input, ProofKind, StopReason, Token};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

#[derive(Debug)]
pub enum GroupOrder {
    Start { epoch: Epoch, token: Token, proof: ProofKind },
    Adopt { epoch: Epoch, token: Token },
    Stop { epoch: Epoch, reason: StopReason },
    TokenChanged { token: Token },
    Cut,
}
#[derive(Debug)]
pub struct Executor {
    inbox: Inbox,
}
impl Executor {
    pub fn new(_: &Config, _: Arc<Armed>, inbox: Inbox) -> anyhow::Result<Executor> {
        Ok(Executor { inbox })
    }
    pub async fn run(self, mut orders: UnboundedReceiver<GroupOrder>) {
        let _ = self.inbox.send(Note::Input(Input::Readiness(true)));
        while let Some(order) = orders.recv().await {
            let input = match order {
                GroupOrder::Start { epoch, .. } => Input::ResourcesStarted(epoch),
                GroupOrder::Stop { epoch, .. } => Input::ResourcesStopped(epoch),
                _ => continue,
            };
            let _ = self.inbox.send(Note::Input(input));
        }
    }
}
