//! What a Redfish service says, as far as a fence needs it (DSP0266, DSP0268). Every function takes any bytes.
//!
//! Typed schemas would reject what real firmware sends; here each value is looked for by itself, and what is not there
//! is not there.

use serde_json::Value;

use crate::core::SystemUuid;
use crate::fence::Reading;

/// The action that this agent needs, and no other.
const RESET: &str = "#ComputerSystem.Reset";
/// A listing longer than this is told in part; nobody reads more, and evidence is bounded.
const MOST_NAMED: usize = 8;

/// One computer system at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    pub id: String,
    pub name: String,
    pub uuid: Option<SystemUuid>,
    pub power: Power,
    pub reset: Reset,
}

/// `PowerState`, by what may be concluded from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Power {
    /// Exactly `Off`.
    Off,
    /// Exactly `On`.
    On,
    /// `PoweringOn`, `PoweringOff`, `Paused`: there is power, or may be in a moment.
    Between(String),
    /// Null, missing, no text, a word that the specification does not have.
    Unclear(String),
}

/// How the system is switched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reset {
    /// Where the action is posted to.
    pub target: Option<String>,
    /// What it takes, if that stands in the system itself.
    pub allowed: Option<Vec<String>>,
    /// Where what it takes is told.
    pub info: Option<String>,
}

impl Power {
    fn of(value: Option<&Value>) -> Power {
        match value {
            Some(Value::String(word)) => match word.as_str() {
                "Off" => Power::Off,
                "On" => Power::On,
                "PoweringOn" | "PoweringOff" | "Paused" => Power::Between(word.clone()),
                _ => Power::Unclear(format!("{word:?}, a word that means nothing here")),
            },
            Some(other) => Power::Unclear(other.to_string()),
            None => Power::Unclear("missing".to_owned()),
        }
    }

    /// What it counts as for who wants `want`: on the way is not there, whichever way.
    pub fn reading(&self, want: Reading) -> Reading {
        match (self, want) {
            (Power::Off, _) => Reading::Off,
            (Power::On, _) => Reading::On,
            (Power::Between(_), Reading::Off | Reading::Unknown) => Reading::On,
            (Power::Between(_), Reading::On) | (Power::Unclear(_), _) => Reading::Unknown,
        }
    }

    pub fn word(&self) -> &str {
        match self {
            Power::Off => "Off",
            Power::On => "On",
            Power::Between(word) | Power::Unclear(word) => word,
        }
    }
}

/// Reads the system that stands at `path`. One that names itself differently is an answer to another question.
pub fn system(path: &str, body: &[u8]) -> Result<System, String> {
    let value = object(body)?;
    let id = text(&value["Id"]);
    let own = text(&value["@odata.id"]);
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if !same(&own, path) && !same(&id, last) {
        return Err(format!("another resource answers: Id {id:?}, @odata.id {own:?}"));
    }
    let action = &value["Actions"][RESET];
    let reset = Reset {
        target: action["target"].as_str().map(str::to_owned),
        allowed: words(&action["ResetType@Redfish.AllowableValues"]),
        info: action["@Redfish.ActionInfo"].as_str().map(str::to_owned),
    };
    let power = Power::of(value.get("PowerState"));
    Ok(System { id, name: text(&value["Name"]), uuid: uuid(&text(&value["UUID"])), power, reset })
}

/// Some firmware adds a slash, some writes another case than it was asked with.
fn same(a: &str, b: &str) -> bool {
    !a.is_empty() && a.trim_end_matches('/').eq_ignore_ascii_case(b.trim_end_matches('/'))
}

/// The paths of a collection's members.
pub fn members(body: &[u8]) -> Result<Vec<String>, String> {
    let value = object(body)?;
    let Some(members) = value["Members"].as_array() else { return Err("a collection without Members".to_owned()) };
    let mut paths: Vec<String> = members.iter().filter_map(|m| m["@odata.id"].as_str()).map(str::to_owned).collect();
    // A further page means further members; which they are does not matter, since one would already be too many.
    paths.extend(value["Members@odata.nextLink"].as_str().map(str::to_owned));
    Ok(paths)
}

/// The allowed values of `ResetType` in an ActionInfo.
pub fn action_info(body: &[u8]) -> Option<Vec<String>> {
    let value = object(body).ok()?;
    let parameters = value["Parameters"].as_array()?;
    words(&parameters.iter().find(|p| p["Name"] == "ResetType")?["AllowableValues"])
}

