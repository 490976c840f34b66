//! Rates compared with a plain model: a list of periods, as HAProxy's manual defines them.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_expr::{DataType, Type, Value};
use manylane_stick::{Data, Spec, Table, with_key};
use proptest::prelude::*;

mod common;

const PERIOD: u32 = 1_000;

/// The current period's start and events, and the events of the previous one.
#[derive(Clone, Copy, Default)]
struct Model {
    since: u64,
    events: u64,
    before: u64,
}

impl Model {
    fn advanced(self, now: u64) -> Self {
        let period = u64::from(PERIOD);
        match (now - self.since) / period {
            0 => self,
            1 => Self { since: self.since + period, events: 0, before: self.events },
            _ => Self { since: now, events: 0, before: 0 },
        }
    }

    fn rate(self, now: u64) -> u64 {
        let Self { since, events, before } = self.advanced(now);
        if events == 0 && before <= 1 {
            return before; // a single event is shown in full
        }
        let left = u64::from(PERIOD) - (now - since);
        events + before * left / u64::from(PERIOD)
    }
}

fn table() -> Table {
    let data = vec![Data { kind: DataType::GpcRate, count: 2, period: PERIOD }];
    Table::new(Spec { nopurge: true, ..common::spec(Type::Int, 4, 0, data) })
}

proptest! {
    #[test]
    fn rates_are_those_of_a_model(
        steps in prop::collection::vec((0u64..2_500, 0u32..50, any::<bool>()), 1..200),
        start in prop_oneof![Just(0u64), Just(u64::from(u32::MAX) - 3_000)],
    ) {
        let table = table();
        with_key(table.spec(), Value::Int(0), |key| {
            let mut now = start;
            let entry = table.get_or_make(key, now).expect("there is room");
            let datum = manylane_expr::Datum { data: DataType::GpcRate, index: 1 };
            let mut model = Model { since: now, ..Model::default() };
            for (later, events, is_short) in steps {
                now += if is_short { later / 50 } else { later };
                if events % 3 > 0 {
                    entry.add(datum, u64::from(events), now);
                    model = model.advanced(now);
                    model.events += u64::from(events);
                }
                assert_eq!(entry.get(datum, now), Some(model.rate(now)), "at {now}");
                let other = manylane_expr::Datum { data: DataType::GpcRate, index: 0 };
                assert_eq!(entry.get(other, now), Some(0));
            }
        });
    }

    /// Evenly spaced events have their own rate, give or take one.
    #[test]
    fn a_steady_stream_has_its_own_rate(every in 1u64..500, periods in 2u64..6) {
        let table = table();
        with_key(table.spec(), Value::Int(0), |key| {
            let entry = table.get_or_make(key, 0).expect("there is room");
            let end = periods * u64::from(PERIOD);
            (0..end).step_by(every as usize).for_each(|now| _ = entry.add(DataType::GpcRate, 1, now));
            let rate = entry.get(DataType::GpcRate, end).expect("it is kept") as i64;
            let expected = i64::from(PERIOD) / every as i64;
            assert!((rate - expected).abs() <= 1, "{rate} beside {expected}");
        });
    }
}

#[test]
fn what_is_set_is_the_rate_and_decays() {
    let table = table();
    with_key(table.spec(), Value::Int(0), |key| {
        let entry = table.get_or_make(key, 5_000).expect("there is room");
        assert!(entry.set(DataType::GpcRate, 100, 5_000));
        assert_eq!(entry.get(DataType::GpcRate, 5_000), Some(100));
        assert_eq!(entry.get(DataType::GpcRate, 5_500), Some(100));
        assert_eq!(entry.get(DataType::GpcRate, 6_500), Some(50));
        assert_eq!(entry.get(DataType::GpcRate, 7_000), Some(0));
    });
}

#[test]
fn a_rate_that_nobody_adds_to_for_weeks_is_zero() {
    const DAY: u64 = 24 * 60 * 60 * 1_000;
    for days in [1, 24, 25, 26, 40, 49] {
        for start in [5_000, u64::from(u32::MAX) - DAY] {
            let table = table();
            with_key(table.spec(), Value::Int(0), |key| {
                let entry = table.get_or_make(key, start).expect("there is room");
                assert_eq!(entry.add(DataType::GpcRate, 100, start), Some(100));
                let now = start + days * DAY;
                assert_eq!(entry.get(DataType::GpcRate, now), Some(0), "after {days} days");
                assert_eq!(entry.add(DataType::GpcRate, 7, now), Some(7));
                assert_eq!(entry.get(DataType::GpcRate, now), Some(7), "after {days} days");
            });
        }
    }
}
