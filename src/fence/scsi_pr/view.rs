//! What a target shows of its registrations and its reservation, parsed whole: a line that is not understood is never
//! skipped, because a key that was overlooked is a peer that can still write.

use std::collections::BTreeSet;

use super::key::Key;

/// How the type that this agent makes is printed (SPC-4 table 70, code 5).
const WRITE_EXCLUSIVE_REGISTRANTS: &str = "Write Exclusive, registrants only";

/// One consistent picture of a logical unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    generation: u32,
    /// One key a registration, in order: a node with two paths is in it twice.
    keys: Vec<u64>,
    holder: Option<Holder>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    key: u64,
    kind: String,
}

impl View {
    /// Puts the answers together. `Ok(None)`: they are not of one moment, and must be asked for again.
    pub fn of(keys: &str, reservation: &str, full: Option<&str>) -> Result<Option<View>, String> {
        let (generation, keys) = read_keys(keys)?;
        let (later, holder) = read_reservation(reservation)?;
        let view = View { generation, keys, holder };
        if generation != later {
            return Ok(None);
        }
        match full.map(read_full_status).transpose()? {
            Some(full) if full != view => Ok(None),
            Some(_) | None => Ok(Some(view)),
        }
    }

    /// The holder's key, if it is one of ours.
    pub fn holder(&self) -> Option<Key> {
        self.holder.as_ref().and_then(|h| Key::read(h.key))
    }

    pub fn is_reserved(&self) -> bool {
        self.holder.is_some()
    }

    /// Every registered key of ours, each once.
    pub fn keys(&self) -> BTreeSet<Key> {
        self.keys.iter().filter_map(|raw| Key::read(*raw)).collect()
    }

    /// How many registrations have keys of which this is true.
    pub fn count(&self, wanted: impl Fn(Key) -> bool) -> usize {
        self.keys.iter().filter(|raw| Key::read(**raw).is_some_and(&wanted)).count()
    }

    /// What stands here that this pair did not make; nothing is sent to such a disk.
    pub fn stranger(&self, ours: impl Fn(Key) -> bool) -> Option<String> {
        let stranger = self.keys.iter().find(|raw| !Key::read(**raw).is_some_and(&ours));
        let kind = self.holder.as_ref().map(|h| &h.kind).filter(|kind| *kind != WRITE_EXCLUSIVE_REGISTRANTS);
        match (stranger, kind) {
            (Some(raw), _) => {
                Some(format!("the key 0x{raw:x} is of neither node of this pair, and whoever has it can write"))
            }
            (None, Some(kind)) => {
                Some(format!("the reservation is of the type \"{kind}\", which this agent never makes"))
            }
            (None, None) => None,
        }
    }
}

fn read_keys(text: &str) -> Result<(u32, Vec<u64>), String> {
    let mut lines = lines(text);
    let head = lines.next().unwrap_or_default();
    let (generation, rest) = generation(head)?;
    let mut keys = lines.map(|l| hex(l, "")).collect::<Result<Vec<_>, _>>()?;
    keys.sort_unstable();
    let expected = match rest {
        "there are NO registered reservation keys" => 0,
        _ => rest.split(' ').next().and_then(|n| n.parse().ok()).ok_or_else(|| unknown(head))?,
    };
    if keys.len() == expected { Ok((generation, keys)) } else { Err(format!("{} keys of {expected}", keys.len())) }
}

fn read_reservation(text: &str) -> Result<(u32, Option<Holder>), String> {
    let all: Vec<&str> = lines(text).collect();
    match all[..] {
        [head] if head.ends_with("there is NO reservation held") => Ok((generation(head)?.0, None)),
        [head, key, kind] if head.ends_with("Reservation follows:") => {
            Ok((generation(head)?.0, Some(Holder { key: hex(key, "Key=")?, kind: kind_of(kind)? })))
        }
        _ => Err(unknown(text)),
    }
}

fn read_full_status(text: &str) -> Result<View, String> {
    let mut lines = lines(text).peekable();
    let (generation, _) = generation(lines.next().unwrap_or_default())?;
    let mut view = View { generation, keys: Vec::new(), holder: None };
    let mut current = None;
    while let Some(line) = lines.next() {
        match line {
            _ if line.starts_with("Key=") => {
                current = Some(hex(line, "Key=")?);
                view.keys.extend(current);
            }
            "<< Reservation holder >>" => {
                let kind = kind_of(lines.next().unwrap_or_default())?;
                view.holder = Some(Holder { key: current.ok_or_else(|| unknown(line))?, kind });
            }
            // Whose path it is; its text depends on the transport. Keys and the holder's mark stand in lines of their own.
            _ => {}
        }
    }
    view.keys.sort_unstable();
    Ok(view)
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|l| !l.is_empty())
}

