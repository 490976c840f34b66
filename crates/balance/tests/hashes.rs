//! Algorithms by key: the server that a key finds, and the keys that move when servers come and go (R-G1).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;
use common::*;
use manylane_balance::hash::HashFunction;
use manylane_balance::*;
use manylane_sched::Time;
use manylane_sync::Reader;
use proptest::prelude::*;

fn by_key(b: &Balancer, reader: &Reader, key: &[u8]) -> usize {
    let input = Input { now: Time::ZERO, key: Key::Bytes(key), avoid: None };
    b.pick(reader, &input).unwrap().get()
}

/// The expected servers of the 40 keys are those of a run of HAProxy 3.2.26 with `balance uri`.
#[test]
fn keys_find_the_servers_that_they_find_with_haproxy() {
    let reader = Reader::new();
    let kind = |method, function, avalanche| Algorithm::Hash(HashType { method, function, avalanche });
    use HashFunction::{Crc32, Djb2, Wt6};
    use HashMethod::{Consistent, Map};
    for (algorithm, weights, ids, expected) in [
        (Algorithm::Hash(HashType::MAP), &[1, 1, 1, 1][..], None, "0123012301301230123023012301231230123012"),
        (kind(Map, Wt6, true), &[5, 3, 2], None, "0000111100011000011202010000021020000010"),
        (
            Algorithm::Hash(HashType::CONSISTENT),
            &[1, 1, 1, 1],
            None,
            "0113001120323220320131322030023033203223",
        ),
        (
            Algorithm::Hash(HashType::CONSISTENT),
            &[10, 20, 5],
            None,
            "0012111001200110210111110111011121120212",
        ),
        (
            kind(Consistent, Djb2, false),
            &[3, 1, 2],
            Some([7, 100, 3]),
            "0000000000111111111111111111111111111111",
        ),
        (kind(Consistent, Crc32, true), &[1, 2, 3], None, "2122122000120121022222200222122121212021"),
    ] {
        let spec = |(n, &weight): (usize, &u16)| {
            let id = ids.map_or(n as u32 + 1, |ids| ids[n]);
            ServerSpec { weight, ..ServerSpec::new(format!("s{n}"), id) }
        };
        let servers = Servers::new(weights.iter().enumerate().map(spec)).unwrap();
        let b = Balancer::new(servers, algorithm, Options::default());
        let found: String =
            (0..40).map(|n| by_key(&b, &reader, format!("/key{n}").as_bytes()).to_string()).collect();
        assert_eq!(found, expected, "{algorithm:?} {weights:?}");
    }
}

const BY_KEY: [Algorithm; 3] = [
    Algorithm::Hash(HashType::MAP),
    Algorithm::Hash(HashType::CONSISTENT),
    Algorithm::Maglev(HashType::CONSISTENT),
];

#[test]
fn shares_follow_weights() {
    let reader = Reader::new();
    for (algorithm, tolerance) in BY_KEY.into_iter().zip([0.05, 0.15, 0.05]) {
        let b = balancer(algorithm, &[10, 20, 30, 40]);
        let picked: Vec<usize> = (0..100_000u32)
            .map(|n| by_key(&b, &reader, &HashFunction::Wt6.hash(&n.to_le_bytes()).to_le_bytes()))
            .collect();
        for (count, share) in counts(&picked, 4).into_iter().zip([0.1, 0.2, 0.3, 0.4]) {
            let found = count as f64 / 100_000.0;
            assert!((found / share - 1.0).abs() < tolerance, "{algorithm:?}: {found} of {share}");
        }
    }
}

#[test]
fn only_the_keys_of_a_server_that_goes_move_and_they_come_back() {
    let reader = Reader::new();
    for (algorithm, others) in BY_KEY.into_iter().zip([1.0, 0.0, 0.04]) {
        let b = balancer(algorithm, &[1; 50]);
        let all =
            || -> Vec<usize> { (0..20_000u32).map(|n| by_key(&b, &reader, &n.to_le_bytes())).collect() };
        let before = all();
        b.set_operation(at(&b, 17), Operation::Down, Time::ZERO);
        let without = all();
        b.set_operation(at(&b, 17), Operation::Up, Time::ZERO);
        assert_eq!(all(), before, "{algorithm:?}");
        assert!(!without.contains(&17));
        let kept = before.iter().filter(|&&server| server != 17).count();
        let moved = before.iter().zip(&without).filter(|(b, w)| **b != 17 && b != w).count();
        assert!(moved as f64 <= others * kept as f64, "{algorithm:?}: {moved} of {kept}");
    }
}

