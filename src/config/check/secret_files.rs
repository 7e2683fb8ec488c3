//! Looks at password files that this process may read, so that a wrong one is found before it is needed.

use std::io::Read;
use std::path::Path;

use zeroize::Zeroizing;

use super::super::diagnostics::Finding;
use super::super::raw::Fence;
use super::super::value::Findings;

/// IPMI 2.0 section 22.30: a password has at most 20 bytes (16 for IPMI 1.5 sessions). More would be cut in silence.
const LONGEST: usize = 20;

/// Checks each password file of an IPMI agent; says nothing of one that cannot be read here.
pub fn check_secret_files(fence: &Fence, f: &mut Findings) {
    for file in fence.agents.iter().filter_map(|a| a.ipmi.as_ref()?.password_file.given()) {
        let Some((label, help)) = read(&file.value).and_then(|secret| problem(&secret)) else { continue };
        let title = format!("the password in {} cannot be used over IPMI", file.value.display());
        f.push(Finding::error(title).at(&file.span, label).help(help));
    }
}

fn read(path: &Path) -> Option<Zeroizing<Vec<u8>>> {
    let file = std::fs::File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    let mut secret = Zeroizing::new(Vec::with_capacity(4096));
    file.take(4096).read_to_end(&mut secret).ok()?;
    Some(secret)
}

fn problem(secret: &[u8]) -> Option<(String, &'static str)> {
    let secret = secret.strip_suffix(b"\n").unwrap_or(secret);
    match secret.len() {
        0 => Some(("the file is empty".into(), "write the password into it, with no line break but a last one")),
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
