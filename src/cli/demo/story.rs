//! The demo as a story in five acts, with a verdict.

use std::fs;
use std::time::Duration;

use anyhow::bail;
use rustix::process::{Signal, getpid};

use super::checker::{Check, judge, terms};
use super::history;
use super::pair::{News, Pair, What};
use super::procs::descendants;
use super::screen::Screen;
use super::show::{self, LastWrite, View};
use super::world::{BOTH, name};
use crate::cli::args::Demo;
use crate::cli::exit::Exit;
use crate::control::{Op, ProofKind};
use crate::core::{Instant, NodeId, Span};
use crate::os::clock;

/// Every act takes two or three seconds; with several of these the whole stays below a minute even when one hangs.
const PATIENCE: Span = Span::from_secs(15);
/// For the eye, between two acts.
const PAUSE: Span = Span::from_ms(1500);
/// How often the panel is drawn.
const FRAME: Duration = Duration::from_millis(50);
/// After this a daemon runs, or has ended.
const START: Span = Span::from_secs(1);
/// Lines of a daemon's log that explain a story that got stuck.
const LOG_LINES: usize = 12;

/// Tells it, and ends the world.
pub fn tell(pair: Pair, screen: Screen<'_>, options: &Demo) -> anyhow::Result<Exit> {
    let begun = clock::now();
    let mut story = Story {
        pair,
        screen,
        view: View::default(),
        drawn: begun,
        zero: begun,
        acts: 0,
        checks: vec![],
        figures: vec![],
    };
    let told = story.acts();
    story.screen.wipe()?;
    if let Err(error) = told {
        story.explain()?;
        return Err(error);
    }
    story.end(begun, options)
}

struct Story<'a> {
    pair: Pair,
    screen: Screen<'a>,
    view: View,
    drawn: Instant,
    /// What the times count from.
    zero: Instant,
    acts: usize,
    checks: Vec<Check>,
    figures: Vec<(String, String)>,
}

