//! What the package may depend on: licences, sources, and crates that must not creep in.
//!
//! `deny.toml` says the same to those who have cargo-deny; this test needs nothing but cargo, and no network.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Permissive licences whose only duty is to keep the notice.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "BSL-1.0",
    "BlueOak-1.0.0",
    "0BSD",
];

/// Licences that bind those who distribute: only for what tests use and nobody ships.
const LICENCES_OF_TEST_TOOLS: &[&str] = &["MPL-2.0"];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A name, or the beginning of one with `*`; and why not.
const BANNED: &[(&str, &str)] = &[
    ("openssl", "ties the binary to the host's OpenSSL"),
    ("openssl-sys", "ties the binary to the host's OpenSSL"),
    ("native-tls", "ties the binary to the host's TLS library"),
    ("aws-lc-sys", "doubles the build time and adds two megabytes for nothing that we use"),
    ("aws-lc-rs", "doubles the build time and adds two megabytes for nothing that we use"),
    ("aws-sdk*", "costs more to build than the whole daemon"),
    ("aws-config", "costs more to build than the whole daemon"),
];

/// A crate's feature that must stay off in the product.
const BANNED_FEATURES: &[(&str, &str, &str)] =
    &[("tokio", "rt-multi-thread", "the daemon decides on one thread; more threads mean more orders of events")];

/// One package of the dependency graph, as far as the rules need it.
#[derive(Debug, Default)]
struct Package {
    name: String,
    licence: Option<String>,
    /// None for our own.
    source: Option<String>,
    features: Vec<String>,
    /// Reached without going through `[dev-dependencies]`.
    shipped: bool,
}

/// Reads the graph that cargo resolved.
fn packages(metadata: &Value) -> Vec<Package> {
    let shipped = shipped(metadata);
    let nodes = metadata["resolve"]["nodes"].as_array().expect("cargo metadata resolves a graph");
    let features: BTreeMap<&str, Vec<String>> =
        nodes.iter().map(|node| (text(&node["id"]), strings(&node["features"]))).collect();
    let all = metadata["packages"].as_array().expect("cargo metadata lists packages");
    let package = |raw: &Value| Package {
        name: text(&raw["name"]).to_string(),
        licence: raw["license"].as_str().map(str::to_string),
        source: raw["source"].as_str().map(str::to_string),
        features: features.get(text(&raw["id"])).cloned().unwrap_or_default(),
        shipped: shipped.contains(text(&raw["id"])),
    };
    all.iter().filter(|raw| features.contains_key(text(&raw["id"]))).map(package).collect()
}

/// The ids that the root reaches through normal and build dependencies.
fn shipped(metadata: &Value) -> BTreeSet<String> {
    let nodes = metadata["resolve"]["nodes"].as_array().expect("cargo metadata resolves a graph");
    let by_id: BTreeMap<&str, &Value> = nodes.iter().map(|node| (text(&node["id"]), node)).collect();
    let mut waiting = vec![text(&metadata["resolve"]["root"])];
    let mut reached = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if reached.insert(id.to_string()) {
            let dependencies = by_id[id]["deps"].as_array().expect("each node lists its dependencies");
            waiting.extend(dependencies.iter().filter(|dependency| is_shipped(dependency)).map(|d| text(&d["pkg"])));
        }
    }
    reached
}

fn is_shipped(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array().expect("each dependency lists its kinds");
    kinds.iter().any(|kind| kind["kind"].as_str() != Some("dev"))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("cargo metadata gives a string here")
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|item| text(item).to_string()).collect()
}

/// Whether an SPDX expression can be met with the allowed licences. `/` is an old way to write OR.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&words, &mut at, allowed) && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut fits = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        fits |= both(words, at, allowed);
    }
    fits
}

fn both(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut fits = single(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        fits &= single(words, at, allowed);
    }
    fits
}

fn single(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let word = words.get(*at).copied().unwrap_or("");
    *at += 1;
    let fits = match word {
        "(" => {
            let fits = either(words, at, allowed);
            *at += 1;
            fits
        }
        name => allowed.contains(&name),
    };
    // An exception only loosens the licence it stands behind.
    if words.get(*at) == Some(&"WITH") {
        *at += 2;
    }
    fits
}

fn findings(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .flat_map(|package| [licence(package), source(package), banned(package), features(package)])
        .flatten()
        .collect()
}

