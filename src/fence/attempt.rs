//! What one agent sent and read in one attempt, and the verdict that follows from it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::core::{Span, SystemUuid, Token};

use super::identity::is_known;
use super::{Identity, Outcome, Reading};

/// Tells the time of day (RFC 3339) for the evidence, and for requests that are signed with it. The clock belongs to
/// another room; the daemon hands it in.
pub type Stamp = fn() -> String;

/// The longest text kept of one answer, in characters: a page of HTML is no evidence.
const MAX_TEXT: usize = 400;
/// The most entries kept of one attempt; a device that flaps for a minute is told by its beginning and its count.
const MAX_ENTRIES: usize = 200;

/// One exchange with a device. Never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    pub agent: String,
    /// When the answer was first given, as the daemon's clock writes it; empty without a clock.
    pub at: String,
    pub sent: String,
    pub read: String,
    /// How many times in a row exactly this happened.
    pub times: u32,
}

/// Gathers the evidence of one agent's attempt; it outlives the attempt that was cut off.
#[derive(Debug)]
pub struct Attempt {
    agent: String,
    stamp: Stamp,
    expected: Option<SystemUuid>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    evidence: Vec<Evidence>,
    last: Option<Reading>,
    refusal: Option<Option<Token>>,
    named: Option<String>,
    identity: Option<Identity>,
    over_limit: bool,
}

impl Attempt {
    pub fn new(agent: impl Into<String>, stamp: Stamp) -> Attempt {
        Attempt { agent: agent.into(), stamp, expected: None, state: Mutex::default() }
    }

    /// The target is the machine with this UUID.
    pub fn expecting(self, expected: Option<SystemUuid>) -> Attempt {
        Attempt { expected, ..self }
    }

    /// The UUID of the machine that is meant, if it ever told it. An agent whose device names another one sends nothing.
    pub fn expected(&self) -> Option<SystemUuid> {
        self.expected
    }

    /// The time of day, for requests that must be dated; `None` without a clock that tells it.
    pub fn now(&self) -> Option<SystemTime> {
        (self.stamp)().parse::<jiff::Timestamp>().ok()?.try_into().ok()
    }

    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Something was said that decides nothing by itself.
    pub fn note(&self, sent: &str, read: &str) {
        self.push(sent, read);
    }

    /// The state of the target was asked for.
    pub fn reading(&self, sent: &str, read: &str, reading: Reading) {
        self.push(sent, read);
        self.state().last = Some(reading);
    }

    /// The device said no; `highest` when it named the token that it holds.
    pub fn refusal(&self, sent: &str, read: &str, highest: Option<Token>) {
        self.push(sent, read);
        self.state().refusal = Some(highest);
    }

    /// The device took a command. What it refused before says nothing any more of how this ends.
    pub fn accepted(&self) {
        self.state().refusal = None;
    }

    /// The device named what it controls: the UUID of a machine, the id of an instance. Two nodes never share one.
    pub fn names(&self, device: &str) {
        self.state().named = Some(tidy(device));
    }

    /// What the device controls, by its own word.
    pub fn named(&self) -> Option<String> {
        self.state().named.clone()
    }

    /// The device named the machine that it controls. Says whose that is, and keeps both for the journal.
    pub fn identify(&self, seen: Option<SystemUuid>) -> Identity {
        self.identify_among(seen.as_slice())
    }

    /// The same for a device that may have told the UUID in any of these forms; the first is the one that it showed.
    pub fn identify_among(&self, forms: &[SystemUuid]) -> Identity {
        let compared = |form: &SystemUuid| Identity::compare(self.expected, Some(*form));
        let proven = forms.iter().any(|form| compared(form) == Identity::Proven);
        let identity = if proven { Identity::Proven } else { forms.first().map_or(Identity::Unknown, compared) };
        // One machine has one name, in whichever order of bytes its device shows it.
        let name = if proven { self.expected } else { forms.first().copied().filter(is_known) };
        let mut state = self.state();
        state.identity = Some(identity);
        state.named = name.map(|uuid| uuid.to_string()).or(state.named.take());
        identity
    }

