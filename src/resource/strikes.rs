//! When a check that is asked again and again has said "no" often enough: a slow answer is not yet a "no" (casebook C37).

use crate::process::{Ending, Finished};

use super::ResourceError;
use super::exec::told;

/// Failed when a check has said so twice in a row, or did not answer three times in a row.
const STRIKE_OUT: u32 = 6;
const STRIKES_NO: u32 = 3;
const STRIKES_SILENT: u32 = 2;

/// Of one resource that is up.
#[derive(Debug, Default)]
pub struct Strikes(u32);

impl Strikes {
    /// Counts an answer. What it said, when it was the last straw; a good one forgives all before it.
    pub fn count(&mut self, answer: Result<Finished, ResourceError>) -> Option<String> {
        let (more, said) = match answer {
            Ok(Finished { ending: Ending::Exited(0), .. }) => {
                self.0 = 0;
                return None;
            }
            Ok(finished) => {
                let silent = matches!(finished.ending, Ending::TimedOut | Ending::Stuck);
                (if silent { STRIKES_SILENT } else { STRIKES_NO }, told(&finished))
            }
            Err(error) => (STRIKES_SILENT, error.to_string()),
        };
        self.0 += more;
        (self.0 >= STRIKE_OUT).then_some(said)
    }
}
