//! A stick table beside a map: two bytes a step are an operation and a key. Entries count alike, expire
//! alike, and a table that is not full loses none.
#![no_main]

use manylane_expr::{DataType, Type, Value};
use manylane_stick::{Data, Entry, ShardClearing, Spec, Table};
use std::collections::HashMap;

/// More than there are keys.
const SIZE: u32 = 300;
/// Milliseconds that an entry stays.
const EXPIRE: u64 = 1_000;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let data_types = vec![Data { kind: DataType::Gpc0, count: 1, period: 0 }];
    let spec = Spec {
        key: Type::Int,
        key_bytes: 0,
        size: SIZE,
        expire: EXPIRE,
        nopurge: false,
        data: data_types,
        bytes_factor: std::num::NonZeroU32::MIN,
        turns: false,
    };
    let table = Table::new(spec);
    // Count and expiry of each key.
    let mut model: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut now = 1;
    let mut clearing: Option<Vec<ShardClearing<'_>>> = None;
    for step in data.chunks_exact(2) {
        let key = u64::from(step[1]);
        let is_there =
            |model: &HashMap<u64, (u64, u64)>| model.get(&key).is_some_and(|(_, until)| *until > now);
        match step[0] % 8 {
            0 | 1 => {
                let entry = table.get_or_make(&[key], now).expect("there is room");
                entry.add(DataType::Gpc0, 1, now);
                entry.touch(now);
                let before = if is_there(&model) { model[&key].0 } else { 0 };
                model.insert(key, (before + 1, now + EXPIRE));
            }
            2 => {
                let value = table.peek(&[key], now, |entry| entry.get(DataType::Gpc0, now)).flatten();
                let expected = is_there(&model).then(|| model[&key].0);
                assert_eq!(value, expected, "{key} at {now}");
            }
            3 => {
                assert!(table.clear_key(&[key]), "nobody holds it");
                model.remove(&key);
            }
            4 => now += u64::from(step[1]) * 8,
            5 => {
                table.sweep(&mut usize::from(step[1]), now, 10);
            }
            6 => {
                // The first step ends the entry's life, further ones free its memory.
                let parts = clearing.get_or_insert_with(|| {
                    model.remove(&key);
                    table.clearing().collect()
                });
                let is_one = |entry: &Entry<'_>| entry.key(&mut []) == Value::Int(key.cast_signed());
                if !parts.iter_mut().any(|part| part.step(is_one)) {
                    clearing = None;
                }
            }
            _ => {
                clearing = None;
            }
        }
    }
    drop(clearing);
    model.retain(|_, (_, until)| *until > now);
    let there = (0..256).filter(|key| table.get(&[*key], now).is_some()).count();
    assert_eq!(there, model.len());
    while table.sweep(&mut 0, u64::MAX / 2, 1_000) {}
    assert_eq!(table.used(), 0);
});
