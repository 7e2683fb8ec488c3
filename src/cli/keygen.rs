//! `leasehold keygen PATH`: a new cluster key, which no step ever shows to anybody else.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, anyhow};

use super::exit::Exit;
use crate::wire::Keyring;

pub fn run(path: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let key = Keyring::generate()?;
    if path == Path::new("-") {
        out.write_all(key.as_bytes())?;
        return Ok(Exit::Fine);
    }
    write_new(path, key.as_bytes(), 0o600).map_err(|error| told(path, error))?;
    let shown = path.display();
    writeln!(out, "Wrote a new key to {shown}, mode 0600.")?;
    writeln!(out, "Both nodes need the same file. Copy it over an encrypted connection only, such as")?;
    writeln!(out, "  scp -p {shown} root@PEER:{shown}")?;
    writeln!(
        out,
        "and compare `sha256sum {shown}` on both. Daemons that run already need a restart, one after the other."
    )?;
    Ok(Exit::Fine)
}

/// Never overwrites: the key in use would be gone, and with it the contact between the nodes.
pub(super) fn write_new(path: &Path, text: &[u8], mode: u32) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let shown = path.display();
    let mut file = options.write(true).create_new(true).mode(mode).open(path).with_context(|| shown.to_string())?;
    file.write_all(text).and_then(|()| file.sync_all()).with_context(|| shown.to_string())
}

fn told(path: &Path, error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::AlreadyExists) => anyhow!(
            "{} exists and is not overwritten; for a new key choose another name, or move the old one away",
            path.display()
        ),
        _ => error.context("key file"),
    }
}
