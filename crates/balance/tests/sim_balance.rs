//! Transfers of cache lines by picks and limits, on the virtual multiprocessor (R-G2). Figures are simulated.
#![cfg(manylane_sim)]

use manylane_balance::{
    Algorithm, Balancer, HashType, IdleLimits, IdlePool, IdlePools, Input, Key, NoPick, Options, Priority,
    ServerSpec, Servers,
};
use manylane_sched::Time;
use manylane_sim::{Report, Simulation, Topology, Worker};
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::{Arc, Reader, relax};
use std::cell::RefCell;
use std::collections::VecDeque;

struct Backend {
    balancer: Balancer,
    idle_pools: Arc<IdlePools>,
    met: AtomicU32,
}

fn backend(algorithm: Algorithm, servers: u32, maxconn: u32) -> Backend {
    let spec = |id| ServerSpec { maxconn, ..ServerSpec::new(format!("s{id}"), id) };
    let servers = Servers::new((1..=servers).map(spec)).expect("names and ids differ");
    let idle_pools = Arc::new(IdlePools::new(servers.iter().map(|_| IdleLimits::default())));
    let options = Options { lanes: 96, ..Options::default() };
    Backend { balancer: Balancer::new(servers, algorithm, options), idle_pools, met: AtomicU32::new(0) }
}

fn meet(backend: &Backend, worker: &Worker) {
    backend.met.fetch_add(1, Ordering::AcqRel);
    while (backend.met.load(Ordering::Acquire) as usize) < worker.threads() {
        relax();
    }
}

const REQUESTS: u64 = 400;

/// Every lane begins and ends requests, `per_ms` of them in a millisecond of the lane's clock.
fn requests(cores: usize, algorithm: Algorithm, servers: u32, maxconn: u32, per_ms: u64) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(
        move || backend(algorithm, servers, maxconn),
        move |backend, worker| {
            let reader = Reader::new();
            let b = &backend.balancer;
            let one = |n: u64| {
                let now = Time::from_millis(1_000_000 + n / per_ms);
                let key = (n * 7919).to_le_bytes();
                let input = Input { now, key: Key::Bytes(&key), avoid: None };
                let Ok(index) = b.pick(&reader, &input) else { panic!("there is room") };
                b.take(index, now).expect("there is room");
                b.release(index);
            };
            one(0);
            meet(backend, worker);
            worker.measure(5, REQUESTS, one);
        },
    )
}

fn each(report: &Report, cores: usize) -> f64 {
    report.transfers.total() as f64 / (cores as u64 * REQUESTS) as f64
}

/// R-G2: a pick writes no shared line, nor does a request on a server without a limit, and no lock is taken.
#[test]
fn a_request_to_a_server_without_a_limit_moves_no_line_whatever_the_algorithm() {
    for algorithm in [
        Algorithm::RoundRobin,
        Algorithm::StaticRr,
        Algorithm::First,
        Algorithm::Hash(HashType::MAP),
        Algorithm::Hash(HashType::CONSISTENT),
        Algorithm::Maglev(HashType::MAP),
    ] {
        for cores in [1, 8, 64] {
            let report = requests(cores, algorithm, 500, 0, 100);
            assert_eq!(report.transfers.total(), 0, "{algorithm:?}, {cores} cores\n{report}");
            assert_eq!(report.locked, 0, "{algorithm:?}, {cores} cores\n{report}");
        }
    }
}

/// R-G2: algorithms by load. A lane reads the loads of the others once a millisecond, so its cost for a
/// request falls with the number of requests in a millisecond. No lock, no locked instruction.
#[test]
fn looking_at_the_other_lanes_loads_costs_a_line_of_each_lane_a_millisecond() {
    for algorithm in [Algorithm::LeastConn, Algorithm::Random { draws: 2 }, Algorithm::Ewma { draws: 2 }] {
        for cores in [1, 8, 64] {
            let per_ms = 100;
            let report = requests(cores, algorithm, 500, 0, per_ms);
            // Each look reads a line of each other lane, and each of these lanes gets its line back at its
            // next write; a block is 2 lines of 64 bytes.
            let looks = (REQUESTS / per_ms + 1) as f64;
            let most = looks * 4.0 * (cores - 1) as f64 / REQUESTS as f64;
            assert!(
                each(&report, cores) <= most,
                "{algorithm:?}, {cores} cores: {} > {most}\n{report}",
                each(&report, cores)
            );
            assert_eq!(report.locked, 0, "{algorithm:?}, {cores} cores\n{report}");
        }
    }
}

