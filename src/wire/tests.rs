//! What the room promises as a whole: every datagram survives the trip, released bytes stay readable, neighbouring
//! versions work, and nothing but the peer's own datagram opens.

use std::path::Path;

use minicbor::{Decoder, Encoder};
use proptest::prelude::*;

use super::header::{HEADER, Header, NONCE, TAG, place};
use super::seal::{seal_with, with_entry};
use super::*;
use crate::core::*;

const KEYS: &str = include_str!("../../tests/wire/keys.txt");

/// The nonce of every golden vector.
const GOLDEN_NONCE: [u8; NONCE] = *b"leasehold golden vector!";

fn keyring() -> Keyring {
    Keyring::parse(KEYS).expect("the committed key file is well formed")
}

/// As little as a datagram can say.
pub(super) fn minimal() -> Datagram {
    Datagram {
        sender: NodeId::First,
        incarnation: Incarnation(0xa1),
        boot: BootId([0x11; 16]),
        seq: Seq(1),
        role: Role::Joining,
        claim: None,
        highest_token: Token::NONE,
        held_token: Token::NONE,
        holding: false,
        resources_up: false,
        standing: Standing::Out,
        admitted: None,
        wish: false,
        ready: false,
        activity: Activity::Idle,
        echo: None,
        grant: None,
        release: None,
        notices: Notices::default(),
        digest: Digest([0x22; 16]),
        uuid: SystemUuid([0; 16]),
    }
}

/// Every field set, each number to one of its own.
pub(super) fn full() -> Datagram {
    Datagram {
        sender: NodeId::Second,
        incarnation: Incarnation(0xb2),
        boot: BootId(*b"boot of a second"),
        seq: Seq(70_000),
        role: Role::Primary,
        claim: Some(Token(9)),
        highest_token: Token(9),
        held_token: Token(7),
        holding: true,
        resources_up: true,
        standing: Standing::Paired,
        admitted: Some(Incarnation(0xa1)),
        wish: true,
        ready: true,
        activity: Activity::Proof,
        echo: Some(Echo { incarnation: Incarnation(0xa1), seq: Seq(41) }),
        grant: Some(Grant { holder: Incarnation(0xa1), token: Token(4), seq: Seq(40), term: Span::from_secs(10) }),
        release: Some(Token(5)),
        notices: Notices { leave: true, freeze: true, cannot: Some(Token(6)), rolled_back: true, cannot_fence: false },
        digest: Digest(*b"configurationdig"),
        uuid: SystemUuid(*b"systemuuidsecond"),
    }
}

/// Every number at its largest.
fn largest() -> Datagram {
    let most = Incarnation(u64::MAX);
    Datagram {
        incarnation: most,
        seq: Seq(u64::MAX),
        role: Role::Demoting,
        claim: Some(Token(u64::MAX)),
        highest_token: Token(u64::MAX),
        held_token: Token(u64::MAX),
        admitted: Some(most),
        echo: Some(Echo { incarnation: most, seq: Seq(u64::MAX) }),
        grant: Some(Grant { holder: most, token: Token(u64::MAX), seq: Seq(u64::MAX), term: Span(u64::MAX) }),
        release: Some(Token(u64::MAX)),
        notices: Notices { cannot: Some(Token(u64::MAX)), ..full().notices },
        ..full()
    }
}

fn seal_golden(link: u8, datagram: &Datagram) -> Vec<u8> {
    let keyring = keyring();
    let header = Header::ours(datagram.sender, link, keyring.sending().id);
    seal_with(keyring.sending(), header, &GOLDEN_NONCE, |body| codec::encode_into(body, datagram))
}

/// A datagram of `first` on link 0 with any version pair and body.
fn seal_as(version: u8, min: u8, body: &[u8]) -> Vec<u8> {
    let keyring = keyring();
    let header = Header { version, min, ..Header::ours(NodeId::First, 0, keyring.sending().id) };
    seal_with(keyring.sending(), header, &GOLDEN_NONCE, |bytes| bytes.extend_from_slice(body))
}

fn open_at_second(bytes: &[u8]) -> Result<Datagram, Rejection> {
    open(&keyring(), NodeId::Second, 0, bytes)
}

/// The map without the entry of this key.
fn without_entry(body: &[u8], key: u8) -> Vec<u8> {
    let mut decoder = Decoder::new(body);
    let entries = decoder.map().unwrap().expect("our maps have definite lengths");
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes).map(entries - 1).unwrap();
    for _ in 0..entries {
        let start = decoder.position();
        let found = decoder.u8().unwrap();
        decoder.skip().unwrap();
        if found != key {
            bytes.extend_from_slice(&body[start..decoder.position()]);
        }
    }
    bytes
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).expect("hex")).collect()
}

