//! What the line protocol of the agents can carry: `name=value`, one a line, on standard input.
//!
//! Their reader (`_parse_input_stdin` of fence-agents) splits at line ends, trims blanks, and removes a pair of double
//! quotes around a value. Whatever it would change is refused beforehand: a password that arrives changed is a fence
//! that fails when it is needed (casebook C05).

/// Why a value is refused.
pub const WHY: &str = "the agent reads `name=value` lines: it splits them at line ends, trims blanks at their ends and \
                       removes a pair of outer double quotes; there is no way to quote them";

/// What of this value would not arrive as it is; `None`: all of it arrives.
pub fn unfit(value: &[u8]) -> Option<&'static str> {
    let Ok(text) = std::str::from_utf8(value) else {
        return Some("it is not UTF-8, as which the agent reads it");
    };
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.contains(['\n', '\r']) {
        return Some("it has a line break");
    }
    if text.contains('\0') {
        return Some("it has a NUL byte");
    }
    if text.starts_with(is_blank) || text.ends_with(is_blank) {
        return Some("it has a blank at an edge");
    }
    let quoted = text.len() >= 2 && text.starts_with('"') && text.ends_with('"');
    quoted.then_some("it stands in a pair of double quotes")
}

/// What Python's `str.strip` takes away: Unicode's white space and the four separators of ASCII.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_readers_of_the_agents_would_change_is_refused() {
        for (value, word) in [
            ("", "empty"),
            ("two\nlines", "line break"),
            ("two\rlines", "line break"),
            ("a\0b", "NUL"),
            (" edge", "blank"),
            ("edge ", "blank"),
            ("edge\u{a0}", "blank"),
            ("edge\u{1f}", "blank"),
            ("\"barnacle\"", "double quotes"),
            ("\"\"", "double quotes"),
        ] {
            assert!(unfit(value.as_bytes()).is_some_and(|what| what.contains(word)), "{value:?}");
        }
        assert!(unfit(b"gr\xf6\xdfe").is_some_and(|what| what.contains("UTF-8")));
    }

    #[test]
    fn everything_else_is_carried() {
        for value in ["kelp#reef$1 'x", "#sandbar", "a=b=c", "größe", "\"half", "half\"", "\"", "in\"ner", "a b"] {
            assert_eq!(unfit(value.as_bytes()), None, "{value}");
        }
    }
}