/// R-G2: a limit is counted on a line of the server. Spread over 500 servers, throughput does not collapse
/// with 64 cores.
#[test]
fn limits_cost_the_servers_own_line_and_64_cores_do_more_than_8() {
    let rate = |cores| {
        let report = requests(cores, Algorithm::RoundRobin, 500, 1000, 100);
        let each = each(&report, cores);
        assert!(each <= 6.0, "{cores} cores: {each} transfers\n{report}");
        report.operations_per_second()
    };
    let (eight, many) = (rate(8), rate(64));
    assert!(many > 3.5 * eight, "8 cores {eight:.0}/s, 64 cores {many:.0}/s");
}

/// R-G5: a lane takes and puts connections of its own idle pool without any other lane.
#[test]
fn idle_connections_of_the_own_lane_move_no_line() {
    for cores in [1, 8, 64] {
        let report = Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(
            || backend(Algorithm::RoundRobin, 500, 0),
            |backend, worker| {
                let server = backend.balancer.servers().index(7).expect("there are 500");
                let idle_pool = RefCell::new(IdlePool::new(backend.idle_pools.clone()));
                let now = Time::from_millis(1);
                idle_pool.borrow_mut().put(server, 1, 0u64, now).expect("no limit");
                meet(backend, worker);
                worker.measure(5, REQUESTS, |_| {
                    let mut idle_pool = idle_pool.borrow_mut();
                    let connection = idle_pool.take(1).expect("it lies there");
                    idle_pool.put(server, 1, connection, now).expect("no limit");
                });
                meet(backend, worker); // the idle pools are dropped when all lanes have measured
            },
        );
        assert_eq!(report.transfers.total(), 0, "{cores} cores\n{report}");
        assert_eq!(report.locked, 0, "{cores} cores\n{report}");
    }
}

/// One server is at its limit and all lanes queue for it: what is left is the cost of the queue, and it does
/// not grow without bound.
#[test]
fn permits_are_handed_over_when_all_lanes_queue_for_one_server() {
    for cores in [8, 64] {
        let report = Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(
            || backend(Algorithm::RoundRobin, 1, 4),
            |backend, worker| {
                let reader = Reader::new();
                let b = &backend.balancer;
                let now = Time::from_millis(1);
                meet(backend, worker);
                worker.measure(2, 50, |_| {
                    let index = match b.pick(&reader, &Input::new(now)) {
                        Ok(index) if b.take(index, now).is_ok() => index,
                        Ok(_) | Err(NoPick::AllFull) => {
                            let mut position =
                                b.enqueue_any(Priority::default(), now, std::task::Waker::noop().clone());
                            loop {
                                match b.poll(position, std::task::Waker::noop().clone()) {
                                    manylane_balance::QueueState::Waiting(still) => position = still,
                                    manylane_balance::QueueState::Granted(index, _) => break index,
                                    manylane_balance::QueueState::Elsewhere => panic!("it is up"),
                                }
                                relax();
                            }
                        }
                        Err(NoPick::NoneUsable) => panic!("it is up"),
                    };
                    b.release(index);
                });
            },
        );
        assert!(report.operations == cores as u64 * 50, "{report}");
    }
}

/// Every lane has up to nine requests at work.
fn held(cores: usize, algorithm: Algorithm, servers: u32, maxconn: u32) -> Report {
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(
        move || backend(algorithm, servers, maxconn),
        move |backend, worker| {
            let reader = Reader::new();
            let b = &backend.balancer;
            let held = RefCell::new(VecDeque::new());
            let one = |n: u64| {
                let now = Time::from_millis(1_000_000 + n / 100);
                let index = loop {
                    let picked = b.pick(&reader, &Input::new(now));
                    if let Some(index) = picked.ok().filter(|&index| b.take(index, now).is_ok()) {
                        break index;
                    }
                    relax(); // another lane was faster
                };
                let mut held = held.borrow_mut();
                held.push_back(index);
                if held.len() > 8 {
                    held.pop_front().into_iter().for_each(|index| b.release(index));
                }
            };
            one(0);
            meet(backend, worker);
            worker.measure(5, REQUESTS, one);
        },
    )
}

/// R-G2: algorithms by load and by order do not collapse with limits either, whether servers are at their
/// limits or far from them.
#[test]
fn with_requests_at_work_and_limits_64_cores_do_more_than_8() {
    for algorithm in [Algorithm::First, Algorithm::LeastConn] {
        for maxconn in [16, 1000] {
            let rate = |cores| {
                let report = held(cores, algorithm, 500, maxconn);
                let each = each(&report, cores);
                assert!(each <= 14.0, "{algorithm:?}, {cores} cores: {each} transfers\n{report}");
                report.operations_per_second()
            };
            let (eight, many) = (rate(8), rate(64));
            let rates =
                format!("{algorithm:?} with maxconn {maxconn}: 8 cores {eight:.0}/s, 64 cores {many:.0}/s");
            assert!(many > 1.8 * eight, "{rates}");
        }
    }
}
