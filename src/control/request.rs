//! What a client may ask. Decoding is total: every line gives a request or a reason that the sender can act upon.

use serde::Serialize;
use serde_json::{Map, Value};

use super::reply::{ErrorCode, Failure};
use super::{MAX_LINE, VERSION};

/// One request: `{"v":1,"id":7,"op":"failover","force":true}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Version of the public JSON, [`VERSION`].
    pub v: u32,
    /// Chosen by the client, repeated in every line that answers this request.
    pub id: u64,
    #[serde(flatten)]
    pub op: Op,
}

/// The operations, with their arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Op {
    /// The whole [`super::Status`].
    Status,
    /// Every further decision as an event line, until the connection ends.
    Watch,
    /// The last decisions, oldest first; without `last` all that are kept.
    Why {
        #[serde(skip_serializing_if = "Option::is_none")]
        last: Option<u32>,
    },
    /// Which program answers.
    Version,
    /// Planned handover to the peer. `force`: although the standby is not admitted yet.
    Failover { force: bool },
    /// Shoot the peer by the plan, now.
    Fence,
    /// Fence `node`, the standby, although it is well, and bring it back; measured.
    Drill { node: String },
    /// The operator saw that `node`, the peer, is down; bound to the incident that `status` shows.
    ConfirmFenced { incident: u64, node: String },
    /// No role changes until thaw.
    Freeze,
    /// Ends a freeze.
    Thaw,
    /// A node without a record may promote.
    InitRecord,
    /// The operator has looked at the alarms.
    ClearAlarms,
    /// Clean stop of the daemon. `keep_resources`: it ends, and the resources of a frozen pair stay up.
    Stop {
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        keep_resources: bool,
    },
}

/// Every operation: name, whether it only reads, its arguments. The documentation is checked against this table.
pub const OPS: [(&str, bool, &[&str]); 13] = [
    ("status", true, &[]),
    ("watch", true, &[]),
    ("why", true, &["last"]),
    ("version", true, &[]),
    ("failover", false, &["force"]),
    ("fence", false, &[]),
    ("drill", false, &["node"]),
    ("confirm-fenced", false, &["incident", "node"]),
    ("freeze", false, &[]),
    ("thaw", false, &[]),
    ("init-record", false, &[]),
    ("clear-alarms", false, &[]),
    ("stop", false, &["keep_resources"]),
];

/// A line that is no request. `id` is repeated in the answer where the line had one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRequest {
    pub id: Option<u64>,
    pub failure: Failure,
}

impl Op {
    /// The name in the JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Status => "status",
            Op::Watch => "watch",
            Op::Why { .. } => "why",
            Op::Version => "version",
            Op::Failover { .. } => "failover",
            Op::Fence => "fence",
            Op::Drill { .. } => "drill",
            Op::ConfirmFenced { .. } => "confirm-fenced",
            Op::Freeze => "freeze",
            Op::Thaw => "thaw",
            Op::InitRecord => "init-record",
            Op::ClearAlarms => "clear-alarms",
            Op::Stop { .. } => "stop",
        }
    }
}

impl Request {
    pub fn new(id: u64, op: Op) -> Request {
        Request { v: VERSION, id, op }
    }

    /// Reads one line, without its newline. Unknown fields are refused: a misspelt `force` must not be a plain failover.
    pub fn parse(line: &[u8]) -> Result<Request, BadRequest> {
        let mut fields = object(line).map_err(|failure| BadRequest { id: None, failure })?;
        let id = fields.get("id").and_then(Value::as_u64);
        Request::from_fields(&mut fields).map_err(|failure| BadRequest { id, failure })
    }

    fn from_fields(fields: &mut Map<String, Value>) -> Result<Request, Failure> {
        let v = number(fields, "v")?.ok_or_else(|| missing("v"))?;
        if v != u64::from(VERSION) {
            return Err(Failure::new(ErrorCode::Version, format!("this daemon speaks version {VERSION}, not {v}"))
                .remedy("use the leasehold command of the installed package"));
        }
        let id = number(fields, "id")?.ok_or_else(|| missing("id"))?;
        let op = op(fields)?;
        match fields.keys().next() {
            None => Ok(Request { v: VERSION, id, op }),
            Some(key) => Err(bad(format!("field `{}` is unknown for `{}`", printable(key), op.name()))),
        }
    }
}

fn op(fields: &mut Map<String, Value>) -> Result<Op, Failure> {
    let name = text(fields, "op")?.ok_or_else(|| missing("op"))?;
    Ok(match name.as_str() {
        "status" => Op::Status,
        "watch" => Op::Watch,
        "why" => Op::Why { last: last(fields)? },
        "version" => Op::Version,
        "failover" => Op::Failover { force: flag(fields, "force")?.unwrap_or(false) },
        "fence" => Op::Fence,
        "drill" => Op::Drill { node: text(fields, "node")?.ok_or_else(|| missing("node"))? },
        "confirm-fenced" => Op::ConfirmFenced {
            incident: number(fields, "incident")?.ok_or_else(|| missing("incident"))?,
            node: text(fields, "node")?.ok_or_else(|| missing("node"))?,
        },
        "freeze" => Op::Freeze,
        "thaw" => Op::Thaw,
        "init-record" => Op::InitRecord,
        "clear-alarms" => Op::ClearAlarms,
        "stop" => Op::Stop { keep_resources: flag(fields, "keep_resources")?.unwrap_or(false) },
        other => return Err(unknown_op(other)),
    })
}

