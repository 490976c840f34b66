//! Reports tasks that do not return, and ends the process in the end.

use manylane_sched::{Limits, Watchdog};
use std::io;
use std::time::Duration;

/// Reports every task that uses a processor for longer than `warn` (`warn-blocked-traffic-after`), or waits
/// for ten times as long. The library's own limit ends the process.
///
/// # Errors
/// The system has no thread, or `warn` is below a millisecond.
pub(crate) fn start(warn: Duration, say: impl FnMut(&str) + Send + 'static) -> io::Result<Watchdog> {
    let kill = Limits::default().kill.max(warn);
    Watchdog::start(Limits { warn, kill }, say)
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_sched::{Class, Config, Lane, TaskKind, Time};
    use std::sync::mpsc;

    /// The task ends when it was reported, and not before.
    #[test]
    fn a_task_that_blocks_its_lane_is_reported_with_lane_kind_and_time() {
        static BLOCKS: TaskKind = TaskKind::new("blocks in the test");
        let (tell, receiver) = mpsc::channel();
        let say = move |stuck: &str| {
            let _ = tell.send(stuck.to_string());
        };
        let watchdog = start(Limits::SHORTEST, say).expect("there is a thread");
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        let waits = async move {
            let said = receiver.recv().expect("the watchdog lives");
            assert!(said.contains("a task of the kind `blocks in the test` has been running for"), "{said}");
        };
        lane.here().spawn(&BLOCKS, Class::Normal, waits).expect("memory");
        lane.round(Time::ZERO);
        drop(watchdog);
    }

    #[test]
    fn a_limit_above_that_of_the_end_moves_the_end() {
        drop(start(Duration::from_secs(3600), |_| {}).expect("there is a thread"));
    }
}
