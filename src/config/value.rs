//! Reads typed values out of the parsed document, each with its place, and goes on after an error.
//!
//! A serde mirror would stop at the first unknown key or wrong type; an operator who repairs a file wants all of them.
//! So a [`Section`] walks one table of the document: every key that is asked for is thereby known, and what is left
//! over in the end is unknown.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostics::{Finding, Severity};
use super::field::{absolute, duration, is_endless};
use super::suggest;
use crate::core::Span;

pub use super::field::{At, Field, Least};

/// Collects findings, and the keys of each kind of table.
#[derive(Debug, Default)]
pub struct Findings {
    pub list: Vec<Finding>,
    known: BTreeMap<String, Vec<&'static str>>,
    shapes: BTreeMap<(String, &'static str), String>,
    unknown: Vec<(String, At<String>)>,
}

impl Findings {
    pub fn push(&mut self, finding: Finding) {
        self.list.push(finding);
    }

    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|f| f.severity == Severity::Error)
    }

    /// Reports the unknown keys, now that all known ones have been asked for.
    pub fn report_unknown(&mut self) {
        for (label, key) in std::mem::take(&mut self.unknown) {
            let finding = Finding::error(format!("unknown key `{}` in {label}", key.value));
            let finding = finding.at(&key.span, "nothing reads this");
            let help = self.help_for_unknown(&label, &key.value);
            self.list.push(finding.help(help));
        }
    }

    /// Every key that was asked for, by the label of its table, with the shape of its value.
    pub fn known(&self) -> impl Iterator<Item = (&str, Vec<(&'static str, &str)>)> {
        self.known.iter().map(|(label, keys)| {
            let shape = |key: &'static str| self.shapes.get(&(label.clone(), key)).map_or("", String::as_str);
            (label.as_str(), keys.iter().map(|key| (*key, shape(key))).collect())
        })
    }

    fn help_for_unknown(&self, label: &str, key: &str) -> String {
        let own = self.known.get(label).map_or(&[][..], Vec::as_slice);
        if let Some(near) = suggest::closest(key, own.iter().copied()) {
            return format!("did you mean `{near}`?");
        }
        let elsewhere = self.known.iter().filter(|(_, keys)| keys.contains(&key)).map(|(l, _)| l.as_str());
        match elsewhere.collect::<Vec<_>>()[..] {
            [] => format!("{label} takes {}", suggest::list(own.iter().copied())),
            ref tables => format!("`{key}` belongs in {}", tables.join(" or ")),
        }
    }
}

/// One table of the document.
#[derive(Debug)]
pub struct Section<'a> {
    /// As people call it: `[lease]`, `[[link]]`, "the top level".
    pub label: String,
    /// Its header.
    pub span: Range<usize>,
    path: String,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
    shapes: BTreeMap<&'static str, String>,
}

