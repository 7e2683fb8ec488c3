//! What this program does to the machine's network.
//!
//! | file | what |
//! | --- | --- |
//! | [`address`] | interfaces and the addresses on them |
//! | [`announce`] | what is asked and told about addresses on the segment |
//! | [`remove`] | the removal of one address that spares its neighbours |
//! | [`cut`] | the clients of the service are refused and reset at once |
//! | [`nft`], [`rule`] | the nftables table that refuses them |
//! | [`sockdiag`] | ends the connections that are there |
//! | [`withdraw`] | takes one address away wherever it is, without a runtime and without allocation: for the guard |
//! | [`netlink`] | messages written by hand ahead of time, sent and answered without allocation |

pub mod address;
pub mod announce;
pub mod cut;
pub mod netlink;
pub mod nft;
pub mod remove;
pub mod rule;
pub mod sockdiag;
mod sys;
pub mod withdraw;
