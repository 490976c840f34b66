//! The virtual multiprocessor by itself: words that report every access to it, and its reports about them.

use manylane_sim::{
    Access, Report, Simulation, Topology, Worker, access, cost, current, label, now, park, relax, unpark_one,
    work_ns,
};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

/// A word of simulated shared memory. Virtual threads share one real thread, so a `Cell` suffices.
#[derive(Default)]
struct Word(Cell<u64>);

impl Word {
    fn touch(&self, kind: Access) {
        access(self.0.as_ptr().addr(), 8, kind, Location::caller());
    }
    fn load(&self) -> u64 {
        self.touch(Access::Load);
        self.0.get()
    }
    fn store(&self, value: u64) {
        self.touch(Access::Store);
        self.0.set(value);
    }
    fn add(&self, more: u64) -> u64 {
        self.touch(Access::Rmw);
        self.0.replace(self.0.get() + more)
    }
    fn swap_if(&self, old: u64, new: u64) -> bool {
        self.touch(Access::Rmw);
        let same = self.0.get() == old;
        if same {
            self.0.set(new);
        }
        same
    }
    fn key(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

#[repr(align(128))]
#[derive(Default)]
struct Padded(Word);

fn large() -> Topology {
    Topology::two_sockets_24x2()
}

fn shared_counter(threads: usize) -> Report {
    shared_counter_on(large(), threads)
}

fn shared_counter_on(topology: Topology, threads: usize) -> Report {
    Simulation::new(topology).threads(threads).run(Padded::default, |counter, worker| {
        worker.measure_for(5_000, 100_000, |_| {
            counter.0.add(1);
        });
    })
}

fn padded_counters(threads: usize) -> Report {
    padded_counters_on(large(), threads)
}

fn padded_counters_on(topology: Topology, threads: usize) -> Report {
    Simulation::new(topology).threads(threads).run(
        || (0..threads).map(|_| Padded::default()).collect::<Vec<_>>(),
        |counters, worker| {
            let own = &counters[worker.number()].0;
            worker.measure_for(5_000, 20_000, |_| own.store(own.load() + 1));
        },
    )
}

/// A lock that hands over through the queue of sleepers, as `manylane_sync::Mutex` does.
#[derive(Default)]
struct SleepingLock(Word);

impl SleepingLock {
    const LOCKED: u64 = 1;
    const PARKED: u64 = 2;

    fn lock(&self) {
        loop {
            let state = self.0.load();
            if state & Self::LOCKED == 0 {
                if self.0.swap_if(state, state | Self::LOCKED) {
                    return;
                }
            } else if state & Self::PARKED != 0 || self.0.swap_if(state, state | Self::PARKED) {
                park(self.0.key(), || self.0.load() == Self::LOCKED | Self::PARKED);
            }
        }
    }

    fn unlock(&self) {
        if !self.0.swap_if(Self::LOCKED, 0) {
            unpark_one(self.0.key(), |_, more| {
                self.0.store(if more { Self::PARKED } else { 0 });
                false
            });
        }
    }
}

fn panic_message(run: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned())).expect("a sentence")
}

/// Locks, sleepers, false sharing, allocation: all possible sources of differences between two runs.
fn everything(seed: u64) -> String {
    let body = |state: &(SleepingLock, RefCell<Vec<u64>>, Vec<Word>), worker: &Worker| {
        let (lock, list, falsely_shared) = state;
        worker.measure(20, 200, |round| {
            lock.lock();
            list.borrow_mut().push(round);
            let boxed = Box::new(Word::default());
            boxed.add(1);
            lock.unlock();
            let own = &falsely_shared[worker.number()];
            own.store(own.load() + 1);
        });
    };
    let set_up = || (SleepingLock::default(), RefCell::default(), (0..24).map(|_| Word::default()).collect());
    let report = Simulation::new(large()).cores(16).threads(24).seed(seed).run(set_up, body);
    format!("{report}\n{report:?}")
}

#[test]
fn a_program_and_a_seed_give_the_same_report_to_the_last_digit() {
    let first = everything(7);
    assert_eq!(first, everything(7));
    assert_ne!(first, everything(8), "the seed has no effect");
}

