//! What ipmitool's words mean. Only whole lines that are known count; everything else is no answer.

use crate::core::SystemUuid;
use crate::process::{Ending, Finished};

use super::super::Reading;
use super::super::identity::swapped;

/// What ipmitool tells on stderr with `-v` that explains nothing.
const NOISE: [&str; 5] =
    ["Loading IANA", "Running Get VSO", "Discovered IPMB", "Get HPM.x", "Invalid completion code received"];

/// One question or command to a BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Status,
    Off,
    On,
    /// Get System GUID (IPMI 2.0, 22.14).
    Guid,
    /// Set Session Privilege Level with 0, "no change": tells the level of the session (IPMI 2.0, 22.18).
    Privilege,
}

impl Verb {
    /// The words of ipmitool.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Verb::Status => &["chassis", "power", "status"],
            Verb::Off => &["chassis", "power", "off"],
            Verb::On => &["chassis", "power", "on"],
            Verb::Guid => &["mc", "guid"],
            Verb::Privilege => &["raw", "0x06", "0x3b", "0x00"],
        }
    }

    /// The words of the evidence.
    pub fn told(self) -> &'static str {
        match self {
            Verb::Status => "chassis power status",
            Verb::Off => "chassis power off",
            Verb::On => "chassis power on",
            Verb::Guid => "system GUID?",
            Verb::Privilege => "session privilege?",
        }
    }
}

/// What came back, with its text, secrets removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Power(Reading, String),
    Accepted(String),
    /// The BMC itself answered with a completion code other than 0.
    Refused(String),
    /// Its system GUID, in the order of the bytes that ipmitool printed.
    Guid(SystemUuid, String),
    /// The privilege of the session: 2 user, 3 operator, 4 administrator (IPMI 2.0, table 22-17).
    Privilege(u8, String),
    /// Something came back, but no session or nothing that can be understood.
    Failed(String),
    /// Nothing came back at all.
    Silent(String),
}

impl Reply {
    /// Whether the BMC opened a session and answered in it.
    pub fn is_answer(&self) -> bool {
        match self {
            Reply::Power(..) | Reply::Accepted(_) | Reply::Refused(_) | Reply::Guid(..) | Reply::Privilege(..) => true,
            Reply::Failed(_) | Reply::Silent(_) => false,
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Reply::Power(_, text) | Reply::Guid(_, text) | Reply::Privilege(_, text) => text,
            Reply::Accepted(text) | Reply::Refused(text) | Reply::Failed(text) | Reply::Silent(text) => text,
        }
    }
}

/// Finds the one line that counts; lines before and after it do not disturb (casebook C04).
pub fn parse(verb: Verb, address: &str, finished: &Finished, scrub: &dyn Fn(&str) -> String) -> Reply {
    let (stdout, stderr) = (finished.stdout_text(), finished.stderr_text());
    let answer = match verb {
        Verb::Status => power(&stdout),
        Verb::Off => control("Down/Off", &stdout, &stderr, scrub),
        Verb::On => control("Up/On", &stdout, &stderr, scrub),
        Verb::Guid => guid(&stdout, &stderr, scrub),
        Verb::Privilege => privilege(&stdout, &stderr, scrub),
    };
    answer.unwrap_or_else(|| explain(address, finished, &stderr, scrub))
}

fn power(stdout: &str) -> Option<Reply> {
    let says = |line: &str| stdout.lines().any(|l| l.trim() == line);
    let (on, off) = ("Chassis Power is on", "Chassis Power is off");
    match (says(on), says(off)) {
        (true, false) => Some(Reply::Power(Reading::On, on.to_owned())),
        (false, true) => Some(Reply::Power(Reading::Off, off.to_owned())),
        (true, true) | (false, false) => None,
    }
}

fn control(act: &str, stdout: &str, stderr: &str, scrub: &dyn Fn(&str) -> String) -> Option<Reply> {
    let accepted = format!("Chassis Power Control: {act}");
    if stdout.lines().any(|l| l.trim() == accepted) {
        return Some(Reply::Accepted(accepted));
    }
    line_with(stderr, &format!("Set Chassis Power Control to {act} failed")).map(|no| Reply::Refused(scrub(no)))
}

fn guid(stdout: &str, stderr: &str, scrub: &dyn Fn(&str) -> String) -> Option<Reply> {
    if let Some(value) = line_with(stdout, "System GUID").and_then(|line| Some(line.split_once(':')?.1.trim())) {
        return parse_uuid(value).map(|uuid| Reply::Guid(uuid, format!("System GUID {uuid}")));
    }
    line_with(stderr, "IPMI command failed").map(|no| Reply::Refused(scrub(no)))
}

