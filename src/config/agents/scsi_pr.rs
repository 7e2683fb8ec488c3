//! SCSI persistent reservations: `kind = "scsi-pr"`.

use std::path::PathBuf;

use super::super::diagnostics::Finding;
use super::super::value::{At, Field, Findings, Section};
use super::Facts;
use crate::core::Scope;

/// Names below it stay the same over a reboot, on both nodes; /dev/sda and /dev/dm-0 do not.
const STABLE_NAMES: &str = "/dev/disk/by-id/";

/// `kind = "scsi-pr"`.
#[derive(Debug, Clone)]
pub struct ScsiPr {
    /// Whole disks, the same on both nodes, in the same order: the first is the arbiter of the pair.
    pub devices: Vec<PathBuf>,
    pub takes: bool,
    pub abort: AbortSupport,
    pub persistence: Persistence,
}

/// Whether the target must have PREEMPT AND ABORT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortSupport {
    Required,
    /// Plain PREEMPT where the target does not know it.
    Optional,
}

/// Whether registrations must outlive a loss of the target's power (APTPL).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    Required,
    None,
}

impl Facts for ScsiPr {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Resource)
    }

    fn takes(&self) -> bool {
        self.takes
    }

    fn device(&self) -> Vec<(String, String)> {
        let names: Vec<_> = self.devices.iter().map(|d| d.display().to_string()).collect();
        vec![("scsi-pr".to_owned(), format!("take {}", self.takes)), ("devices".to_owned(), names.join(" "))]
    }
}

pub fn read(s: &mut Section<'_>, f: &mut Findings) -> Option<ScsiPr> {
    let devices = s.strings("devices", f);
    let devices = s.require(devices, "devices", "[\"/dev/disk/by-id/wwn-0x600140512345678\"]", f);
    let abort = s.word("abort", &[("required", AbortSupport::Required), ("optional", AbortSupport::Optional)], f);
    let persist = s.word("persist", &[("required", Persistence::Required), ("none", Persistence::None)], f);
    let take = s.boolean("take", f);
    let devices = devices.and_then(|at| checked(at, f));
    refuse_forgetful_store(&take, &persist, f);
    Some(ScsiPr {
        devices: devices?,
        takes: take.value_or(true),
        abort: abort.value_or(AbortSupport::Required),
        persistence: persist.value_or(Persistence::Required),
    })
}

fn checked(devices: At<Vec<String>>, f: &mut Findings) -> Option<Vec<PathBuf>> {
    let list = &devices.value;
    let unstable = list.iter().find(|d| !d.starts_with(STABLE_NAMES) || d.contains("/../"));
    let twice = list.iter().enumerate().find(|(i, d)| list[..*i].contains(d)).map(|(_, d)| d);
    let finding = match (unstable, twice) {
        (Some(device), _) => Finding::error(format!("{device:?} is no name that stays with its disk"))
            .at(&devices.span, "may be another disk after a reboot")
            .help("name each disk as it stands in /dev/disk/by-id/, by its WWN or serial number"),
        (None, Some(device)) => {
            Finding::error(format!("{device:?} is named twice")).at(&devices.span, "twice").help("name each disk once")
        }
        (None, None) if list.is_empty() => Finding::error("the agent protects no disk")
            .at(&devices.span, "empty")
            .help("name the disks of the service, as they stand in /dev/disk/by-id/"),
        (None, None) => return Some(list.iter().map(PathBuf::from).collect()),
    };
    f.push(finding);
    None
}

/// The arbiter of a pair must remember: a target that forgets its keys lets in whoever asks first.
fn refuse_forgetful_store(take: &Field<bool>, persist: &Field<Persistence>, f: &mut Findings) {
    let Some(at) = persist.given().filter(|at| at.value == Persistence::None && take.value_or(true)) else { return };
    let finding = Finding::error("a disk that forgets its keys cannot be the arbiter of the pair");
    let finding = finding.at(&at.span, "after a loss of the target's power nobody is kept out");
    let finding = finding.note("a take must be stored durably (protocol section 1, \"exclusive\")");
    f.push(finding.help("remove `persist`, or write `take = false` and add an agent of scope \"node\""));
}