/// In another process, with newly randomised addresses.
#[test]
fn another_process_gives_the_same_report() {
    const ASKED: &str = "MANYLANE_SIM_PRINT";
    if std::env::var_os(ASKED).is_some() {
        println!("<<{}>>", everything(7));
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().expect("tests are programs"))
        .args(["--exact", "another_process_gives_the_same_report", "--nocapture"])
        .env(ASKED, "1")
        .output()
        .expect("a test can start itself");
    let output = String::from_utf8(child.stdout).expect("a report is text");
    let begin = output.find("<<").expect("the child prints a report") + 2;
    let end = output.rfind(">>").expect("and its end");
    assert_eq!(output[begin..end], everything(7));
}

#[test]
fn who_shares_nothing_transfers_nothing_and_scales_to_96_cores() {
    let one = padded_counters(1).operations_per_second();
    for threads in [8, 48, 96] {
        let report = padded_counters(threads);
        assert_eq!(report.transfers.total(), 0, "{report}");
        assert_eq!(report.cold_misses, 0, "warm-up was long enough: {report}");
        let speed_up = report.operations_per_second() / one;
        assert!((speed_up / threads as f64 - 1.0).abs() < 0.02, "{speed_up} with {threads}");
    }
}

/// The largest possible machine: two sockets of 64 cores with two threads each.
fn largest() -> Topology {
    Topology::new(2, 1, 64, 2, *large().costs()).expect("256 cores are allowed")
}

#[test]
fn the_part_with_64_cores_and_the_largest_machine_run_on_all_their_cores() {
    for (topology, cores) in [(Topology::one_socket_64(), 64), (largest(), 256)] {
        let one = padded_counters_on(topology.clone(), 1).operations_per_second();
        let all = padded_counters_on(topology.clone(), cores);
        assert_eq!((all.cores, all.threads, all.transfers.total()), (cores, cores, 0), "{all}");
        assert!(all.operations_by_thread.iter().all(|&n| n > 0), "{all}");
        let speed_up = all.operations_per_second() / one;
        assert!((speed_up / cores as f64 - 1.0).abs() < 0.02, "{speed_up} with {cores} cores");
        // The same program and seed, the same digits.
        assert_eq!(format!("{all:?}"), format!("{:?}", padded_counters_on(topology, cores)));
    }
}

#[test]
fn a_shared_counter_falls_on_the_part_with_64_cores_and_on_the_largest_machine() {
    for (topology, cores) in [(Topology::one_socket_64(), 64), (largest(), 256)] {
        let report = shared_counter_on(topology.clone(), cores);
        let one = shared_counter_on(topology.clone(), 1).operations_per_second();
        assert!(report.operations_per_second() < one / 3.0, "{report}");
        // The machine's shape determines the distance of a transfer: between complexes of one socket, or
        // between sockets.
        let ways = (report.transfers.same_socket > 0, report.transfers.other_socket > 0);
        assert_eq!(ways, (cores == 64, cores == 256), "{report}");
    }
}

#[test]
fn a_shared_counter_peaks_early_and_does_not_recover() {
    let speed: Vec<f64> = [1, 2, 8, 24, 48, 96].map(|n| shared_counter(n).operations_per_second()).to_vec();
    assert!(speed[1..].iter().all(|&s| s < speed[0]), "{speed:?}");
    assert!(speed[5] < speed[2] && speed[5] < speed[0] / 3.0, "{speed:?}");
    assert!(speed[4] < speed[3], "the second socket makes it worse: {speed:?}");
}

#[test]
fn handing_a_word_to_and_fro_is_one_transfer_for_each_turn() {
    let report = Simulation::new(large()).threads(2).run(Padded::default, |turn, worker| {
        let me = worker.number() as u64;
        worker.measure(10, 1_000, |_| {
            while turn.0.load() % 2 != me {
                relax();
            }
            turn.0.add(1);
        });
    });
    // The other thread reads the line while it waits, and the writer takes it back: at most two transfers a
    // turn, at least one.
    let each = report.transfers_per_operation();
    assert!((1.0..=2.1).contains(&each), "{report}");
    assert_eq!(report.hottest.len(), 1, "{report}");
}