impl Story<'_> {
    fn acts(&mut self) -> anyhow::Result<()> {
        let primary = self.start()?;
        self.pause()?;
        let survivor = self.kill(primary)?;
        self.pause()?;
        self.revive(survivor.peer(), "The dead node comes back")?;
        self.pause()?;
        let primary = self.hand_over(survivor)?;
        self.pause()?;
        self.partition(primary)?;
        self.pause()?;
        self.revive(primary.peer(), "The links are mended, the loser is switched on")?;
        self.pause()
    }

    // --- the acts ---------------------------------------------------------------------------------------------

    fn start(&mut self) -> anyhow::Result<NodeId> {
        self.act(
            "Two machines are switched on",
            "Each runs one daemon. They meet, agree who serves, and the other one becomes its standby.",
        )?;
        BOTH.into_iter().try_for_each(|node| self.pair.switch_on(node))?;
        self.until_whole("the pair starts")
    }

    /// Gives the survivor.
    fn kill(&mut self, primary: NodeId) -> anyhow::Result<NodeId> {
        self.act(
            &format!("The primary dies: SIGKILL to daemon and service of {}", name(primary)),
            "The standby cannot know whether it is dead or only silent. So it powers the machine off, reads back that it \
             is off, and only then serves.",
        )?;
        let before = self.last()?;
        self.zero = clock::now();
        self.pair.signal_all(primary, Signal::KILL)?;
        self.line(self.zero, primary, "KILLED: its daemon and its service, by SIGKILL")?;
        let after = self.until_written_by(primary.peer(), before.token)?;
        self.note_gap("the primary died: from the kill to the next write", self.zero, after.at);
        self.check_proof(primary.peer())?;
        Ok(primary.peer())
    }

    fn revive(&mut self, node: NodeId, title: &str) -> anyhow::Result<()> {
        self.act(title, "It joins as standby: whatever it once was, its peer serves now, and admits it when it asks.")?;
        self.zero = clock::now();
        self.pair.world.network.set_all_cut(false);
        self.view.cut = false;
        self.pair.switch_on(node)?;
        self.until_whole("the node joins again").map(drop)
    }

    /// Gives the new primary.
    fn hand_over(&mut self, primary: NodeId) -> anyhow::Result<NodeId> {
        self.act(
            &format!("Planned failover: `leasehold failover` on {}", name(primary)),
            "It stops the service, verifies that nothing is left, and gives its token up. Nothing is fenced.",
        )?;
        let before = self.last()?;
        self.zero = clock::now();
        self.pair.command(primary, Op::Failover { force: false })?;
        let after = self.until_written_by(primary.peer(), before.token)?;
        self.note_gap("planned failover: time without a write", before.at, after.at);
        self.until_whole("the former primary is admitted as standby")
    }

    fn partition(&mut self, primary: NodeId) -> anyhow::Result<()> {
        let loser = primary.peer();
        self.act(
            "All links are cut, both machines live",
            &format!(
                "Each one hears nobody. {} holds the lease and shoots first; {} would wait half a second longer. The BMC \
                 can still be reached by both.",
                name(primary),
                name(loser)
            ),
        )?;
        let before = self.last()?;
        self.zero = clock::now();
        self.pair.world.network.set_all_cut(true);
        self.view.cut = true;
        self.line(self.zero, primary, "CUT: both links, both directions")?;
        let off = self.until(&format!("{} is fenced", name(loser)), |news| {
            (news.node == loser && matches!(news.what, What::Off)).then_some(news.at)
        })?;
        self.until("the survivor acts alone", |news| {
            let alone = matches!(&news.what, What::Decided(decision) if decision.kind == "went-sole");
            (news.node == primary && alone).then_some(())
        })?;
        let after = self.until("the survivor still writes", |news| match &news.what {
            What::Wrote(line) if news.at > off => Some((news.node, line.token, line.pid)),
            _ => None,
        })?;
        let went_on = after == (primary, before.token, before.pid);
        let finding = format!("{} wrote under token {} instead", name(after.0), after.1);
        self.check("in the partition the primary went on without a break", went_on, finding);
        self.figures.push(("partition: the loser was off after".into(), ms(off.since(self.zero))));
        Ok(())
    }

    // --- the end ----------------------------------------------------------------------------------------------

    fn end(mut self, begun: Instant, options: &Demo) -> anyhow::Result<Exit> {
        let lines = history::read(&self.pair.world.history())?;
        let directory = self.pair.world.directory().to_owned();
        self.pair.world.keeper().end()?;
        let left = descendants(getpid())?;
        self.check("nothing is left running", left.is_empty(), format!("{left:?}"));
        let mut checks = judge(&lines);
        checks.append(&mut self.checks);
        self.note_history(&lines, begun);
        let (width, colour) = (self.screen.width, self.screen.colour);
        self.screen.print(&show::summary(&checks, &self.figures, width, colour))?;
        self.screen.print(&show::verdict(&checks, width, colour))?;
        if options.keep {
            self.screen.print(&format!("\nKept: {}\n", directory.display()))?;
        }
        self.screen.print(show::READ_NEXT)?;
        Ok(if checks.iter().all(Check::holds) { Exit::Fine } else { Exit::Error })
    }

    fn note_history(&mut self, lines: &[Result<history::Line, String>], begun: Instant) {
        let terms = terms(lines);
        let longest = terms.iter().map(|term| term.longest_gap_ns).max().unwrap_or_default();
        self.figures.push(("longest pause between two writes of one term".into(), ms(Span(longest))));
        for term in &terms {
            self.figures
                .push((format!("writes under token {}", term.token), format!("{} by {}", term.writes, term.node)));
        }
        self.figures.push(("the whole demo took".into(), clock::now().since(begun).to_string()));
    }

    /// What there is to see of a story that got stuck.
    fn explain(&mut self) -> anyhow::Result<()> {
        let checks: Vec<Check> =
            judge(&history::read(&self.pair.world.history())?).into_iter().filter(|c| !c.holds()).collect();
        if !checks.is_empty() {
            self.screen.print(&show::summary(&checks, &[], self.screen.width, self.screen.colour))?;
        }
        for node in BOTH {
            let log = fs::read_to_string(self.pair.world.home(node).join("daemon.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            self.screen.print(&format!("\nThe end of {}'s log:\n{last}\n", name(node)))?;
        }
        Ok(())
    }

    // --- what the acts are made of ------------------------------------------------------------------------------

    fn act(&mut self, title: &str, text: &str) -> anyhow::Result<()> {
        self.acts += 1;
        Ok(self.screen.print(&show::act(self.acts, title, text, self.screen.width, self.screen.colour))?)
    }

    fn line(&mut self, at: Instant, node: NodeId, text: &str) -> anyhow::Result<()> {
        self.paint(at, node, text, crate::cli::page::Paint::Bold)
    }

    fn paint(&mut self, at: Instant, node: NodeId, text: &str, paint: crate::cli::page::Paint) -> anyhow::Result<()> {
        let (width, colour) = (self.screen.width, self.screen.colour);
        let line = show::line(at, self.zero, name(node), text, paint, width, colour);
        self.screen.print(&line)?;
        Ok(self.screen.draw(&self.view, clock::now())?)
    }

    fn heed(&mut self, news: &News) -> anyhow::Result<()> {
        let told = show::told(news, &self.view);
        self.view.heed(news);
        match told {
            Some((text, paint)) => self.paint(news.at, news.node, &text, paint),
            None => Ok(()),
        }
    }

    /// Shows what happens until `end` finds what it waits for.
    fn until<T>(&mut self, what: &str, mut end: impl FnMut(&News) -> Option<T>) -> anyhow::Result<T> {
        let begun = clock::now();
        loop {
            if let Some(found) = self.step(&mut |news| end(news))? {
                return Ok(found);
            }
            self.pair.lose_patience(what, begun, PATIENCE)?;
        }
    }

    /// One piece of news, or one frame without.
    fn step<T>(&mut self, end: &mut dyn FnMut(&News) -> Option<T>) -> anyhow::Result<Option<T>> {
        let news = self.pair.next(FRAME);
        let found = match &news {
            Some(news) => {
                self.heed(news)?;
                end(news)
            }
            None => None,
        };
        self.frame()?;
        Ok(found)
    }

    /// The service writes more often than an eye can see.
    fn frame(&mut self) -> anyhow::Result<()> {
        let now = clock::now();
        if now.since(self.drawn) >= FRAME.into() {
            self.drawn = now;
            self.screen.draw(&self.view, now)?;
        }
        Ok(())
    }

    /// A primary that serves, and its admitted standby: gives the primary.
    fn until_whole(&mut self, what: &str) -> anyhow::Result<NodeId> {
        let begun = clock::now();
        loop {
            let decided = self.step(&mut |news| matches!(news.what, What::Decided(_)).then_some(()))?;
            let quiet = self.view.last.is_some();
            if (decided.is_some() || quiet)
                && let Some(primary) = self.pair.whole()
            {
                return Ok(primary);
            }
            self.miss_daemons(begun)?;
            self.pair.lose_patience(what, begun, PATIENCE)?;
        }
    }

    /// A daemon that refuses to start says why in its log: no need to wait for it.
    fn miss_daemons(&self, begun: Instant) -> anyhow::Result<()> {
        if clock::now().since(begun) < START {
            return Ok(());
        }
        for node in BOTH {
            if self.pair.world.is_on(node)? && self.pair.daemon(node).is_err() {
                bail!("the daemon of {} has ended", name(node));
            }
        }
        Ok(())
    }

    fn until_written_by(&mut self, node: NodeId, above: u64) -> anyhow::Result<LastWrite> {
        self.until(&format!("{} serves", name(node)), |news| match &news.what {
            What::Wrote(line) if news.node == node && line.token > above => {
                Some(LastWrite { node, token: line.token, pid: line.pid, at: news.at })
            }
            _ => None,
        })
    }

    /// Lets it run for a while, for the eye.
    fn pause(&mut self) -> anyhow::Result<()> {
        let end = clock::now().after(PAUSE);
        while clock::now() < end {
            self.step(&mut |_| None::<()>)?;
        }
        Ok(())
    }

    fn last(&self) -> anyhow::Result<LastWrite> {
        self.view.last.ok_or_else(|| anyhow::anyhow!("the service has not written yet"))
    }

    fn check(&mut self, question: &'static str, holds: bool, finding: String) {
        self.checks.push(Check { question, findings: if holds { vec![] } else { vec![finding] } });
    }

    fn check_proof(&mut self, node: NodeId) -> anyhow::Result<()> {
        let proof = self.pair.status(node).and_then(|status| status.last_proof);
        let holds = proof.as_ref().is_some_and(|p| p.kind == ProofKind::Fenced && !p.evidence.is_empty());
        self.check("the standby served by a verified fence, with evidence", holds, format!("{proof:?}"));
        Ok(())
    }

    fn note_gap(&mut self, what: &str, from: Instant, to: Instant) {
        self.figures.push((what.to_owned(), ms(to.since(from))));
    }
}

fn ms(span: Span) -> String {
    format!("{} ms", span.as_ms())
}
