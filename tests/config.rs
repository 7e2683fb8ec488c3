//! Every wrong configuration in `tests/config/*.toml` gives exactly the text beside it, and nothing ever panics.
//!
//! `UPDATE=1 cargo test --test config` writes the texts anew; read each of them before you commit it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leasehold::cli::{Exit, check};
use leasehold::config::{self, Severity};
use leasehold::core::{NodeId, Plan};
use proptest::prelude::*;

fn cases() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let entries = fs::read_dir(directory).expect("the cases are part of the repository");
    let mut cases: Vec<PathBuf> = entries.map(|e| e.expect("readable directory").path()).collect();
    cases.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    cases.sort();
    cases
}

fn outcome(text: &str) -> String {
    match config::parse("leasehold.toml", text) {
        Ok(checked) => checked.warnings.to_string(),
        Err(diagnostics) => diagnostics.to_string(),
    }
}

#[test]
fn each_wrong_configuration_gives_its_exact_text() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    for case in cases() {
        let found = outcome(&fs::read_to_string(&case).expect("readable case"));
        let beside = case.with_extension("txt");
        if update {
            fs::write(&beside, &found).expect("writable directory");
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if found != expected {
            wrong.push(format!("{}\n--- expected\n{expected}--- found\n{found}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_are_enough_cases_and_each_finds_something() {
    let cases = cases();
    assert!(cases.len() >= 35, "only {} cases", cases.len());
    for case in cases {
        let text = outcome(&fs::read_to_string(&case).expect("readable case"));
        assert!(text.contains("help: "), "{} finds nothing, or gives no remedy", case.display());
    }
}

fn sample() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/leasehold.toml")).expect("the sample")
}

#[test]
fn the_sample_passes_without_errors_and_without_warnings() {
    assert_eq!(outcome(&sample()), "");
}

#[test]
fn check_prints_the_arithmetic_of_the_sample() {
    let checked = config::parse("leasehold.toml", &sample()).expect("the sample is right");
    insta::assert_snapshot!(check::render(&checked));
}

#[test]
fn the_sample_becomes_the_settings_of_the_core() {
    let checked = config::parse("leasehold.toml", &sample()).expect("the sample is right");
    let [first, second] = [NodeId::First, NodeId::Second].map(|me| checked.config.settings(me));
    assert_eq!((first.me, second.me), (NodeId::First, NodeId::Second));
    assert_eq!(first.digest, second.digest);
    assert!(!first.stores_tokens);
    assert!(first.term > first.margin && first.term.minus(first.margin) >= first.dead_after);
}

#[test]
fn the_plan_follows_from_scopes_and_takes() {
    let plan = |text: &str| {
        let checked = config::parse("leasehold.toml", text).expect("no errors").config;
        (checked.fence.plan, checked.settings(NodeId::First).stores_tokens)
    };
    let case = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(name);
        plan(&fs::read_to_string(path).expect("readable case"))
    };
    let export = "[[fence.agent]]\nname = \"export\"\ntarget = \"heron\"\nkind = \"exec\"\nscope = \"resource\"\n\
                  program = \"/usr/local/libexec/unexport\"\nsettings = { client = \"192.0.2.1\" }\n";
    assert_eq!(plan(&sample()), (Plan::Node { access: false }, false));
    assert_eq!(plan(&format!("{}\n{export}", sample())), (Plan::Node { access: true }, false));
    assert_eq!(case("warn_long_term_exclusive.toml"), (Plan::Exclusive, true));
    assert_eq!(case("warn_virtual.toml"), (Plan::Yielding, false));
    assert_eq!(case("warn_confirm_only.toml"), (Plan::ConfirmOnly, false));
}

#[test]
fn the_digest_covers_what_both_must_agree_on_and_nothing_else() {
    let digest = |text: &str| config::parse("leasehold.toml", text).expect("right").config.digest;
    let sample = sample();
    let same = digest(&sample);
    for (from, to) in [
        ("\"/etc/leasehold/bmc-heron\"", "\"/root/secret\""),
        ("read_group = \"adm\"", "read_group = \"staff\""),
        ("# leasehold, a pair", "# a pair"),
    ] {
        assert!(sample.contains(from), "{from}");
        assert_eq!(digest(&sample.replace(from, to)), same, "{from} is nobody's business");
    }
    for (from, to) in [
        ("name = \"estuary\"", "name = \"delta\""),
        ("data = \"shared\"", "data = \"replicated\""),
        ("stop_timeout = \"5s\"", "stop_timeout = \"6s\""),
        ("203.0.113.11", "203.0.113.13"),
        ("outlets = \"3 4\"", "outlets = \"3 7\""),
        ("first = \"primary\"", "first = \"standby\""),
        ("name = \"gauges\"", "name = \"scales\""),
        ("after = \"fence\"", "after = \"fence+lease\""),
    ] {
        assert!(sample.contains(from), "{from}");
        assert_ne!(digest(&sample.replace(from, to)), same, "{from} must be the same on both nodes");
    }
}

#[test]
fn a_password_file_is_looked_at_where_it_can_be_read() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (secret, file) = (directory.path().join("bmc"), directory.path().join("leasehold.toml"));
    let with = |password: &[u8]| {
        fs::write(&secret, password).expect("writable");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
        fs::write(&file, sample().replace("/etc/leasehold/bmc-heron", &secret.display().to_string()))
            .expect("writable");
        config::load(&file).map_err(|d| d.to_string())
    };
    assert!(with(b"twenty bytes exactly\n").is_ok());
    for (password, word) in [
        (&b"twenty-one bytes here"[..], "it has 21 bytes, IPMI carries at most 20"),
        (b"two\nlines", "line break"),
        (b"", "empty"),
    ] {
        let text = with(password).expect_err("unusable over IPMI");
        assert!(text.contains(word), "{text}");
        assert!(!text.contains("twenty-one"), "{text}");
    }
}

/// Every kind's, by the same rules as at the start of the daemon.
#[test]
fn a_secret_file_of_any_kind_is_looked_at() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (secret, file) = (directory.path().join("bmc"), directory.path().join("leasehold.toml"));
    let login = format!("user = \"fence\"\npassword_file = \"{}\"", secret.display());
    let kinds = [
        format!("kind = \"redfish\"\nurl = \"https://203.0.113.77\"\n{login}"),
        format!("kind = \"ipmi\"\naddress = \"203.0.113.77\"\n{login}"),
        format!(
            "kind = \"ec2-power\"\nregion = \"eu-central-1\"\ninstance = \"i-0123456789abcdef0\"\ntimeout = \"120s\"\n\
             environment_file = \"{}\"",
            secret.display()
        ),
        format!(
            "kind = \"fence-agent\"\nprogram = \"fence_nowhere\"\noptions = {{ ip = \"203.0.113.77\" }}\n\
             secret_options = {{ password = \"{}\" }}",
            secret.display()
        ),
    ];
    for kind in kinds {
        let agent = format!("\n[[fence.agent]]\nname = \"more\"\ntarget = \"heron\"\nlevel = 7\n{kind}\n");
        fs::write(&file, sample() + &agent).expect("writable");
        for (content, mode, word) in [
            (&b"twelve bytes"[..], 0o644, "others may read it (mode 0644)"),
            (b"\n", 0o600, "the file is empty"),
            (&[b'x'; 5000], 0o600, "more than 4096 bytes"),
        ] {
            fs::write(&secret, content).expect("writable");
            fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).expect("it is ours");
            let text = config::load(&file).map_err(|d| d.to_string()).expect_err("unusable");
            assert!(text.contains(word) && text.contains("help: "), "{kind}: {text}");
            assert!(!text.contains("twelve"), "{text}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_and_no_panic() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let missing = directory.path().join("missing.toml");
    assert!(config::load(&missing).expect_err("missing").to_string().contains("cannot be read"));
    let latin = directory.path().join("latin.toml");
    fs::write(&latin, b"[cluster]\nname = \"gr\xf6\xdfe\"\n").expect("writable");
    let text = config::load(&latin).expect_err("not UTF-8").to_string();
    assert!(text.contains("not UTF-8, from line 2 on"), "{text}");
}

#[test]
fn check_ends_with_status_0_for_the_sample_and_1_for_a_wrong_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut out = Vec::new();
    let exit = check::run(&root.join("config/leasehold.toml"), &mut out).expect("writable");
    assert_eq!(exit, Exit::Fine);
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.ends_with("leasehold.toml: 0 errors, 0 warnings\n"), "{text}");
    let mut out = Vec::new();
    let exit = check::run(&root.join("tests/config/no_agent.toml"), &mut out).expect("writable");
    assert_eq!(exit, Exit::Error);
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.ends_with("the daemon would not start\n"), "{text}");
}