    /// What [`Attempt::identify`] found last.
    pub fn identity(&self) -> Identity {
        self.state().identity.unwrap_or(Identity::Unknown)
    }

    /// The agent's own limit of `limit` ended it.
    pub fn give_up(&self, limit: Span) {
        self.push("(waiting)", &format!("given up after its limit of {limit}"));
        self.state().over_limit = true;
    }

    pub fn is_over_limit(&self) -> bool {
        self.state().over_limit
    }

    /// What is known when the time is up: a refusal counts only if the target was seen to act after all.
    pub fn verdict(&self) -> Outcome {
        match *self.state() {
            State { refusal: Some(highest), last: Some(Reading::On), .. } => Outcome::Refused { highest },
            State { refusal: Some(highest @ Some(_)), .. } => Outcome::Refused { highest },
            _ => Outcome::Unknown,
        }
    }

    pub fn evidence(&self) -> Vec<Evidence> {
        self.state().evidence.clone()
    }

    fn push(&self, sent: &str, read: &str) {
        let (sent, read) = (tidy(sent), tidy(read));
        let mut state = self.state();
        let room = state.evidence.len() < MAX_ENTRIES;
        match state.evidence.last_mut() {
            Some(last) if last.sent == sent && last.read == read => last.times = last.times.saturating_add(1),
            Some(_) | None if room => {
                let (agent, at) = (self.agent.clone(), (self.stamp)());
                state.evidence.push(Evidence { agent, at, sent, read, times: 1 });
            }
            Some(_) | None => {}
        }
    }

    /// A panic while the lock was held leaves whole entries behind, so the state is good to read.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line, without control characters, of bounded length.
pub(super) fn tidy(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = line.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
    if line.chars().count() > MAX_TEXT {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> Attempt {
        Attempt::new("bmc", || "noon".to_owned())
    }

    #[test]
    fn the_same_answer_again_and_again_is_one_entry_with_a_count() {
        let a = attempt();
        (0..5).for_each(|_| a.reading("status", "on", Reading::On));
        a.reading("status", "off", Reading::Off);
        let times: Vec<_> = a.evidence().iter().map(|e| e.times).collect();
        assert_eq!(times, [5, 1]);
    }

    #[test]
    fn a_refusal_counts_only_when_the_target_was_read_on() {
        let a = attempt();
        a.refusal("off", "0xd5", None);
        assert_eq!(a.verdict(), Outcome::Unknown);
        a.reading("status", "on", Reading::On);
        assert_eq!(a.verdict(), Outcome::Refused { highest: None });
        a.reading("status", "?", Reading::Unknown);
        assert_eq!(a.verdict(), Outcome::Unknown);
    }

    #[test]
    fn a_machine_is_named_as_it_names_itself_in_whichever_order_the_device_shows_it() {
        let mine = SystemUuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        let reversed = SystemUuid([16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
        let a = attempt().expecting(Some(mine));
        assert_eq!(a.identify(Some(reversed)), Identity::Foreign);
        assert_eq!((a.identity(), a.named()), (Identity::Foreign, Some(reversed.to_string())));
        assert_eq!(a.identify_among(&[reversed, mine]), Identity::Proven);
        assert_eq!((a.identity(), a.named()), (Identity::Proven, Some(mine.to_string())));
    }

    #[test]
    fn firmware_without_a_uuid_names_nothing() {
        for seen in [None, Some(SystemUuid([0; 16])), Some(SystemUuid([0xff; 16]))] {
            let a = attempt();
            assert_eq!((a.identify(seen), a.named()), (Identity::Unknown, None));
        }
    }

    #[test]
    fn an_answer_is_kept_in_one_bounded_line() {
        let a = attempt();
        a.note("status", &format!("<html>\r\n\x1b[31m{}", "x".repeat(5000)));
        let read = &a.evidence()[0].read;
        assert!(read.starts_with("<html> [31mxxx") && read.chars().count() == MAX_TEXT + 1, "{read}");
    }

    #[test]
    fn a_flapping_device_does_not_fill_the_memory() {
        let a = attempt();
        (0..5000).for_each(|i| a.note("status", &i.to_string()));
        assert_eq!(a.evidence().len(), MAX_ENTRIES);
    }
}
