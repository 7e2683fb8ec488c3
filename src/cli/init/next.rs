//! What is left to do after `leasehold init`, each step with the command to copy. Pure, but for looking whether a file that
//! the configuration names is there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::pair::{Pair, Part, Value};
use super::text;
use crate::cli::args::CONFIG;

/// Keys of agents that name a file which must be there: with a secret in it, or not.
const SECRETS: [&str; 5] =
    ["password_file", "application_credential_secret_file", "credentials_file", "environment_file", "secret_options."];
const PLAIN: [&str; 3] = ["ca_file", "key_file", "known_hosts"];

/// A file that the fence agents need on both nodes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Need {
    file: PathBuf,
    secret: bool,
}

/// The steps from here to a pair that serves. `here`: which node this is, if that is known.
pub fn steps(pair: &Pair, here: Option<usize>, config: &Path, key: &Path) -> String {
    let needs = needs(pair, config.parent().unwrap_or(Path::new("/")));
    let mut text = String::new();
    missing(&mut text, needs.iter().filter(|need| !need.file.exists()));
    name(&mut text, pair, here);
    let peer = &pair.nodes[here.map_or(1, |here| 1 - here)];
    let named = if config == Path::new(CONFIG) { String::new() } else { format!(" {}", quoted(config)) };
    let copy = copy(peer, [config, key].into_iter().chain(needs.iter().map(|need| need.file.as_path())));
    let mut number = 0;
    let mut step = |text: &mut String, what: &str, command: &str| {
        number += 1;
        // Writing into a string cannot fail, here and below.
        let _ = write!(text, "{number}. {what}:\n     {command}\n");
    };
    let _ = writeln!(text, "Then:");
    if !pair.agents.is_empty() {
        let live = format!("leasehold check{named} --live");
        step(&mut text, "Look at every fence device, which changes nothing", &live);
    }
    step(&mut text, &format!("Copy all of it to {peer}, over ssh and with its modes"), &copy);
    if !pair.agents.is_empty() {
        step(
            &mut text,
            &format!("The same look from {peer}"),
            &format!("ssh root@{peer} leasehold check{named} --live"),
        );
    }
    for unit in units(pair) {
        let disable = format!("systemctl disable --now {unit}");
        step(&mut text, "On both nodes, since from now on leasehold alone starts it", &disable);
    }
    step(&mut text, "On both nodes", "systemctl enable --now leasehold");
    step(&mut text, "See whether the pair is whole, and what is wrong if not", "leasehold status");
    text
}

fn missing<'n>(text: &mut String, needs: impl Iterator<Item = &'n Need>) {
    let (secret, plain): (Vec<&Need>, Vec<&Need>) = needs.partition(|need| need.secret);
    if !secret.is_empty() {
        let _ = writeln!(
            text,
            "Still missing, each a file that holds nothing but its secret. Type it, Enter, Ctrl-D; it then stands in no"
        );
        let _ = writeln!(text, "history and no list of processes:");
        for need in secret {
            let _ = writeln!(text, "     (umask 077; cat > {})", quoted(&need.file));
        }
    }
    for need in plain {
        let _ = writeln!(text, "Still missing: {}, which the fence agents need.", need.file.display());
    }
    if !text.is_empty() {
        text.push('\n');
    }
}

fn name(text: &mut String, pair: &Pair, here: Option<usize>) {
    if here.is_none() {
        let [first, second] = &pair.nodes;
        let _ = writeln!(
            text,
            "No node is called like this machine. Say on each which one it is, in /etc/default/leasehold:\n     \
             LEASEHOLD_NODE={first}   or   LEASEHOLD_NODE={second}\n"
        );
    }
}

/// One command, since what takes three is done by halves. tar keeps the modes, and nothing is ever readable meanwhile.
fn copy<'f>(peer: &str, files: impl Iterator<Item = &'f Path>) -> String {
    let files: Vec<String> = files.map(|file| quoted(file.strip_prefix("/").unwrap_or(file))).collect();
    format!("tar -C / -c {} | ssh root@{peer} 'umask 077; tar -C / -xp'", files.join(" "))
}

fn needs(pair: &Pair, etc: &Path) -> BTreeSet<Need> {
    let mut needs = BTreeSet::new();
    for part in &pair.agents {
        for (key, file) in files(pair, part, etc) {
            let secret = SECRETS.iter().any(|secret| key.starts_with(secret));
            if secret || PLAIN.contains(&key.as_str()) {
                needs.insert(Need { file: file.into(), secret });
            }
        }
    }
    needs
}

/// Every key of an agent with its values, those that are usual as well.
fn files(pair: &Pair, part: &Part, etc: &Path) -> Vec<(String, String)> {
    let usual = part.kind.keys.iter().filter_map(|key| Some((key.name.to_owned(), text::value(pair, part, key, etc)?)));
    let all = usual.chain(part.values.iter().cloned());
    all.flat_map(|(key, value)| match value {
        Value::Both(text) => vec![(key, text)],
        Value::Each([first, second]) => vec![(key.clone(), first), (key, second)],
    })
    .collect()
}

fn units(pair: &Pair) -> impl Iterator<Item = &str> {
    pair.resources.iter().filter(|part| part.kind.word == "unit").filter_map(|part| match part.value("unit") {
        Some(Value::Both(unit)) => Some(unit.as_str()),
        Some(Value::Each(_)) | None => None,
    })
}

/// For a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
