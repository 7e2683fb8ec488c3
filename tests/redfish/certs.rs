//! Certificates as they are met: a CA with a leaf, a leaf for another name, one that is over, and one as BMCs make it.
#![allow(dead_code)] // each test program uses another part

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

/// A directory of certificates; it goes with this value.
#[derive(Debug)]
pub struct Certs {
    dir: tempfile::TempDir,
}

impl Certs {
    /// `ca` and `stranger` are authorities; the first has signed `leaf`, `elsewhere` (another name) and `over`
    /// (expired); `selfmade` is what a BMC makes itself: a CA, its own leaf, without a name.
    pub fn make() -> Certs {
        let certs = Certs { dir: tempfile::tempdir().expect("a temporary directory") };
        for authority in ["ca", "stranger", "selfmade"] {
            certs.openssl(&format!("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3 -subj /CN={authority} -keyout {authority}.key -out {authority}.pem"));
        }
        certs.sign("leaf", "IP:127.0.0.1", "-days 2");
        certs.sign("elsewhere", "DNS:bmc-ibis.example.net", "-days 2");
        certs.sign("over", "IP:127.0.0.1", "-days -1");
        certs
    }

    fn sign(&self, name: &str, san: &str, validity: &str) {
        self.openssl(&format!("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -addext subjectAltName={san} -keyout {name}.key -out {name}.csr"));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key {validity} -copy_extensions copy -out {name}.pem"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl").args(arguments.split(' ')).current_dir(self.dir.path()).output();
        let output = output.expect("openssl runs");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn pem(&self, name: &str) -> PathBuf {
        self.path().join(format!("{name}.pem"))
    }

    pub fn key_file(&self, name: &str) -> PathBuf {
        self.path().join(format!("{name}.key"))
    }

    pub fn der(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(&fs::read(self.pem(name)).unwrap()).unwrap()
    }

    pub fn key(&self, name: &str) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(&fs::read(self.key_file(name)).unwrap()).unwrap()
    }

    /// SHA-256 of the certificate.
    pub fn pin(&self, name: &str) -> [u8; 32] {
        Sha256::digest(self.der(name)).into()
    }
}
