//! The threads beside the lanes: the blocking pool, profiles.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(unsafe_code)] // a waker of its own
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_sched::{
    BlockingPool, Class, Config, Here, Lane, Profiling, Refused, TaskKind, ThreadPoller, Time, keep_to,
    parse_cpus, profile, set_profiling,
};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

/// Returns the output of `future`, on a lane of its own.
fn block_on<T: Send + 'static>(
    make: impl FnOnce(Here) -> std::pin::Pin<Box<dyn Future<Output = T>>> + Send + 'static,
) -> std::thread::Result<T> {
    std::thread::spawn(move || {
        let mut lane = Lane::new(Config::new()).unwrap();
        let future = make(lane.here());
        lane.block_on(&mut ThreadPoller::new(), future).unwrap()
    })
    .join()
}

#[test]
fn a_blocking_job_gives_its_result_to_the_task_that_waits() {
    let pool = BlockingPool::new(2, 8);
    let sum = block_on(move |_| {
        Box::pin(async move {
            let jobs: Vec<_> = (0..8).map(|n| pool.run(move || n * n).unwrap()).collect();
            let mut sum = 0;
            for job in jobs {
                sum += job.await;
            }
            assert!(pool.threads() <= 2);
            sum
        })
    });
    assert_eq!(sum.unwrap(), 140);
}

#[test]
fn a_blocking_job_may_use_processors_that_the_lane_which_asks_is_kept_from() {
    let allowed = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
        parse_cpus(line.split_whitespace().nth(1).unwrap()).unwrap()
    };
    let all = allowed();
    let kept = all[0];
    let (lane, job) = std::thread::spawn(move || {
        keep_to(&[kept]).unwrap();
        let mut lane = Lane::new(Config::new()).unwrap();
        // This creates the pool and its thread, as in the program.
        let pool = BlockingPool::new(1, 8);
        let job = lane.block_on(&mut ThreadPoller::new(), pool.run(allowed).unwrap()).unwrap();
        (allowed(), job)
    })
    .join()
    .unwrap();
    assert_eq!(lane, [kept]);
    assert_eq!(job, all);
}

#[test]
fn a_panic_in_a_blocking_job_reaches_the_task_and_not_the_pool() {
    let pool = BlockingPool::new(1, 8);
    let failed = pool.run(|| panic!("on purpose")).unwrap();
    let good = pool.run(|| 5).unwrap();
    assert!(block_on(move |_| Box::pin(failed)).is_err());
    assert_eq!(block_on(move |_| Box::pin(good)).unwrap(), 5);
}

