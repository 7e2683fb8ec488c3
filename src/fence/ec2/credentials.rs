//! As whom EC2 is asked: keys from a file that was read at the start, or from the metadata service as they come due.

use std::sync::Arc;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;

use super::super::{Attempt, Secret};
use super::imds::Imds;
use crate::config::Ec2Credentials;

/// The service's name in the scope of a signature.
const SERVICE: &str = "ec2";

/// One set of keys. It shows itself to nobody.
#[derive(Debug)]
pub struct Keys {
    credentials: Credentials,
    /// What must be in no text: secret key and session token.
    secrets: Vec<Secret>,
    /// `None`: they have no end that is known.
    pub expires: Option<SystemTime>,
}

impl Keys {
    pub fn new(id: &str, secret: &str, token: Option<&str>, expires: Option<SystemTime>) -> Keys {
        let credentials = Credentials::new(id, secret, token.map(str::to_owned), None, "leasehold");
        let secrets = std::iter::once(secret).chain(token).map(|s| Secret::new(s.as_bytes().to_vec())).collect();
        Keys { credentials, secrets, expires }
    }

    /// `text` without any of its secrets.
    pub fn scrub(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| secret.scrub(&text))
    }

    /// The headers that sign this form, sent by POST to `url` (AWS Signature Version 4).
    pub fn sign(
        &self,
        url: &str,
        region: &str,
        (name, value): (&str, &str),
        body: &[u8],
        now: SystemTime,
    ) -> Result<Vec<(String, String)>, String> {
        let identity = self.credentials.clone().into();
        let builder = v4::SigningParams::builder().identity(&identity).region(region).name(SERVICE);
        let settings = builder.time(now).settings(SigningSettings::default()).build();
        let settings = settings.map_err(|error| error.to_string())?.into();
        let header = std::iter::once((name, value));
        let request = SignableRequest::new("POST", url, header, SignableBody::Bytes(body));
        let request = request.map_err(|error| error.to_string())?;
        let (signed, _) = sign(request, &settings).map_err(|error| error.to_string())?.into_parts();
        Ok(signed.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

/// Where the keys come from.
#[derive(Debug)]
pub enum Source {
    Held(Arc<Keys>),
    Metadata(Box<Imds>),
}

impl Source {
    /// Reads the file now, if it is one. `Err` says what is wrong with it, without its content.
    pub fn new(config: &Ec2Credentials, imds: Imds) -> Result<Source, String> {
        let (source, profile) = match config {
            Ec2Credentials::Metadata => return Ok(Source::Metadata(Box::new(imds))),
            Ec2Credentials::File { source, profile } => (source, Some(profile)),
            Ec2Credentials::Environment(source) => (source, None),
        };
        let secret = Secret::read(source).map_err(|error| error.to_string())?;
        let text = std::str::from_utf8(secret.bytes()).map_err(|_| "the file with the keys is no text".to_owned())?;
        let keys = match profile {
            Some(profile) => from_ini(text, profile)?,
            None => from_environment(text)?,
        };
        Ok(Source::Held(Arc::new(keys)))
    }

    /// Keys that are good now, and if they can be had at all, for a whole plan.
    pub async fn keys(&self, now: SystemTime, attempt: &Attempt) -> Result<Arc<Keys>, String> {
        match self {
            Source::Held(keys) => Ok(Arc::clone(keys)),
            Source::Metadata(imds) => imds.keys(now, attempt).await,
        }
    }

    pub fn imds(&self) -> Option<&Imds> {
        match self {
            Source::Held(_) => None,
            Source::Metadata(imds) => Some(imds),
        }
    }
}

/// The section of one profile in a shared credentials file.
fn from_ini(text: &str, profile: &str) -> Result<Keys, String> {
    let (mut inside, mut found, mut entries) = (false, false, Vec::new());
    for line in lines(text) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            inside = name.0.trim() == profile;
            found |= inside;
        } else if inside && let Some((key, value)) = line.split_once('=') {
            entries.push((key.trim().to_lowercase(), value.trim()));
        }
    }
    if !found {
        return Err(format!("the credentials file has no section [{profile}]"));
    }
    keys_of(&entries, &format!("section [{profile}] of the credentials file"))
}

