//! Timers in virtual time.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_sched::{Class, Config, Elapsed, Here, Lane, Sleep, TIMERS_PER_ROUND, TaskKind, Time};
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

static KIND: TaskKind = TaskKind::new("test");

fn on_lane(test: impl FnOnce(&mut Lane) + Send + 'static) {
    let thread =
        std::thread::spawn(move || test(&mut Lane::new(Config::new()).expect("a new thread has no lane")));
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ms(n: u64) -> Time {
    Time::from_millis(n)
}

/// Makes rounds at `now` until no work is left.
fn settle(lane: &mut Lane, now: u64) {
    while lane.round(ms(now)).more {}
}

#[test]
fn a_sleep_ends_at_its_time_and_the_round_tells_when_that_is() {
    on_lane(|lane| {
        let done = Rc::new(Cell::new(None));
        let slot = done.clone();
        settle(lane, 1000);
        let task = async move {
            let here = Here::current().unwrap();
            here.sleep(Duration::from_millis(50)).await;
            slot.set(Some(here.now()));
        };
        lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        assert_eq!(lane.round(ms(1000)).next_timer, Some(ms(1050)));
        settle(lane, 1049);
        assert_eq!(done.get(), None);
        settle(lane, 1050);
        assert_eq!(done.get(), Some(ms(1050)));
        assert_eq!(lane.round(ms(1051)).next_timer, None);
    });
}

#[test]
fn a_deadline_that_moved_later_fires_once_and_one_that_moved_earlier_in_time() {
    on_lane(|lane| {
        let polls = Rc::new(Cell::new(0));
        let fired = Rc::new(Cell::new(0));
        let (count, at) = (polls.clone(), fired.clone());
        let moves: Rc<RefCell<Option<u64>>> = Rc::default();
        let wanted = moves.clone();
        let here = lane.here();
        let mut sleep = here.sleep_until(ms(100));
        let id = here
            .spawn(
                &KIND,
                Class::Normal,
                poll_fn(move |context| {
                    count.set(count.get() + 1);
                    if let Some(to) = wanted.borrow_mut().take() {
                        sleep.reset(ms(to));
                    }
                    let outcome = Pin::new(&mut sleep).poll(context);
                    if outcome.is_ready() {
                        at.set(here.now().as_nanos() / 1_000_000);
                        sleep.reset(ms(100_000));
                        return Pin::new(&mut sleep).poll(context);
                    }
                    outcome
                }),
            )
            .unwrap();
        settle(lane, 1);
        *moves.borrow_mut() = Some(5000);
        id.wake();
        settle(lane, 50);
        settle(lane, 4999);
        assert_eq!((polls.get(), fired.get()), (2, 0), "moving later wakes nobody");
        settle(lane, 5000);
        assert_eq!(fired.get(), 5000);
        *moves.borrow_mut() = Some(6000);
        id.wake();
        settle(lane, 5001);
        settle(lane, 6000);
        assert_eq!(fired.get(), 6000, "moved earlier than 100000");
    });
}

#[test]
fn a_timeout_gives_the_output_or_drops_the_future() {
    on_lane(|lane| {
        let outcomes = Rc::new(RefCell::new(Vec::new()));
        let places = outcomes.clone();
        let task = async move {
            let here = Here::current().unwrap();
            let quick = here.timeout(Duration::from_millis(10), async { 1 }).await;
            places.borrow_mut().push(quick);
            let slow = here.timeout(Duration::from_millis(10), pending::<i32>()).await;
            places.borrow_mut().push(slow);
        };
        lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        settle(lane, 0);
        settle(lane, 10);
        assert_eq!(*outcomes.borrow(), [Ok(1), Err(Elapsed)]);
        assert_eq!(Elapsed.to_string(), "the time ran out before the operation was done");
    });
}

#[test]
fn a_dropped_sleep_is_off_the_wheel() {
    on_lane(|lane| {
        let here = lane.here();
        let id = here.spawn(&KIND, Class::Normal, here.sleep(Duration::from_secs(3600))).unwrap();
        assert!(lane.round(ms(0)).next_timer.is_some());
        here.abort(id);
        assert_eq!(lane.round(ms(1)).next_timer, None);
    });
}

#[test]
fn a_round_fires_a_bounded_number_of_timers_and_asks_for_the_next_at_once() {
    on_lane(|lane| {
        let here = lane.here();
        let ended = Rc::new(Cell::new(0));
        for _ in 0..3 * TIMERS_PER_ROUND {
            let ended = ended.clone();
            let sleeper = async move {
                here.sleep_until(ms(7)).await;
                ended.set(ended.get() + 1);
            };
            here.spawn(&KIND, Class::Normal, sleeper).unwrap();
        }
        settle(lane, 0);
        let round = lane.round(ms(7));
        assert_eq!(round.next_timer, Some(Time::ZERO), "more timers are due");
        let report = manylane_sched::report().into_iter().find(|r| r.lane == lane.id()).unwrap();
        assert_eq!(report.run_queue() + u64::from(round.polled), u64::from(TIMERS_PER_ROUND));
        settle(lane, 7);
        assert_eq!(ended.get(), 3 * TIMERS_PER_ROUND);
    });
}

/// Counts work, not time: a round does a bounded amount for timers, regardless of their number, and with ten
/// rounds a millisecond no timer is late. 10,000,000 timers with `--release`.
#[test]
fn ten_million_timers_are_armed_and_fire_in_time_without_a_round_that_stalls() {
    const TIMERS: u64 = if cfg!(debug_assertions) { 200_000 } else { 10_000_000 };
    const AT_A_TIME: u64 = 1000;
    const MINUTE: u64 = 60_000;
    on_lane(|lane| {
        // Counted since the lane number's first use: an earlier test may have had it.
        let total = |lane: &Lane| {
            let report = manylane_sched::report().into_iter().find(|r| r.lane == lane.id()).unwrap();
            (report.timers, report.timers_moved)
        };
        let base = total(lane);
        let work = |lane: &Lane| (total(lane).0 - base.0, total(lane).1 - base.1);
        let here = lane.here();
        let armed: Rc<RefCell<Vec<Sleep>>> = Rc::default();
        let place = armed.clone();
        let arms = async move {
            let mut context = Context::from_waker(Waker::noop());
            for n in 0..TIMERS {
                let mut sleep = here.sleep_until(ms(1 + n * 7919 % TIMERS * MINUTE / TIMERS));
                assert!(Pin::new(&mut sleep).poll(&mut context).is_pending());
                place.borrow_mut().push(sleep);
                if n % AT_A_TIME == 0 {
                    here.yield_now().await;
                }
            }
        };
        let id = here.spawn(&KIND, Class::Normal, arms).unwrap();
        lane.round(ms(0));
        while armed.borrow().len() < TIMERS as usize {
            lane.round(ms(0));
        }
        here.abort(id);
        assert_eq!(work(lane), (0, 0), "arming is no work for rounds");
        let (mut before, mut most) = ((0, 0), 0);
        for now in 1..=MINUTE {
            let mut rounds = 0;
            loop {
                let next = lane.round(ms(now)).next_timer;
                rounds += 1;
                let after = work(lane);
                let did = after.0 + after.1 - before.0 - before.1;
                assert!(did <= u64::from(TIMERS_PER_ROUND), "{did} in a round at {now}");
                (before, most) = (after, most.max(did));
                if rounds == 10 || next.is_none_or(|next| next > ms(now)) {
                    break;
                }
            }
            assert_eq!(before.0, (now * TIMERS).div_ceil(MINUTE), "at {now}");
        }
        println!("{TIMERS} timers, {} moves, at most {most} of both in a round", before.1);
        assert_eq!(before.0, TIMERS);
    });
}