fn last(fields: &mut Map<String, Value>) -> Result<Option<u32>, Failure> {
    Ok(number(fields, "last")?.map(|n| u32::try_from(n).unwrap_or(u32::MAX)))
}

fn object(line: &[u8]) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(bad("a request is a JSON object".into())),
        Err(error) => Err(bad(format!("not JSON: {error}"))),
    }
}

fn number(fields: &mut Map<String, Value>, key: &str) -> Result<Option<u64>, Failure> {
    take(fields, key, "a whole number from 0 to 2^64-1", |value| value.as_u64())
}

fn text(fields: &mut Map<String, Value>, key: &str) -> Result<Option<String>, Failure> {
    take(fields, key, "a string", |value| value.as_str().map(str::to_owned))
}

fn flag(fields: &mut Map<String, Value>, key: &str) -> Result<Option<bool>, Failure> {
    take(fields, key, "true or false", |value| value.as_bool())
}

fn take<T>(
    fields: &mut Map<String, Value>,
    key: &str,
    wanted: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let Some(value) = fields.remove(key) else { return Ok(None) };
    read(&value).map(Some).ok_or_else(|| bad(format!("field `{key}` must be {wanted}")))
}

fn missing(key: &str) -> Failure {
    bad(format!("field `{key}` is missing"))
}

fn bad(message: String) -> Failure {
    Failure::new(ErrorCode::BadRequest, message)
        .remedy(r#"a request is one line like {"v":1,"id":1,"op":"status"}; see docs/CONTROL.md"#)
}

fn unknown_op(name: &str) -> Failure {
    let known: Vec<&str> = OPS.iter().map(|(name, ..)| *name).collect();
    Failure::new(ErrorCode::UnknownOp, format!("operation `{}` is unknown", printable(name)))
        .remedy(&format!("known are {}", known.join(", ")))
}

/// The answer to a line above [`MAX_LINE`].
pub(super) fn too_long() -> Failure {
    Failure::new(ErrorCode::TooLong, format!("a request line has at most {MAX_LINE} bytes"))
        .remedy("send one request a line, each ended by a newline")
}

/// Text from outside, short and without control characters, so that it can be shown on a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_op() -> Vec<Op> {
        vec![
            Op::Status,
            Op::Watch,
            Op::Why { last: Some(3) },
            Op::Version,
            Op::Failover { force: true },
            Op::Fence,
            Op::Drill { node: "beta".into() },
            Op::ConfirmFenced { incident: 9, node: "beta".into() },
            Op::Freeze,
            Op::Thaw,
            Op::InitRecord,
            Op::ClearAlarms,
            Op::Stop { keep_resources: true },
        ]
    }

    #[test]
    fn what_is_written_is_read_back() {
        for op in every_op() {
            let request = Request::new(7, op);
            let line = serde_json::to_vec(&request).unwrap();
            assert_eq!(Request::parse(&line), Ok(request));
        }
    }

    #[test]
    fn the_table_of_operations_is_complete_and_in_order() {
        let names: Vec<&str> = every_op().iter().map(Op::name).collect();
        let table: Vec<&str> = OPS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, table);
    }

    #[test]
    fn a_misspelt_argument_is_refused_not_ignored() {
        let refused = Request::parse(br#"{"v":1,"id":3,"op":"failover","forse":true}"#).unwrap_err();
        assert_eq!(refused.id, Some(3));
        assert_eq!(refused.failure.message, "field `forse` is unknown for `failover`");
    }

    #[test]
    fn another_version_is_told_apart_from_garbage() {
        let refused = Request::parse(br#"{"v":2,"id":3,"op":"status"}"#).unwrap_err();
        assert_eq!(refused.failure.code, ErrorCode::Version);
        let refused = Request::parse(b"\xff\x00{").unwrap_err();
        assert_eq!((refused.failure.code, refused.id), (ErrorCode::BadRequest, None));
    }

    #[test]
    fn deep_nesting_and_wrong_types_are_errors() {
        for line in
            [&b"[".repeat(60_000)[..], b"7", b"{}", br#"{"v":1,"id":-1,"op":"status"}"#, br#"{"v":1,"id":1,"op":5}"#]
        {
            assert_eq!(Request::parse(line).unwrap_err().failure.code, ErrorCode::BadRequest);
        }
    }

    #[test]
    fn text_from_outside_cannot_move_the_terminal_s_cursor() {
        let refused = Request::parse(b"{\"v\":1,\"id\":1,\"op\":\"\\u001b[2J\"}").unwrap_err();
        assert_eq!(refused.failure.message, "operation `?[2J` is unknown");
    }
}
