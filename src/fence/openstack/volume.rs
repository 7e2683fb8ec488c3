//! `openstack-volume`: takes a volume from a server, and believes only Cinder (Block Storage API v3).
//!
//! Cinder exports the storage; it forgets an attachment only after the host of the server has let go of it, or was made
//! to. So the volume's own list of attachments decides: `detaching` is not off, and neither is a volume on its way to
//! somewhere, which may well be the old server.

use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::config;
use crate::core::{Scope, Token};

use super::super::drive::{Answer, Switch, drive, settled};
use super::super::{Agent, Attempt, FenceError, Health, Identity, Outcome, Pending, Reading, Setup};
use super::cloud::{Cloud, Command, unread};
use super::identity;
use super::keystone::Service;
use super::power::{Server, judge_roles};

/// One volume, and the server that must not have it.
#[derive(Debug)]
pub struct OpenstackVolume {
    scope: Scope,
    cloud: Cloud,
    server: String,
    volume: String,
    device: Option<String>,
    poll: Duration,
}

impl OpenstackVolume {
    pub fn new(setup: Setup<'_>, config: &config::OpenstackVolume) -> Result<OpenstackVolume, FenceError> {
        let cloud = Cloud::new(setup, &config.cloud)?;
        let (server, volume, device) = (config.server.clone(), config.volume.clone(), config.device.clone());
        Ok(OpenstackVolume { scope: setup.scope, cloud, server, volume, device, poll: config.cloud.poll.into() })
    }

    async fn bring(&self, want: Reading, attempt: &Attempt) -> Outcome {
        match identity(&self.server, attempt) {
            (Identity::Foreign, told) => {
                self.read(attempt).await;
                attempt.refusal("(nothing)", &told, None);
                Outcome::Refused { highest: None }
            }
            (Identity::Proven | Identity::Unknown, _) => drive(self, want, attempt).await,
        }
    }

    async fn look(&self, attempt: &Attempt) -> Result<Volume, String> {
        let reply = self.cloud.get(Service::Volume, &format!("/volumes/{}", self.volume), attempt).await?;
        match reply.status.as_u16() {
            200 => Volume::parse(&reply.body, &self.volume).map_err(|why| format!("{why}: {}", reply.told)),
            404 => {
                Err(format!("Cinder knows no such volume, or this credential is for another project: {}", reply.told))
            }
            _ => Err(reply.told),
        }
    }

    /// The volume, and the server: without it, nothing could be detached from it or attached to it.
    async fn look_closely(&self, attempt: &Attempt) -> Health {
        let reading = settled(self, attempt).await;
        let health = Health { reading, faults: Vec::new(), notes: Vec::new() };
        let health = match self.look(attempt).await {
            Err(why) => health.fault(why),
            Ok(volume) if reading == Reading::Unknown => {
                health.fault(format!("it is neither attached nor detached: {}", volume.told()))
            }
            Ok(volume) => health.note(volume.told()),
        };
        let health = match Server::look(&self.cloud, &self.server, attempt).await {
            Err(why) => health.fault(why),
            Ok(server) => server.faults().fold(health, Health::fault),
        };
        let health = judge_roles(health, &self.cloud.roles());
        let whose = identity(&self.server, attempt);
        // What is taken away is the volume; the server's id is rightly the same in the agent that stops it.
        attempt.names(&self.volume);
        match whose {
            (Identity::Foreign, told) => health.fault(told),
            (Identity::Unknown, told) => health.note(told),
            (Identity::Proven, _) => health.note("the server's id is the UUID that the target told"),
        }
    }

    fn detach(&self) -> Command<'static> {
        let path = format!("/servers/{}/os-volume_attachments/{}", self.server, self.volume);
        Command { what: "detach", service: Service::Compute, method: Method::DELETE, path, body: None }
    }

    fn attach(&self) -> Command<'static> {
        let path = format!("/servers/{}/os-volume_attachments", self.server);
        let mut attachment = json!({ "volumeId": self.volume });
        if let Some(device) = &self.device {
            attachment["device"] = json!(device);
        }
        let body = Some(json!({ "volumeAttachment": attachment }));
        Command { what: "attach", service: Service::Compute, method: Method::POST, path, body }
    }
}

