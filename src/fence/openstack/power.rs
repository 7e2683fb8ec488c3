//! `openstack-power`: stops a server, and believes only what Nova shows of it (Compute API v2.1).
//!
//! Off is `SHUTOFF` with power state 4 and no task under way. A server that is paused, suspended, shelved or in error may
//! run on at a word of anyone, so it is none of both. Nova's own word for a stopped server whose hypervisor is not
//! heard is never `SHUTOFF`: an `os-stop` to a dead compute host stays a task, and the attempt ends in the unknown.

use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config;
use crate::core::{Scope, Token};

use super::super::drive::{Answer, Switch, drive, settled};
use super::super::{Agent, Attempt, FenceError, Health, Identity, Outcome, Pending, Reading, Setup};
use super::cloud::{Cloud, Command, unread};
use super::identity;
use super::keystone::Service;

/// nova/compute/power_state.py
const RUNNING: u64 = 1;
const SHUTDOWN: u64 = 4;
/// The one of Keystone's default roles that changes nothing.
const READER: &str = "reader";

/// One server.
#[derive(Debug)]
pub struct OpenstackPower {
    scope: Scope,
    cloud: Cloud,
    server: String,
    poll: Duration,
}

impl OpenstackPower {
    pub fn new(setup: Setup<'_>, config: &config::OpenstackPower) -> Result<OpenstackPower, FenceError> {
        let cloud = Cloud::new(setup, &config.cloud)?;
        let (server, poll) = (config.server.clone(), config.cloud.poll.into());
        Ok(OpenstackPower { scope: setup.scope, cloud, server, poll })
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

    async fn look_closely(&self, attempt: &Attempt) -> Health {
        let reading = settled(self, attempt).await;
        let server = Server::look(&self.cloud, &self.server, attempt).await;
        let health = match server {
            Err(why) => Health { reading, faults: vec![why], notes: Vec::new() },
            Ok(server) => server.faults().fold(health_of(reading, &server), Health::fault),
        };
        let health = judge_roles(health, &self.cloud.roles());
        match identity(&self.server, attempt) {
            (Identity::Foreign, told) => health.fault(told),
            (Identity::Unknown, told) => health.note(told),
            (Identity::Proven, _) => health.note("the server's id is the UUID that the target told"),
        }
    }
}

fn health_of(reading: Reading, server: &Server) -> Health {
    let health = Health { reading, faults: Vec::new(), notes: Vec::new() };
    match reading {
        Reading::Off | Reading::On => health,
        Reading::Unknown => health.fault(format!("its state is neither on nor off: {}", server.told())),
    }
}

/// Whether the credential may do more than look. Which role may do what is the cloud's policy, and no request tells it.
pub fn judge_roles(health: Health, roles: &[String]) -> Health {
    if !roles.is_empty() && roles.iter().all(|role| role == READER) {
        return health.fault("the application credential has the role reader only: it cannot stop, detach or attach");
    }
    health.note(format!("roles of the application credential: {}", roles.join(", ")))
}

impl Switch for OpenstackPower {
    async fn read(&self, attempt: &Attempt) -> Reading {
        let sent = format!("GET server {}", self.server);
        match Server::look(&self.cloud, &self.server, attempt).await {
            Ok(server) => {
                attempt.reading(&sent, &server.told(), server.reading());
                server.reading()
            }
            Err(why) => unread(&sent, &why, attempt),
        }
    }

    async fn switch(&self, to: Reading, attempt: &Attempt) -> Answer {
        let what = if to == Reading::On { "os-start" } else { "os-stop" };
        let path = format!("/servers/{}/action", self.server);
        let body = Some(json!({ what: null }));
        let command = Command { what, service: Service::Compute, method: Method::POST, path, body };
        self.cloud.command(command, attempt).await
    }

