//! Messages of netlink that were made ahead of need, sent without a library and without memory of their own.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// A kernel that is well answers in microseconds.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// `NLMSG_ERROR` of linux/netlink.h: an acknowledgement, with 0 for success.
const ERROR: u16 = 2;
const HEADER: usize = 16;
/// `RTM_DELADDR` of linux/rtnetlink.h.
const DELETE_ADDRESS: u16 = 21;
/// `NLM_F_REQUEST | NLM_F_ACK`
const REQUEST_AND_ACK: u16 = 5;
/// `IFA_LOCAL` of linux/if_addr.h: of IPv4 the address itself; `IFA_ADDRESS`, of IPv6.
const IFA_LOCAL: u16 = 2;
const IFA_ADDRESS: u16 = 1;

/// One socket.
#[derive(Debug)]
pub struct Netlink(OwnedFd);

/// Which part of the kernel is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Route,
    Netfilter,
}

impl Netlink {
    /// # Errors
    /// The kernel was built without this family.
    pub fn open(family: Family) -> io::Result<Netlink> {
        let protocol = match family {
            // NETLINK_ROUTE is number 0, which is also what no number means.
            Family::Route => None,
            Family::Netfilter => Some(NETFILTER),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Netlink(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?))
    }

    /// Sends one or several messages and waits for one acknowledgement, if any comes soon.
    ///
    /// # Errors
    /// The kernel's, or `ETIMEDOUT`.
    pub fn ask(&self, messages: &[u8]) -> Result<(), Errno> {
        self.forget();
        sendto(&self.0, messages, SendFlags::DONTWAIT, &SocketAddrNetlink::new(0, 0))?;
        let mut answer = [0; 4096];
        if poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&PATIENCE))? == 0 {
            return Err(Errno::TIMEDOUT);
        }
        let (length, _) = recv(&self.0, &mut answer, RecvFlags::DONTWAIT)?;
        acknowledged(&answer[..length])
    }

    /// Answers to earlier questions.
    fn forget(&self) {
        let mut answer = [0; 4096];
        while recv(&self.0, &mut answer, RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length > 0) {}
    }
}

/// The first error of an answer; anything that is none is success.
fn acknowledged(mut answer: &[u8]) -> Result<(), Errno> {
    while let Some((head, _)) = answer.split_first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        let code = answer.get(HEADER..HEADER + 4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        match code {
            Some(code) if kind == ERROR && code != 0 => return Err(Errno::from_raw_os_error(-code)),
            Some(_) | None => {}
        }
        let next = length.max(HEADER).next_multiple_of(4);
        answer = answer.get(next..).unwrap_or_default();
    }
    Ok(())
}

/// The message that takes an address from an interface. That it was not there, or the interface is gone, is answered
/// by an error that says so.
pub fn delete_address(interface: u32, address: IpAddr, prefix: u8) -> Vec<u8> {
    let (family, attribute, octets) = match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, IFA_LOCAL, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, IFA_ADDRESS, v6.octets().to_vec()),
    };
    let mut body = vec![family, prefix, 0, 0];
    body.extend(interface.to_ne_bytes());
    let length = u16::try_from(octets.len() + 4).expect("an address has 4 or 16 bytes");
    body.extend(length.to_ne_bytes());
    body.extend(attribute.to_ne_bytes());
    body.extend(octets);
    let total = u32::try_from(HEADER + body.len()).expect("a few dozen bytes");
    let mut message = total.to_ne_bytes().to_vec();
    message.extend(DELETE_ADDRESS.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Whether the answer to [`delete_address`] proves that the address is not there.
pub fn is_gone(answer: Result<(), Errno>) -> bool {
    matches!(answer, Ok(()) | Err(Errno::ADDRNOTAVAIL | Errno::NODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_not_there_is_told_so_by_the_kernel() {
        let route = Netlink::open(Family::Route).unwrap();
        for address in ["192.0.2.77", "2001:db8::77"] {
            let answer = route.ask(&delete_address(1, address.parse().unwrap(), 32));
            // Without privilege the kernel says only that it may not be asked.
            assert!(is_gone(answer) || answer == Err(Errno::PERM), "{address}: {answer:?}");
        }
    }

    #[test]
    fn an_acknowledgement_is_success_and_an_error_is_told_also_behind_another_message() {
        let message = |kind: u16, code: i32| {
            let mut bytes = 20u32.to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(code.to_ne_bytes());
            bytes
        };
        assert_eq!(acknowledged(&message(ERROR, 0)), Ok(()));
        assert_eq!(acknowledged(&[message(16, 9), message(ERROR, -1)].concat()), Err(Errno::PERM));
        assert_eq!(acknowledged(&[]), Ok(()));
        assert!(is_gone(Err(Errno::ADDRNOTAVAIL)) && !is_gone(Err(Errno::PERM)) && !is_gone(Err(Errno::TIMEDOUT)));
    }
}
