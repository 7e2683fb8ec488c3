//! The generation id of a virtual machine: the hypervisor gives a new one when it restores, copies or fails over a guest
//! (Virtual Machine Generation ID, Microsoft, 2012). The kernel's driver (`drivers/virt/vmgenid.c`, Linux 6.10 and later) then
//! sends a uevent with `NEW_VMGENID=1`; the id itself it shows to nobody, and an older kernel says nothing.

use std::io;

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with, sockopt};

use super::sys::Watched;

/// What the kernel itself sends goes to this group; the other one is udev's.
const KERNEL: u32 = 1;
/// `UEVENT_BUFFER_SIZE` of the kernel, and its header.
const LONGEST: usize = 4096;
/// For a storm of events (a storage adapter that comes up) while the loop is busy.
const BACKLOG: usize = 1 << 20;

/// Hears of a changed generation id.
#[derive(Debug)]
pub struct GenerationId {
    events: Watched,
}

impl GenerationId {
    /// Listens in the network namespace of the caller. Needs a tokio runtime with its I/O driver.
    ///
    /// # Errors
    /// The kernel has no uevents, or a sandbox forbids netlink.
    pub fn listen() -> io::Result<GenerationId> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(KOBJECT_UEVENT))?;
        // More than the system's limit takes a privilege; less is no error.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BACKLOG);
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL))?;
        Ok(GenerationId { events: Watched::readable(socket)? })
    }

    /// Waits until the id is a new one. Cancel-safe.
    pub async fn changed(&self) {
        let mut buffer = [0; LONGEST];
        loop {
            let Ok(mut ready) = self.events.get().readable().await else {
                // The runtime is going down: nobody will be woken any more.
                return std::future::pending().await;
            };
            let read = ready.try_io(|socket| {
                let received = recvfrom(socket.get_ref(), &mut buffer[..], RecvFlags::empty());
                let (length, _, from) = received.map_err(io::Error::from)?;
                let kernel = from.and_then(|a| SocketAddrNetlink::try_from(a).ok()).is_some_and(|a| a.pid() == 0);
                Ok(kernel && tells_of_a_new_id(&buffer[..length]))
            });
            match read {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) | Err(_) => {}
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    tracing::warn!("more kernel events at once than could be read: a restored guest may go unnoticed");
                }
                Ok(Err(error)) => tracing::debug!(%error, "a kernel event could not be read"),
            }
        }
    }
}

/// `change@/devices/…`, and then assignments, each with a NUL at its end (`lib/kobject_uevent.c`).
fn tells_of_a_new_id(event: &[u8]) -> bool {
    event.split(|byte| *byte == 0).skip(1).any(|word| word == b"NEW_VMGENID=1")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::net::{SendFlags, sendto};

    use super::*;
    use crate::os::apart;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// The kernel passes on what a privileged process of the namespace hands in, as if it were its own (`uevent_net_rcv`).
    fn send(words: &[&str]) {
        let body = words.join("\0") + "\0";
        let length = u32::try_from(16 + body.len()).unwrap();
        // `struct nlmsghdr`: a request of the first kind that is not netlink's own, without number or sender.
        let kind_and_flags = [0x10_u16, 1].map(u16::to_ne_bytes).concat();
        let message = [&length.to_ne_bytes(), &*kind_and_flags, &[0; 8], body.as_bytes()].concat();
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(KOBJECT_UEVENT)).unwrap();
        sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).unwrap();
    }

    #[test]
    fn a_new_id_is_heard_and_no_other_event_is_one() {
        if !apart::inside("os::generation::tests::a_new_id_is_heard_and_no_other_event_is_one", "--net") {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let id = GenerationId::listen().unwrap();
            send(&["change@/devices/virtual/net/reef0", "ACTION=change", "SUBSYSTEM=net"]);
            send(&["change@/NEW_VMGENID=1", "ACTION=change", "NEW_VMGENID=0"]);
            assert!(tokio::time::timeout(Duration::from_millis(100), id.changed()).await.is_err());
            send(&["change@/devices/LNXSYSTM:00/QEMUVGID:00", "ACTION=change", "NEW_VMGENID=1"]);
            tokio::time::timeout(PATIENCE, id.changed()).await.unwrap();
        });
    }
}
