//! The body of a datagram as index-keyed CBOR (RFC 8949): a map from small integers to values.
//!
//! A receiver skips keys that it does not know; a missing required key, an unknown value of a known key or anything
//! after the map makes the datagram [`Rejection::Malformed`]. A key is never given a second meaning, and a field or a
//! value that a receiver must not skip raises [`MIN_VERSION`](super::MIN_VERSION). The sender is not in the body: the
//! header names it.

use minicbor::{Decode, Decoder, Encode};

use super::Rejection;
use crate::core::{
    Activity, BootId, Datagram, Digest, Echo, Grant, Incarnation, NodeId, Notices, Role, Seq, Span, Standing,
    SystemUuid, Token,
};

/// The mirror of [`Datagram`]: absent options are left out of the map. Next free key: 23.
#[derive(Encode, Decode)]
#[cbor(map)]
struct Body {
    #[n(0)]
    incarnation: u64,
    #[cbor(n(1), with = "minicbor::bytes")]
    boot: [u8; 16],
    #[n(2)]
    seq: u64,
    #[n(3)]
    role: u8,
    #[n(4)]
    claim: Option<u64>,
    #[n(5)]
    highest_token: u64,
    #[n(6)]
    held_token: u64,
    #[n(7)]
    holding: bool,
    #[n(8)]
    resources_up: bool,
    #[n(9)]
    standing: u8,
    #[n(10)]
    admitted: Option<u64>,
    #[n(11)]
    wish: bool,
    #[n(12)]
    ready: bool,
    #[n(13)]
    activity: u8,
    #[n(14)]
    echo: Option<EchoBody>,
    #[n(15)]
    grant: Option<GrantBody>,
    #[n(16)]
    release: Option<u64>,
    #[n(17)]
    leave: bool,
    #[n(18)]
    freeze: bool,
    #[n(19)]
    cannot: Option<u64>,
    #[n(20)]
    rolled_back: bool,
    #[cbor(n(21), with = "minicbor::bytes")]
    digest: [u8; 16],
    #[cbor(n(22), with = "minicbor::bytes")]
    uuid: [u8; 16],
    /// Only said where it is so: a version that does not know of it passes over it.
    #[n(23)]
    cannot_fence: Option<bool>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct EchoBody {
    #[n(0)]
    incarnation: u64,
    #[n(1)]
    seq: u64,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct GrantBody {
    #[n(0)]
    holder: u64,
    #[n(1)]
    token: u64,
    #[n(2)]
    seq: u64,
    #[n(3)]
    term_ns: u64,
}

/// A plain enum as a number on the wire: the numbers are a promise, the order of the variants is not.
trait Coded: Copy + 'static {
    const ALL: &'static [Self];

    fn code(self) -> u8;

    fn of(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.code() == code)
    }
}

/// The body of this datagram as CBOR.
pub fn encode(datagram: &Datagram) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_into(&mut bytes, datagram);
    bytes
}

/// Appends the body of this datagram.
pub(super) fn encode_into(bytes: &mut Vec<u8>, datagram: &Datagram) {
    minicbor::encode(Body::from(datagram), bytes).expect("writing to a Vec does not fail");
}

/// The datagram of `sender` with this body.
pub fn decode(sender: NodeId, body: &[u8]) -> Result<Datagram, Rejection> {
    let mut decoder = Decoder::new(body);
    let decoded: Body = decoder.decode().map_err(|_| Rejection::Malformed)?;
    let whole = decoder.position() == body.len();
    decoded.into_datagram(sender).filter(|_| whole).ok_or(Rejection::Malformed)
}

