//! Tasks on one lane: order, classes, wakers, ends. Time is an argument, so nothing here waits.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_sched::{
    Boxed, Class, Config, Here, Lane, Poller, TaskId, TaskKind, ThreadPoller, Time, Unpark, isolate,
};
use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

static KIND: TaskKind = TaskKind::new("test");

/// Runs `test` on a lane of its own.
fn on_lane(config: Config, test: impl FnOnce(&mut Lane) + Send + 'static) {
    let thread = std::thread::spawn(move || test(&mut Lane::new(config).expect("a new thread has no lane")));
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

type Log = Rc<RefCell<Vec<u32>>>;

/// A task that records `n` each time it runs, and runs `times` times by waking itself.
async fn noted(log: Log, n: u32, times: u32) {
    let here = Here::current().expect("tasks run on a lane");
    for turn in 0..times {
        log.borrow_mut().push(n);
        if turn + 1 < times {
            here.yield_now().await;
        }
    }
}

fn rounds(lane: &mut Lane, count: usize) -> usize {
    (0..count).map(|_| lane.round(Time::ZERO).polled as usize).sum()
}

#[test]
fn tasks_of_one_class_run_in_the_order_of_their_wake_ups() {
    on_lane(Config::new(), |lane| {
        let log = Log::default();
        for n in 0..3 {
            lane.here().spawn(&KIND, Class::Normal, noted(log.clone(), n, 2)).unwrap();
        }
        rounds(lane, 1);
        assert_eq!(*log.borrow(), [0, 1, 2, 0, 1, 2]);
    });
}

/// R-F4
#[test]
fn a_round_polls_no_more_than_the_run_queue_depth() {
    on_lane(Config::new(), |lane| {
        for n in 0..100 {
            lane.here().spawn(&KIND, Class::Normal, noted(Log::default(), n, 1)).unwrap();
        }
        let first = lane.round(Time::ZERO);
        assert_eq!((first.polled, first.more), (40, true));
        assert_eq!([lane.round(Time::ZERO).polled, lane.round(Time::ZERO).polled], [40, 20]);
        assert!(!lane.round(Time::ZERO).more);
    });
}

/// R-F3
#[test]
fn one_heavy_task_runs_in_a_round_after_the_others() {
    on_lane(Config::new(), |lane| {
        let log = Log::default();
        for n in 0..3 {
            lane.here().spawn(&KIND, Class::Heavy, noted(log.clone(), 100 + n, 1)).unwrap();
            lane.here().spawn(&KIND, Class::Normal, noted(log.clone(), n, 1)).unwrap();
        }
        rounds(lane, 1);
        assert_eq!(*log.borrow(), [0, 1, 2, 100]);
        rounds(lane, 1);
        assert_eq!(log.borrow()[4..], [101]);
    });
}

/// R-F3
#[test]
fn saturated_classes_share_the_lane_by_weight_and_heavy_gets_one_task_a_round() {
    on_lane(Config::new(), |lane| {
        let counts: Rc<[Cell<u32>; 4]> = Rc::default();
        for class in Class::ALL {
            for _ in 0..100 {
                let counts = counts.clone();
                let endless = async move {
                    let here = Here::current().expect("on a lane");
                    loop {
                        counts[class as usize].update(|n| n + 1);
                        here.yield_now().await;
                    }
                };
                lane.here().spawn(&KIND, class, endless).unwrap();
            }
        }
        let polled = rounds(lane, 1000);
        let percent: Vec<f64> = counts.iter().map(|n| f64::from(n.get()) * 100.0 / polled as f64).collect();
        for (got, wanted) in percent.iter().zip([50.0, 37.0, 12.0, 2.4]) {
            assert!((got - wanted).abs() < 2.0, "{percent:?}");
        }
        assert_eq!(counts[3].get(), 1000, "one heavy task a round");
    });
}

/// R-F3: without the option the urgent task waits for its pass; with it, only for the running task.
#[test]
fn with_low_latency_an_urgent_wake_up_is_served_before_the_next_task_of_another_class() {
    let order = |low_latency: bool| {
        let (tell, receiver) = std::sync::mpsc::channel();
        on_lane(Config::new().low_latency(low_latency), move |lane| {
            let log = Log::default();
            let urgent: Rc<RefCell<Option<Waker>>> = Rc::default();
            let (slot, note) = (urgent.clone(), log.clone());
            let waits = poll_fn(move |context| {
                if slot.borrow_mut().replace(context.waker().clone()).is_none() {
                    return Poll::Pending;
                }
                note.borrow_mut().push(100);
                Poll::Ready(())
            });
            lane.here().spawn(&KIND, Class::Urgent, waits).unwrap();
            rounds(lane, 1);
            for n in 0..3 {
                let (urgent, log) = (urgent.clone(), log.clone());
                let normal = async move {
                    log.borrow_mut().push(n);
                    if n == 0 {
                        urgent.borrow().as_ref().expect("it was polled").wake_by_ref();
                    }
                };
                lane.here().spawn(&KIND, Class::Normal, normal).unwrap();
            }
            rounds(lane, 1);
            tell.send(log.borrow().clone()).unwrap();
        });
        receiver.recv().unwrap()
    };
    assert_eq!(order(false), [0, 1, 2, 100]);
    assert_eq!(order(true), [0, 100, 1, 2]);
}

/// R-F3: urgent tasks that are always ready take their half, and a bit more in place of heavy tasks, but not
/// all.
#[test]
fn with_low_latency_endless_urgent_tasks_leave_the_other_classes_their_share() {
    on_lane(Config::new().low_latency(true), |lane| {
        let counts: Rc<[Cell<u32>; 4]> = Rc::default();
        for class in Class::ALL {
            for _ in 0..100 {
                let counts = counts.clone();
                let endless = async move {
                    let here = Here::current().expect("on a lane");
                    loop {
                        counts[class as usize].update(|n| n + 1);
                        here.yield_now().await;
                    }
                };
                lane.here().spawn(&KIND, class, endless).unwrap();
            }
        }
        let polled = rounds(lane, 1000);
        let percent: Vec<f64> = counts.iter().map(|n| f64::from(n.get()) * 100.0 / polled as f64).collect();
        for (got, wanted) in percent.iter().zip([50.0, 37.0, 12.0, 1.0]) {
            assert!((got - wanted).abs() < 2.5, "{percent:?}");
        }
    });
}

/// R-F3: a request of three steps arrives while one of 300 endless long tasks runs; the test counts how many
/// of these run until the request is complete. `manylane-bench heavy` shows the same in milliseconds.
#[test]
fn a_request_waits_for_a_few_heavy_tasks_instead_of_for_the_whole_queue_at_each_step() {
    const LONG_TASKS: u32 = 300;
    /// State that tasks and poller share.
    #[derive(Default)]
    struct Shared {
        ran: Cell<u32>,
        arrives: Cell<bool>,
        ready: Cell<Option<TaskId>>,
        waited: Cell<Option<u32>>,
    }
    async fn request(here: Here, shared: Rc<Shared>) {
        let came = shared.ran.get();
        for _ in 0..2 {
            let mut requested = false;
            poll_fn(|_| {
                if std::mem::replace(&mut requested, true) {
                    return Poll::Ready(());
                }
                shared.ready.set(here.task());
                Poll::Pending
            })
            .await;
        }
        shared.waited.set(Some(shared.ran.get() - came));
    }
    async fn long(here: Here, shared: Rc<Shared>) {
        loop {
            shared.ran.set(shared.ran.get() + 1);
            if shared.arrives.take() {
                // Counts from the arrival, not from the request's first poll.
                let came = shared.ran.get();
                let all = shared.clone();
                let counted = async move {
                    let first = all.ran.get() - came;
                    request(here, all.clone()).await;
                    all.waited.set(all.waited.get().map(|n| n + first));
                };
                here.spawn(&KIND, Class::Normal, counted).unwrap();
            }
            here.yield_now().await;
        }
    }
    let waited = |class: Class, low_latency: bool| {
        let (tell, receiver) = std::sync::mpsc::channel();
        on_lane(Config::new().low_latency(low_latency), move |lane| {
            let shared = Rc::new(Shared::default());
            for _ in 0..LONG_TASKS {
                lane.here().spawn(&KIND, class, long(lane.here(), shared.clone())).unwrap();
            }
            rounds(lane, 100);
            shared.arrives.set(true);
            while shared.waited.get().is_none() {
                lane.round(Time::ZERO);
                shared.ready.take().into_iter().for_each(TaskId::wake); // the poller
            }
            tell.send(shared.waited.get().unwrap()).unwrap();
        });
        receiver.recv().unwrap()
    };
    // The request passes through the queue three times.
    assert!(waited(Class::Normal, false) >= 3 * (LONG_TASKS - 1));
    // Two more in the round of its arrival (300 count as many), then one after each of the first two steps.
    assert_eq!(waited(Class::Heavy, false), 4);
    assert_eq!(waited(Class::Heavy, true), 2);
}

/// A TLS handshake is heavy, the data of the same connection are not.
#[test]
fn a_task_changes_its_class_while_it_runs() {
    on_lane(Config::new(), |lane| {
        let log = Log::default();
        for n in 0..3 {
            let log = log.clone();
            let connection = async move {
                let here = Here::current().expect("on a lane");
                log.borrow_mut().push(n);
                assert_eq!(here.set_class(Class::Normal), Some(Class::Heavy));
                here.yield_now().await;
                log.borrow_mut().push(10 + n);
            };
            lane.here().spawn(&KIND, Class::Heavy, connection).unwrap();
        }
        rounds(lane, 4);
        assert_eq!(*log.borrow(), [0, 10, 1, 11, 2, 12]);
        assert_eq!(lane.here().set_class(Class::Bulk), None, "no task runs");
    });
}

/// A wait for a turn that is dropped before the turn comes leaves the class of its task.
#[test]
fn a_task_that_gives_up_its_turn_has_its_own_class() {
    on_lane(Config::new(), |lane| {
        let class = Rc::new(Cell::new(None));
        let outcome = class.clone();
        let task = async move {
            let here = Here::current().expect("on a lane");
            let mut turn = Box::pin(here.turn_in(Class::Heavy));
            assert!(poll_fn(|context| Poll::Ready(turn.as_mut().poll(context).is_pending())).await);
            drop(turn);
            outcome.set(here.set_class(Class::Normal));
        };
        lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        rounds(lane, 1);
        assert_eq!(class.get(), Some(Class::Normal));
    });
}

/// R-F1
#[test]
fn a_nice_value_moves_a_task_by_that_many_positions_and_starves_nobody() {
    on_lane(Config::new().runqueue_depth(1000), |lane| {
        let log = Log::default();
        for (n, nice) in [(0, 0), (1, 0), (2, -2), (3, 3), (4, 0), (5, 0), (6, 0), (7, 0), (8, -1024)] {
            let log = log.clone();
            let task = async move {
                let here = Here::current().expect("on a lane");
                here.set_nice(nice).unwrap();
                here.yield_now().await; // is queued by its nice value
                log.borrow_mut().push(n);
            };
            lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        }
        rounds(lane, 1);
        // Joined at ticks 9 (0), 10 (1), then 2 with key 11 - 2, 3 with 11 + 3, 4 to 7 at 11 to 14, 8 with
        // -1009.
        assert_eq!(*log.borrow(), [8, 2, 0, 1, 4, 5, 6, 3, 7]);
        let error = lane.here().set_nice(1025).unwrap_err();
        assert_eq!(error.to_string(), "nice value 1025 is out of range: choose one from -1024 to 1024");
    });
}

#[test]
fn a_wake_up_during_the_own_poll_queues_the_task_once() {
    on_lane(Config::new().runqueue_depth(1), |lane| {
        let polls = Rc::new(Cell::new(0));
        let count = polls.clone();
        let task = poll_fn(move |context| {
            count.set(count.get() + 1);
            for _ in 0..3 {
                context.waker().wake_by_ref();
            }
            if count.get() < 3 { Poll::Pending } else { Poll::Ready(()) }
        });
        lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        assert_eq!(rounds(lane, 10), 3);
        assert_eq!(polls.get(), 3);
    });
}

/// R-F9
#[test]
fn a_wake_up_after_the_end_is_harmless_counted_and_traced_to_its_caller() {
    on_lane(Config::new(), |lane| {
        static LATECOMER: TaskKind = TaskKind::new("latecomer");
        let here = lane.here();
        let first = here.spawn(&KIND, Class::Normal, async {}).unwrap();
        rounds(lane, 1);
        let waker = first.waker();
        let polls = Rc::new(Cell::new(0));
        let count = polls.clone();
        let second = here.spawn(
            &KIND,
            Class::Normal,
            poll_fn(move |_| {
                count.set(count.get() + 1);
                Poll::<()>::Pending
            }),
        );
        let second = second.unwrap();
        assert_eq!(
            format!("{first}").rsplit_once('.').unwrap().0,
            format!("{second}").rsplit_once('.').unwrap().0
        );
        rounds(lane, 1);
        let line = line!() + 1;
        here.spawn(&LATECOMER, Class::Normal, async move { first.wake() }).unwrap();
        rounds(lane, 1);
        waker.wake();
        rounds(lane, 1);
        assert_eq!(polls.get(), 1, "the new task in the slot was not woken");
        let report = manylane_sched::report().into_iter().find(|r| r.lane == lane.id()).unwrap();
        assert!(report.late_wakes >= 2);
        let late = lane.late_wakes();
        if cfg!(debug_assertions) {
            assert_eq!(late.len(), 2);
            let caller = late[0].callers[0].unwrap();
            assert_eq!((caller.task, caller.location.unwrap().line()), (Some("latecomer"), line));
            assert!(caller.location.unwrap().file().ends_with("lane.rs"));
            let said = late[1].to_string();
            assert!(
                said.starts_with("a task that had ended was woken (slot ") && said.contains("`latecomer`"),
                "{said}"
            );
        } else {
            assert!(late.is_empty());
        }
    });
}

#[test]
fn an_aborted_task_is_dropped_at_once_or_after_its_poll() {
    on_lane(Config::new(), |lane| {
        let here = lane.here();
        let witness = Rc::new(());
        let held = witness.clone();
        let queued = here.spawn(&KIND, Class::Normal, async move { drop(held) }).unwrap();
        assert!(here.abort(queued));
        assert_eq!(Rc::strong_count(&witness), 1);
        assert!(!here.abort(queued), "it has ended");
        let held = witness.clone();
        let own = async move {
            let _held = held;
            let here = Here::current().expect("on a lane");
            assert!(here.abort(here.task().expect("it runs")));
            assert_eq!(Rc::strong_count(&_held), 2, "not while it runs");
            pending::<()>().await;
        };
        let own = here.spawn(&KIND, Class::Normal, own).unwrap();
        rounds(lane, 2);
        assert_eq!(Rc::strong_count(&witness), 1);
        let slots = |ids: [TaskId; 2]| {
            let mut slots = ids.map(|id| id.to_string().split('.').nth(1).unwrap().to_owned());
            slots.sort();
            slots
        };
        let again = [(); 2].map(|()| here.spawn(&KIND, Class::Normal, async {}).unwrap());
        assert_eq!(slots(again), slots([queued, own]), "the slots of both are used again");
    });
}

#[test]
fn a_panic_ends_its_task_and_leaves_the_lane_whole() {
    on_lane(Config::new(), |lane| {
        let log = Log::default();
        let witness = Rc::new(());
        let held = witness.clone();
        let task = async move {
            let _held = held;
            panic!("on purpose");
        };
        lane.here().spawn(&KIND, Class::Normal, task).unwrap();
        lane.here().spawn(&KIND, Class::Normal, noted(log.clone(), 1, 1)).unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| lane.round(Time::ZERO))).is_err());
        assert_eq!(Rc::strong_count(&witness), 1);
        rounds(lane, 1);
        assert_eq!(*log.borrow(), [1]);
    });
}

