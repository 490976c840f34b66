//! Counts how often a lane reads the time. A file of its own, since profiling, which reads it for each task,
//! is a switch of the whole process.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_sched::{
    Class, Config, Here, Lane, LaneReport, Poller, Profiling, TaskKind, ThreadPoller, Time, Unpark, report,
    set_profiling,
};
use std::cell::Cell;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

static KIND: TaskKind = TaskKind::new("test");

thread_local! {
    static READINGS: Cell<u64> = const { Cell::new(0) };
    static SLEPT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A clock that advances by a microsecond with each reading; the lane's sleeps come in addition.
fn clock() -> Time {
    let readings = READINGS.get() + 1;
    READINGS.set(readings);
    Time::from_nanos(readings * 1000) + SLEPT.get()
}

/// Time passes at once while the lane sleeps.
struct Passes;

impl Poller for Passes {
    fn unparker(&self) -> Arc<dyn Unpark> {
        ThreadPoller::new().unparker()
    }

    fn poll(&mut self, _: Here, timeout: Option<Duration>) -> std::io::Result<()> {
        SLEPT.set(SLEPT.get() + timeout.expect("there is a timer"));
        Ok(())
    }
}

/// Counts readings, rounds and sleeps so far.
fn counts(here: Here) -> (u64, u64, u64) {
    let own = |report: &LaneReport| report.lane == here.lane();
    let report = report().into_iter().find(own).expect("the lane is there");
    (READINGS.get(), report.rounds, report.sleeps)
}

async fn busy(here: Here, turns: u32) {
    for _ in 0..turns {
        here.yield_now().await;
    }
}

#[test]
fn time_is_read_once_a_round_and_once_more_before_a_sleep_that_a_timer_ends() {
    set_profiling(Profiling::Off);
    let mut lane = Lane::new(Config::new().clock(clock)).expect("a new thread has no lane");
    let here = lane.here();
    let outcome = lane.block_on(&mut Passes, async move {
        for _ in 0..100 {
            here.spawn(&KIND, Class::Normal, busy(here, 50)).expect("there is memory");
        }
        here.yield_now().await;
        let before = counts(here);
        busy(here, 200).await;
        let after = counts(here);
        // While this runs, its round has read the time and is not counted yet, before and after.
        assert_eq!(after.0 - before.0, after.1 - before.1, "readings and rounds");
        assert!(after.1 - before.1 >= 100, "so many rounds are something: {}", after.1 - before.1);

        let before = counts(here);
        here.timeout(Duration::from_micros(500), pending::<()>()).await.expect_err("it never is");
        let after = counts(here);
        let (readings, rounds, sleeps) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        assert!(sleeps > 0, "nothing else was to be done");
        assert!(readings <= 2 * rounds, "{readings} readings, {rounds} rounds, {sleeps} sleeps");
    });
    outcome.expect("a lane that is not stopped comes to the end");
}

#[test]
fn the_time_that_a_lane_sleeps_is_counted() {
    set_profiling(Profiling::Off);
    let mut lane = Lane::new(Config::new().clock(clock)).expect("a new thread has no lane");
    let here = lane.here();
    let outcome = lane.block_on(&mut Passes, async move {
        let own = |report: &LaneReport| report.lane == here.lane();
        let slept = || {
            report()
                .into_iter()
                .find(own)
                .map(|report| (report.slept, report.sleeps))
                .expect("the lane is there")
        };
        here.yield_now().await;
        let ((before, sleeps), passed) = (slept(), SLEPT.get());
        here.timeout(Duration::from_micros(500), pending::<()>()).await.expect_err("it never is");
        let ((after, more), passed) = (slept(), SLEPT.get() - passed);
        // The reading that ends a sleep takes a microsecond.
        assert_eq!(after - before, passed + Duration::from_micros(more - sleeps));
        busy(here, 100).await;
        assert_eq!(slept().0, after, "nothing is slept while there is work");
        assert!(manylane_sched::idle(Time::now()).0 >= 1);
    });
    outcome.expect("a lane that is not stopped comes to the end");
}
