//! The login of an agent whose device wants a password: never the password itself, only where it lies.

use super::super::checked::SecretSource;
use super::super::diagnostics::Finding;
use super::super::value::{Field, Findings, Section};

/// Reads `password_file` or `password_credential`. `None`: reported.
pub fn read(s: &mut Section<'_>, f: &mut Findings) -> Option<SecretSource> {
    let literal = refuse_literal(s, f);
    let file = s.path("password_file", f);
    let credential = s.name("password_credential", f);
    match (file, credential) {
        (Field::Bad, _) | (_, Field::Bad) => None,
        _ if literal => None,
        (Field::Given(file), Field::Absent) => Some(SecretSource::File(file.value)),
        (Field::Absent, Field::Given(name)) => Some(SecretSource::Credential(name.value)),
        (Field::Given(file), Field::Given(name)) => {
            let finding = Finding::error("`password_file` and `password_credential` exclude one another");
            let finding = finding.at(&name.span, "a second source").with(&file.span, "the first");
            f.push(finding.help("keep one of them"));
            None
        }
        (Field::Absent, Field::Absent) => {
            let finding = Finding::error("the agent has no password").at(&s.span, "where is its password?");
            f.push(finding.help(
                "add `password_file = \"/etc/leasehold/bmc-heron\"` (mode 0600) or `password_credential = \"bmc-heron\"`",
            ));
            None
        }
    }
}

fn refuse_literal(s: &mut Section<'_>, f: &mut Findings) -> bool {
    let Some(span) = s.key_span("password") else { return false };
    s.know("password");
    let finding = Finding::error("a password stands in the configuration");
    let finding = finding.at(&span, "its value is not read and not shown");
    let finding = finding.note("this file is copied, compared and pasted into tickets; a secret is not");
    f.push(finding.help(
        "put the password into a file of mode 0600 and write `password_file = \"/etc/leasehold/bmc-heron\"`, or give it \
         to the unit with LoadCredential= and write `password_credential = \"bmc-heron\"`; then change the password",
    ));
    true
}