/// "PR generation=0x4, rest" gives 4 and "rest".
fn generation(line: &str) -> Result<(u32, &str), String> {
    let rest = line.strip_prefix("PR generation=0x").ok_or_else(|| unknown(line))?;
    let (number, rest) = rest.split_once(", ").unwrap_or((rest, ""));
    Ok((u32::from_str_radix(number, 16).map_err(|_| unknown(line))?, rest))
}

fn hex(line: &str, prefix: &str) -> Result<u64, String> {
    let digits = line.strip_prefix(prefix).and_then(|l| l.strip_prefix("0x"));
    digits.and_then(|d| u64::from_str_radix(d, 16).ok()).ok_or_else(|| unknown(line))
}

fn kind_of(line: &str) -> Result<String, String> {
    let kind = line.strip_prefix("scope: LU_SCOPE,").and_then(|l| l.trim().strip_prefix("type: "));
    kind.map(str::to_owned).ok_or_else(|| unknown(line))
}

fn unknown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("not understood: {:?}", line.chars().take(100).collect::<String>())
}

/// What REPORT CAPABILITIES says of what this agent needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The target can keep registrations over a loss of its power.
    pub can_persist: bool,
    /// It does so now.
    pub persists: bool,
    /// It knows "write exclusive, registrants only". A target without a type mask does not say.
    pub knows_type: Option<bool>,
}

impl Capabilities {
    pub fn of(text: &str) -> Capabilities {
        let bit = |name: &str| lines(text).find(|l| l.starts_with(name)).map(|l| l.ends_with(": 1"));
        Capabilities {
            can_persist: bit("Persist Through Power Loss Capable").unwrap_or(false),
            persists: bit("Persist Through Power Loss Activ").unwrap_or(false),
            knows_type: bit(WRITE_EXCLUSIVE_REGISTRANTS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str =
        "  PR generation=0x2, 2 registered reservation keys follow:\n    0x1ea0010000000004\n    0xabc\n";
    const HELD: &str = "  PR generation=0x2, Reservation follows:\n    Key=0x1ea0010000000004\n    scope: LU_SCOPE,  type: Write Exclusive, registrants only\n";
    const FULL: &str = "  PR generation=0x2\n    Key=0x1ea0010000000004\n      All target ports bit clear\n      Relative port address: 0x1\n      << Reservation holder >>\n      scope: LU_SCOPE,  type: Write Exclusive, registrants only\n      Transport Id of initiator:\n        iSCSI world wide unique port id: iqn.x,i,0x1\n    Key=0xabc\n      not reservation holder\n";

    #[test]
    fn the_three_answers_of_one_moment_make_a_view() {
        let view = View::of(KEYS, HELD, Some(FULL)).unwrap().unwrap();
        assert_eq!(view.holder().map(|k| k.token.0), Some(4));
        assert!(view.stranger(|_| true).unwrap().contains("0xabc"));
        assert_eq!(View::of(KEYS, HELD, None).unwrap(), Some(view));
    }

    #[test]
    fn answers_of_different_moments_are_no_view() {
        assert_eq!(View::of(KEYS, &HELD.replace("=0x2", "=0x3"), None), Ok(None));
        assert_eq!(View::of(KEYS, HELD, Some(&FULL.replace("0xabc", "0xabd"))), Ok(None));
    }

    #[test]
    fn half_an_answer_is_an_error_and_never_a_shorter_list() {
        let half = KEYS.replace("    0xabc\n", "");
        assert!(View::of(&half, HELD, None).unwrap_err().contains("1 keys of 2"));
        for wrong in ["", "rubbish", "  PR generation=0xzz, 1 registered reservation key follows:\n 0x1"] {
            assert!(View::of(wrong, HELD, None).is_err() && View::of(KEYS, wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_reservation_of_another_type_is_a_stranger() {
        let other = HELD.replace("Write Exclusive, registrants only", "Write Exclusive, all registrants");
        let keys = KEYS.replace("0xabc", "0x1ea0020000000005");
        let view = View::of(&keys, &other, None).unwrap().unwrap();
        assert!(view.stranger(|_| true).unwrap().contains("all registrants"));
    }
}
