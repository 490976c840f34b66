//! Tables used by one thread: lookup, expiry, eviction.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_expr::{DataType, Datum, EntryOperation, Outcome, Type, Value};
use manylane_stick::{
    Data, DataValue, Entry, MAX_SERVER_KEYS, Spec, Table, peer_server_key, server_key, server_key_text,
    with_key,
};

fn spec(key: Type, size: u32, expire: u64) -> Spec {
    let plain = |kind| Data { kind, count: 1, period: 0 };
    Spec {
        key,
        key_bytes: 16,
        size,
        expire,
        nopurge: false,
        data: vec![
            plain(DataType::Gpc0),
            plain(DataType::ConnCur),
            Data { kind: DataType::HttpReqRate, count: 1, period: 1_000 },
            Data { kind: DataType::Gpt, count: 3, period: 0 },
        ],
        bytes_factor: std::num::NonZeroU32::MIN,
        turns: false,
    }
}

fn clear(table: &Table, is_one: impl Fn(&Entry<'_>) -> bool) {
    table.clearing().for_each(|mut clearing| while clearing.step(&is_one) {});
}

fn count(table: &Table, key: i64, now: u64) -> Option<u64> {
    with_key(table.spec(), Value::Int(key), |words| {
        let entry = table.get_or_make(words, now)?;
        let count = entry.add(DataType::Gpc0, 1, now);
        entry.touch(now);
        count
    })?
}

fn peek(table: &Table, key: i64, now: u64) -> Option<u64> {
    with_key(table.spec(), Value::Int(key), |words| {
        table.peek(words, now, |entry| entry.get(DataType::Gpc0, now))
    })??
}

#[test]
fn entries_are_found_by_keys_of_every_type() {
    let keys: [(Type, [Value<'_>; 3]); 5] = [
        (
            Type::Ipv4,
            [Value::Ipv4([1, 2, 3, 4].into()), Value::Ipv4([1, 2, 3, 5].into()), Value::Ipv4([0; 4].into())],
        ),
        (Type::Ipv6, [Value::Ipv6(1.into()), Value::Ipv6((1 << 64).into()), Value::Ipv6(0.into())]),
        (Type::Int, [Value::Int(1), Value::Int(-1), Value::Int(0)]),
        (Type::Str, [Value::Str(b"a"), Value::Str(b"0123456789abcdef"), Value::Str(b"")]),
        (Type::Bin, [Value::Bin(b"a"), Value::Bin(b"\0\x01"), Value::Bin(b"")]),
    ];
    for (kind, keys) in keys {
        let table = Table::new(spec(kind, 10, 0));
        for (n, key) in keys.iter().enumerate() {
            with_key(table.spec(), *key, |words| {
                let entry = table.get_or_make(words, 0).unwrap();
                entry.add(DataType::Gpc0, n as u64 + 1, 0);
                let mut bytes = [0; 16];
                let shown = entry.key(&mut bytes);
                match (key, shown) {
                    (Value::Bin(own), Value::Bin(padded)) => {
                        assert!(padded.starts_with(own) && padded.len() == 16);
                    }
                    (Value::Int(own), shown) => assert_eq!(shown, Value::Int(i64::from(*own as u32))),
                    (own, shown) => assert_eq!(*own, shown),
                }
            })
            .unwrap();
        }
        for (n, key) in keys.iter().enumerate() {
            let found =
                with_key(table.spec(), *key, |words| table.peek(words, 0, |e| e.get(DataType::Gpc0, 0)));
            assert_eq!(found, Some(Some(Some(n as u64 + 1))), "{kind}");
        }
        assert_eq!(table.used(), 3, "{kind}");
        let other = if kind == Type::Int { Value::Str(b"1") } else { Value::Int(1) };
        assert!(with_key(table.spec(), other, |_| ()).is_none(), "{kind}");
    }
    let table = Table::new(spec(Type::Str, 10, 0));
    let same = [&b"0123456789abcdef"[..], b"0123456789abcdefg"];
    let words = same.map(|text| with_key(table.spec(), Value::Str(text), <[u64]>::to_vec));
    assert_eq!(words[0], words[1], "text is cut to the length that is kept");
    let other = with_key(table.spec(), Value::Str(b"0123456789abcde"), <[u64]>::to_vec);
    assert_ne!(words[0], other);
    let long = Spec { key_bytes: 2_000, ..spec(Type::Str, 10, 0) };
    let words = |length| with_key(&long, Value::Str(&[b'a'; 2_000][..length]), <[u64]>::to_vec);
    assert_eq!(words(1_024), words(1_025), "no key is longer than 1,024 bytes");
    assert_ne!(words(1_023), words(1_024));
    let nul = with_key(table.spec(), Value::Str(b"a\0b"), <[u64]>::to_vec);
    assert_eq!(nul, with_key(table.spec(), Value::Str(b"a"), <[u64]>::to_vec));
}

#[test]
fn an_entry_expires_when_nobody_used_it_for_so_long_and_its_memory_is_used_again() {
    let table = Table::new(spec(Type::Int, 100, 1_000));
    assert_eq!(count(&table, 7, 0), Some(1));
    assert_eq!(count(&table, 7, 900), Some(2));
    assert_eq!(peek(&table, 7, 1_899), Some(2));
    assert_eq!(peek(&table, 7, 1_900), None, "it has expired");
    assert_eq!(count(&table, 7, 1_901), Some(1), "it begins anew");
    assert_eq!(table.used(), 1);
    assert_eq!(count(&table, 8, 1_901), Some(1));
    assert!(!table.sweep(&mut 0, 2_000, 100));
    assert_eq!(table.used(), 2);
    while table.sweep(&mut 0, 3_000, 1) {}
    assert_eq!(table.used(), 0);
    assert_eq!(peek(&table, 7, 0), None);
}

#[test]
fn what_is_held_neither_expires_nor_is_given_up() {
    let table = Table::new(spec(Type::Int, 2, 1_000));
    let number =
        with_key(table.spec(), Value::Int(1), |words| table.get_or_make(words, 0).unwrap().into_number())
            .unwrap();
    table.held(number).add(DataType::Gpc0, 5, 0);
    assert!(!table.sweep(&mut 0, 5_000, 100));
    assert_eq!(peek(&table, 1, 5_000), Some(5));
    for key in 2..50 {
        assert_eq!(count(&table, key, 5_000), Some(1), "another one goes");
    }
    assert_eq!(peek(&table, 1, 5_000), Some(5));
    assert_eq!(table.used(), 2);
    assert!(!with_key(table.spec(), Value::Int(1), |words| table.clear_key(words)).unwrap());
    table.release(number, 6_000);
    assert_eq!(peek(&table, 1, 6_999), Some(5));
    assert_eq!(peek(&table, 1, 7_000), None);
}

#[test]
fn a_full_table_gives_up_what_was_not_used_for_the_longest_time_or_nothing() {
    let table = Table::new(spec(Type::Int, 10, 100_000));
    (0..10).for_each(|key| assert_eq!(count(&table, key, 10 * key as u64), Some(1)));
    assert_eq!(count(&table, 0, 500), Some(2));
    assert_eq!(count(&table, 100, 600), Some(1));
    assert_eq!(peek(&table, 0, 600), Some(2), "it was used since");
    let left: Vec<i64> = (1..10).filter(|key| peek(&table, *key, 600).is_some()).collect();
    assert_eq!(left.len(), 8);
    assert!(left[0] <= 3, "an old one is gone: {left:?}");
    assert_eq!(table.used(), 10);

    let table = Table::new(Spec { nopurge: true, ..spec(Type::Int, 10, 100_000) });
    (0..10).for_each(|key| assert_eq!(count(&table, key, 0), Some(1)));
    assert_eq!(count(&table, 100, 600), None);
    assert_eq!(count(&table, 3, 600), Some(2));
    assert_eq!(count(&table, 100, 100_064), Some(1), "what has expired goes");
}

/// A flood of clients that hold their entries must not make lanes search the table at each new key.
#[test]
fn a_full_table_whose_entries_are_held_looks_at_few_of_them_and_not_at_each_key() {
    let table = Table::new(spec(Type::Int, 1_000, 100_000));
    let hold = |key, now| {
        with_key(table.spec(), Value::Int(key), |words| Some(table.get_or_make(words, now)?.into_number()))?
    };
    let held: Vec<u32> = (0..900).map(|key| hold(key, 0).unwrap()).collect();
    (900..1_000).for_each(|key| assert_eq!(count(&table, key, 1_000), Some(1)));
    let refused = (0..).take_while(|n| count(&table, 1_000, 2_000 + 10 * n).is_none()).count();
    assert!((900 / 64..=900 / 32).contains(&refused), "{refused}");

    let now = 10_000;
    (2_000..).take_while(|key| hold(*key, now).is_some()).for_each(|_| ());
    held.into_iter().for_each(|number| table.release(number, now));
    assert_eq!(count(&table, -5, now + 9), None, "it has just looked in vain");
    assert!((1..100).any(|n| count(&table, -5, now + 10 * n).is_some()));
}

/// Absent slots are walked in bounded steps.
#[test]
fn a_walk_over_entries_that_are_gone_stops_on_its_way() {
    let table = Table::new(spec(Type::Int, 10_000, 0));
    (0..10_000).for_each(|key| assert_eq!(count(&table, key, 0), Some(1)));
    clear(&table, |_| true);
    let steps = std::iter::successors(Some(0), |from| table.each(*from, 0, |_| true)).count();
    assert_eq!((steps, table.used()), (3, 0));
}

/// Sizes around those at which a table gets more shards and chunks.
#[test]
fn a_table_of_any_size_takes_as_many_entries_and_no_more() {
    for size in [1, 2, 16, 63, 64, 65, 1_023, 1_024, 5_000, 70_000] {
        let table = Table::new(Spec { nopurge: true, ..spec(Type::Int, size, 0) });
        for key in 0..i64::from(size) {
            assert_eq!(count(&table, key, 0), Some(1), "{size}: {key}");
        }
        assert_eq!(count(&table, -1, 0), None, "{size}");
        assert_eq!(table.used(), size);
        let mut observed = vec![false; size as usize];
        let mut next = Some(0);
        while let Some(from) = next {
            next = table.each(from, 0, |entry| {
                let Value::Int(key) = entry.key(&mut []) else { panic!("it is a number") };
                assert!(!std::mem::replace(&mut observed[key as usize], true));
                key % 100 != 0
            });
        }
        assert!(observed.iter().all(|observed| *observed), "{size}");
        clear(&table, |entry| entry.key(&mut []) != Value::Int(0));
        assert_eq!(table.used(), 1);
        assert_eq!(count(&table, 0, 0), Some(2));
        for key in 0..i64::from(size) {
            assert!(count(&table, key, 0).is_some(), "{size}: {key} again");
        }
        assert_eq!(table.used(), size);
    }
}

#[test]
fn entries_tell_what_is_asked() {
    let table = Table::new(spec(Type::Int, 10, 1_000));
    with_key(table.spec(), Value::Int(1), |words| {
        let entry = table.get_or_make(words, 0).unwrap();
        let ask = |ask| entry.ask(ask, 10);
        let gpt = |index| Datum { data: DataType::Gpt, index };
        assert_eq!(ask(EntryOperation::Increment(0)), Outcome::Number(1));
        assert_eq!(ask(EntryOperation::Increment(0)), Outcome::Number(2));
        assert_eq!(ask(EntryOperation::Clear(0)), Outcome::Number(2));
        assert_eq!(ask(EntryOperation::Read(DataType::Gpc0.into())), Outcome::Number(0));
        assert_eq!(ask(EntryOperation::Increment(1)), Outcome::Number(0));
        assert_eq!(ask(EntryOperation::Clear(1)), Outcome::NotKept);
        assert_eq!(ask(EntryOperation::Read(DataType::BytesInCnt.into())), Outcome::NotKept);
        assert!(entry.set(gpt(0), 7, 10) && entry.set(gpt(2), 9, 10) && !entry.set(gpt(3), 9, 10));
        assert_eq!(ask(EntryOperation::Read(DataType::Gpt0.into())), Outcome::Number(7), "the array has it");
        assert_eq!(ask(EntryOperation::Read(gpt(2))), Outcome::Number(9));
        assert_eq!(ask(EntryOperation::Read(gpt(3))), Outcome::NotKept);
        assert_eq!(ask(EntryOperation::Trackers), Outcome::Number(1));
        entry.touch(10);
        assert_eq!(entry.ask(EntryOperation::Expire, 110), Outcome::Number(900));
        assert_eq!(entry.ask(EntryOperation::Idle, 110), Outcome::Number(100));
        entry.take_one(DataType::ConnCur);
        assert_eq!(entry.get(DataType::ConnCur, 0), Some(0), "it does not go below 0");
    })
    .unwrap();
}

/// A shard keeps serving while it is cleared, and entries made meanwhile stay.
#[test]
fn entries_come_and_go_between_two_slices_of_a_clearing() {
    let table = Table::new(Spec { nopurge: true, ..spec(Type::Int, 2_000, 1_000) });
    (0..2_000).for_each(|key| assert_eq!(count(&table, key, 0), Some(1)));
    let clear_key = |key| with_key(table.spec(), Value::Int(key), |words| table.clear_key(words)).unwrap();
    let there = || (0..2_000).filter(|key| peek(&table, *key, 0).is_some()).collect::<Vec<_>>();
    let mut shards = table.clearing();
    let mut clearing = shards.next().unwrap();
    assert!(shards.next().is_none(), "one shard");
    assert!(clearing.step(|entry| entry.key(&mut []) != Value::Int(1)), "there is a second slice");
    let left = there();
    assert!((1_000..1_002).contains(&left.len()), "{}", left.len());
    assert_eq!(table.used(), 2_000, "memory of those that are gone is not free yet");
    let [.., first, second] = left[..] else { panic!("many are left") };
    assert!(clear_key(first) && clear_key(second));
    assert_eq!(count(&table, second, 0), Some(1), "a new one, maybe in the memory of one of the two");
    while table.sweep(&mut 0, 0, 100) {}
    while clearing.step(|entry| entry.key(&mut []) != Value::Int(1)) {}
    assert_eq!(there(), if left.contains(&1) { vec![1] } else { vec![] });
    drop(clearing);
    assert_eq!(table.used() as usize, there().len());
    (10_000..12_000 - table.used() as i64).for_each(|key| assert_eq!(count(&table, key, 0), Some(1)));
    assert_eq!(count(&table, 99_999, 0), None, "it is full");
    while table.sweep(&mut 0, 5_000, 100) {}
    assert_eq!(table.used(), 0, "each was filed once");
}

#[test]
fn an_entry_is_removed_by_its_number_unless_somebody_holds_it() {
    let table = Table::new(spec(Type::Int, 3_000, 1_000));
    let number =
        with_key(table.spec(), Value::Int(1), |words| table.get_or_make(words, 0).unwrap().into_number())
            .unwrap();
    assert_eq!(table.clear_number(number, 0), Some(false));
    table.release(number, 0);
    assert_eq!(table.clear_number(number + 1, 0), None);
    assert_eq!(table.clear_number(0, 0), None);
    assert_eq!(table.clear_number(u32::MAX, 0), None);
    assert_eq!(table.clear_number(number, 1_000), None, "it has expired");
    assert_eq!(table.clear_number(number, 0), Some(true));
    assert_eq!((table.used(), peek(&table, 1, 0), table.clear_number(number, 0)), (0, None, None));
}

/// A sweep visits a held entry at most once in the time that it would stay.
#[test]
fn what_is_held_is_filed_for_as_long_as_it_would_stay() {
    let table = Table::new(spec(Type::Int, 10, 10_000));
    let number =
        with_key(table.spec(), Value::Int(1), |words| table.get_or_make(words, 0).unwrap().into_number())
            .unwrap();
    // The call may visit one entry, and does so only if an entry is due.
    let looks = |now| table.sweep(&mut 0, now, 1);
    assert!(looks(10_100), "it was due");
    assert!(!looks(12_000) && !looks(20_000), "it is filed for later");
    assert!(looks(20_200));
    table.release(number, 20_300);
    assert!(!looks(30_100));
    assert_eq!(table.used(), 1);
    assert!(looks(30_300));
    while table.sweep(&mut 0, 30_400, 1) {}
    assert_eq!(table.used(), 0);
}

#[test]
fn turns_of_an_entry_follow_each_other() {
    let table = Table::new(Spec { turns: true, ..spec(Type::Int, 10, 0) });
    with_key(table.spec(), Value::Int(1), |words| {
        let entry = table.get_or_make(words, 0).unwrap();
        let now = 1_000_000;
        assert_eq!(entry.reserve(true, 500, 100, now), now - 100, "a little of what was is made up for");
        assert_eq!(entry.reserve(true, 500, 100, now), now + 400);
        assert_eq!(entry.reserve(false, 500, 100, now), now - 100, "the other direction is another matter");
        assert_eq!(entry.reserve(true, 500, 100, now + 100), now + 900);
        entry.give_back(true, 400);
        assert_eq!(entry.reserve(true, 500, 100, now + 100), now + 1_000);
        assert_eq!(entry.get(DataType::Gpc0, 0), Some(0), "what it counts lies elsewhere");
    });
    let table = Table::new(spec(Type::Int, 10, 0));
    with_key(table.spec(), Value::Int(1), |words| {
        assert_eq!(table.get_or_make(words, 0).unwrap().reserve(true, 500, 0, 7), 7);
    });
}

/// A byte rate counts blocks, rounded up, and is read as bytes; it holds more than 2^32 of them.
#[test]
fn a_byte_rate_with_a_factor_counts_blocks_of_bytes() {
    let mut spec = Spec { bytes_factor: 1024.try_into().unwrap(), ..spec(Type::Int, 10, 0) };
    let rate = |kind| Data { kind, count: 1, period: 1_000 };
    spec.data = vec![rate(DataType::HttpReqRate), rate(DataType::BytesInRate), rate(DataType::BytesOutRate)];
    let table = Table::new(spec);
    with_key(table.spec(), Value::Int(1), |words| {
        let entry = table.get_or_make(words, 0).unwrap();
        for (bytes, sum) in [(1, 1024), (1024, 2048), (1025, 4096), (1 << 40, 4096 + (1 << 40))] {
            assert_eq!(entry.add(DataType::BytesOutRate, bytes, 0), Some(sum));
            assert_eq!(entry.get(DataType::BytesOutRate, 0), Some(sum));
        }
        entry.set(DataType::BytesInRate, 55, 0);
        assert_eq!(entry.get(DataType::BytesInRate, 0), Some(55 * 1024), "an operator sets blocks");
        assert_eq!(entry.add(DataType::HttpReqRate, 1, 0), Some(1));
    });
}

#[test]
fn texts_of_servers_have_numbers_that_stay_and_there_are_so_many_of_them() {
    let first = server_key("a").unwrap();
    assert_eq!((server_key("a"), server_key_text(first.into())), (Some(first), Some("a")));
    let second = server_key("192.0.2.1:80").unwrap();
    assert_ne!(first, second);
    assert_eq!(server_key_text(second.into()), Some("192.0.2.1:80"));
    assert_eq!((server_key_text(0), server_key_text(u64::MAX), server_key_text(1 << 20)), (None, None, None));
    // Peers leave half of the numbers to the servers of this process.
    let given = (0..2 * MAX_SERVER_KEYS).map_while(|n| peer_server_key(&format!("many {n}"))).count();
    assert_eq!(given, MAX_SERVER_KEYS / 2 - 2);
    assert_eq!((peer_server_key("one more"), peer_server_key("a")), (None, Some(first)));
    let given = (0..2 * MAX_SERVER_KEYS).map_while(|n| server_key(&format!("many {n}"))).count();
    assert_eq!(given, MAX_SERVER_KEYS - 2);
    assert_eq!((server_key("none left"), server_key("a")), (None, Some(first)));
}

#[test]
fn another_server_that_a_peer_tells_of_has_no_name_here() {
    let mut spec = spec(Type::Int, 10, 0);
    let plain = |kind| Data { kind, count: 1, period: 0 };
    spec.data = vec![plain(DataType::ServerId), plain(DataType::ServerKey)];
    let table = Table::new(spec);
    with_key(table.spec(), Value::Int(1), |words| {
        let entry = table.get_or_make(words, 0).unwrap();
        entry.learn(DataType::ServerId, DataValue::Number(1), 0);
        entry.learn(DataType::ServerKey, DataValue::Number(7), 0);
        entry.learn(DataType::ServerId, DataValue::Number(1), 0);
        assert_eq!(entry.get(DataType::ServerKey, 0), Some(7));
        entry.learn(DataType::ServerId, DataValue::Number(2), 0);
        assert_eq!(entry.get(DataType::ServerKey, 0), Some(0));
    });
}

/// What peers tell of has a part of its time behind it.
#[test]
fn an_entry_that_is_made_with_an_earlier_date_goes_on_that_date() {
    let table = Table::new(Spec { nopurge: true, ..spec(Type::Int, 10, 100_000) });
    for key in 0..10 {
        let made = with_key(table.spec(), Value::Int(key), |words| {
            table.get_or_make_until(words, 0, 500).map(|entry| entry.expires_in(0))
        });
        assert_eq!(made, Some(Some(500)));
    }
    assert_eq!(count(&table, 100, 499), None, "the table is full");
    assert_eq!(count(&table, 100, 564), Some(1), "what has expired goes");
    while table.sweep(&mut 0, 1_000, 100) {}
    assert_eq!(table.used(), 1);
}

/// The shard looks at an entry on its first date, or later.
#[test]
fn a_date_is_not_moved_to_an_earlier_one() {
    let table = Table::new(spec(Type::Int, 10, 1_000));
    with_key(table.spec(), Value::Int(7), |words| {
        let entry = table.get_or_make(words, 0).unwrap();
        entry.set_expiry(500);
        assert_eq!(entry.expires_in(0), 1_000);
        entry.set_expiry(2_000);
        assert_eq!(entry.expires_in(0), 2_000);
    });
}
