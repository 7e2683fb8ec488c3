//! How many runs of one program may be under way at once. A program that hangs in the kernel cannot be killed: were it
//! started again at each attempt for a week, processes and threads would run out, and every other program with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ProcessError;

/// Far above what runs side by side when all is well: an agent has one run under way at a time, and at most 32 agents
/// share a program.
const MOST: usize = 64;

static TAKEN: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

/// One run, until it has truly ended.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Place {
    pub fn take(program: &Path) -> Result<Place, ProcessError> {
        let mut taken = taken();
        let count = taken.entry(program.to_owned()).or_default();
        if *count >= MOST {
            return Err(ProcessError::Hanging { program: program.to_owned(), count: *count });
        }
        *count += 1;
        Ok(Place(program.to_owned()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = taken();
        let left = taken.get(&self.0).map_or(0, |count| count - 1);
        if left == 0 {
            taken.remove(&self.0);
        } else {
            taken.insert(self.0.clone(), left);
        }
    }
}

/// Every change is one whole step, so a panic elsewhere leaves nothing half done.
fn taken() -> MutexGuard<'static, BTreeMap<PathBuf, usize>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_never_ends_is_started_a_bounded_number_of_times_and_others_are_not_held_up() {
        let (hung, good) = (Path::new("/test/places/hung"), Path::new("/test/places/good"));
        let mut places: Vec<Place> = (0..MOST).map(|_| Place::take(hung).unwrap()).collect();
        let error = Place::take(hung).unwrap_err().to_string();
        assert!(error.contains("/test/places/hung") && error.contains("64"), "{error}");
        Place::take(good).unwrap();
        places.pop();
        Place::take(hung).unwrap();
    }
}
