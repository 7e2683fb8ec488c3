//! A file system.

use std::path::{Component, PathBuf};

use super::super::diagnostics::Finding;
use super::super::value::{At, Findings, Least, Section};
use super::Usual;
use crate::core::Span;

/// A journal replay may take a while; a stop that has to kill its users too.
pub const USUAL: Usual = Usual { start: Span::from_secs(60), stop: Span::from_secs(10) };
/// How often the kernel's table of mounts is looked at, and a probe begins.
const INTERVAL: Span = Span::from_secs(2);
/// A storage that takes longer for one small write serves nobody; several in a row must take that long.
const PROBE_TIMEOUT: Span = Span::from_secs(10);

/// `kind = "mount"`.
#[derive(Debug, Clone)]
pub struct MountResource {
    /// A device, `UUID=…`, `LABEL=…`, or what else the type takes, such as `nas:/export`.
    pub what: String,
    /// The mount point: key `where`.
    pub point: PathBuf,
    /// Key `type`.
    pub file_system: String,
    /// As for `mount -o`, if any.
    pub options: Option<String>,
    pub fsck: Fsck,
    pub probe: Probe,
    /// How long one probe may take.
    pub probe_timeout: Span,
    pub interval: Span,
}

/// What is done before mounting, besides what the file system does itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsck {
    /// `fsck.TYPE -p`: replays the journal and repairs what is safe to repair.
    Preen,
    /// Nothing: `mount` replays the journal.
    None,
}

/// How it is seen that the file system still works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// A small file is written and synced.
    Fsync,
    /// Only the table of mounts is looked at.
    None,
}

const FSCKS: [(&str, Fsck); 2] = [("preen", Fsck::Preen), ("none", Fsck::None)];
const PROBES: [(&str, Probe); 2] = [("fsync", Probe::Fsync), ("none", Probe::None)];
/// Whose check is quick when they are clean, and useful; the others check themselves when they are mounted.
const PREENED: [&str; 3] = ["ext2", "ext3", "ext4"];

pub fn read(s: &mut Section<'_>, f: &mut Findings) -> Option<MountResource> {
    let what = s.string("what", f);
    let point = s.path("where", f);
    let kind = s.name("type", f);
    let options = s.string("options", f);
    let fsck = s.word("fsck", &FSCKS, f);
    let probe = s.word("probe", &PROBES, f);
    let probe_timeout = s.duration("probe_timeout", Least::Millisecond, f);
    let interval = s.duration("interval", Least::Millisecond, f);
    let what = s.require(what, "what", "\"/dev/disk/by-id/…\"", f);
    let point = s.require(point, "where", "\"/srv/kelp\"", f);
    let kind = s.require(kind, "type", "\"ext4\"", f);
    let bad = [options.is_bad(), fsck.is_bad(), probe.is_bad(), probe_timeout.is_bad(), interval.is_bad()];
    let (what, point, kind) = (what?, point?, kind?);
    let fit = [is_fit_source(&what, f), is_fit_point(&point, f)];
    if fit.contains(&false) || bad.contains(&true) {
        return None;
    }
    let usual = if PREENED.contains(&kind.value.as_str()) { Fsck::Preen } else { Fsck::None };
    Some(MountResource {
        what: what.value,
        point: point.value,
        fsck: fsck.value_or(usual),
        file_system: kind.value,
        options: options.value(),
        probe: probe.value_or(Probe::None),
        probe_timeout: probe_timeout.value_or(PROBE_TIMEOUT),
        interval: interval.value_or(INTERVAL),
    })
}

fn is_fit_source(what: &At<String>, f: &mut Findings) -> bool {
    let fit = !what.value.starts_with('-');
    if !fit {
        let finding =
            Finding::error("`resource.what` is not something to mount").at(&what.span, "looks like an option");
        f.push(finding.help("write a device, UUID=…, LABEL=… or HOST:/PATH; options belong into `options`"));
    }
    fit
}

/// The path is compared with what the kernel shows, which has no `.`, no `..` and no double slashes.
fn is_fit_point(point: &At<PathBuf>, f: &mut Findings) -> bool {
    let path = &point.value;
    let plain: PathBuf = path.components().filter(|c| *c != Component::ParentDir).collect();
    let (label, help) = match () {
        () if path == "/" => ("the root", "name a directory that only this file system uses, such as \"/srv/kelp\""),
        () if plain.as_os_str() != path.as_os_str() => {
            ("not in its plain form", "write it without `.`, `..`, double slashes and a slash at the end")
        }
        () => return true,
    };
    f.push(Finding::error("`resource.where` cannot be a mount point here").at(&point.span, label).help(help));
    false
}