impl From<&Datagram> for Body {
    /// A new field of the datagram stops [`Body::into_datagram`] from compiling, and its mirror then stops this.
    fn from(d: &Datagram) -> Body {
        Body {
            incarnation: d.incarnation.0,
            boot: d.boot.0,
            seq: d.seq.0,
            role: d.role.code(),
            claim: d.claim.map(|token| token.0),
            highest_token: d.highest_token.0,
            held_token: d.held_token.0,
            holding: d.holding,
            resources_up: d.resources_up,
            standing: d.standing.code(),
            admitted: d.admitted.map(|incarnation| incarnation.0),
            wish: d.wish,
            ready: d.ready,
            activity: d.activity.code(),
            echo: d.echo.map(EchoBody::from),
            grant: d.grant.map(GrantBody::from),
            release: d.release.map(|token| token.0),
            leave: d.notices.leave,
            freeze: d.notices.freeze,
            cannot: d.notices.cannot.map(|token| token.0),
            rolled_back: d.notices.rolled_back,
            digest: d.digest.0,
            uuid: d.uuid.0,
            cannot_fence: d.notices.cannot_fence.then_some(true),
        }
    }
}

impl Body {
    /// `None` when an enum has a value that this version does not know.
    fn into_datagram(self, sender: NodeId) -> Option<Datagram> {
        Some(Datagram {
            sender,
            incarnation: Incarnation(self.incarnation),
            boot: BootId(self.boot),
            seq: Seq(self.seq),
            role: Role::of(self.role)?,
            claim: self.claim.map(Token),
            highest_token: Token(self.highest_token),
            held_token: Token(self.held_token),
            holding: self.holding,
            resources_up: self.resources_up,
            standing: Standing::of(self.standing)?,
            admitted: self.admitted.map(Incarnation),
            wish: self.wish,
            ready: self.ready,
            activity: Activity::of(self.activity)?,
            echo: self.echo.map(Echo::from),
            grant: self.grant.map(Grant::from),
            release: self.release.map(Token),
            notices: Notices {
                leave: self.leave,
                freeze: self.freeze,
                cannot: self.cannot.map(Token),
                rolled_back: self.rolled_back,
                cannot_fence: self.cannot_fence.unwrap_or(false),
            },
            digest: Digest(self.digest),
            uuid: SystemUuid(self.uuid),
        })
    }
}

impl From<Echo> for EchoBody {
    fn from(echo: Echo) -> EchoBody {
        EchoBody { incarnation: echo.incarnation.0, seq: echo.seq.0 }
    }
}

impl From<EchoBody> for Echo {
    fn from(body: EchoBody) -> Echo {
        Echo { incarnation: Incarnation(body.incarnation), seq: Seq(body.seq) }
    }
}

impl From<Grant> for GrantBody {
    fn from(grant: Grant) -> GrantBody {
        GrantBody { holder: grant.holder.0, token: grant.token.0, seq: grant.seq.0, term_ns: grant.term.0 }
    }
}

impl From<GrantBody> for Grant {
    fn from(body: GrantBody) -> Grant {
        Grant {
            holder: Incarnation(body.holder),
            token: Token(body.token),
            seq: Seq(body.seq),
            term: Span(body.term_ns),
        }
    }
}

impl Coded for Role {
    const ALL: &'static [Role] = &[Role::Joining, Role::Standby, Role::TakingOver, Role::Primary, Role::Demoting];

    fn code(self) -> u8 {
        match self {
            Role::Joining => 0,
            Role::Standby => 1,
            Role::TakingOver => 2,
            Role::Primary => 3,
            Role::Demoting => 4,
        }
    }
}

impl Coded for Standing {
    const ALL: &'static [Standing] = &[Standing::Paired, Standing::Sole, Standing::Out];

    fn code(self) -> u8 {
        match self {
            Standing::Paired => 0,
            Standing::Sole => 1,
            Standing::Out => 2,
        }
    }
}

impl Coded for Activity {
    const ALL: &'static [Activity] = &[Activity::Idle, Activity::Attempt, Activity::Proof];

    fn code(self) -> u8 {
        match self {
            Activity::Idle => 0,
            Activity::Attempt => 1,
            Activity::Proof => 2,
        }
    }
}
