//! A rule that cannot fail proves nothing: each is fed what it must refuse, and what it must let through.

use super::*;

fn refuses(rule: fn(&Source) -> Vec<String>, path: &str, text: &str) {
    assert!(!rule(&Source::parse(path, text)).is_empty(), "let through in {path}:\n{text}");
}

fn accepts(rule: fn(&Source) -> Vec<String>, path: &str, text: &str) {
    let found = rule(&Source::parse(path, text));
    assert!(found.is_empty(), "refused in {path}:\n{text}\n{}", found.join("\n"));
}

#[test]
fn an_import_against_the_direction_is_found_however_it_is_written() {
    let rule = imports_go_one_way;
    refuses(rule, "src/core/lease.rs", "use crate::wire::seal;");
    refuses(rule, "src/wire/mod.rs", "use crate::os;");
    refuses(rule, "src/wire/mod.rs", "use crate::{core::Span, os::clock};");
    refuses(rule, "src/fence/plan.rs", "fn f() { crate::resource::stop() }");
    refuses(rule, "src/fence/mod.rs", "use super::resource::Group;");
    refuses(rule, "src/fence/plan.rs", "use super::super::resource::Group;");
    refuses(rule, "src/fence/plan.rs", "#[cfg(test)]\nmod tests {\n    use super::super::super::os::clock;\n}");
    refuses(rule, "src/process.rs", "use crate::core::Span;");
    refuses(rule, "src/sim/mod.rs", "use crate::config::Config;");
    refuses(rule, "src/cli/status.rs", "use crate::os::record::RecordFile;");
    refuses(rule, "src/os/links.rs", "pub use crate::*;");
    refuses(rule, "src/attic/mod.rs", "fn f() {}");
}

#[test]
fn an_import_along_the_direction_passes() {
    let rule = imports_go_one_way;
    accepts(
        rule,
        "src/wire/mod.rs",
        "use crate::core::{NodeId, Token};\nuse crate::config::Link;\nuse crate::wire::seal;",
    );
    accepts(rule, "src/fence/exec.rs", "use super::Agent;\nuse crate::process::run;");
    accepts(rule, "src/daemon/driver.rs", "use crate::{core::Node, os::clock, wire};");
    accepts(rule, "src/cli/demo.rs", "use crate::os::clock;");
    accepts(rule, "src/lib.rs", "pub use crate::os;");
    accepts(
        rule,
        "src/os/links.rs",
        "// use crate::wire;\nconst A: &str = \"crate::wire\"; const B: &str = r#\"crate::\"wire\"#;",
    );
    accepts(rule, "src/fence/plan.rs", "#[cfg(test)]\nmod tests {\n    use super::*;\n    use super::super::Agent;\n}");
}

#[test]
fn only_those_who_run_the_core_may_name_its_machine() {
    refuses(imports_go_one_way, "src/control/mod.rs", "use crate::core::Node;");
    refuses(imports_go_one_way, "src/config/timing.rs", "use crate::core::standby::Standby;");
    accepts(imports_go_one_way, "src/sim/world.rs", "use crate::core::Node;");
}

#[test]
fn the_core_touches_nothing() {
    let rule = core_is_pure;
    refuses(rule, "src/core/a.rs", "use std::time::Instant;");
    refuses(rule, "src/core/a.rs", "use std::{fmt, net::IpAddr};");
    refuses(rule, "src/core/a.rs", "fn f() { std::fs::read(\"x\"); }");
    refuses(rule, "src/core/a.rs", "use std::thread;");
    refuses(rule, "src/core/a.rs", "use tokio::sync::mpsc;");
    refuses(rule, "src/core/a.rs", "#[derive(serde::Serialize)]\nstruct A;");
    refuses(rule, "src/core/a.rs", "fn f() { tracing::info!(\"x\") }");
    refuses(rule, "src/core/a.rs", "async fn f() {}");
    refuses(rule, "src/core/a.rs", "fn f() { println!(\"x\") }");
    accepts(rule, "src/core/a.rs", "use std::fmt;\nuse std::collections::VecDeque;\nuse std::time::Duration;");
    accepts(rule, "src/core/a.rs", "#[cfg(test)]\nmod tests {\n    use std::fs;\n}");
    accepts(rule, "src/os/a.rs", "use std::fs;");
}

#[test]
fn nothing_in_core_and_sim_iterates_in_random_order() {
    refuses(core_and_sim_repeat_themselves, "src/sim/world.rs", "use std::collections::HashMap;");
    accepts(core_and_sim_repeat_themselves, "src/sim/world.rs", "use std::collections::BTreeMap;");
}

#[test]
fn a_clock_read_elsewhere_is_found_under_any_name() {
    let rule = the_clock_is_read_in_one_place;
    refuses(rule, "src/daemon/a.rs", "fn f() { std::time::Instant::now(); }");
    refuses(rule, "src/daemon/a.rs", "use std::time::SystemTime;\nfn f() { SystemTime::now(); }");
    refuses(rule, "src/daemon/a.rs", "use std::time::Instant as Moment;\nfn f() { Moment::now(); }");
    refuses(rule, "src/daemon/a.rs", "use tokio::time;\nfn f() { time::Instant::now(); }");
    refuses(rule, "src/cli/demo.rs", "fn f() { jiff::Timestamp::now(); }");
    refuses(rule, "src/os/links.rs", "use rustix::time::clock_gettime;");
    refuses(rule, "src/os/links.rs", "fn f() { start.elapsed(); }");
    accepts(rule, "src/os/clock.rs", "fn now() { clock_gettime(ClockId::Boottime); }");
    accepts(rule, "src/daemon/a.rs", "use crate::os::clock;\nfn f() { clock::now(); }");
    accepts(rule, "src/daemon/a.rs", "#[cfg(test)]\nmod tests {\n    fn f() { std::time::Instant::now(); }\n}");
}