#[test]
fn two_cores_that_only_swap_one_word_pay_one_transfer_each_time_when_they_work_in_between() {
    let report = Simulation::new(large()).threads(2).run(Padded::default, |word, worker| {
        worker.measure(10, 1_000, |_| {
            word.0.add(1);
            work_ns(300); // longer than a transfer: the other one comes in between
        });
    });
    let each = report.transfers_per_operation();
    assert!((each - 1.0).abs() < 0.01, "{report}");
}

#[test]
fn falsely_shared_counters_travel_and_padded_ones_do_not() {
    let run = |stride: usize| {
        Simulation::new(large()).threads(4).run(
            || (0..64).map(|_| Word::default()).collect::<Vec<_>>(),
            |words, worker| {
                let own = &words[worker.number() * stride];
                worker.measure_for(2_000, 50_000, |_| {
                    own.add(1);
                });
            },
        )
    };
    let (close, apart) = (run(1), run(16));
    assert!(close.transfers_per_operation() > 0.1, "{close}");
    assert_eq!(apart.transfers.total(), 0, "{apart}");
    assert!(close.operations_per_second() < apart.operations_per_second() / 4.0, "{close}{apart}");
}

#[test]
fn lines_in_pairs_show_padding_that_is_too_small() {
    let run = |simulation: Simulation| {
        simulation.run(
            || (0..64).map(|_| Word::default()).collect::<Vec<_>>(),
            |words, worker| {
                let own = &words[worker.number() * 8]; // 64 bytes apart
                worker.measure(10, 100, |_| {
                    own.add(1);
                });
            },
        )
    };
    let simulation = Simulation::new(large()).threads(4);
    assert_eq!(run(simulation.clone()).transfers.total(), 0);
    assert!(run(simulation.pair_lines()).transfers.total() > 0);
}

#[test]
fn another_socket_is_dearer_than_the_same_one() {
    // Threads 0 and `other` take turns; the rest end at once.
    let run = |other: usize| {
        Simulation::new(large()).threads(64).run(Padded::default, |word, worker| {
            if worker.number() == 0 || worker.number() == other {
                worker.measure(10, 500, |_| {
                    word.0.add(1);
                    work_ns(300);
                });
            }
        })
    };
    let (sibling, same, across) = (run(48), run(1), run(24));
    assert!(sibling.transfers.same_core == sibling.transfers.total(), "{sibling}");
    assert!(same.transfers.same_complex == same.transfers.total(), "{same}");
    assert!(across.transfers.other_socket == across.transfers.total(), "{across}");
    assert!(sibling.seconds() < same.seconds() && same.seconds() < across.seconds());
}

#[test]
fn sleepers_are_woken_in_the_order_in_which_they_came_and_none_is_lost() {
    let report = Simulation::new(large()).threads(12).run(
        || (SleepingLock::default(), RefCell::new(Vec::new())),
        |(lock, served), worker| {
            work_ns(2_000 * worker.number() as u64); // they come in this order
            lock.lock();
            served.borrow_mut().push(worker.number());
            work_ns(50_000); // all others go to sleep meanwhile
            lock.unlock();
            if worker.number() == 11 {
                assert_eq!(*served.borrow(), Vec::from_iter(0..12));
            }
        },
    );
    assert_eq!(report.parks, 11, "{report}");
    assert_eq!(report.operations, 12);
}

#[test]
fn a_lock_of_sleepers_excludes_and_everybody_comes_through() {
    for seed in 0..20 {
        let report = Simulation::new(large()).threads(8).seed(seed).run(
            || (SleepingLock::default(), Word::default(), Cell::new(false)),
            |(lock, total, inside), worker| {
                worker.measure(0, 200, |_| {
                    lock.lock();
                    assert!(!inside.replace(true), "two threads hold the lock");
                    total.store(total.load() + 1);
                    inside.set(false);
                    lock.unlock();
                });
                if worker.number() == 0 {
                    assert!(total.load() <= 1600);
                }
            },
        );
        assert_eq!(report.operations, 1600, "seed {seed}");
    }
}

