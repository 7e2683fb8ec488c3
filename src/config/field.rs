//! A value with its place, and the narrower types that strings of the file are read as.

use std::ops::Range;
use std::path::PathBuf;

use jiff::SignedDuration;

use crate::core::Span;

/// Longest duration that may be written: far above any sensible one, far below what would overflow the arithmetic.
const LONGEST: Span = Span::from_secs(24 * 3600);

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    pub span: Range<usize>,
}

/// What a key holds. `Bad` has been reported already: nothing is concluded from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field<T> {
    Absent,
    Bad,
    Given(At<T>),
}

impl<T> Field<T> {
    pub fn given(&self) -> Option<&At<T>> {
        match self {
            Field::Given(at) => Some(at),
            Field::Absent | Field::Bad => None,
        }
    }

    pub fn is_bad(&self) -> bool {
        matches!(self, Field::Bad)
    }

    pub fn span(&self) -> Option<&Range<usize>> {
        self.given().map(|at| &at.span)
    }
}

impl<T: Clone> Field<T> {
    pub fn value(&self) -> Option<T> {
        self.given().map(|at| at.value.clone())
    }

    pub fn value_or(&self, default: T) -> T {
        self.value().unwrap_or(default)
    }
}

/// The smallest duration that makes sense for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Least {
    Zero,
    Millisecond,
}

/// A path that means the same wherever it is read.
pub fn absolute(text: &str) -> Result<PathBuf, (String, String)> {
    match text {
        _ if text.contains('\0') => Err(("has a NUL byte".into(), "remove the NUL byte".into())),
        _ if text.starts_with('/') => Ok(PathBuf::from(text)),
        _ => Err(("does not begin with `/`".into(), "write the whole path: the daemon runs in no directory".into())),
    }
}

/// Words for "no end".
pub fn is_endless(text: &str) -> bool {
    matches!(text, "none" | "never" | "infinite" | "infinity" | "inf" | "forever" | "unlimited" | "0" | "0s")
}

/// Reads "250ms", "1.5s", "2m"; everything between `least` and a day.
pub fn duration(text: &str, least: Least) -> Result<Span, (String, String)> {
    const EXAMPLES: &str = "write a number and a unit, such as \"250ms\", \"1.5s\" or \"2m\"";
    if is_endless(text) && !text.starts_with('0') {
        return Err(("not finite".into(), "every wait here has to end: write how long it may take at most".into()));
    }
    let Ok(parsed) = text.parse::<SignedDuration>() else {
        return Err(("number and unit expected".into(), EXAMPLES.into()));
    };
    let Ok(positive) = std::time::Duration::try_from(parsed) else {
        return Err(("negative".into(), "a duration cannot be negative".into()));
    };
    match (Span::from(positive), least) {
        (span, _) if span > LONGEST => Err(("longer than a day".into(), "write at most \"24h\"".into())),
        (span, Least::Millisecond) if span < Span::from_ms(1) => {
            Err(("shorter than 1ms".into(), "write at least \"1ms\"".into()))
        }
        (span, _) => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let read = |text| duration(text, Least::Millisecond).ok();
        assert_eq!(read("250ms"), Some(Span::from_ms(250)));
        assert_eq!(read("1.5s"), Some(Span::from_ms(1500)));
        assert_eq!(read("2m"), Some(Span::from_secs(120)));
        assert_eq!(read("1m 30s"), Some(Span::from_secs(90)));
        for wrong in ["", "5", "5 parsecs", "-1s", "1s ago", "0s", "forever", "25h", "999999999999999999999s"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(duration("0s", Least::Zero), Ok(Span::ZERO));
    }
}
