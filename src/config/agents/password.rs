//! The login of an agent whose device wants a password: never the password itself, only where it lies.

use super::super::checked::SecretSource;
use super::super::diagnostics::Finding;
use super::super::secret_source;
use super::super::value::{Field, Findings, Section};

/// Reads `password_file` or `password_credential`. `None`: reported.
pub fn read(s: &mut Section<'_>, f: &mut Findings) -> Option<SecretSource> {
    let literal = refuse_literal(s, f);
    match secret_source::read(s, "password_file", "password_credential", f) {
        Field::Bad => None,
        _ if literal => None,
        Field::Given(source) => Some(source.value),
        Field::Absent => {
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
