//! Where a secret lies: in a file of its own, or in a credential that systemd hands over. Two keys, of which one is given.

use super::checked::SecretSource;
use super::diagnostics::Finding;
use super::value::{At, Field, Findings, Section};

/// Reads `file` (an absolute path) or `credential` (its name). Both are an error.
pub fn read(
    s: &mut Section<'_>,
    file: &'static str,
    credential: &'static str,
    f: &mut Findings,
) -> Field<SecretSource> {
    let given = |value, span| Field::Given(At { value, span });
    match (s.path(file, f), s.name(credential, f)) {
        (Field::Bad, _) | (_, Field::Bad) => Field::Bad,
        (Field::Absent, Field::Absent) => Field::Absent,
        (Field::Given(at), Field::Absent) => given(SecretSource::File(at.value), at.span),
        (Field::Absent, Field::Given(at)) => given(SecretSource::Credential(at.value), at.span),
        (Field::Given(first), Field::Given(second)) => {
            let finding = Finding::error(format!("`{file}` and `{credential}` exclude one another"));
            let finding = finding.at(&second.span, "a second source").with(&first.span, "the first");
            f.push(finding.help("keep one of them"));
            Field::Bad
        }
    }
}