impl Switch for OpenstackVolume {
    async fn read(&self, attempt: &Attempt) -> Reading {
        let sent = format!("GET volume {}", self.volume);
        match self.look(attempt).await {
            Ok(volume) => {
                let reading = volume.reading(&self.server);
                attempt.reading(&sent, &volume.told(), reading);
                reading
            }
            Err(why) => unread(&sent, &why, attempt),
        }
    }

    async fn switch(&self, to: Reading, attempt: &Attempt) -> Answer {
        let command = if to == Reading::On { self.attach() } else { self.detach() };
        self.cloud.command(command, attempt).await
    }

    fn pace(&self) -> (u32, Duration) {
        (config::OPENSTACK_STABLE_READS, self.poll)
    }
}

impl Agent for OpenstackVolume {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.bring(Reading::Off, attempt))
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(async move {
            match identity(&self.server, attempt) {
                // What another machine has says nothing of the target.
                (Identity::Foreign, told) => unread("(nothing)", &told, attempt),
                (Identity::Proven | Identity::Unknown, _) => settled(self, attempt).await,
            }
        })
    }

    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(self.look_closely(attempt))
    }

    fn on<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.bring(Reading::On, attempt))
    }
}

#[derive(Debug, Deserialize)]
struct Answered {
    volume: Volume,
}

/// What Cinder shows of a volume. All fields must be there: a list that is missing is not an empty one.
#[derive(Debug, Deserialize)]
struct Volume {
    id: String,
    status: String,
    attachments: Vec<Attachment>,
}

#[derive(Debug, Deserialize)]
struct Attachment {
    server_id: String,
}

impl Volume {
    fn parse(body: &[u8], id: &str) -> Result<Volume, String> {
        let answered: Answered =
            serde_json::from_slice(body).map_err(|error| format!("no state of a volume can be read ({error})"))?;
        match answered.volume {
            volume if volume.id.eq_ignore_ascii_case(id) => Ok(volume),
            volume => Err(format!("the answer is about another volume, {}", volume.id)),
        }
    }

    fn reading(&self, server: &str) -> Reading {
        let attached = self.attachments.iter().any(|a| a.server_id.eq_ignore_ascii_case(server));
        match (self.status.as_str(), attached, self.attachments.is_empty()) {
            ("in-use", true, _) => Reading::On,
            ("in-use", false, false) | ("available", false, true) => Reading::Off,
            _ => Reading::Unknown,
        }
    }

    fn told(&self) -> String {
        let servers: Vec<&str> = self.attachments.iter().map(|a| a.server_id.as_str()).collect();
        let attached = if servers.is_empty() { "nowhere".to_owned() } else { format!("to {}", servers.join(", ")) };
        format!("status {}, attached {attached}", self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: &str = "5aa119a8-d25b-45a7-8d1b-88e127885635";

    fn reading(status: &str, servers: &[&str]) -> Reading {
        let attachments: Vec<_> = servers.iter().map(|server| json!({ "server_id": server })).collect();
        let body = json!({"volume": {"id": VOLUME, "status": status, "attachments": attachments}}).to_string();
        Volume::parse(body.as_bytes(), VOLUME).unwrap().reading("heron")
    }

    #[test]
    fn only_a_volume_at_rest_without_the_server_is_off() {
        assert_eq!(reading("available", &[]), Reading::Off);
        assert_eq!(reading("in-use", &["plover"]), Reading::Off);
        assert_eq!(reading("in-use", &["plover", "heron"]), Reading::On);
        for (status, servers) in [
            ("detaching", &["heron"][..]),
            ("detaching", &["plover"]),
            ("detaching", &[]),
            ("attaching", &[]),
            ("reserved", &[]),
            ("in-use", &[]),
            ("available", &["heron"]),
            ("error", &[]),
            ("error_detaching", &["heron"]),
            ("maintenance", &[]),
        ] {
            assert_eq!(reading(status, servers), Reading::Unknown, "{status} {servers:?}");
        }
    }

    #[test]
    fn a_list_that_is_missing_is_not_an_empty_one() {
        for body in [
            json!({"volume": {"id": VOLUME, "status": "available"}}),
            json!({"volume": {"id": VOLUME, "status": "available", "attachments": null}}),
            json!({"volume": {"id": "other", "status": "available", "attachments": []}}),
            json!({}),
        ] {
            assert!(Volume::parse(body.to_string().as_bytes(), VOLUME).is_err(), "{body}");
        }
    }
}
