//! Wake-ups, sleep, reused slots, remote tasks, ends, isolation. A lost wake-up shows as a deadlock.
#![cfg(loom)]
#![allow(unsafe_code)] // the witness of isolation
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

mod token;

use manylane_sched::{Class, Config, Here, Lane, Remote, TaskId, TaskKind, Time, isolate};
use manylane_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::{Arc, model, relax, thread};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use token::Token;

static KIND: TaskKind = TaskKind::new("model");

fn lane() -> Lane {
    Lane::new(Config::new().clock(token::clock)).unwrap()
}

/// A task that stops its lane when all of `flags` are set.
fn waits_for(lane: &Lane, flags: &Arc<[AtomicBool; 2]>, wanted: usize) -> TaskId {
    let flags = flags.clone();
    let here = lane.here();
    let task = poll_fn(move |_| {
        if flags[..wanted].iter().all(|flag| flag.load(Ordering::Relaxed)) {
            here.stop();
            return Poll::Ready(());
        }
        Poll::Pending
    });
    here.spawn(&KIND, Class::Normal, task).unwrap()
}

fn flags() -> Arc<[AtomicBool; 2]> {
    Arc::new([AtomicBool::new(false), AtomicBool::new(false)])
}

/// Sets a flag without any ordering, then wakes: the wake-up has to publish it.
fn set_and_wake(flags: &Arc<[AtomicBool; 2]>, flag: usize, id: TaskId) -> thread::JoinHandle<()> {
    let flags = flags.clone();
    thread::spawn(move || {
        flags[flag].store(true, Ordering::Relaxed);
        id.wake();
    })
}

#[test]
fn a_wake_up_from_afar_reaches_a_lane_that_falls_asleep() {
    model(|| {
        let mut lane = lane();
        let flags = flags();
        let id = waits_for(&lane, &flags, 1);
        let waker = set_and_wake(&flags, 0, id);
        lane.run(&mut Token::new()).unwrap();
        drop(lane);
        waker.join().unwrap();
    });
}

/// Checks are loads, and the exchange before the sleep is that of every lane: this model has it between all
/// checks of inbox and poller.
#[test]
fn a_wake_up_from_afar_reaches_a_lane_that_polls_busily_and_then_falls_asleep() {
    model(|| {
        let mut lane =
            Lane::new(Config::new().clock(token::ticking_clock).busy_poll(Duration::from_nanos(1))).unwrap();
        let flags = flags();
        let id = waits_for(&lane, &flags, 1);
        let waker = set_and_wake(&flags, 0, id);
        lane.run(&mut Token::new()).unwrap();
        drop(lane);
        waker.join().unwrap();
    });
}

#[test]
fn a_lane_that_polls_busily_for_ever_takes_tasks_and_steps_aside_for_isolated_work() {
    model(|| {
        let witness = Arc::new(Witness(UnsafeCell::new(0)));
        let mut lane = Lane::new(Config::new().clock(token::clock).busy_poll(Duration::MAX)).unwrap();
        let remote = lane.remote();
        let in_rounds = witness.clone();
        let task = async move { in_rounds.touch() };
        lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        let isolated = witness.clone();
        let asker = thread::spawn(move || {
            isolate(|| isolated.touch());
            remote.stop().unwrap();
        });
        lane.run(&mut Token::new()).unwrap();
        drop(lane);
        asker.join().unwrap();
        assert_eq!(witness.read(), 2);
    });
}

#[test]
fn of_two_wake_ups_at_the_same_time_the_task_sees_both() {
    model(|| {
        let mut lane = lane();
        let flags = flags();
        let id = waits_for(&lane, &flags, 2);
        let wakers = [0, 1].map(|flag| set_and_wake(&flags, flag, id));
        lane.run(&mut Token::new()).unwrap();
        drop(lane);
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
    });
}

#[test]
fn a_late_wake_up_never_hides_a_good_one_for_the_next_task_in_the_slot() {
    model(|| {
        let mut lane = lane();
        let flags = flags();
        let first = lane.here().spawn(&KIND, Class::Normal, async {}).unwrap();
        let late = thread::spawn(move || first.wake());
        lane.round(Time::ZERO);
        let second = waits_for(&lane, &flags, 1);
        let good = set_and_wake(&flags, 0, second);
        lane.run(&mut Token::new()).unwrap();
        drop(lane);
        late.join().unwrap();
        good.join().unwrap();
    });
}

#[test]
fn a_task_from_afar_reaches_a_lane_that_falls_asleep() {
    model(|| {
        let mut lane = lane();
        let remote = lane.remote();
        let sender = thread::spawn(move || {
            remote.spawn_with(&KIND, Class::Urgent, |here: Here| async move { here.stop() }).unwrap();
        });
        lane.run(&mut Token::new()).unwrap();
        drop(lane);
        sender.join().unwrap();
    });
}

/// Counts its drops.
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends a task that counts its end.
fn sends(remote: Remote, drops: &Arc<AtomicUsize>) -> thread::JoinHandle<()> {
    let held = Counts(drops.clone());
    thread::spawn(move || {
        let _ = remote.spawn(&KIND, Class::Normal, async move { drop(held) });
    })
}

