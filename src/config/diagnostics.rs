//! Findings about one file, all at once: what is wrong, where, with its arithmetic, and what to do.
//!
//! Syntax errors, wrong types and broken timing rules go through the same renderer, so that an operator learns to
//! read one picture.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Element, Level, Origin, Renderer, Snippet};

use super::secrets;

/// Whether the daemon may start with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    Warning,
}

/// One thing that is wrong, or unwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// What is wrong, in one line.
    pub title: String,
    /// Where, with what stands there. `None`: it concerns the file as a whole, or what is missing from it.
    pub place: Option<(Range<usize>, String)>,
    /// Other places that take part.
    pub context: Vec<(Range<usize>, String)>,
    /// Why: mostly arithmetic.
    pub notes: Vec<String>,
    /// What to do.
    pub helps: Vec<String>,
}

impl Finding {
    pub fn error(title: impl Into<String>) -> Finding {
        Finding::new(Severity::Error, title)
    }

    pub fn warning(title: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, title)
    }

    fn new(severity: Severity, title: impl Into<String>) -> Finding {
        let (context, notes, helps) = (Vec::new(), Vec::new(), Vec::new());
        Finding { severity, title: title.into(), place: None, context, notes, helps }
    }

    /// The place that is marked with carets.
    pub fn at(mut self, span: &Range<usize>, label: impl Into<String>) -> Finding {
        self.place = Some((span.clone(), label.into()));
        self
    }

    /// The place that is marked, if the parameter stands in the file at all.
    pub fn at_some(self, span: Option<&Range<usize>>, label: impl Into<String>) -> Finding {
        match span {
            Some(span) => self.at(span, label),
            None => self,
        }
    }

    /// Another place that takes part.
    pub fn with(mut self, span: &Range<usize>, label: impl Into<String>) -> Finding {
        self.context.push((span.clone(), label.into()));
        self
    }

    /// Another place that takes part, if it stands in the file at all.
    pub fn with_some(self, span: Option<&Range<usize>>, label: impl Into<String>) -> Finding {
        match span {
            Some(span) => self.with(span, label),
            None => self,
        }
    }

    pub fn note(mut self, text: impl Into<String>) -> Finding {
        self.notes.push(text.into());
        self
    }

    pub fn help(mut self, text: impl Into<String>) -> Finding {
        self.helps.push(text.into());
        self
    }
}

/// All findings about one file. `Display` renders them for people; no secret is ever in it.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    path: String,
    /// The text with its secrets masked.
    source: String,
    findings: Vec<Finding>,
}

impl Diagnostics {
    /// Takes the findings about `source`, which is shown under the name `path`. Errors come first, then by place.
    pub fn new(path: impl Into<String>, source: &str, mut findings: Vec<Finding>) -> Diagnostics {
        findings.sort_by_key(|f| (f.severity, f.place.as_ref().map_or(usize::MAX, |(span, _)| span.start)));
        Diagnostics { path: path.into(), source: secrets::mask(source), findings }
    }

    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|f| f.severity == severity).count()
    }

    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    fn render(&self, finding: &Finding) -> String {
        let level = match finding.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let group = level.primary_title(finding.title.as_str()).element(self.element(finding));
        let notes = finding.notes.iter().map(|n| Element::from(Level::NOTE.message(n.as_str())));
        let helps = finding.helps.iter().map(|h| Element::from(Level::HELP.message(h.as_str())));
        Renderer::plain().render(&[group.elements(notes).elements(helps)])
    }

    fn element<'a>(&'a self, finding: &'a Finding) -> Element<'a> {
        let Some((span, label)) = &finding.place else {
            return Origin::path(self.path.as_str()).into();
        };
        let primary = AnnotationKind::Primary.span(self.inside(span)).label(label.as_str());
        let context = finding.context.iter();
        let context = context.map(|(s, l)| AnnotationKind::Context.span(self.inside(s)).label(l.as_str()));
        Snippet::source(self.source.as_str()).path(self.path.as_str()).annotation(primary).annotations(context).into()
    }

    /// The span, moved onto whole characters of the text: the renderer must never be the one that fails.
    fn inside(&self, span: &Range<usize>) -> Range<usize> {
        let start = floor_boundary(&self.source, span.start);
        let end = floor_boundary(&self.source, span.end).max(start);
        start..end
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.findings.iter().enumerate() {
            let gap = if i == 0 { "" } else { "\n" };
            writeln!(f, "{gap}{}", self.render(finding))?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
