//! The two machines' UUIDs, for the agents: this one's from its firmware, the peer's from its heartbeats and, until it
//! is heard, from the last time that it was.
//!
//! A peer that tells another UUID than before is believed at once: its datagrams are sealed with the cluster's key, and
//! fencing must reach the machine that runs now. It is an alarm all the same. After a replaced mainboard the BMC names
//! the new UUID as well, and all is well. Where the disks were moved to another chassis, the BMC at the configured
//! address still names the old one, and the agent refuses to shoot the wrong machine.

use std::path::PathBuf;

use crate::core::{NodeId, Severity, SystemUuid};
use crate::fence::Identities;
use crate::os::peer_uuid;

use super::note::{Inbox, Note, Told};

/// What is known of the peer's machine.
#[derive(Debug)]
pub struct KnownPeer {
    directory: PathBuf,
    name: String,
    node: NodeId,
    identities: Identities,
    inbox: Inbox,
    /// Told by both nodes, and therefore of no use.
    shared: Option<SystemUuid>,
}

impl KnownPeer {
    /// Tells the agents what is known already.
    pub fn new(directory: PathBuf, name: String, node: NodeId, identities: Identities, inbox: Inbox) -> KnownPeer {
        match peer_uuid::read(&directory, &name) {
            Ok(Some(uuid)) => identities.learn(node.index(), uuid),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "a fence device cannot be compared with the peer until that is heard"),
        }
        KnownPeer { directory, name, node, identities, inbox, shared: None }
    }

    /// Whether this would be something new.
    pub fn is_news(&self, uuid: SystemUuid) -> bool {
        self.identities.is_news(self.node.index(), uuid) && self.shared != Some(uuid)
    }

    /// The peer told its UUID in a datagram that counts.
    pub fn learn(&mut self, uuid: SystemUuid) -> Option<Told> {
        if !self.is_news(uuid) {
            return None;
        }
        let name = &self.name;
        if self.identities.of(self.node.peer().index()) == Some(uuid) {
            self.shared = Some(uuid);
            let text = format!(
                "{name} has the same system UUID as this node, {uuid}: no fence device can be told apart by it; give each \
                 machine its own, in the firmware or the definition of the virtual machine"
            );
            return Some(Told::new(Severity::Warning, "peer-uuid-shared", text));
        }
        let before = self.identities.of(self.node.index());
        self.identities.learn(self.node.index(), uuid);
        self.keep(uuid);
        before.map(|before| {
            let text = format!(
                "{name} has another system UUID: {uuid}, before {before}; from now on a fence device must name the new one. \
                 Right after a replaced mainboard; if its disks were moved to another machine, its fence agents have to \
                 follow. Then `leasehold clear-alarms`"
            );
            Told::new(Severity::Alarm, "peer-uuid-changed", text)
        })
    }

    /// On a thread of its own: it is rare, and a disk may stall.
    fn keep(&self, uuid: SystemUuid) {
        let (directory, name, inbox) = (self.directory.clone(), self.name.clone(), self.inbox.clone());
        let write = move || {
            if let Err(error) = peer_uuid::write(&directory, &name, uuid) {
                let text = format!("the UUID of {name} cannot be kept in {}: {error}", directory.display());
                let _ = inbox.send(Note::Told(Told::new(Severity::Warning, "peer-uuid-not-kept", text)));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("peer-uuid".to_owned()).spawn(write) {
            tracing::warn!(%error, "no thread to keep the peer's UUID");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const OLD: SystemUuid = SystemUuid([1; 16]);
    const NEW: SystemUuid = SystemUuid([2; 16]);

    fn known(directory: &std::path::Path) -> (KnownPeer, Identities) {
        let (inbox, _) = tokio::sync::mpsc::unbounded_channel();
        let identities = Identities::default();
        let (directory, name) = (directory.to_owned(), "plover".to_owned());
        (KnownPeer::new(directory, name, NodeId::Second, identities.clone(), inbox), identities)
    }

    /// The write is on a thread of its own.
    fn until_kept(directory: &std::path::Path, uuid: SystemUuid) {
        for _ in 0..2000 {
            if matches!(peer_uuid::read(directory, "plover"), Ok(Some(kept)) if kept == uuid) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{uuid} is not kept");
    }

    #[test]
    fn a_peer_that_is_dead_at_our_start_is_known_from_before() {
        let dir = tempfile::tempdir().unwrap();
        let (mut peer, _) = known(dir.path());
        assert!(peer.is_news(OLD));
        assert_eq!(peer.learn(OLD), None, "the first time is no change");
        until_kept(dir.path(), OLD);
        let (peer, identities) = known(dir.path());
        assert_eq!(identities.of(1), Some(OLD));
        assert!(!peer.is_news(OLD));
    }

    #[test]
    fn another_uuid_is_believed_kept_and_told_as_an_alarm() {
        let dir = tempfile::tempdir().unwrap();
        let (mut peer, identities) = known(dir.path());
        peer.learn(OLD);
        until_kept(dir.path(), OLD);
        let told = peer.learn(NEW).expect("a change is told");
        assert_eq!((told.severity, told.kind), (Severity::Alarm, "peer-uuid-changed"));
        assert!(told.text.contains(&NEW.to_string()) && told.text.contains(&OLD.to_string()), "{}", told.text);
        assert_eq!(identities.of(1), Some(NEW));
        until_kept(dir.path(), NEW);
    }

    #[test]
    fn firmware_that_names_none_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut peer, identities) = known(dir.path());
        peer.learn(OLD);
        assert!(!peer.is_news(SystemUuid([0; 16])));
        assert_eq!(peer.learn(SystemUuid([0; 16])), None);
        assert_eq!(identities.of(1), Some(OLD));
    }

    #[test]
    fn a_uuid_that_both_nodes_have_tells_nobody_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (mut peer, identities) = known(dir.path());
        identities.learn(0, OLD);
        let told = peer.learn(OLD).expect("it is told");
        assert_eq!((told.severity, told.kind), (Severity::Warning, "peer-uuid-shared"));
        assert_eq!((identities.of(1), peer.learn(OLD)), (None, None), "once, and never compared with");
    }
}
