//! Streams that this end has reset are remembered up to a bound: frames for them may be on their way.
#![cfg(not(any(loom, manylane_sim)))]

mod support;

use manylane_h2::{CHEAP_PER_SECOND, Config, Event, MAX_REMEMBERED, Problem, Reason};
use std::time::Duration;
use support::*;

/// Frames for as many streams as the bound says are ignored. Those for one that was reset before are an
/// error, as for any stream that has ended.
#[test]
fn as_many_streams_that_we_reset_are_remembered_as_the_bound_says() {
    for more in [0, 1] {
        let mut end = End::server(Config::default());
        for n in 0..MAX_REMEMBERED as u32 + more {
            let Event::Request { stream, .. } = end.one(&post(2 * n + 1)) else { panic!("no request") };
            end.connection.reset(stream, Reason::CANCEL).expect("memory");
            end.written();
        }
        let late = |n: u32| frame(DATA, 0, 2 * n + 1, b"x");
        for n in more..MAX_REMEMBERED as u32 + more {
            end.now += Duration::from_secs(1) / CHEAP_PER_SECOND; // ignored frames are cheap ones
            assert!(end.feed(&late(n)).expect("it is remembered").is_empty(), "{n}");
        }
        let first = end.feed(&late(0)).map_err(|error| error.problem);
        match more {
            0 => assert!(first.expect("it is remembered").is_empty()),
            _ => assert_eq!(first.expect_err("it is forgotten"), Problem::ClosedStream),
        }
    }
}