#[test]
fn no_secret_is_ever_shown() {
    for case in cases() {
        let text = fs::read_to_string(&case).expect("readable case");
        assert!(!outcome(&text).contains("hush"), "{}", case.display());
    }
}

/// Pieces of real files, so that arbitrary text gets past the parser.
fn piece() -> impl Strategy<Value = String> {
    let lines: Vec<String> = sample().lines().map(String::from).filter(|l| !l.starts_with('#')).collect();
    let word =
        prop::sample::select(vec!["\"0s\"", "\"24h\"", "-1", "1e9", "[]", "{}", "true", "\"ü\"", "\"\"", "1979-05-27"]);
    let line = prop::sample::select(lines);
    prop_oneof![
        4 => line.clone(),
        3 => (line, word).prop_map(|(line, word)| match line.split_once('=') {
            Some((key, _)) => format!("{key}= {word}"),
            None => line,
        }),
        1 => "\\PC{0,40}",
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(lines in prop::collection::vec(piece(), 0..60)) {
        outcome(&lines.join("\n"));
    }

    #[test]
    fn a_sample_with_a_part_cut_out_never_panics(from in 0usize..6000, length in 0usize..200) {
        let text = sample();
        let cut: String = text.chars().take(from).chain(text.chars().skip(from + length)).collect();
        outcome(&cut);
    }

    #[test]
    fn computed_times_break_no_rule(
        h in 10u64..2000, d in 6u64..20, p in 0u64..5000, s in 1u64..90_000, f in 1100u64..120_000, drift in 100u32..20_000,
        first in prop::sample::select(vec!["primary", "standby"]),
    ) {
        let text = sample()
            .replace("interval = \"250ms\"", &format!("interval = \"{h}ms\""))
            .replace("dead_after = \"1.5s\"", &format!("dead_after = \"{}ms\"", h * d + 20))
            .replace("pause = \"1s\"", &format!("pause = \"{p}ms\""))
            .replace("drift_ppm = 200", &format!("drift_ppm = {drift}"))
            .replace("first = \"primary\"", &format!("first = \"{first}\""))
            .replace("head_start = \"1.5s\"", &format!("head_start = \"{}ms\"", 1000 + h))
            .replace("stop_timeout = \"5s\"", &format!("stop_timeout = \"{s}ms\""))
            .replace("timeout = \"10s\"\ntypical", &format!("timeout = \"{f}ms\"\ntypical"))
            .replace("wait = \"10s\"", "wait = \"1m\"");
        let checked = config::parse("leasehold.toml", &text);
        let findings = checked.as_ref().map_or_else(|d| d.to_string(), |c| c.warnings.to_string());
        prop_assert_eq!(findings, "");
        let t = checked.expect("no findings").config.timing;
        let needed = t.dead_after.plus(t.interval).plus(t.round_trip).plus(t.fence_bound);
        let extra = if first == "standby" { t.head_start } else { leasehold::core::Span::ZERO };
        prop_assert!(t.term.minus(t.margin) >= needed.plus(extra));
        prop_assert!(t.term.as_ms().is_multiple_of(100));
    }
}

#[test]
fn errors_come_before_warnings_and_each_in_the_order_of_the_file() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/several_at_once.toml"));
    let diagnostics = config::parse("leasehold.toml", &text.expect("the case")).expect_err("several errors");
    let severities: Vec<Severity> = diagnostics.findings().iter().map(|f| f.severity).collect();
    assert!(diagnostics.count(Severity::Error) >= 3, "{diagnostics}");
    assert!(severities.is_sorted(), "{diagnostics}");
}
