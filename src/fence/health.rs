//! What a look at a device found, long before it is needed.

use super::Reading;

/// Whether an agent could fence now, as far as that can be known without doing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    pub reading: Reading,
    /// Why it could not, each in a sentence for an operator. Empty: it could.
    pub faults: Vec<String>,
    /// What is good to know: the cipher suite in use, how many sessions are taken, whose identity was read.
    pub notes: Vec<String>,
}

impl Health {
    /// A device that can be read can be asked; one that cannot be read will prove nothing.
    pub fn of(reading: Reading) -> Health {
        let faults = match reading {
            Reading::Unknown => vec!["its state cannot be read".to_owned()],
            Reading::Off | Reading::On => Vec::new(),
        };
        Health { reading, faults, notes: Vec::new() }
    }

    pub fn fault(mut self, why: impl Into<String>) -> Health {
        self.faults.push(why.into());
        self
    }

    pub fn note(mut self, what: impl Into<String>) -> Health {
        self.notes.push(what.into());
        self
    }

    pub fn is_good(&self) -> bool {
        self.faults.is_empty()
    }
}
