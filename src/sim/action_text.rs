//! Actions as scripts write them, both ways: a failing seed prints itself as a script.

use std::fmt;

use crate::core::{Command, NodeId};

use super::action::{Action, DiskAction, GroupAction, Operator, PathChange, Snatch, SnatchHow, Wires};
use super::disk::DiskMode;
use super::fence::DeviceMode;
use super::machine::Pause;
use super::matching::Pattern;
use super::text::{self, name, show_range, show_share, show_time};

const PAUSES: [(&str, Pause); 4] = [
    ("pause-daemon", Pause::Daemon),
    ("pause", Pause::Processes),
    ("suspend", Pause::Suspend),
    ("hypervisor-pause", Pause::Hypervisor),
];

const DEVICE_MODES: [(&str, DeviceMode); 6] = [
    ("works", DeviceMode::Works),
    ("refuse", DeviceMode::Refuses),
    ("lie", DeviceMode::Lies),
    ("unreachable", DeviceMode::Unreachable),
    ("lose-commands", DeviceMode::LosesCommands),
    ("lose-answers", DeviceMode::LosesAnswers),
];

const DISK_ACTIONS: [(&str, DiskAction); 8] = [
    ("works", DiskAction::Mode(DiskMode::Works)),
    ("stalled", DiskAction::Mode(DiskMode::Stalled)),
    ("full", DiskAction::Mode(DiskMode::Full)),
    ("failing-sync", DiskAction::Mode(DiskMode::FailingSync)),
    ("save", DiskAction::Save),
    ("restore", DiskAction::Restore),
    ("wipe", DiskAction::Wipe),
    ("damage", DiskAction::Damage),
];

const GROUP_ACTIONS: [(&str, GroupAction); 8] = [
    ("start-fails", GroupAction::StartFails),
    ("start-hangs", GroupAction::StartHangs),
    ("stop-hangs", GroupAction::StopHangs),
    ("kill-hangs", GroupAction::KillHangs),
    ("works", GroupAction::Works),
    ("fail", GroupAction::Fail),
    ("ready", GroupAction::Ready(true)),
    ("not-ready", GroupAction::Ready(false)),
];

const OPERATORS: [(&str, Operator); 11] = [
    ("failover", Operator::Plain(Command::Failover { force: false })),
    ("failover-force", Operator::Plain(Command::Failover { force: true })),
    ("fence", Operator::Plain(Command::Fence)),
    ("drill", Operator::Plain(Command::Drill)),
    ("confirm", Operator::Confirm),
    ("freeze", Operator::Plain(Command::Freeze)),
    ("thaw", Operator::Plain(Command::Thaw)),
    ("stop", Operator::Plain(Command::Stop)),
    ("stop-keeping", Operator::Plain(Command::StopKeeping)),
    ("init", Operator::Plain(Command::Init)),
    ("clear-alarms", Operator::Plain(Command::ClearAlarms)),
];

fn find<T: Copy>(table: &[(&str, T)], word: &str, what: &str) -> Result<T, String> {
    let found = table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let known: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        format!("`{word}` is no {what}: say one of {}", known.join(", "))
    })
}

fn named<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, v)| v == value).map_or("?", |(name, _)| name)
}

/// Reads one action; `both` in place of a node gives two.
pub fn parse(line: &str) -> Result<Vec<Action>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (verb, rest) = words.split_first().ok_or("an action is missing")?;
    match *verb {
        "heal" if rest.is_empty() => Ok(vec![Action::HealAll]),
        "mend" if rest.is_empty() => Ok(vec![Action::Mend]),
        "cut" => Ok(vec![Action::Cut(wires(rest)?.0)]),
        "heal" => Ok(vec![Action::Heal(wires(rest)?.0)]),
        "links" => links(rest),
        "drop" | "hold" | "repeat" => Ok(vec![Action::Snatch(snatch(verb, rest)?)]),
        "set" => set(rest),
        _ => {
            let (who, rest) = rest.split_first().ok_or_else(|| format!("`{verb}` of which node?"))?;
            let nodes = text::nodes(who)?;
            nodes.into_iter().map(|node| of_node(verb, node, rest)).collect()
        }
    }
}

fn of_node(verb: &str, node: NodeId, rest: &[&str]) -> Result<Action, String> {
    if let Some((_, what)) = PAUSES.iter().find(|(name, _)| *name == verb) {
        let length = text::time(rest.first().ok_or("a pause needs its length")?)?;
        return Ok(Action::Pause { node, what: *what, length });
    }
    let word = || rest.first().copied().ok_or_else(|| format!("`{verb} {}` what?", name(node)));
    Ok(match verb {
        "start" => Action::Start(node),
        "kill-daemon" => Action::KillDaemon(node),
        "restart-daemon" => Action::RestartDaemon(node),
        "crash" => Action::Crash(node),
        "reboot" => Action::Reboot { node, after: rest.first().map(|t| text::time(t)).transpose()? },
        "power-off" => Action::PowerOff(node),
        "power-cut" => Action::PowerCut(node),
        "power-on" => Action::PowerOn(node),
        "generation-id" => Action::GenerationId(node),
        "revoke" => Action::Revoke { node, revoked: true },
        "unrevoke" => Action::Revoke { node, revoked: false },
        "bmc" => Action::Bmc { node, mode: device_mode(word()?)? },
        "store" => Action::Store { node, mode: device_mode(word()?)? },
        "disk" => Action::Disk { node, action: disk_action(word()?)? },
        "group" => Action::Group { node, action: find(&GROUP_ACTIONS, word()?, "state of a group")? },
        "operator" => Action::Operator { node, operator: find(&OPERATORS, word()?, "command")? },
        _ => return Err(format!("`{verb}` is no action")),
    })
}