fn privilege(stdout: &str, stderr: &str, scrub: &dyn Fn(&str) -> String) -> Option<Reply> {
    let level = stdout.lines().find_map(|line| u8::from_str_radix(line.trim(), 16).ok());
    if let Some(level) = level {
        return Some(Reply::Privilege(level & 0x0f, format!("the session has the privilege {}", level_name(level))));
    }
    line_with(stderr, "Unable to send RAW command")
        .filter(|line| line.contains("rsp="))
        .map(|no| Reply::Refused(scrub(no)))
}

/// IPMI 2.0, table 22-17.
pub fn level_name(level: u8) -> &'static str {
    match level & 0x0f {
        1 => "CALLBACK",
        2 => "USER",
        3 => "OPERATOR",
        4 => "ADMINISTRATOR",
        5 => "OEM",
        _ => "(unknown)",
    }
}

fn line_with<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    text.lines().map(str::trim).find(|line| line.starts_with(start))
}

/// 32 hexadecimal digits, with or without hyphens.
fn parse_uuid(text: &str) -> Option<SystemUuid> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(SystemUuid(bytes))
}

/// Every order of bytes that is about. The specification wants the GUID with the least significant byte
/// first (IPMI 2.0, table 20-10), most BMCs send the form of SMBIOS, others that of RFC 4122, and ipmitool since 1.8.19
/// guesses which one it is before it prints. None of these orders makes one machine look like another.
pub fn forms(seen: SystemUuid) -> [SystemUuid; 3] {
    let reversed = |SystemUuid(mut bytes): SystemUuid| {
        bytes.reverse();
        SystemUuid(bytes)
    };
    [seen, reversed(seen), reversed(swapped(seen))]
}

/// Why there was no answer: ipmitool's own words, with what they mean.
fn explain(address: &str, finished: &Finished, stderr: &str, scrub: &dyn Fn(&str) -> String) -> Reply {
    let lines = stderr.lines().map(str::trim).filter(|l| !l.is_empty());
    let words = lines.filter(|l| !NOISE.iter().any(|n| l.starts_with(n))).collect::<Vec<_>>().join("; ");
    let silent = is_silent(finished, stderr, &words);
    let ending = match finished.ending {
        Ending::Exited(_) => String::new(),
        Ending::Signalled(signal) => format!(" (ipmitool died of signal {signal})"),
        Ending::TimedOut => " (ipmitool ran into its limit)".to_owned(),
        Ending::Stuck => " (ipmitool hangs in the kernel)".to_owned(),
    };
    let quoted = if words.is_empty() { words } else { format!(": {words}") };
    let text = |meaning: &str| scrub(&format!("{address}: {meaning}{ending}{quoted}"));
    if silent { Reply::Silent(text("no answer from this address")) } else { Reply::Failed(text(meaning(stderr))) }
}

fn is_silent(finished: &Finished, stderr: &str, words: &str) -> bool {
    let unreached = stderr.contains("Get Auth Capabilities error") || stderr.contains("Could not open");
    let cut_off = finished.ending == Ending::TimedOut && words.is_empty();
    meaning(stderr) == NO_MEANING && (unreached || cut_off)
}

const NO_MEANING: &str = "no usable answer";

