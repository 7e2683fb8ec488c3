//! `ec2-volume`: DetachVolume, believed only when the volume itself shows no attachment to the instance.
//!
//! A plain detach first: it waits for the guest to let go. Force, if the file allows it at all, only when the plain one
//! had its time, since it cuts the guest off in the middle of its writes (casebook C13). What is attached to neither
//! node is not with the peer, but not free either: the takeover stops there and names it (C14).

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::super::drive::{Answer, Switch, drive, settled};
use super::super::{Agent, Attempt, FenceError, Health, Outcome, Pending, Reading, Setup};
use super::api::{Api, Request};
use super::describe::{self, Instance, Volume, instance_request, volume_request};
use super::power::{command, noted};
use super::prove::{denied, lifetime, misnamed};
use super::words::Failure;
use crate::config;
use crate::core::{Scope, Token};

/// Takes one volume from one instance, or gives it to it.
#[derive(Debug)]
pub struct Ec2Volume {
    scope: Scope,
    api: Api,
    config: config::Ec2Volume,
    /// The node that runs it is the target: it lets itself in.
    at_home: bool,
}

impl Ec2Volume {
    pub fn new(setup: Setup<'_>, config: &config::Ec2Volume) -> Result<Ec2Volume, FenceError> {
        Ok(Ec2Volume {
            scope: setup.scope,
            api: Api::new(setup, &config.access)?,
            config: config.clone(),
            at_home: setup.target == setup.caller,
        })
    }

    fn about(&self, word: &str) -> String {
        format!("{} {word} {}", self.config.volume, self.config.instance)
    }

    fn named(&self, action: &'static str, word: &str) -> Request {
        let request = Request::new(action, &self.about(word));
        request.with("VolumeId", &self.config.volume).with("InstanceId", &self.config.instance)
    }

    fn detach(&self, force: bool) -> Request {
        self.named("DetachVolume", "from").with_flag("Force", force)
    }

    fn attach(&self) -> Request {
        self.named("AttachVolume", "to").with("Device", &self.config.device)
    }

    async fn look(&self, attempt: &Attempt, judge: impl Fn(&Volume) -> (String, Reading)) -> Reading {
        let id = &self.config.volume;
        let (text, reading) = match describe::volume(&self.api, id, attempt).await {
            Ok(volume) => {
                attempt.names(id);
                judge(&volume)
            }
            Err(failure) => (failure.text().to_owned(), Reading::Unknown),
        };
        attempt.reading(&volume_request(id).to_string(), &text, reading);
        reading
    }

    /// The volume as access of the target: `Off` when it has none and the other node could have it.
    fn access(&self, volume: &Volume) -> (String, Reading) {
        let told = volume.told();
        if volume.attached_to(&self.config.instance).is_some() {
            return (told, Reading::On);
        }
        match self.stranger(volume) {
            Some(id) => {
                (format!("{told}: not with {}, but not free: {id} has it", self.config.instance), Reading::Unknown)
            }
            None if volume.status == "available" || !volume.attachments.is_empty() => (told, Reading::Off),
            None => (told, Reading::Unknown),
        }
    }

    /// An instance that holds the volume and is neither node. With multi-attach it takes nothing away from anyone.
    fn stranger<'a>(&self, volume: &'a Volume) -> Option<&'a str> {
        let ours = [&self.config.instance, &self.config.other_instance];
        let held = volume.attachments.iter().map(|a| a.instance.as_str()).filter(|_| !volume.multi_attach);
        held.into_iter().find(|id| ours.iter().all(|own| own.as_str() != *id))
    }

    /// Plain, and forced when the plain one had its time; the one that is under way is dropped then.
    async fn take_away(&self, attempt: &Attempt) -> Outcome {
        let plain = Detach::new(self, false);
        let Some(patience) = self.config.force_after else { return drive(&plain, Reading::Off, attempt).await };
        tokio::select! {
            outcome = drive(&plain, Reading::Off, attempt) => return outcome,
            () = async { plain.accepted.notified().await; sleep(patience.into()).await } => {}
        }
        attempt.note("(waiting)", &format!("the plain detach had its time, {patience}: now with force"));
        drive(&Detach::new(self, true), Reading::Off, attempt).await
    }

    fn pace(&self) -> (u32, Duration) {
        (self.config.access.stable_reads, self.config.access.poll.into())
    }

    /// Whether both instances are there, and where the volume can reach them.
    async fn instances(&self, attempt: &Attempt, volume: &Volume, mut health: Health) -> Health {
        for id in [&self.config.instance, &self.config.other_instance] {
            health = match describe::instance(&self.api, id, attempt).await {
                Ok(Instance { zone, .. }) if zone != volume.zone => {
                    let text =
                        format!("{id} is in {zone}, the volume in {}: it can never be attached there", volume.zone);
                    health.fault(text)
                }
                Ok(_) => health,
                Err(failure) if failure.is_denied() => {
                    health.note(format!("{id} is not checked: allow ec2:DescribeInstances to have it checked"))
                }
                Err(failure) => {
                    attempt.note(&instance_request(id).to_string(), failure.text());
                    health.fault(format!("{id}: {}", failure.text()))
                }
            };
        }
        health
    }

    async fn permissions(&self, attempt: &Attempt, mut health: Health) -> Health {
        for request in [self.detach(self.config.force_after.is_some()), self.attach()] {
            if let Some(fault) = denied(&self.api, request, attempt).await {
                health = health.fault(fault);
            }
        }
        health
    }

    fn unreadable(&self, failure: &Failure, attempt: &Attempt) -> Health {
        attempt.reading(&volume_request(&self.config.volume).to_string(), failure.text(), Reading::Unknown);
        Health { reading: Reading::Unknown, faults: vec![failure.text().to_owned()], notes: Vec::new() }
    }
}

