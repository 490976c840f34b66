//! Helpers shared by the tests of this crate.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use manylane_balance::*;
use manylane_sched::Time;
use manylane_sync::Reader;

pub const WITHOUT_KEY: [Algorithm; 6] = [
    Algorithm::RoundRobin,
    Algorithm::StaticRr,
    Algorithm::LeastConn,
    Algorithm::First,
    Algorithm::Random { draws: 2 },
    Algorithm::Ewma { draws: 2 },
];

pub fn servers(weights: &[u16]) -> Servers {
    let spec =
        |(n, &weight): (usize, &u16)| ServerSpec { weight, ..ServerSpec::new(format!("s{n}"), n as u32 + 1) };
    Servers::new(weights.iter().enumerate().map(spec)).unwrap()
}

pub fn balancer(algorithm: Algorithm, weights: &[u16]) -> Balancer {
    Balancer::new(servers(weights), algorithm, Options::default())
}

pub fn at(b: &Balancer, number: usize) -> Index {
    b.servers().index(number).unwrap()
}

/// Picks without beginning a request.
pub fn picks(b: &Balancer, reader: &Reader, count: usize) -> Vec<usize> {
    (0..count).map(|_| b.pick(reader, &Input::new(Time::ZERO)).unwrap().get()).collect()
}

/// Picks and begins a request each time, which does not end.
pub fn picks_held(b: &Balancer, reader: &Reader, count: usize) -> Vec<usize> {
    let one = |_| {
        let index = b.pick(reader, &Input::new(Time::ZERO)).unwrap();
        b.take(index, Time::ZERO).unwrap();
        index.get()
    };
    (0..count).map(one).collect()
}

pub fn counts(picked: &[usize], servers: usize) -> Vec<usize> {
    let mut counts = vec![0; servers];
    picked.iter().for_each(|&p| counts[p] += 1);
    counts
}
