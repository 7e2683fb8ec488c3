//! HTTPS for agents that speak it: clients are built at the start, with their trust, so that a failover needs neither
//! disk nor the system's certificate store (rustls, ring).
//!
//! ```text
//!   Trust ──client()──▶ reqwest::Client ──request──▶ answer ──bounded_body()──▶ bytes
//!                            └─ Verifier: chain or pin; tells the digest of what it refused
//! ```
//!
//! No proxy, no redirect, no retry: a request goes to the device that the configuration names, once, or it fails.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Response};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

use crate::config::Trust;

/// A connection that was not used for so long is closed: a BMC drops idle ones without a word, and a request on one
/// that is half dead would wait for its whole limit.
const IDLE: Duration = Duration::from_secs(5);

/// How long a device may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Name, TCP and TLS together.
    pub connect: Duration,
    /// One request from its start to the last byte of its answer.
    pub request: Duration,
}

/// A client for one service. Reads the certificates now; `Err` says in words why they cannot be used.
pub fn client(trust: &Trust, limits: Limits) -> Result<Client, String> {
    let builder = Client::builder().tls_backend_preconfigured(tls(trust)?);
    let builder = builder.https_only(*trust != Trust::Plaintext).no_proxy().referer(false);
    let builder = builder.redirect(reqwest::redirect::Policy::none()).retry(reqwest::retry::never());
    let builder = builder.connect_timeout(limits.connect).timeout(limits.request).tcp_user_timeout(limits.request);
    let builder = builder.pool_idle_timeout(IDLE).pool_max_idle_per_host(1);
    builder.build().map_err(|error| format!("no HTTPS client can be made: {}", explain(&error)))
}

/// The whole body, unless it is longer than `limit` bytes. Whatever it holds, it is the caller's to understand.
pub async fn bounded_body(mut response: Response, limit: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(body),
            Ok(Some(chunk)) if body.len() + chunk.len() > limit => {
                return Err(format!("the answer is longer than {limit} bytes"));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(error) => return Err(explain(&error)),
        }
    }
}

/// What went wrong, in words, without the URL.
pub fn explain(error: &reqwest::Error) -> String {
    if let Some(refused) = causes(error).find_map(certificate) {
        return refused;
    }
    let innermost = causes(error).last().map(ToString::to_string).unwrap_or_default();
    match (error.is_timeout(), error.is_connect()) {
        (true, true) => "no connection within its time: no answer from this address".to_owned(),
        (true, false) => "connected, but no whole answer in time".to_owned(),
        (false, true) => format!("no connection: {innermost}"),
        (false, false) if error.is_body() || error.is_decode() => format!("the answer broke off: {innermost}"),
        (false, false) => format!("no usable answer: {innermost}"),
    }
}

/// The chain of causes. What hides within an `io::Error` is not among the sources that it tells.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause_of(cause))
}

fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(hidden) => Some(hidden),
        None => error.source(),
    }
}

fn certificate(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
            Some(inner.downcast_ref::<Refused>()?.to_string())
        }
        rustls::Error::InvalidCertificate(why) => Some(format!("certificate refused: {}", words(why))),
        other => Some(format!("no TLS session: {other}")),
    }
}

fn tls(trust: &Trust) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let rule = rule(trust, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(match rule {
        Some(rule) => {
            let verifier = Arc::new(Verifier { rule, algorithms });
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
        // Trusts nobody; nothing is ever asked over TLS.
        None => builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
    })
}

fn rule(trust: &Trust, provider: &Arc<CryptoProvider>) -> Result<Option<Rule>, String> {
    Ok(match trust {
        Trust::System => {
            let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(provider));
            let verifier = verifier.map_err(|error| {
                format!("{error}; install the package ca-certificates, or give `ca_file` or `tls_pin_sha256`")
            })?;
            Some(Rule::Chain(Arc::new(verifier)))
        }
        Trust::CaFile(path) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(authorities(path)?, Arc::clone(provider));
            let verifier = verifier.build().map_err(|error| format!("ca_file {}: {error}", path.display()))?;
            Some(Rule::Chain(verifier))
        }
        Trust::PinSha256(pin) => Some(Rule::Pin(*pin)),
        Trust::Plaintext => None,
    })
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>, String> {
    let named = |why: String| format!("ca_file {}: {why}", path.display());
    let pem = fs::read(path).map_err(|error| named(error.to_string()))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| named(format!("no PEM certificates: {error}")))?;
        store.add(certificate).map_err(|error| named(format!("a certificate in it is unusable: {error}")))?;
    }
    if store.is_empty() {
        return Err(named("no certificate in it; it must hold `-----BEGIN CERTIFICATE-----`".to_owned()));
    }
    Ok(Arc::new(store))
}

/// By what a server's certificate is accepted.
#[derive(Debug)]
enum Rule {
    Chain(Arc<dyn ServerCertVerifier>),
    /// SHA-256 of the leaf. Its names, dates and issuer are not looked at: BMCs make their own, for the years since
    /// 1970, as a CA, without a name.
    Pin([u8; 32]),
}

/// Accepts by its rule; the proof that the server holds the key of its certificate is demanded in every case.
#[derive(Debug)]
struct Verifier {
    rule: Rule,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown: [u8; 32] = Sha256::digest(leaf).into();
        let why = match &self.rule {
            Rule::Pin(pin) if *pin == shown => return Ok(ServerCertVerified::assertion()),
            Rule::Pin(_) => "it is not the one that `tls_pin_sha256` names".to_owned(),
            Rule::Chain(chain) => match chain.verify_server_cert(leaf, intermediates, name, ocsp, now) {
                Ok(verified) => return Ok(verified),
                Err(rustls::Error::InvalidCertificate(why)) => words(&why),
                Err(other) => other.to_string(),
            },
        };
        let refused = OtherError(Arc::new(Refused { why, shown }));
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(refused)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A certificate that was not accepted, with what the operator needs to compare it at the device.
#[derive(Debug, thiserror::Error)]
#[error("certificate refused: {why}; the server showed one with SHA-256 {}", hex(shown))]
struct Refused {
    why: String,
    shown: [u8; 32],
}

fn words(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "its issuer is not trusted".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => format!("it has expired ({why})"),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("it is not valid yet; is the clock right? ({why})")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("it is for another name ({why})")
        }
        CertificateError::Other(OtherError(inner)) => inner.to_string(),
        // The library may add reasons; each tells itself.
        other => other.to_string(),
    }
}

/// As `openssl x509 -fingerprint` writes it.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join(":")
}