/// A program's lane serves other tasks, too.
#[test]
fn a_lane_that_outlives_panics_runs_on() {
    on_lane(Config::new().outlives_panics(true), |lane| {
        let mut poller = ThreadPoller::new();
        let log = Log::default();
        let here = lane.here();
        let noting = noted(log.clone(), 1, 1);
        let panics = async move {
            here.spawn(&KIND, Class::Normal, noting).unwrap();
            std::panic::panic_any(PanicsWhenDropped)
        };
        here.spawn(&KIND, Class::Normal, panics).unwrap();
        let waits = async move {
            while log.borrow().is_empty() {
                here.yield_now().await;
            }
            5
        };
        assert_eq!(lane.block_on(&mut poller, waits).unwrap(), 5);
        let ended = lane.block_on(&mut poller, async { panic!("on purpose") });
        let ended: std::io::Result<()> = ended;
        assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::Interrupted);
        assert_eq!(lane.block_on(&mut poller, async { 6 }).unwrap(), 6);
    });
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

/// Otherwise the watchdog would report the sleeping lane as stuck, and the next task in the slot as the
/// running one.
#[test]
fn after_a_panic_in_the_destructor_of_a_task_none_runs() {
    on_lane(Config::new(), |lane| {
        let here = lane.here();
        let held = PanicsWhenDropped;
        // It completes, and is dropped afterwards.
        let task = poll_fn(move |_| {
            let _ = &held;
            Poll::Ready(())
        });
        here.spawn(&KIND, Class::Normal, task).unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| lane.round(Time::ZERO))).is_err());
        assert_eq!(here.task(), None);
        let report = manylane_sched::report().into_iter().find(|report| report.lane == lane.id()).unwrap();
        assert_eq!(report.running, None);
        let next = here.spawn(&KIND, Class::Normal, pending()).unwrap();
        assert!(here.abort(next) && !here.abort(next), "it is not the one that runs: it ends at once");
    });
}

