//! Tasks: started and completed, waking themselves, passed to another lane.
//!
//! All contestants run the same futures, which do almost nothing. They access counters by plain references,
//! since reference counts, and between threads their cache line, would be a good part of the figure. A
//! started task ends by decrementing a number that its starter reads, since not all runtimes have join
//! handles. [`Runtime`] has each runtime's way to start a task.

use super::{Contest, Contestant, Effort, Row, Target, measure};
use manylane_sched::{Class, Config, Here, Lane, Remote, TaskKind, ThreadPoller, Time};
use manylane_sync::CachePadded;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const TOKIO: &str = "tokio, one worker";

static KIND: TaskKind = TaskKind::new("peers");
/// Tasks that are alive at a time.
const BATCH: u64 = 256;
/// A sample of self-wakes is longer by this factor, so that starting the tasks is a hundredth of it.
const LONGER: u64 = 4;

/// A contestant for each runtime that works here.
macro_rules! contestants {
    ($what:ident) => {
        [$what::<Manylane>(), $what::<Monoio>(), $what::<Glommio>(), $what::<Compio>(), $what::<TokioLocal>()]
            .into_iter()
            .flatten()
            .collect()
    };
}

pub(super) const CONTESTS: &[Contest] = &[
    Contest {
        operation: "task: spawn + complete, batches of 256",
        target: Some(Target::new(40.0, Monoio::NAME, 72.0)),
        contestants: || contestants!(spawn_and_complete),
    },
    Contest {
        operation: "task: self-wake + poll, 256 tasks",
        target: Some(Target::new(15.0, Compio::NAME, 33.0)),
        contestants: || contestants!(self_wake),
    },
];

/// A runtime with one thread.
trait Runtime: Sized + 'static {
    const NAME: &'static str;
    const OURS: bool = false;

    /// `None` if the system lacks what it needs.
    fn new() -> Option<Self>;

    /// Runs until `main` completes.
    fn block_on(&mut self, main: impl Future<Output = ()> + 'static);

    /// Starts a task from within another.
    fn spawn(task: impl Future<Output = ()> + 'static);
}

struct Manylane(Lane);

impl Runtime for Manylane {
    const NAME: &'static str = "manylane Lane";
    const OURS: bool = true;

    fn new() -> Option<Self> {
        Lane::new(Config::new()).ok().map(Self)
    }
    fn block_on(&mut self, main: impl Future<Output = ()> + 'static) {
        self.0.block_on(&mut ThreadPoller::new(), main).expect("this poller has no errors");
    }
    fn spawn(task: impl Future<Output = ()> + 'static) {
        let here = Here::current().expect("called from within a task");
        here.spawn(&KIND, Class::Normal, task).expect("there is memory");
    }
}

struct Monoio(monoio::Runtime<monoio::IoUringDriver>);

impl Runtime for Monoio {
    const NAME: &'static str = "monoio";

    fn new() -> Option<Self> {
        monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build().ok().map(Self)
    }
    fn block_on(&mut self, main: impl Future<Output = ()> + 'static) {
        self.0.block_on(main);
    }
    fn spawn(task: impl Future<Output = ()> + 'static) {
        drop(monoio::spawn(task));
    }
}

struct Glommio(glommio::LocalExecutor);

impl Runtime for Glommio {
    const NAME: &'static str = "glommio";

    fn new() -> Option<Self> {
        glommio::LocalExecutorBuilder::new(glommio::Placement::Unbound).make().ok().map(Self)
    }
    fn block_on(&mut self, main: impl Future<Output = ()> + 'static) {
        self.0.run(main);
    }
    fn spawn(task: impl Future<Output = ()> + 'static) {
        glommio::spawn_local(task).detach();
    }
}

struct Compio(compio::runtime::Runtime);

impl Runtime for Compio {
    const NAME: &'static str = "compio";

    fn new() -> Option<Self> {
        compio::runtime::Runtime::new().ok().map(Self)
    }
    fn block_on(&mut self, main: impl Future<Output = ()> + 'static) {
        self.0.block_on(main);
    }
    fn spawn(task: impl Future<Output = ()> + 'static) {
        compio::runtime::spawn(task).detach();
    }
}

struct TokioLocal(tokio::runtime::Runtime, tokio::task::LocalSet);

impl Runtime for TokioLocal {
    const NAME: &'static str = "tokio LocalSet";

    fn new() -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().ok()?;
        Some(Self(runtime, tokio::task::LocalSet::new()))
    }
    fn block_on(&mut self, main: impl Future<Output = ()> + 'static) {
        self.1.block_on(&self.0, main);
    }
    fn spawn(task: impl Future<Output = ()> + 'static) {
        drop(tokio::task::spawn_local(task));
    }
}

