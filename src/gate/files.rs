//! Small files that other programs read: replaced whole, durably, or not at all.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::BackendError;
use super::store::sync_directory;

/// Replaces the file, unless it has this content already. What a failed sync leaves behind is told, and the next call
/// writes anew: it never finds "already right" what was not synced, because a failed one keeps its old name.
pub fn replace(path: &Path, text: &str) -> Result<(), BackendError> {
    let failed = |source: io::Error| BackendError(format!("cannot write {}: {source}", path.display()));
    let directory = path.parent().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        // A former call may have failed just before this.
        return File::open(path)
            .and_then(|file| file.sync_all())
            .and_then(|()| sync_directory(directory))
            .map_err(failed);
    }
    let temporary = directory.join(format!(".leasehold-gate.{}", std::process::id()));
    let written = write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // A name that nothing reads.
        let _ = std::fs::remove_file(&temporary);
    }
    written.and_then(|()| sync_directory(directory)).map_err(failed)
}

/// Makes a folder that its readers know and no package brings along, durably.
pub fn make_folder(path: &Path) -> Result<(), BackendError> {
    let failed = |source: io::Error| BackendError(format!("cannot make {}: {source}", path.display()));
    match DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => sync_directory(path.parent().unwrap_or(path)).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
