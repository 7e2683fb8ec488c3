//! Heartbeat links: one nonblocking UDP socket each, bound to its address and, if asked, to its device.
//!
//! Nothing here fails for good or waits. A link whose address or device is missing is tried again and again, at each
//! send and by itself (casebook C32: a bond that appears 27 s after the start); an error of a send is counted; a flood
//! is handed out in bounded turns, so that timers of the same task get theirs. What a datagram means is not known here:
//! only its source is checked, everything else is the business of the seal.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rustix::net::{SendFlags, sendto};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;
use tokio::time::Sleep;

use super::clock;
use super::counters::{Fault, LinkCounters, Tally};
use crate::config;
use crate::core::{Incarnation, Instant, NodeId, Seq, Span};

/// Size of the buffer to receive into; a datagram that fills it is rejected as oversized. Ours have a few hundred bytes.
pub const RECEIVE_BUFFER: usize = 2048;
/// A link that is down is tried again this often: three system calls, well below any silence that matters.
const RETRY: Duration = Duration::from_millis(500);
/// Datagrams that one turn may reject before other futures of the task run.
const TURN: usize = 32;
/// Room for about 100 ms of a flood of 10 000 datagrams a second beside the peer's own (some 800 bytes each in the kernel).
const KERNEL_BUFFER: usize = 1 << 20;

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Handed to the network.
    Left,
    /// Counted and forgotten: the next one goes out in any case.
    Lost(Fault),
}

/// Whether the link has a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    Up,
    /// Tried again all the time; the text says what is missing.
    Down {
        because: String,
    },
}

/// One link of this node to its peer.
#[derive(Debug)]
pub struct Link {
    name: String,
    here: SocketAddr,
    peer: SocketAddr,
    device: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    socket: Option<Arc<UdpSocket>>,
    /// Why there is no socket.
    missing: Option<(Fault, String)>,
    /// When the next attempt is due.
    due: Instant,
    /// Wakes the waiting task up for it.
    retry: Pin<Box<Sleep>>,
    /// The task that waits for a datagram, to be told of a new socket.
    waiting: Option<Waker>,
    tally: Tally,
}

impl State {
    fn try_later(&mut self) {
        self.due = clock::now().after(RETRY.into());
        self.retry.set(tokio::time::sleep(RETRY));
    }
}

