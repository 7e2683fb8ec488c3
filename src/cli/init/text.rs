//! The configuration as it is written: each table with its reason, each key of a part with what it is. Pure.

use std::fmt::Write as _;
use std::path::Path;

use super::kinds::{Key, Shape, Usual};
use super::pair::{Pair, Part, Value, words};
use crate::cli::args::Data;

const TIMES: &str = "\
# Times. The defaults fit two machines of one room, and lease and margin are computed from all the others: `leasehold
# check` prints them with their arithmetic, leasehold.toml(5) says what each must exceed. These are the defaults:
#
# [heartbeat]
# interval = \"250ms\"
# dead_after = \"1.5s\"
#
# [lease]
# pause = \"1s\"
# drift_ppm = 200
";

/// The whole file. `etc` is its folder.
pub fn of(pair: &Pair, etc: &Path) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail, here and below.
    let _ = write!(text, "{}", head(pair, etc));
    nodes(&mut text, pair);
    links(&mut text, pair);
    let _ = write!(text, "\n{TIMES}");
    guard(&mut text, pair);
    fence(&mut text, pair, etc);
    resources(&mut text, pair, etc);
    text
}

fn head(pair: &Pair, etc: &Path) -> String {
    let [first, second] = &pair.nodes;
    let cluster = pair.cluster.clone().unwrap_or_else(|| format!("{first}-{second}"));
    let confirm_only = match pair.agents.is_empty() {
        true => {
            "\n# No fence agent: a take-over waits for an operator who has seen that the other node is off.\nfence = \"confirm-only\"\n"
        }
        false => "",
    };
    let lone = match pair.lone_primary_stops {
        true => {
            "# Accepted: without its standby the primary stops, since only volumes are fenced.\nlone_primary = \"stop\"\n"
        }
        false => "",
    };
    format!(
        "# leasehold: the pair of {first} and {second}, as `leasehold init` wrote it.\n#\n\
         # The same file belongs on both nodes: neither takes over while they differ. `leasehold check` tells everything that\n\
         # is wrong; every setting is in leasehold.toml(5).\n{confirm_only}\n\
         [cluster]\nname = {}\n\
         # The key of both nodes, mode 0600.\nkey = {}\n\
         # \"shared\": both nodes reach one set of data. \"replicated\": each holds its own, which may be behind.\ndata = {}\n{lone}",
        quoted(&cluster),
        quoted(&etc.join("key").to_string_lossy()),
        quoted(data(pair)),
    )
}

fn data(pair: &Pair) -> &'static str {
    let replicates = pair.resources.iter().any(|part| part.kind.word == "postgres");
    match pair.data {
        Some(Data::Shared) => "shared",
        Some(Data::Replicated) => "replicated",
        None if replicates => "replicated",
        None => "shared",
    }
}

fn nodes(text: &mut String, pair: &Pair) {
    let _ = write!(text, "\n# Their order must never change: the first mints even tokens, the second odd ones.\n");
    for node in &pair.nodes {
        let _ = write!(text, "[[node]]\nname = {}\n\n", quoted(node));
    }
}

fn links(text: &mut String, pair: &Pair) {
    let _ = writeln!(
        text,
        "# Heartbeats, UDP port 7420. Any one link suffices; the best two share no cable, switch or card."
    );
    for link in &pair.links {
        let _ =
            write!(text, "[[link]]\nname = {}\naddresses = {}\n\n", quoted(&link.name), table(pair, &link.addresses));
    }
    text.pop();
}

fn guard(text: &mut String, pair: &Pair) {
    let (watchdog, why) = match pair.watchdog {
        true => ("auto", "It resets a node whose kernel hangs. Both nodes need one: `wdctl` shows it."),
        false => {
            ("none", "\"auto\" where both nodes have one (`wdctl` shows it): it resets a node whose kernel hangs.")
        }
    };
    let _ = write!(text, "\n[guard]\n# {why}\nwatchdog = \"{watchdog}\"\n");
}

fn fence(text: &mut String, pair: &Pair, etc: &Path) {
    if pair.agents.is_empty() {
        return;
    }
    let _ = write!(
        text,
        "\n[fence]\n# Who shoots first when all links fail; the other one waits `head_start` longer.\nfirst = \"primary\"\n\
         # \"after-promotion\" switches a fenced node on again.\npower_on = \"never\"\n"
    );
    for (index, part) in pair.agents.iter().enumerate() {
        let _ = write!(text, "\n# {}: {}. More: leasehold-fence-{0}(7).\n", part.kind.word, part.kind.what);
        for target in 0..2 {
            let name = agent_name(pair, index, target);
            let target_name = quoted(&pair.nodes[target]);
            let _ = write!(
                text,
                "[[fence.agent]]\nname = {}\ntarget = {target_name}\nkind = \"{}\"\n",
                quoted(&name),
                part.kind.word
            );
            for line in lines(pair, part, Some(target), etc) {
                let _ = writeln!(text, "{line}");
            }
            text.push('\n');
        }
        text.pop();
    }
}

