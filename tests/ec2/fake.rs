//! A scripted EC2: each kind of request has a row of answers, of which the last one repeats; a command that was accepted
//! changes the rows.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use super::http::{Asked, Http, Reply};

pub const TARGET: &str = "i-0aaaaaaaaaaaaaaa1";
pub const OTHER: &str = "i-0bbbbbbbbbbbbbbb2";
pub const THIRD: &str = "i-0cccccccccccccccc";
pub const VOLUME: &str = "vol-0ddddddddddddddd4";
pub const ZONE: &str = "eu-central-1a";

type Rows = BTreeMap<String, VecDeque<Reply>>;

/// What is said to what. A row is found by action and first id, else by the action; a dry run by `ACTION DryRun`.
#[derive(Debug, Default, Clone)]
pub struct Script {
    rows: Rows,
    after: BTreeMap<String, Rows>,
    signed_within: Option<i64>,
}

impl Script {
    pub fn says(mut self, to: &str, replies: impl IntoIterator<Item = Reply>) -> Script {
        self.rows.insert(to.to_owned(), replies.into_iter().collect());
        self
    }

    /// Once `command` was accepted, `to` is answered by these.
    pub fn after(mut self, command: &str, to: &str, replies: impl IntoIterator<Item = Reply>) -> Script {
        self.after.entry(command.to_owned()).or_default().insert(to.to_owned(), replies.into_iter().collect());
        self
    }

    /// Once a detach with force was accepted, `to` is answered by these.
    pub fn forced(self, to: &str, replies: impl IntoIterator<Item = Reply>) -> Script {
        self.after("DetachVolume Force", to, replies)
    }

    /// Every answer, through `change`.
    pub fn mapped(mut self, change: impl Fn(Reply) -> Reply) -> Script {
        let change = |rows: &mut Rows| {
            rows.values_mut().flatten().for_each(|reply| *reply = change(reply.clone()));
        };
        change(&mut self.rows);
        self.after.values_mut().for_each(change);
        self
    }

    /// Looks at the date of each request as EC2 does, and dates its answers.
    pub fn checks_the_clock(self) -> Script {
        Script { signed_within: Some(300), ..self }
    }

    fn answer(&mut self, asked: &Asked) -> Reply {
        if let Some(refused) = self.too_far(asked) {
            return refused;
        }
        let action = name(asked);
        let id = ["InstanceId.1", "VolumeId.1"].iter().find_map(|field| asked.field(field)).unwrap_or_default();
        let key = [format!("{action} {id}"), action.clone()].into_iter().find(|key| self.rows.contains_key(key));
        let Some(row) = key.and_then(|key| self.rows.get_mut(&key)) else {
            return error(400, "InvalidAction", &format!("the script has no row for {action}"));
        };
        let reply = if row.len() > 1 { row.pop_front() } else { row.front().cloned() };
        let reply = reply.expect("a row has an answer");
        if is_accepted(&reply) {
            let forced = (asked.field("Force") == Some("true")).then(|| format!("{action} Force"));
            let rows = forced.and_then(|key| self.after.get(&key)).or_else(|| self.after.get(&action));
            self.rows.extend(rows.cloned().unwrap_or_default());
        }
        reply
    }

    fn too_far(&self, asked: &Asked) -> Option<Reply> {
        let limit = self.signed_within?;
        let now = jiff::Timestamp::now();
        let date = asked.header("x-amz-date").expect("every request is dated");
        let date = jiff::fmt::strtime::parse("%Y%m%dT%H%M%SZ", date).unwrap().to_datetime().unwrap();
        let date = jiff::tz::TimeZone::UTC.to_timestamp(date).unwrap();
        if (now.as_second() - date.as_second()).abs() <= limit {
            return None;
        }
        let Reply::Whole { status, body, .. } = error(400, "RequestExpired", "Request has expired.") else {
            return None;
        };
        let told = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now).unwrap();
        Some(Reply::Whole { status, body, headers: vec![("Date".to_owned(), told)] })
    }
}

fn is_accepted(reply: &Reply) -> bool {
    match reply {
        Reply::Whole { status, .. } => *status == 200,
        Reply::Slow(_, reply) => is_accepted(reply),
        _ => false,
    }
}

fn name(asked: &Asked) -> String {
    let action = asked.field("Action").unwrap_or("(none)");
    if asked.field("DryRun") == Some("true") { format!("{action} DryRun") } else { action.to_owned() }
}

/// The server that plays a script.
pub struct Fake {
    pub http: Http,
}

impl Fake {
    pub fn start(script: Script) -> Fake {
        let script = Arc::new(Mutex::new(script));
        Fake { http: Http::start(move |asked| script.lock().unwrap().answer(asked)) }
    }

    /// The commands that were not only tried, with their options.
    pub fn commands(&self) -> Vec<String> {
        let asked = self.http.asked();
        let commands =
            asked.iter().map(|a| (name(a), a)).filter(|(n, _)| !n.starts_with("Describe") && !n.ends_with("DryRun"));
        commands
            .map(|(name, a)| {
                let options = ["Force", "SkipOsShutdown"].into_iter().filter(|o| a.field(o) == Some("true"));
                options.fold(name, |name, option| format!("{name} {option}"))
            })
            .collect()
    }
}

pub fn error(status: u16, code: &str, message: &str) -> Reply {
    let error = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    let body =
        format!("<?xml version=\"1.0\"?>\n<Response><Errors>{error}</Errors><RequestID>7</RequestID></Response>");
    Reply::of(status, body)
}

pub fn accepted(action: &str) -> Reply {
    Reply::of(200, format!("<{action}Response><requestId>7</requestId></{action}Response>"))
}

pub fn dry_run_allowed() -> Reply {
    error(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

pub fn instance(id: &str, state: &str) -> Reply {
    let item = format!(
        "<item><instanceId>{id}</instanceId><instanceState><code>0</code><name>{state}</name></instanceState>\
         <placement><availabilityZone>{ZONE}</availabilityZone></placement><rootDeviceType>ebs</rootDeviceType></item>"
    );
    let set = format!("<reservationSet><item><instancesSet>{item}</instancesSet></item></reservationSet>");
    Reply::of(200, format!("<DescribeInstancesResponse>{set}</DescribeInstancesResponse>"))
}

pub fn target(state: &str) -> Reply {
    instance(TARGET, state)
}

/// The volume with these attachments.
pub fn volume(status: &str, attachments: &[(&str, &str)]) -> Reply {
    volume_with(status, attachments, false)
}

pub fn volume_with(status: &str, attachments: &[(&str, &str)], multi: bool) -> Reply {
    let one = |(id, status): &(&str, &str)| {
        format!("<item><volumeId>{VOLUME}</volumeId><instanceId>{id}</instanceId><status>{status}</status></item>")
    };
    let set: String = attachments.iter().map(one).collect();
    let item = format!(
        "<item><volumeId>{VOLUME}</volumeId><status>{status}</status><availabilityZone>{ZONE}</availabilityZone>\
         <multiAttachEnabled>{multi}</multiAttachEnabled><attachmentSet>{set}</attachmentSet></item>"
    );
    Reply::of(200, format!("<DescribeVolumesResponse><volumeSet>{item}</volumeSet></DescribeVolumesResponse>"))
}

pub fn free() -> Reply {
    volume("available", &[])
}

/// The volume as the target holds it.
pub fn held(status: &str) -> Reply {
    volume("in-use", &[(TARGET, status)])
}
