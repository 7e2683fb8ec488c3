//! Reads one Rust file as far as the house rules need it: code apart from comments and strings, paths made absolute.
//!
//! Not a compiler: it knows tokens, `use` trees and braces. What it cannot see (macros that build paths, for example)
//! is left to the reviewer.

use std::collections::BTreeMap;

/// One line of a file, taken apart.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// The code, with strings and comments blanked.
    pub code: String,
    /// The text of the comments on this line, without their slashes.
    pub comment: String,
    /// The comment is documentation, whose examples are code by right.
    pub doc: bool,
    /// The line belongs to an item under `#[cfg(test)]`.
    pub test: bool,
}

/// A path as written somewhere in the file, resolved through the file's own imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathUse {
    /// Counted from 1.
    pub line: usize,
    pub segments: Vec<String>,
    pub test: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    Word(String),
    /// `::`
    Colons,
    Sign(char),
}

/// One file.
#[derive(Debug, Clone)]
pub struct Source {
    /// Relative to the package, with `/`.
    pub path: String,
    pub lines: Vec<Line>,
    pub tokens: Vec<(usize, Token)>,
    pub paths: Vec<PathUse>,
    /// Modules declared as `#[cfg(test)] mod name;`: their files are test code.
    pub test_modules: Vec<String>,
    /// Files named by `#[cfg(test)] #[path = "file"]`, beside this one.
    pub test_files: Vec<String>,
}

impl Source {
    pub fn parse(path: &str, text: &str) -> Source {
        let mut lines = split(text);
        let test_modules = mark_tests(&mut lines);
        let test_files = paths_of_test_modules(text, &lines);
        let tokens = tokenize(&lines);
        let mut source = Source { path: path.to_string(), lines, tokens, paths: Vec::new(), test_modules, test_files };
        source.paths = source.collect_paths();
        source
    }

    /// Marks the whole file as test code.
    pub fn mark_all_as_test(&mut self) {
        self.lines.iter_mut().for_each(|line| line.test = true);
        self.paths.iter_mut().for_each(|path| path.test = true);
    }

    /// The room that the file lies in: `src/ROOM/…` or `src/ROOM.rs`; none for `lib.rs`, `main.rs` and files outside `src`.
    pub fn room(&self) -> Option<&str> {
        let inner = self.path.strip_prefix("src/")?;
        let first = inner.split('/').next().unwrap_or(inner);
        let name = first.strip_suffix(".rs").unwrap_or(first);
        (!matches!(name, "lib" | "main")).then_some(name)
    }

    pub fn is_test(&self, line: usize) -> bool {
        self.lines[line - 1].test
    }

    /// How many modules deep the file lies below the crate.
    fn depth(&self) -> usize {
        let inner = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        inner.split('/').filter(|part| !matches!(*part, "mod" | "lib" | "main")).count()
    }

