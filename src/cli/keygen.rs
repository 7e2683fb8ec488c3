//! `leasehold keygen PATH`: a new cluster key, which no step ever shows to anybody else.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};

use super::exit::Exit;
use crate::wire::Keyring;

pub fn run(path: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let key = Keyring::generate()?;
    if path == Path::new("-") {
        out.write_all(key.as_bytes())?;
        return Ok(Exit::Fine);
    }
    write_new(path, key.as_bytes())?;
    let shown = path.display();
    writeln!(out, "Wrote a new key to {shown}, mode 0600.")?;
    writeln!(out, "Both nodes need the same file. Copy it over an encrypted connection only, such as")?;
    writeln!(out, "  scp -p {shown} root@PEER:{shown}")?;
    writeln!(out, "and compare `sha256sum {shown}` on both. Then restart both daemons, one after the other.")?;
    Ok(Exit::Fine)
}

/// Never overwrites: the key in use would be gone, and with it the contact between the nodes.
fn write_new(path: &Path, key: &[u8]) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!(
                "{} exists and is not overwritten; for a new key choose another name, or move the old one away",
                path.display()
            )
        }
        Err(error) => return Err(error).with_context(|| format!("key file {}", path.display())),
    };
    file.write_all(key).and_then(|()| file.sync_all()).with_context(|| format!("key file {}", path.display()))
}
