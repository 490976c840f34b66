//! Several lanes: wake-ups and tasks between them, sleep, isolation. Lanes wait for events, never for time.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_sched::{
    Class, Config, Here, Lane, LaneReport, LateWake, Poller, Remote, Round, TaskId, TaskKind, ThreadPoller,
    Time, Unpark, isolate,
};
use manylane_sync::{LaneId, LockClass, Mutex};
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

static KIND: TaskKind = TaskKind::new("test");

/// Class of this test's locks under which tasks are woken. Not std's locks: ThreadSanitizer sees the order of
/// these.
static OUTER: LockClass = LockClass::new("test", 0);

/// A thread with a lane that runs until it is stopped, and then returns its report: once the lane is dropped,
/// the lane of another test may continue its number and counters.
fn start() -> (Remote, JoinHandle<LaneReport>) {
    start_with(Config::new())
}

fn start_with(config: Config) -> (Remote, JoinHandle<LaneReport>) {
    let (tell, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut lane = Lane::new(config).expect("a new thread has no lane");
        tell.send(lane.remote()).expect("the test listens");
        lane.run(&mut ThreadPoller::new()).expect("this poller has no errors");
        let id = lane.id();
        manylane_sched::report().into_iter().find(|report| report.lane == id).expect("it ran")
    });
    (receiver.recv().expect("the lane starts"), thread)
}

fn stop(lanes: Vec<(Remote, JoinHandle<LaneReport>)>) -> Vec<LaneReport> {
    let end = |(remote, thread): (Remote, JoinHandle<LaneReport>)| {
        remote.stop().expect("it runs");
        thread.join().expect("no task panicked")
    };
    lanes.into_iter().map(end).collect()
}

#[test]
fn a_sleeping_lane_takes_a_task_and_its_answer_comes_back() {
    let (remote, thread) = start();
    for n in 0..100 {
        let (tell, receiver) = mpsc::channel();
        remote.spawn(&KIND, Class::Normal, async move { tell.send(n + 1).unwrap() }).unwrap();
        assert_eq!(receiver.recv(), Ok(n + 1));
    }
    stop(vec![(remote, thread)]);
}

#[test]
fn a_future_that_is_not_send_is_made_on_the_lane_that_runs_it() {
    let (remote, thread) = start();
    let (tell, receiver) = mpsc::channel();
    remote
        .spawn_with(&KIND, Class::Urgent, move |here: Here| {
            let local = Rc::new(Cell::new(1));
            async move {
                here.yield_now().await;
                local.set(local.get() + 1);
                tell.send((here.lane(), local.get())).unwrap();
            }
        })
        .unwrap();
    assert_eq!(receiver.recv(), Ok((remote.lane(), 2)));
    stop(vec![(remote, thread)]);
}

#[test]
fn a_lane_that_has_ended_refuses_tasks_and_drops_those_in_its_inbox() {
    let dropped = Arc::new(());
    let (tell, receiver) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let lane = Lane::new(Config::new()).unwrap();
        tell.send(lane.remote()).unwrap();
        gone.recv().unwrap();
        drop(lane);
        tell.send(Remote::new(manylane_sync::lane::current())).unwrap();
        gone.recv().unwrap(); // keeps the number, so that no other test gets it
    });
    let remote = receiver.recv().unwrap();
    let held = dropped.clone();
    remote.spawn(&KIND, Class::Normal, async move { drop(held) }).unwrap();
    assert_eq!(Arc::strong_count(&dropped), 2);
    go.send(()).unwrap();
    assert_eq!(receiver.recv(), Ok(remote));
    assert_eq!(Arc::strong_count(&dropped), 1, "dropped with the lane");
    let held = dropped.clone();
    let error = remote.spawn(&KIND, Class::Normal, async move { drop(held) }).unwrap_err();
    assert!(error.to_string().contains("has no scheduler"), "{error}");
    assert_eq!(
        error.to_string(),
        format!("the task was not started: {} has no scheduler, or its scheduler has ended", remote.lane())
    );
    assert_eq!(Arc::strong_count(&dropped), 1, "dropped when refused");
    go.send(()).unwrap();
    thread.join().unwrap();
}

/// A place where one side leaves a number and wakes the other.
struct Baton {
    turn: AtomicUsize,
    wakers: [Mutex<Option<Waker>>; 2],
}

impl Baton {
    fn new() -> Self {
        Self { turn: AtomicUsize::new(0), wakers: [const { Mutex::new(&OUTER, None) }; 2] }
    }

