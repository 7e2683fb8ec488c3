//! One test for each clause of `docs/PROTOCOL.md`, sections 1 to 6, against the shipped core.
//!
//! A name says section and clause: `s3_04_…` is the fourth clause of section 3. The clauses of a section are numbered
//! here in the order in which the text states them. What a test finds wrong is stated in its `ignore`.

#[path = "spec/bench.rs"]
mod bench;
#[path = "spec/demoting.rs"]
mod demoting;
#[path = "spec/drill.rs"]
mod drill;
#[path = "spec/joining.rs"]
mod joining;
#[path = "spec/messages.rs"]
mod messages;
#[path = "spec/operator.rs"]
mod operator;
#[path = "spec/primary.rs"]
mod primary;
#[path = "spec/proofs.rs"]
mod proofs;
#[path = "spec/record.rs"]
mod record;
#[path = "spec/scopes.rs"]
mod scopes;
#[path = "spec/standby.rs"]
mod standby;
#[path = "spec/time.rs"]
mod time;
#[path = "spec/tokens.rs"]
mod tokens;
