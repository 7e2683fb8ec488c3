//! Keeps secrets that someone wrote into the file out of everything that we print.
//!
//! A password does not belong in the configuration and is refused there; but the message that refuses it quotes its
//! line, and messages go to journals and tickets. Works on lines, not on the parsed document, because the line of a
//! syntax error is quoted too.

/// Parts of key names whose values are secrets, wherever they stand.
const SECRET_WORDS: [&str; 6] = ["password", "passwd", "passphrase", "secret", "token", "credentials"];

/// Ends of key names that say where a secret is, which is none itself.
const REFERENCES: [&str; 4] = ["_file", "_path", "_credential", "_tokens"];

/// Whether the value of a key of this name is a secret.
pub fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    SECRET_WORDS.iter().any(|word| key.contains(word)) && !REFERENCES.iter().any(|end| key.ends_with(end))
}

/// The same text with each secret value replaced by asterisks of the same length, so that every byte keeps its place.
pub fn mask(source: &str) -> String {
    let mut masked = String::with_capacity(source.len());
    let mut open: Option<&str> = None;
    for line in source.split_inclusive('\n') {
        let from = match open {
            Some(_) => 0,
            None => value_of_secret(line).unwrap_or(line.len()),
        };
        open = still_open(&line[from..], open);
        masked.push_str(&line[..from]);
        masked.extend(line[from..].chars().flat_map(stars));
    }
    masked
}

/// The delimiter of the multi-line string that is open after this rest of a line.
fn still_open<'a>(rest: &str, open: Option<&'a str>) -> Option<&'a str> {
    match open {
        Some(quote) => (!rest.contains(quote)).then_some(quote),
        None => ["\"\"\"", "'''"].into_iter().find(|quote| rest.matches(quote).count() == 1),
    }
}

fn stars(c: char) -> impl Iterator<Item = char> {
    let (star, count) = if c == '\n' || c == '\r' { (c, 1) } else { ('*', c.len_utf8()) };
    std::iter::repeat_n(star, count)
}

/// Where the value of the first secret of this line begins. What follows it on the line is masked too: it may belong
/// to it, if the quotes are wrong.
fn value_of_secret(line: &str) -> Option<usize> {
    line.match_indices('=').map(|(at, _)| at).find(|&at| holds_secret(&line[..at], &line[at + 1..])).map(|at| {
        let value = &line[at + 1..];
        at + 1 + (value.len() - value.trim_start().len())
    })
}

fn holds_secret(before: &str, value: &str) -> bool {
    let is_key = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let key = before.trim_end().trim_end_matches(['"', '\'']);
    let start = key.char_indices().rev().find(|(_, c)| !is_key(*c)).map_or(0, |(at, c)| at + c.len_utf8());
    is_secret(&key[start..]) && !is_plain_literal(value) || &key[start..] == "key" && !is_path(value)
}

/// A number or a truth value is no secret, and worth showing (`checks_token = true`).
fn is_plain_literal(value: &str) -> bool {
    let value = value.trim();
    value.starts_with("true") || value.starts_with("false")
}

/// `key = "/path"` shows a path; anything else there may be the key itself.
fn is_path(value: &str) -> bool {
    value.trim_start().trim_start_matches(['"', '\'']).starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_and_every_byte_keeps_its_place() {
        let source = "user = \"admin\"\npassword = \"größe\" # mine\nport = 623\n";
        let masked = mask(source);
        assert_eq!(masked.len(), source.len());
        assert!(!masked.contains("gr") && masked.contains("password = *") && masked.contains("port = 623"));
    }

    #[test]
    fn a_secret_of_several_lines_is_masked_to_its_end() {
        let masked = mask("password = \"\"\"\nkelp\nreef\"\"\"\nport = 623\n");
        assert!(!masked.contains("kelp") && !masked.contains("reef") && masked.contains("port = 623"));
    }

    #[test]
    fn the_place_of_a_secret_is_shown_and_a_key_in_place_of_its_path_is_not() {
        assert!(mask("password_file = \"/etc/bmc\"\n").contains("/etc/bmc"));
        assert!(mask("key = \"/etc/leasehold/key\"\n").contains("/etc/leasehold/key"));
        assert!(!mask("key = \"AAECAwQF\"\n").contains("AAEC"));
        assert!(!mask("agent = { user = 'x', 'api-token' = 'hush' }\n").contains("hush"));
    }
}