#[test]
fn a_result_whose_destructor_panics_in_vain_does_not_cost_the_pool_a_thread() {
    struct Explodes;
    impl Drop for Explodes {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let pool = BlockingPool::new(1, 8);
    let (in_vain, hold) = mpsc::channel::<()>();
    drop(
        pool.run(move || {
            assert!(hold.recv().is_err()); // no task waits: the result is dropped on the pool's thread
            Explodes
        })
        .unwrap(),
    );
    drop(in_vain);
    let good = pool.run(|| 5).unwrap();
    assert_eq!(block_on(move |_| Box::pin(good)).unwrap(), 5);
}

/// A thread that wakes by a token of an earlier job and takes a job is not idle: the next job goes to the
/// other one.
#[test]
fn a_job_is_not_given_to_a_thread_that_is_busy_while_another_is_idle() {
    let pool = BlockingPool::new(2, 8);
    let (gates, hold): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
    let (tell, threads) = mpsc::channel();
    for gate in hold {
        let tell = tell.clone();
        drop(pool.run(move || {
            tell.send(std::thread::current()).unwrap();
            gate.recv().is_ok()
        }));
    }
    let threads: Vec<_> = threads.iter().take(2).collect();
    drop(gates); // both become idle
    for turn in 0..500 {
        threads[turn % 2].unpark(); // a token, at any time
        let (release, released) = mpsc::channel::<()>();
        let long = pool.run(move || released.recv().is_ok()).unwrap();
        threads[turn % 2].unpark();
        // While one is held, the other one serves.
        let short = pool.run(move || turn).unwrap();
        assert_eq!(block_on(move |_| Box::pin(short)).unwrap(), turn);
        release.send(()).unwrap();
        assert!(block_on(move |_| Box::pin(long)).unwrap());
    }
}

/// The lock of a result is not held while a waker is cloned: this remote waker takes a lock of a lower rank.
#[test]
fn a_waker_may_do_anything_while_a_job_is_waited_for() {
    struct Nosy(BlockingPool);
    impl Nosy {
        const TABLE: RawWakerVTable = RawWakerVTable::new(Self::clone, |_| {}, |_| {}, |_| {});
        fn clone(data: *const ()) -> RawWaker {
            // SAFETY: `data` points to the value below, which outlives its wakers.
            let nosy = unsafe { &*data.cast::<Self>() };
            assert!(nosy.0.threads() <= 1);
            RawWaker::new(data, &Self::TABLE)
        }
    }
    let nosy = Nosy(BlockingPool::new(1, 8));
    let (tell, receiver) = mpsc::channel::<()>();
    let mut job = std::pin::pin!(nosy.0.run(move || receiver.recv().is_err()).unwrap());
    // SAFETY: the table's functions use a shared reference to a value that lives until the end of the test.
    let waker = unsafe { Waker::from_raw(RawWaker::new((&raw const nosy).cast(), &Nosy::TABLE)) };
    let mut context = Context::from_waker(&waker);
    assert!(job.as_mut().poll(&mut context).is_pending());
    drop(tell);
    while job.as_mut().poll(&mut context).is_pending() {
        std::thread::yield_now();
    }
}

#[test]
fn a_full_blocking_pool_refuses_in_a_sentence_and_drops_the_job() {
    let pool = BlockingPool::new(1, 2);
    let started = Arc::new(Barrier::new(2));
    let (go, gone) = mpsc::channel::<()>();
    let begun = started.clone();
    let first = pool.run(move || {
        begun.wait();
        gone.recv().unwrap();
    });
    started.wait(); // it runs: the queue is empty again
    let waiting: Vec<_> = (0..2).map(|n| pool.run(move || n).unwrap()).collect();
    let witness = Arc::new(());
    let held = witness.clone();
    let refused = pool.run(move || drop(held)).unwrap_err();
    assert!(matches!(refused, Refused::Full { queue: 2 }));
    assert_eq!(
        refused.to_string(),
        "the blocking pool is full: 2 jobs wait; try again later, or raise its limits"
    );
    assert_eq!(Arc::strong_count(&witness), 1);
    go.send(()).unwrap();
    drop(first);
    let outputs = waiting.into_iter().map(|job| block_on(move |_| Box::pin(job)).unwrap());
    assert_eq!(outputs.sum::<i32>(), 1);
}

#[test]
fn the_end_of_a_blocking_pool_does_what_is_queued() {
    let ran = Arc::new(AtomicUsize::new(0));
    let pool = BlockingPool::new(3, 100);
    for _ in 0..100 {
        let ran = ran.clone();
        drop(pool.run(move || ran.fetch_add(1, Ordering::Relaxed)).unwrap());
    }
    drop(pool);
    assert_eq!(ran.load(Ordering::Relaxed), 100);
}

/// R-F8, in virtual time. One test, since the switch belongs to the process.
#[test]
fn a_profile_tells_calls_cpu_and_latency_by_kind_when_it_is_on_or_the_loop_is_late() {
    static CLOCK: AtomicU64 = AtomicU64::new(1_000_000);
    static MEASURED: TaskKind = TaskKind::new("measured");
    static STALE: TaskKind = TaskKind::new("stale");
    static LATE: TaskKind = TaskKind::new("late");
    fn clock() -> Time {
        Time::from_nanos(CLOCK.load(Ordering::Relaxed))
    }
    fn pass(time: Duration) {
        CLOCK.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
    fn calls(kind: &TaskKind) -> u64 {
        profile().into_iter().find(|report| report.kind == kind.name()).map_or(0, |report| report.calls)
    }
    async fn works(times: u32, each: Duration) {
        for _ in 0..times {
            pass(each);
            Here::current().unwrap().yield_now().await;
        }
    }
    std::thread::spawn(|| {
        let mut lane = Lane::new(Config::new().clock(clock).runqueue_depth(1)).unwrap();
        let here = lane.here();
        let settle = |lane: &mut Lane| while lane.round(clock()).more {};

        set_profiling(Profiling::Off);
        here.spawn(&MEASURED, Class::Normal, works(5, Duration::from_micros(10))).unwrap();
        settle(&mut lane);
        assert_eq!(calls(&MEASURED), 0);

        set_profiling(Profiling::On);
        lane.round(clock());
        for _ in 0..2 {
            here.spawn(&MEASURED, Class::Normal, works(4, Duration::from_micros(10))).unwrap();
        }
        settle(&mut lane);
        let report = profile().into_iter().find(|report| report.kind == "measured").unwrap();
        assert_eq!((report.calls, report.waits), (10, 10));
        assert_eq!(report.cpu_total, Duration::from_micros(80));
        assert_eq!(report.cpu_average(), Duration::from_micros(8));
        // Each waits while the other runs, except for the first to start and the last to end.
        assert_eq!(report.latency_total, Duration::from_micros(80));
        assert_eq!(report.latency_average(), Duration::from_micros(8));
        assert_eq!((report.cpu.max(), report.latency.max()), (Some(10_000), Some(10_000)));

        // Woken while profiling is on, polled and woken again while it is off: the waiting time of the
        // wake-up is unknown when it is on again.
        set_profiling(Profiling::On);
        lane.round(clock());
        here.spawn(&STALE, Class::Normal, works(2, Duration::ZERO)).unwrap();
        set_profiling(Profiling::Off);
        lane.round(clock());
        pass(Duration::from_secs(1));
        set_profiling(Profiling::On);
        settle(&mut lane);
        let report = profile().into_iter().find(|report| report.kind == "stale").unwrap();
        assert_eq!((report.waits, report.latency_total), (report.calls - 1, Duration::ZERO));

        set_profiling(Profiling::Auto);
        lane.round(clock());
        lane.round(clock());
        here.spawn(&LATE, Class::Normal, works(3, Duration::from_micros(100))).unwrap();
        settle(&mut lane);
        assert_eq!(calls(&LATE), 0, "the loop was not late");
        here.spawn(&LATE, Class::Normal, works(3, Duration::from_millis(5))).unwrap();
        settle(&mut lane);
        assert_eq!(calls(&LATE), 3, "from the second poll on: the first made the loop late");
    })
    .join()
    .unwrap();
}
