//! What an error of EC2 means, and what to do about it.
//!
//! Codes: "Error codes for the Amazon EC2 API" in the EC2 Developer Guide.

use super::super::drive::Answer;

/// A request whose date is further from EC2's clock than this is refused (SigV4, "request expiration": 5 minutes).
/// A little less, since the answer's `Date` is in whole seconds and travels too.
const SKEW_LIMIT: i64 = 290;

/// Why there is no answer that counts. No text holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// EC2 said no, with its code.
    Said { code: String, text: String },
    /// EC2 said "later": throttled, overloaded, broken for a moment.
    Busy(String),
    /// No answer, none that can be understood, or nothing could be asked.
    NoAnswer(String),
}

impl Failure {
    pub fn text(&self) -> &str {
        match self {
            Failure::Said { text, .. } | Failure::Busy(text) | Failure::NoAnswer(text) => text,
        }
    }

    pub fn code(&self) -> Option<&str> {
        match self {
            Failure::Said { code, .. } => Some(code),
            Failure::Busy(_) | Failure::NoAnswer(_) => None,
        }
    }

    /// What this is as an answer to a command. Keys that are not accepted and ids that are not found say nothing about
    /// the command; they may do better a moment later.
    pub fn answer(&self) -> Answer {
        match self.code() {
            Some(code) if is_no(code) => Answer::Refused,
            Some(_) | None => Answer::Failed,
        }
    }

    /// EC2 does not let these keys do it.
    pub fn is_denied(&self) -> bool {
        self.code().is_some_and(|code| DENIED.contains(&code))
    }
}

/// The policy says no; EC2 uses the first word, services that speak its protocol the second.
const DENIED: [&str; 2] = ["UnauthorizedOperation", "AccessDenied"];

fn is_no(code: &str) -> bool {
    let plain = [DENIED[0], DENIED[1], "OperationNotPermitted", "UnsupportedOperation", "VolumeInUse"];
    plain.contains(&code) || ["Incorrect", "InvalidParameter", "UnknownParameter"].iter().any(|p| code.starts_with(p))
}

/// Codes with which EC2 asks for patience. It says them with 503, but proxies and look-alikes do not always.
pub fn is_later(status: u16, code: &str) -> bool {
    let codes = [
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "RequestThrottled",
        "Unavailable",
        "ServiceUnavailable",
        "InternalError",
        "InternalFailure",
    ];
    codes.contains(&code) || matches!(status, 429 | 500 | 502 | 503 | 504) && code.is_empty()
}

/// The longest text that is told of an answer, in characters. It goes into faults that people read, not only into
/// evidence that is cut anyway.
const LONGEST_TEXT: usize = 300;

/// What a denied request is told in addition, for a decoder only: a kilobyte that no person can read.
const ENCODED: &str = "Encoded authorization failure message";

/// One line of a text from outside, cut. Secrets must be out of it already: half of one could not be found any more.
pub fn short(text: &str) -> String {
    let readable = text.split(ENCODED).next().unwrap_or_default();
    let line = readable.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = line.chars().filter(|c| !c.is_control()).take(LONGEST_TEXT).collect();
    if line.chars().count() > LONGEST_TEXT {
        shown.push('…');
    }
    shown
}

/// How far this node's clock is from EC2's, in seconds; positive: ahead.
pub type Skew = Option<i64>;

/// The meaning first, since long texts are cut at their end.
pub fn explain(action: &str, region: &str, code: &str, message: &str, skew: Skew) -> String {
    let meaning = match code {
        _ if DENIED.contains(&code) => format!("these keys may not do it: allow ec2:{action} in their policy"),
        "AuthFailure" | "InvalidClientTokenId" | "MissingAuthenticationToken" if !is_off(skew) => {
            "EC2 does not know these keys or their signature: wrong, withdrawn, or not of this partition".to_owned()
        }
        "ExpiredToken" | "ExpiredTokenException" => "the session of these keys is over".to_owned(),
        "SignatureDoesNotMatch"
        | "RequestExpired"
        | "AuthFailure"
        | "InvalidClientTokenId"
        | "MissingAuthenticationToken" => clock(skew),
        "OptInRequired" => format!("this account does not use {region}"),
        "OperationNotPermitted" => "EC2 does not allow it: is stop protection on?".to_owned(),
        "UnknownParameter" => "this endpoint does not know an option: set `skip_os_shutdown = false`".to_owned(),
        _ if code.ends_with(".NotFound") || code.ends_with(".Malformed") => {
            format!("EC2 in {region} knows no such thing in this account: wrong region, account or id?")
        }
        _ => return format!("{code}: {message}"),
    };
    format!("{meaning} ({code}: {message})")
}

fn is_off(skew: Skew) -> bool {
    skew.is_some_and(|seconds| seconds.abs() > SKEW_LIMIT)
}

fn clock(skew: Skew) -> String {
    match skew {
        Some(seconds) if is_off(skew) => {
            let side = if seconds > 0 { "ahead of" } else { "behind" };
            let (minutes, rest) = (seconds.abs() / 60, seconds.abs() % 60);
            format!("this node's clock is {minutes}m {rest}s {side} EC2's, more than it accepts: set the clock")
        }
        Some(_) => "the secret key is wrong (this node's clock is right)".to_owned(),
        None => "the secret key is wrong, or this node's clock is".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: &str, skew: Skew) -> String {
        explain("StopInstances", "eu-central-1", code, "M", skew)
    }

    #[test]
    fn a_clock_that_is_off_is_named_with_its_measure() {
        for code in ["SignatureDoesNotMatch", "RequestExpired", "AuthFailure"] {
            let text = said(code, Some(-423));
            assert!(text.contains("clock is 7m 3s behind EC2's") && text.contains(code), "{text}");
        }
        assert!(said("RequestExpired", Some(423)).contains("ahead of"));
    }

    #[test]
    fn a_clock_that_is_right_is_not_blamed() {
        assert!(!said("AuthFailure", Some(2)).contains("clock"));
        assert!(
            said("SignatureDoesNotMatch", Some(2)).starts_with("the secret key is wrong (this node's clock is right)")
        );
        assert!(said("SignatureDoesNotMatch", None).contains("or this node's clock is"));
    }

    #[test]
    fn a_long_text_is_cut_and_what_nobody_can_read_is_left_out() {
        assert_eq!(short("not\n authorized. Encoded authorization failure message: abc"), "not authorized.");
        assert_eq!(short(&"x".repeat(5000)).chars().count(), LONGEST_TEXT + 1);
        assert_eq!(short("\x1b[31mred"), "[31mred");
    }

    #[test]
    fn only_a_real_no_is_a_refusal() {
        let answer = |code: &str| Failure::Said { code: code.to_owned(), text: String::new() }.answer();
        for no in ["UnauthorizedOperation", "IncorrectInstanceState", "IncorrectState", "OperationNotPermitted"] {
            assert_eq!(answer(no), Answer::Refused, "{no}");
        }
        for unclear in ["AuthFailure", "InvalidInstanceID.NotFound", "InvalidVolume.NotFound", "RequestExpired", ""] {
            assert_eq!(answer(unclear), Answer::Failed, "{unclear}");
        }
    }
}