impl Link {
    /// The link as node `me` sees it. Needs a tokio runtime with I/O and time. Never fails: what is missing is tried again.
    pub fn bind(link: &config::Link, me: NodeId) -> Link {
        let state = State {
            socket: None,
            missing: None,
            due: clock::now(),
            retry: Box::pin(tokio::time::sleep(Duration::ZERO)),
            waiting: None,
            tally: Tally::default(),
        };
        let link = Link {
            name: link.name.clone(),
            here: link.addresses[me.index()],
            peer: link.addresses[me.peer().index()],
            device: link.devices[me.index()].clone(),
            state: Mutex::new(state),
        };
        link.open(&mut link.state());
        link
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends to the peer. Never waits.
    pub fn send(&self, datagram: &[u8]) -> Sent {
        let mut state = self.state();
        if state.socket.is_none() && clock::now() >= state.due {
            self.open(&mut state);
        }
        let Some(socket) = &state.socket else {
            let fault = state.missing.as_ref().map_or(Fault::Other, |(fault, _)| *fault);
            state.tally.fault(fault);
            return Sent::Lost(fault);
        };
        // Straight to the kernel: tokio would call a socket that it has not polled yet "not writable".
        match sendto(socket.as_fd(), datagram, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &self.peer) {
            Ok(_) => {
                state.tally.sent += 1;
                Sent::Left
            }
            Err(errno) => Sent::Lost(self.send_failed(&mut state, &errno.into())),
        }
    }

    /// Waits for a datagram from the peer's address and gives its length. Cancel-safe. Use a buffer of [`RECEIVE_BUFFER`].
    pub async fn recv(&self, buffer: &mut [u8]) -> usize {
        poll_fn(|cx| self.poll_recv(cx, buffer)).await
    }

    /// As [`Link::recv`]. After 32 rejected datagrams it gives way to the task's other futures.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<usize> {
        for _ in 0..TURN {
            let socket = ready!(self.poll_socket(cx));
            let mut read = ReadBuf::new(buffer);
            match ready!(socket.poll_recv_from(cx, &mut read)) {
                Ok(from) => {
                    let full = read.remaining() == 0;
                    let length = read.filled().len();
                    if self.accepts(from, full) {
                        return Poll::Ready(length);
                    }
                }
                // A socket without a connection has no everyday errors of receiving: start anew.
                Err(error) => self.close(&mut self.state(), &error),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    pub fn state_now(&self) -> LinkState {
        let state = self.state();
        match &state.missing {
            Some((_, because)) if state.socket.is_none() => LinkState::Down { because: because.clone() },
            _ => LinkState::Up,
        }
    }

    pub fn counters(&self) -> LinkCounters {
        self.state().tally.copy()
    }

    /// A datagram that came by this link was authentic.
    pub fn note_authentic(&self, incarnation: Incarnation, seq: Seq, now: Instant) {
        self.state().tally.authentic(incarnation, seq, now);
    }

    /// The peer has sent this datagram; it was heard by another link.
    pub fn note_elsewhere(&self, incarnation: Incarnation, seq: Seq) {
        self.state().tally.exists(incarnation, seq);
    }

    /// A datagram that came by this link was rejected; `kind` is a name out of a fixed set.
    pub fn note_rejected(&self, kind: &'static str) {
        self.state().tally.rejected(kind);
    }

    /// The peer echoed by this link what was sent this long ago.
    pub fn note_rtt(&self, round_trip: Span) {
        self.state().tally.round_trip(round_trip);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the state of a link")
    }

    fn poll_socket(&self, cx: &mut Context<'_>) -> Poll<Arc<UdpSocket>> {
        let mut state = self.state();
        loop {
            if let Some(socket) = &state.socket {
                let socket = Arc::clone(socket);
                // A send may close the socket while this task waits on it.
                state.waiting = Some(cx.waker().clone());
                return Poll::Ready(socket);
            }
            if clock::now() < state.due && state.retry.as_mut().poll(cx).is_pending() {
                state.waiting = Some(cx.waker().clone());
                return Poll::Pending;
            }
            self.open(&mut state);
        }
    }

    /// One attempt. Whatever comes of it, the next one is due a while later.
    fn open(&self, state: &mut State) {
        state.try_later();
        match bound_socket(self.here, self.device.as_deref()) {
            Ok(socket) => {
                state.socket = Some(Arc::new(socket));
                state.missing = None;
                state.waiting.take().into_iter().for_each(Waker::wake);
            }
            Err(error) => state.missing = Some((Fault::of(&error), self.explain(&error))),
        }
    }

    fn close(&self, state: &mut State, error: &io::Error) {
        state.missing = Some((Fault::of(error), self.explain(error)));
        state.socket = None;
        state.tally.reopened += 1;
        state.try_later();
        // It waits on the old socket: it must come and wait for the new one.
        state.waiting.take().into_iter().for_each(Waker::wake);
    }

    fn send_failed(&self, state: &mut State, error: &io::Error) -> Fault {
        let fault = Fault::of(error);
        state.tally.fault(fault);
        if fault.needs_new_socket() {
            self.close(state, error);
        }
        fault
    }

    fn accepts(&self, from: SocketAddr, full: bool) -> bool {
        let tally = &mut self.state().tally;
        if from.ip() != self.peer.ip() {
            tally.rejected("foreign source");
        } else if full {
            tally.rejected("oversized");
        } else {
            tally.received += 1;
            return true;
        }
        false
    }

    fn explain(&self, error: &io::Error) -> String {
        let device = self.device.as_deref().map(|d| format!(" on {d}")).unwrap_or_default();
        format!("cannot use {}{device}: {error}; trying again every {} ms", self.here, RETRY.as_millis())
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkState::Up => f.write_str("up"),
            LinkState::Down { because } => write!(f, "down: {because}"),
        }
    }
}

/// Waits for a datagram on any of the links: gives the link's index and the length. Cancel-safe. `turn` remembers whose
/// turn it is, so that a flood on one link does not silence another.
pub async fn recv_any(links: &[Link], buffer: &mut [u8], turn: &mut usize) -> (usize, usize) {
    poll_fn(|cx| {
        for i in 0..links.len() {
            let index = (*turn + i) % links.len();
            if let Poll::Ready(length) = links[index].poll_recv(cx, buffer) {
                *turn = (index + 1) % links.len();
                return Poll::Ready((index, length));
            }
        }
        Poll::Pending
    })
    .await
}

/// No address reuse: a second daemon on the same address must not get half of the heartbeats.
fn bound_socket(here: SocketAddr, device: Option<&str>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(here), Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    if here.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    enlarge(&socket);
    socket.bind(&here.into())?;
    UdpSocket::from_std(socket.into())
}

/// Beyond the system's limit only with privilege. What it becomes is good enough: the flood of a stranger costs room,
/// and a heartbeat that finds none is one of many.
fn enlarge(socket: &Socket) {
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, KERNEL_BUFFER).is_err() {
        let _ = socket.set_recv_buffer_size(KERNEL_BUFFER);
    }
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