#[test]
fn a_task_sent_to_a_lane_that_ends_is_dropped_once() {
    model(|| {
        let lane = lane();
        let drops = Arc::new(AtomicUsize::new(0));
        let sender = sends(lane.remote(), &drops);
        drop(lane);
        sender.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

/// The wake-up is stacked on the mark of the end, which stays.
#[test]
fn a_wake_up_beside_the_end_of_a_lane_lets_no_task_in() {
    model(|| {
        let lane = lane();
        let id = lane.here().spawn(&KIND, Class::Normal, std::future::pending()).unwrap();
        let drops = Arc::new(AtomicUsize::new(0));
        let waker = thread::spawn(move || id.wake());
        let sender = sends(lane.remote(), &drops);
        drop(lane);
        waker.join().unwrap();
        sender.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

/// Loom checks that no two accesses of its contents are concurrent.
struct Witness(UnsafeCell<usize>);

// SAFETY: isolation keeps accesses apart, which loom checks.
unsafe impl Sync for Witness {}
// SAFETY: as above.
unsafe impl Send for Witness {}

impl Witness {
    fn touch(&self) {
        // SAFETY: as above.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }
    fn read(&self) -> usize {
        // SAFETY: as above.
        self.0.with(|n| unsafe { *n })
    }
}

/// R-G3: a lane's actions in its rounds and another lane's isolated actions are never concurrent.
#[test]
fn isolated_work_is_never_beside_a_round() {
    model(|| {
        let witness = Arc::new(Witness(UnsafeCell::new(0)));
        let asker = {
            let witness = witness.clone();
            thread::spawn(move || isolate(|| witness.touch()))
        };
        let mut lane = lane();
        let in_rounds = witness.clone();
        let task = async move { in_rounds.touch() };
        lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        lane.round(Time::ZERO);
        drop(lane);
        asker.join().unwrap();
        assert_eq!(witness.read(), 2);
    });
}

#[test]
fn two_lanes_that_ask_at_the_same_time_take_turns() {
    model(|| {
        let witness = Arc::new(Witness(UnsafeCell::new(0)));
        let ask = |witness: Arc<Witness>| {
            let lane = lane();
            isolate(|| witness.touch());
            drop(lane);
        };
        let other = {
            let witness = witness.clone();
            thread::spawn(move || ask(witness))
        };
        ask(witness.clone());
        other.join().unwrap();
        assert_eq!(witness.read(), 2);
    });
}

#[test]
fn a_sleeping_lane_counts_as_stopped() {
    model(|| {
        let witness = Arc::new(Witness(UnsafeCell::new(0)));
        let mut lane = lane();
        let remote = lane.remote();
        let in_rounds = witness.clone();
        let task = async move { in_rounds.touch() };
        lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        let isolated = witness.clone();
        let asker = thread::spawn(move || {
            isolate(|| isolated.touch());
            remote.stop().unwrap();
        });
        lane.run(&mut Token::new()).unwrap();
        drop(lane);
        asker.join().unwrap();
        assert_eq!(witness.read(), 2);
    });
}

/// Rule 4: no requester waits for a lane that goes on making rounds.
#[test]
fn a_lane_that_never_sleeps_steps_aside_between_two_rounds() {
    model(|| {
        let done = Arc::new(AtomicBool::new(false));
        let mut lane = lane();
        let tell = done.clone();
        let asker = thread::spawn(move || isolate(|| tell.store(true, Ordering::Relaxed)));
        while !done.load(Ordering::Relaxed) {
            lane.round(Time::ZERO);
            relax();
        }
        drop(lane);
        asker.join().unwrap();
    });
}

/// The timer fires when the lane has no work, or the wake-up comes first: one of them or both wake the task,
/// which sees the other lane's word after that lane's wake-up, and never waits for ever.
#[test]
fn a_timer_and_a_wake_up_from_afar_for_one_task_are_both_seen() {
    static SEEN: [std::sync::atomic::AtomicUsize; 2] = [const { std::sync::atomic::AtomicUsize::new(0) }; 2];
    model(|| {
        let mut lane = lane();
        let flags = flags();
        let reported = flags.clone();
        let here = lane.here();
        let task = async move {
            let word =
                poll_fn(
                    |_| if reported[0].load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending },
                );
            let in_time = here.timeout(Duration::from_millis(5), word).await.is_ok();
            SEEN[usize::from(in_time)].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            assert!(in_time || here.now() >= Time::from_millis(5));
            here.stop();
        };
        let id = lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        lane.round(token::clock());
        let waker = set_and_wake(&flags, 0, id);
        lane.run(&mut Token::new()).unwrap();
        drop(lane);
        waker.join().unwrap();
    });
    assert!(
        SEEN.iter().all(|observed| observed.load(std::sync::atomic::Ordering::Relaxed) > 0),
        "both ends: {SEEN:?}"
    );
}