fn device_mode(word: &str) -> Result<DeviceMode, String> {
    match word.strip_prefix("late=") {
        Some(delay) => text::time(delay).map(DeviceMode::Late),
        None => find(&DEVICE_MODES, word, "state of a device (or late=5s)"),
    }
}

fn disk_action(word: &str) -> Result<DiskAction, String> {
    match word.strip_prefix("slow=") {
        Some(range) => text::range(range).map(|r| DiskAction::Mode(DiskMode::Slow(r))),
        None => find(&DISK_ACTIONS, word, "state of a disk (or slow=1s..2s)"),
    }
}

/// `heron->plover`
fn direction(word: &str) -> Result<NodeId, String> {
    let (from, to) = word.split_once("->").ok_or_else(|| format!("`{word}`: write heron->plover or both"))?;
    let from = text::node(from)?;
    if text::node(to)? == from.peer() { Ok(from) } else { Err(format!("`{word}` leads nowhere")) }
}

/// `both`, `heron->plover`, either with `link 0`; and the words after it.
fn wires<'a, 'b>(words: &'a [&'b str]) -> Result<(Wires, &'a [&'b str]), String> {
    let (which, rest) = words.split_first().ok_or("which direction? write heron->plover or both")?;
    let from = match *which {
        "both" => [true, true],
        one => {
            let from = direction(one)?;
            [from == NodeId::First, from == NodeId::Second]
        }
    };
    match rest {
        ["link", link, rest @ ..] => Ok((Wires { from, link: Some(text::number(link)?.min(255) as u8) }, rest)),
        _ => Ok((Wires { from, link: None }, rest)),
    }
}

fn links(words: &[&str]) -> Result<Vec<Action>, String> {
    let (wires, rest) = wires(words)?;
    let mut change = PathChange::default();
    for word in rest {
        match word.split_once('=') {
            Some(("delay", v)) => change.delay = Some(text::range(v)?),
            Some(("loss", v)) => change.loss = Some(text::share(v)?),
            Some(("reorder", v)) => change.reorder = Some(text::share(v)?),
            Some(("duplicate", v)) => change.duplicate = Some(text::share(v)?),
            Some(("corrupt", v)) => change.corrupt = Some(text::share(v)?),
            Some(("flap", v)) => {
                let (up, down) = v.split_once('/').ok_or("write flap=2s/3s: up, then down")?;
                change.flap = Some((text::time(up)?, text::time(down)?));
            }
            _ => return Err(format!("`{word}` is nothing that a link has")),
        }
    }
    Ok(vec![Action::Change { wires, change }])
}

fn snatch(verb: &str, words: &[&str]) -> Result<Snatch, String> {
    let (which, mut rest) = words.split_first().ok_or("which direction? write heron->plover")?;
    let from = direction(which)?;
    let (mut pattern, mut count, mut time) = (Pattern::default(), None, None);
    while let [key, value, more @ ..] = rest {
        match *key {
            "next" => count = Some(text::number(value)?.min(u64::from(u32::MAX)) as u32),
            "matching" => pattern = Pattern::parse(value)?,
            "until" | "at" => time = Some(text::time(value)?),
            _ => return Err(format!("`{key}`: say next, matching, until or at")),
        }
        rest = more;
    }
    if !rest.is_empty() {
        return Err(format!("`{}` has no value", rest[0]));
    }
    let how = match (verb, time) {
        ("drop", until) => SnatchHow::Drop { until },
        ("hold", Some(until)) => SnatchHow::Hold { until },
        ("repeat", Some(at)) => SnatchHow::Repeat { at },
        _ => return Err(format!("`{verb}` needs a time: until 12s, or at 12s")),
    };
    Ok(Snatch { from, pattern, how, count })
}

fn set(words: &[&str]) -> Result<Vec<Action>, String> {
    words
        .iter()
        .map(|word| {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: write key=value"))?;
            Ok(Action::Set { key: key.into(), value: value.into() })
        })
        .collect()
}

impl fmt::Display for Wires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.from {
            [true, false] => "heron->plover",
            [false, true] => "plover->heron",
            _ => "both",
        })?;
        self.link.map_or(Ok(()), |link| write!(f, " link {link}"))
    }
}