    fn collect_paths(&self) -> Vec<PathUse> {
        let mut imports = BTreeMap::new();
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            if self.tokens[at].1 == Token::Word("use".into()) {
                at = self.use_tree(at + 1, &[], &mut imports, &mut found);
            } else {
                at = self.inline_path(at, &mut found);
            }
        }
        found.into_iter().map(|path| self.absolute(resolve(path, &imports))).collect()
    }

    /// Reads one tree of a `use` and returns the place after it.
    fn use_tree(
        &self,
        mut at: usize,
        prefix: &[String],
        imports: &mut BTreeMap<String, Vec<String>>,
        found: &mut Vec<PathUse>,
    ) -> usize {
        let mut segments = prefix.to_vec();
        let line = self.tokens.get(at).map_or(1, |token| token.0);
        let mut alias = None;
        while let Some((_, token)) = self.tokens.get(at) {
            match token {
                Token::Sign('{') => return self.use_group(at + 1, &segments, imports, found),
                Token::Word(word) if word == "as" => alias = self.word(at + 1),
                Token::Word(_) if alias.is_some() => {}
                Token::Word(word) => segments.push(word.clone()),
                Token::Sign('*') => segments.push("*".into()),
                Token::Colons => {}
                Token::Sign(_) => break,
            }
            at += 1;
        }
        if segments.len() > prefix.len() && segments.last().is_some_and(|last| last == "self") && !prefix.is_empty() {
            segments.pop();
        }
        // `use<'a>` of a return type names what is captured: no path at all.
        if segments.is_empty() {
            return at;
        }
        let name = alias.or_else(|| segments.last().cloned());
        if let Some(name) = name.filter(|name| name != "*" && segments.len() > 1) {
            imports.insert(name, segments.clone());
        }
        found.push(PathUse { line, segments, test: self.is_test(line) });
        at
    }

    fn use_group(
        &self,
        mut at: usize,
        prefix: &[String],
        imports: &mut BTreeMap<String, Vec<String>>,
        found: &mut Vec<PathUse>,
    ) -> usize {
        loop {
            match self.tokens.get(at).map(|token| &token.1) {
                None => return at,
                Some(Token::Sign('}')) => return at + 1,
                Some(Token::Sign(',')) => at += 1,
                Some(Token::Sign(';')) => return at,
                Some(_) => at = self.use_tree(at, prefix, imports, found).max(at + 1),
            }
        }
    }

    /// Reads `a::b::c` outside a `use` and returns the place after it.
    fn inline_path(&self, mut at: usize, found: &mut Vec<PathUse>) -> usize {
        let line = self.tokens[at].0;
        let Some(first) = self.word(at) else { return at + 1 };
        let mut segments = vec![first];
        while self.tokens.get(at + 1).is_some_and(|token| token.1 == Token::Colons) {
            let Some(word) = self.word(at + 2) else { break };
            segments.push(word);
            at += 2;
        }
        if segments.len() > 1 {
            found.push(PathUse { line, segments, test: self.is_test(line) });
        }
        at + 1
    }

    fn word(&self, at: usize) -> Option<String> {
        match self.tokens.get(at) {
            Some((_, Token::Word(word))) => Some(word.clone()),
            _ => None,
        }
    }

    /// Turns `super::super::x` that climbs to the crate into `crate::x`.
    fn absolute(&self, mut path: PathUse) -> PathUse {
        let climbs = path.segments.iter().take_while(|segment| *segment == "super").count();
        let depth = self.depth() + usize::from(path.test);
        if climbs > 0 && climbs == depth {
            path.segments.splice(..climbs, ["crate".to_string()]);
        }
        path
    }
}

/// Replaces a first segment that the file imported by what it stands for.
fn resolve(mut path: PathUse, imports: &BTreeMap<String, Vec<String>>) -> PathUse {
    if let Some(full) = imports.get(&path.segments[0]).filter(|full| full[0] != path.segments[0]) {
        path.segments.splice(..1, full.iter().cloned());
    }
    path
}

/// Takes a text apart into lines of code and comment.
fn split(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut at = 0;
    while at < chars.len() {
        at = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => line_comment(&chars, at, &mut lines),
            ('/', Some('*')) => block_comment(&chars, at, &mut lines),
            ('"', _) => string(&chars, at, &mut lines),
            ('r', Some('"' | '#')) if raw_hashes(&chars, at).is_some() && !follows_word(&chars, at) => {
                let hashes = raw_hashes(&chars, at).expect("checked in the guard of this arm");
                raw_string(&chars, at + 1 + hashes, hashes, &mut lines)
            }
            ('\'', Some(_)) if char_literal(&chars, at).is_some() => {
                char_literal(&chars, at).expect("checked in the guard")
            }
            (sign, _) => put(&mut lines, sign, at),
        };
    }
    lines
}

fn put(lines: &mut Vec<Line>, sign: char, at: usize) -> usize {
    match sign {
        '\n' => lines.push(Line::default()),
        _ => lines.last_mut().expect("there is always a line").code.push(sign),
    }
    at + 1
}

/// `br"…"` is raw as well; `for"` is not.
fn follows_word(chars: &[char], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|i| chars[i]).is_some_and(|c| c.is_alphanumeric() || c == '_');
    let prefix = at > 0 && matches!(chars[at - 1], 'b' | 'c') && !before(2);
    before(1) && !prefix
}

fn raw_hashes(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    (chars.get(at + 1 + hashes) == Some(&'"')).then_some(hashes)
}

fn line_comment(chars: &[char], at: usize, lines: &mut [Line]) -> usize {
    let text: String = chars[at..].iter().take_while(|c| **c != '\n').collect();
    let line = lines.last_mut().expect("there is always a line");
    line.doc = text.starts_with("///") || text.starts_with("//!");
    line.comment.push_str(text.trim_start_matches(['/', '!']).trim());
    at + text.chars().count()
}

