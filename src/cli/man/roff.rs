//! Pages in Markdown, as man(7): headings, paragraphs, lists, tables, blocks of code, bold, italic and code.
//!
//! A table becomes a list: the first cell of a row is its term, each other one a sentence under its heading. Columns
//! of sentences fit no terminal.

use std::fmt::Write as _;

/// `page` as a page of this section called `name`; `source` goes into its footer.
pub fn from_markdown(name: &str, section: u8, page: &str, source: &str) -> String {
    let mut roff = Roff::default();
    // Writing into a string cannot fail, here and below.
    let _ = writeln!(roff.out, ".TH \"{}\" {section} \"\" \"{source}\" \"leasehold\"\n.nh\n.ad l", name.to_uppercase());
    page.lines().for_each(|line| roff.line(name, line));
    roff.end_block();
    roff.out
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Block {
    #[default]
    None,
    /// A paragraph or an item, gathered so that marks may go over the end of a line.
    Text(String),
    Code,
    /// The cells of the heading.
    Table(Vec<String>),
}

#[derive(Debug, Default)]
struct Roff {
    out: String,
    block: Block,
    in_name: bool,
}

impl Roff {
    fn line(&mut self, name: &str, line: &str) {
        let text = line.trim();
        match &mut self.block {
            Block::Code if text.starts_with("```") => self.end_block(),
            Block::Code => self.verbatim(line),
            _ if text.starts_with("```") => self.begin(Block::Code, ".PP\n.RS 4\n.nf"),
            _ if text.is_empty() => self.end_block(),
            _ if text.starts_with('#') => self.heading(text),
            Block::Table(heads) => {
                let heads = heads.clone();
                self.row(&heads, text);
            }
            _ if text.starts_with('|') => {
                let heads = cells(text);
                self.begin(Block::Table(heads), "");
            }
            _ if self.in_name => self.name(name, text),
            Block::Text(term) if text.starts_with(": ") => {
                let term = std::mem::take(term);
                self.define(&term, text.trim_start_matches(':').trim());
            }
            Block::Text(so_far) if item(line).is_none() => {
                so_far.push(' ');
                so_far.push_str(text);
            }
            Block::None | Block::Text(_) => match item(line) {
                Some((tag, rest)) => self.begin(Block::Text(rest.to_owned()), &format!(".IP \"{tag}\" 4")),
                None => self.begin(Block::Text(text.to_owned()), ".PP"),
            },
        }
    }

    fn begin(&mut self, block: Block, macros: &str) {
        self.end_block();
        if !macros.is_empty() {
            let _ = writeln!(self.out, "{macros}");
        }
        self.block = block;
    }

    fn end_block(&mut self) {
        match std::mem::take(&mut self.block) {
            Block::None | Block::Table(_) => {}
            Block::Text(text) => self.text(&inline(&text)),
            Block::Code => self.out.push_str(".fi\n.RE\n"),
        }
    }

    fn heading(&mut self, text: &str) {
        self.end_block();
        let (depth, title) = (text.chars().take_while(|c| *c == '#').count(), text.trim_start_matches('#').trim());
        self.in_name = depth == 2 && title == "NAME";
        match depth {
            1 => {}
            2 => _ = writeln!(self.out, ".SH \"{}\"", escape(title)),
            _ => _ = writeln!(self.out, ".SS \"{}\"", escape(title)),
        }
    }

    /// What whatis(1) reads: the page's own name, a dash, what it is.
    fn name(&mut self, name: &str, text: &str) {
        let words = text.split_once(" - ").map(|(_, words)| words);
        let begin = words.map_or(String::new(), |_| format!("{} \\- ", escape(name)));
        self.text(&format!("{begin}{}", inline(words.unwrap_or(text))));
    }

    /// `TERM` was begun as a paragraph, before it was seen that a line with a colon follows.
    fn define(&mut self, term: &str, text: &str) {
        let begun = self.out.trim_end_matches(".PP\n").len();
        self.out.truncate(begun);
        let _ = writeln!(self.out, ".TP");
        self.text(&inline(term));
        self.block = Block::Text(text.to_owned());
    }

    fn row(&mut self, heads: &[String], text: &str) {
        let cells = cells(text);
        if cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':' | ' '))) {
            return;
        }
        let _ = writeln!(self.out, ".TP");
        self.text(&inline(cells.first().map_or("", String::as_str)));
        let described = cells.iter().zip(heads).skip(1).filter(|(cell, _)| !cell.is_empty());
        for (place, (cell, head)) in described.enumerate() {
            if place > 0 {
                self.out.push_str(".br\n");
            }
            let head = if heads.len() > 2 && !head.is_empty() { format!("{head}: ") } else { String::new() };
            self.text(&inline(&format!("{head}{cell}")));
        }
    }

    fn text(&mut self, text: &str) {
        let guard = if text.starts_with(['.', '\'']) { "\\&" } else { "" };
        let _ = writeln!(self.out, "{guard}{text}");
    }

    fn verbatim(&mut self, line: &str) {
        let line = escape(line);
        self.text(&line);
    }
}

