//! What the tests of the EC2 agents talk to: moto (a real server that checks signatures), a scripted EC2, a metadata
//! service, and the agents themselves as a plan.

pub mod agents;
pub mod fake;
pub mod http;
pub mod imds;
pub mod moto;
