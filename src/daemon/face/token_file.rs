//! `token.json` in the run-time directory, for services that read their token themselves.
//!
//! Replaced by a rename, so that no reader sees half of it; the directory lies in memory, so nothing is synced.

use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::watch;

use super::{Face, Told};

const NAME: &str = "token.json";

/// Writes at each change, until the loop ends; what the last daemon wrote is replaced at once.
pub async fn run(runtime: PathBuf, node: String, mut face: watch::Receiver<Face>) {
    let mut failing = false;
    loop {
        let told = face.borrow_and_update().told(&node);
        match replace(&runtime, &told) {
            Ok(()) => failing = false,
            // Once: a full directory would fill the log as well, ten times a second.
            Err(error) if !failing => {
                tracing::error!(%error, path = %runtime.join(NAME).display(), "the token cannot be told to the service");
                failing = true;
            }
            Err(_) => {}
        }
        if face.changed().await.is_err() {
            return;
        }
    }
}

fn replace(runtime: &Path, told: &Told) -> io::Result<()> {
    let new = runtime.join("token.json.new");
    std::fs::write(&new, serde_json::to_vec(told)?)?;
    std::fs::rename(new, runtime.join(NAME))
}