fn licence(package: &Package) -> Option<String> {
    let expression = package.licence.as_deref().unwrap_or("");
    let test_tool = !package.shipped && is_allowed(expression, &[LICENCES, LICENCES_OF_TEST_TOOLS].concat());
    let fits = is_allowed(expression, LICENCES) || test_tool;
    (!fits).then(|| format!("{}: the licence `{expression}` is not on the list", package.name))
}

fn source(package: &Package) -> Option<String> {
    let own = package.source.is_none() && package.name == "leasehold";
    let fits = own || package.source.as_deref() == Some(CRATES_IO);
    (!fits).then(|| format!("{}: comes from {:?}, not from crates.io", package.name, package.source))
}

fn banned(package: &Package) -> Option<String> {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => package.name.starts_with(beginning),
        None => package.name == pattern,
    };
    let (_, why) = BANNED.iter().find(|(pattern, _)| matches(pattern))?;
    Some(format!("{}: banned: {why}", package.name))
}

fn features(package: &Package) -> Option<String> {
    let on = |name: &str, feature: &str| package.name == name && package.features.iter().any(|f| f == feature);
    let (_, feature, why) = BANNED_FEATURES.iter().find(|(name, feature, _)| on(name, feature))?;
    Some(format!("{}: the feature `{feature}` is banned: {why}", package.name))
}

fn metadata() -> Value {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--offline", "--format-version=1"]);
    // Without the filter cargo wants the crates of every platform, which nobody downloaded.
    cargo.arg(format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH));
    cargo.arg(concat!("--manifest-path=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    let output = cargo.output().expect("the cargo that built this test runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn all_dependencies_are_permitted() {
    let packages = packages(&metadata());
    assert!(packages.iter().filter(|package| package.shipped).count() > 20, "the graph was not read");
    let found = findings(&packages);
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

#[test]
fn deny_toml_has_the_same_lists() {
    let deny: toml::Table = include_str!("../deny.toml").parse().expect("deny.toml is TOML");
    let listed = deny["licenses"]["allow"].as_array().expect("a list of licences");
    let listed: BTreeSet<&str> = listed.iter().filter_map(|name| name.as_str()).collect();
    assert_eq!(listed, LICENCES.iter().copied().collect());
    let denied = deny["bans"]["deny"].as_array().expect("a list of crates");
    let denied: BTreeSet<&str> = denied.iter().filter_map(|entry| entry["crate"].as_str()).collect();
    for (name, _) in BANNED.iter().filter(|(name, _)| !name.ends_with('*')) {
        assert!(denied.contains(name), "deny.toml does not ban {name}");
    }
}

fn fine() -> Package {
    let licence = Some("MIT OR Apache-2.0".to_string());
    Package { name: "fine".into(), licence, source: Some(CRATES_IO.into()), shipped: true, ..Package::default() }
}

#[test]
fn each_rule_can_fail() {
    let name = |name: &str| Package { name: name.into(), ..fine() };
    let licence = |licence: &str, shipped| Package { licence: Some(licence.into()), shipped, ..fine() };
    let source = |source: Option<&str>| Package { source: source.map(str::to_string), ..fine() };
    let threads = Package { name: "tokio".into(), features: vec!["rt-multi-thread".into()], ..fine() };
    let wrong = [
        name("openssl"),
        name("aws-sdk-ec2"),
        licence("GPL-3.0", true),
        licence("MPL-2.0", true),
        Package { licence: None, ..fine() },
        source(Some("git+https://example.org/fine")),
        source(None),
        threads,
    ];
    for package in wrong {
        assert_eq!(findings(std::slice::from_ref(&package)).len(), 1, "{package:?}");
    }
    assert_eq!(findings(&[fine(), licence("MPL-2.0", false), name("aws-sigv4")]), Vec::<String>::new());
}

#[test]
fn licence_expressions_are_read_as_spdx_means_them() {
    let allowed = |expression: &str| is_allowed(expression, &["MIT", "Apache-2.0"]);
    for expression in
        ["MIT", "MIT/GPL-2.0", "GPL-2.0 OR MIT", "(MIT OR GPL-2.0) AND Apache-2.0", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(allowed(expression), "{expression}");
    }
    for expression in ["", "GPL-2.0", "MIT AND GPL-2.0", "MIT Apache-2.0", "GPL-2.0 WITH Classpath-exception-2.0"] {
        assert!(!allowed(expression), "{expression}");
    }
}
