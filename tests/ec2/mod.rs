//! The tests of the EC2 agents against what stands in for AWS: moto (a real server that checks signatures), a scripted EC2
//! and a metadata service. `table`, `agents` and the servers first, the stories after them.

pub mod agents;
pub mod fake;
pub mod http;
pub mod imds;
pub mod moto;
pub mod table;

mod keys;
mod power_table;
mod proof;
mod volume_table;
