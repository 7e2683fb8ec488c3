//! One slot of the durable record as bytes: fixed layout, little-endian, sealed by a SHA-256 over the whole.
//!
//! ```text
//! 0      8         12       16           24     25 ...            4064        4096
//! | magic | version | length | generation | kind | record | zeros | SHA-256 of all before |
//! ```
//!
//! A slot without a record (kind 0) is as valid as one with: it is how a fresh file says "never written", so that zeros
//! are damage and never a beginning. Generation g lives in slot g mod 2: a block that the disk put into the wrong place
//! is not taken for a record.

use sha2::{Digest as _, Sha256};

use crate::core::{AgentSet, BootId, ProofKind, Record, Span, Standing, Token};

/// Size of a slot: one page, and a whole number of sectors of any disk.
pub const SLOT: usize = 4096;
/// Layout described above. Rises with every change of it.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"LEASEHLD";
const SUM_AT: usize = SLOT - 32;
const HEAD: usize = 24;

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Whole. Without a record nothing was ever written.
    Whole { generation: u64, record: Option<Record> },
    /// Whole, but in a layout of another version of the program.
    OtherVersion(u32),
    /// Not whole; the text says what is wrong.
    Invalid(&'static str),
}

/// The bytes of a slot.
pub fn encode(generation: u64, record: Option<&Record>) -> Vec<u8> {
    let mut bytes = vec![0; SLOT];
    let mut out = Writer { bytes: &mut bytes, at: 0 };
    out.put(&MAGIC);
    out.put(&VERSION.to_le_bytes());
    out.put(&(SLOT as u32).to_le_bytes());
    out.put(&generation.to_le_bytes());
    out.put(&[u8::from(record.is_some())]);
    if let Some(record) = record {
        put_record(&mut out, record);
    }
    let sum = Sha256::digest(&bytes[..SUM_AT]);
    bytes[SUM_AT..].copy_from_slice(&sum);
    bytes
}

/// Reads the slot with this place (0 or 1) in the file. Total.
pub fn decode(bytes: &[u8], place: u64) -> Slot {
    if bytes.len() != SLOT {
        return Slot::Invalid("it is not all there");
    }
    if bytes[..8] != MAGIC {
        return Slot::Invalid("it does not begin like a record");
    }
    if bytes[SUM_AT..] != Sha256::digest(&bytes[..SUM_AT])[..] {
        return Slot::Invalid("its checksum does not fit");
    }
    decode_whole(bytes, place).unwrap_or(Slot::Invalid("its checksum fits, but its contents make no sense"))
}

/// `None` when a field has a value that this version never writes.
fn decode_whole(bytes: &[u8], place: u64) -> Option<Slot> {
    let mut input = Reader { bytes, at: MAGIC.len() };
    let version = u32::from_le_bytes(input.take()?);
    if version != VERSION {
        return Some(Slot::OtherVersion(version));
    }
    input.at = HEAD - 8;
    let generation = u64::from_le_bytes(input.take()?);
    // Never written by this program, which counts up by one; beyond it lies an overflow.
    if generation % 2 != place || generation > u64::MAX / 2 {
        return None;
    }
    let record = if input.flag()? { Some(take_record(&mut input)?) } else { None };
    Some(Slot::Whole { generation, record })
}

fn put_record(out: &mut Writer<'_>, r: &Record) {
    out.put(&r.highest_token.0.to_le_bytes());
    out.put(&r.granted_token.0.to_le_bytes());
    out.boot(r.granted_boot);
    out.put(&r.held_token.0.to_le_bytes());
    out.put(&[r.held_proof.map_or(0, proof_code)]);
    out.put(&r.peer_highest.0.to_le_bytes());
    out.put(&r.longest_term.0.to_le_bytes());
    out.put(&[standing_code(r.standing), u8::from(r.frozen), u8::from(r.rolled_back)]);
    out.boot(r.fenced_boot);
    out.put(&r.fenced_by.0.to_le_bytes());
    out.put(&r.distrusted.0.to_le_bytes());
}

/// The fields in the order of [`put_record`].
fn take_record(input: &mut Reader<'_>) -> Option<Record> {
    Some(Record {
        highest_token: input.token()?,
        granted_token: input.token()?,
        granted_boot: input.boot()?,
        held_token: input.token()?,
        held_proof: proof_of(input.byte()?)?,
        peer_highest: input.token()?,
        longest_term: Span(u64::from_le_bytes(input.take()?)),
        standing: standing_of(input.byte()?)?,
        frozen: input.flag()?,
        rolled_back: input.flag()?,
        fenced_boot: input.boot()?,
        fenced_by: AgentSet(u32::from_le_bytes(input.take()?)),
        distrusted: AgentSet(u32::from_le_bytes(input.take()?)),
    })
}

fn proof_code(proof: ProofKind) -> u8 {
    match proof {
        ProofKind::Fenced => 1,
        ProofKind::Released => 2,
        ProofKind::Rebooted => 3,
        ProofKind::Confirmed => 4,
        ProofKind::Agreed => 5,
    }
}

