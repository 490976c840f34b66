//! Measures, on one lane, the nanoseconds of one request (pick, take, release) by algorithm and number of
//! servers; and of one change of a server's state among 1,000 servers, with equal weights and with 256
//! different ones. Prints the least of many samples.
//!
//! `cargo run --release -p manylane-balance --example measure`

use manylane_balance::{Admin, Algorithm, Balancer, HashType, Input, Key, Options, ServerSpec, Servers};
use manylane_sched::Time;
use manylane_sync::{Reader, qsbr};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let mut reader = Reader::new();
    println!(
        "{:<22}{:>8}{:>8}{:>14}{:>16}{:>16}",
        "ns a request", 1, 500, "500, maxconn", "a change, 1000", "of 256 weights"
    );
    for (name, algorithm) in [
        ("roundrobin", Algorithm::RoundRobin),
        ("static-rr", Algorithm::StaticRr),
        ("leastconn", Algorithm::LeastConn),
        ("first", Algorithm::First),
        ("random(2)", Algorithm::Random { draws: 2 }),
        ("ewma(2)", Algorithm::Ewma { draws: 2 }),
        ("hash, map-based", Algorithm::Hash(HashType::MAP)),
        ("hash, consistent", Algorithm::Hash(HashType::CONSISTENT)),
        ("maglev", Algorithm::Maglev(HashType::MAP)),
    ] {
        let mut change = |weight: fn(u32) -> u16| {
            let spec = |id| ServerSpec { weight: weight(id), ..ServerSpec::new(format!("s{id}"), id) };
            let servers = Servers::new((1..=1000).map(spec)).expect("names and ids differ");
            let b = Balancer::new(servers, algorithm, Options::default());
            let mut sample = |n: usize| {
                let index = b.servers().index(n * 37 % 1000).expect("there are as many");
                let begin = Instant::now();
                b.set_admin(index, Admin::Maintenance, Time::ZERO);
                let took = begin.elapsed().as_nanos() as f64;
                b.set_admin(index, Admin::Ready, Time::ZERO);
                reader.quiescent();
                qsbr::reclaim();
                took
            };
            (0..300).map(&mut sample).fold(f64::MAX, f64::min)
        };
        let (equal, unequal) = (change(|_| 10), change(|id| (id % 256 + 1) as u16));
        let best = |servers: u32, maxconn: u32| {
            let spec = |id| ServerSpec { weight: 10, maxconn, ..ServerSpec::new(format!("s{id}"), id) };
            let servers = Servers::new((1..=servers).map(spec)).expect("names and ids differ");
            let b = Balancer::new(servers, algorithm, Options::default());
            let mut key = 0u64;
            let mut sample = || {
                const REQUESTS: u32 = 2000;
                let begin = Instant::now();
                for _ in 0..REQUESTS {
                    key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let now = Time::from_millis(1_000_000 + (key >> 60));
                    let input = Input { now, key: Key::Bytes(&key.to_le_bytes()), avoid: None };
                    let index = b.pick(&reader, black_box(&input)).expect("there is room");
                    b.take(index, now).expect("there is room");
                    b.release(index);
                }
                begin.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
            };
            (0..300).map(|_| sample()).fold(f64::MAX, f64::min)
        };
        let (one, many, limited) = (best(1, 0), best(500, 0), best(500, 1000));
        println!("{name:<22}{one:>8.1}{many:>8.1}{limited:>14.1}{equal:>16.0}{unequal:>16.0}");
    }
}