#[test]
fn a_deadlock_is_reported_with_who_waits_for_what() {
    let message = panic_message(|| {
        Simulation::new(large()).threads(2).run(
            || {
                let locks = Box::new([Padded::default(), Padded::default()]);
                label(locks[0].0.key(), 8, "left fork");
                label(locks[1].0.key(), 8, "right fork");
                locks
            },
            |locks, worker| assert!(park(locks[worker.number()].0.key(), || true)),
        );
    });
    assert_eq!(
        message,
        "deadlock on the virtual machine: no thread can run and 2 wait: thread 0 for `left fork`, thread 1 \
            for `right fork`"
    );
}

#[test]
fn a_panic_on_a_virtual_thread_comes_out_and_the_others_are_unwound() {
    struct CountDrop<'a>(&'a Cell<u32>);
    impl Drop for CountDrop<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Cell::new(0);
    let message = panic_message(|| {
        Simulation::new(large()).threads(4).run(Padded::default, |word, worker| {
            let _on_stack = CountDrop(&dropped);
            for round in 0..100 {
                word.0.add(1);
                assert!(worker.number() != 2 || round < 50, "thread 2 gives up in round {round}");
            }
            park(word.0.key(), || true);
        });
    });
    assert_eq!(message, "thread 2 gives up in round 50");
    assert_eq!(dropped.get(), 4, "stacks of unfinished threads are unwound");
    assert_eq!(shared_counter(1).fairness(), 1.0, "the next simulation runs");
}

#[test]
fn more_threads_than_cores_take_turns_and_are_preempted_while_they_hold_a_lock() {
    let report = Simulation::new(Topology::small_vm()).threads(8).run(
        || (SleepingLock::default(), Word::default()),
        |(lock, total), worker| {
            worker.measure_for(1_000_000, 60_000_000, |_| {
                lock.lock();
                total.store(total.load() + 1);
                work_ns(2_000);
                lock.unlock();
                work_ns(500);
            });
        },
    );
    assert_eq!((report.threads, report.cores), (8, 2));
    assert!(report.operations_by_thread.iter().all(|&n| n > 0), "{report}");
    assert!(report.parks > 0, "somebody found the lock held: {report}");
}

