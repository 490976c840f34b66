//! Entries that lanes share: every interleaving of two threads.
#![cfg(loom)]

use manylane_expr::{DataType, Type, Value};
use manylane_stick::{Data, Table, with_key};
use manylane_sync::{Arc, model, thread};

mod common;

fn table(size: u32, kind: DataType, expire: u64) -> Arc<Table> {
    let data = vec![Data { kind, count: 1, period: if kind.is_rate() { 10 } else { 0 } }];
    Arc::new(Table::new(common::spec(Type::Int, size, expire, data)))
}

fn count(table: &Table, key: i64, n: u64) -> Option<u64> {
    with_key(table.spec(), Value::Int(key), |words| table.get_or_make(words, 0)?.add(DataType::Gpc0, n, 0))?
}

fn peek(table: &Table, key: i64) -> Option<u64> {
    with_key(table.spec(), Value::Int(key), |words| {
        table.peek(words, 0, |entry| entry.get(DataType::Gpc0, 0))
    })??
}

/// Rule 3: a key has one entry, and no count is lost.
#[test]
fn two_lanes_make_one_entry_of_a_key() {
    model(|| {
        let table = table(2, DataType::Gpc0, 0);
        // Chunks and chains exist: loom does not see that std's `OnceLock` publishes its contents.
        for key in [1, 2] {
            assert!(count(&table, key, 1).is_some());
        }
        table.clearing().for_each(|mut clearing| while clearing.step(|_| true) {});
        let other = table.clone();
        let lane = thread::spawn(move || count(&other, 7, 1));
        assert!(count(&table, 7, 1).is_some());
        assert!(lane.join().expect("it does not panic").is_some());
        assert_eq!((table.used(), peek(&table, 7)), (1, Some(2)));
    });
}

/// Rules 2 to 4: while an entry begins another life, a reader neither sees the number of the other key nor
/// misses a key that stays.
#[test]
fn a_reader_never_sees_the_number_of_another_key() {
    model(|| {
        let table = table(1, DataType::Gpc0, 0);
        assert!(count(&table, 1, 1).is_some());
        let other = table.clone();
        let lane = thread::spawn(move || {
            // It replaces the first entry.
            assert!(count(&other, 2, 20).is_some());
        });
        assert!(matches!(peek(&table, 1), None | Some(1)));
        lane.join().expect("it does not panic");
        assert_eq!((peek(&table, 1), peek(&table, 2), table.used()), (None, Some(20), 1));
    });
}

/// Rule 2: a held entry is not removed, and a removed entry is not held.
#[test]
fn a_held_entry_stays() {
    model(|| {
        let table = table(2, DataType::Gpc0, 0);
        assert!(count(&table, 1, 1).is_some());
        let other = table.clone();
        let lane = thread::spawn(move || {
            with_key(other.spec(), Value::Int(1), |words| other.clear_key(words)).expect("it is a number")
        });
        let counted = count(&table, 1, 1).expect("there is room");
        let gone = lane.join().expect("it does not panic");
        match (gone, counted) {
            (false, 2) => assert_eq!(peek(&table, 1), Some(2)),
            // It was removed before or after it was counted in.
            (true, 1) => assert_eq!(peek(&table, 1), Some(1)),
            (true, 2) => assert_eq!(peek(&table, 1), None),
            other => panic!("{other:?}"),
        }
    });
}

/// A period ends once, without losing an event.
#[test]
fn a_period_that_two_lanes_end_loses_no_event() {
    model(|| {
        let table = table(1, DataType::Gpc0Rate, 0);
        let number = with_key(table.spec(), Value::Int(1), |words| {
            let entry = table.get_or_make(words, 0).expect("there is room");
            entry.add(DataType::Gpc0Rate, 8, 0);
            entry.into_number()
        })
        .expect("it is a number");
        let other = table.clone();
        let lane = thread::spawn(move || other.held(number).add(DataType::Gpc0Rate, 1, 15));
        let observed = table.held(number).get(DataType::Gpc0Rate, 15).expect("it is kept");
        assert!((4..=5).contains(&observed), "{observed}");
        table.held(number).add(DataType::Gpc0Rate, 1, 15);
        lane.join().expect("it does not panic");
        assert_eq!(table.held(number).get(DataType::Gpc0Rate, 15), Some(8 / 2 + 2));
    });
}

/// `share.rs`, rule 3: a change is seen by the taker of its mark, or is marked for the next taker.
#[test]
fn no_change_is_missed_by_who_tells_peers() {
    model(|| {
        let table = table(2, DataType::Gpc0, 0);
        table.share();
        assert!(count(&table, 1, 1).is_some());
        let other = table.clone();
        let lane = thread::spawn(move || count(&other, 1, 1));
        let mut reported = None;
        let take = |reported: &mut Option<u64>| {
            let mut numbers = Vec::new();
            table.take_changes(|number| numbers.push(number));
            for number in numbers {
                *reported = table.numbered(number, 0).and_then(|entry| entry.get(DataType::Gpc0, 0));
            }
        };
        take(&mut reported);
        lane.join().expect("it does not panic");
        take(&mut reported);
        assert_eq!(reported, Some(2));
    });
}
