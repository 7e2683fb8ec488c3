//! What this program does to the machine's network by netlink.
//!
//! | file | what |
//! | --- | --- |
//! | [`cut`] | the clients of the service are refused and reset at once |
//! | [`nft`], [`rule`] | the nftables table that refuses them |
//! | [`sockdiag`] | ends the connections that are there |
//! | [`netlink`] | messages written by hand ahead of time, sent and answered without allocation |

pub mod cut;
pub mod netlink;
pub mod nft;
pub mod rule;
pub mod sockdiag;
