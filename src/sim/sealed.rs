//! Datagrams as bytes, through the shipped `wire`: what arrives is what `open` makes of what `seal` wrote.

use crate::core::Datagram;
use crate::wire::{Keyring, open, seal};

use super::rng::Rng;

/// A key for made-up worlds only; a real one comes from `leasehold keygen`.
const KEY: &str = "v1 sim AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Both nodes' key.
#[derive(Debug)]
pub struct Sealed {
    keyring: Keyring,
}

impl Sealed {
    pub fn new() -> Sealed {
        Sealed { keyring: Keyring::parse(KEY).expect("the made-up key is well formed") }
    }

    /// What the receiver makes of this datagram, `None` when it refuses the bytes. A `changed` one has one bit flipped.
    pub fn travels(&self, link: usize, datagram: &Datagram, changed: bool, rng: &mut Rng) -> Option<Datagram> {
        let link = link as u8;
        let mut bytes = seal(&self.keyring, link, datagram);
        if changed {
            let bit = rng.below(bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        open(&self.keyring, datagram.sender.peer(), link, &bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::NodeId;
    use crate::sim::{Action, Setup, World};

    #[test]
    fn what_arrives_whole_is_what_was_sent_and_what_was_changed_never_arrives() {
        let start = [NodeId::First, NodeId::Second].map(|n| (0, Action::Start(n)));
        let mut world = World::new(Setup::default(), start.to_vec(), false);
        world.run_until(3_000_000_000);
        let datagram = world.last_sent[0].expect("a daemon that runs sends");
        let (sealed, mut rng) = (Sealed::new(), Rng::new(3));
        assert_eq!(sealed.travels(1, &datagram, false, &mut rng), Some(datagram));
        for _ in 0..300 {
            assert_eq!(sealed.travels(1, &datagram, true, &mut rng), None);
        }
    }
}
