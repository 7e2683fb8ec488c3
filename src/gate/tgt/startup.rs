//! What the next start of tgt would read: the files of `tgt-admin`, as far as they say who is let in.

use std::fs;
use std::path::{Path, PathBuf};

/// Files that include one another for ever end here.
const DEEPEST: u32 = 8;

/// Whether the gate's file alone says who is let in. `tgt-admin` merges all blocks of one target.
pub fn check(config: &Path, own: &Path, target: &str) -> Result<(), String> {
    let files = included(config, DEEPEST)?;
    if !files.iter().any(|file| file == own) {
        return Err(format!("{} does not include {}: a restart would forget it", config.display(), own.display()));
    }
    for file in files.iter().filter(|file| *file != own) {
        let text = read(file)?;
        if let Some(line) = words_of(&text, Some(target)).find(|line| line.starts_with("initiator-")) {
            let shown = file.display();
            return Err(format!("{shown} has `{line}` for this target: remove it, the gate says who is let in"));
        }
        if words_of(&text, Some(target)).any(|line| line.starts_with("include")) {
            return Err(format!(
                "{} includes another file within the target: move that out of the block",
                file.display()
            ));
        }
    }
    Ok(())
}

/// The names in the gate's own file; none if there is no file yet.
pub fn initiators(own: &Path) -> Result<Vec<String>, String> {
    match fs::read_to_string(own) {
        Ok(text) => Ok(words_of(&text, None)
            .filter_map(|l| l.strip_prefix("initiator-name "))
            .map(|n| n.trim().to_owned())
            .collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", own.display())),
    }
}

/// The lines within the blocks of one target, or all.
fn words_of<'a>(text: &'a str, target: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    let mut within = target.is_none();
    text.lines().map(str::trim).filter(|line| !line.starts_with('#')).filter(move |line| {
        if let (Some(target), Some(name)) = (target, line.strip_prefix("<target ")) {
            // The quotation marks that the format allows are not part of the name.
            within = name.trim_end_matches('>').trim().trim_matches('"') == target;
        }
        if target.is_some() && *line == "</target>" {
            within = false;
        }
        within
    })
}

/// The file and all that it includes.
fn included(file: &Path, deep: u32) -> Result<Vec<PathBuf>, String> {
    if deep == 0 {
        return Err(format!("{}: included too deeply", file.display()));
    }
    let text = read(file)?;
    let mut found = vec![file.to_owned()];
    for pattern in text.lines().map(str::trim).filter_map(|line| line.strip_prefix("include ")) {
        for path in matching(Path::new(pattern.trim().trim_matches('"')))? {
            found.extend(included(&path, deep - 1)?);
        }
    }
    Ok(found)
}

/// `dir/*.conf`, or one file.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let directory = pattern.parent().unwrap_or(Path::new("/"));
    if !pattern.is_absolute() || directory.to_string_lossy().contains(['*', '?', '[']) {
        return Err(format!(
            "`include {}`: only a whole path, or stars in its last part, can be followed",
            pattern.display()
        ));
    }
    let Some((before, after)) = name.split_once('*') else { return Ok(vec![pattern.to_owned()]) };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", directory.display())),
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    // As the shell does: a star matches no leading dot.
    let fits = |n: &String| {
        n.len() >= before.len() + after.len() && n.starts_with(before) && n.ends_with(after) && !n.starts_with('.')
    };
    let mut paths: Vec<_> = names.filter(fits).map(|name| directory.join(name)).collect();
    paths.sort();
    Ok(paths)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("conf.d")).unwrap();
        let main = dir.path().join("targets.conf");
        fs::write(&main, format!("# tgt\ninclude {}/conf.d/*.conf\n", dir.path().display())).unwrap();
        for (name, text) in files {
            fs::write(dir.path().join("conf.d").join(name), text).unwrap();
        }
        let own = dir.path().join("conf.d/leasehold-x.conf");
        (dir, main, own)
    }

    #[test]
    fn the_own_file_alone_says_who_is_let_in() {
        let own = ("leasehold-x.conf", "<target iqn.x>\n initiator-name iqn.a\n</target>\n");
        let disk = (
            "x.conf",
            "<target iqn.x>\n backing-store /x\n</target>\n<target iqn.y>\n initiator-address ALL\n</target>\n",
        );
        let (_dir, main, file) = lay(&[own, disk]);
        assert_eq!(check(&main, &file, "iqn.x"), Ok(()));
        assert_eq!(initiators(&file).unwrap(), ["iqn.a"]);
        let (_dir, main, file) = lay(&[own, ("y.conf", "<target \"iqn.x\">\n initiator-address ALL\n</target>\n")]);
        assert!(check(&main, &file, "iqn.x").unwrap_err().contains("`initiator-address ALL`"));
        let (_dir, main, file) = lay(&[own, ("y.conf", "<target iqn.x>\n include /etc/more\n</target>\n")]);
        assert!(check(&main, &file, "iqn.x").is_err());
    }

    #[test]
    fn a_file_that_no_start_reads_is_told() {
        let (dir, main, file) = lay(&[]);
        assert!(check(&main, &file, "iqn.x").unwrap_err().contains("a restart would forget it"));
        assert_eq!(initiators(&file).unwrap(), [""; 0]);
        assert!(check(&dir.path().join("none"), &file, "iqn.x").is_err());
    }
}
