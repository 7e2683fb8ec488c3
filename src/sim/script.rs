//! Golden scenarios: a short script in, the whole expected trace out.
//!
//! ```text
//! # The primary's machine loses power; the standby takes over.
//! config plan=node fence.first=primary
//! at 0s start both
//! at 20s power-off heron
//! run 40s
//! expect primary plover by 23s
//! ---
//! the trace
//! ```
//!
//! `trace from 9s` leaves out of the trace what came before, such as two daemons that find each other: the scenario
//! tells its story only. Expectations see the whole of it all the same.
//!
//! The `expect` lines are judged on their own, so that a regenerated trace cannot hide a failure. Unless a script
//! expects a violation, every violation that the judges find fails it.

use super::action::Action;
use super::action_text;
use super::expect::Expectation;
use super::judges::{Guarantee, Violation};
use super::quiet;
use super::setup::Setup;
use super::text;
use super::world::World;

/// The line between script and trace.
const RULE: &str = "---";

/// A parsed script.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub setup: Setup,
    pub schedule: Vec<(u64, Action)>,
    pub until: u64,
    /// The trace begins here.
    pub trace_from: u64,
    pub expectations: Vec<Expectation>,
    /// The script as it stands in the file, without the trace.
    pub script: String,
    /// The trace that the file expects.
    pub golden: String,
}

/// What came of running a scenario.
#[derive(Debug)]
pub struct Outcome {
    pub trace: String,
    /// What is wrong, in words; empty when all is as expected.
    pub faults: Vec<String>,
    pub violations: Vec<Violation>,
}

impl Scenario {
    /// Reads a scenario; the error names the line.
    pub fn parse(file: &str) -> Result<Scenario, String> {
        let (script, golden) = split(file);
        let mut scenario = Scenario {
            setup: Setup::default(),
            schedule: Vec::new(),
            until: 60_000_000_000,
            trace_from: 0,
            expectations: Vec::new(),
            script: script.into(),
            golden: golden.into(),
        };
        for (number, line) in script.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                scenario.read(line).map_err(|e| format!("line {}: {e}", number + 1))?;
            }
        }
        Ok(scenario)
    }

    fn read(&mut self, line: &str) -> Result<(), String> {
        let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match verb {
            "config" => rest.split_whitespace().try_for_each(|word| {
                let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: write key=value"))?;
                self.setup.set(key, value)
            }),
            "run" => text::time(rest.trim()).map(|t| self.until = t),
            "trace" => {
                let time = rest.trim().strip_prefix("from ").ok_or("write `trace from 9s`")?;
                text::time(time.trim()).map(|t| self.trace_from = t)
            }
            "at" => self.read_action(rest),
            "expect" => Expectation::parse(rest.trim()).map(|e| self.expectations.push(e)),
            _ => Err(format!("`{verb}`: a line begins with config, at, run, trace or expect")),
        }
    }

    fn read_action(&mut self, rest: &str) -> Result<(), String> {
        let (at, action) = rest.trim().split_once(char::is_whitespace).ok_or("`at` needs a time and an action")?;
        let at = text::time(at)?;
        for action in action_text::parse(action)? {
            if let Action::Set { key, value } = &action {
                self.setup.clone().set(key, value)?;
            }
            self.schedule.push((at, action));
        }
        Ok(())
    }

    /// Runs it with tracing and judges it. A panic of the core is a violation like any other, at the end of the trace.
    pub fn run(&self) -> Outcome {
        let mut world = World::new(self.setup.clone(), self.schedule.clone(), true);
        match quiet::surviving(|| world.run_until(self.until)) {
            Ok(()) => world.finish(),
            Err(text) => world.judges.accuse(world.now, Guarantee::Panic, text),
        }
        let mut faults: Vec<String> = self
            .expectations
            .iter()
            .filter_map(|e| e.judge(&world).err().map(|why| format!("expect {e}: {why}")))
            .collect();
        faults.extend(self.setup.broken_rule().filter(|_| !self.expects_broken_rules()).map(|r| format!("setup: {r}")));
        for violation in &world.judges.violations {
            if !self.expectations.iter().any(|e| e.allows(violation.guarantee)) {
                faults.push(violation.to_string());
            }
        }
        Outcome { trace: world.trace.text(self.trace_from), faults, violations: world.judges.violations }
    }

    fn expects_broken_rules(&self) -> bool {
        self.expectations.contains(&Expectation::BrokenRules)
    }

    /// The whole file with this trace in place of the old one.
    pub fn file_with(&self, trace: &str) -> String {
        format!("{}\n{RULE}\n{trace}", self.script.trim_end())
    }

    /// The first difference between the expected and the real trace, with a little before and after it.
    pub fn difference(&self, trace: &str) -> Option<String> {
        let (golden, real): (Vec<&str>, Vec<&str>) = (self.golden.lines().collect(), trace.lines().collect());
        if golden == real {
            return None;
        }
        let same = golden.iter().zip(&real).take_while(|(a, b)| a == b).count();
        let from = same.saturating_sub(3);
        let part = |lines: &[&str], mark: char| -> String {
            lines.iter().skip(same).take(6).map(|l| format!("{mark} {l}\n")).collect()
        };
        let before: String = golden[from..same].iter().map(|l| format!("  {l}\n")).collect();
        Some(format!("{before}{}{}", part(&golden, '-'), part(&real, '+')))
    }
}

fn split(file: &str) -> (&str, &str) {
    let rule = format!("\n{RULE}\n");
    match file.split_once(rule.as_str()) {
        Some((script, golden)) => (script, golden),
        None => (file, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_line() {
        let error = Scenario::parse("config plan=node\n\nat 5s dance heron\n").expect_err("nobody dances");
        assert!(error.starts_with("line 3: "), "{error}");
    }

    #[test]
    fn one_seed_gives_one_trace() {
        let script = "config loss=20% reorder=5%\nat 0s start both\nat 9s power-off heron\nrun 30s\n";
        let scenario = Scenario::parse(script).expect("a right script");
        assert_eq!(scenario.run().trace, scenario.run().trace);
    }
}
