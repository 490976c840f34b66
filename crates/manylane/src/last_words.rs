//! Times that streams have after their end was forced, to send last bytes to clients and logs.

use manylane_lanes::Local;
use manylane_sched::Here;
use std::time::Duration;

/// Total time.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Number of steps of that time.
const STEPS: u32 = 10;

/// Time for all lanes together: a lane that hangs delays the end no longer than this.
pub(crate) const SLOWEST: Duration = Duration::from_secs(10);

/// Waits until the streams of the lane have sent their last bytes. The wait consists of steps: a lane that
/// stands still, because something else uses its processor, loses one step, and its streams run between the
/// remaining ones.
pub(crate) async fn last_words(here: Here) {
    for _ in 0..STEPS {
        here.sleep(LAST_WORDS / STEPS).await;
    }
}

/// Waits until the calling lane's log lines have left the process, but at most for the same time: their
/// reader may have stopped.
pub(crate) async fn lines_sent(here: Here) {
    const CHECKS: u32 = 100;
    for _ in 0..CHECKS {
        if Local::unsent_lines() == 0 {
            return;
        }
        here.sleep(LAST_WORDS / CHECKS).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_sched::{Class, Config, Lane, TaskKind, Time};
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn streams_of_a_lane_that_stood_still_have_their_turns() {
        static STREAM: TaskKind = TaskKind::new("stream in the test");
        static WAITS: TaskKind = TaskKind::new("last words in the test");
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        let here = lane.here();
        let (turns, over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
        lane.round(Time::ZERO);
        let own = turns.clone();
        let stream = async move {
            loop {
                own.set(own.get() + 1);
                here.yield_now().await;
            }
        };
        let (counted, turns_at_end) = (turns.clone(), over.clone());
        let waits = async move {
            last_words(here).await;
            turns_at_end.set(Some(counted.get()));
        };
        here.spawn(&WAITS, Class::Urgent, waits).expect("memory");
        lane.round(Time::ZERO);
        here.spawn(&STREAM, Class::Normal, stream).expect("memory");
        // The lane stands still for the whole time, and then each round is late for its step.
        let mut rounds = 0;
        while over.get().is_none() {
            rounds += 1;
            lane.round(Time::ZERO + LAST_WORDS * rounds);
        }
        assert!(over.get() >= Some(STEPS - 1), "{over:?} turns");
    }
}
