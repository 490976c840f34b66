//! Expiry of a large table never holds a lane up: each slice of the work is short.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_expr::{DataType, Type, Value};
use manylane_stick::{Data, Spec, Table, with_key};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const ENTRIES: u32 = 1_000_000;
/// Entries of a slice, as the lanes' meter has it.
const AT_ONCE: usize = 256;
/// Runs: a slice counts with its shortest time, since a page fault or another program may lengthen one.
const RUNS: usize = 2;
const LONGEST: Duration = Duration::from_millis(1);

fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("the clock is not before its start")
}

fn full() -> Table {
    let data = vec![Data { kind: DataType::Gpc0, count: 1, period: 0 }];
    let table = Table::new(Spec {
        key: Type::Int,
        key_bytes: 0,
        size: ENTRIES,
        expire: 1_024,
        nopurge: true,
        data,
        bytes_factor: std::num::NonZeroU32::MIN,
        turns: false,
    });
    for key in 0..ENTRIES {
        with_key(table.spec(), Value::Int(key.into()), |words| {
            table.get_or_make(words, 0).expect("there is room");
        });
    }
    table
}

/// Sweeps until nothing has expired. Returns the time of each slice.
fn slices(table: &Table, now: u64) -> Vec<Duration> {
    let (mut all, mut next, mut more) = (Vec::new(), 0, true);
    while more {
        let began = processor_time();
        more = table.sweep(&mut next, now, AT_ONCE);
        all.push(processor_time() - began);
    }
    all
}

/// A million entries that expire at the same moment, then a million that were used again before theirs came:
/// no slice takes a millisecond of the lane.
#[test]
fn a_million_entries_expire_in_slices_below_a_millisecond() {
    let mut shortest = [vec![Duration::MAX; ENTRIES as usize], vec![Duration::MAX; ENTRIES as usize]];
    let mut counts = [0; 2];
    for _ in 0..RUNS {
        let table = full();
        for key in 0..ENTRIES {
            with_key(table.spec(), Value::Int(key.into()), |words| {
                table.get(words, 512).expect("it is there").touch(512);
            });
        }
        for (round, (now, left)) in [(1_024, ENTRIES), (1_536, 0)].into_iter().enumerate() {
            let times = slices(&table, now);
            assert_eq!(table.used(), left);
            counts[round] = times.len();
            for (best, time) in shortest[round].iter_mut().zip(times) {
                *best = time.min(*best);
            }
        }
    }
    for (shortest, count) in shortest.iter().zip(counts) {
        let longest = shortest[..count].iter().max().unwrap();
        println!("{count} slices, the longest {longest:?}");
        assert!(count >= ENTRIES as usize / AT_ONCE, "{count}");
        assert!(*longest < LONGEST, "{longest:?}");
    }
}