/// What the root of the service says of it, and where it keeps things.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Root {
    pub systems: Option<String>,
    pub sessions: Option<String>,
    /// It has a root that can be read, and no word of sessions in it.
    pub sessionless: bool,
    /// "Contoso BMC, Redfish 1.6.0"
    pub about: String,
}

pub fn root(body: &[u8]) -> Root {
    let Ok(value) = object(body) else { return Root::default() };
    let link = |v: &Value| v["@odata.id"].as_str().map(str::to_owned);
    let version = value["RedfishVersion"].as_str().map(|v| format!("Redfish {v}"));
    let named = [&value["Vendor"], &value["Product"]].into_iter().filter_map(Value::as_str).map(str::to_owned);
    let silent = link(&value["Links"]["Sessions"]).is_none() && link(&value["SessionService"]).is_none();
    Root {
        sessionless: silent && link(&value["Systems"]).is_some(),
        systems: link(&value["Systems"]),
        sessions: link(&value["Links"]["Sessions"]),
        about: named.chain(version).collect::<Vec<_>>().join(", "),
    }
}

/// The state of a task with its messages, in one line, and whether it is over.
pub fn task(body: &[u8]) -> Option<Task> {
    let value = object(body).ok()?;
    let state = value["TaskState"].as_str()?;
    let said = messages(&value["Messages"]);
    let text = if said.is_empty() { state.to_owned() } else { format!("{state}: {said}") };
    let ending = match state {
        "Completed" => Ending::Done,
        "Exception" | "Killed" | "Cancelled" | "Interrupted" => Ending::Failed,
        _ => Ending::Running,
    };
    Some(Task { text, ending })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub text: String,
    pub ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Running,
    Done,
    Failed,
}

/// The `Roles` of a session, where the service tells them (Session 1.7).
pub fn roles(body: &[u8]) -> Vec<String> {
    object(body).ok().and_then(|value| words(&value["Roles"])).unwrap_or_default()
}

/// Whose a session is.
pub fn user_name(body: &[u8]) -> Option<String> {
    object(body).ok()?["UserName"].as_str().map(str::to_owned)
}

/// A link that an object gives as itself.
pub fn own_path(body: &[u8]) -> Option<String> {
    object(body).ok()?["@odata.id"].as_str().map(str::to_owned)
}

/// What an answer says in words: the messages of a Redfish error, or the beginning of whatever it is.
pub fn said(body: &[u8]) -> String {
    let plain = String::from_utf8_lossy(body).into_owned();
    let Ok(value) = object(body) else {
        return if plain.trim().is_empty() { "an empty body".to_owned() } else { plain };
    };
    let error = &value["error"];
    let extended = [&error["@Message.ExtendedInfo"], &value["@Message.ExtendedInfo"]];
    let told = extended.into_iter().map(messages).find(|text| !text.is_empty());
    told.or_else(|| error["message"].as_str().map(str::to_owned)).unwrap_or(plain)
}

/// Whether the text of a refused login speaks of the number of sessions, for services that answer 400 to that
/// (Base registry: SessionLimitExceeded, CreateLimitReachedForResource; Dell: RAC0218).
pub fn speaks_of_full_sessions(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    ["SessionLimitExceeded", "CreateLimitReached", "RAC0218"].iter().any(|id| text.contains(id))
}

fn messages(list: &Value) -> String {
    let one = |m: &Value| m["Message"].as_str().or(m["MessageId"].as_str()).map(str::to_owned);
    list.as_array().into_iter().flatten().filter_map(one).collect::<Vec<_>>().join("; ")
}

