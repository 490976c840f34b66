//! Busy polling: what such lanes check, and when they fall asleep. Several of the games in `lanes.rs` use it,
//! too.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_sched::{Class, Config, Here, Lane, Poller, TaskId, TaskKind, Time, Unpark};
use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

static KIND: TaskKind = TaskKind::new("test");

const STEP: Duration = Duration::from_micros(1);

thread_local! {
    static CLOCK: Cell<Time> = const { Cell::new(Time::ZERO) };
}

/// A microsecond passes with each check.
fn clock() -> Time {
    CLOCK.set(CLOCK.get() + STEP);
    CLOCK.get()
}

/// Arguments of a lane's polls, and how often other threads called to wake it.
#[derive(Default)]
struct Observed {
    checks: Cell<u32>,
    sleeps: Cell<u32>,
    rings: Arc<Rings>,
}

#[derive(Default)]
struct Rings(AtomicUsize);

impl Unpark for Rings {
    fn unpark(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A poller that counts, and runs other code during its checks.
struct Counts<F> {
    observed: Rc<Observed>,
    has_work: bool,
    meanwhile: F,
}

impl<F: FnMut(u32)> Poller for Counts<F> {
    fn unparker(&self) -> Arc<dyn Unpark> {
        self.observed.rings.clone()
    }

    fn poll(&mut self, _: Here, timeout: Option<Duration>) -> std::io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            self.observed.checks.set(self.observed.checks.get() + 1);
            (self.meanwhile)(self.observed.checks.get());
        } else {
            self.observed.sleeps.set(self.observed.sleeps.get() + 1);
        }
        Ok(())
    }

    fn has_work(&self) -> bool {
        self.has_work
    }
}

/// Runs a lane with this busy-polling time on a thread of its own.
fn on_lane(time: Duration, test: impl FnOnce(&mut Lane, TaskId, Rc<Observed>) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let mut lane = Lane::new(Config::new().clock(clock).busy_poll(time)).unwrap();
        let waiting = lane.here().spawn(&KIND, Class::Normal, pending()).unwrap();
        lane.round(clock());
        test(&mut lane, waiting, Rc::default());
    });
    thread.join().unwrap();
}

/// From another thread; the push is complete when this returns.
fn wake(id: TaskId) {
    std::thread::scope(|scope| {
        scope.spawn(move || id.wake());
    });
}

#[test]
fn a_lane_that_never_sleeps_is_woken_by_no_call() {
    on_lane(Duration::MAX, |lane, waiting, observed| {
        let meanwhile = |checks: u32| {
            if checks.is_multiple_of(3) {
                wake(waiting);
            }
        };
        let mut poller = Counts { observed: observed.clone(), has_work: false, meanwhile };
        lane.attach(&poller);
        for _ in 0..5 {
            let round = lane.round(clock());
            lane.park(&mut poller, &round).unwrap();
            let round = lane.round(clock());
            assert_eq!((round.arrived, round.polled), (1, 1), "it leaves its place for that");
        }
        assert_eq!(observed.sleeps.get(), 0);
        assert_eq!(observed.rings.0.load(Ordering::Relaxed), 0);
        assert_eq!(observed.checks.get(), 15, "and goes on looking where it was");
    });
}

#[test]
fn a_lane_looks_for_the_time_that_it_was_given_and_then_sleeps_as_any_other() {
    for steps in [1, 10] {
        on_lane(STEP * steps, move |lane, waiting, observed| {
            let mut poller = Counts { observed: observed.clone(), has_work: false, meanwhile: |_| {} };
            lane.attach(&poller);
            let round = lane.round(clock());
            lane.park(&mut poller, &round).unwrap();
            assert_eq!((observed.checks.get(), observed.sleeps.get()), (steps + 1, 1));
            // The next busy-polling time begins with the next round.
            wake(waiting);
            let round = lane.round(clock());
            assert_eq!(round.polled, 1);
            lane.park(&mut poller, &round).unwrap();
            assert_eq!(observed.sleeps.get(), 2);
        });
    }
}

#[test]
fn a_time_of_zero_polls_nothing_and_may_be_set_while_the_lane_runs() {
    on_lane(Duration::MAX, |lane, _, observed| {
        lane.here().set_busy_poll(Duration::ZERO);
        let mut poller = Counts { observed: observed.clone(), has_work: true, meanwhile: |_| {} };
        lane.attach(&poller);
        let round = lane.round(clock());
        lane.park(&mut poller, &round).unwrap();
        assert_eq!((observed.checks.get(), observed.sleeps.get()), (0, 1));
        lane.here().set_busy_poll(STEP);
        lane.park(&mut poller, &round).unwrap();
        assert_eq!((observed.checks.get(), observed.sleeps.get()), (2, 2));
    });
}

#[test]
fn a_lane_that_looks_around_leaves_for_timers_for_the_pollers_work_and_when_it_is_stopped() {
    on_lane(Duration::MAX, |lane, waiting, observed| {
        let here = lane.here();
        let meanwhile = move |checks: u32| match checks {
            3 => waiting.wake(),
            6 => here.stop(),
            _ => {}
        };
        let mut poller = Counts { observed: observed.clone(), has_work: false, meanwhile };
        lane.attach(&poller);
        let round = lane.round(clock());
        lane.park(&mut poller, &round).unwrap();
        assert_eq!(observed.checks.get(), 3);
        let round = lane.round(clock());
        assert_eq!(round.polled, 1);
        lane.park(&mut poller, &round).unwrap();
        assert_eq!(observed.checks.get(), 6);
    });
    on_lane(Duration::MAX, |lane, _, observed| {
        let fired = Rc::new(Cell::new(false));
        let (here, fire) = (lane.here(), fired.clone());
        let sleeper = async move {
            here.sleep(Duration::from_millis(3)).await;
            fire.set(true);
        };
        here.spawn(&KIND, Class::Normal, sleeper).unwrap();
        let mut poller = Counts { observed: observed.clone(), has_work: false, meanwhile: |_| {} };
        lane.attach(&poller);
        let began = clock();
        let mut parks = 0;
        loop {
            let round = lane.round(clock());
            if fired.get() {
                break;
            }
            lane.park(&mut poller, &round).unwrap();
            parks += 1;
        }
        assert!(clock().since(began) >= Duration::from_millis(3));
        assert_eq!(observed.sleeps.get(), 0);
        assert!(
            parks < 20 && observed.checks.get() > 1000,
            "{parks} rounds, {} looks",
            observed.checks.get()
        );
    });
}

/// Other lanes' wake-ups come so fast that the lane finds one at every check.
#[test]
fn neither_does_the_poller_hold_up_every_wake_up_nor_do_wake_ups_keep_the_lane_from_its_poller() {
    let checks = |has_work: bool| {
        let (tell, receiver) = mpsc::channel();
        on_lane(Duration::MAX, move |lane, waiting, observed| {
            let mut poller = Counts { observed: observed.clone(), has_work, meanwhile: |_| {} };
            lane.attach(&poller);
            for _ in 0..100 {
                let round = lane.round(clock());
                wake(waiting);
                lane.park(&mut poller, &round).unwrap();
            }
            tell.send(observed.checks.get()).unwrap();
        });
        receiver.recv().unwrap()
    };
    let seldom = checks(false); // a round takes a microsecond here
    assert!((5..=25).contains(&seldom), "{seldom}");
    assert_eq!(checks(true), 100, "what the poller has to do does not wait");
}
