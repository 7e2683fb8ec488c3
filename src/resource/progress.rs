//! What a resource is doing now, for people who wait for it.

use std::fmt;

/// One step of something that takes long. Shows as one line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// In one stable word, where it is a step of several.
    pub step: Option<&'static str>,
    pub text: String,
    pub done: Option<Share>,
}

/// How much of a step is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub percent: u8,
    pub done_bytes: u64,
    pub total_bytes: u64,
}

impl Progress {
    pub fn step(step: &'static str, text: impl Into<String>) -> Progress {
        Progress { step: Some(step), text: text.into(), done: None }
    }
}

impl Share {
    /// What `pg_rewind` and `pg_basebackup` say with `--progress`: "37/90 kB (41%) copied".
    pub fn read(line: &str) -> Option<Share> {
        let (figures, rest) = line.trim().split_once(" kB (")?;
        let (done, total) = figures.split_once('/')?;
        let bytes = |text: &str| text.trim().parse::<u64>().ok()?.checked_mul(1024);
        let percent = rest.split_once('%')?.0.trim().parse().ok()?;
        Some(Share { percent, done_bytes: bytes(done)?, total_bytes: bytes(total)? })
    }
}

impl From<String> for Progress {
    fn from(text: String) -> Progress {
        Progress { text, ..Progress::default() }
    }
}

impl From<&str> for Progress {
    fn from(text: &str) -> Progress {
        text.to_owned().into()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.done {
            Some(share) => write!(f, ", {share}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| format!("{}.{}", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20);
        write!(f, "{} % ({} of {} MB)", self.percent, mb(self.done_bytes), mb(self.total_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_both_programs_are_read_and_others_are_not() {
        let share = Share::read("  38912/94208 kB (41%) copied").unwrap();
        assert_eq!((share.percent, share.done_bytes, share.total_bytes), (41, 38_912 << 10, 94_208 << 10));
        assert_eq!(share.to_string(), "41 % (38.0 of 92.0 MB)");
        let share = Share::read("1536/1536 kB (100%), 0/1 tablespace (...main/global/pg_control)").unwrap();
        assert_eq!(share.to_string(), "100 % (1.5 of 1.5 MB)");
        for line in ["", "pg_rewind: connected to server", "a/b kB (41%)", "1/2 kB (x%)"] {
            assert_eq!(Share::read(line), None, "{line}");
        }
    }
}
