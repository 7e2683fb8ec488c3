//! Looks at the files of secrets that this process may see, so that a wrong one is found before it is needed.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

use super::super::checked::{AgentKind, SecretSource};
use super::super::diagnostics::Finding;
use super::super::raw::{self, Fence};
use super::super::value::Findings;

/// IPMI 2.0 section 22.30: a password has at most 20 bytes (16 for IPMI 1.5 sessions). More would be cut in silence.
const LONGEST: usize = 20;
/// No password or key of a fence device comes near this; a larger file was named by mistake.
const LARGEST: u64 = 4096;

/// Checks the secret files of every agent; says nothing of one that cannot be looked at here.
pub fn check_secret_files(fence: &Fence, f: &mut Findings) {
    for agent in &fence.agents {
        let place = agent.secret_span.as_ref().unwrap_or(&agent.span);
        for path in files(agent) {
            if let Some((label, help)) = exposed(path) {
                let title = format!("the secret file {} cannot be used", path.display());
                f.push(Finding::error(title).at(place, label).help(help));
            }
            let Some((label, help)) = read(path).and_then(|secret| problem(&secret, agent.ipmi.is_some())) else {
                continue;
            };
            let title = match agent.ipmi {
                Some(_) => format!("the password in {} cannot be used over IPMI", path.display()),
                None => format!("the secret in {} cannot be used", path.display()),
            };
            f.push(Finding::error(title).at(place, label).help(help));
        }
    }
}

fn files(agent: &raw::Agent) -> Vec<&Path> {
    let ipmi = agent.ipmi.iter().filter_map(|ipmi| ipmi.password.as_ref());
    let others = agent.other.iter().filter_map(AgentKind::facts).flat_map(|facts| facts.secrets());
    let file = ipmi.chain(others).filter_map(|source| match source {
        SecretSource::File(path) => Some(path.as_path()),
        SecretSource::Credential(_) => None,
    });
    file.collect()
}

/// Who else could have read it: the daemon refuses to start with such a file.
fn exposed(path: &Path) -> Option<(String, String)> {
    let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let (mode, uid, shown) = (meta.mode() & 0o7777, meta.uid(), path.display());
    if mode & 0o077 != 0 {
        let help = format!("`chmod 600 {shown}`; if anybody may have read it, set a new secret in the device");
        return Some((format!("others may read it (mode {mode:04o})"), help));
    }
    let trusted = uid == 0 || uid == rustix::process::geteuid().as_raw();
    (!trusted).then(|| (format!("it belongs to uid {uid}"), format!("`chown root {shown}`")))
}

fn read(path: &Path) -> Option<Zeroizing<Vec<u8>>> {
    let file = File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    let mut secret = Zeroizing::new(Vec::with_capacity(LARGEST as usize + 1));
    file.take(LARGEST + 1).read_to_end(&mut secret).ok()?;
    Some(secret)
}

fn problem(secret: &[u8], over_ipmi: bool) -> Option<(String, &'static str)> {
    let large = secret.len() as u64 > LARGEST;
    let secret = secret.strip_suffix(b"\n").unwrap_or(secret);
    match secret.len() {
        0 => Some(("the file is empty".into(), "write the secret into it, with no line break but a last one")),
        _ if large => {
            Some((format!("it has more than {LARGEST} bytes"), "name the file of the secret: is this the right one?"))
        }
        _ if !over_ipmi => None,
        _ if secret.iter().any(|b| matches!(b, b'\n' | b'\r' | b'\t' | 0)) => {
            let label = "it has a line break, a tab or a NUL byte inside, where ipmitool ends a password";
            Some((label.into(), "write the password on one line, without CR; if it has a tab, set another in the BMC"))
        }
        n if n > LONGEST => Some((
            format!("it has {n} bytes, IPMI carries at most {LONGEST}"),
            "set a password of at most 20 bytes (16 on BMCs that know IPMI 1.5 only); it is never cut in silence",
        )),
        _ => None,
    }
}
