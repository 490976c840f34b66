//! Exact reads: the contents of all slots at one moment, without stopping the lanes.
//!
//! The double collect of Afek, Attiya, Dolev, Gafni, Merritt and Shavit, "Atomic snapshots of shared memory"
//! (1993): if two consecutive collects of numbers that never decrease have the same result, nothing changed
//! between the end of the first and the start of the second.

use manylane_sync::Backoff;
use std::fmt;

/// Maximum number of attempts of an exact read.
pub const EXACT_ATTEMPTS: usize = 1000;

/// Error: an exact read found the lanes counting at each of [`EXACT_ATTEMPTS`] attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillCounting;

impl fmt::Display for StillCounting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the lanes went on counting through {EXACT_ATTEMPTS} attempts at an exact read; \
             read cheaply, or when they pause"
        )
    }
}

impl std::error::Error for StillCounting {}

/// Returns the result that `collect` gives twice in a row. It must read numbers that never decrease, with
/// acquire (rule 4).
pub(crate) fn exact<T: PartialEq>(mut collect: impl FnMut() -> T) -> Result<T, StillCounting> {
    // The model checker would explore every retry.
    let attempts = if cfg!(loom) { 3 } else { EXACT_ATTEMPTS };
    let mut backoff = Backoff::new();
    let mut before = collect();
    for _ in 0..attempts {
        let after = collect();
        if after == before {
            return Ok(after);
        }
        before = after;
        backoff.wait();
    }
    Err(StillCounting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_read_gives_up_with_a_sentence_when_the_lanes_never_pause() {
        let mut n = 0;
        let outcome = exact(|| {
            n += 1;
            n
        });
        assert_eq!(outcome, Err(StillCounting));
        assert_eq!(
            StillCounting.to_string(),
            "the lanes went on counting through 1000 attempts at an exact read; \
             read cheaply, or when they pause"
        );
    }

    #[test]
    fn an_exact_read_takes_the_first_value_that_repeats() {
        let mut values = [1, 2, 3, 3, 4].into_iter();
        assert_eq!(exact(|| values.next()), Ok(Some(3)));
    }
}
