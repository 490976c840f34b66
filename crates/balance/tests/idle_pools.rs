//! Idle connections: the ones that are taken, kept and closed (R-G5).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

use manylane_balance::*;
use manylane_sched::Time;
use manylane_sync::{Arc, lane};
use proptest::prelude::*;
use std::rc::Rc;
use std::time::Duration;

fn servers(count: u32) -> Vec<Index> {
    let servers = Servers::new((1..=count).map(|n| ServerSpec::new(format!("s{n}"), n))).unwrap();
    (0..count as usize).map(|n| servers.index(n).unwrap()).collect()
}

fn idle_pools(limits: IdleLimits, count: u32) -> Arc<IdlePools> {
    Arc::new(IdlePools::new((0..count).map(|_| limits)))
}

const NOW: Time = Time::from_millis(1);

#[test]
fn the_connection_that_came_last_is_taken_first_and_only_with_its_key() {
    let s = servers(2);
    let mut idle_pool = IdlePool::new(idle_pools(IdleLimits::default(), 2));
    for (n, key) in [(1, 7), (2, 7), (3, 8)] {
        idle_pool.put(s[0], key, Rc::new(n), NOW).unwrap();
    }
    assert_eq!(idle_pool.take(7).as_deref(), Some(&2));
    assert_eq!(idle_pool.take(7).as_deref(), Some(&1));
    assert_eq!(idle_pool.take(7), None);
    assert_eq!((idle_pool.len(s[0]), idle_pool.len(s[1])), (1, 0));
    assert_eq!(idle_pool.take(8).as_deref(), Some(&3));
    assert!(idle_pool.is_empty());
}

#[test]
fn half_of_what_nobody_needed_is_closed_each_delay() {
    let s = servers(1);
    let mut idle_pool = IdlePool::new(idle_pools(IdleLimits::default(), 1));
    for n in 0..8 {
        idle_pool.put(s[0], n % 2, n, NOW).unwrap();
    }
    let at = |seconds| NOW + Duration::from_secs(seconds);
    assert_eq!(idle_pool.purge(at(1)), Some(at(5)));
    assert_eq!(idle_pool.purge(at(5)), Some(at(10)));
    assert_eq!(idle_pool.len(s[0]), 8, "they lay less than the delay");
    let three = [1, 0, 1].map(|key| (key, idle_pool.take(key).unwrap()));
    for (key, connection) in three {
        idle_pool.put(s[0], key, connection, at(6)).unwrap();
    }
    idle_pool.purge(at(10));
    assert_eq!(idle_pool.len(s[0]), 5, "five were never needed: three of them go");
    for (second, left) in [(15, 2), (20, 1), (25, 0)] {
        let next = idle_pool.purge(at(second));
        assert_eq!((idle_pool.len(s[0]), next.is_some()), (left, left > 0));
    }
}

#[test]
fn what_is_of_no_use_is_swept_and_room_is_made_where_most_lie() {
    let s = servers(2);
    let idle_pools = idle_pools(IdleLimits::default(), 2);
    let mut idle_pool = IdlePool::new(idle_pools.clone());
    for n in 0..7 {
        idle_pool.put(s[usize::from(n < 2)], n % 2, n, NOW).unwrap();
    }
    idle_pool.sweep(|n| *n != 3 && *n != 1);
    assert_eq!((idle_pool.total(), idle_pool.len(s[0]), idle_pools.idle(s[1])), (5, 4, 1));
    assert!(idle_pool.close_one());
    assert_eq!(
        (idle_pool.total(), idle_pool.len(s[0]), idle_pool.take_oldest(s[0]).map(|(_, idle)| idle)),
        (4, 3, Some(4)),
        "the oldest went"
    );
    idle_pool.sweep(|_| false);
    assert!(idle_pool.is_empty() && !idle_pool.close_one());
}

#[test]
fn an_idle_pool_that_goes_empty_says_nothing_of_the_one_that_replaced_it() {
    let s = servers(1);
    let idle_pools = idle_pools(IdleLimits::default(), 1);
    let (before, mut after) = (IdlePool::<()>::new(idle_pools.clone()), IdlePool::new(idle_pools.clone()));
    after.put(s[0], 0, (), NOW).unwrap();
    drop(before);
    assert_eq!(idle_pools.idle(s[0]), 1);
    drop(after);
    assert_eq!(idle_pools.idle(s[0]), 0, "its own go with it");
}

