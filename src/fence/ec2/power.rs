//! `ec2-power`: StopInstances, believed only when a describe says exactly `stopped` or `terminated`.
//!
//! `Force` alone still asks the guest first and waits for it (EC2 API Reference, StopInstances), which is no way to
//! fence; `SkipOsShutdown` is what a power switch does. A node whose own instance is going down does not shoot: it is
//! the one that is being fenced, or the operator is taking it out (casebook C17).

use std::time::Duration;

use super::super::drive::{Answer, Switch, drive, settled};
use super::super::{Agent, Attempt, FenceError, Health, Outcome, Pending, Reading, Setup};
use super::api::{Api, Request};
use super::describe::{self, Instance, instance_request};
use super::prove::{denied, lifetime, misnamed};
use super::words::Failure;
use super::xml::Element;
use crate::config;
use crate::core::{Scope, Token};

/// Stops one instance and starts it again.
#[derive(Debug)]
pub struct Ec2Power {
    scope: Scope,
    api: Api,
    config: config::Ec2Power,
}

impl Ec2Power {
    pub fn new(setup: Setup<'_>, config: &config::Ec2Power) -> Result<Ec2Power, FenceError> {
        Ok(Ec2Power { scope: setup.scope, api: Api::new(setup, &config.access)?, config: config.clone() })
    }

    fn stop(&self) -> Request {
        let id = &self.config.instance;
        let request = Request::new("StopInstances", id).with("InstanceId.1", id);
        request.with_flag("Force", self.config.force).with_flag("SkipOsShutdown", self.config.skip_os_shutdown)
    }

    fn start(&self) -> Request {
        let id = &self.config.instance;
        Request::new("StartInstances", id).with("InstanceId.1", id)
    }

    /// Why this node must not shoot: it is the target, or is going down itself.
    async fn disarmed(&self, attempt: &Attempt) -> Option<String> {
        let own = match self.own_instance(attempt).await {
            Ok(own) => own?,
            Err(why) => return Some(why),
        };
        match describe::instance(&self.api, &own, attempt).await {
            Ok(Instance { state, .. }) if is_going(&state) => {
                Some(format!("this node's own instance {own} is {state}: it does not shoot"))
            }
            Ok(_) => None,
            Err(failure) => {
                // The shot may be all that helps; that the own state is not known is no reason against it.
                attempt.note(&instance_request(&own).to_string(), failure.text());
                None
            }
        }
    }

    /// The instance that shoots, as far as it is known; `Err` when that is the target.
    async fn own_instance(&self, attempt: &Attempt) -> Result<Option<String>, String> {
        let Some(imds) = self.api.source.imds() else { return Ok(self.config.other_instance.clone()) };
        match imds.instance().await {
            Ok(own) if own == self.config.instance => Err(format!("{own} is this node itself: it does not shoot")),
            Ok(own) => Ok(Some(own.to_owned())),
            Err(why) => {
                attempt.note("metadata service", &why);
                Ok(self.config.other_instance.clone())
            }
        }
    }

    async fn permissions(&self, attempt: &Attempt, mut health: Health) -> Health {
        if let Some(fault) = denied(&self.api, self.stop(), attempt).await {
            health = health.fault(fault);
        }
        match denied(&self.api, self.start(), attempt).await {
            Some(why) => health.note(format!("could not be switched on again: {why}")),
            None => health,
        }
    }

    async fn surroundings(&self, attempt: &Attempt, instance: &Instance, health: Health) -> Health {
        let health = match instance.root.as_str() {
            "instance-store" => health.fault("its root is an instance store: EC2 cannot stop it, only terminate it"),
            _ => health,
        };
        let health = match self.disarmed(attempt).await {
            Some(why) => health.fault(why),
            None => health,
        };
        let health = misnamed(&self.api, self.config.other_instance.as_deref(), health).await;
        lifetime(&self.api, attempt, self.protection(attempt, health).await).await
    }

    /// A dry run looks at the permission only and does not see stop protection.
    async fn protection(&self, attempt: &Attempt, health: Health) -> Health {
        let id = &self.config.instance;
        let request = Request::new("DescribeInstanceAttribute", id).with("InstanceId", id);
        match self.api.call(&request.with("Attribute", "disableApiStop"), attempt).await {
            Ok(root) if root.at(&["disableApiStop", "value"]) == "true" => health.fault(format!(
                "stop protection is on: EC2 will not stop {id}; aws ec2 modify-instance-attribute --no-disable-api-stop"
            )),
            Ok(_) => health,
            Err(failure) => health.note(format!("whether stop protection is on is not known: {}", failure.text())),
        }
    }
}

