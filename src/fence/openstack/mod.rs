//! OpenStack: `openstack-power` stops a server, `openstack-volume` takes a volume from one.
//!
//! ```text
//!   keystone: application credential ──▶ Grant (token, endpoints), renewed at half of its life
//!      └─ Cloud: one authenticated request, bounded, throttling waited out
//!            ├─ power:  Nova    GET server            · os-stop, os-start
//!            └─ volume: Cinder  GET volume            · Nova DELETE, POST os-volume_attachments
//! ```
//!
//! Nova's 202 means "will try"; so does its deletion of an attachment. Only the state that is read later counts, and
//! that of a volume is read from Cinder, which exports the storage, and not from Nova, which asked for it.

mod cloud;
mod keystone;
mod power;
mod volume;

use crate::core::SystemUuid;

use super::{Attempt, Identity};

pub use power::OpenstackPower;
pub use volume::OpenstackVolume;

/// The UUID that Nova gives a server is the one that its firmware shows to the guest (libvirt driver: the UUID of the
/// domain, which QEMU puts into SMBIOS).
fn uuid(text: &str) -> Option<SystemUuid> {
    let digits: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    let byte = |pair: &[char]| Some((pair[0].to_digit(16)? * 16 + pair.get(1)?.to_digit(16)?) as u8);
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect::<Option<_>>()?;
    Some(SystemUuid(bytes.try_into().ok()?))
}

/// Whom the server of the configuration is, in the words for an operator if it is the wrong one.
fn identity(server: &str, attempt: &Attempt) -> (Identity, String) {
    let told = match attempt.expected() {
        Some(uuid) => format!("server {server} is another machine: the target says that its UUID is {uuid}"),
        None => format!("the target has not told its UUID, server {server} is taken on trust"),
    };
    (attempt.identify(uuid(server)), told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_id_is_a_system_uuid() {
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(uuid(text).map(|u| u.to_string()).as_deref(), Some(text));
        for wrong in ["", "heron", "00112233-4455-6677-8899-aabbccddeef", "00112233-4455-6677-8899-aabbccddeeff00"] {
            assert_eq!(uuid(wrong), None, "{wrong}");
        }
    }
}