impl fmt::Display for PathChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(range) = self.delay {
            write!(f, " delay={}", show_range(range))?;
        }
        let shares =
            [("loss", self.loss), ("reorder", self.reorder), ("duplicate", self.duplicate), ("corrupt", self.corrupt)];
        for (key, share) in shares {
            if let Some(share) = share {
                write!(f, " {key}={}", show_share(share))?;
            }
        }
        self.flap.map_or(Ok(()), |(up, down)| write!(f, " flap={}/{}", show_time(up), show_time(down)))
    }
}

impl fmt::Display for Snatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.how {
            SnatchHow::Drop { .. } => "drop",
            SnatchHow::Hold { .. } => "hold",
            SnatchHow::Repeat { .. } => "repeat",
        };
        write!(f, "{verb} {}->{}", name(self.from), name(self.from.peer()))?;
        if let Some(count) = self.count {
            write!(f, " next {count}")?;
        }
        if !self.pattern.0.is_empty() {
            write!(f, " matching {}", self.pattern)?;
        }
        match self.how {
            SnatchHow::Drop { until: None } => Ok(()),
            SnatchHow::Drop { until: Some(t) } | SnatchHow::Hold { until: t } => write!(f, " until {}", show_time(t)),
            SnatchHow::Repeat { at } => write!(f, " at {}", show_time(at)),
        }
    }
}

fn shown_mode(mode: DeviceMode) -> String {
    match mode {
        DeviceMode::Late(delay) => format!("late={}", show_time(delay)),
        plain => named(&DEVICE_MODES, &plain).into(),
    }
}

fn shown_disk(action: DiskAction) -> String {
    match action {
        DiskAction::Mode(DiskMode::Slow(range)) => format!("slow={}", show_range(range)),
        plain => named(&DISK_ACTIONS, &plain).into(),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Start(n) => write!(f, "start {}", name(*n)),
            Action::KillDaemon(n) => write!(f, "kill-daemon {}", name(*n)),
            Action::RestartDaemon(n) => write!(f, "restart-daemon {}", name(*n)),
            Action::Pause { node, what, length } => {
                write!(f, "{} {} {}", named(&PAUSES, what), name(*node), show_time(*length))
            }
            Action::Crash(n) => write!(f, "crash {}", name(*n)),
            Action::Reboot { node, after: None } => write!(f, "reboot {}", name(*node)),
            Action::Reboot { node, after: Some(t) } => write!(f, "reboot {} {}", name(*node), show_time(*t)),
            Action::PowerOff(n) => write!(f, "power-off {}", name(*n)),
            Action::PowerCut(n) => write!(f, "power-cut {}", name(*n)),
            Action::PowerOn(n) => write!(f, "power-on {}", name(*n)),
            Action::Cut(wires) => write!(f, "cut {wires}"),
            Action::Heal(wires) => write!(f, "heal {wires}"),
            Action::HealAll => write!(f, "heal"),
            Action::Change { wires, change } => write!(f, "links {wires}{change}"),
            Action::Snatch(snatch) => snatch.fmt(f),
            Action::Bmc { node, mode } => write!(f, "bmc {} {}", name(*node), shown_mode(*mode)),
            Action::Store { node, mode } => write!(f, "store {} {}", name(*node), shown_mode(*mode)),
            Action::Revoke { node, revoked: true } => write!(f, "revoke {}", name(*node)),
            Action::Revoke { node, revoked: false } => write!(f, "unrevoke {}", name(*node)),
            Action::Disk { node, action } => write!(f, "disk {} {}", name(*node), shown_disk(*action)),
            Action::Group { node, action } => write!(f, "group {} {}", name(*node), named(&GROUP_ACTIONS, action)),
            Action::Operator { node, operator } => {
                write!(f, "operator {} {}", name(*node), named(&OPERATORS, operator))
            }
            Action::Set { key, value } => write!(f, "set {key}={value}"),
            Action::Mend => write!(f, "mend"),
            Action::GenerationId(n) => write!(f, "generation-id {}", name(*n)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_read_as_it_is_shown() {
        let lines = "start heron|kill-daemon plover|restart-daemon heron|pause heron 20s|pause-daemon heron 1500ms|\
            suspend plover 3s|hypervisor-pause heron 40s|crash heron|reboot heron|reboot plover 900ms|power-off heron|\
            power-cut plover|power-on heron|cut heron->plover|cut both link 1|heal plover->heron|heal|\
            links both delay=1ms..5ms loss=3% flap=2s/3s|drop heron->plover next 1 matching grant|\
            hold plover->heron next 1 matching release until 12s|repeat heron->plover at 9s|bmc heron late=5s|\
            bmc plover lie|store heron unreachable|revoke heron|unrevoke plover|disk heron slow=1s..2s|disk heron save|\
            group heron kill-hangs|group plover not-ready|operator heron failover-force|operator plover confirm|\
            set plover.term=10s|generation-id heron|mend";
        for line in lines.split('|') {
            let actions = parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(actions[0].to_string(), line);
        }
    }

    #[test]
    fn both_is_two_actions_and_nonsense_says_what_is_wrong() {
        assert_eq!(parse("start both").map(|a| a.len()), Ok(2));
        for line in
            ["", "dance heron", "start", "bmc heron sulk", "cut heron->heron", "hold heron->plover", "pause heron"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
