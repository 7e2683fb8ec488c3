//! Which programs may be run with this program's rights: only those that nobody else can exchange.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::DEFAULT_PATH;

/// Why a program is not run.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    #[error("program {program:?} is not in {path}; give its whole path, or install it")]
    NotFound { program: String, path: String },
    #[error("{}: {source}; see that the file is there and readable", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: not an executable file; chmod +x it, or name another", path.display())]
    NotExecutable { path: PathBuf },
    #[error("{}: owned by uid {uid}, who could exchange what runs here; chown it to root", path.display())]
    Owner { path: PathBuf, uid: u32 },
    #[error("{}: others may write to it (mode {mode:04o}); chmod go-w it", path.display())]
    Writable { path: PathBuf, mode: u32 },
}

/// The whole path of a program: as given, or looked for in `PATH` when it has no slash.
pub fn find_program(program: &str) -> Result<PathBuf, Untrusted> {
    if program.contains('/') {
        return Ok(PathBuf::from(program));
    }
    let path = std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
    let found =
        path.split(':').filter(|d| d.starts_with('/')).map(|d| Path::new(d).join(program)).find(|p| p.is_file());
    found.ok_or(Untrusted::NotFound { program: program.to_owned(), path })
}

/// Refuses a program that somebody other than root or this user can change or exchange: by its own mode and owner,
/// or through a directory on the way to it. Symbolic links are followed first.
pub fn check_owner(program: &Path) -> Result<(), Untrusted> {
    let real = program.canonicalize().map_err(|source| Untrusted::Unreadable { path: program.into(), source })?;
    let meta = metadata(&real)?;
    if !meta.is_file() || meta.mode() & 0o111 == 0 {
        return Err(Untrusted::NotExecutable { path: real });
    }
    check_one(&real, &meta, Place::File)?;
    real.ancestors().skip(1).try_for_each(|dir| check_one(dir, &metadata(dir)?, Place::Directory))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    File,
    Directory,
}

fn check_one(path: &Path, meta: &std::fs::Metadata, place: Place) -> Result<(), Untrusted> {
    let me = rustix::process::geteuid().as_raw();
    if meta.uid() != 0 && meta.uid() != me {
        return Err(Untrusted::Owner { path: path.into(), uid: meta.uid() });
    }
    // In a sticky directory only the owner of an entry can exchange it.
    let guarded = place == Place::Directory && meta.mode() & 0o1000 != 0;
    if !guarded && meta.mode() & writers_refused(meta, me) != 0 {
        return Err(Untrusted::Writable { path: path.into(), mode: meta.mode() & 0o7777 });
    }
    Ok(())
}

/// The bits of the mode that must not be set. An ordinary user whose umask leaves files open to the user's own group
/// (the habit of several distributions) risks only what that group may do anyway; root takes no such risk.
fn writers_refused(meta: &std::fs::Metadata, me: u32) -> u32 {
    let own_group = me != 0 && meta.gid() == rustix::process::getegid().as_raw();
    if own_group { 0o002 } else { 0o022 }
}

fn metadata(path: &Path) -> Result<std::fs::Metadata, Untrusted> {
    std::fs::metadata(path).map_err(|source| Untrusted::Unreadable { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(dir: &Path, mode: u32) -> PathBuf {
        let path = dir.join("hook");
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_program_of_my_own_that_only_i_can_change_is_run() {
        let dir = tempfile::tempdir().unwrap();
        check_owner(&script(dir.path(), 0o755)).unwrap();
    }

    #[test]
    fn a_program_writable_by_others_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = check_owner(&script(dir.path(), 0o757)).unwrap_err();
        assert!(matches!(error, Untrusted::Writable { mode: 0o757, .. }), "{error}");
        assert!(error.to_string().contains("chmod go-w"));
    }

    #[test]
    fn a_program_in_a_directory_open_to_all_is_refused_unless_sticky() {
        let dir = tempfile::tempdir().unwrap();
        let hook = script(dir.path(), 0o755);
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(check_owner(&hook), Err(Untrusted::Writable { .. })));
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        check_owner(&hook).unwrap();
    }

    #[test]
    fn a_program_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let hook = script(dir.path(), 0o755);
        std::os::unix::fs::chown(&hook, Some(65534), None).unwrap();
        assert!(matches!(check_owner(&hook), Err(Untrusted::Owner { uid: 65534, .. })));
    }

    #[test]
    fn what_cannot_be_executed_or_found_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(check_owner(&script(dir.path(), 0o644)), Err(Untrusted::NotExecutable { .. })));
        assert!(matches!(check_owner(&dir.path().join("none")), Err(Untrusted::Unreadable { .. })));
        assert!(matches!(find_program("no-such-program-here"), Err(Untrusted::NotFound { .. })));
        assert!(find_program("sh").unwrap().is_absolute());
    }
}
