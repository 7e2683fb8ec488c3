//! Golden scenarios: each file of `tests/scenarios` is a script, its expectations and the whole trace that it gives.
//!
//! `UPDATE=1 cargo test --test scenarios` writes the traces anew; expectations are judged all the same.
//! `SCENARIO=partition cargo test --test scenarios -- --nocapture` runs those with that in their name and prints them.
//! `PENDING=1` runs those of `tests/scenarios/pending` instead: what the protocol demands and the core does not do yet.

use std::fs;
use std::path::{Path, PathBuf};

use leasehold::sim::Scenario;

fn files() -> Vec<PathBuf> {
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let pending = std::env::var_os("PENDING").is_some();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(if pending { "tests/scenarios/pending" } else { "tests/scenarios" });
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .expect("the scenarios are part of the repository")
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .filter(|path| path.to_string_lossy().contains(&wanted))
        .collect();
    files.sort();
    files
}

/// What is wrong with this file; empty when nothing is.
fn faults(path: &Path) -> Vec<String> {
    let file = fs::read_to_string(path).expect("a readable scenario");
    let scenario = match Scenario::parse(&file) {
        Ok(scenario) => scenario,
        Err(error) => return vec![error],
    };
    let outcome = scenario.run();
    let mut faults = outcome.faults;
    if std::env::var_os("SCENARIO").is_some() {
        println!("{}\n{}", path.display(), outcome.trace);
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, scenario.file_with(&outcome.trace)).expect("a writable scenario");
    } else if let Some(difference) = scenario.difference(&outcome.trace) {
        faults.push(format!("the trace differs (UPDATE=1 writes it anew):\n{difference}"));
    }
    faults
}

#[test]
fn every_scenario_gives_its_trace_and_what_it_expects() {
    let mut report = String::new();
    for path in files() {
        for fault in faults(&path) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            report.push_str(&format!("{name}: {fault}\n"));
        }
    }
    assert!(report.is_empty(), "\n{report}");
}
