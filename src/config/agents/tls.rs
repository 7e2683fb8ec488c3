//! Where an agent that speaks HTTP finds its device, and by what it knows that it is the right one.
//!
//! `ca_file`, `tls_pin_sha256` or, with neither, the system's store. Without TLS only where the file says so in words:
//! a secret that crosses the network readable is nobody's default.

use std::ops::Range;
use std::path::PathBuf;

use reqwest::Url;

use super::super::diagnostics::Finding;
use super::super::value::{At, Field, Findings, Section};

/// Bytes of a SHA-256.
const DIGEST: usize = 32;

/// How to see the digest of what a server shows.
const HOW_TO_SEE: &str = "openssl s_client -connect HOST:443 </dev/null | openssl x509 -noout -fingerprint -sha256";

/// Whom the agent believes to be its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Certificates that the system's store leads to.
    System,
    /// Certificates that lead to one of this file (PEM).
    CaFile(PathBuf),
    /// The one certificate with this SHA-256 (of its DER form), whatever its names and dates.
    PinSha256([u8; DIGEST]),
    /// Nobody checks anything: `http://`, as the file demands with `plaintext = true`.
    Plaintext,
}

/// Reads an `http(s)` URL: scheme, host and path, nothing else.
pub fn url(s: &mut Section<'_>, key: &'static str, f: &mut Findings) -> Field<Url> {
    let text = match s.string(key, f) {
        Field::Given(text) => text,
        Field::Absent => return Field::Absent,
        Field::Bad => return Field::Bad,
    };
    match parse(&text.value) {
        Ok(value) => Field::Given(At { value, span: text.span }),
        Err((label, help)) => {
            let finding = Finding::error(format!("`{}` is not the URL of a service", s.path_of(key)));
            f.push(finding.at(&text.span, label).help(help));
            Field::Bad
        }
    }
}

fn parse(text: &str) -> Result<Url, (String, String)> {
    let example = || "write it like \"https://host.example.net\"".to_owned();
    let url = Url::parse(text).map_err(|error| (error.to_string(), example()))?;
    let userinfo = !url.username().is_empty() || url.password().is_some();
    match url.scheme() {
        "https" | "http" if userinfo => {
            Err(("a login stands in it".into(), "take it out: user and password have keys of their own".into()))
        }
        "https" | "http" if url.query().is_some() || url.fragment().is_some() => {
            Err(("goes beyond the path".into(), "end it before `?` and `#`".into()))
        }
        "https" | "http" => Ok(url),
        _ => Err(("neither https nor http".into(), example())),
    }
}

/// Reads the keys of trust for what stands in `url` (absent: a well-known place over HTTPS). `None`: reported.
pub fn trust(s: &mut Section<'_>, url: &Field<Url>, f: &mut Findings) -> Option<Trust> {
    let ca = s.path("ca_file", f);
    let pin = pin(s, f);
    let plaintext = s.boolean("plaintext", f);
    if ca.is_bad() || pin.is_bad() || plaintext.is_bad() || url.is_bad() {
        return None;
    }
    let plain = plaintext.given().filter(|p| p.value).map(|p| &p.span);
    if !agrees(s, url, plain, f) || !one_only(&ca, &pin, plain, f) {
        return None;
    }
    Some(match (ca, pin, plain) {
        (_, _, Some(_)) => Trust::Plaintext,
        (Field::Given(file), ..) => Trust::CaFile(file.value),
        (_, Field::Given(pin), _) => Trust::PinSha256(pin.value),
        (Field::Absent | Field::Bad, Field::Absent | Field::Bad, None) => Trust::System,
    })
}

fn pin(s: &mut Section<'_>, f: &mut Findings) -> Field<[u8; DIGEST]> {
    let text = match s.string("tls_pin_sha256", f) {
        Field::Given(text) => text,
        Field::Absent => return Field::Absent,
        Field::Bad => return Field::Bad,
    };
    if let Some(value) = digest(&text.value) {
        return Field::Given(At { value, span: text.span });
    }
    let finding = Finding::error(format!("`{}` is not a SHA-256", s.path_of("tls_pin_sha256")));
    let finding = finding.at(&text.span, "64 hexadecimal digits expected");
    f.push(finding.note("colons between the bytes are allowed").help(format!("see it with `{HOW_TO_SEE}`")));
    Field::Bad
}

fn digest(text: &str) -> Option<[u8; DIGEST]> {
    let digits: Vec<char> = text.chars().filter(|c| *c != ':').collect();
    let byte = |pair: &[char]| Some((pair[0].to_digit(16)? * 16 + pair[1].to_digit(16)?) as u8);
    let bytes: Vec<u8> = digits.chunks_exact(2).map(byte).collect::<Option<_>>()?;
    let whole = digits.len() == 2 * DIGEST;
    bytes.try_into().ok().filter(|_| whole)
}

/// Scheme and `plaintext` say the same.
fn agrees(s: &Section<'_>, url: &Field<Url>, plain: Option<&Range<usize>>, f: &mut Findings) -> bool {
    let scheme = url.given().map_or("https", |at| at.value.scheme());
    match (scheme, plain) {
        ("https", Some(span)) => {
            let finding =
                Finding::error("`plaintext` is for `http://` only").at(span, "the service is asked over https");
            f.push(finding.with_some(url.span(), "here").help("take `plaintext` out"));
            false
        }
        ("https", None) => true,
        (_, None) => {
            let finding = Finding::error("the secret would cross the network readable");
            let finding = finding.at_some(url.span(), "without TLS");
            f.push(
                finding.help(
                    "write https://; only where nobody else can reach that network, add `plaintext = true` as well",
                ),
            );
            false
        }
        (_, Some(span)) => {
            let finding = Finding::warning(format!("{} is spoken to without TLS", s.label));
            let finding = finding.at(span, "whoever is on the path reads the secret and can lie about the state");
            f.push(finding.help("use https:// with `ca_file` or `tls_pin_sha256` if the device can do it"));
            true
        }
    }
}

/// At most one way of knowing the device.
fn one_only(ca: &Field<PathBuf>, pin: &Field<[u8; DIGEST]>, plain: Option<&Range<usize>>, f: &mut Findings) -> bool {
    let keys = [("ca_file", ca.span()), ("tls_pin_sha256", pin.span()), ("plaintext", plain)];
    let given: Vec<_> = keys.into_iter().filter_map(|(key, span)| Some((key, span?))).collect();
    let [(first, at), (second, again), ..] = given[..] else { return true };
    let finding = Finding::error(format!("`{first}` and `{second}` exclude one another"));
    let finding = finding.at(again, "a second way to know the server").with(at, "the first");
    f.push(finding.help("keep one of them"));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_with_and_without_colons() {
        let plain = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fFF";
        let pairs: Vec<_> = plain.as_bytes().chunks(2).map(|p| std::str::from_utf8(p).unwrap()).collect();
        let read = digest(plain).unwrap();
        assert_eq!((read[0], read[31]), (1, 255));
        assert_eq!(digest(&pairs.join(":")), Some(read));
        for wrong in
            ["", "01", &plain[2..], &format!("{plain}00"), &plain.replace("FF", "FG"), &plain.replace('a', "ä")]
        {
            assert_eq!(digest(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_url_is_scheme_host_and_path() {
        for right in ["https://bmc", "https://[2001:db8::1]:8443/redfish", "http://10.0.0.1/"] {
            assert!(parse(right).is_ok(), "{right}");
        }
        for wrong in
            ["bmc", "ftp://bmc", "https://", "https://u:p@bmc", "https://u@bmc", "https://b?x=1", "https://b#x"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