fn proof_of(code: u8) -> Option<Option<ProofKind>> {
    Some(match code {
        0 => None,
        1 => Some(ProofKind::Fenced),
        2 => Some(ProofKind::Released),
        3 => Some(ProofKind::Rebooted),
        4 => Some(ProofKind::Confirmed),
        5 => Some(ProofKind::Agreed),
        _ => return None,
    })
}

fn standing_code(standing: Standing) -> u8 {
    match standing {
        Standing::Paired => 1,
        Standing::Sole => 2,
        Standing::Out => 3,
    }
}

fn standing_of(code: u8) -> Option<Standing> {
    match code {
        1 => Some(Standing::Paired),
        2 => Some(Standing::Sole),
        3 => Some(Standing::Out),
        _ => None,
    }
}

struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }

    fn boot(&mut self, boot: Option<BootId>) {
        self.put(&[u8::from(boot.is_some())]);
        self.put(&boot.map_or([0; 16], |b| b.0));
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let field = self.bytes.get(self.at..self.at + N)?;
        self.at += N;
        field.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[b]| b)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn token(&mut self) -> Option<Token> {
        self.take().map(|b| Token(u64::from_le_bytes(b)))
    }

    /// The outer `None` is nonsense, the inner one "no boot".
    fn boot(&mut self) -> Option<Option<BootId>> {
        let known = self.flag()?;
        let id = self.take()?;
        Some(known.then_some(BootId(id)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any record, sensible or not: the layout does not judge.
    pub(crate) fn any_record() -> impl Strategy<Value = Record> {
        let boot = || proptest::option::of(any::<[u8; 16]>().prop_map(BootId));
        let proof = (0u8..=5).prop_map(|c| proof_of(c).expect("0 to 5 are codes"));
        let standing = (1u8..=3).prop_map(|c| standing_of(c).expect("1 to 3 are codes"));
        let numbers = (any::<[u64; 5]>(), any::<[u32; 2]>(), any::<[bool; 2]>());
        (numbers, boot(), boot(), proof, standing).prop_map(
            |((n, [by, distrusted], [frozen, rolled_back]), granted_boot, fenced_boot, held_proof, standing)| Record {
                highest_token: Token(n[0]),
                granted_token: Token(n[1]),
                granted_boot,
                held_token: Token(n[2]),
                held_proof,
                peer_highest: Token(n[3]),
                longest_term: Span(n[4]),
                standing,
                frozen,
                rolled_back,
                fenced_boot,
                fenced_by: AgentSet(by),
                distrusted: AgentSet(distrusted),
            },
        )
    }

    proptest! {
        #[test]
        fn every_record_is_read_back_as_it_was_written(record in any_record(), generation in 0..u64::MAX / 2) {
            let bytes = encode(generation, Some(&record));
            prop_assert_eq!(decode(&bytes, generation % 2), Slot::Whole { generation, record: Some(record) });
        }

        #[test]
        fn a_slot_with_any_one_bit_flipped_is_invalid(record in any_record(), bit in 0..SLOT * 8) {
            let mut bytes = encode(4, Some(&record));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(matches!(decode(&bytes, 0), Slot::Invalid(_)));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), sealed: bool) {
            let mut slot = bytes.clone();
            if sealed {
                slot = encode(0, None);
                slot[8..8 + bytes.len()].copy_from_slice(&bytes);
                let sum = Sha256::digest(&slot[..SUM_AT]);
                slot[SUM_AT..].copy_from_slice(&sum);
            }
            let _ = decode(&slot, 0);
        }
    }

    #[test]
    fn a_slot_without_a_record_is_whole_and_zeros_are_not() {
        assert_eq!(decode(&encode(1, None), 1), Slot::Whole { generation: 1, record: None });
        assert_eq!(decode(&[0; SLOT], 0), Slot::Invalid("it does not begin like a record"));
    }

    #[test]
    fn a_slot_in_the_wrong_place_is_invalid() {
        assert!(matches!(decode(&encode(6, None), 1), Slot::Invalid(_)));
    }

    #[test]
    fn a_whole_slot_of_another_version_is_told_as_such() {
        let mut bytes = encode(6, None);
        bytes[8] = 9;
        let sum = Sha256::digest(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum);
        assert_eq!(decode(&bytes, 0), Slot::OtherVersion(9));
    }

    /// A changed layout without a changed version would make the next start misread the record of this one.
    #[test]
    fn the_layout_of_version_1_stays_as_it_is() {
        let record = Record {
            highest_token: Token(0x0102),
            held_proof: Some(ProofKind::Agreed),
            granted_boot: Some(BootId([7; 16])),
            ..Record::missing()
        };
        let bytes = encode(2, Some(&record));
        assert_eq!(&bytes[..8], b"LEASEHLD");
        assert_eq!(bytes[8..34], [1, 0, 0, 0, 0, 16, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((bytes[41], &bytes[42..58]), (1, &[7; 16][..]));
        assert_eq!((bytes[66], bytes[83], bytes[84], bytes[85]), (5, 3, 0, 0));
        assert!(bytes[111..SUM_AT].iter().all(|b| *b == 0));
    }
}