#[test]
fn a_future_that_is_blocked_on_is_dropped_when_another_task_panics() {
    on_lane(Config::new(), |lane| {
        let mut poller = ThreadPoller::new();
        let witness = Rc::new(());
        let held = witness.clone();
        lane.here().spawn(&KIND, Class::Bulk, async { panic!("on purpose") }).unwrap();
        let waits = async move {
            let _held = held;
            pending::<()>().await;
        };
        assert!(catch_unwind(AssertUnwindSafe(|| lane.block_on(&mut poller, waits))).is_err());
        assert_eq!(Rc::strong_count(&witness), 1);
        assert_eq!(lane.block_on(&mut poller, async { 5 }).unwrap(), 5);
    });
}

#[test]
fn the_largest_run_queue_depth_is_shared_by_the_classes() {
    on_lane(Config::new().runqueue_depth(u32::MAX), |lane| {
        for class in [Class::Urgent, Class::Normal, Class::Bulk] {
            lane.here().spawn(&KIND, class, async {}).unwrap();
        }
        assert_eq!(lane.round(Time::ZERO).polled, 3);
    });
}

/// An unparker whose destructor panics: other lanes must not wait for a lane that has gone.
#[test]
fn a_lane_ends_even_if_its_unparker_does_not_end_well() {
    struct Loud(PanicsWhenDropped);
    impl Unpark for Loud {
        fn unpark(&self) {
            let _ = &self.0;
        }
    }
    impl Poller for Loud {
        fn unparker(&self) -> Arc<dyn Unpark> {
            Arc::new(Self(PanicsWhenDropped))
        }
        fn poll(&mut self, _: Here, _: Option<Duration>) -> std::io::Result<()> {
            Ok(())
        }
    }
    let ended = std::thread::spawn(|| {
        let mut lane = Lane::new(Config::new()).unwrap();
        lane.attach(std::mem::ManuallyDrop::new(Loud(PanicsWhenDropped)).deref_mut());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(lane))).is_err());
        assert!(Here::current().is_none());
        isolate(|| ());
        Lane::new(Config::new()).map(drop).unwrap();
    });
    ended.join().unwrap();
}

