//! Any body decodes or is malformed; what decodes survives being encoded and decoded again.
#![no_main]

use leasehold::core::NodeId;
use leasehold::wire::{codec, describe};
use libfuzzer_sys::fuzz_target;

fn check(body: &[u8]) {
    let Ok(datagram) = codec::decode(NodeId::First, body) else { return };
    assert!(!describe(&datagram).contains('\n'));
    assert_eq!(codec::decode(NodeId::First, &codec::encode(&datagram)), Ok(datagram));
}

fuzz_target!(|body: &[u8]| check(body));