/// The committed bytes open as this datagram for ever; today's release also still writes them.
fn assert_golden(name: &str, link: u8, datagram: &Datagram) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/v1").join(name);
    let written: String = seal_golden(link, datagram).iter().map(|byte| format!("{byte:02x}")).collect();
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let committed = hex(&text);
    let opened = open(&keyring(), datagram.sender.peer(), link, &committed);
    assert_eq!(opened, Ok(*datagram), "{} does not open as it did; this release writes:\n{written}", path.display());
    assert_eq!(hex(&written), committed, "this release writes other bytes than {}:\n{written}", path.display());
}

/// A field that the first release of this version did not have.
#[test]
fn version_1_reads_and_writes_the_golden_datagram_of_a_node_that_cannot_fence() {
    let notices = Notices { cannot_fence: true, ..minimal().notices };
    assert_golden("cannot_fence.hex", 0, &Datagram { notices, ..minimal() });
}

#[test]
fn version_1_reads_and_writes_the_golden_minimal_datagram() {
    assert_golden("minimal.hex", 0, &minimal());
}

#[test]
fn version_1_reads_and_writes_the_golden_full_datagram() {
    assert_golden("full.hex", 1, &full());
}

#[test]
fn version_1_reads_and_writes_the_golden_largest_datagram() {
    assert_golden("largest.hex", 255, &largest());
}

#[test]
fn the_largest_datagram_leaves_room_for_the_fields_of_later_versions() {
    let length = seal(&keyring(), 0, &largest()).len();
    assert!(length < MAX_DATAGRAM / 3, "{length} bytes");
}

#[test]
fn the_next_version_works_when_its_min_allows_and_its_new_fields_are_skipped() {
    let body = codec::encode(&minimal());
    let newer = with_entry(&body, |entry| {
        entry.u8(99).unwrap().begin_array().unwrap().str("new").unwrap().map(1).unwrap();
        entry.u8(1).unwrap().bytes(&[7; 40]).unwrap().end().unwrap();
    });
    assert_eq!(open_at_second(&seal_as(VERSION + 1, VERSION, &newer)), Ok(minimal()));
}

#[test]
fn the_next_version_is_told_apart_when_it_has_a_field_that_must_not_be_ignored() {
    let (version, min) = (VERSION + 1, VERSION + 1);
    let bytes = seal_as(version, min, &codec::encode(&minimal()));
    assert_eq!(open_at_second(&bytes), Err(Rejection::OtherVersion { version, min }));
}

#[test]
fn a_version_older_than_any_that_we_read_is_told_apart() {
    let bytes = seal_as(MIN_VERSION - 1, MIN_VERSION - 1, &codec::encode(&minimal()));
    let expected = Rejection::OtherVersion { version: MIN_VERSION - 1, min: MIN_VERSION - 1 };
    assert_eq!(open_at_second(&bytes), Err(expected));
}

#[test]
fn another_version_is_told_apart_before_the_key_the_layout_and_the_size() {
    let mut bytes = b"LSHD\x09\x08".to_vec();
    assert_eq!(open_at_second(&bytes), Err(Rejection::OtherVersion { version: 9, min: 8 }));
    bytes.resize(MAX_DATAGRAM * 3, 0xaa);
    assert_eq!(open_at_second(&bytes), Err(Rejection::OtherVersion { version: 9, min: 8 }));
}

#[test]
fn an_old_datagram_under_a_changed_version_pair_does_not_open() {
    let mut bytes = seal_golden(0, &minimal());
    bytes[4] = VERSION + 1;
    assert_eq!(open_at_second(&bytes), Err(Rejection::WrongKey));
}

#[test]
fn each_refusal_has_its_own_kind() {
    let bytes = seal_golden(0, &minimal());
    let mut foreign = bytes.clone();
    foreign[0] ^= 1;
    let unknown = Keyring::parse(&KEYS.replace("golden", "silver")).unwrap();
    let one_byte_differs = Keyring::parse(&KEYS.replace("AAEC", "AAED")).unwrap();

    assert_eq!(open_at_second(&bytes[..5]), Err(Rejection::TooShort));
    assert_eq!(open_at_second(&bytes[..HEADER + NONCE + TAG - 1]), Err(Rejection::TooShort));
    assert_eq!(open_at_second(&foreign), Err(Rejection::Foreign));
    assert_eq!(open(&unknown, NodeId::Second, 0, &bytes), Err(Rejection::UnknownKey));
    assert_eq!(open(&one_byte_differs, NodeId::Second, 0, &bytes), Err(Rejection::WrongKey));
    assert_eq!(open_at_second(&seal_as(VERSION, MIN_VERSION, b"")), Err(Rejection::Malformed));
    let oversize = seal_as(VERSION, MIN_VERSION, &[0; MAX_DATAGRAM]);
    assert_eq!(open_at_second(&oversize), Err(Rejection::Malformed));
}