fn block_comment(chars: &[char], mut at: usize, lines: &mut Vec<Line>) -> usize {
    let doc = matches!(chars.get(at + 2), Some('*' | '!'));
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 1),
            ('*', Some('/')) if depth == 1 => return at + 2,
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 1),
            ('\n', _) => lines.push(Line::default()),
            (sign, _) => lines.last_mut().expect("there is always a line").comment.push(sign),
        }
        lines.last_mut().expect("there is always a line").doc = doc;
        at += 1;
    }
    at
}

fn string(chars: &[char], mut at: usize, lines: &mut Vec<Line>) -> usize {
    lines.last_mut().expect("there is always a line").code.push('"');
    at += 1;
    while at < chars.len() && chars[at] != '"' {
        at += usize::from(chars[at] == '\\');
        if chars.get(at) == Some(&'\n') {
            lines.push(Line::default());
        }
        at += 1;
    }
    lines.last_mut().expect("there is always a line").code.push('"');
    at + 1
}

fn raw_string(chars: &[char], quote: usize, hashes: usize, lines: &mut Vec<Line>) -> usize {
    let mut at = quote + 1;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes {
            break;
        }
        if chars[at] == '\n' {
            lines.push(Line::default());
        }
        at += 1;
    }
    lines.last_mut().expect("there is always a line").code.push_str("\"\"");
    at + 1 + hashes
}

/// The place after a character literal, or none where the quote starts a lifetime.
fn char_literal(chars: &[char], at: usize) -> Option<usize> {
    match (chars.get(at + 1)?, chars.get(at + 2)?) {
        ('\\', _) => chars[at + 3..].iter().position(|c| *c == '\'').map(|offset| at + 4 + offset),
        (_, '\'') => Some(at + 3),
        _ => None,
    }
}

fn tokenize(lines: &[Line]) -> Vec<(usize, Token)> {
    let mut tokens = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let mut rest = line.code.as_str();
        while let Some(first) = rest.chars().next() {
            let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let (token, taken) = match first {
                _ if length > 0 => (Some(Token::Word(rest[..length].to_string())), length),
                ':' if rest.starts_with("::") => (Some(Token::Colons), 2),
                space if space.is_whitespace() => (None, space.len_utf8()),
                sign => (Some(Token::Sign(sign)), sign.len_utf8()),
            };
            tokens.extend(token.map(|token| (index + 1, token)));
            rest = &rest[taken..];
        }
    }
    tokens
}

/// Marks what stands under `#[cfg(test)]`, and returns the modules of other files that do.
fn mark_tests(lines: &mut [Line]) -> Vec<String> {
    let mut modules = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let code = lines[index].code.replace(' ', "");
        if code.contains("#[cfg(test)]") || code.contains("#[cfg(all(test,") {
            let (end, module) = item_end(lines, index);
            lines[index..=end].iter_mut().for_each(|line| line.test = true);
            modules.extend(module);
            index = end;
        }
        index += 1;
    }
    modules
}

/// What `#[path = "file"]` names in test code. Read from the text, since strings are blanked in the code.
fn paths_of_test_modules(text: &str, lines: &[Line]) -> Vec<String> {
    let attributes = text.lines().zip(lines).filter(|(_, line)| line.test && line.code.contains("#[path"));
    attributes.filter_map(|(raw, _)| raw.split('"').nth(1)).map(str::to_string).collect()
}

/// The last line of the item that starts at `start`, and its name if it is a module of another file.
fn item_end(lines: &[Line], start: usize) -> (usize, Option<String>) {
    let mut depth = 0_usize;
    for (index, line) in lines.iter().enumerate().skip(start) {
        for sign in line.code.chars() {
            match sign {
                '{' => depth += 1,
                '}' if depth == 1 => return (index, None),
                '}' => depth = depth.saturating_sub(1),
                ';' if depth == 0 => return (index, module_name(&line.code)),
                _ => {}
            }
        }
    }
    (lines.len() - 1, None)
}

fn module_name(code: &str) -> Option<String> {
    let name = code.rsplit("mod ").next().filter(|_| code.contains("mod "))?;
    Some(name.trim_end_matches(';').trim().to_string())
}
