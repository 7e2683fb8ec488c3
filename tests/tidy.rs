//! The house rules that a machine can check, and for each rule a test that it can fail.
//!
//! Who may import whom, where the clock is read, where `unsafe` may stand, what the core may touch: the safety of the
//! design rests on these, so they are tests and not habits. Each rule takes one file and returns what it found.

#[path = "tidy/source.rs"]
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::{Line, Source, Token};

/// What each room may import. A path like `os::clock` allows that one module of a room.
const IMPORTS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("process", &[]),
    ("config", &["core"]),
    ("wire", &["core", "config"]),
    ("os", &["core", "config"]),
    ("control", &["core", "config"]),
    ("gate", &["core", "config", "process"]),
    ("fence", &["core", "config", "process", "gate::protocol"]),
    ("resource", &["core", "config", "process", "os::clock", "os::keep", "os::net"]),
    ("guard", &["core", "config", "os", "resource"]),
    ("daemon", &["core", "wire", "config", "fence", "resource", "os", "control", "guard", "process"]),
    ("sim", &["core", "wire"]),
    (
        "cli",
        &[
            "core",
            "control",
            "config",
            "fence",
            "sim",
            "wire",
            "daemon",
            "guard",
            "os::clock",
            "os::log",
            "os::machine",
            "process::unit",
            "gate",
        ],
    ),
    // Programs of their own, each a line.
    ("bin", &[]),
];

/// The deciding part of the core: only those who run it may name it, everyone else takes plain types.
const CORE_MACHINE: &[&str] =
    &["Node", "node", "joining", "standby", "takeover", "primary", "demoting", "invariants", "detector"];
const RUNS_THE_CORE: &[&str] = &["core", "daemon", "sim"];

/// What the core may use of the standard library: values, not the world.
const CORE_STD: &[&str] = &[
    "array",
    "borrow",
    "cmp",
    "collections",
    "convert",
    "error",
    "fmt",
    "hash",
    "iter",
    "marker",
    "mem",
    "num",
    "ops",
    "option",
    "result",
    "slice",
    "str",
    "string",
    "vec",
];

/// One function per role decides what each input means there; a forgotten input must not compile.
const STEP_FILES: &[&str] = &["node", "joining", "standby", "takeover", "primary", "demoting"];

/// The one place that reads a clock.
const CLOCK: &str = "src/os/clock.rs";
const CLOCK_READS: &[(&str, &str)] = &[
    ("Instant", "now"),
    ("SystemTime", "now"),
    ("Timestamp", "now"),
    ("Zoned", "now"),
    ("Utc", "now"),
    ("Local", "now"),
];
const CLOCK_CALLS: &[&str] = &["clock_gettime", "gettimeofday"];

/// A longer file holds more than one thing.
const LONGEST_FILE: usize = 500;
const LONGEST_MAIN: usize = 15;

const RULES: &[fn(&Source) -> Vec<String>] = &[
    imports_go_one_way,
    core_is_pure,
    core_and_sim_repeat_themselves,
    the_clock_is_read_in_one_place,
    unsafe_stands_in_os_only,
    no_unfinished_code,
    no_commented_out_code,
    no_wildcard_over_what_must_be_decided,
    no_bare_unwrap,
    files_are_short_and_say_why,
];

fn imports_go_one_way(source: &Source) -> Vec<String> {
    let Some(room) = source.room() else { return Vec::new() };
    let Some((_, allowed)) = IMPORTS.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{}: the room `{room}` has no line in the table IMPORTS", source.path)];
    };
    let from_crate = source.paths.iter().filter(|path| path.segments[0] == "crate");
    from_crate.filter_map(|path| check_import(source, room, allowed, path)).collect()
}