fn meaning(stderr: &str) -> &'static str {
    if stderr.contains("HMAC is invalid") {
        "the BMC refuses the password"
    } else if stderr.contains("unauthorized name") {
        "the BMC does not know this user, or not at this privilege"
    } else if stderr.contains("Set Session Privilege Level") {
        "the BMC does not give this user the privilege"
    } else if stderr.contains("algorithm") || stderr.contains("cipher suite") {
        "the BMC does not take this cipher suite"
    } else {
        NO_MEANING
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Attempt, Identity};
    use super::*;

    fn finished(ending: Ending, stdout: &str, stderr: &str) -> Finished {
        Finished { ending, stdout: stdout.into(), stderr: stderr.into(), dropped: 0 }
    }

    fn reply(verb: Verb, stdout: &str, stderr: &str) -> Reply {
        parse(verb, "bmc", &finished(Ending::Exited(1), stdout, stderr), &str::to_owned)
    }

    #[test]
    fn noise_around_the_status_does_not_disturb_it() {
        let noisy = "Unable to Get Channel Cipher Suites\nChassis Power is off\r\nGet HPM.x failed\n";
        assert!(matches!(reply(Verb::Status, noisy, "anything"), Reply::Power(Reading::Off, _)));
    }

    #[test]
    fn only_the_exact_word_is_off() {
        for said in ["", "Chassis Power is offline", "Chassis Power is soft-off", "xChassis Power is off"] {
            assert!(matches!(reply(Verb::Status, said, ""), Reply::Failed(_)), "{said}");
        }
        let both = "Chassis Power is on\nChassis Power is off\n";
        assert!(matches!(reply(Verb::Status, both, ""), Reply::Failed(_)));
    }

    #[test]
    fn a_completion_code_is_a_refusal_and_a_lost_session_is_not() {
        let no = "Set Chassis Power Control to Down/Off failed: Command not supported in present state";
        assert_eq!(reply(Verb::Off, "", no), Reply::Refused(no.to_owned()));
        let lost = "Error: Unable to establish IPMI v2 / RMCP+ session";
        assert!(matches!(reply(Verb::Off, "", lost), Reply::Failed(_)));
    }

    #[test]
    fn the_reason_of_a_failure_is_named() {
        for (said, meaning) in [
            ("> RAKP 2 HMAC is invalid", "refuses the password"),
            ("RAKP 2 message indicates an error : unauthorized name", "does not know this user"),
            ("Error in open session response message : invalid authentication algorithm", "this cipher suite"),
        ] {
            let Reply::Failed(text) = reply(Verb::Status, "", said) else { panic!("{said} is no failure") };
            assert!(text.contains(meaning) && text.contains(said), "{text}");
        }
        let Reply::Silent(text) = reply(Verb::Status, "", "Get Auth Capabilities error") else { panic!("not silent") };
        assert!(text.contains("no answer from this address"), "{text}");
    }

    #[test]
    fn a_guid_is_read_however_it_is_printed() {
        let bytes: [u8; 16] = std::array::from_fn(|i| 0x11 * u8::try_from(i).unwrap());
        for printed in [
            "System GUID   : 00112233445566778899AABBCCDDEEFF",
            "System GUID  : 00112233-4455-6677-8899-aabbccddeeff\nTimestamp    : 02/24/1996 01:55:47",
        ] {
            assert!(matches!(reply(Verb::Guid, printed, ""), Reply::Guid(SystemUuid(b), _) if b == bytes), "{printed}");
        }
        assert!(matches!(reply(Verb::Guid, "System GUID  : none", ""), Reply::Failed(_)));
        assert!(matches!(reply(Verb::Guid, "", "IPMI command failed: Invalid command"), Reply::Refused(_)));
    }

    #[test]
    fn a_guid_in_any_usual_order_of_bytes_is_the_same_machine_and_another_is_not() {
        let identity =
            |expected, seen| Attempt::new("bmc", String::new).expecting(expected).identify_among(&forms(seen));
        let uuid = SystemUuid(std::array::from_fn(|i| u8::try_from(i).unwrap() + 1));
        let mut reversed = uuid;
        reversed.0.reverse();
        for seen in [uuid, swapped(uuid), reversed, swapped(reversed)] {
            assert_eq!(identity(Some(uuid), seen), Identity::Proven);
        }
        let mut reversed_smbios = swapped(uuid);
        reversed_smbios.0.reverse();
        assert_eq!(identity(Some(uuid), reversed_smbios), Identity::Proven);
        assert_eq!(identity(Some(uuid), SystemUuid([7; 16])), Identity::Foreign);
        assert_eq!(identity(Some(uuid), SystemUuid([0; 16])), Identity::Unknown);
        assert_eq!(identity(None, uuid), Identity::Unknown);
    }

    #[test]
    fn the_privilege_of_a_session_is_read_from_its_one_byte() {
        assert!(matches!(reply(Verb::Privilege, " 04\n", ""), Reply::Privilege(4, _)));
        assert!(matches!(
            reply(
                Verb::Privilege,
                "",
                "Unable to send RAW command (channel=0x0 netfn=0x6 lun=0x0 cmd=0x3b rsp=0xc1): Invalid command"
            ),
            Reply::Refused(_)
        ));
        assert!(matches!(
            reply(Verb::Privilege, "", "Unable to send RAW command (channel=0x0 netfn=0x6 lun=0x0 cmd=0x3b)"),
            Reply::Failed(_)
        ));
    }
}