#[test]
fn a_thread_that_yields_lets_the_next_one_on_its_core_run() {
    let report = Simulation::new(Topology::small_vm()).cores(1).threads(3).run(
        || RefCell::new(Vec::new()),
        |order, worker| {
            for _ in 0..3 {
                order.borrow_mut().push(worker.number());
                manylane_sim::yield_now();
            }
            if worker.number() == 2 {
                assert_eq!(*order.borrow(), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
            }
        },
    );
    assert_eq!(report.operations, 3);
}

#[test]
fn labels_name_the_hottest_lines_with_the_offset_of_what_spans_lines() {
    let report = Simulation::new(large()).threads(4).run(
        || {
            let words: Box<[Padded; 3]> = Box::default();
            label(words.as_ptr().addr(), size_of_val(&*words), "table");
            let alone = Box::new(Padded::default());
            label(alone.0.key(), 8, "alone");
            (words, alone)
        },
        |(words, alone), worker| {
            worker.measure(5, 100, |_| {
                words[1].0.add(1);
                words[2].0.add(1);
                words[2].0.add(1);
                alone.0.add(1);
                work_ns(100);
            });
        },
    );
    let names: Vec<_> = report.hottest.iter().map(|line| line.name.as_str()).collect();
    for name in ["table +128", "table +256", "alone"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(report.to_string().contains("table +128"), "{report}");
}

#[test]
fn lines_without_a_label_are_named_after_the_call_site_that_moved_them() {
    let report = shared_counter(2);
    assert!(report.hottest[0].name.starts_with("crates/sim/tests/engine.rs:"), "{report}");
}

#[test]
fn stores_that_miss_do_not_stall_until_the_store_buffer_is_full() {
    let time = |others_lines: usize| {
        let report = Simulation::new(large()).threads(2).run(
            || (0..64).map(|_| Padded::default()).collect::<Vec<_>>(),
            |words, worker| {
                if worker.number() == 1 {
                    words.iter().for_each(|w| assert_eq!(w.0.add(1), 0)); // thread 1 owns them all
                    work_ns(10_000);
                    return;
                }
                work_ns(20_000);
                worker.measure(0, 1, |_| {
                    let before = now();
                    words.iter().take(others_lines).for_each(|w| w.0.store(1));
                    let took = (now() - before).as_nanos() as u64;
                    let transfer = cost::TWO_SOCKETS.same_complex / 1_000;
                    let stalled = took >= transfer / 2;
                    assert_eq!(
                        stalled,
                        others_lines > cost::TWO_SOCKETS.fill_buffers,
                        "{took} ns for {others_lines}"
                    );
                });
            },
        );
        assert_eq!(report.transfers.total(), others_lines as u64, "{report}");
    };
    time(4);
    time(64);
}

#[test]
fn small_objects_of_one_thread_share_lines_and_those_of_two_threads_do_not() {
    let report = Simulation::new(large()).threads(2).run(
        || (),
        |(), worker| {
            let first = Box::new(Word::default());
            let second = Box::new(Word::default());
            assert_eq!(first.key() / 64, second.key() / 64, "neighbours");
            worker.measure(10, 100, |_| {
                first.add(1);
                second.add(1);
            });
        },
    );
    assert_eq!(report.transfers.total(), 0, "{report}");
}

#[test]
fn objects_may_outlive_the_simulation() {
    let kept = RefCell::new(Vec::new());
    Simulation::new(large())
        .threads(3)
        .run(|| (), |(), worker| kept.borrow_mut().push(format!("from thread {}", worker.number())));
    Simulation::new(large())
        .threads(3)
        .run(|| vec![0_u8; 1 << 20], |bytes, _| assert!(bytes.iter().all(|&b| b == 0)));
    let mut kept = kept.into_inner();
    kept.sort();
    assert_eq!(kept, ["from thread 0", "from thread 1", "from thread 2"]);
    kept.push("grown outside".to_owned());
}

#[test]
fn impossible_machines_are_refused_in_a_sentence() {
    let no_cores = panic_message(|| drop(Simulation::new(large()).cores(0)));
    assert_eq!(
        no_cores,
        "0 cores were asked for, but this machine (2 sockets x 24 cores x 2 threads) has 1 to 96: \
         choose fewer or another topology"
    );
    assert!(panic_message(|| drop(Simulation::new(large()).cores(257))).contains("257 cores were asked for"));
    assert!(panic_message(|| drop(Simulation::new(large()).threads(0))).contains("1 to 1024"));
    let inside = panic_message(|| {
        Simulation::new(large()).threads(1).run(|| (), |(), _| drop(shared_counter(1)));
    });
    assert!(inside.starts_with("a simulation was started inside of another one"), "{inside}");
    let twice = panic_message(|| {
        Simulation::new(large())
            .threads(1)
            .run(|| (), |(), worker| (0..2).for_each(|_| worker.measure(0, 1, |_| {})));
    });
    assert_eq!(twice, "thread 0 measures a second time: a body has one measured loop");
}

#[test]
fn outside_of_simulations_nothing_is_simulated() {
    assert!(!manylane_sim::active() && current().is_none() && now().is_zero());
    Word::default().add(1);
    assert!(!park(1, || unreachable!("nobody sleeps outside")));
    let reported = Cell::new(None);
    unpark_one(1, |woken, more| {
        reported.set(Some((woken, more)));
        false
    });
    assert_eq!(reported.get(), Some((false, false)), "what the waker publishes is published");
}

#[test]
fn the_waker_tells_the_sleeper_whether_it_was_handed_the_lock() {
    Simulation::new(large()).threads(2).run(Padded::default, |word, worker| {
        for answer in [true, false] {
            if worker.number() == 0 {
                assert_eq!(park(word.0.key(), || true), answer);
            } else {
                work_ns(50_000);
                unpark_one(word.0.key(), |woken, more| {
                    assert!(woken && !more);
                    answer
                });
            }
        }
    });
}
