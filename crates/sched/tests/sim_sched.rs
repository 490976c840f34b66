//! Budgets in line transfers, on the virtual multiprocessor. Figures are simulated.
#![cfg(manylane_sim)]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_sched::{Class, Config, Lane, Remote, TaskId, TaskKind, ThreadPoller, Time};
use manylane_sim::{Report, Simulation, Topology, Worker};
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use manylane_sync::{CachePadded, LockClass, Mutex, relax};
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

static KIND: TaskKind = TaskKind::new("simulated");
static MEET: LockClass = LockClass::new("meeting", 1);
const CORES: [usize; 4] = [1, 8, 32, 96];

fn on<S>(cores: usize, setup: impl FnOnce() -> S, body: impl Fn(&S, &Worker)) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(setup, body)
}

/// Lanes meet here before they measure, so that no table grows afterwards.
#[derive(Default)]
struct Meeting(AtomicU32);

impl Meeting {
    fn meet(&self, worker: &Worker) {
        self.0.fetch_add(1, Ordering::AcqRel);
        while (self.0.load(Ordering::Acquire) as usize) < worker.threads() {
            relax();
        }
    }
}

fn lane() -> Lane {
    Lane::new(Config::new().clock(|| Time::ZERO)).unwrap()
}

/// R-F1, R-F2, R-F6
#[test]
fn spawning_and_completing_on_the_own_lane_moves_no_line() {
    for cores in CORES {
        let report = on(cores, Meeting::default, |meeting, worker| {
            let mut lane = lane();
            lane.here().spawn(&KIND, Class::Normal, async {}).unwrap();
            lane.round(Time::ZERO);
            meeting.meet(worker);
            worker.measure(5, 200, |_| {
                for class in Class::ALL {
                    lane.here().spawn(&KIND, class, async {}).unwrap();
                }
                while lane.round(Time::ZERO).more {}
            });
        });
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

/// R-F1, R-F2, R-F6
#[test]
fn waking_and_polling_on_the_own_lane_moves_no_line() {
    for cores in CORES {
        let report = on(cores, Meeting::default, |meeting, worker| {
            let mut lane = lane();
            for _ in 0..8 {
                let endless = poll_fn(|context| {
                    context.waker().wake_by_ref();
                    Poll::<()>::Pending
                });
                lane.here().spawn(&KIND, Class::Normal, endless).unwrap();
            }
            lane.round(Time::ZERO);
            meeting.meet(worker);
            worker.measure(5, 50, |_| assert_eq!(lane.round(Time::ZERO).polled, 40));
        });
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

/// One lane serves, the other sends and waits for the answer.
struct Pair {
    remote: Mutex<Option<(Remote, TaskId)>>,
    answers: Arc<CachePadded<AtomicU64>>,
}

const WARM: u64 = 20;
const MEASURED: u64 = 200;

/// Line transfers for one `send`, and the answer's two.
fn transfers(send: fn(Remote, TaskId, &Arc<CachePadded<AtomicU64>>)) -> f64 {
    let setup =
        || Pair { remote: Mutex::new(&MEET, None), answers: Arc::new(CachePadded::new(AtomicU64::new(0))) };
    let report = on(2, setup, |pair, worker| {
        let answers = &pair.answers;
        if worker.number() == 0 {
            let mut lane = lane();
            let count = answers.clone();
            let task = poll_fn(move |_| {
                count.fetch_add(1, Ordering::Release);
                Poll::<()>::Pending
            });
            let id = lane.here().spawn(&KIND, Class::Normal, task).unwrap();
            *pair.remote.lock() = Some((lane.remote(), id));
            worker.measure(1, 1, |turn| {
                let wanted = if turn == 0 { WARM } else { WARM + MEASURED };
                // The first poll counts, too.
                while answers.load(Ordering::Relaxed) < 1 + wanted {
                    lane.round(Time::ZERO);
                }
            });
        } else {
            let (remote, id) = loop {
                if let Some(found) = *pair.remote.lock() {
                    break found;
                }
                relax();
            };
            while answers.load(Ordering::Acquire) < 1 {
                relax();
            }
            let _own = lane(); // a lane like the other, with pools and counters of its own
            worker.measure(WARM, MEASURED, |turn| {
                send(remote, id, answers);
                while answers.load(Ordering::Acquire) < 2 + turn {
                    relax();
                }
            });
        }
    });
    println!("{report}");
    report.transfers.total() as f64 / MEASURED as f64
}

/// The lines of `pending` and of the inbox's head move to the waker and back; the answer's line to the task
/// and back.
#[test]
fn a_wake_up_from_another_lane_moves_at_most_eight_lines_with_its_answer() {
    let each = transfers(|_, id, _| id.wake());
    println!("{each} transfers a wake-up");
    assert!(each <= 8.0, "{each}");
    assert!(each >= 4.0, "{each}: nothing was measured");
}

/// The lines of the task's block (which returns through the pool) and of the inbox's head; the answer as
/// above.
#[test]
fn a_task_for_another_lane_moves_at_most_eight_lines_with_its_answer() {
    let each = transfers(|remote, _, answers| {
        let answers = answers.clone();
        let task = async move {
            answers.fetch_add(1, Ordering::Release);
        };
        remote.spawn(&KIND, Class::Normal, task).unwrap();
    });
    println!("{each} transfers a task");
    assert!(each <= 8.0, "{each}");
    assert!(each >= 4.0, "{each}: nothing was measured");
}

/// A lane that polls busily, with a task that counts its polls.
struct Player {
    lane: Lane,
    own: TaskId,
    polls: Rc<Cell<u64>>,
}

impl Player {
    fn new() -> Self {
        let config = Config::new().clock(|| Time::ZERO).busy_poll(Duration::MAX);
        let mut lane = Lane::new(config).unwrap();
        let polls = Rc::new(Cell::new(0));
        let count = polls.clone();
        let task = poll_fn(move |_| {
            count.set(count.get() + 1);
            Poll::<()>::Pending
        });
        let own = lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        lane.round(Time::ZERO);
        Self { lane, own, polls }
    }

    /// Waits until the task was woken.
    fn wait(&mut self) {
        let before = self.polls.get();
        let mut poller = ThreadPoller::new();
        loop {
            let round = self.lane.round(Time::ZERO);
            if self.polls.get() > before {
                return;
            }
            self.lane.park(&mut poller, &round).unwrap();
        }
    }
}

/// Only the wake-ups: the line of `pending` and the slot's node, and that of the inbox's head, move to the
/// waker and back, each way. Now and then a check takes the head's line away too early.
#[test]
fn wake_ups_there_and_back_between_lanes_that_poll_busily_move_at_most_nine_lines() {
    let setup = || [const { Mutex::new(&MEET, None::<TaskId>) }; 2];
    let report = on(2, setup, |ids, worker| {
        let mut player = Player::new();
        let number = worker.number();
        *ids[number].lock() = Some(player.own);
        let other = loop {
            if let Some(found) = *ids[1 - number].lock() {
                break found;
            }
            relax();
        };
        worker.measure(WARM, MEASURED, |_| {
            if number == 0 {
                other.wake();
                player.wait();
            } else {
                player.wait();
                other.wake();
            }
        });
    });
    println!("{report}");
    let each = report.transfers.total() as f64 / MEASURED as f64;
    println!("{each} transfers there and back");
    assert!(each <= 9.0, "{each}");
    assert!(each >= 4.0, "{each}: nothing was measured");
}