fn object(body: &[u8]) -> Result<Value, String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err("an empty body".to_owned());
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(format!("no JSON object: {}", String::from_utf8_lossy(body))),
        Err(error) => Err(format!("no JSON ({error}): {}", String::from_utf8_lossy(body))),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn words(value: &Value) -> Option<Vec<String>> {
    Some(value.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// A list in one line, as far as somebody reads it.
pub fn listed(items: &[String], separator: &str) -> String {
    let more = if items.len() > MOST_NAMED { format!("{separator}and more") } else { String::new() };
    format!("{}{more}", items[..items.len().min(MOST_NAMED)].join(separator))
}

fn uuid(text: &str) -> Option<SystemUuid> {
    let digits: Vec<u8> =
        text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let whole = digits.len() == 32;
    bytes.try_into().ok().filter(|_| whole).map(SystemUuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/redfish/v1/Systems/Main";

    fn at(power: &str) -> Result<System, String> {
        system(PATH, format!(r#"{{"@odata.id":"{PATH}","Id":"Main","PowerState":{power}}}"#).as_bytes())
    }

    #[test]
    fn only_the_exact_word_is_off() {
        assert_eq!(at("\"Off\"").unwrap().power, Power::Off);
        for power in ["\"off\"", "\"OFF\"", "\"Off \"", "null", "0", "false", "[\"Off\"]", "\"Offline\"", "{}", "\"\""]
        {
            let read = at(power).unwrap().power.reading(Reading::Off);
            assert_eq!(read, Reading::Unknown, "{power}");
        }
    }

    #[test]
    fn on_the_way_is_not_there() {
        for word in ["\"PoweringOff\"", "\"PoweringOn\"", "\"Paused\""] {
            let power = at(word).unwrap().power;
            assert_eq!((power.reading(Reading::Off), power.reading(Reading::On)), (Reading::On, Reading::Unknown));
        }
    }

    #[test]
    fn a_resource_that_is_another_is_no_answer() {
        for (own, id) in [("/redfish/v1/Systems/Witness", "Witness"), ("", ""), ("/redfish/v1", "RootService")] {
            let body = format!(r#"{{"@odata.id":"{own}","Id":"{id}","PowerState":"Off"}}"#);
            assert!(system(PATH, body.as_bytes()).unwrap_err().contains("another resource"));
        }
        let slash = format!(r#"{{"@odata.id":"{PATH}/","PowerState":"Off"}}"#);
        assert_eq!(system(PATH, slash.as_bytes()).unwrap().power, Power::Off);
    }

    #[test]
    fn no_body_whatever_is_more_than_an_error() {
        let deep = "[".repeat(100_000);
        let bodies: &[&[u8]] = &[
            b"",
            b" \r\n",
            b"<html>Off</html>",
            b"null",
            b"[]",
            b"{",
            b"\xff\xfe",
            b"\"Off\"",
            b"{\"Actions\":[1]}",
            deep.as_bytes(),
        ];
        for body in bodies {
            assert!(system(PATH, body).is_err());
            let _ = (members(body), action_info(body), task(body), root(body), roles(body), said(body), own_path(body));
        }
        assert_eq!(root(b"{\"Systems\":7,\"Links\":[]}"), Root::default());
    }

    #[test]
    fn the_allowed_types_are_found_inline_and_in_the_action_info() {
        let body = format!(
            r##"{{"Id":"Main","Actions":{{"#ComputerSystem.Reset":{{"target":"{PATH}/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues":["On","ForceOff"],"@Redfish.ActionInfo":"{PATH}/ResetActionInfo"}}}}}}"##
        );
        let reset = system(PATH, body.as_bytes()).unwrap().reset;
        assert_eq!(reset.allowed, Some(vec!["On".to_owned(), "ForceOff".to_owned()]));
        assert_eq!(reset.info.as_deref(), Some("/redfish/v1/Systems/Main/ResetActionInfo"));
        let info = br#"{"Parameters":[{"Name":"Other"},{"Name":"ResetType","AllowableValues":["ForceOff"]}]}"#;
        assert_eq!(action_info(info), Some(vec!["ForceOff".to_owned()]));
        assert_eq!(action_info(br#"{"Parameters":[{"Name":"ResetType"}]}"#), None);
    }

    #[test]
    fn an_error_is_told_by_its_messages() {
        let body = br#"{"error":{"code":"x","message":"general","@Message.ExtendedInfo":[{"Message":"No slots."}]}}"#;
        assert_eq!(said(body), "No slots.");
        assert_eq!(said(br#"{"error":{"message":"general"}}"#), "general");
        assert_eq!(said(b""), "an empty body");
    }

    #[test]
    fn a_uuid_is_32_digits() {
        let read = uuid("00112233-4455-6677-8899-AABBCCDDEEFF").unwrap();
        assert_eq!((read.0[1], read.0[15]), (0x11, 0xff));
        for wrong in ["", "0011", "00112233-4455-6677-8899-AABBCCDDEEFG", "00112233445566778899AABBCCDDEEFF0"] {
            assert_eq!(uuid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_further_page_counts_as_a_further_member() {
        let body = br#"{"Members":[{"@odata.id":"/a"}],"Members@odata.nextLink":"/a?$skip=1"}"#;
        assert_eq!(members(body).unwrap().len(), 2);
    }
}
