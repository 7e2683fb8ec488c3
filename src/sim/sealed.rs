//! Datagrams as bytes, through the shipped `wire`: what arrives is what `open` makes of what `seal` wrote.

use crate::core::{Datagram, NodeId};
use crate::wire::{Keyring, open, seal, seal_by_successor};

use super::rng::Rng;

/// A key for made-up worlds only; a real one comes from `leasehold keygen`.
const KEY: &str = "v1 sim AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Both nodes' key.
#[derive(Debug)]
pub struct Sealed {
    keyring: Keyring,
    /// The node whose program is one version ahead.
    newer: Option<NodeId>,
}

impl Sealed {
    pub fn new(newer: Option<NodeId>) -> Sealed {
        Sealed { keyring: Keyring::parse(KEY).expect("the made-up key is well formed"), newer }
    }

    /// What the receiver makes of this datagram, `None` when it refuses the bytes. A `changed` one has one bit flipped.
    pub fn travels(&self, link: usize, datagram: &Datagram, changed: bool, rng: &mut Rng) -> Option<Datagram> {
        let link = link as u8;
        let is_newer = self.newer == Some(datagram.sender);
        let mut bytes = if is_newer { seal_by_successor } else { seal }(&self.keyring, link, datagram);
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
    use crate::sim::{Action, Setup, World};

    #[test]
    fn what_arrives_whole_is_what_was_sent_and_what_was_changed_never_arrives() {
        let start = [NodeId::First, NodeId::Second].map(|n| (0, Action::Start(n)));
        let mut world = World::new(Setup::default(), start.to_vec(), false);
        world.run_until(3_000_000_000);
        let datagram = world.last_sent[0].expect("a daemon that runs sends");
        let mut rng = Rng::new(3);
        for newer in [None, Some(NodeId::First), Some(NodeId::Second)] {
            let sealed = Sealed::new(newer);
            assert_eq!(sealed.travels(1, &datagram, false, &mut rng), Some(datagram));
            for _ in 0..300 {
                assert_eq!(sealed.travels(1, &datagram, true, &mut rng), None);
            }
        }
    }
}
