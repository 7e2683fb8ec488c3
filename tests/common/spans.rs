//! Times of several runs in a table.

use leasehold::core::Span;

pub fn sorted(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.collect();
    spans.sort();
    spans
}

pub fn median(sorted: &[Span]) -> String {
    told(sorted.get(sorted.len() / 2))
}

pub fn told(span: Option<&Span>) -> String {
    span.map_or("-".to_owned(), |span| format!("{} ms", span.as_ms()))
}
