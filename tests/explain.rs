//! `leasehold explain`: the safety case of each configuration in `tests/explain/` is exactly the text beside it, and
//! `docs/SAFETY.md` says what the table in the code says.
//!
//! `UPDATE=1 cargo test --test explain` writes texts and tables anew; read each of them before you commit it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold::cli::explain::assumptions::{ASSUMPTIONS, GUARANTEES, Id, MECHANISMS};
use leasehold::cli::explain::{self, Case, Held, Protection};
use leasehold::config::{self, Checked};

const WIDTH: usize = 100;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn case(name: &str) -> PathBuf {
    root().join("tests/explain").join(name).with_extension("toml")
}

fn checked(name: &str) -> Checked {
    let text = fs::read_to_string(case(name)).expect("the cases are part of the repository");
    config::parse("leasehold.toml", &text).unwrap_or_else(|diagnostics| panic!("{name}: {diagnostics}"))
}

fn updates() -> bool {
    std::env::var_os("UPDATE").is_some()
}

fn golden(name: &str) -> String {
    let found = explain::text(&checked(name), WIDTH);
    let beside = case(name).with_extension("txt");
    if updates() {
        fs::write(&beside, &found).expect("writable directory");
    }
    let expected = fs::read_to_string(&beside).unwrap_or_default();
    assert_eq!(found, expected, "{} differs", beside.display());
    found.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn ipmi_only_rests_on_power_and_tells_of_the_bmc_on_its_hosts_power() {
    let text = golden("ipmi_only");
    assert!(text.contains("Safety rests on fencing, not on timing."));
    assert!(text.contains("heron loses all power: its BMC shares the power of its host"));
    assert!(text.contains("power fencing carries the weight"));
    assert!(!text.contains("nothing here protects it"));
}

#[test]
fn a_second_level_frees_the_take_over_from_the_power_of_the_host() {
    let text = golden("ipmi_and_ec2_detach");
    assert!(!text.contains("loses all power"));
    assert!(text.contains("revocation stands behind"), "the detached volume adds to the power");
}

#[test]
fn exclusive_revocation_rests_on_the_store_and_says_what_lies_outside_of_it() {
    let text = golden("nfs_revocation");
    assert!(text.contains("one atomic `take` there decides"));
    assert!(text.contains("nothing here protects it"));
    assert!(text.contains("A5 not met: virtual: heron and plover"));
}

#[test]
fn yielding_revocation_stops_a_lone_primary() {
    let text = golden("nfs_yielding");
    assert!(text.contains("Safety rests on fencing AND on timing"));
    assert!(text.contains("lone_primary"));
    assert!(text.contains("The standby wins"));
}

#[test]
fn lease_only_is_said_not_to_be_safe() {
    let text = golden("lease_only");
    assert!(text.contains("NOT SAFE by itself"));
    assert!(text.contains("nothing here protects it"));
    assert!(text.contains("A3 not met: no hardware watchdog"));
    assert!(!Case::of(&checked("lease_only")).safe_by_itself);
}

#[test]
fn replicated_postgresql_does_not_start_old_data_after_both_lost_power() {
    let text = golden("replicated_postgresql");
    assert!(text.contains("clients of a node that stops acting are refused and reset at once"));
    assert!(text.contains("both nodes lose power, and one comes back"));
    assert!(text.contains("lease ended"), "fence+lease waits for the lease too");
}

#[test]
fn the_times_are_those_of_the_checker() {
    for name in ["ipmi_only", "nfs_revocation", "lease_only", "replicated_postgresql"] {
        let checked = checked(name);
        let case = Case::of(&checked);
        let told = |name: &str| case.bounds.iter().find(|b| b.name == name).and_then(|b| b.typical_ms);
        let bounds = &checked.arithmetic.bounds;
        assert_eq!(told("silence"), Some(bounds.silence.typical.as_ms()));
        assert_eq!(told("right"), Some(bounds.right.as_ms()));
        assert_eq!(told("begins"), bounds.begin.as_ref().map(|b| b.typical.as_ms()));
    }
}

#[test]
fn one_protection_carries_each_resource_and_a_token_carries_where_there_is_no_fencing() {
    let text = fs::read_to_string(case("lease_only")).expect("readable") + "checks_token = true\n";
    let checked = config::parse("leasehold.toml", &text).expect("right");
    let case = Case::of(&checked);
    let carries = |p: &[explain::Carrier]| p.iter().filter(|c| c.carries).map(|c| c.protection).collect::<Vec<_>>();
    assert_eq!(carries(&case.resources[0].protections), [Protection::Token]);
    for name in ["ipmi_only", "ipmi_and_ec2_detach", "nfs_revocation", "nfs_yielding", "lease_only"] {
        let case = Case::of(&self::checked(name));
        assert!(case.resources.iter().all(|r| carries(&r.protections).len() == 1), "{name}");
    }
}

#[test]
fn the_json_says_the_same_and_names_assumptions_by_their_ids() {
    let json: serde_json::Value = serde_json::from_str(&explain::json(&checked("ipmi_only")).unwrap()).unwrap();
    let ids: Vec<&str> = json["assumptions"].as_array().unwrap().iter().map(|a| a["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"A1") && ids.contains(&"A11"));
    assert_eq!(json["resources"][0]["protections"][0]["protection"], "power-fencing");
    assert_eq!(json["safe_by_itself"], true);
}

#[test]
fn what_a_resource_assumes_is_explained() {
    for name in
        ["ipmi_only", "ipmi_and_ec2_detach", "nfs_revocation", "nfs_yielding", "lease_only", "replicated_postgresql"]
    {
        let case = Case::of(&checked(name));
        let explained: BTreeSet<Id> = case.assumptions.iter().map(|a| a.id).collect();
        assert!(case.resources.iter().flat_map(|r| &r.assumes).all(|id| explained.contains(id)), "{name}");
        assert!(case.assumptions.iter().all(|a| (a.held == Held::NotMet) == a.because.is_some()), "{name}");
    }
}

#[test]
fn the_command_explains_a_file_and_refuses_one_that_the_daemon_would_not_start_with() {
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(arguments).env("COLUMNS", "100").output().expect("the program runs")
    };
    let lease_only = case("lease_only");
    let told = run(&["explain", lease_only.to_str().expect("a path in UTF-8")]);
    assert_eq!((told.status.code(), String::from_utf8(told.stdout).unwrap()), (Some(0), golden_text("lease_only")));
    let wrong = root().join("tests/config/no_agent.toml");
    let refused = run(&["explain", "--json", wrong.to_str().expect("a path in UTF-8")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stdout).unwrap().contains("nothing to explain"));
}

/// Every accepted sample and test case: plans, shooters and data models in many mixtures.
#[test]
fn whatever_the_checker_accepts_can_be_explained() {
    let cases = fs::read_dir(root().join("tests/config")).expect("the cases are part of the repository");
    let cases = cases.map(|entry| entry.expect("readable directory").path());
    let files = cases.chain([root().join("config/leasehold.toml")]);
    let mut explained = 0;
    for file in files.filter(|f| f.extension().is_some_and(|e| e == "toml")) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let Ok(checked) = config::parse("leasehold.toml", &text) else { continue };
        let case = Case::of(&checked);
        assert_eq!(case.safe_by_itself, checked.config.fence.plan != leasehold::core::Plan::ConfirmOnly);
        assert!(!case.partition.is_empty() && !case.breaks.is_empty() && !case.stops_by_design.is_empty());
        assert!(explain::text(&checked, 80).contains("What safety rests on"), "{}", file.display());
        explained += 1;
    }
    assert!(explained >= 15, "only {explained} configurations were accepted");
}

fn golden_text(name: &str) -> String {
    explain::text(&checked(name), WIDTH)
}

// --- docs/SAFETY.md -------------------------------------------------------------------------------------------------

fn ids(ids: &[Id]) -> String {
    if ids.is_empty() { "nothing".into() } else { ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ") }
}

fn assumption_rows() -> String {
    let rows = ASSUMPTIONS.iter().map(|a| format!("| {} | {} | {} |\n", a.id, a.text, a.else_lost));
    format!("| id | assumption | where it does not hold |\n| --- | --- | --- |\n{}", rows.collect::<String>())
}

fn guarantee_rows() -> String {
    let row = |g: &explain::assumptions::Guarantee| {
        format!("| {} | {} | {} | {} | {} |\n", g.id, g.clause, g.text, ids(g.assumes), ids(g.by))
    };
    let head = "| id | protocol | guarantee | assumes | by |\n| --- | --- | --- | --- | --- |\n";
    format!("{head}{}", GUARANTEES.iter().map(row).collect::<String>())
}

fn mechanism_rows() -> String {
    let row = |m: &explain::assumptions::Mechanism| {
        let tests: Vec<String> = m.tests.iter().map(|t| format!("`{t}`")).collect();
        format!("| {} | {} | `{}` | {} |\n", m.id, m.text, m.source, tests.join(" "))
    };
    let head = "| id | mechanism | source | tests |\n| --- | --- | --- | --- |\n";
    format!("{head}{}", MECHANISMS.iter().map(row).collect::<String>())
}

/// The document with the tables of the code between its marks.
fn with_tables(document: &str) -> String {
    let tables =
        [("assumptions", assumption_rows()), ("guarantees", guarantee_rows()), ("mechanisms", mechanism_rows())];
    tables.iter().fold(document.to_string(), |text, (name, table)| {
        let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let (before, rest) = text.split_once(&open).unwrap_or_else(|| panic!("docs/SAFETY.md lacks {open}"));
        let (_, after) = rest.split_once(&close).unwrap_or_else(|| panic!("docs/SAFETY.md lacks {close}"));
        format!("{before}{open}\n{table}\n{close}{after}")
    })
}

#[test]
fn the_document_carries_the_tables_of_the_code() {
    let path = root().join("docs/SAFETY.md");
    let document = fs::read_to_string(&path).expect("readable document");
    let wanted = with_tables(&document);
    if updates() {
        fs::write(&path, &wanted).expect("writable document");
    }
    let document = fs::read_to_string(&path).expect("readable document");
    assert_eq!(document, wanted);
}

#[test]
fn every_id_in_the_document_is_one_of_the_table() {
    let known: BTreeSet<String> = all().iter().map(ToString::to_string).collect();
    let document = fs::read_to_string(root().join("docs/SAFETY.md")).expect("readable document");
    let is_id = |word: &&str| {
        let number = word.strip_prefix(['A', 'G', 'M']);
        number.is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
    };
    let unknown: Vec<&str> =
        document.split(|c: char| !c.is_alphanumeric()).filter(is_id).filter(|id| !known.contains(*id)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn the_ids_are_in_order_and_refer_to_rows() {
    let sorted = |ids: Vec<Id>| ids.windows(2).all(|w| w[0] < w[1]);
    assert!(sorted(ASSUMPTIONS.iter().map(|a| a.id).collect()));
    assert!(sorted(GUARANTEES.iter().map(|g| g.id).collect()));
    assert!(sorted(MECHANISMS.iter().map(|m| m.id).collect()));
    let known: BTreeSet<Id> = all().into_iter().collect();
    assert!(GUARANTEES.iter().flat_map(|g| g.assumes.iter().chain(g.by)).all(|id| known.contains(id)));
    let used: BTreeSet<Id> = GUARANTEES.iter().flat_map(|g| g.assumes.iter().chain(g.by)).copied().collect();
    assert!(known.iter().all(|id| used.contains(id) || matches!(id, Id::G(_))), "a row that nothing rests on");
}

#[test]
fn every_mechanism_has_its_source_and_its_tests() {
    for mechanism in MECHANISMS {
        assert!(root().join(mechanism.source).is_file(), "{} {}", mechanism.id, mechanism.source);
        assert!(
            !mechanism.tests.is_empty() && mechanism.tests.iter().all(|t| root().join(t).is_file()),
            "{}",
            mechanism.id
        );
    }
}

fn all() -> Vec<Id> {
    let assumptions = ASSUMPTIONS.iter().map(|a| a.id);
    assumptions.chain(GUARANTEES.iter().map(|g| g.id)).chain(MECHANISMS.iter().map(|m| m.id)).collect()
}
