//! "Did you mean …?" for misspelt keys and words.

/// The candidate closest to `word`, if it is close enough to be a likely slip of the hand.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().map(fold).collect();
    let limit = (word.len() / 3).max(1);
    let near = candidates.into_iter().map(|c| (distance(&word, &c.chars().map(fold).collect::<Vec<_>>()), c));
    near.filter(|(d, _)| *d <= limit).min_by_key(|(d, _)| *d).map(|(_, c)| c)
}

/// `-` and `_` are taken as equal because people confuse them.
fn fold(c: char) -> char {
    if c == '-' { '_' } else { c }
}

/// Letters added, left out, replaced, or swapped with their neighbour (optimal string alignment). An abbreviation
/// (`sock` for `socket`) counts as one slip.
fn distance(a: &[char], b: &[char]) -> usize {
    if a.len() >= 3 && b.starts_with(a) {
        return usize::from(a != b);
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, j) in (0..=a.len()).flat_map(|i| (0..=b.len()).map(move |j| (i, j))) {
        rows[i][j] = if i == 0 || j == 0 { i + j } else { step(&rows, a, b, i, j) };
    }
    rows[a.len()][b.len()]
}

fn step(rows: &[Vec<usize>], a: &[char], b: &[char], i: usize, j: usize) -> usize {
    let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
    let best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
    if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
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
        assert_eq!(closest("inter", keys), Some("interval"));
        assert_eq!(closest("kye", ["name", "key"]), Some("key"));
        assert_eq!(closest("zebra", keys), None);
    }
}
