//! What Keystone, Nova and Cinder say to a request, and what they then do.

use serde_json::{Value, json};

use super::http::{Act, Request};
use super::{OTHER, Quirk, SECRET, SERVER, Step, TOKEN, VOLUME, World};

pub fn decide(request: &Request, base: &str, world: &mut World) -> Act {
    let step = match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/v3/auth/tokens") => Step::Login,
        ("GET", _) => Step::Read,
        _ => Step::Command,
    };
    match world.quirk {
        Quirk::Hangs(at) if at == step => Act::Hang,
        Quirk::Half(at) if at == step => Act::Half(format!("{{\"x\": \"{}\"}}", "y".repeat(200)), true),
        Quirk::Dies(at) if at == step => Act::Half(format!("{{\"x\": \"{}\"}}", "y".repeat(200)), false),
        Quirk::Endless(at) if at == step => Act::Endless,
        Quirk::Garbage(at) if at == step => answer(if step == Step::Login { 201 } else { 200 }, json!(["no", 1])),
        Quirk::Unavailable(at) if at == step => Act::Answer(503, Vec::new(), "<html>Service Unavailable</html>".into()),
        Quirk::EchoesSecrets(at) if at == step => {
            Act::Answer(502, Vec::new(), format!("<html>Bad Gateway: {} {}</html>", request.head, request.body))
        }
        Quirk::Later(at, times) if at == step && world.answered_later < times => {
            world.answered_later += 1;
            let body = json!({"overLimit": {"code": 429, "message": "This request was rate-limited."}});
            Act::Answer(429, vec![("Retry-After", "0".into())], body.to_string())
        }
        _ => route(step, request, base, world),
    }
}

fn route(step: Step, request: &Request, base: &str, world: &mut World) -> Act {
    if step == Step::Login {
        return login(request, base, world);
    }
    let spent = match world.quirk {
        Quirk::FirstTokenLasts(uses) => world.logins == 1 && world.uses >= uses,
        quirk => quirk == Quirk::NoTokenTaken,
    };
    let token = format!("{TOKEN}-{}", world.logins);
    if spent || request.token.as_deref() != Some(&token) {
        return error(401, "error", "The request you have made requires authentication.");
    }
    world.uses += 1;
    world.catch_up();
    match request.path.strip_prefix("/compute/v2.1/servers/") {
        // Without this microversion, Nova does not show `locked`.
        Some(_) if request.microversion.as_deref() != Some("compute 2.9") => {
            error(406, "notAcceptable", "microversion")
        }
        Some(path) => compute(step, path, request, world),
        None if request.path == format!("/volume/v3/p1/volumes/{VOLUME}") => volume(world),
        None => error(404, "itemNotFound", "no such path"),
    }
}

fn login(request: &Request, base: &str, world: &mut World) -> Act {
    let body: Value = serde_json::from_str(&request.body).unwrap();
    let credential = &body["auth"]["identity"]["application_credential"];
    let known = body["auth"]["identity"]["methods"] == json!(["application_credential"])
        && credential["id"] == "cred-1"
        && credential["secret"] == SECRET
        && world.quirk != Quirk::WrongSecret;
    if !known {
        return error(401, "error", "The request you have made requires authentication.");
    }
    (world.logins, world.uses) = (world.logins + 1, 0);
    let endpoint = |region: &str, url: String| {
        json!([{"interface": "internal", "region_id": region, "region": region, "url": "http://192.0.2.9/"},
               {"interface": "public", "region_id": region, "region": region, "url": url}])
    };
    let mut compute = endpoint("north", format!("{base}/compute/v2.1"));
    if world.quirk == Quirk::TwoRegions {
        compute
            .as_array_mut()
            .unwrap()
            .extend(endpoint("south", "http://192.0.2.8/".into()).as_array().unwrap().clone());
    }
    let compute_type = if world.quirk == Quirk::NoComputeInCatalog { "baremetal" } else { "compute" };
    let role = if world.quirk == Quirk::ReaderOnly { "reader" } else { "member" };
    let issued: jiff::Timestamp = "2026-11-30T01:00:00Z".parse().unwrap();
    let body = json!({"token": {
        "methods": ["application_credential"],
        "issued_at": "2026-11-30T01:00:00.000000Z",
        "expires_at": (issued + world.life).to_string(),
        "roles": [{"id": "1", "name": role}],
        "catalog": [
            {"type": "identity", "name": "keystone", "endpoints": []},
            {"type": compute_type, "name": "nova", "endpoints": compute},
            {"type": "volumev3", "name": "cinder", "endpoints": endpoint("north", format!("{base}/volume/v3/p1"))},
        ],
    }});
    Act::Answer(201, vec![("X-Subject-Token", format!("{TOKEN}-{}", world.logins))], body.to_string())
}

