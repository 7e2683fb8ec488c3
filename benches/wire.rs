//! What one heartbeat costs in this room: sealing it and opening it (aim: together under 5 µs).

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use leasehold::core::{
    Activity, BootId, Datagram, Digest, Echo, Grant, Incarnation, NodeId, Notices, Role, Seq, Span, Standing,
    SystemUuid, Token,
};
use leasehold::wire::{Keyring, open, seal};

/// A standby's answer to a renewal: what travels most.
fn grant() -> Datagram {
    let peer = Incarnation(0x0123_4567_89ab_cdef);
    Datagram {
        sender: NodeId::First,
        incarnation: Incarnation(0xfedc_ba98_7654_3210),
        boot: BootId([0xb0; 16]),
        seq: Seq(1_000_000),
        role: Role::Standby,
        claim: None,
        highest_token: Token(8),
        held_token: Token(6),
        holding: false,
        resources_up: false,
        standing: Standing::Paired,
        admitted: None,
        wish: false,
        ready: true,
        activity: Activity::Idle,
        echo: Some(Echo { incarnation: peer, seq: Seq(999_999) }),
        grant: Some(Grant { holder: peer, token: Token(7), seq: Seq(999_999), term: Span::from_secs(10) }),
        release: None,
        notices: Notices::default(),
        digest: Digest([0xd1; 16]),
        uuid: SystemUuid([0x11; 16]),
    }
}

fn sealing_and_opening(criterion: &mut Criterion) {
    let text = Keyring::generate().expect("random bytes");
    let keyring = Keyring::parse(&text).expect("a generated key file parses");
    let datagram = grant();
    let bytes = seal(&keyring, 0, &datagram);
    let mut forged = bytes.clone();
    forged[100] ^= 1;
    let opened = |bytes: &[u8]| open(&keyring, NodeId::Second, 0, bytes);

    criterion.bench_function("seal", |b| b.iter(|| seal(&keyring, 0, black_box(&datagram))));
    criterion.bench_function("open", |b| b.iter(|| opened(black_box(&bytes))));
    criterion.bench_function("refuse a forged one", |b| b.iter(|| opened(black_box(&forged))));
    criterion.bench_function("seal+open", |b| b.iter(|| opened(&seal(&keyring, 0, black_box(&datagram)))));
}

criterion_group!(benches, sealing_and_opening);
criterion_main!(benches);