#[test]
fn a_busy_server_keeps_its_keys_unless_affinity_is_given_up_or_loads_are_bounded() {
    let reader = Reader::new();
    let options = |affinity, balance_factor| Options { affinity, balance_factor, ..Options::default() };
    let full = |algorithm, options| {
        let specs = (1..=4u32).map(|id| ServerSpec {
            maxconn: 1,
            maxqueue: 1,
            ..ServerSpec::new(format!("s{id}"), id)
        });
        let b = Balancer::new(Servers::new(specs).unwrap(), algorithm, options);
        let own = by_key(&b, &reader, b"key");
        b.take(at(&b, own), Time::ZERO).unwrap();
        (b, own)
    };
    for algorithm in BY_KEY {
        let (b, own) = full(algorithm, options(Affinity::Always, 0));
        assert_eq!(by_key(&b, &reader, b"key"), own);
        let (b, own) = full(algorithm, options(Affinity::MaxConn, 0));
        assert_ne!(by_key(&b, &reader, b"key"), own);
        let (b, own) = full(algorithm, options(Affinity::MaxQueue, 0));
        assert_eq!(by_key(&b, &reader, b"key"), own);
        let waker = std::task::Waker::noop().clone();
        let position = b.enqueue(at(&b, own), Priority::default(), Time::ZERO, waker).unwrap();
        assert_ne!(by_key(&b, &reader, b"key"), own, "its queue is full");
        b.leave(position);
    }
    // 150 % of the average: of 100 requests with one key, no server gets more than 38.
    let b = Balancer::new(
        servers(&[1; 4]),
        Algorithm::Hash(HashType::CONSISTENT),
        options(Affinity::Always, 150),
    );
    let mut loads = [0; 4];
    for _ in 0..100 {
        let server = by_key(&b, &reader, b"one");
        b.take(at(&b, server), Time::ZERO).unwrap();
        loads[server] += 1;
    }
    assert!(loads.iter().all(|&load| load <= 38), "{loads:?}");
    assert_eq!(loads.iter().filter(|&&load| load >= 37).count(), 2, "the first two are filled: {loads:?}");
}

#[test]
fn a_request_without_key_gets_its_turn() {
    let reader = Reader::new();
    for algorithm in BY_KEY {
        let b = balancer(algorithm, &[1, 1, 2]);
        assert_eq!(counts(&picks(&b, &reader, 400), 3), [100, 100, 200], "{algorithm:?}");
    }
}

/// R-G2: each lane takes turns of its own, and all lanes together keep the weights.
#[test]
fn turns_of_many_lanes_together_keep_the_weights() {
    use proptest::prelude::*;
    use std::sync::Barrier;
    // Each case starts threads, so a long run does one in fifty of its cases.
    let requested = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(
        requested.map_or(24, |requested| requested.div_ceil(50)),
    ));
    let cases = (prop::collection::vec(1u16..=20, 1..12), prop::collection::vec(1usize..400, 1..6));
    runner
        .run(&cases, |(weights, lanes)| {
            let b = balancer(Algorithm::RoundRobin, &weights);
            let all_here = Barrier::new(lanes.len());
            let counted: Vec<Vec<usize>> = std::thread::scope(|scope| {
                let threads: Vec<_> = lanes
                    .iter()
                    .map(|&count| {
                        let (b, all_here) = (&b, &all_here);
                        scope.spawn(move || {
                            all_here.wait();
                            let picked = picks(b, &Reader::new(), count);
                            all_here.wait(); // keeps each lane's number until all threads have picked
                            counts(&picked, b.servers().len())
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let total: u32 = weights.iter().map(|&w| u32::from(w)).sum();
            let requests: usize = lanes.iter().sum();
            for (server, &weight) in weights.iter().enumerate() {
                let got: usize = counted.iter().map(|lane| lane[server]).sum();
                let share = requests as f64 * f64::from(weight) / f64::from(total);
                // For each lane, the order is uneven by at most as many turns as there are servers.
                let most = (lanes.len() * (1 + weights.len() / 2).max(2)) as f64;
                prop_assert!((got as f64 - share).abs() <= most, "{got} of {share}: {weights:?} {lanes:?}");
            }
            Ok(())
        })
        .unwrap();
}

/// Returns `usual`, or the number of cases in `PROPTEST_CASES`.
fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    /// Whatever happened before, keys find the same servers as in a balancer that was configured with only
    /// the servers that serve now, at their current weights.
    #[test]
    fn a_ring_after_changes_is_as_one_built_anew(
        weights in prop::collection::vec(0u16..20, 2..40),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u16..=64, 0u8..8), 1..30),
    ) {
        let reader = Reader::new();
        let algorithm = Algorithm::Hash(HashType::CONSISTENT);
        let spec = |(n, weight)| ServerSpec { weight, ..ServerSpec::new(format!("s{n}"), n as u32 + 1) };
        let servers = Servers::new(weights.iter().copied().enumerate().map(spec)).unwrap();
        let b = Balancer::new(servers, algorithm, Options::default());
        for (step, (which, weight, what)) in changes.iter().enumerate() {
            let index = b.servers().index(which.index(weights.len())).unwrap();
            match what {
                0..3 => b.set_weight(index, *weight, Time::ZERO).unwrap(),
                3..5 => b.set_admin(index, Admin::Maintenance, Time::ZERO),
                5..7 => b.set_admin(index, Admin::Ready, Time::ZERO),
                // All other servers go or come, which makes rings with few servers that take part.
                _ => for (other, _) in b.servers().iter().filter(|(other, _)| *other != index) {
                    let to = if weight % 2 == 0 { Admin::Maintenance } else { Admin::Ready };
                    b.set_admin(other, to, Time::ZERO);
                }
            }
            if step % 4 != 0 && step + 1 != changes.len() {
                continue;
            }
            let there = b.servers().iter().filter(|(_, server)| server.state().is_usable());
            let there: Vec<_> = there.map(|(index, s)| (index.get(), s.state().weight())).collect();
            let anew = Servers::new(there.iter().copied().map(spec)).unwrap();
            let anew = Balancer::new(anew, algorithm, Options::default());
            for n in 0..100u32 {
                let key = n.to_le_bytes();
                let input = Input { now: Time::ZERO, key: Key::Bytes(&key), avoid: None };
                let expected = anew.pick(&reader, &input).map(|found| there[found.get()].0);
                prop_assert_eq!(b.pick(&reader, &input).map(Index::get), expected);
            }
        }
    }
}
