//! The threads beside the lanes: the blocking pool, the sums of profiles.
#![cfg(loom)]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

mod token;

use manylane_sched::{BlockingPool, Class, Config, Lane, Sums, TaskKind};
use manylane_sync::atomic::{AtomicUsize, Ordering};
use manylane_sync::{Arc, model, thread};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize as Tally, Ordering::Relaxed};
use std::task::Poll;
use token::Token;

static KIND: TaskKind = TaskKind::new("model");

fn lane() -> Lane {
    Lane::new(Config::new().clock(token::clock)).unwrap()
}

/// Counts its drops.
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread looks for more jobs, becomes idle, or was requested to end: the jobs that it took are done.
#[test]
fn every_job_runs_once_whether_the_thread_is_busy_idle_or_stopped() {
    model(|| {
        let pool = BlockingPool::new(1, 4);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let ran = ran.clone();
            drop(pool.run(move || ran.fetch_add(1, Ordering::Relaxed)).unwrap());
        }
        drop(pool);
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}

/// The last owner that drops the pool ends it; a job that the other one submitted just before is not lost.
#[test]
fn a_job_that_is_submitted_while_another_lane_lets_go_of_the_pool_is_done() {
    model(|| {
        let pool = Arc::new(BlockingPool::new(1, 4));
        let ran = Arc::new(AtomicUsize::new(0));
        let submit = |pool: Arc<BlockingPool>, ran: Arc<AtomicUsize>| {
            drop(pool.run(move || ran.fetch_add(1, Ordering::Relaxed)).unwrap());
        };
        let (other_pool, other_ran) = (pool.clone(), ran.clone());
        let other = thread::spawn(move || submit(other_pool, other_ran));
        submit(pool, ran.clone());
        other.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_task_that_waits_for_a_job_is_woken_when_it_is_done() {
    static WAITED: [Tally; 2] = [const { Tally::new(0) }; 2];
    model(|| {
        let mut lane = lane();
        let here = lane.here();
        let pool = BlockingPool::new(1, 4);
        let job = pool.run(|| 7).unwrap();
        let task = async move {
            let mut job = pin!(job);
            let mut polls = 0;
            let value = poll_fn(|context| {
                polls += 1;
                job.as_mut().poll(context)
            });
            assert_eq!(value.await, 7);
            WAITED[usize::from(polls > 1)].fetch_add(1, Relaxed);
            here.stop();
        };
        here.spawn(&KIND, Class::Normal, task).unwrap();
        lane.run(&mut Token::new()).unwrap();
        drop(lane);
        drop(pool);
    });
    assert!(
        WAITED.iter().all(|observed| observed.load(Relaxed) > 0),
        "the job was first, and the task: {WAITED:?}"
    );
}

/// The task gives up while the job ends: the last owner drops the result, once, and the wake-up wakes no
/// task.
#[test]
fn a_result_that_nobody_waits_for_any_more_is_dropped_once() {
    static ORDER: [Tally; 2] = [const { Tally::new(0) }; 2];
    model(|| {
        let mut lane = lane();
        let here = lane.here();
        let pool = BlockingPool::new(1, 4);
        let drops = Arc::new(AtomicUsize::new(0));
        let held = Counts(drops.clone());
        let job = pool.run(move || held).unwrap();
        let task = async move {
            let mut job = Box::pin(job);
            let first = poll_fn(|context| Poll::Ready(job.as_mut().poll(context).is_ready())).await;
            ORDER[usize::from(first)].fetch_add(1, Relaxed);
            drop(job);
        };
        here.spawn(&KIND, Class::Normal, task).unwrap();
        lane.round(token::clock());
        drop(lane);
        drop(pool);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
    assert!(
        ORDER.iter().all(|observed| observed.load(Relaxed) > 0),
        "the job was first, and the task: {ORDER:?}"
    );
}

/// R-F8: a reader sees consistent sums of a kind at any point of a lane's additions.
#[test]
fn a_reading_of_a_profile_has_no_time_without_its_call() {
    static CALLS: [Tally; 3] = [const { Tally::new(0) }; 3];
    static PARTIAL: Tally = Tally::new(0);
    model(|| {
        let sums = Arc::new(Sums::new());
        sums.record(0, None); // creates the slot of this lane
        let writer = {
            let sums = sums.clone();
            thread::spawn(move || {
                sums.record(10, Some(100));
                sums.record(10, Some(100));
            })
        };
        let read = {
            let sums = sums.clone();
            thread::spawn(move || sums.read())
        };
        let mut read = read.join().unwrap();
        read.calls -= 1; // that of this lane
        CALLS[read.calls as usize].fetch_add(1, Relaxed);
        PARTIAL.fetch_add(usize::from(read.calls * 100 != read.latency), Relaxed);
        assert!(read.cpu <= read.calls * 10, "{read:?}");
        assert!(read.waits <= read.calls, "{read:?}");
        assert!(read.latency <= read.waits * 100, "{read:?}");
        writer.join().unwrap();
        let end = sums.read();
        assert_eq!((end.calls, end.cpu, end.waits, end.latency), (3, 20, 2, 200));
    });
    assert!(
        CALLS.iter().all(|observed| observed.load(Relaxed) > 0) && PARTIAL.load(Relaxed) > 0,
        "{CALLS:?}, {PARTIAL:?}"
    );
}
