//! What daemon and guard of a node share, as a test reads it.

#![allow(dead_code)] // each test program uses another part

use std::fs;
use std::path::Path;

use leasehold::core::BootId;
use leasehold::os::shared::{Content, Said, Shared, Told};

/// The page in this run-time directory, which a daemon has made.
pub fn page_in(run: &Path) -> Shared {
    let bytes = fs::read(run.join("guard")).expect("the daemon has made it");
    // The id of a boot that this world made up stands at the beginning of the body.
    let boot = BootId(bytes[24..40].try_into().expect("16 bytes"));
    Shared::open(run, boot).expect("the page can be mapped")
}

pub fn told(page: &Shared) -> Told {
    match page.told() {
        Content::Told(told) => told,
        other => panic!("the daemon told {other:?}"),
    }
}

pub fn said(page: &Shared) -> Said {
    match page.said() {
        Content::Told(said) => said,
        other => panic!("the guard said {other:?}"),
    }
}
