//! What a test needs of the machine. Where it is missing, the test says SKIPPED so that nobody overlooks it,
//! and under CI it fails: a green run must mean that everything ran.
//!
//! ```ignore
//! #[path = "common/need.rs"]
//! mod need;
//!
//! #[test]
//! fn a_dead_primary_is_powered_off() {
//!     if !need::all("a_dead_primary_is_powered_off", &[need::root(), need::program("ipmi_sim")]) {
//!         return;
//!     }
//! ```
// Each test file that includes this one uses only a part of it.
#![allow(dead_code)]

use std::io::Write;
use std::path::Path;

/// One need: what it is, and whether this machine has it.
pub struct Need {
    what: String,
    met: bool,
}

pub fn root() -> Need {
    Need { what: "root".into(), met: rustix::process::geteuid().is_root() }
}

/// A program on the PATH.
pub fn program(name: &str) -> Need {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let met = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    Need { what: format!("the program {name}"), met }
}

pub fn file(path: &str) -> Need {
    Need { what: path.to_string(), met: Path::new(path).exists() }
}

/// Whether the test can run. Panics under CI where it cannot.
pub fn all(test: &str, needs: &[Need]) -> bool {
    let missing: Vec<&str> = needs.iter().filter(|need| !need.met).map(|need| need.what.as_str()).collect();
    if missing.is_empty() {
        return true;
    }
    let notice = format!("SKIPPED {test}: this machine lacks {}", missing.join(", "));
    assert!(std::env::var_os("CI").is_none(), "{notice}");
    // The test harness swallows what passes through `println!`; this goes past it.
    writeln!(std::io::stderr(), "\n{notice}").expect("standard error is open");
    false
}