fn check_import(source: &Source, room: &str, allowed: &[&str], path: &source::PathUse) -> Option<String> {
    let target = path.segments.get(1)?;
    let module = format!("{target}::{}", path.segments.get(2).map_or("", String::as_str));
    let within = target == room;
    let known = within || allowed.iter().any(|name| *name == target || *name == module);
    let machine = target == "core" && path.segments.get(2).is_some_and(|name| CORE_MACHINE.contains(&name.as_str()));
    match (known, machine && !RUNS_THE_CORE.contains(&room)) {
        (false, _) => {
            Some(told(source, path.line, &format!("`{room}` must not import `{}`", path.segments.join("::"))))
        }
        (true, true) => {
            Some(told(source, path.line, &format!("`{room}` may use plain types of the core, not its machine")))
        }
        (true, false) => None,
    }
}

fn core_is_pure(source: &Source) -> Vec<String> {
    // The mutants are planted in a thread; without their feature, which no shipped build has, nothing of them is there.
    if source.room() != Some("core") || source.path == "src/core/mutant.rs" {
        return Vec::new();
    }
    let foreign = dependencies();
    let paths = source.paths.iter().filter(|path| !path.test).filter_map(|path| {
        let first = path.segments[0].as_str();
        let second = path.segments.get(1).map_or("", String::as_str);
        let duration = path.segments.starts_with(&["std".into(), "time".into(), "Duration".into()]);
        let outside = first == "std" && !CORE_STD.contains(&second) && !duration;
        let told_of = outside || foreign.iter().any(|name| name == first);
        told_of.then(|| told(source, path.line, &format!("the core must not use `{}`", path.segments.join("::"))))
    });
    let effects = ["async", "await", "println", "eprintln", "thread_local"];
    let words = source.tokens.iter().filter_map(|(line, token)| match token {
        Token::Word(word) if effects.contains(&word.as_str()) && !source.is_test(*line) => {
            Some(told(source, *line, &format!("the core must not use `{word}`")))
        }
        _ => None,
    });
    paths.chain(words).collect()
}

/// The crates of `[dependencies]`, as they are written in paths. Only `thiserror` makes no effects.
fn dependencies() -> Vec<String> {
    let manifest = include_str!("../Cargo.toml");
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or("").split("\n[").next().unwrap_or("");
    let names = section.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim().replace('-', "_"));
    names.filter(|name| name != "thiserror").collect()
}

fn core_and_sim_repeat_themselves(source: &Source) -> Vec<String> {
    let room = source.room();
    let random_order = |word: &str| matches!(word, "HashMap" | "HashSet") && matches!(room, Some("core" | "sim"));
    words_that(source, random_order, "iterates in random order: use the BTree kind, so that a seed repeats itself")
}

fn the_clock_is_read_in_one_place(source: &Source) -> Vec<String> {
    if source.path == CLOCK || source.room().is_none() {
        return Vec::new();
    }
    let reads = |segments: &[String]| {
        let pair = |two: &[String]| CLOCK_READS.iter().any(|(of, now)| two[0] == *of && two[1] == *now);
        segments.windows(2).any(pair) || segments.iter().any(|segment| CLOCK_CALLS.contains(&segment.as_str()))
    };
    let paths = source.paths.iter().filter(|path| !path.test && reads(&path.segments));
    let mut found: Vec<String> = paths
        .map(|path| told(source, path.line, &format!("`{}`: read the clock in {CLOCK}", path.segments.join("::"))))
        .collect();
    for (line, pair) in calls(source) {
        if pair == "elapsed" && !source.is_test(line) {
            found.push(told(source, line, &format!("`.elapsed()` reads a clock: do that in {CLOCK}")));
        }
    }
    found
}

/// The method calls of a file: line and name.
fn calls(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.tokens.windows(3).filter_map(|three| match three {
        [(_, Token::Sign('.')), (line, Token::Word(word)), (_, Token::Sign('('))] => Some((*line, word.as_str())),
        _ => None,
    })
}

fn unsafe_stands_in_os_only(source: &Source) -> Vec<String> {
    let allowed = source.room().is_none_or(|room| room == "os");
    let unsafe_word = |word: &str| !allowed && matches!(word, "unsafe" | "unsafe_code");
    words_that(source, unsafe_word, "stands in src/os only")
}