impl Agent for Ec2Volume {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.take_away(attempt))
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(async move { settled(&Detach::new(self, false), attempt).await })
    }

    fn on<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async move { drive(&Attach(self), Reading::On, attempt).await })
    }

    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(async move {
            let volume = match describe::volume(&self.api, &self.config.volume, attempt).await {
                Ok(volume) => volume,
                Err(failure) => return self.unreadable(&failure, attempt),
            };
            attempt.names(&self.config.volume);
            let (text, reading) = self.access(&volume);
            attempt.reading(&volume_request(&self.config.volume).to_string(), &text, reading);
            let mut health = Health { reading, faults: Vec::new(), notes: vec![text.clone()] };
            if reading == Reading::Unknown {
                health = health.fault(text);
            }
            let health = self.permissions(attempt, health).await;
            let health = self.instances(attempt, &volume, health).await;
            let own = if self.at_home { &self.config.instance } else { &self.config.other_instance };
            let health = misnamed(&self.api, Some(own), health).await;
            lifetime(&self.api, attempt, health).await
        })
    }
}

/// On the way to no attachment.
#[derive(Debug)]
struct Detach<'a> {
    agent: &'a Ec2Volume,
    force: bool,
    /// Told once a detach is under way.
    accepted: Notify,
    /// The attachment as it was read last.
    seen: Mutex<Option<String>>,
}

impl<'a> Detach<'a> {
    fn new(agent: &'a Ec2Volume, force: bool) -> Detach<'a> {
        Detach { agent, force, accepted: Notify::new(), seen: Mutex::default() }
    }

    /// A detach of an earlier attempt, or of an operator, that EC2 is still at.
    fn is_under_way(&self) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(seen.as_deref(), Some("detaching" | "busy"))
    }
}

impl Switch for Detach<'_> {
    async fn read(&self, attempt: &Attempt) -> Reading {
        let agent = self.agent;
        agent
            .look(attempt, |volume| {
                let status = volume.attached_to(&agent.config.instance).map(|a| a.status.clone());
                *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = status;
                agent.access(volume)
            })
            .await
    }

    async fn switch(&self, _to: Reading, attempt: &Attempt) -> Answer {
        let request = self.agent.detach(self.force);
        let answer = match self.agent.api.call(&request, attempt).await {
            Err(failure) if failure.code() == Some("IncorrectState") && self.is_under_way() => {
                attempt.note(&request.to_string(), &format!("under way already: {}", failure.text()));
                Answer::Accepted
            }
            told => noted(&request, told, attempt),
        };
        if answer == Answer::Accepted {
            self.accepted.notify_one();
        }
        answer
    }

    fn pace(&self) -> (u32, Duration) {
        self.agent.pace()
    }
}

/// On the way to an attachment.
#[derive(Debug)]
struct Attach<'a>(&'a Ec2Volume);

impl Switch for Attach<'_> {
    async fn read(&self, attempt: &Attempt) -> Reading {
        let own = &self.0.config.instance;
        self.0
            .look(attempt, |volume| {
                let told = volume.told();
                match volume.attachments.iter().find(|a| a.instance != *own && !volume.multi_attach) {
                    // What EC2 would say is not asked: a look-alike may well move the volume.
                    Some(other) => (format!("{told}: not free: {} has it", other.instance), Reading::Unknown),
                    None => (told, attached(volume, own)),
                }
            })
            .await
    }

    async fn switch(&self, _to: Reading, attempt: &Attempt) -> Answer {
        command(&self.0.api, &self.0.attach(), attempt).await
    }

    fn pace(&self) -> (u32, Duration) {
        self.0.pace()
    }
}

/// Whether the instance has the volume; on the way it is neither.
fn attached(volume: &Volume, instance: &str) -> Reading {
    match volume.attached_to(instance).map(|a| a.status.as_str()) {
        Some("attached") => Reading::On,
        Some(_) => Reading::Unknown,
        None if volume.status == "available" || !volume.attachments.is_empty() => Reading::Off,
        None => Reading::Unknown,
    }
}