/// Wakes its own task a number of times, once in each poll.
struct Wakes(u64);

impl Future for Wakes {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(left) = self.0.checked_sub(1) else { return Poll::Ready(()) };
        self.0 = left;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Unfinished tasks of a batch, and the waker of the task that waits for the last one.
#[derive(Default)]
struct Left {
    count: Cell<u64>,
    waiter: Cell<Option<Waker>>,
}

impl Left {
    /// Lives as long as the process, like contestants.
    fn leak() -> &'static Self {
        Box::leak(Box::default())
    }

    fn one_less(&self) {
        self.count.set(self.count.get() - 1);
        if self.count.get() == 0
            && let Some(waiter) = self.waiter.take()
        {
            waiter.wake();
        }
    }
}

/// Starts a batch of tasks and waits until each has counted itself off. It sleeps meanwhile, since some
/// runtimes run nothing else while their main future wakes itself.
async fn batch<R: Runtime, F: Future<Output = ()> + 'static>(left: &'static Left, task: impl Fn() -> F) {
    left.count.set(BATCH);
    for _ in 0..BATCH {
        R::spawn(task());
    }
    poll_fn(|context| {
        if left.count.get() == 0 {
            return Poll::Ready(());
        }
        left.waiter.set(Some(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

fn contestant<R: Runtime, F: Future<Output = ()> + 'static>(
    longer: u64,
    work: impl Fn(u64, &'static Left) -> F + 'static,
) -> Option<Contestant> {
    let mut runtime = R::new()?;
    let left = Left::leak();
    let work = move |operations: u64| {
        let started = Instant::now();
        runtime.block_on(work(operations * longer, left));
        started.elapsed() / longer as u32
    };
    Some(if R::OURS { Contestant::timed_ours(R::NAME, work) } else { Contestant::timed_peer(R::NAME, work) })
}

fn spawn_and_complete<R: Runtime>() -> Option<Contestant> {
    contestant::<R, _>(1, |operations, left| async move {
        for _ in 0..operations.div_ceil(BATCH) {
            batch::<R, _>(left, || async { left.one_less() }).await;
        }
    })
}

fn self_wake<R: Runtime>() -> Option<Contestant> {
    contestant::<R, _>(LONGER, |operations, left| async move {
        let wakes = operations.div_ceil(BATCH);
        let task = || async move {
            Wakes(wakes).await;
            left.one_less();
        };
        batch::<R, _>(left, task).await;
    })
}

/// The row with two threads: one starts tasks on the other, which is busy.
pub(super) fn crowds(effort: Effort) -> Vec<Row> {
    // One-time work of a sample (making the other thread busy) must be small.
    let effort = Effort { time: effort.time * 4, ..effort };
    let figures = measure(effort, vec![to_lane(), to_tokio(), to_async_executor()]);
    let target = Target::new(130.0, TOKIO, 460.0);
    vec![Row::new("task: handed to another, busy lane, and completed there", Some(target), figures)]
}

/// Tasks that ran, on a separate cache line: the starter reads it after it has started all.
type Ran = &'static CachePadded<AtomicU64>;

fn ran() -> Ran {
    Box::leak(Box::default())
}

/// The work of a task. One thread counts at a time.
fn count(ran: Ran) {
    ran.store(ran.load(Ordering::Relaxed) + 1, Ordering::Release);
}

/// Starts `operations` tasks and waits until they have run.
fn hand_over(operations: u64, ran: Ran, spawn: impl Fn()) -> Duration {
    ran.store(0, Ordering::Relaxed);
    let started = Instant::now();
    for _ in 0..operations {
        spawn();
    }
    while ran.load(Ordering::Acquire) < operations {
        std::hint::spin_loop();
    }
    started.elapsed()
}

/// A thread that repeats `turn` during a sample, and sleeps while others are measured.
struct Busy {
    on: mpsc::Sender<()>,
    is_on: mpsc::Receiver<()>,
    off: Arc<AtomicBool>,
}

impl Busy {
    fn new<S>(setup: impl FnOnce() -> S + Send + 'static, turn: impl Fn(&mut S) + Send + 'static) -> Self {
        let (on, orders) = mpsc::channel();
        let (tell, is_on) = mpsc::channel();
        let off = Arc::new(AtomicBool::new(false));
        let stop = off.clone();
        std::thread::spawn(move || {
            let mut state = setup();
            // Ends when the contestant is dropped.
            while orders.recv().is_ok() && tell.send(()).is_ok() {
                while !stop.load(Ordering::Relaxed) {
                    turn(&mut state);
                }
            }
        });
        Self { on, is_on, off }
    }

    fn during(&self, sample: impl FnOnce() -> Duration) -> Duration {
        self.off.store(false, Ordering::Relaxed);
        self.on.send(()).expect("the thread lives as long as this end of the channel");
        self.is_on.recv().expect("it says when it runs");
        let took = sample();
        self.off.store(true, Ordering::Relaxed);
        took
    }
}

fn to_lane() -> Contestant {
    let (tell, receiver) = mpsc::channel::<Remote>();
    let busy = Busy::new(
        move || {
            let lane = Lane::new(Config::new()).expect("a new thread has none");
            tell.send(lane.remote()).expect("the starter listens");
            (lane, Time::now())
        },
        |(lane, now)| {
            if lane.round(*now).polled == 0 {
                std::hint::spin_loop();
            }
        },
    );
    let remote = receiver.recv().expect("the lane starts");
    let ran = ran();
    Contestant::timed_ours("manylane Remote::spawn", move |operations| {
        let spawn = || {
            remote.spawn(&KIND, Class::Normal, async move { count(ran) }).expect("it runs");
        };
        busy.during(|| hand_over(operations, ran, spawn))
    })
}

fn to_tokio() -> Contestant {
    // Otherwise a busy worker takes one external task after every 61 polls.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).global_queue_interval(1).build();
    let runtime = runtime.expect("there is a thread");
    let ran = ran();
    Contestant::timed_peer(TOKIO, move |operations| {
        let off = Arc::new(AtomicBool::new(false));
        let (tell, is_on) = mpsc::channel();
        let stop = off.clone();
        drop(runtime.spawn(async move {
            tell.send(()).expect("the starter listens");
            while !stop.load(Ordering::Relaxed) {
                Wakes(1).await;
            }
        }));
        is_on.recv().expect("the worker starts");
        let took = hand_over(operations, ran, || drop(runtime.spawn(async move { count(ran) })));
        off.store(true, Ordering::Relaxed);
        took
    })
}

fn to_async_executor() -> Contestant {
    let executor = Arc::new(async_executor::Executor::new());
    let shared = executor.clone();
    let busy = Busy::new(
        || (),
        move |()| {
            if !shared.try_tick() {
                std::hint::spin_loop();
            }
        },
    );
    let ran = ran();
    Contestant::timed_peer("async-executor", move |operations| {
        let spawn = || executor.spawn(async move { count(ran) }).detach();
        busy.during(|| hand_over(operations, ran, spawn))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_runtime_does_all_that_was_requested() {
        fn check<R: Runtime>() {
            let Some(mut runtime) = R::new() else {
                println!("{} does not work here", R::NAME);
                return;
            };
            let (left, polls) = (Left::leak(), &*Box::leak(Box::new(Cell::new(0))));
            runtime.block_on(async move {
                let task = || async move {
                    for _ in 0..3 {
                        polls.update(|n| n + 1);
                        Wakes(1).await;
                    }
                    left.one_less();
                };
                batch::<R, _>(left, task).await;
            });
            assert_eq!(polls.get(), 3 * BATCH, "{}", R::NAME);
        }
        check::<Manylane>();
        check::<Monoio>();
        check::<Glommio>();
        check::<Compio>();
        check::<TokioLocal>();
    }

    #[test]
    fn what_is_handed_over_has_run_when_the_clock_stops() {
        for mut contestant in [to_lane(), to_tokio(), to_async_executor()] {
            assert!((contestant.work)(100) > Duration::ZERO, "{}", contestant.name);
        }
    }
}
