//! R-B3: many threads register free functions at once. In a process of its own, since it fills the table.
//!
//! Not under ThreadSanitizer: it does not see the order of std's `OnceLock`, since std is not instrumented.
#![allow(unsafe_code)] // free functions are unsafe to call
#![cfg(not(any(loom, manylane_sim, manylane_tsan)))]

use manylane_buf::{FreeIndex, MAX_FREE_FNS, RegisterError};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Barrier;

const THREADS: usize = 8;

/// The built-in kinds of memory.
const BUILT_IN: usize = 3;

unsafe fn keep(_: NonNull<u8>, _: usize, _: usize) {}

/// All threads register at the same moment, half of them one name and half another, until they have tried
/// more names than there is room for.
#[test]
fn of_many_threads_that_register_a_name_one_wins_and_the_others_learn_its_number() {
    let names: Vec<&'static str> =
        (0..MAX_FREE_FNS + 8).map(|n| &*Box::leak(format!("kind {n}").into())).collect();
    let start = Barrier::new(THREADS);
    // By thread, then by name.
    let answers: Vec<Vec<Result<FreeIndex, RegisterError>>> = std::thread::scope(|scope| {
        let register = |thread: usize| {
            let (names, start) = (&names, &start);
            scope.spawn(move || {
                let mut answers = vec![None; names.len()];
                for step in 0..names.len() {
                    start.wait();
                    // Half of the threads from the first name on, half from the middle.
                    let at = (step + thread % 2 * names.len() / 2) % names.len();
                    answers[at] = Some(FreeIndex::register(names[at], keep));
                }
                answers.into_iter().map(|answer| answer.expect("each name was tried")).collect()
            })
        };
        let threads: Vec<_> = (0..THREADS).map(register).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut numbers = BTreeSet::new();
    for (at, &name) in names.iter().enumerate() {
        let answers: Vec<_> = answers.iter().map(|by_name| by_name[at]).collect();
        let winners: Vec<FreeIndex> = answers.iter().filter_map(|answer| answer.ok()).collect();
        let refusal = match winners[..] {
            [index] => {
                assert_eq!(index.name(), name);
                assert!(numbers.insert(index.index()), "{name}: number {} is another's, too", index.index());
                RegisterError::Twice { name, index: index.index() }
            }
            [] => RegisterError::Full { name },
            _ => panic!("{name}: {} threads registered it: {winners:?}", winners.len()),
        };
        let refused = answers.iter().filter_map(|answer| answer.err());
        assert!(refused.clone().all(|error| error == refusal), "{name}: {answers:?}");
    }
    assert!(numbers.into_iter().eq(BUILT_IN..MAX_FREE_FNS), "each number was given away once");
}