#[test]
fn the_end_of_a_lane_drops_every_task_and_its_wakers_stay_harmless() {
    let waker = std::thread::spawn(|| {
        let mut lane = Lane::new(Config::new()).unwrap();
        let here = lane.here();
        let witness = Rc::new(());
        let mut last = None;
        for n in 0..1000 {
            let held = witness.clone();
            let task = async move {
                let _held = held;
                pending::<()>().await;
            };
            last = Some(here.spawn(&KIND, Class::ALL[n % 4], task).unwrap());
        }
        lane.round(Time::ZERO);
        assert_eq!(Rc::strong_count(&witness), 1001);
        drop(lane);
        assert_eq!(Rc::strong_count(&witness), 1);
        let error = here.spawn(&KIND, Class::Normal, async {}).unwrap_err();
        assert!(error.to_string().contains("has no scheduler"), "{error}");
        last.map(TaskId::waker).unwrap()
    });
    let waker = waker.join().unwrap();
    waker.wake_by_ref();
    waker.wake();
}

#[test]
fn a_thread_has_one_lane_at_a_time() {
    on_lane(Config::new(), |lane| {
        let error = Lane::new(Config::new()).unwrap_err();
        assert!(error.to_string().ends_with("one thread runs one lane; use that one, or another thread"));
        assert!(error.to_string().starts_with(&lane.id().to_string()));
    });
}