#[test]
fn my_own_datagram_does_not_open_as_the_peers() {
    let bytes = seal_golden(0, &minimal());
    assert_eq!(open(&keyring(), NodeId::First, 0, &bytes), Err(Rejection::NotFromPeer));
    let mut turned = bytes.clone();
    turned[6] = place(NodeId::Second);
    assert_eq!(open(&keyring(), NodeId::First, 0, &turned), Err(Rejection::WrongKey));
}

#[test]
fn a_datagram_does_not_open_on_another_link() {
    let bytes = seal_golden(0, &minimal());
    assert_eq!(open(&keyring(), NodeId::Second, 1, &bytes), Err(Rejection::NotFromPeer));
    let mut moved = bytes.clone();
    moved[7] = 1;
    assert_eq!(open(&keyring(), NodeId::Second, 1, &moved), Err(Rejection::WrongKey));
}

#[test]
fn a_rotation_loses_no_datagram_in_any_order_of_the_two_nodes() {
    let (old, new) = (KEYS, Keyring::generate().unwrap());
    let steps = [old.to_owned(), format!("{old}\n{}", *new), format!("{}\n{old}", *new), new.to_string()];
    let keyrings = steps.map(|text| Keyring::parse(&text).unwrap());
    for pair in keyrings.windows(2) {
        for (sender, receiver) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            assert_eq!(open(receiver, NodeId::First, 1, &seal(sender, 1, &full())), Ok(full()));
        }
    }
}

#[test]
fn two_seals_of_one_datagram_differ_in_nonce_and_tag() {
    let (one, other) = (seal(&keyring(), 0, &full()), seal(&keyring(), 0, &full()));
    assert_ne!(one[HEADER..HEADER + NONCE], other[HEADER..HEADER + NONCE]);
    assert_ne!(one[one.len() - TAG..], other[other.len() - TAG..]);
}

#[test]
fn no_flipped_bit_and_no_truncation_opens() {
    let bytes = seal_golden(1, &full());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        open(&keyring(), NodeId::First, 1, &flipped).expect_err("a changed datagram does not open");
    }
    for length in 0..bytes.len() {
        open(&keyring(), NodeId::First, 1, &bytes[..length]).expect_err("a truncated datagram does not open");
    }
}

#[test]
fn a_missing_required_field_is_malformed_and_an_optional_one_is_absent() {
    let optional = [4, 10, 14, 15, 16, 19];
    let body = codec::encode(&full());
    for key in 0..23 {
        let decoded = codec::decode(NodeId::Second, &without_entry(&body, key));
        assert_eq!(decoded.is_ok(), optional.contains(&key), "key {key}: {decoded:?}");
    }
}

#[test]
fn unknown_values_repeats_of_the_map_and_trailing_bytes_are_malformed() {
    let body = codec::encode(&minimal());
    for (key, beyond) in [(3, 5), (9, 3), (13, 3)] {
        let changed = with_entry(&without_entry(&body, key), |entry| {
            entry.u8(key).unwrap().u8(beyond).unwrap();
        });
        assert_eq!(codec::decode(NodeId::First, &changed), Err(Rejection::Malformed));
    }
    assert_eq!(codec::decode(NodeId::First, &[&body[..], &body[..]].concat()), Err(Rejection::Malformed));
    assert_eq!(codec::decode(NodeId::First, &[&body[..], &[0]].concat()), Err(Rejection::Malformed));
}