fn no_unfinished_code(source: &Source) -> Vec<String> {
    let macros = source.tokens.windows(2).filter_map(|two| match two {
        [(line, Token::Word(word)), (_, Token::Sign('!'))]
            if matches!(word.as_str(), "todo" | "unimplemented" | "dbg") =>
        {
            Some(told(source, *line, &format!("`{word}!` is unfinished work")))
        }
        _ => None,
    });
    let comments = source.lines.iter().enumerate().filter(|(_, line)| marks_unfinished(&line.comment));
    macros.chain(comments.map(|(index, _)| told(source, index + 1, "a note of unfinished work"))).collect()
}

/// Written in halves, so that this file does not find itself.
fn marks_unfinished(text: &str) -> bool {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
    text.split(|c: char| !c.is_alphanumeric()).any(|word| marks.contains(&word))
}

fn no_commented_out_code(source: &Source) -> Vec<String> {
    let suspects = source.lines.iter().enumerate().filter(|(_, line)| !line.doc && looks_like_code(&line.comment));
    suspects.map(|(index, _)| told(source, index + 1, "looks like commented-out code")).collect()
}

/// A guess: prose rarely ends like a statement and begins like one.
fn looks_like_code(comment: &str) -> bool {
    let text = comment.trim();
    let starts =
        ["let ", "use ", "pub ", "fn ", "return ", "if ", "for ", "while ", "match ", "impl ", "struct ", "mod ", "#["];
    let statement = text.ends_with(';') || text.ends_with('{') || text.ends_with("},");
    let shaped = text.contains('(') || text.contains("= ") || text.contains("::") || text.ends_with('{');
    matches!(text, "}" | "};" | "}," | "})" | "});") || text.starts_with("#[") || {
        statement
            && shaped
            && (starts.iter().any(|start| text.starts_with(start)) || !text.contains(". ") && is_call(text))
    }
}

/// `name.other::third(…);` or `name = …;`: what stands before the first parenthesis or sign is one word.
fn is_call(text: &str) -> bool {
    let head = text.split(['(', '=', '+', '-']).next().unwrap_or("").trim_end();
    !head.is_empty() && head.chars().all(|c| c.is_alphanumeric() || "_.:!?*".contains(c))
}

fn no_wildcard_over_what_must_be_decided(source: &Source) -> Vec<String> {
    let step = |name: &&&str| source.path == format!("src/core/{name}.rs");
    if STEP_FILES.iter().find(step).is_none() {
        return Vec::new();
    }
    let bare = |index: &usize| has_wildcard_arm(&source.lines[*index]) && !gives_reason(&source.lines, *index);
    (0..source.lines.len()).filter(bare).map(|index| told(source, index + 1, WILDCARD)).collect()
}

const WILDCARD: &str = "a wildcard arm: name every variant, or say why not in a comment `wildcard: REASON`";

fn has_wildcard_arm(line: &Line) -> bool {
    let code = line.code.trim_start();
    let wild = |rest: &str| rest.trim_start().starts_with("=>") || rest.trim_start().starts_with("if ");
    let starts = code.strip_prefix('_').is_some_and(wild);
    let inside = ["{ _", ", _", "| _"]
        .iter()
        .any(|lead| code.split(lead).skip(1).any(|rest| rest.trim_start().starts_with("=>")));
    !line.test && (starts || inside)
}

fn gives_reason(lines: &[Line], index: usize) -> bool {
    let reason = |line: &Line| line.comment.split_once("wildcard: ").is_some_and(|(_, reason)| reason.len() >= 10);
    reason(&lines[index]) || index > 0 && reason(&lines[index - 1])
}

fn no_bare_unwrap(source: &Source) -> Vec<String> {
    let product = source.path.starts_with("src/");
    let bare = calls(source).filter(|(line, name)| product && *name == "unwrap" && !source.is_test(*line));
    bare.map(|(line, _)| told(source, line, "`unwrap` in the product: use `expect` and name the invariant")).collect()
}

