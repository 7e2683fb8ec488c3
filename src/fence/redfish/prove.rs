//! A look at everything that a fence will need: the way in, the privilege, the state, whose machine it is, the command.

use super::Redfish;
use super::aim::{Aim, Seen, Trouble};
use super::model::listed;
use crate::config::{IdentityCheck, Login};
use crate::fence::drive::settled;
use crate::fence::{Attempt, Health, Identity, Reading};

/// The role that may look and not switch (DSP0266, "Roles").
const READ_ONLY: &str = "ReadOnly";

/// Changes nothing.
pub async fn prove(device: &Redfish, attempt: &Attempt) -> Health {
    let aim = Aim::new(device, attempt, Reading::Unknown);
    let reading = settled(&aim, attempt).await;
    let health = Health { reading, faults: Vec::new(), notes: Vec::new() };
    let health = match (aim.trouble(), aim.seen()) {
        (Some(Trouble::NotOne(paths)), _) if !paths.is_empty() => health.fault(which_of(&aim, device, &paths).await),
        (Some(trouble @ Trouble::Answer(status, _)), _) if status.as_u16() == 404 => {
            let known = aim.members().await.unwrap_or_default();
            health.fault(format!("{}; it has {}", trouble, listed(&known, ", ")))
        }
        (Some(trouble), _) => health.fault(trouble.to_string()),
        (None, Some(seen)) => able(health, &aim, device, &seen).await,
        (None, None) => health.fault("its state cannot be read"),
    };
    told_of_login(health, &aim, device).await
}

/// Whether the system that was read could be switched off.
async fn able(health: Health, aim: &Aim<'_>, device: &Redfish, seen: &Seen) -> Health {
    let health = match health.reading {
        Reading::Unknown => {
            let word = seen.system.power.word();
            health.fault(device.line.scrub(&format!("its PowerState is {word}: no off could be confirmed")))
        }
        Reading::Off | Reading::On => health,
    };
    let health = match aim.reset_type(&seen.system.reset, Reading::Off).await {
        Ok(_) => health,
        Err(why) => health.fault(device.line.scrub(&why)),
    };
    whose(health, aim, device, seen)
}

fn whose(health: Health, aim: &Aim<'_>, device: &Redfish, seen: &Seen) -> Health {
    let uuid = seen.system.uuid.map_or("none".to_owned(), |uuid| uuid.to_string());
    let note = match (device.config.identity, aim.identity(&seen.system)) {
        (IdentityCheck::None, _) => format!("UUID {uuid}, not compared (identity = \"none\")"),
        (IdentityCheck::Uuid, Identity::Proven) => format!("UUID {uuid}, as the target told"),
        (IdentityCheck::Uuid, Identity::Foreign | Identity::Unknown) => {
            format!("UUID {uuid}, which nothing could be compared with")
        }
    };
    let named = format!("{} {:?}", seen.path, seen.system.name);
    health.note(device.line.scrub(&format!("system {named}, {note}")))
}

async fn told_of_login(health: Health, aim: &Aim<'_>, device: &Redfish) -> Health {
    let about = device.line.known_root().map(|root| root.about).filter(|about| !about.is_empty());
    let health = match about {
        Some(about) => health.note(device.line.scrub(&about)),
        None => health,
    };
    let roles = device.line.roles().await;
    let health = if !roles.is_empty() && roles.iter().all(|role| role == READ_ONLY) {
        health.fault("the user has the role ReadOnly: it may look and not switch; give it Operator")
    } else {
        health
    };
    match (aim.fallback(), device.config.login) {
        (Some(why), _) => health.note(format!("{why}; logged in by Basic")),
        (None, Login::Basic) => health.note("logged in by Basic"),
        (None, Login::Session) => health,
    }
}

/// What an operator needs to choose one of several.
async fn which_of(aim: &Aim<'_>, device: &Redfish, paths: &[String]) -> String {
    let mut systems = Vec::new();
    for path in paths {
        systems.push(match aim.other(path).await {
            Ok(system) => {
                let uuid = system.uuid.map_or("no UUID".to_owned(), |uuid| format!("UUID {uuid}"));
                format!("Id {:?}, {:?}, {uuid}", system.id, system.name)
            }
            Err(trouble) => format!("{path}, which answers {trouble}"),
        });
    }
    let systems = device.line.scrub(&listed(&systems, "; "));
    format!("the service has several systems; write the target's Id as `system`: {systems}")
}