#[test]
fn two_idle_pools_of_a_lane_tell_what_lies_in_both() {
    let s = servers(1);
    let idle_pools = idle_pools(IdleLimits::default(), 1);
    let (mut before, mut after) = (IdlePool::new(idle_pools.clone()), IdlePool::new(idle_pools.clone()));
    before.put(s[0], 7, (), NOW).unwrap();
    after.put(s[0], 0, (), NOW).unwrap();
    assert_eq!(idle_pools.idle(s[0]), 2);
    before.sweep(|()| false);
    assert_eq!(idle_pools.idle(s[0]), 1);
    before.put(s[0], 7, (), NOW).unwrap();
    after.take(0).unwrap();
    assert_eq!(idle_pools.idle(s[0]), 1);
    drop(before);
    assert_eq!(idle_pools.idle(s[0]), 0);
}

#[test]
fn limits_refuse_connections_that_are_too_many_or_not_to_be_kept() {
    let s = servers(1);
    let mut idle_pool = IdlePool::new(idle_pools(IdleLimits { most: Some(2), ..IdleLimits::default() }, 1));
    for n in 0..2 {
        idle_pool.put(s[0], 0, n, NOW).unwrap();
    }
    assert_eq!(idle_pool.put(s[0], 0, 5, NOW), Err(5));
    let mut none =
        IdlePool::new(idle_pools(IdleLimits { purge: Duration::ZERO, ..IdleLimits::default() }, 1));
    assert_eq!(none.put(s[0], 0, 6, NOW), Err(6));
}

#[test]
fn only_lanes_that_have_more_than_they_want_to_keep_are_asked() {
    let s = servers(2);
    let limits = IdleLimits { low: 1, ..IdleLimits::default() };
    let idle_pools = idle_pools(limits, 2);
    let mut own = IdlePool::new(idle_pools.clone());
    own.put(s[0], 0, (), NOW).unwrap();
    own.put(s[0], 0, (), NOW).unwrap();
    assert_eq!(idle_pools.ask(s[0], 3), None, "never the own lane");
    let here = lane::current();
    // The threads are joined, because ThreadSanitizer does not see the order that the end of a scope makes.
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            for start in 0..5 {
                assert_eq!(idle_pools.ask(s[0], start), Some(here));
                assert_eq!(idle_pools.ask(s[1], start), None);
            }
            assert_eq!(idle_pools.idle(s[0]), 2);
        });
        asks.join().unwrap();
    });
    own.take(0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(idle_pools.ask(s[0], 0), None, "one is kept")).join().unwrap();
    });
    drop(own);
    assert_eq!(idle_pools.idle(s[0]), 0, "an idle pool that is gone has nothing");
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u64),
    Take(u64),
    Oldest(usize),
}

proptest! {
    /// Compares the pool with a list that is searched from end to end.
    #[test]
    fn an_idle_pool_is_a_pile_for_each_key(steps in prop::collection::vec(prop_oneof![
        3 => (0usize..3, 0u64..4).prop_map(|(s, k)| Step::Put(s, k)),
        2 => (0u64..12).prop_map(Step::Take),
        1 => (0usize..3).prop_map(Step::Oldest),
    ], 0..200)) {
        let s = servers(3);
        let idle_pools = idle_pools(IdleLimits::default(), 3);
        let mut idle_pool = IdlePool::new(idle_pools.clone());
        let mut model: Vec<(usize, u64, usize)> = Vec::new(); // server, key, connection
        let mut connections = 0;
        for step in steps {
            match step {
                Step::Put(server, key) => {
                    let key = key * 3 + server as u64;
                    idle_pool.put(s[server], key, connections, NOW).unwrap();
                    model.push((server, key, connections));
                    connections += 1;
                }
                Step::Take(key) => {
                    let found = model.iter().rposition(|m| m.1 == key).map(|at| model.remove(at).2);
                    prop_assert_eq!(idle_pool.take(key), found);
                }
                Step::Oldest(server) => {
                    let found = model.iter().position(|m| m.0 == server).map(|at| model.remove(at).2);
                    prop_assert_eq!(idle_pool.take_oldest(s[server]).map(|(_, idle)| idle), found);
                }
            }
            for (server, &index) in s.iter().enumerate() {
                let count = model.iter().filter(|m| m.0 == server).count();
                prop_assert_eq!(idle_pool.len(index) as usize, count);
                prop_assert_eq!(idle_pools.idle(index) as usize, count);
            }
        }
    }
}

#[test]
fn who_gave_a_connection_away_does_not_ask_for_one_until_the_purge_delay_has_passed() {
    let s = servers(2);
    let mut idle_pool = IdlePool::<()>::new(idle_pools(IdleLimits::default(), 2));
    let at = |seconds| NOW + Duration::from_secs(seconds);
    assert!(!idle_pool.has_given(s[0], NOW));
    idle_pool.gave(s[0], at(1));
    assert_eq!(
        [1, 5, 6, 7].map(|seconds| idle_pool.has_given(s[0], at(seconds))),
        [true, true, false, false]
    );
    assert!(!idle_pool.has_given(s[1], at(1)), "another server");
}