/// The mark of an item of a list, and its text.
fn item(line: &str) -> Option<(String, &str)> {
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix("- ") {
        return Some(("\\(bu".to_owned(), rest));
    }
    let (number, rest) = line.split_once(". ")?;
    (!number.is_empty() && number.chars().all(|c| c.is_ascii_digit())).then(|| (format!("{number}."), rest))
}

/// A bar within code, or behind a backslash, is none between cells.
fn cells(row: &str) -> Vec<String> {
    let (mut cells, mut cell, mut in_code, mut escaped) = (Vec::new(), String::new(), false, false);
    let inner = row.strip_prefix('|').unwrap_or(row);
    for c in inner.strip_suffix('|').unwrap_or(inner).chars() {
        match c {
            '|' if escaped => {
                cell.pop();
                cell.push('|');
            }
            '|' if !in_code => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            c => {
                in_code ^= c == '`';
                cell.push(c);
            }
        }
        escaped = c == '\\';
    }
    cells.push(cell.trim().to_owned());
    cells
}

fn inline(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        let marked = [("`", "B"), ("**", "B"), ("*", "I")];
        let found = marked.iter().find_map(|(mark, font)| Some((*mark, *font, between(rest, mark)?)));
        if let Some((mark, font, inside)) = found {
            let shown = if mark == "`" { escape(inside) } else { inline(inside) };
            let _ = write!(out, "\\f{font}{shown}\\fR");
            rest = &rest[2 * mark.len() + inside.len()..];
        } else if let Some((words, after)) = link(rest) {
            out.push_str(&inline(words));
            rest = after;
        } else {
            out.push_str(&escape(c.encode_utf8(&mut [0; 4])));
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// What stands between this mark and the next one, if the text begins with it. A lone star is none.
fn between<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(mark)?;
    let inside = &rest[..rest.find(mark)?];
    (!inside.is_empty() && !inside.starts_with(' ')).then_some(inside)
}

/// `[words](place)`: the words, and what follows.
fn link(text: &str) -> Option<(&str, &str)> {
    let (words, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (_, after) = rest.split_once(')')?;
    (!words.contains(['[', ']'])).then_some((words, after))
}

fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '"' => out.push_str("\\(dq"),
            '\'' => out.push_str("\\(aq"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            '`' => out.push_str("\\(ga"),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(page: &str) -> String {
        let roff = from_markdown("leasehold-fence-x", 7, page, "leasehold 1");
        roff.split_once(".ad l\n").expect("a head").1.to_owned()
    }

    #[test]
    fn the_name_is_the_pages_own() {
        let page = "# leasehold-fence-x(7)\n\n## NAME\n\nx - does a thing,\nand another\n\n## KEYS\n";
        assert_eq!(body(page), ".SH \"NAME\"\nleasehold\\-fence\\-x \\- does a thing,\nand another\n.SH \"KEYS\"\n");
    }

    #[test]
    fn paragraphs_lists_and_marks() {
        let page = "It is **off** in `a-b`, *not\non*, [there](x.md).\n- one\n  more\n2. two\n\n.x 2 * 3 * 4\n";
        assert_eq!(
            body(page),
            ".PP\nIt is \\fBoff\\fR in \\fBa\\-b\\fR, \\fInot on\\fR, there.\n.IP \"\\(bu\" 4\none more\n.IP \"2.\" 4\ntwo\n\
             .PP\n\\&.x 2 * 3 * 4\n"
        );
    }

    #[test]
    fn a_term_is_followed_by_what_it_means() {
        let page = "`a`, `b`\n:   First,\n    and more.\n\nthen\n";
        assert_eq!(body(page), ".TP\n\\fBa\\fR, \\fBb\\fR\nFirst, and more.\n.PP\nthen\n");
    }

    #[test]
    fn code_stands_as_it_is() {
        let page = "```toml\n.a = \"x\\n\"\n\n# **no**\n```\nthen\n";
        let code = ".PP\n.RS 4\n.nf\n\\&.a = \\(dqx\\en\\(dq\n\n# **no**\n.fi\n.RE\n.PP\nthen\n";
        assert_eq!(body(page), code);
    }

    #[test]
    fn a_table_is_a_list_of_terms() {
        let page = "| key | default | meaning |\n| --- | --- | --- |\n| `a` | 1 | x `|` y \\| z |\n\nthen\n";
        assert_eq!(body(page), ".TP\n\\fBa\\fR\ndefault: 1\n.br\nmeaning: x \\fB|\\fR y | z\n.PP\nthen\n");
    }
}
