//! Line transfers of tables on the virtual multiprocessor. Figures are simulated.
#![cfg(manylane_sim)]

use manylane_expr::{DataType, Type, Value};
use manylane_sim::{Report, Simulation, Topology};
use manylane_stick::{Data, Table, with_key};
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use manylane_sync::{CachePadded, relax};

mod common;

const HITS: u64 = 400;

struct Shared {
    table: Table,
    met: AtomicU32,
}

fn shared() -> Shared {
    let rate = |kind| Data { kind, count: 1, period: 10_000 };
    let data = vec![
        Data { kind: DataType::ConnCur, count: 1, period: 0 },
        rate(DataType::ConnRate),
        rate(DataType::HttpReqRate),
    ];
    let table = Table::new(common::spec(Type::Ipv4, 100_000, 60_000, data));
    Shared { table, met: AtomicU32::new(0) }
}

/// The work of a request with `track-sc0 src`, which is counted and looked up.
fn hit(table: &Table, key: u32, now: u64) {
    with_key(table.spec(), Value::Ipv4(key.into()), |words| {
        let entry = table.get_or_make(words, now).expect("there is room");
        entry.add(DataType::ConnCur, 1, now);
        entry.add(DataType::ConnRate, 1, now);
        entry.add(DataType::HttpReqRate, 1, now);
        entry.get(DataType::HttpReqRate, now);
        entry.take_one(DataType::ConnCur);
        entry.touch(now);
    });
}

fn run(cores: usize, key: impl Fn(usize) -> u32 + Clone + Send + Sync + 'static) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(shared, move |shared, worker| {
        let key = key(worker.number());
        hit(&shared.table, key, 0);
        shared.met.fetch_add(1, Ordering::AcqRel);
        while (shared.met.load(Ordering::Acquire) as usize) < worker.threads() {
            relax();
        }
        // The key's first hit of each lane fetches what others wrote meanwhile.
        hit(&shared.table, key, 0);
        worker.measure(5, HITS, |n| hit(&shared.table, key, n / 100));
    })
}

/// A hit of a lane's own key moves no line, on any number of cores.
#[test]
fn distinct_keys_move_no_line() {
    for cores in [1, 8, 32, 64, 96] {
        let report = run(cores, |lane| lane as u32);
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
    }
}

/// One key for all lanes moves one line and no other, at most three times as often as a word does that all
/// lanes change as often: a hit also reads between its changes, and repeats those that came too late.
#[test]
fn one_hot_key_costs_what_one_line_costs() {
    /// Changes of a hit: the hold and its release, three counts, and the end of the connection.
    const CHANGES: u64 = 6;
    let one_line = |cores: usize| {
        let word = || CachePadded::new(AtomicU64::new(0));
        Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(word, |word, worker| {
            let change = || (0..CHANGES).for_each(|_| _ = word.fetch_add(1, Ordering::AcqRel));
            worker.measure(5, HITS, |_| change());
        })
    };
    for cores in [8, 32, 96] {
        let (key, line) = (run(cores, |_| 1), one_line(cores));
        let moved = key.transfers.total();
        assert_eq!(key.hottest.first().map(|line| line.transfers), Some(moved), "{cores} cores\n{key}");
        assert!(moved <= 3 * line.transfers.total(), "{cores} cores\n{key}\n{line}");
    }
}
