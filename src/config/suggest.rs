//! "Did you mean …?" for misspelt keys and words.

/// The candidate closest to `word`, if it is close enough to be a likely slip of the hand.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    let near = candidates.into_iter().map(|c| (distance(&word.to_lowercase(), c), c));
    near.filter(|(d, _)| *d <= limit).min_by_key(|(d, _)| *d).map(|(_, c)| c)
}

/// Levenshtein's distance, in two rows, with `-` and `_` taken as equal because people confuse them.
fn distance(a: &str, b: &str) -> usize {
    let fold = |c: char| if c == '-' { '_' } else { c };
    let b: Vec<char> = b.chars().map(fold).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().map(fold).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// `a`, `b` and `c`, each in backticks.
pub fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|w| format!("`{w}`")).collect();
    match quoted.split_last() {
        None => String::from("nothing"),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_hand_is_recognised_and_a_different_word_is_not() {
        let keys = ["interval", "dead_after", "round_trip"];
        assert_eq!(closest("intervall", keys), Some("interval"));
        assert_eq!(closest("dead-after", keys), Some("dead_after"));
        assert_eq!(closest("ROUND_TRIP", keys), Some("round_trip"));
        assert_eq!(closest("zebra", keys), None);
    }
}
