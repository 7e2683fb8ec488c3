//! The expressions of an nftables rule, as netlink attributes. Numbers: `linux/netfilter/nf_tables.h`.

use super::netlink::Writer;

/// `NFPROTO_IPV4`
pub const IPV4: u8 = 2;

/// The expressions of one rule; all of them work on register 1.
#[derive(Debug)]
pub struct Rule<'a>(&'a mut Writer);

#[derive(Debug, Clone, Copy)]
pub enum Comparison {
    Equal = 0,
    Unequal = 1,
}

#[derive(Debug, Clone, Copy)]
pub enum Verdict<'a> {
    Return,
    Jump(&'a str),
    Goto(&'a str),
}

const REGISTER: u32 = 1;

impl<'a> Rule<'a> {
    /// Written where the expressions of a rule stand in its message.
    pub fn new(w: &'a mut Writer) -> Rule<'a> {
        Rule(w)
    }

    fn expression(&mut self, name: &str, data: impl FnOnce(&mut Writer)) {
        self.0.nest(1, |w| {
            w.text(1, name);
            w.nest(2, data);
        });
    }

    fn meta(&mut self, key: u32) {
        self.expression("meta", |w| {
            w.number(1, REGISTER);
            w.number(2, key);
        });
    }

    /// `NFT_META_L4PROTO`
    pub fn protocol(&mut self) {
        self.meta(16);
    }

    pub fn is_protocol(&mut self, protocol: u8) {
        self.protocol();
        self.compare(Comparison::Equal, &[protocol]);
    }

    fn payload(&mut self, base: u32, offset: u32, length: u32) {
        self.expression("payload", |w| {
            [REGISTER, base, offset, length].into_iter().zip(1..).for_each(|(n, kind)| w.number(kind, n))
        });
    }

    /// An address of the network header, of this family only (`NFT_META_NFPROTO`).
    pub fn address(&mut self, family: u8, offset: u32) {
        self.meta(15);
        self.compare(Comparison::Equal, &[family]);
        self.payload(1, offset, if family == IPV4 { 4 } else { 16 });
    }

    pub fn transport(&mut self, offset: u32, length: u32) {
        self.payload(2, offset, length);
    }

    /// The flag RST: bit 2 of byte 13 (RFC 9293, 3.1).
    pub fn is_reset(&mut self) {
        self.transport(13, 1);
        self.mask(&[4]);
        self.compare(Comparison::Unequal, &[0]);
    }

    pub fn mask(&mut self, mask: &[u8]) {
        let length = u32::try_from(mask.len()).expect("a mask is no longer than an address");
        self.expression("bitwise", |w| {
            w.number(1, REGISTER);
            w.number(2, REGISTER);
            w.number(3, length);
            w.nest(4, |w| w.attr(1, mask));
            w.nest(5, |w| w.attr(1, &vec![0; mask.len()]));
        });
    }

    pub fn compare(&mut self, how: Comparison, with: &[u8]) {
        self.expression("cmp", |w| {
            w.number(1, REGISTER);
            w.number(2, how as u32);
            w.nest(3, |w| w.attr(1, with));
        });
    }

    pub fn is_in(&mut self, set: &str) {
        self.expression("lookup", |w| {
            w.text(1, set);
            w.number(2, REGISTER);
        });
    }

    pub fn verdict(&mut self, verdict: Verdict<'_>) {
        let (code, chain) = match verdict {
            Verdict::Return => (-5, None),
            Verdict::Jump(chain) => (-3, Some(chain)),
            Verdict::Goto(chain) => (-4, Some(chain)),
        };
        let code: i32 = code;
        self.expression("immediate", |w| {
            w.number(1, 0);
            w.nest(2, |w| {
                w.nest(2, |w| {
                    w.number(1, code.cast_unsigned());
                    if let Some(chain) = chain {
                        w.text(2, chain);
                    }
                });
            });
        });
    }

    /// `NFT_REJECT_TCP_RST`
    pub fn reject_with_reset(&mut self) {
        self.expression("reject", |w| {
            w.number(1, 1);
            w.attr(2, &[0]);
        });
    }

    /// `NFT_REJECT_ICMPX_UNREACH`, `NFT_REJECT_ICMPX_PORT_UNREACH`
    pub fn reject(&mut self) {
        self.expression("reject", |w| {
            w.number(1, 2);
            w.attr(2, &[1]);
        });
    }
}
