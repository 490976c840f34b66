//! Counting in existing entries does not use the global allocator, nor does replacing removed entries.
#![cfg(not(any(loom, manylane_sim)))] // the simulator has an allocator of its own

use manylane_expr::{DataType, Type, Value};
use manylane_stick::{Data, Spec, Table, with_key};

mod common;

#[global_allocator]
static ALLOCATOR: assert_no_alloc::AllocDisabler = assert_no_alloc::AllocDisabler;

#[test]
fn hits_and_new_keys_of_a_full_table_take_nothing_from_the_global_allocator() {
    let data = vec![Data { kind: DataType::HttpReqRate, count: 1, period: 100 }];
    let spec = Spec { key_bytes: 64, ..common::spec(Type::Str, 3_000, 500, data) };
    let table = Table::new(spec);
    let hit = |key: u64, now: u64| {
        let text = key.to_be_bytes().map(|byte| b'a' + byte % 16);
        with_key(table.spec(), Value::Str(&text), |words| {
            let entry = table.get_or_make(words, now).expect("there is room");
            entry.add(DataType::HttpReqRate, 1, now);
            entry.touch(now);
            table.peek(words, now, |entry| entry.get(DataType::HttpReqRate, now))
        })
    };
    let round = |from: u64| {
        for n in 0..20_000 {
            hit(n % 100, from + n / 40);
            hit(1_000 + n * 7_919 % 65_536, from + n / 40);
            if n % 1_000 == 0 {
                while table.sweep(&mut 0, from + n / 40, 64) {}
            }
        }
    };
    round(0);
    round(1_000);
    assert_no_alloc::assert_no_alloc(|| round(2_000));
}