    async fn play(self: Arc<Self>, side: usize, rounds: usize, done: mpsc::Sender<usize>) {
        for _ in 0..rounds {
            poll_fn(|context| {
                *self.wakers[side].lock() = Some(context.waker().clone());
                if self.turn.load(Ordering::Acquire) % 2 == side { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.turn.fetch_add(1, Ordering::Release);
            if let Some(waker) = self.wakers[1 - side].lock().as_ref() {
                waker.wake_by_ref();
            }
        }
        done.send(side).unwrap();
    }
}

/// Number of passes of the baton by each side of each game. A single lost wake-up would end the game.
fn play(config: Config, rounds: usize) {
    let lanes = vec![start_with(config), start_with(config)];
    let (done, ended) = mpsc::channel();
    let games: Vec<Arc<Baton>> = (0..3).map(|_| Arc::new(Baton::new())).collect();
    for game in &games {
        for (side, (remote, _)) in lanes.iter().enumerate() {
            remote.spawn(&KIND, Class::Normal, game.clone().play(side, rounds, done.clone())).unwrap();
        }
    }
    assert_eq!(ended.iter().take(6).sum::<usize>(), 3);
    assert!(games.iter().all(|game| game.turn.load(Ordering::Relaxed) == 2 * rounds));
    stop(lanes);
}

/// Each side sleeps most of the time.
#[test]
fn two_lanes_that_wake_each_other_lose_no_wake_up() {
    play(Config::new(), 1000);
}

/// With the shorter times the lanes fall asleep now and then. Few rounds where they never do: on one
/// processor each takes a time slice.
#[test]
fn two_lanes_that_poll_busily_lose_no_wake_up() {
    play(Config::new().busy_poll(Duration::from_nanos(1)), 1000);
    play(Config::new().busy_poll(Duration::from_micros(20)), 1000);
    play(Config::new().busy_poll(Duration::MAX), 50);
}

#[test]
fn work_is_done_isolated_beside_a_lane_that_never_sleeps() {
    let (remote, thread) = start_with(Config::new().busy_poll(Duration::MAX));
    for n in 0..10 {
        assert_eq!(isolate(|| n), n);
    }
    stop(vec![(remote, thread)]);
}

fn tree(depth: u32, seed: u64, lanes: Arc<Vec<Remote>>, count: Arc<AtomicU64>, done: mpsc::Sender<()>) {
    let leaf = count.fetch_add(1, Ordering::Relaxed) + 1;
    let _ = leaf;
    if depth == 0 {
        return done.send(()).unwrap();
    }
    let mut random = seed;
    for child in 0..2 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lane = lanes[(random >> 33) as usize % lanes.len()];
        let class = Class::ALL[(random >> 40) as usize % 4];
        let (lanes, count, done) = (lanes.clone(), count.clone(), done.clone());
        lane.spawn_with(&KIND, class, move |here: Here| async move {
            here.yield_now().await;
            tree(depth - 1, random ^ child, lanes, count, done);
        })
        .unwrap();
    }
}

fn count(receiver: &Receiver<()>, number: usize) {
    assert_eq!(receiver.iter().take(number).count(), number);
}

/// Conservation: each task sent to random lanes in random classes ran exactly once.
#[test]
fn tasks_that_spawn_on_random_lanes_all_run_once() {
    const DEPTH: u32 = 12;
    let seed = 7;
    println!("seed {seed}");
    let lanes: Vec<_> = (0..4).map(|_| start()).collect();
    let remotes = Arc::new(lanes.iter().map(|(remote, _)| *remote).collect::<Vec<_>>());
    let counted = Arc::new(AtomicU64::new(0));
    let (done, receiver) = mpsc::channel();
    tree(DEPTH, seed, remotes.clone(), counted.clone(), done);
    count(&receiver, 1 << DEPTH);
    assert_eq!(counted.load(Ordering::Relaxed), (2 << DEPTH) - 1);
    for report in stop(lanes) {
        assert_eq!((report.live, report.run_queue()), (0, 0), "{report:?}");
        assert_eq!(report.spawned, report.completed);
    }
}

/// Wakers outlive their tasks, slots are reused, and other lanes go on waking: no live task is missed.
#[test]
fn late_wake_ups_from_other_lanes_never_replace_good_ones() {
    let lanes = vec![start(), start(), start()];
    let stop_noise = Arc::new(AtomicBool::new(false));
    let stale = Arc::new(Mutex::new(&OUTER, Vec::<Waker>::new()));
    let mut noise = Vec::new();
    for (remote, _) in &lanes[1..] {
        let (stale, stop) = (stale.clone(), stop_noise.clone());
        let (done, receiver) = mpsc::channel();
        remote
            .spawn_with(&KIND, Class::Normal, move |here| async move {
                while !stop.load(Ordering::Relaxed) {
                    let wakers = stale.lock().clone();
                    wakers.iter().for_each(Waker::wake_by_ref);
                    here.yield_now().await;
                }
                done.send(()).unwrap();
            })
            .unwrap();
        noise.push(receiver);
    }
    let target = lanes[0].0;
    for _ in 0..2000 {
        let (waker_out, waker_in) = mpsc::channel();
        let (done, results) = mpsc::channel();
        let woken = Arc::new(AtomicBool::new(false));
        let flag = woken.clone();
        target
            .spawn(
                &KIND,
                Class::Normal,
                poll_fn(move |context| {
                    if flag.load(Ordering::Acquire) {
                        done.send(()).unwrap();
                        return Poll::Ready(());
                    }
                    let _ = waker_out.send(context.waker().clone());
                    Poll::Pending
                }),
            )
            .unwrap();
        let waker = waker_in.recv().unwrap();
        woken.store(true, Ordering::Release);
        waker.wake_by_ref();
        count(&results, 1);
        let mut stale = stale.lock();
        if stale.len() == 8 {
            stale.remove(0);
        }
        stale.push(waker);
    }
    stop_noise.store(true, Ordering::Relaxed);
    noise.iter().for_each(|events| count(events, 1));
    stop(lanes);
}

#[test]
fn isolated_work_sees_no_other_lane_in_a_round_and_two_askers_take_turns() {
    let lanes: Vec<_> = (0..3).map(|_| start()).collect();
    let inside = Arc::new(AtomicUsize::new(0)); // number of running tasks
    let isolated = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(Barrier::new(3 + 1));
    for (n, (remote, _)) in lanes.iter().enumerate() {
        let (inside, isolated, done) = (inside.clone(), isolated.clone(), done.clone());
        remote
            .spawn_with(&KIND, Class::Normal, move |here| async move {
                for turn in 0..300 {
                    inside.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(isolated.load(Ordering::SeqCst), 0, "a task ran beside isolated work");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    if n < 2 && turn % 3 == 0 {
                        isolate(|| {
                            assert_eq!(isolated.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                            assert_eq!(inside.load(Ordering::SeqCst), 0, "a lane ran");
                            isolated.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                    here.yield_now().await;
                }
                std::thread::spawn(move || done.wait()); // not on the lane, which must go on making rounds
            })
            .unwrap();
    }
    done.wait();
    isolate(|| ()); // from a thread without a lane; the lanes sleep
    stop(lanes);
}

/// Five lanes of ten, and two threads beside them, request isolation again and again, two of them at the same
/// moment each time.
#[test]
fn ten_lanes_stand_still_for_seven_askers_that_ask_at_once_and_all_go_on() {
    const TURNS: usize = 200;
    let lanes: Vec<_> = (0..10).map(|_| start()).collect();
    let inside = Arc::new(AtomicUsize::new(0));
    let isolated = Arc::new(AtomicUsize::new(0));
    let requested = Arc::new(AtomicUsize::new(0));
    let ask = |inside: &AtomicUsize, isolated: &AtomicUsize, requested: &AtomicUsize| {
        isolate(|| {
            assert_eq!(isolated.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            assert_eq!(inside.load(Ordering::SeqCst), 0, "a lane ran");
            isolated.fetch_sub(1, Ordering::SeqCst);
        });
        requested.fetch_add(1, Ordering::Relaxed);
    };
    let (done, ended) = mpsc::channel();
    for (n, (remote, _)) in lanes.iter().enumerate() {
        let (inside, isolated, requested) = (inside.clone(), isolated.clone(), requested.clone());
        let done = done.clone();
        remote
            .spawn_with(&KIND, Class::ALL[n % 4], move |here| async move {
                for turn in 0..TURNS {
                    inside.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(isolated.load(Ordering::SeqCst), 0, "a task ran beside isolated work");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    if n % 2 == 0 && turn % 4 == n % 4 {
                        ask(&inside, &isolated, &requested);
                    }
                    here.yield_now().await;
                }
                done.send(()).unwrap();
            })
            .unwrap();
    }
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..TURNS / 4 {
                    both.wait();
                    ask(&inside, &isolated, &requested);
                }
            });
        }
    });
    count(&ended, 10);
    assert_eq!(requested.load(Ordering::Relaxed), 7 * TURNS / 4);
    stop(lanes);
}

#[test]
fn block_on_gives_the_output_and_says_when_the_lane_was_stopped_first() {
    std::thread::spawn(|| {
        let mut lane = Lane::new(Config::new()).unwrap();
        let here = lane.here();
        let mut poller = ThreadPoller::new();
        let output = lane.block_on(&mut poller, async move {
            here.yield_now().await;
            7
        });
        assert_eq!(output.unwrap(), 7);
        here.spawn(&KIND, Class::Normal, async move { here.stop() }).unwrap();
        let error = lane.block_on(&mut poller, std::future::pending::<()>()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
        assert_eq!(error.to_string(), "the lane was stopped before the future was done");
    })
    .join()
    .unwrap();
}

/// R-F9: the report of a late remote wake-up has lane and place of the last two wakers.
#[test]
fn the_last_two_lanes_that_woke_a_task_after_its_end_are_reported_when_the_round_ends() {
    static OF_REPORTS: LockClass = LockClass::new("reports of the test", LockClass::LEAF);
    static REPORTED: Mutex<Vec<(LaneId, LateWake)>> = Mutex::new(&OF_REPORTS, Vec::new());
    let from_elsewhere = |wake: fn(TaskId) -> u32, ended| {
        let caller = move || (manylane_sync::lane::current().index(), wake(ended));
        std::thread::spawn(caller).join().unwrap()
    };
    let thread = std::thread::spawn(move || {
        let report = |lane, wake: &LateWake| REPORTED.lock().push((lane, *wake));
        let mut lane = Lane::new(Config::new().on_late_wake(report)).unwrap();
        let ended = lane.here().spawn(&KIND, Class::Normal, async {}).unwrap();
        lane.round(Time::ZERO);
        // One after the other, before the lane reads its inbox.
        let first = |ended: TaskId| {
            ended.wake();
            line!() - 1
        };
        let second = |ended: TaskId| {
            ended.wake();
            line!() - 1
        };
        let [first, second] = [from_elsewhere(first, ended), from_elsewhere(second, ended)];
        lane.block_on(&mut ThreadPoller::new(), async {}).unwrap();
        assert!(lane.late_wakes().is_empty(), "reported once");
        (lane.id(), [second, first])
    });
    let (lane, callers) = thread.join().unwrap();
    let reported = REPORTED.lock();
    if !cfg!(debug_assertions) {
        assert!(reported.is_empty());
        return;
    }
    let [(on, wake)] = &reported[..] else { panic!("one report: {reported:?}") };
    assert_eq!(*on, lane);
    let found = wake.callers.map(|caller| {
        let caller = caller.unwrap();
        let location = caller.location.unwrap();
        assert!(location.file().ends_with("lanes.rs"), "{location}");
        (caller.lane, location.line())
    });
    assert_eq!(found, callers, "{wake}");
}

/// A poller that counts its wake-ups, and runs other code during its sleep.
struct Counted<F> {
    rings: Arc<Rings>,
    meanwhile: F,
}

struct Rings(AtomicUsize);

impl Unpark for Rings {
    fn unpark(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<F: FnMut(Option<Duration>)> Poller for Counted<F> {
    fn unparker(&self) -> Arc<dyn Unpark> {
        self.rings.clone()
    }
    fn poll(&mut self, _: Here, timeout: Option<Duration>) -> std::io::Result<()> {
        (self.meanwhile)(timeout);
        Ok(())
    }
}

/// Counts the calls that are writes to an `eventfd` in a driver: none for a lane that is awake, one for each
/// sleep, regardless of the number of pushes.
#[test]
fn a_sleeping_lane_is_woken_by_one_call_for_all_that_comes_and_a_lane_that_is_awake_by_none() {
    let thread = std::thread::spawn(|| {
        let mut lane = Lane::new(Config::new()).unwrap();
        let waiting = lane.here().spawn(&KIND, Class::Normal, std::future::pending()).unwrap();
        let remote = lane.remote();
        // From three threads, each a task and a wake-up; all pushes are complete when this returns.
        let push = move || {
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(move || {
                        remote.spawn(&KIND, Class::Normal, async {}).unwrap();
                        waiting.wake();
                    });
                }
            });
        };
        let rings = Arc::new(Rings(AtomicUsize::new(0)));
        let rung = || rings.0.load(Ordering::Relaxed);
        let meanwhile = |timeout: Option<Duration>| {
            // The lane sleeps if it waits at all: nothing is queued, and no timer is armed.
            if timeout.is_none() {
                push();
            }
        };
        let mut poller = Counted { rings: rings.clone(), meanwhile };
        lane.attach(&poller);
        lane.round(Time::ZERO);
        push();
        assert_eq!(rung(), 0, "it is awake");
        for sleeps in 1..=5 {
            let round = lane.round(Time::ZERO);
            assert!(!round.more && round.polled > 0, "{round:?}");
            lane.park(&mut poller, &round).unwrap();
            assert_eq!(rung(), sleeps, "one for each sleep");
            push();
            assert_eq!(rung(), sleeps, "it is awake again");
        }
        // The lane handles the pushes, and does not sleep before.
        let more = Round { more: true, ..lane.round(Time::ZERO) };
        lane.park(&mut poller, &more).unwrap();
        assert_eq!(rung(), 5);
    });
    thread.join().unwrap();
}