#[test]
fn hostile_nesting_and_lengths_are_refused() {
    let deep = |byte: u8| [&[0xa1, 0x18, 99][..], &vec![byte; MAX_DATAGRAM]].concat();
    let endless = [0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
    let hostile = [deep(0x81), deep(0x9f), deep(0xbf), deep(0xa1), deep(0xc1), deep(0x5f), endless.to_vec()];
    for body in hostile {
        assert_eq!(codec::decode(NodeId::First, &body), Err(Rejection::Malformed));
    }
}

fn tokens() -> impl Strategy<Value = Token> {
    any::<u64>().prop_map(Token)
}

fn incarnations() -> impl Strategy<Value = Incarnation> {
    any::<u64>().prop_map(Incarnation)
}

fn echoes() -> impl Strategy<Value = Echo> {
    (incarnations(), any::<u64>()).prop_map(|(incarnation, seq)| Echo { incarnation, seq: Seq(seq) })
}

fn grants() -> impl Strategy<Value = Grant> {
    (echoes(), tokens(), any::<u64>()).prop_map(|(renewal, token, term)| Grant {
        holder: renewal.incarnation,
        token,
        seq: renewal.seq,
        term: Span(term),
    })
}

fn states() -> impl Strategy<Value = (NodeId, Role, Standing, Activity)> {
    (
        prop::sample::select(vec![NodeId::First, NodeId::Second]),
        prop::sample::select(vec![Role::Joining, Role::Standby, Role::TakingOver, Role::Primary, Role::Demoting]),
        prop::sample::select(vec![Standing::Paired, Standing::Sole, Standing::Out]),
        prop::sample::select(vec![Activity::Idle, Activity::Attempt, Activity::Proof]),
    )
}

prop_compose! {
    fn datagrams()(
        (sender, role, standing, activity) in states(),
        (incarnation, echo, admitted) in (incarnations(), prop::option::of(echoes()), prop::option::of(incarnations())),
        (highest_token, held_token, seq) in (tokens(), tokens(), any::<u64>()),
        [claim, release, cannot] in prop::array::uniform3(prop::option::of(tokens())),
        [holding, resources_up, wish, ready, leave, freeze, rolled_back, cannot_fence] in any::<[bool; 8]>(),
        [boot, digest, uuid] in any::<[[u8; 16]; 3]>(),
        grant in prop::option::of(grants()),
    ) -> Datagram {
        Datagram {
            sender, incarnation, boot: BootId(boot), seq: Seq(seq), role, claim, highest_token, held_token, holding,
            resources_up, standing, admitted, wish, ready, activity, echo, grant, release,
            notices: Notices { leave, freeze, cannot, rolled_back, cannot_fence }, digest: Digest(digest), uuid: SystemUuid(uuid),
        }
    }
}

proptest! {
    #[test]
    fn every_datagram_survives_the_trip(datagram in datagrams(), link: u8) {
        let keyring = keyring();
        let bytes = seal(&keyring, link, &datagram);
        prop_assert!(bytes.len() <= MAX_DATAGRAM);
        prop_assert_eq!(open(&keyring, datagram.sender.peer(), link, &bytes), Ok(datagram));
        prop_assert_eq!(open(&keyring, datagram.sender, link, &bytes), Err(Rejection::NotFromPeer));
    }

    #[test]
    fn random_bytes_never_open(bytes in prop::collection::vec(any::<u8>(), 0..2 * MAX_DATAGRAM)) {
        prop_assert!(open_at_second(&bytes).is_err());
    }

    #[test]
    fn random_bytes_behind_a_true_header_never_open(rest in prop::collection::vec(any::<u8>(), 0..MAX_DATAGRAM)) {
        let header = Header::ours(NodeId::First, 0, keyring().sending().id).to_bytes();
        prop_assert!(open_at_second(&[&header[..], &rest[..]].concat()).is_err());
    }

    #[test]
    fn an_authentic_body_of_random_bytes_never_panics(body in prop::collection::vec(any::<u8>(), 0..MAX_DATAGRAM)) {
        let decoded = codec::decode(NodeId::First, &body);
        prop_assert!(matches!(decoded, Ok(_) | Err(Rejection::Malformed)));
    }

    #[test]
    fn a_damaged_body_is_malformed_or_another_datagram_but_never_a_panic(
        datagram in datagrams(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        length in any::<prop::sample::Index>(),
    ) {
        let whole = codec::encode(&datagram);
        let cut = &whole[..length.index(whole.len())];
        prop_assert_eq!(codec::decode(datagram.sender, cut), Err(Rejection::Malformed));
        let mut body = whole;
        for (place, byte) in damage {
            let place = place.index(body.len());
            body[place] = byte;
        }
        let decoded = codec::decode(datagram.sender, &body);
        prop_assert!(matches!(decoded, Ok(_) | Err(Rejection::Malformed)));
    }

    #[test]
    fn any_text_as_a_key_file_is_parsed_or_refused_without_a_panic(
        text in "(v1|#|[ \t\r\n]|main|[A-Za-z0-9+/=]{1,50}|\\PC){0,20}",
    ) {
        let _ = Keyring::parse(&text);
    }
}