#[test]
fn large_and_aligned_futures_live_where_they_fit() {
    #[repr(align(128))]
    struct Aligned([u8; 128]);
    on_lane(Config::new(), |lane| {
        let sum = Rc::new(Cell::new(0));
        let (first, second) = (sum.clone(), sum.clone());
        let large = async move {
            let bytes = [1_u8; 40_000];
            Here::current().unwrap().yield_now().await;
            first.update(|n| n + bytes.iter().map(|b| usize::from(*b)).sum::<usize>());
        };
        let aligned = async move {
            let bytes = Aligned([1; 128]);
            Here::current().unwrap().yield_now().await;
            assert_eq!((&raw const bytes).addr() % 128, 0);
            second.update(|n| n + bytes.0.len());
        };
        lane.here().spawn(&KIND, Class::Normal, large).unwrap();
        lane.here().spawn(&KIND, Class::Normal, aligned).unwrap();
        rounds(lane, 2);
        assert_eq!(sum.get(), 40_128);
    });
}

#[test]
fn a_boxed_future_is_polled_where_it_was_made_and_dropped_once() {
    on_lane(Config::new(), |lane| {
        let here = lane.here();
        let (count, text) = (Rc::new(()), Rc::new(String::from("borrowed")));
        let sum = |held: Rc<()>| {
            let text = text.clone();
            async move {
                let large = [held.as_ref() as *const () as usize as u8; 5000];
                let first = std::ptr::from_ref(&large);
                here.yield_now().await;
                assert_eq!(std::ptr::from_ref(&large), first, "it moved");
                large.len() + text.len() + Rc::strong_count(&held)
            }
        };
        let done = Boxed::new(|| sum(count.clone())).unwrap();
        assert_eq!(size_of_val(&done), 2 * size_of::<usize>());
        assert_eq!(lane.block_on(&mut ThreadPoller::new(), done).unwrap(), 5000 + 8 + 2);
        assert_eq!(Rc::strong_count(&count), 1);
        // Dropped before its end, and before its beginning.
        let mut left = Box::pin(Boxed::new(|| sum(count.clone())).unwrap());
        let fresh = Boxed::new(|| sum(count.clone())).unwrap();
        assert!(left.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(Rc::strong_count(&count), 3);
        drop((left, fresh));
        assert_eq!(Rc::strong_count(&count), 1);
        // A zero-sized future has a block all the same.
        let empty = Boxed::new(|| std::future::ready(())).unwrap();
        lane.block_on(&mut ThreadPoller::new(), empty).unwrap();
    });
}

/// Counts existing boxed futures of 6 to 7 KiB; no other test has any of that size.
fn boxed_blocks() -> u64 {
    manylane_pool::report().iter().filter(|pool| pool.name == "task 7168").map(|pool| pool.used).sum()
}

#[test]
fn a_boxed_future_whose_destructor_or_maker_panics_gives_its_block_back() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a destructor");
        }
    }
    on_lane(Config::new(), |_| {
        let bomb = |held: Bomb| async move {
            let held = (held, [1_u8; 7000]);
            pending::<()>().await;
            drop(held);
        };
        let mut first = Box::pin(Boxed::new(|| bomb(Bomb)).unwrap());
        assert!(first.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(boxed_blocks(), 1);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err());
        assert_eq!(boxed_blocks(), 0);
        let none = || -> Bomb { panic!("a maker") };
        let made = catch_unwind(|| Boxed::new(|| bomb(none())).is_ok());
        assert!(made.is_err());
        assert_eq!(boxed_blocks(), 0);
    });
}

