//! Budgets in line transfers, on the virtual multiprocessor. Figures are simulated.
#![cfg(manylane_sim)]

use manylane_local::{Kind, Socket};
use manylane_sim::{Report, Simulation, Topology, Worker};
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::relax;

const CORES: [usize; 4] = [1, 8, 32, 96];

/// Each core sends into a pair of its own and receives from it.
fn own_pairs(cores: usize, kind: Kind, bytes: usize) -> Report {
    let exchange = move |a: &Socket, b: &Socket| {
        let mut buffer = [0; 512];
        assert!(a.send(&[7; 512][..bytes]).is_ok());
        assert!(matches!(b.recv(&mut buffer), Ok(n) if n == bytes));
    };
    let setup = || {
        let (a, b) = Socket::pair(kind);
        exchange(&a, &b); // statics and pools
        AtomicU32::new(0)
    };
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(setup, |ready, worker: &Worker| {
        let (a, b) = Socket::pair(kind);
        // Holds one cluster of each size, so that the lane has used the pools for more than it needs, and
        // takes many: from then on its caches suffice. Otherwise a few tens of transfers remain in 28,800
        // exchanges of 100 bytes on 96 cores, all in `Cluster::alloc`: a lane with an empty cache searches
        // the other lanes' surpluses before it uses the allocator.
        let _held = manylane_buf::CLUSTER_SIZES.map(manylane_buf::Cluster::alloc);
        (0..if kind == Kind::Stream { 6200 } else { 300 }).for_each(|_| exchange(&a, &b));
        ready.fetch_add(1, Ordering::AcqRel);
        while (ready.load(Ordering::Acquire) as usize) < worker.threads() {
            relax();
        }
        worker.measure(5, 300, |_| exchange(&a, &b));
    })
}

/// R-A2: a pair that one lane uses moves no line, regardless of the other lanes.
#[test]
fn sending_and_receiving_on_an_own_pair_moves_no_line() {
    for (kind, bytes) in [(Kind::Stream, 1), (Kind::Stream, 100), (Kind::SeqPacket, 64), (Kind::Datagram, 64)]
    {
        for cores in CORES {
            let report = own_pairs(cores, kind, bytes);
            assert_eq!(report.transfers.total(), 0, "{kind:?}, {bytes} bytes, {cores} cores\n{report}");
        }
    }
}

/// The two locks of the data path: one for the send, one for the receive, each with two locked instructions.
#[test]
fn a_stream_takes_one_lock_to_send_and_one_to_receive() {
    let report = own_pairs(8, Kind::Stream, 1);
    let each = report.locked as f64 / report.operations as f64;
    println!("{each} locked instructions an exchange");
    assert!((4.0..4.1).contains(&each), "{report}"); // now and then a new cluster
}

/// Pairs are created and closed in the lane's own list.
#[test]
fn making_and_closing_a_pair_moves_no_line_but_that_of_the_allocator() {
    for cores in CORES {
        let setup = || {
            drop(Socket::pair(Kind::Stream));
            AtomicU32::new(0)
        };
        let report =
            Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(setup, |ready, worker| {
                (0..10).for_each(|_| drop(Socket::pair(Kind::Stream)));
                ready.fetch_add(1, Ordering::AcqRel);
                while (ready.load(Ordering::Acquire) as usize) < worker.threads() {
                    relax();
                }
                worker.measure(5, 100, |_| drop(Socket::pair(Kind::Stream)));
            });
        let each = report.transfers.total() as f64 / (100 * cores) as f64;
        assert!(each < 0.1, "{cores} cores: {each} transfers a pair\n{report}");
    }
}