fn compute(step: Step, path: &str, request: &Request, world: &mut World) -> Act {
    if world.quirk == Quirk::Gone || !path.starts_with(SERVER) {
        return error(404, "itemNotFound", &format!("Instance {} could not be found.", &path[..36.min(path.len())]));
    }
    if step == Step::Read {
        world.reads += 1;
        return server(world);
    }
    world.commands.push(format!("{} {path} {}", request.method, request.body));
    let to = match (request.method.as_str(), &path[SERVER.len()..]) {
        ("POST", "/action") if request.body == r#"{"os-stop":null}"# => "off",
        ("POST", "/action") if request.body == r#"{"os-start":null}"# => "on",
        ("DELETE", rest) if rest == format!("/os-volume_attachments/{VOLUME}") => "off",
        ("POST", "/os-volume_attachments") => "on",
        _ => return error(400, "badRequest", "no such action"),
    };
    let conflict =
        |why: &str| error(409, "conflictingRequest", &format!("Cannot 'stop' instance {SERVER} while {why}"));
    match world.quirk {
        Quirk::Locked => return error(409, "conflictingRequest", &format!("Instance {SERVER} is locked")),
        Quirk::Forbidden => return error(403, "forbidden", "Policy doesn't allow os_compute_api:servers:stop"),
        Quirk::AccessRule => return error(401, "error", "The request you have made requires authentication."),
        Quirk::HandWasFaster => {
            world.switch_off();
            return conflict("it is in vm_state stopped");
        }
        _ => {}
    }
    if let Some(task) = world.task {
        return conflict(&format!("it is in task_state {task}"));
    }
    if to == "on" && path.ends_with("/os-volume_attachments") && !world.attached.is_empty() {
        return error(400, "badRequest", "Invalid volume: volume status must be available or downloading to reserve");
    }
    if to == "off" && request.method == "POST" && world.status == "SHUTOFF" {
        return conflict("it is in vm_state stopped");
    }
    world.begin(to);
    if path.ends_with("/os-volume_attachments") {
        return answer(
            200,
            json!({"volumeAttachment": {"device": "/dev/vdb", "serverId": SERVER, "volumeId": VOLUME}}),
        );
    }
    Act::Answer(202, vec![("OpenStack-API-Version", "compute 2.9".into())], String::new())
}

fn server(world: &mut World) -> Act {
    let id = if world.quirk == Quirk::AnswersAnother { OTHER } else { SERVER };
    let body = json!({"server": {
        "id": id, "name": "heron", "status": world.status, "locked": world.quirk == Quirk::Locked,
        "OS-EXT-STS:power_state": world.power_state, "OS-EXT-STS:vm_state": "any",
        "OS-EXT-STS:task_state": world.task, "OS-EXT-AZ:availability_zone": "nova", "tenant_id": "p1",
    }});
    flip(world);
    answer(200, body)
}

fn volume(world: &mut World) -> Act {
    world.reads += 1;
    if world.quirk == Quirk::Gone {
        return error(404, "itemNotFound", &format!("Volume {VOLUME} could not be found."));
    }
    let id = if world.quirk == Quirk::AnswersAnother { OTHER } else { VOLUME };
    let attachments: Vec<Value> = (world.attached.iter())
        .map(|server| json!({"server_id": server, "attachment_id": "a1", "volume_id": VOLUME, "device": "/dev/vdb"}))
        .collect();
    let body = json!({"volume": {
        "id": id, "name": "data", "status": world.volume_status, "multiattach": false, "attachments": attachments,
    }});
    flip(world);
    answer(200, body)
}

fn flip(world: &mut World) {
    if world.quirk == Quirk::FlipsBack && (world.status == "SHUTOFF" || world.attached.is_empty()) {
        world.switch_on();
        world.quirk = Quirk::StaysAsItIs;
    }
}

fn answer(status: u16, body: Value) -> Act {
    Act::Answer(status, Vec::new(), body.to_string())
}

fn error(status: u16, kind: &str, message: &str) -> Act {
    answer(status, json!({ kind: {"code": status, "message": message} }))
}
