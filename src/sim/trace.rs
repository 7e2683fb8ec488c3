//! What happened, line by line, for golden scenarios and for people. Costs nothing while it is off.

use std::fmt;

use crate::core::NodeId;

use super::text;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub at: u64,
    /// The node that did it or to which it was done; `None` for the script and the judges.
    pub node: Option<NodeId>,
    pub text: String,
}

#[derive(Debug, Default)]
pub struct Trace {
    pub on: bool,
    pub lines: Vec<Line>,
}

impl Trace {
    /// Notes a line; the text is made only when somebody wants it.
    pub fn say(&mut self, at: u64, node: Option<NodeId>, text: impl FnOnce() -> String) {
        if self.on {
            self.lines.push(Line { at, node, text: text() });
        }
    }

    /// The lines from this time on.
    pub fn text(&self, from: u64) -> String {
        self.lines.iter().filter(|l| l.at >= from).map(|l| format!("{l}\n")).collect()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.node.map_or("", text::name);
        write!(f, "{} {who:<7}{}", text::stamp(self.at), self.text)
    }
}
