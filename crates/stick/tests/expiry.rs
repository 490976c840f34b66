//! Expiry of a large table holds no lane up: each slice of the work is short.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_expr::{DataType, Type, Value};
use manylane_stick::{Data, Spec, Table, with_key};

mod common;

const ENTRIES: u32 = 20_000;
/// Entries of a slice, as the lanes' meter has it.
const AT_ONCE: usize = 256;

fn full() -> Table {
    let data = vec![Data { kind: DataType::Gpc0, count: 1, period: 0 }];
    let table = Table::new(Spec { nopurge: true, ..common::spec(Type::Int, ENTRIES, 1_024, data) });
    for key in 0..ENTRIES {
        with_key(table.spec(), Value::Int(key.into()), |words| {
            table.get_or_make(words, 0).expect("there is room");
        });
    }
    table
}

/// Sweeps until nothing has expired. Returns the number of slices.
fn sweep(table: &Table, now: u64) -> usize {
    let (mut slices, mut next, mut more) = (0, 0, true);
    while more {
        let before = table.used();
        more = table.sweep(&mut next, now, AT_ONCE);
        let gone = (before - table.used()) as usize;
        assert!(gone <= AT_ONCE, "{gone} entries in one slice");
        slices += 1;
    }
    slices
}

/// Entries that expire at the same moment, of which half were used again before theirs came.
#[test]
fn entries_that_expire_at_once_go_in_slices() {
    let table = full();
    for key in 0..ENTRIES / 2 {
        with_key(table.spec(), Value::Int(key.into()), |words| {
            table.get(words, 512).expect("it is there").touch(512);
        });
    }
    for (now, left) in [(1_024, ENTRIES / 2), (1_536, 0)] {
        let slices = sweep(&table, now);
        assert_eq!(table.used(), left);
        assert!(slices >= (ENTRIES / 2) as usize / AT_ONCE, "{slices}");
    }
}