impl<'a> Section<'a> {
    pub fn root(document: &'a Spanned<DeTable<'a>>) -> Section<'a> {
        let table = Some(document.get_ref());
        Section::new("the top level".into(), 0..0, String::new(), table)
    }

    fn child(&self, key: &str, array: bool, span: Range<usize>, table: Option<&'a DeTable<'a>>) -> Section<'a> {
        let path = self.path_of(key);
        let label = if array { format!("[[{path}]]") } else { format!("[{path}]") };
        Section::new(label, span, path, table)
    }

    fn new(label: String, span: Range<usize>, path: String, table: Option<&'a DeTable<'a>>) -> Section<'a> {
        Section { label, span, path, table, known: Vec::new(), shapes: BTreeMap::new() }
    }

    /// The full name of a key: `lease.term`.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    /// Narrows the label to one kind of table, because each kind has keys of its own.
    pub fn of_kind(&mut self, kind: &str) {
        self.label = format!("{} of kind \"{kind}\"", self.label);
    }

    /// Where a key stands, not its value.
    pub fn key_span(&self, key: &str) -> Option<Range<usize>> {
        self.table?.iter().find(|(k, _)| k.get_ref() == key).map(|(k, _)| k.span())
    }

    /// Where the value of a key stands.
    pub fn value_span(&self, key: &str) -> Option<Range<usize>> {
        self.table?.iter().find(|(k, _)| k.get_ref() == key).map(|(_, v)| v.span())
    }

    /// Counts a key as known although its value is not read.
    pub fn know(&mut self, key: &'static str) {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
    }

    /// What the value of a key looks like, for the manual; the first word on it counts.
    pub fn shape(&mut self, key: &'static str, shape: &str) {
        self.shapes.entry(key).or_insert_with(|| shape.to_owned());
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.know(key);
        self.table?.iter().find(|(k, _)| k.get_ref() == key).map(|(_, v)| v)
    }

    /// The value of a key if it is a string; a key that may hold a string or a table is asked for twice.
    pub fn if_string(&mut self, key: &'static str) -> Option<At<String>> {
        let value = self.value(key)?;
        Some(At { value: value.get_ref().as_str()?.to_string(), span: value.span() })
    }

    fn read<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        f: &mut Findings,
        convert: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Field<T> {
        self.shape(key, wanted);
        let Some(value) = self.value(key) else { return Field::Absent };
        match convert(value.get_ref()) {
            Some(converted) => Field::Given(At { value: converted, span: value.span() }),
            None => {
                f.push(wrong_type(&self.path_of(key), wanted, value));
                Field::Bad
            }
        }
    }

    /// Turns a string into something narrower; `Err` holds the label for the carets and the remedy.
    fn narrow<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        f: &mut Findings,
        parse: impl FnOnce(&str) -> Result<T, (String, String)>,
    ) -> Field<T> {
        self.shape(key, wanted);
        let text = match self.read(key, wanted, f, |v| v.as_str()) {
            Field::Given(text) => text,
            Field::Absent => return Field::Absent,
            Field::Bad => return Field::Bad,
        };
        match parse(text.value) {
            Ok(value) => Field::Given(At { value, span: text.span }),
            Err((label, help)) => {
                let title = format!("`{}` is not {wanted}", self.path_of(key));
                f.push(Finding::error(title).at(&text.span, label).help(help));
                Field::Bad
            }
        }
    }

    pub fn string(&mut self, key: &'static str, f: &mut Findings) -> Field<String> {
        self.narrow(key, "a string", f, |text| match text {
            "" => Err(("empty".into(), "give it a value, or leave the key out".into())),
            _ if text.contains('\0') => Err(("has a NUL byte".into(), "remove the NUL byte".into())),
            _ => Ok(text.to_string()),
        })
    }

    /// A name: it stands in messages, file names and environment variables, so it is kept plain.
    pub fn name(&mut self, key: &'static str, f: &mut Findings) -> Field<String> {
        self.narrow(key, "a name", f, |text| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            match text {
                "" => Err(("empty".into(), "give it a name such as \"heron\"".into())),
                _ if text.len() > 63 => Err(("longer than 63 bytes".into(), "shorten it".into())),
                _ if !text.chars().all(plain) => {
                    Err(("has other characters".into(), "use letters, digits, `-`, `_` and `.` only".into()))
                }
                _ => Ok(text.to_string()),
            }
        })
    }

    /// An absolute path.
    pub fn path(&mut self, key: &'static str, f: &mut Findings) -> Field<PathBuf> {
        self.narrow(key, "an absolute path", f, absolute)
    }

    /// One of a few words.
    pub fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)], f: &mut Findings) -> Field<T> {
        let all = words.iter().map(|(w, _)| format!("\"{w}\"")).collect::<Vec<_>>().join(" or ");
        self.narrow(key, &all, f, |text| match words.iter().find(|(w, _)| *w == text) {
            Some((_, value)) => Ok(*value),
            None => {
                let near = suggest::closest(text, words.iter().map(|(w, _)| *w));
                let help = near.map_or(format!("write {all}"), |w| format!("did you mean \"{w}\"?"));
                Err(("no such word".into(), help))
            }
        })
    }

    pub fn duration(&mut self, key: &'static str, least: Least, f: &mut Findings) -> Field<Span> {
        self.shape(key, "a duration");
        if let Some(DeValue::Integer(n)) = self.value(key).map(Spanned::get_ref) {
            let (path, text, span) = (self.path_of(key), n.to_string(), self.value(key).map(Spanned::span));
            let finding = Finding::error(format!("`{path}` has no unit"));
            let finding = finding.at_some(span.as_ref(), "a number without a unit");
            f.push(finding.help(format!("write \"{text}ms\" or \"{text}s\"")));
            return Field::Bad;
        }
        self.narrow(key, "a duration", f, |text| duration(text, least))
    }

    /// The limit of a fence agent: without an end to it, F would not be finite (protocol section 2).
    pub fn fence_limit(&mut self, key: &'static str, f: &mut Findings) -> Field<Span> {
        self.shape(key, "a duration");
        match self.if_string(key) {
            Some(text) if is_endless(&text.value) => {
                let finding = Finding::error("F is not finite").at(&text.span, "this attempt need not end");
                let finding = finding.note("F bounds one whole fence attempt; without it no take-over is bounded");
                f.push(finding.help("write how long one attempt and its verification may take, such as \"20s\""));
                Field::Bad
            }
            _ => self.duration(key, Least::Millisecond, f),
        }
    }

    pub fn integer(&mut self, key: &'static str, range: RangeInclusive<u32>, f: &mut Findings) -> Field<u32> {
        self.shape(key, &format!("{} to {}", range.start(), range.end()));
        let number = self.read(key, "an integer", f, |v| {
            v.as_integer().map(|n| i64::from_str_radix(n.as_str(), n.radix()).unwrap_or(i64::MAX))
        });
        let Field::Given(at) = number else { return if number.is_bad() { Field::Bad } else { Field::Absent } };
        match u32::try_from(at.value).ok().filter(|n| range.contains(n)) {
            Some(value) => Field::Given(At { value, span: at.span }),
            None => {
                let (low, high) = range.into_inner();
                let finding = Finding::error(format!("`{}` is out of range", self.path_of(key)));
                f.push(finding.at(&at.span, "out of range").help(format!("write a number from {low} to {high}")));
                Field::Bad
            }
        }
    }

    pub fn boolean(&mut self, key: &'static str, f: &mut Findings) -> Field<bool> {
        self.read(key, "true or false", f, DeValue::as_bool)
    }

    /// An array of strings.
    pub fn strings(&mut self, key: &'static str, f: &mut Findings) -> Field<Vec<String>> {
        self.read(key, "an array of strings", f, |v| {
            v.as_array()?.iter().map(|s| s.get_ref().as_str().map(String::from)).collect()
        })
    }

    /// An array of TCP ports.
    pub fn ports(&mut self, key: &'static str, f: &mut Findings) -> Field<Vec<u16>> {
        self.read(key, "an array of port numbers", f, |v| {
            let port = |p: &Spanned<DeValue<'_>>| p.get_ref().as_integer()?.as_str().parse().ok().filter(|p| *p > 0);
            v.as_array()?.iter().map(port).collect()
        })
    }

    /// An address with its port, such as "127.0.0.1:8765" or "[::1]:8765".
    pub fn socket_address(&mut self, key: &'static str, f: &mut Findings) -> Field<std::net::SocketAddr> {
        self.narrow(key, "an address with a port", f, |text| {
            let help = "write an address and a port, such as \"127.0.0.1:8765\" or \"[::1]:8765\"";
            text.parse().map_err(|_| ("not an address with a port".into(), help.into()))
        })
    }

    /// A command: program and arguments, run without a shell.
    pub fn command(&mut self, key: &'static str, f: &mut Findings) -> Field<Vec<String>> {
        self.shape(key, "a command");
        if let Some(text) = self.if_string(key) {
            let words = text.value.split_whitespace().map(|w| format!("{w:?}")).collect::<Vec<_>>().join(", ");
            let finding = Finding::error(format!("`{}` is one string, not a list of arguments", self.path_of(key)));
            let finding = finding.at(&text.span, "no shell will take this apart");
            f.push(finding.help(format!("write [{words}]")));
            return Field::Bad;
        }
        let words = self.strings(key, f);
        let Some(at) = words.given() else { return words };
        let problem = match at.value.first() {
            None => Some(("empty".into(), "name the program, as an absolute path".into())),
            Some(_) if at.value.iter().any(|w| w.contains('\0')) => {
                Some(("has a NUL byte".into(), "remove the NUL byte".into()))
            }
            Some(program) => absolute(program).err(),
        };
        let Some((label, help)) = problem else { return words };
        let title = format!("`{}` does not begin with a program", self.path_of(key));
        f.push(Finding::error(title).at(&at.span, label).help(help));
        Field::Bad
    }

    /// A table of strings, in the order of its keys.
    pub fn strings_by_key(&mut self, key: &'static str, f: &mut Findings) -> Vec<(At<String>, At<String>)> {
        let path = self.path_of(key);
        self.shape(key, "a table of strings");
        let Field::Given(table) = self.read(key, "a table", f, |v| v.as_table()) else { return Vec::new() };
        let mut entries = Vec::new();
        for (name, value) in table.value {
            let name = At { value: name.get_ref().to_string(), span: name.span() };
            match value.get_ref().as_str() {
                Some(text) => entries.push((name, At { value: text.to_string(), span: value.span() })),
                None => f.push(wrong_type(&format!("{path}.{}", name.value), "a string", value)),
            }
        }
        entries
    }

    /// A table below this one; an absent one when it is not there, so that its keys are known all the same.
    pub fn table(&mut self, key: &'static str, f: &mut Findings) -> Section<'a> {
        if let Some(value) = self.value(key).filter(|v| v.get_ref().is_array()) {
            let path = self.path_of(key);
            let finding = Finding::error(format!("`{path}` must be one table, not a list of tables"));
            f.push(finding.at(&value.span(), "a list").help(format!("write [{path}]")));
            return self.table_beside(key);
        }
        match self.read(key, "a table", f, |v| v.as_table()) {
            Field::Given(at) => self.child(key, false, at.span, Some(at.value)),
            Field::Absent | Field::Bad => self.child(key, false, 0..0, None),
        }
    }

    /// An absent table below this one, where something else stands under that name.
    pub fn table_beside(&self, key: &str) -> Section<'a> {
        self.child(key, false, 0..0, None)
    }

    /// All tables of an array of tables, `[[key]]`.
    pub fn tables(&mut self, key: &'static str, f: &mut Findings) -> Vec<Section<'a>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let path = self.path_of(key);
        let Some(array) = value.get_ref().as_array() else {
            let finding = Finding::error(format!("`{path}` must be an array of tables"));
            f.push(finding.at(&value.span(), "one table").help(format!("write [[{path}]]")));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for element in array.iter() {
            match element.get_ref().as_table() {
                Some(table) => sections.push(self.child(key, true, element.span(), Some(table))),
                None => f.push(wrong_type(&path, "an array of tables", element)),
            }
        }
        sections
    }

    /// The value of a key without which the table means nothing.
    pub fn require<T>(&self, field: Field<T>, key: &str, example: &str, f: &mut Findings) -> Option<At<T>> {
        match field {
            Field::Given(at) => return Some(at),
            Field::Bad => return None,
            Field::Absent => {}
        }
        let path = self.path_of(key);
        let finding = Finding::error(format!("`{path}` is missing")).help(format!("add `{key} = {example}`"));
        f.push(match self.table {
            Some(_) => finding.at(&self.span, format!("{} needs `{key}`", self.label)),
            None => finding.help(format!("in a table {}, which the file does not have yet", self.label)),
        });
        None
    }

    /// Ends the reading: whatever has not been asked for is unknown.
    pub fn finish(self, f: &mut Findings) {
        for (key, _) in self.table.into_iter().flatten() {
            if !self.known.contains(&key.get_ref().as_ref()) {
                let key = At { value: key.get_ref().escape_debug().to_string(), span: key.span() };
                f.unknown.push((self.label.clone(), key));
            }
        }
        let label = self.label.clone();
        f.shapes.extend(self.shapes.into_iter().map(|(key, shape)| ((label.clone(), key), shape)));
        let known = f.known.entry(self.label).or_default();
        for key in self.known {
            if !known.contains(&key) {
                known.push(key);
            }
        }
    }
}

fn wrong_type(path: &str, wanted: &str, value: &Spanned<DeValue<'_>>) -> Finding {
    let found = match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    };
    let finding = Finding::error(format!("`{path}` must be {wanted}, not {found}")).at(&value.span(), found);
    match (wanted, value.get_ref()) {
        ("true or false", DeValue::String(_)) => finding.help("write true or false without quotes"),
        ("an integer", DeValue::String(_)) => finding.help("write the number without quotes"),
        ("a duration", DeValue::Float(n)) => finding.help(format!("write \"{n}s\", with unit and quotes")),
        _ => finding.help(format!("write {}", example(wanted))),
    }
}

fn example(wanted: &str) -> &str {
    match wanted {
        "a duration" => "a duration in quotes, such as \"250ms\", \"1.5s\" or \"2m\"",
        "an array of strings" => "strings in brackets, such as [\"one\", \"two\"]",
        "an array of port numbers" => "numbers from 1 to 65535 in brackets, such as [5432]",
        "a table" => "a table, such as { name = \"value\" }",
        "a string" | "a name" | "an absolute path" => "text in quotes",
        other => other,
    }
}
