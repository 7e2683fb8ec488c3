//! `leasehold simulate`: as people run it, and against real daemons.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use leasehold::cli::args::Simulate;
use leasehold::cli::demo::report::{self, Measured};
use leasehold::cli::simulate::faults::Fault;
use leasehold::cli::simulate::figures::Figures;
use leasehold::cli::simulate::measure::Report;
use leasehold::cli::simulate::{pool::Progress, simulate};
use leasehold::config::{self, Checked};
use leasehold::core::{NodeId, Span};
use leasehold::sim::text::Range;
use leasehold::sim::{Rng, Scenario};
use serde_json::Value;

/// Simulated and real medians may differ by this part of the real one.
const AGREEMENT: f64 = 0.15;
/// Real failovers at first; twice as many before the test believes that they disagree.
const FAILOVERS: u32 = 7;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sample() -> PathBuf {
    root().join("config/leasehold.toml")
}

fn run(file: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("simulate").arg(file).args(options).env("COLUMNS", "100");
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn json(options: &[&str]) -> Value {
    let output = run(&sample(), &[options, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn loaded(path: &Path) -> Checked {
    let text = std::fs::read_to_string(path).unwrap();
    config::parse("leasehold.toml", &text).unwrap_or_else(|diagnostics| panic!("{}: {diagnostics}", path.display()))
}

/// The sample, and one of each kind of fence plan.
fn configurations() -> Vec<PathBuf> {
    let cases = std::fs::read_dir(root().join("tests/explain")).unwrap().map(|entry| entry.unwrap().path());
    cases.filter(|path| path.extension().is_some_and(|e| e == "toml")).chain([sample()]).collect()
}

#[test]
fn the_sample_configuration_is_simulated_with_every_figure_that_was_asked_for() {
    let output = run(&sample(), &["--worlds", "60", "--fault", "primary-crash", "--fault", "mix", "--loss", "1%"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let text = text(&output);
    for wanted in
        ["estuary of heron and plover", "loss 1 %", "primary-crash", "mix", "median", "False failovers", "seed"]
    {
        assert!(text.contains(wanted), "no {wanted:?} in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains('\r'), "progress is for terminals only");
}

#[test]
fn the_same_question_gets_the_same_answer() {
    let options = ["--worlds", "50", "--fault", "flap,partition=3s,mix", "--loss", "5%"];
    assert_eq!(json(&options), json(&options));
    let replayed = |seed| text(&run(&sample(), &["--seed", seed, "--fault", "pause=20s"]));
    assert_eq!(replayed("64"), replayed("64"));
    assert_ne!(replayed("64"), replayed("65"));
}

#[test]
fn a_replayed_world_shows_its_fault_and_its_end() {
    let text = text(&run(&sample(), &["--seed", "3"]));
    for wanted in [
        "fault primary-crash, seed 3",
        "> crash heron",
        "proof `fenced`",
        "plover * serves clients",
        "Without service: ",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in:\n{text}");
    }
    let refused = run(&sample(), &["--seed", "3", "--fault", "mix,flap"]);
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn the_worst_world_is_the_one_that_its_seed_replays() {
    let report = json(&["--worlds", "40", "--fault", "primary-crash"]);
    let seed = report["worst"]["seed"].to_string();
    let fault = report["worst"]["fault"].as_str().unwrap();
    let replayed = text(&run(&sample(), &["--seed", &seed, "--fault", fault]));
    let seconds = report["worst"]["outage_ms"].as_f64().unwrap() / 1000.0;
    assert!(replayed.contains(&format!("Without service: {seconds:.2}s")), "{seconds} in:\n{replayed}");
    let script: Vec<&str> = report["worst"]["script"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let scenario = Scenario::parse(&script.join("\n")).unwrap();
    assert!(replayed.contains(&scenario.run().trace), "the script is another world:\n{}", script.join("\n"));
}

#[test]
fn nothing_acts_on_both_nodes_and_no_guarantee_is_broken() {
    for name in configurations() {
        let faults =
            ["primary-crash", "standby-crash", "partition", "pause", "flap", "mix"].map(|f| f.parse().unwrap());
        let options = Simulate { fault: faults.to_vec(), worlds: Some(60), ..Simulate::default() };
        let report = simulate(&loaded(&name), &options, Progress::Silent);
        let broken: Vec<_> = report.broken.iter().filter(|(_, worlds)| **worlds > 0).collect();
        assert!(broken.is_empty(), "{}: {broken:?}, worst: {:?}", name.display(), report.worst);
        assert!(report.faults.iter().all(|row| row.never_whole == 0), "{}", name.display());
    }
}

#[test]
fn a_head_start_shorter_than_a_shot_gets_both_nodes_shot() {
    let partition = |head_start: &str| {
        let text = std::fs::read_to_string(sample()).unwrap();
        let text = text.replace("head_start = \"1.5s\"", &format!("head_start = \"{head_start}\""));
        let checked = config::parse("leasehold.toml", &text).unwrap();
        let options = Simulate { fault: vec!["partition".parse().unwrap()], worlds: Some(100), ..Simulate::default() };
        simulate(&checked, &options, Progress::Silent).faults.remove(0)
    };
    let (short, enough) = (partition("500ms"), partition("2s"));
    assert!(short.both_shot > 50 && short.still_down == short.both_shot, "{short:?}");
    assert_eq!((enough.both_shot, enough.still_down), (0, 0), "{enough:?}");
}

#[test]
fn stalls_fail_over_when_they_outlast_the_silence_and_not_before() {
    let stalls = |low: u64, high: u64| {
        let range = Some(Range(low * 1_000_000, high * 1_000_000));
        let fault = vec!["stall".parse().unwrap()];
        let options = Simulate { fault, worlds: Some(100), stalls: range, ..Simulate::default() };
        simulate(&loaded(&sample()), &options, Progress::Silent).false_failovers
    };
    let (brief, long) = (stalls(100, 1000), stalls(6000, 8000));
    assert_eq!((brief.from_stalls, brief.standby_shot, brief.in_calm), (0, 0, 0));
    assert!(brief.from_stalls_per_year_below.is_some_and(|below| below < 25.0), "{brief:?}");
    assert_eq!(long.from_stalls + long.standby_shot, long.stalls, "{long:?}");
    assert!(long.from_stalls > 20 && long.from_stalls_per_year > 100.0, "{long:?}");
}

#[test]
fn the_core_of_a_world_has_the_settings_of_the_configuration() {
    for name in configurations() {
        let checked = loaded(&name);
        let setup = Figures::of(&checked, &Simulate::default()).setup(&checked, &mut Rng::new(1));
        for me in [NodeId::First, NodeId::Second] {
            let (mut made_up, real) = (setup.settings(me), checked.config.settings(me));
            // Only a part of it fits; it matters only that both nodes have the same.
            made_up.digest = real.digest;
            assert_eq!(made_up, real, "{}", name.display());
        }
        assert_eq!(setup.broken_rule(), None, "{}", name.display());
    }
}

#[test]
fn every_field_of_the_json_is_described() {
    let described = std::fs::read_to_string(root().join("docs/SIMULATE.md")).unwrap();
    let mut names = Vec::new();
    collect_names(&json(&["--worlds", "30"]), &mut names);
    // These are names of what was found, not of fields.
    names.retain(|name| !["S1", "S2", "S3", "S4", "S5", "L1"].contains(&name.as_str()));
    let missing: Vec<_> = names.iter().filter(|name| !described.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/SIMULATE.md lacks {missing:?}");
}

fn collect_names(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            names.push(name.clone());
            collect_names(value, names);
        }),
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        _ => {}
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("report.html");
    let output = run(&sample(), &["--worlds", "40", "--html", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let html = std::fs::read_to_string(&file).unwrap();
    for forbidden in ["http:", "https:", "//", "<script", "<link", "<img", "url(", "@import", "src="] {
        assert!(!html.contains(forbidden), "{forbidden:?} in the page");
    }
    assert_eq!(html.matches("<svg").count(), 2);
    assert!(html.contains("primary-crash") && html.ends_with("</html>\n"));
}

#[test]
fn a_bad_configuration_gets_the_findings_of_the_check() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("bad.toml");
    let good = std::fs::read_to_string(sample()).unwrap();
    std::fs::write(&file, good.replace("dead_after = \"1.5s\"", "dead_after = \"100ms\"")).unwrap();
    let output = run(&file, &["--worlds", "10"]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("dead_after") && text.contains("bad.toml:"), "{text}");
    assert!(text.contains("nothing to simulate"), "{text}");
}

#[test]
fn an_unknown_fault_is_answered_with_the_known_ones() {
    let output = run(&sample(), &["--fault", "earthquake"]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("`earthquake` is no fault: say one of primary-crash"), "{text}");
    let output = run(&sample(), &["--loss", "2"]);
    assert!(output.status.code() == Some(1) && String::from_utf8_lossy(&output.stderr).contains("write 30%"));
}

/// The simulator against reality: a pair of real daemons whose primary is killed, and the same pair made up, with the
/// fence latency, start time and round trip that were measured on the real one.
#[test]
fn the_median_failover_agrees_with_that_of_real_daemons() {
    let first = compare(FAILOVERS);
    if first > AGREEMENT {
        // A machine with other things to do spoils some of seven; of more it spoils fewer than half.
        let second = compare(2 * FAILOVERS);
        assert!(second <= AGREEMENT, "simulated and real medians differ by {:.1} %", second * 100.0);
    }
}

fn compare(failovers: u32) -> f64 {
    let measured = report::measure(failovers, env!("CARGO_BIN_EXE_leasehold").into()).unwrap();
    let real = median(&measured, |f| f.outage());
    let simulated = as_measured(&measured).faults[0].outage.median_ms.unwrap();
    let real = real.0 as f64 / 1e6;
    let differs = (simulated - real).abs() / real;
    println!(
        "{failovers} real failovers: median {real:.0} ms; simulated: {simulated:.0} ms; they differ by {:.1} %",
        differs * 100.0
    );
    differs
}

fn as_measured(measured: &Measured) -> Report {
    // The middle half: one that a busy machine delayed is not what the others are like.
    let range = |of: fn(&report::Failover) -> Span| {
        let mut spans: Vec<u64> = measured.failovers.iter().map(|f| of(f).0).collect();
        spans.sort();
        Some(Range(spans[spans.len() / 4], spans[spans.len() * 3 / 4]))
    };
    let options = Simulate {
        fault: vec![Fault::PrimaryCrash],
        worlds: Some(300),
        round_trip: Some(Range(measured.round_trip.0, measured.round_trip.0)),
        fence_latency: range(report::Failover::fence_latency),
        start_time: range(report::Failover::start_time),
        ..Simulate::default()
    };
    simulate(&measured.config, &options, Progress::Silent)
}

fn median(measured: &Measured, of: fn(&report::Failover) -> Span) -> Span {
    let mut spans: Vec<Span> = measured.failovers.iter().map(of).collect();
    spans.sort();
    spans[spans.len() / 2]
}
