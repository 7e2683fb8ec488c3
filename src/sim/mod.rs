//! Two nodes in a made-up world, and judges that look from outside (protocol section 8).
//!
//! Everything here drives the shipped [`crate::core::Node`], never a copy. A world is a [`Setup`] with its seed and a
//! schedule of [`Action`]s; the same ones always give the same trace.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `world`, `driver`, `service`, `jobs`, `power`, `apply` | what happens |
//! | `machine`, `clock`, `disk`, `links`, `sealed`, `fence`, `resources` | the parts to which it happens |
//! | `judges`, `liveness` | S1 to S5 and L2, L1, from what nodes did |
//! | `script`, `action_text`, `text`, `matching` | scenarios, read and printed |
//! | `settings` | a world for the settings of a real configuration |
//! | `swarm`, `draw`, `shrink` | worlds drawn from seeds, and short schedules of those that fail |

mod action;
mod action_text;
mod apply;
mod clock;
mod disk;
mod draw;
mod driver;
mod expect;
mod fence;
mod jobs;
mod judges;
mod links;
mod liveness;
mod machine;
mod matching;
mod power;
mod queue;
mod quiet;
mod resources;
mod rng;
mod script;
mod sealed;
mod service;
mod settings;
mod setup;
mod shrink;
mod swarm;
pub mod text;
mod trace;
mod world;

pub use action::{Action, PathChange, Wires};
pub use judges::{Guarantee, Promotion, Violation};
pub use machine::Pause;
pub use quiet::surviving;
pub use rng::Rng;
pub use script::{Outcome, Scenario};
pub use setup::{NodeSetup, Setup};
pub use shrink::shrink;
pub use swarm::{Case, Figures, Verdict, draw, run, run_many};
pub use world::World;