    fn pace(&self) -> (u32, Duration) {
        (config::OPENSTACK_STABLE_READS, self.poll)
    }
}

impl Agent for OpenstackPower {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(self.bring(Reading::Off, attempt))
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(async move {
            match identity(&self.server, attempt) {
                // What another machine does says nothing of the target.
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
    server: Server,
}

/// What Nova shows of a server. Every field must be there: what is missing is not taken for "none".
#[derive(Debug, Deserialize)]
pub struct Server {
    id: String,
    status: String,
    #[serde(rename = "OS-EXT-STS:power_state")]
    power_state: u64,
    #[serde(rename = "OS-EXT-STS:task_state")]
    task_state: Value,
    #[serde(default)]
    locked: bool,
}

impl Server {
    /// Asks Nova; the error says what came instead, without secrets.
    pub async fn look(cloud: &Cloud, id: &str, attempt: &Attempt) -> Result<Server, String> {
        let reply = cloud.get(Service::Compute, &format!("/servers/{id}"), attempt).await?;
        match reply.status.as_u16() {
            200 => Server::parse(&reply.body, id).map_err(|why| format!("{why}: {}", reply.told)),
            404 => Err(format!("Nova knows no such server, or this credential is for another project: {}", reply.told)),
            _ => Err(reply.told),
        }
    }

    fn parse(body: &[u8], id: &str) -> Result<Server, String> {
        let answered: Answered =
            serde_json::from_slice(body).map_err(|error| format!("no state of a server can be read ({error})"))?;
        match answered.server {
            server if server.id.eq_ignore_ascii_case(id) => Ok(server),
            server => Err(format!("the answer is about another server, {}", server.id)),
        }
    }

    fn reading(&self) -> Reading {
        match (self.status.as_str(), self.power_state, &self.task_state) {
            ("SHUTOFF", SHUTDOWN, Value::Null) => Reading::Off,
            (_, RUNNING, Value::Null) => Reading::On,
            _ => Reading::Unknown,
        }
    }

    fn told(&self) -> String {
        let task = self.task_state.as_str().map_or("no task".to_owned(), |task| format!("task {task}"));
        let locked = if self.locked { ", locked" } else { "" };
        format!("status {}, power state {}, {task}{locked}", self.status, self.power_state)
    }

    /// What would keep Nova from acting on it.
    pub fn faults(&self) -> impl Iterator<Item = String> {
        let locked = self.locked.then(|| format!("server {} is locked: `openstack server unlock` it", self.id));
        locked.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "8f9f1d5a-4a2c-4b53-9d3c-0d1a2b3c4d5e";

    fn reading(status: &str, power_state: u64, task_state: Value) -> Reading {
        let server = json!({"id": ID, "status": status, "OS-EXT-STS:power_state": power_state,
            "OS-EXT-STS:task_state": task_state});
        Server::parse(json!({ "server": server }).to_string().as_bytes(), ID).unwrap().reading()
    }

    #[test]
    fn only_a_stopped_server_at_rest_is_off() {
        assert_eq!(reading("SHUTOFF", 4, Value::Null), Reading::Off);
        assert_eq!(reading("ACTIVE", 1, Value::Null), Reading::On);
        assert_eq!(reading("ERROR", 1, Value::Null), Reading::On);
        for (status, power, task) in [
            ("SHUTOFF", 4, json!("powering-on")),
            ("SHUTOFF", 0, Value::Null),
            ("ACTIVE", 1, json!("powering-off")),
            ("ACTIVE", 4, Value::Null),
            ("PAUSED", 3, Value::Null),
            ("SUSPENDED", 4, Value::Null),
            ("SHELVED_OFFLOADED", 4, Value::Null),
            ("ERROR", 4, Value::Null),
            ("shutoff", 4, Value::Null),
        ] {
            assert_eq!(reading(status, power, task.clone()), Reading::Unknown, "{status} {power} {task}");
        }
    }

    #[test]
    fn what_is_missing_is_not_none() {
        let mut server = json!({"id": ID, "status": "SHUTOFF", "OS-EXT-STS:power_state": 4,
            "OS-EXT-STS:task_state": null});
        let parse = |server: &Value| Server::parse(json!({ "server": server }).to_string().as_bytes(), ID);
        assert!(parse(&server).is_ok());
        for field in ["id", "status", "OS-EXT-STS:power_state", "OS-EXT-STS:task_state"] {
            let value = server.as_object_mut().unwrap().remove(field).unwrap();
            assert!(parse(&server).is_err(), "{field}");
            server[field] = value;
        }
        server["id"] = json!("00000000-0000-0000-0000-000000000000");
        assert!(parse(&server).unwrap_err().contains("another server"));
    }
}
