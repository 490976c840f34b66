//! Random frames, and random operations on the streams of both ends of a connection, beside a model.
#![cfg(not(any(loom, manylane_sim)))]

mod play;

use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

fn cases(usual: u32, long: u32) -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("MANYLANE_LONG").is_some() { long } else { usual })
}

static BYTES: AtomicUsize = AtomicUsize::new(0);
static COMPLETE: AtomicUsize = AtomicUsize::new(0);
static SPOILED: AtomicUsize = AtomicUsize::new(0);
static WAITS: AtomicUsize = AtomicUsize::new(0);

proptest! {
    #![proptest_config(cases(60, 5_000))]

    fn random(bytes in proptest::collection::vec(any::<u8>(), 0..1_500)) {
        let reached = play::run(&bytes);
        BYTES.fetch_add(reached.bytes, Ordering::Relaxed);
        COMPLETE.fetch_add(reached.complete as usize, Ordering::Relaxed);
        SPOILED.fetch_add(reached.resets as usize, Ordering::Relaxed);
        WAITS.fetch_add(reached.waits as usize, Ordering::Relaxed);
    }

    fn frames(bytes in proptest::collection::vec(any::<u8>(), 0..600), step in 1usize..100) {
        let (streams, bytes) = play::frames(&bytes, step);
        STREAMS.fetch_add(streams, Ordering::Relaxed);
        DATA.fetch_add(bytes, Ordering::Relaxed);
    }
}

static STREAMS: AtomicUsize = AtomicUsize::new(0);
static DATA: AtomicUsize = AtomicUsize::new(0);

#[test]
fn streams_receive_what_random_frames_say() {
    frames();
    let reached = [&STREAMS, &DATA].map(|count| count.load(Ordering::Relaxed));
    println!("streams, bytes: {reached:?}");
    assert!(reached[0] > 50 && reached[1] > 50, "{reached:?}");
}

#[test]
fn streams_carry_what_they_are_given_and_touch_no_other() {
    random();
    let reached = [&BYTES, &COMPLETE, &SPOILED, &WAITS].map(|count| count.load(Ordering::Relaxed));
    println!("bytes, directions that were complete, resets, waits: {reached:?}");
    let least = [1_000_000, 100, 100, 1_000];
    assert!(reached.iter().zip(least).all(|(reached, least)| *reached >= least), "{reached:?}");
}

/// A case that random runs found: an end without data, sent after new settings made the window negative.
#[test]
fn runs_that_failed_once_pass() {
    play::run(&[
        35, 175, 2, 0, 0, 64, 0, 0, 60, 0, 28, 4, 208, 0, 4, 0, 1, 124, 0, 1, 84, 0, 0, 16, 0, 26, 59, 0, 0,
        4, 0, 0, 26, 0, 0, 50, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 50, 0, 0, 74, 0, 0, 12, 0, 0, 2, 0, 0, 2, 0,
        0, 2, 0, 0, 2, 0, 0, 26, 0, 0, 38, 0, 0, 59, 0, 0, 42, 9,
    ]);
    play::run(&[
        0, 15, 12, 0, 1, 2, 72, 0, 40, 0, 1, 196, 0, 41, 90, 0, 0, 6, 0, 0, 114, 0, 0, 6, 0, 0, 60, 0, 0, 28,
        15, 0, 40, 103, 0, 16, 15, 0, 155, 8, 0, 222, 126, 1, 0, 0, 0, 0, 0, 0, 58, 0, 0, 58, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0,
        0, 0, 0, 36, 0, 0, 124, 0, 0, 0, 0, 0, 237, 7, 0, 4, 0, 0, 52, 0, 0, 4, 0, 0, 124, 0, 0, 0, 0, 0,
        207, 0, 0, 0, 0, 0, 0, 0, 0, 176, 38, 52, 0, 0, 0, 10, 0, 0, 0, 0, 0, 38, 187, 2, 60, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 22,
    ]);
}
