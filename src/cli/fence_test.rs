//! `leasehold fence test`: the contract of fence agents, tried on one of the configuration.
//!
//! The daemon has no part in it: an agent is tried before it is trusted, and a program of anyone before it is used.

use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::bail;

use super::args::FenceTest;
use super::exit::Exit;
use crate::config::{self, Agent as Configured, Config};
use crate::core::Token;
use crate::fence::FencePlan;
use crate::fence::conformance::{Clause, Kept, Kit, Line, Touch, secrets_of};
use crate::os::machine;

/// Width of the column of the clauses.
const CLAUSE: usize = 10;

pub fn run(path: &Path, options: &FenceTest, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let config = match config::load(path) {
        Ok(checked) => checked.config,
        Err(diagnostics) => {
            writeln!(out, "{diagnostics}")?;
            bail!("{}: no agent is tried before the configuration is right", path.display());
        }
    };
    let Some(configured) = config.fence.agents.iter().find(|agent| agent.name == options.agent) else {
        let names: Vec<&str> = config.fence.agents.iter().map(|agent| agent.name.as_str()).collect();
        bail!("there is no fence agent {:?}; the configuration has {}", options.agent, names.join(", "));
    };
    let target = &config.node(configured.target).name;
    let Some(touch) = touch(options, configured, target, out)? else {
        writeln!(out, "Nothing was tried.")?;
        return Ok(Exit::Refused);
    };
    out.write_all(heading(&config, configured).as_bytes())?;
    let lines = try_agent(&config, configured, touch, out)?;
    out.write_all(sum(&lines).as_bytes())?;
    let wrong = lines.iter().any(|line| line.kept == Kept::Wrong);
    Ok(if wrong { Exit::Error } else { Exit::Fine })
}

/// Whether the target may be touched; `None` when the answer was not its name.
fn touch(
    options: &FenceTest,
    configured: &Configured,
    target: &str,
    out: &mut dyn Write,
) -> anyhow::Result<Option<Touch>> {
    if !options.really && options.yes_really.is_none() {
        return Ok(Some(Touch::OnlyLook));
    }
    if machine::host_name() == target {
        bail!("this machine is {target} itself: test the agent on the other node, which would use it");
    }
    let name = match &options.yes_really {
        Some(name) => name.clone(),
        None => ask(configured, target, out)?,
    };
    if name == target {
        return Ok(Some(Touch::Really));
    }
    writeln!(out, "`{name}` is not `{target}`.")?;
    Ok(None)
}

fn ask(configured: &Configured, target: &str, out: &mut dyn Write) -> anyhow::Result<String> {
    let scope = configured.scope;
    writeln!(out, "{target} will really be fenced ({scope} scope) by {}, and let in again.", configured.name)?;
    writeln!(out, "If it serves, the service ends: make it the standby, and give `leasehold freeze`, before.")?;
    write!(out, "Type the name of the node to be fenced ({} letters): ", target.chars().count())?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

fn try_agent(config: &Config, configured: &Configured, touch: Touch, out: &mut dyn Write) -> anyhow::Result<Vec<Line>> {
    let made = FencePlan::one(config, &configured.name, configured.target.peer());
    let entry = match made {
        Some(Ok(entry)) => entry,
        Some(Err(error)) => {
            let (error, agent) = (error.to_string(), format!("fence agent {:?}: ", configured.name));
            // The heading has its name already.
            let why = error.strip_prefix(&agent).unwrap_or(&error);
            return tell(vec![Line::new(Clause::Made, Kept::Wrong, why)], out);
        }
        None => bail!("there is no fence agent {:?}", configured.name),
    };
    let mut lines = tell(vec![Line::new(Clause::Made, Kept::Right, "secrets and programs are there")], out)?;
    let secrets = secrets_of(configured);
    let kit = Kit {
        agent: &*entry.agent,
        name: &entry.name,
        limit: entry.limit,
        secrets: &secrets,
        expected: None,
        token: Token::NONE,
        touch,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut written = Ok(());
    let mut each = |line: &Line| {
        if written.is_ok() {
            written = out.write_all(render(line).as_bytes()).and_then(|()| out.flush());
        }
    };
    lines.extend(runtime.block_on(kit.run(&mut each)));
    written?;
    Ok(lines)
}

fn tell(lines: Vec<Line>, out: &mut dyn Write) -> anyhow::Result<Vec<Line>> {
    for line in &lines {
        out.write_all(render(line).as_bytes())?;
    }
    Ok(lines)
}

fn heading(config: &Config, configured: &Configured) -> String {
    let (name, kind, scope) = (&configured.name, configured.kind.word(), configured.scope);
    let (target, limit) = (&config.node(configured.target).name, configured.timeout);
    format!("{name}: {kind}, against {target}, {scope} scope, limit {limit}\n")
}

fn render(line: &Line) -> String {
    let mark = match line.kept {
        Kept::Right => "right",
        Kept::Wrong => "WRONG",
        Kept::LeftOut => "  -  ",
    };
    format!("  {mark}  {:CLAUSE$}  {}\n", line.clause.to_string(), line.why)
}

fn sum(lines: &[Line]) -> String {
    let count = |kept| lines.iter().filter(|line| line.kept == kept).count();
    let (right, wrong, left_out) = (count(Kept::Right), count(Kept::Wrong), count(Kept::LeftOut));
    format!("{right} right, {wrong} wrong, {left_out} left out\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clause_stands_out() {
        let lines = [
            Line::new(Clause::Prove, Kept::Right, "roles member"),
            Line::new(Clause::StaleTake, Kept::LeftOut, "the agent takes nothing"),
            Line::new(Clause::Limit, Kept::Wrong, "given up and killed after 2s: status"),
        ];
        let text: String = lines.iter().map(render).collect();
        let expected = "  right  proof       roles member\n    -    stale take  the agent takes nothing\n  \
                        WRONG  limit       given up and killed after 2s: status\n";
        assert_eq!(text, expected);
        assert_eq!(sum(&lines), "1 right, 1 wrong, 1 left out\n");
    }
}