impl Agent for Ec2Power {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn off<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async move { drive(&Towards { agent: self, want: Reading::Off }, Reading::Off, attempt).await })
    }

    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(async move { settled(&Towards { agent: self, want: Reading::Off }, attempt).await })
    }

    fn on<'a>(&'a self, _token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async move { drive(&Towards { agent: self, want: Reading::On }, Reading::On, attempt).await })
    }

    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(async move {
            let id = &self.config.instance;
            let instance = match describe::instance(&self.api, id, attempt).await {
                Ok(instance) => instance,
                Err(failure) => {
                    attempt.reading(&instance_request(id).to_string(), failure.text(), Reading::Unknown);
                    return Health {
                        reading: Reading::Unknown,
                        faults: vec![failure.text().to_owned()],
                        notes: vec![],
                    };
                }
            };
            attempt.names(id);
            let reading = power(&instance.state, Reading::Off);
            attempt.reading(&instance_request(id).to_string(), &instance.state, reading);
            let health = Health { reading, faults: vec![], notes: vec![format!("{id} is {}", instance.state)] };
            let health = self.permissions(attempt, health).await;
            self.surroundings(attempt, &instance, health).await
        })
    }
}

/// What the states mean differs with what is wanted: an instance that is `stopping` is not off, and cannot be started.
#[derive(Debug)]
struct Towards<'a> {
    agent: &'a Ec2Power,
    want: Reading,
}

impl Switch for Towards<'_> {
    async fn read(&self, attempt: &Attempt) -> Reading {
        let id = &self.agent.config.instance;
        let (text, reading) = match describe::instance(&self.agent.api, id, attempt).await {
            Ok(instance) => {
                attempt.names(id);
                (instance.state.clone(), power(&instance.state, self.want))
            }
            Err(failure) => (failure.text().to_owned(), Reading::Unknown),
        };
        attempt.reading(&instance_request(id).to_string(), &text, reading);
        reading
    }

    async fn switch(&self, to: Reading, attempt: &Attempt) -> Answer {
        let request = if to == Reading::On { self.agent.start() } else { self.agent.stop() };
        if to != Reading::On
            && let Some(why) = self.agent.disarmed(attempt).await
        {
            attempt.refusal(&format!("{request} (not sent)"), &why, None);
            return Answer::Refused;
        }
        command(&self.agent.api, &request, attempt).await
    }

    fn pace(&self) -> (u32, Duration) {
        let access = &self.agent.config.access;
        (access.stable_reads, access.poll.into())
    }
}

/// Gives a command and notes what EC2 says to it.
pub async fn command(api: &Api, request: &Request, attempt: &Attempt) -> Answer {
    let told = api.call(request, attempt).await;
    noted(request, told, attempt)
}

/// What EC2 said to a command, noted.
pub fn noted(request: &Request, told: Result<Element, Failure>, attempt: &Attempt) -> Answer {
    let (text, answer) = match &told {
        Ok(_) => ("accepted", Answer::Accepted),
        Err(failure) => (failure.text(), failure.answer()),
    };
    match answer {
        Answer::Refused => attempt.refusal(&request.to_string(), text, None),
        Answer::Accepted | Answer::Failed => attempt.note(&request.to_string(), text),
    }
    answer
}

fn is_going(state: &str) -> bool {
    matches!(state, "stopping" | "stopped" | "shutting-down" | "terminated")
}

/// The state as power. `stopped` and `terminated` alone are off; `running` alone is on, when that is wanted.
fn power(state: &str, want: Reading) -> Reading {
    match (state, want) {
        ("stopped" | "terminated", _) => Reading::Off,
        ("running", _) => Reading::On,
        ("pending" | "stopping" | "shutting-down", Reading::Off) => Reading::On,
        // On the way, or a word that EC2 did not have when this was written.
        _ => Reading::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_way_is_neither_off_nor_on() {
        for state in ["stopping", "shutting-down", "pending"] {
            assert_eq!(power(state, Reading::Off), Reading::On, "{state}");
            assert_eq!(power(state, Reading::On), Reading::Unknown, "{state}");
        }
        for state in ["", "Stopped", "stopped ", "hibernated"] {
            assert_eq!(power(state, Reading::Off), Reading::Unknown, "{state}");
        }
        assert_eq!((power("terminated", Reading::Off), power("running", Reading::On)), (Reading::Off, Reading::On));
    }
}
