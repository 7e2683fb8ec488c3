//! Judges of the history: they look at what stands in the file, whatever the daemons believed. Pure.

use std::collections::BTreeMap;

use super::history::Line;

/// One question to the history, and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub question: &'static str,
    /// Empty when it holds. Each finding names its line, counted from 1.
    pub findings: Vec<String>,
}

impl Check {
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }
}

/// The work of one process of the service under one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    pub token: u64,
    pub node: String,
    pub pid: u32,
    pub writes: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    /// The longest time between two of its writes.
    pub longest_gap_ns: u64,
}

/// All questions, over all lines.
pub fn judge(lines: &[Result<Line, String>]) -> Vec<Check> {
    let whole: Vec<(usize, &Line)> =
        lines.iter().enumerate().filter_map(|(index, line)| Some((index + 1, line.as_ref().ok()?))).collect();
    vec![
        Check { question: "no write of a lower token after a higher one", findings: stale_writes(&whole) },
        Check { question: "no two writers at once", findings: overlaps(&terms(lines)) },
        Check { question: "each token belongs to one writer", findings: shared_tokens(&whole) },
        Check { question: "every line is whole, and no write is missing between two", findings: gaps(lines, &whole) },
    ]
}

/// Who wrote when, in the order of first writes.
pub fn terms(lines: &[Result<Line, String>]) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for line in lines.iter().flatten() {
        let same = |term: &&mut Term| (term.token, &term.node, term.pid) == (line.token, &line.node, line.pid);
        match terms.iter_mut().rev().find(same) {
            Some(term) => term.extend(line),
            None => terms.push(Term::new(line)),
        }
    }
    terms
}

impl Term {
    fn new(line: &Line) -> Term {
        let at = line.boottime_ns;
        let node = line.node.clone();
        Term { token: line.token, node, pid: line.pid, writes: 1, first_ns: at, last_ns: at, longest_gap_ns: 0 }
    }

    fn extend(&mut self, line: &Line) {
        self.writes += 1;
        self.longest_gap_ns = self.longest_gap_ns.max(line.boottime_ns.saturating_sub(self.last_ns));
        self.last_ns = line.boottime_ns;
    }
}

fn stale_writes(lines: &[(usize, &Line)]) -> Vec<String> {
    let mut highest = 0;
    let mut found = Vec::new();
    for (number, line) in lines {
        if line.token < highest {
            found.push(format!("line {number}: {} writes under token {} after {highest}", line.node, line.token));
        }
        highest = highest.max(line.token);
    }
    found
}

/// By the clock of the machine, which all writers share.
fn overlaps(terms: &[Term]) -> Vec<String> {
    let mut found = Vec::new();
    for (index, later) in terms.iter().enumerate() {
        for earlier in &terms[..index] {
            let apart = earlier.last_ns < later.first_ns || later.last_ns < earlier.first_ns;
            if !apart {
                let common = earlier.last_ns.min(later.last_ns) - earlier.first_ns.max(later.first_ns);
                found.push(format!(
                    "{} (token {}) and {} (token {}) both write for {} ms",
                    earlier.node,
                    earlier.token,
                    later.node,
                    later.token,
                    common / 1_000_000
                ));
            }
        }
    }
    found
}

fn shared_tokens(lines: &[(usize, &Line)]) -> Vec<String> {
    let mut owners: BTreeMap<u64, (&str, u32)> = BTreeMap::new();
    let mut found = Vec::new();
    for (number, line) in lines {
        let writer = (line.node.as_str(), line.pid);
        let owner = *owners.entry(line.token).or_insert(writer);
        if owner != writer {
            found.push(format!("line {number}: token {} of {} is used by {}", line.token, owner.0, line.node));
        }
    }
    found
}

fn gaps(lines: &[Result<Line, String>], whole: &[(usize, &Line)]) -> Vec<String> {
    let torn = lines.iter().enumerate().filter(|(_, line)| line.is_err());
    let mut found: Vec<String> = torn.map(|(index, _)| format!("line {}: not whole", index + 1)).collect();
    let mut counters: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    for (number, line) in whole {
        let counter = counters.entry((&line.node, line.pid)).or_default();
        if line.counter != *counter + 1 {
            found.push(format!("line {number}: write {} of {} follows {counter}", line.counter, line.node));
        }
        *counter = line.counter;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(token: u64, node: &str, pid: u32, counter: u64, ms: u64) -> Result<Line, String> {
        Ok(Line { token, node: node.into(), pid, counter, boottime_ns: ms * 1_000_000 })
    }

    fn fine() -> Vec<Result<Line, String>> {
        vec![
            line(4, "heron", 1, 1, 10),
            line(4, "heron", 1, 2, 20),
            line(5, "plover", 2, 1, 500),
            line(5, "plover", 2, 2, 530),
            line(6, "heron", 3, 1, 900),
        ]
    }

    fn broken(lines: &[Result<Line, String>]) -> Vec<&'static str> {
        judge(lines).into_iter().filter(|check| !check.holds()).map(|check| check.question).collect()
    }

    #[test]
    fn an_orderly_history_passes() {
        assert_eq!(broken(&fine()), Vec::<&str>::new());
        assert_eq!(broken(&[]), Vec::<&str>::new());
    }

    #[test]
    fn a_late_write_of_the_old_primary_is_found_in_the_order_of_the_file() {
        let mut lines = fine();
        lines.push(line(4, "heron", 1, 3, 30));
        let checks = judge(&lines);
        assert_eq!(checks[0].findings, ["line 6: heron writes under token 4 after 6"]);
    }

    #[test]
    fn two_that_write_at_once_are_found_even_if_their_lines_are_in_order() {
        let mut lines = fine();
        lines[1] = line(4, "heron", 1, 2, 510);
        assert_eq!(judge(&lines)[1].findings, ["heron (token 4) and plover (token 5) both write for 10 ms"]);
    }

    #[test]
    fn a_token_with_two_writers_is_found() {
        let mut lines = fine();
        lines[4] = line(5, "heron", 3, 1, 900);
        assert_eq!(judge(&lines)[2].findings, ["line 5: token 5 of plover is used by heron"]);
    }

    #[test]
    fn a_torn_line_and_a_lost_write_are_found() {
        let mut lines = fine();
        lines[2] = Err("{\"tok".into());
        assert_eq!(judge(&lines)[3].findings, ["line 3: not whole", "line 4: write 2 of plover follows 0"]);
    }

    #[test]
    fn terms_tell_who_wrote_when() {
        let terms = terms(&fine());
        assert_eq!(terms.len(), 3);
        assert_eq!((terms[1].token, terms[1].writes, terms[1].longest_gap_ns), (5, 2, 30_000_000));
    }
}