#[test]
fn a_boxed_future_is_aligned_as_its_type_wants() {
    async fn aligned<T>(value: T) -> usize {
        Here::current().unwrap().yield_now().await;
        (&raw const value).addr() % align_of::<T>()
    }
    #[repr(align(64))]
    struct Line(#[expect(dead_code, reason = "it is there to have a size")] [u8; 192]);
    #[repr(align(256))]
    struct Lines(#[expect(dead_code, reason = "as above")] [u8; 256]);
    on_lane(Config::new(), |lane| {
        // From a pool whose blocks are no power of two, several at a time, and from the global allocator.
        let all: Vec<_> = (0..3).map(|n| Boxed::new(|| aligned(Line([n; 192]))).unwrap()).collect();
        for boxed in all {
            assert_eq!(lane.block_on(&mut ThreadPoller::new(), boxed).unwrap(), 0);
        }
        let boxed = Boxed::new(|| aligned(Lines([1; 256]))).unwrap();
        assert_eq!(lane.block_on(&mut ThreadPoller::new(), boxed).unwrap(), 0);
    });
}

#[test]
fn without_memory_there_is_no_boxed_future_and_its_maker_is_dropped() {
    if !manylane_pool::inject::ENABLED {
        eprintln!("NOT SHOWN HERE: this build injects no failures");
        return;
    }
    on_lane(Config::new(), |lane| {
        let held = Rc::new(());
        let make = |held: Rc<()>| move || async move { Rc::strong_count(&held) };
        let refused = {
            let _none = manylane_pool::inject::every(1);
            Boxed::new(make(held.clone())).map(drop)
        };
        assert!(refused.unwrap_err().to_string().contains("task"));
        assert_eq!(Rc::strong_count(&held), 1);
        let boxed = Boxed::new(make(held.clone())).unwrap();
        assert_eq!(lane.block_on(&mut ThreadPoller::new(), boxed).unwrap(), 2);
    });
}

#[test]
fn all_tasks_of_a_kind_are_woken_and_no_others() {
    static ONE: TaskKind = TaskKind::new("one kind");
    static OTHER: TaskKind = TaskKind::new("another kind");
    let mut lane = Lane::new(Config::new()).unwrap();
    let here = lane.here();
    let polls: Rc<[Cell<u32>; 3]> = Rc::default();
    for (number, kind) in [&ONE, &OTHER, &ONE].into_iter().enumerate() {
        let polls = polls.clone();
        let task = std::future::poll_fn(move |_| {
            polls[number].set(polls[number].get() + 1);
            std::task::Poll::<()>::Pending
        });
        here.spawn(kind, Class::Normal, task).unwrap();
    }
    let observed = polls.clone();
    let woken = lane
        .block_on(&mut ThreadPoller::new(), async move {
            while observed.iter().any(|polls| polls.get() == 0) {
                here.yield_now().await;
            }
            let woken = here.wake_kind(&ONE);
            while observed[0].get() < 2 || observed[2].get() < 2 {
                here.yield_now().await;
            }
            woken
        })
        .unwrap();
    assert_eq!((woken, polls.each_ref().map(Cell::get)), (2, [2, 1, 2]));
}