#[test]
fn unsafe_code_outside_os_is_found() {
    refuses(unsafe_stands_in_os_only, "src/daemon/a.rs", "fn f() { unsafe { g() } }");
    refuses(unsafe_stands_in_os_only, "src/daemon/a.rs", "#![allow(unsafe_code)]");
    accepts(unsafe_stands_in_os_only, "src/os/a.rs", "fn f() { unsafe { g() } }");
    accepts(unsafe_stands_in_os_only, "src/daemon/a.rs", "// This would be unsafe.\nconst A: &str = \"unsafe\";");
}

#[test]
fn unfinished_work_is_found() {
    refuses(no_unfinished_code, "src/os/a.rs", concat!("fn f() { to", "do!() }"));
    refuses(no_unfinished_code, "src/os/a.rs", concat!("fn f() { unimple", "mented!(\"x\") }"));
    refuses(no_unfinished_code, "tests/a.rs", concat!("fn f() { d", "bg!(1); }"));
    refuses(no_unfinished_code, "src/os/a.rs", concat!("// TO", "DO: later"));
    refuses(no_unfinished_code, "src/os/a.rs", concat!("/* FIX", "ME */"));
    accepts(no_unfinished_code, "src/os/a.rs", "// What is left to do is told elsewhere.\nfn todo() {}");
}

#[test]
fn commented_out_code_is_found() {
    let rule = no_commented_out_code;
    for code in [
        "let a = b();",
        "self.send(now);",
        "return Some(x);",
        "if a == b {",
        "}",
        "#[test]",
        "count += 1;",
        "use crate::core::Span;",
    ] {
        refuses(rule, "src/os/a.rs", &format!("fn f() {{\n    // {code}\n}}"));
    }
    for prose in
        ["The first is written; the second is not.", "Written before the grant (section 4);", "See `f(x);` below."]
    {
        accepts(rule, "src/os/a.rs", &format!("fn f() {{\n    // {prose}\n}}"));
    }
    accepts(rule, "src/os/a.rs", "/// ```\n/// let a = b();\n/// ```\nfn f() {}");
}

#[test]
fn a_wildcard_arm_needs_a_reason() {
    let rule = no_wildcard_over_what_must_be_decided;
    refuses(rule, "src/core/standby.rs", "match input {\n    A => 1,\n    _ => 2,\n}");
    refuses(rule, "src/core/standby.rs", "match input { A => 1, _ => 2 }");
    refuses(rule, "src/core/node.rs", "match input {\n    _ if late => 2,\n}");
    refuses(rule, "src/core/node.rs", "match input {\n    _ => 2, // wildcard: no\n}");
    accepts(rule, "src/core/node.rs", "match input {\n    // wildcard: a number, not a variant\n    _ => 2,\n}");
    accepts(rule, "src/core/node.rs", "match input {\n    Some(_) => 2,\n    (A, _) => 3,\n    B(_, _) => 4,\n}");
    accepts(rule, "src/core/lease.rs", "match input {\n    _ => 2,\n}");
}

#[test]
fn a_bare_unwrap_in_the_product_is_found() {
    refuses(no_bare_unwrap, "src/os/a.rs", "fn f() { g().unwrap(); }");
    accepts(no_bare_unwrap, "src/os/a.rs", "fn f() { g().expect(\"just checked\"); h().unwrap_or(1); }");
    accepts(no_bare_unwrap, "src/os/a.rs", "#[cfg(test)]\nmod tests {\n    fn f() { g().unwrap(); }\n}");
    accepts(no_bare_unwrap, "tests/a.rs", "fn f() { g().unwrap(); }");
}

#[test]
fn a_long_or_silent_file_is_found() {
    let rule = files_are_short_and_say_why;
    let long = |lines: usize| format!("//! Why.\n{}", "fn f() {}\n".repeat(lines - 1));
    refuses(rule, "src/os/a.rs", &long(501));
    accepts(rule, "src/os/a.rs", &long(500));
    refuses(rule, "src/main.rs", &long(15));
    accepts(rule, "src/main.rs", &long(14));
    refuses(rule, "src/os/a.rs", "fn f() {}");
}

#[test]
fn a_test_module_in_its_own_file_is_known_by_its_declaration() {
    let parent = Source::parse("src/os/links.rs", "#[cfg(test)]\nmod tests;\nmod other;");
    assert_eq!(test_files(&parent), ["src/os/links/tests.rs", "src/os/links/tests/"]);
    let parent = Source::parse("src/os/links.rs", "#[cfg(test)]\n#[path = \"links_tests.rs\"]\nmod tests;");
    assert!(test_files(&parent).contains(&"src/os/links_tests.rs".to_string()));
    let parent = Source::parse("src/os/mod.rs", "#[cfg(test)]\nmod harness;");
    assert_eq!(test_files(&parent), ["src/os/harness.rs", "src/os/harness/"]);
}

#[test]
fn strings_characters_and_lifetimes_do_not_confuse_the_reader() {
    let text = "fn g() -> impl Sized + use<> {}\nfn f<'a>(x: &'a str) -> char { let _ = \"a // b \\\" crate::wire\"; '\"' }\nuse crate::os;";
    let source = Source::parse("src/wire/mod.rs", text);
    assert_eq!(source.paths.len(), 1, "{:?}", source.paths);
    assert_eq!(source.paths[0].line, 3);
}
