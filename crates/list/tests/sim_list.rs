//! Budgets on the virtual multiprocessor: the cost of an operation in cache-line transfers (R-E1, R-E2,
//! R-E4). Simulated figures.
#![cfg(manylane_sim)]

use manylane_list::{MtList, Node};
use manylane_sim::{Report, Simulation, Topology};
use manylane_sync::CachePadded;
use manylane_sync::atomic::{AtomicUsize, Ordering};

/// Each thread adds and deletes an element next to its own resident one, in the middle of one list.
fn resident_neighbours(threads: usize) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).threads(threads).run(
        || {
            let list = MtList::new();
            list.label("list head");
            (list, AtomicUsize::new(0))
        },
        |(list, placed), worker| {
            let make = || Box::pin(Node::new(list, CachePadded::new(())));
            let (resident, fence, own) = (make(), make(), make());
            resident.as_ref().add();
            // Between this thread's place and the next one's, so that they share no neighbour.
            assert!(fence.as_ref().insert_after(resident.as_ref()));
            manylane_sync::label(&*resident, "resident element");
            manylane_sync::label(&*fence, "element behind it");
            manylane_sync::label(&*own, "own element");
            // The next thread touches this thread's neighbour once more, so nothing counts before the last
            // has come.
            placed.fetch_add(1, Ordering::Release);
            while placed.load(Ordering::Acquire) < worker.threads() {
                manylane_sync::relax();
            }
            worker.measure(10, 1_000, |_| {
                assert!(own.as_ref().insert_after(resident.as_ref()));
                assert!(own.as_ref().delete());
            });
            // Not deleted here, since that would touch neighbours that may still be counting. The list
            // removes them.
            std::mem::forget((resident, fence, own));
        },
    )
}

/// Each thread adds and deletes its own element at the head of one list.
fn at_the_head(threads: usize, seed: u64) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).threads(threads).seed(seed).run(
        || {
            let list = MtList::new();
            list.label("list head");
            list
        },
        |list, worker| {
            let own = Box::pin(Node::new(list, CachePadded::new(())));
            worker.measure_for(50_000, 2_000_000, |_| {
                own.as_ref().add();
                assert!(own.as_ref().delete());
            });
        },
    )
}

#[test]
fn lanes_next_to_their_own_elements_move_no_line_at_any_core_count() {
    for threads in [1, 8, 32, 96] {
        let report = resident_neighbours(threads);
        assert_eq!(report.transfers.total(), 0, "{threads} threads:\n{report}");
    }
}

#[test]
fn work_next_to_own_elements_scales_within_ten_percent_of_linear() {
    let one = resident_neighbours(1).operations_per_second();
    for threads in [8, 48] {
        let all = resident_neighbours(threads).operations_per_second();
        assert!(
            all > 0.9 * one * threads as f64,
            "{threads} threads: {all:.0} a second, one thread: {one:.0}"
        );
    }
}

#[test]
fn two_lanes_at_the_head_are_served_alike() {
    for seed in 1..=5 {
        let report = at_the_head(2, seed);
        assert!(report.fairness() >= 0.5, "seed {seed}: fairness {}\n{report}", report.fairness());
    }
}

/// The head is one line, so many lanes there cannot scale; throughput must not collapse either.
#[test]
fn a_crowd_at_the_head_keeps_part_of_the_work_of_one() {
    let one = at_the_head(1, 1).operations_per_second();
    for (threads, part) in [(2, 0.4), (8, 0.25), (32, 0.08), (96, 0.07)] {
        let all = at_the_head(threads, 1);
        let rate = all.operations_per_second();
        println!(
            "{threads} threads: {:.1} million a second, one thread {:.1} (simulated)",
            rate / 1e6,
            one / 1e6
        );
        assert!(rate > one * part, "{threads} threads: {rate:.0} a second, one thread: {one:.0}\n{all}");
    }
}

#[test]
fn the_same_seed_gives_the_same_counts() {
    assert_eq!(at_the_head(8, 7).operations_by_thread, at_the_head(8, 7).operations_by_thread);
}

/// R-E2: waiters relax, longer each time, so the line seldom moves between them.
#[test]
fn waiters_leave_the_line_alone() {
    const HELD_NS: u64 = 200_000;
    let report = Simulation::new(Topology::two_sockets_24x2()).threads(3).run(
        || {
            let list = MtList::new();
            list.label("list head");
            list
        },
        |list, worker| {
            let own = Box::pin(Node::new(list, CachePadded::new(())));
            if worker.number() == 0 {
                own.as_ref().add();
            }
            worker.measure(0, 1, |_| {
                if worker.number() == 0 {
                    // The only element: the walk holds the head with it.
                    list.for_each(|_| manylane_sim::work_ns(HELD_NS));
                } else {
                    manylane_sim::work_ns(1_000);
                    own.as_ref().add();
                }
            });
        },
    );
    assert!(report.seconds() * 1e9 >= HELD_NS as f64, "the others had to wait\n{report}");
    assert!(report.transfers.total() < 60, "{report}");
}

/// R-E4: a lane fetches a line that another one had once, by the exchange, and not first for a read.
#[test]
fn an_exchange_fetches_the_line_once() {
    const OPERATIONS: u64 = 100;
    let report = Simulation::new(Topology::two_sockets_24x2()).threads(2).run(
        || {
            let list = MtList::new();
            list.label("list head");
            let turn = CachePadded::new(AtomicUsize::new(0));
            manylane_sync::label(&turn, "turn");
            (list, turn)
        },
        |(list, turn), worker| {
            let own = Box::pin(Node::new(list, CachePadded::new(())));
            worker.measure(4, OPERATIONS, |_| {
                while turn.load(Ordering::Acquire) != worker.number() {
                    manylane_sync::relax();
                }
                own.as_ref().add();
                assert!(own.as_ref().delete());
                turn.store(1 - worker.number(), Ordering::Release);
            });
        },
    );
    let head = report.hottest.iter().find(|line| line.name == "list head");
    assert_eq!(head.map(|line| line.transfers), Some(2 * OPERATIONS), "one for each operation\n{report}");
}