fn files_are_short_and_say_why(source: &Source) -> Vec<String> {
    let limit = if source.path == "src/main.rs" { LONGEST_MAIN - 1 } else { LONGEST_FILE };
    let long = source.lines.len() > limit + 1;
    let silent = !source.lines.iter().take(3).any(|line| line.doc);
    let long = long.then(|| format!("{}: longer than {limit} lines", source.path));
    let silent = silent.then(|| format!("{}: begins without a `//!` that says why it exists", source.path));
    long.into_iter().chain(silent).collect()
}

fn words_that(source: &Source, wrong: impl Fn(&str) -> bool, why: &str) -> Vec<String> {
    let found = source.tokens.iter().filter_map(|(line, token)| match token {
        Token::Word(word) if wrong(word) => Some(told(source, *line, &format!("`{word}` {why}"))),
        _ => None,
    });
    found.collect()
}

fn told(source: &Source, line: usize, what: &str) -> String {
    format!("{}:{line}: {what}", source.path)
}

/// Every file below `folder` whose name satisfies `wanted`; relative to the package, sorted.
fn files(folder: &str, wanted: fn(&Path) -> bool) -> Vec<PathBuf> {
    let root = root();
    let mut folders = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in entries {
            match path.is_dir() {
                true if !path.ends_with("target") && !path.ends_with("corpus") => folders.push(path),
                true => {}
                false if wanted(&path) => found.push(path.strip_prefix(&root).expect("below the root").to_path_buf()),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// The package: as cargo says at run time, since a built test may outlive the folder that it was built in.
fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

fn read(path: &Path) -> String {
    let full = root().join(path);
    fs::read_to_string(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()))
}

/// All Rust files of the package, with the files of test modules marked as such.
fn sources() -> Vec<Source> {
    let rust = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    let folders = ["src", "tests", "benches", "fuzz"].into_iter().flat_map(|folder| files(folder, rust));
    let mut sources: Vec<Source> = folders.map(|path| Source::parse(&path.to_string_lossy(), &read(&path))).collect();
    let tests: Vec<String> = sources.iter().flat_map(test_files).collect();
    for source in &mut sources {
        if tests.iter().any(|test| source.path.starts_with(test)) {
            source.mark_all_as_test();
        }
    }
    sources
}

/// Where the modules lie that a file declares under `#[cfg(test)]`.
fn test_files(source: &Source) -> Vec<String> {
    let folder = match source.path.strip_suffix("/mod.rs") {
        Some(folder) => folder,
        None => source.path.trim_end_matches(".rs").trim_end_matches("/lib"),
    };
    let modules =
        source.test_modules.iter().flat_map(|name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/")]);
    let beside = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    modules.chain(source.test_files.iter().map(|file| format!("{beside}/{file}"))).collect()
}

#[test]
fn every_file_keeps_the_house_rules() {
    let sources = sources();
    assert!(sources.len() > 20, "only {} files were read: the rules looked in the wrong place", sources.len());
    let found: Vec<String> = sources.iter().flat_map(|source| RULES.iter().flat_map(|rule| rule(source))).collect();
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_other_file_notes_unfinished_work() {
    let text = |path: &Path| {
        path.extension().is_none_or(|e| matches!(e.to_str(), Some("sh" | "toml" | "md" | "service" | "yml")))
    };
    let folders =
        ["tests", "packaging", "systemd", "config", "docs", ".ci"].into_iter().flat_map(|folder| files(folder, text));
    let more = ["README.md", "CHANGELOG.md", "Cargo.toml", "deny.toml"].into_iter().map(PathBuf::from);
    for path in folders.chain(more) {
        let marked = read(&path).lines().position(marks_unfinished);
        assert_eq!(marked, None, "{}: a note of unfinished work (line counted from 0)", path.display());
    }
}

#[path = "tidy/rules_can_fail.rs"]
mod rules_can_fail;