/// `bmc-heron`; where two kinds would be called the same, the later one has its number.
fn agent_name(pair: &Pair, index: usize, target: usize) -> String {
    let part = &pair.agents[index];
    let alike = pair.agents[..index].iter().filter(|other| other.kind.prefix == part.kind.prefix).count();
    let number = if alike == 0 { String::new() } else { format!("{}", alike + 1) };
    let prefix = match part.value("name") {
        Some(Value::Both(name)) => name.clone(),
        Some(Value::Each(names)) => return names[target].clone(),
        None => format!("{}{number}", part.kind.prefix),
    };
    format!("{prefix}-{}", pair.nodes[target])
}

fn resources(text: &mut String, pair: &Pair, etc: &Path) {
    if pair.resources.is_empty() {
        let _ =
            write!(text, "\n# What fails over: [[resource]] tables, started in their order and stopped in reverse.\n");
        return;
    }
    let _ = write!(
        text,
        "\n# What fails over, started in this order and stopped in reverse. `start_timeout` and `stop_timeout` bound how long\n\
         # that may take; the time of all stops is part of every lease.\n"
    );
    for (index, part) in pair.resources.iter().enumerate() {
        let _ = write!(
            text,
            "[[resource]]\nname = {}\nkind = \"{}\"\n",
            quoted(&resource_name(pair, index)),
            part.kind.word
        );
        for line in lines(pair, part, None, etc) {
            let _ = writeln!(text, "{line}");
        }
        text.push('\n');
    }
    text.pop();
}

fn resource_name(pair: &Pair, index: usize) -> String {
    let plain = |index: usize| {
        let part = &pair.resources[index];
        match (part.value("name"), part.value("unit")) {
            (Some(Value::Both(name)), _) => name.clone(),
            (_, Some(Value::Both(unit))) => unit.rsplit_once('.').map_or(unit.as_str(), |(stem, _)| stem).to_owned(),
            _ => part.kind.prefix.to_owned(),
        }
    };
    let name = plain(index);
    match (0..index).filter(|earlier| plain(*earlier) == name).count() {
        0 => name,
        alike => format!("{name}{}", alike + 1),
    }
}

/// The keys of an agent against the node `target`, or of a resource: those of its kind, then what else was given.
fn lines(pair: &Pair, part: &Part, target: Option<usize>, etc: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for key in part.kind.keys {
        let Some(value) = value(pair, part, key, etc) else { continue };
        // Said once: the agent against the second node follows at once.
        if target != Some(1) {
            lines.push(format!("# {}", key.about));
        }
        lines.push(format!("{} = {}", key.name, written(pair, &value, key.shape, target)));
    }
    let more =
        part.values.iter().filter(|(name, _)| name != "name" && part.kind.keys.iter().all(|key| key.name != name));
    lines.extend(more.map(|(name, value)| format!("{name} = {}", written(pair, value, shape_of(name, value), target))));
    lines
}

/// What was given for a key, else what is usual.
pub fn value(pair: &Pair, part: &Part, key: &Key, etc: &Path) -> Option<Value> {
    if let Some(given) = part.value(key.name) {
        return Some(given.clone());
    }
    match key.usual {
        Usual::Missing => None,
        Usual::Offered(text) | Usual::Written(text) if key.each => {
            Some(Value::Each([0, 1].map(|node| filled(text, pair, node, etc))))
        }
        Usual::Offered(text) | Usual::Written(text) => Some(Value::Both(filled(text, pair, 0, etc))),
        Usual::Other(key) => match part.value(key)? {
            Value::Each([first, second]) => Some(Value::Each([second.clone(), first.clone()])),
            Value::Both(_) => None,
        },
    }
}

fn filled(text: &str, pair: &Pair, node: usize, etc: &Path) -> String {
    let address = pair.links.first().map_or("", |link| link.addresses[node].as_str());
    text.replace("{etc}", &etc.to_string_lossy()).replace("{node}", &pair.nodes[node]).replace("{address}", address)
}

fn written(pair: &Pair, value: &Value, shape: Shape, target: Option<usize>) -> String {
    match (value, target) {
        (Value::Both(text), _) => shaped(text, shape),
        (Value::Each(each), Some(target)) => shaped(&each[target], shape),
        (Value::Each(each), None) => table(pair, each),
    }
}

fn shaped(text: &str, shape: Shape) -> String {
    match shape {
        Shape::Text => quoted(text),
        Shape::Bare => text.to_owned(),
        Shape::Words => {
            let words = words(text).unwrap_or_else(|_| vec![text.to_owned()]);
            format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", "))
        }
    }
}

/// How a key is written that no kind lists here: by what it is called and what it looks like.
fn shape_of(name: &str, value: &Value) -> Shape {
    let text = match value {
        Value::Both(text) => text,
        Value::Each([first, _]) => first,
    };
    match name {
        "args" | "stop" | "status" | "ready" | "command" => Shape::Words,
        name if name.contains('.') => Shape::Text,
        _ if text == "true" || text == "false" || text.parse::<u32>().is_ok() => Shape::Bare,
        _ => Shape::Text,
    }
}

/// `{ heron = "…", plover = "…" }`
fn table(pair: &Pair, each: &[String; 2]) -> String {
    let entry = |node: usize| format!("{} = {}", key(&pair.nodes[node]), quoted(&each[node]));
    format!("{{ {}, {} }}", entry(0), entry(1))
}

/// A key may stand bare, but for one with a dot in it.
fn key(name: &str) -> String {
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