/// `KEY=VALUE` lines, as systemd's EnvironmentFile= and the shell's `export` take them.
fn from_environment(text: &str) -> Result<Keys, String> {
    let pairs = lines(text).filter_map(|line| line.strip_prefix("export ").unwrap_or(line).split_once('='));
    let entries: Vec<_> = pairs.map(|(key, value)| (key.trim().to_lowercase(), unquoted(value.trim()))).collect();
    keys_of(&entries, "the environment file")
}

fn keys_of(entries: &[(String, &str)], place: &str) -> Result<Keys, String> {
    // The last one counts, as it does for a shell.
    let value = |key: &str| entries.iter().rev().find(|(k, v)| k == key && !v.is_empty()).map(|(_, v)| *v);
    let needed =
        |key: &str| value(key).ok_or_else(|| format!("{place} has no {key}; roles and helpers are not followed"));
    let (id, secret) = (needed("aws_access_key_id")?, needed("aws_secret_access_key")?);
    Ok(Keys::new(id, secret, value("aws_session_token"), None))
}

/// The lines that say something.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
}

fn unquoted(value: &str) -> &str {
    ['"', '\''].into_iter().find_map(|q| value.strip_prefix(q)?.strip_suffix(q)).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &Keys) -> (&str, &str, Option<&str>) {
        let c = &keys.credentials;
        (c.access_key_id(), c.secret_access_key(), c.session_token())
    }

    #[test]
    fn a_profile_is_found_among_others() {
        let text = "# mine\n[other]\naws_access_key_id=A\naws_secret_access_key=B\n\n[fence]\nregion = x\n\
                    AWS_Access_Key_Id = AKIA1 \naws_secret_access_key = a/b+c=d=\n";
        assert_eq!(read(&from_ini(text, "fence").unwrap()), ("AKIA1", "a/b+c=d=", None));
        assert!(from_ini(text, "default").unwrap_err().contains("[default]"));
    }

    #[test]
    fn an_environment_file_is_read_as_systemd_and_shells_do() {
        let text = "export AWS_ACCESS_KEY_ID=old\n;no\nAWS_ACCESS_KEY_ID=\"AKIA2\"\nAWS_SECRET_ACCESS_KEY='x=y'\nAWS_SESSION_TOKEN=t\n";
        assert_eq!(read(&from_environment(text).unwrap()), ("AKIA2", "x=y", Some("t")));
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_there_is_not() {
        let error = from_environment("AWS_ACCESS_KEY_ID=AKIA3\nAWS_SECRET_ACCESS_KEY=\nOTHER=M4RK").unwrap_err();
        assert!(error.contains("aws_secret_access_key") && !error.contains("M4RK"), "{error}");
        assert!(from_ini("[default]\nrole_arn = x\n", "default").unwrap_err().contains("not followed"));
    }

    #[test]
    fn keys_show_themselves_to_nobody() {
        let keys = Keys::new("AKIA4", "M4RK-secret", Some("M4RK-token"), None);
        assert!(!format!("{keys:?}").contains("M4RK"), "{keys:?}");
        assert_eq!(keys.scrub("a M4RK-secret b M4RK-token"), "a <secret> b <secret>");
    }

    #[test]
    fn a_request_is_signed_as_aws_documents_it() {
        // Scope, signed headers and date are fixed by the rules; that the signature is right, a real server tells.
        let keys = Keys::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", Some("tok"), None);
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_440_938_160);
        let header = ("content-type", "application/x-www-form-urlencoded");
        let signed = keys.sign("https://ec2.us-east-1.amazonaws.com/", "us-east-1", header, b"A=b", now).unwrap();
        let value = |name: &str| signed.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).unwrap_or_default();
        assert_eq!((value("x-amz-date"), value("x-amz-security-token")), ("20150830T123600Z", "tok"));
        let authorization = value("authorization");
        assert!(
            authorization.contains("Credential=AKIDEXAMPLE/20150830/us-east-1/ec2/aws4_request"),
            "{authorization}"
        );
        assert!(
            authorization.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-security-token"),
            "{authorization}"
        );
    }
}
