//! Keeps secrets that someone wrote into the file out of everything that we print.
//!
//! A password does not belong in the configuration and is refused there; but the message that refuses it quotes its
//! line, and messages go to journals and tickets. Works on lines, not on the parsed document, because the line of a
//! syntax error is quoted too.

/// Parts of key names whose values are secrets, wherever they stand.
const SECRET_WORDS: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credentials",
    "apikey",
    "api_key",
    "community",
    "hexadecimal_kg",
    "hexadecimal-kg",
];

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
    mask_logins(&masked)
}

/// `https://user:secret@host` is refused, and its message quotes the line.
fn mask_logins(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://").map(|at| at + 3) {
        let ends = |c: char| matches!(c, '/' | '"' | '\'') || c.is_whitespace();
        let end = rest[at..].find(ends).map_or(rest.len(), |end| at + end);
        let host = rest[at..end].rfind('@').map_or(at, |sign| at + sign);
        masked.push_str(&rest[..at]);
        masked.extend(rest[at..host].chars().flat_map(stars));
        rest = &rest[host..];
    }
    masked + rest
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
    let is_separator = |c: char| matches!(c, '=' | ':' | ',') || c.is_whitespace();
    let (_, end) = words(line).find(|&(start, end)| introduces_secret(line, start, end))?;
    Some(line.len() - line[end..].trim_start_matches(['"', '\'']).trim_start_matches(is_separator).len())
}

/// Start and end of everything that may be the name of a key or of an option.
fn words(line: &str) -> impl Iterator<Item = (usize, usize)> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut start = 0;
    line.split_inclusive(move |c| !is_name(c)).map(move |piece| {
        let word = (start, start + piece.trim_end_matches(|c| !is_name(c)).len());
        start += piece.len();
        word
    })
}

/// A key with its value, an option of a program, or a line that begins with the name of a secret, whatever follows.
fn introduces_secret(line: &str, start: usize, end: usize) -> bool {
    let (word, rest) = (&line[start..end], line[end..].trim_start_matches(['"', '\'']).trim_start());
    let value = rest.strip_prefix(['=', ':']);
    if word == "key" {
        return value.is_some_and(|v| !is_path(v));
    }
    let stands_alone = line[..start].trim().is_empty() || word.starts_with('-');
    is_secret(word) && (stands_alone || value.is_some()) && !is_plain_literal(value.unwrap_or(rest))
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
        assert!(!masked.contains("gr") && masked.contains("password = **") && masked.contains("port = 623"));
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
        for line in ["password: hush\n", "password 'hush'\n", "args = [\"--password\", \"hush\"]\n"] {
            assert!(!mask(line).contains("hush"), "{line}");
        }
        assert!(!mask("agent = { user = 'x', 'api-token' = 'hush' }\n").contains("hush"));
    }

    #[test]
    fn a_login_within_a_url_is_masked_and_the_host_is_not() {
        let source = "url = \"https://fence:kelp@reef@203.0.113.11/a@b\" # see http://x/y@z\n";
        let masked = mask(source);
        assert_eq!(masked.len(), source.len());
        assert!(!masked.contains("kelp") && !masked.contains("reef"), "{masked}");
        assert!(masked.contains("@203.0.113.11/a@b\" # see http://x/y@z"), "{masked}");
    }
}
