//! `leasehold init`: from a few answers to a configuration that passes `leasehold check`, a key, and what is left to do.
//!
//! ```text
//! options or questions -> Pair -> text -> checked in memory -> key and configuration -> the next steps
//! ```
//!
//! Nothing is written before all of it is right, and nothing that exists is ever written over.

mod dialogue;
mod kinds;
mod next;
mod pair;
mod text;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::args::{Global, Init, Watchdog};
use super::exit::Exit;
use super::keygen::write_new;
use crate::config::{self, Checked};
use crate::daemon;
use crate::os::machine;
use crate::wire::Keyring;
use pair::Pair;

/// Everybody may read what the pair is; its secrets lie in files of their own.
const CONFIG_MODE: u32 = 0o644;
const KEY_MODE: u32 = 0o600;
const WATCHDOG: &str = "/dev/watchdog0";

/// Where everything goes.
struct Place {
    config: PathBuf,
    key: PathBuf,
}

pub fn run(global: &Global, options: &Init, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let config = std::path::absolute(&global.config).context("the path of the configuration")?;
    let etc = config.parent().context("the configuration is no file in a folder")?.to_owned();
    let place = Place { key: etc.join("key"), config };
    let has_watchdog = options.watchdog.map_or(Path::new(WATCHDOG).exists(), |watchdog| watchdog == Watchdog::Auto);
    let pair = if options.describes() {
        pair::from_options(options, has_watchdog)?
    } else {
        // Before the first question: nobody answers twenty of them for a refusal.
        refuse_existing(&place.config)?;
        dialogue::ask(&mut io::stdin().lock(), out, has_watchdog, &etc)?
    };
    let here = here(&pair, options.node.as_deref())?;
    let written = text::of(&pair, &etc);
    match fs::read_to_string(&place.config) {
        Ok(existing) if existing == written => writeln!(out, "{} says so already.\n", place.config.display())?,
        Ok(_) => refuse_existing(&place.config)?,
        Err(_) if !write(&place, &written, out)? => return Ok(Exit::Error),
        Err(_) => {}
    }
    out.write_all(next::steps(&pair, here, &place.config, &place.key).as_bytes())?;
    Ok(Exit::Fine)
}

/// Which of the two this machine is: as told, else as it is called.
fn here(pair: &Pair, named: Option<&str>) -> anyhow::Result<Option<usize>> {
    let [first, second] = &pair.nodes;
    if let Some(name) = named {
        let found = pair.nodes.iter().position(|node| node == name);
        return found.map(Some).with_context(|| format!("--node {name} is neither of {first} and {second}"));
    }
    let host = machine::host_name();
    let short = host.split('.').next().unwrap_or_default();
    Ok(pair.nodes.iter().position(|node| *node == host || node == short))
}

fn refuse_existing(config: &Path) -> anyhow::Result<()> {
    if !config.exists() {
        return Ok(());
    }
    let shown = config.display();
    bail!(
        "{shown} exists and is not written over: somebody may have edited it.\nTo change the pair, edit it and run \
         `leasehold check {shown}`; to begin anew, move it away first: mv {shown} {shown}.old"
    )
}

/// False: what was described is refused, which has been told, and nothing was written.
fn write(place: &Place, text: &str, out: &mut dyn Write) -> anyhow::Result<bool> {
    let shown = place.config.display().to_string();
    match config::parse(&shown, text) {
        Err(diagnostics) => {
            writeln!(
                out,
                "What was described is refused; nothing was written. The lines are those of the new file.\n"
            )?;
            writeln!(out, "{diagnostics}")?;
            return Ok(false);
        }
        Ok(Checked { warnings, .. }) if !warnings.is_empty() => writeln!(out, "{warnings}")?,
        Ok(_) => {}
    }
    let etc = place.config.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(etc)
        .with_context(|| format!("folder {}", etc.display()))?;
    match write_new(&place.key, Keyring::generate()?.as_bytes(), KEY_MODE) {
        Ok(()) => writeln!(out, "Wrote the key of the pair to {}, mode 0600.", place.key.display())?,
        Err(error) if is_there(&error) => writeln!(out, "Kept the key that is in {}.", place.key.display())?,
        Err(error) => return Err(error),
    }
    write_new(&place.config, text.as_bytes(), CONFIG_MODE)?;
    writeln!(out, "Wrote {shown}: every line is explained where it stands.\n")?;
    recheck(&place.config, out)?;
    Ok(true)
}

/// As the daemon reads it, with the files that it names.
fn recheck(config: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Err(diagnostics) = config::load_with(config, &daemon::metadata_of) {
        writeln!(out, "It is not ready yet:\n\n{diagnostics}\n")?;
    }
    Ok(())
}

fn is_there(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::AlreadyExists)
}
