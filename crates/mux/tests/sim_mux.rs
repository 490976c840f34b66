//! Budgets of cache-line transfers, on the virtual multiprocessor. Figures are simulated.
#![cfg(manylane_sim)]
#![allow(clippy::unwrap_used)] // helpers of tests, too

use manylane_buf::Chain;
use manylane_http::{Head, Known, Version};
use manylane_mux::h2::{Config, Mux, Received, ResponseHead, Stream};
use manylane_sched::{Config as LaneConfig, Lane, Time};
use manylane_sim::{Report, Simulation, Topology};
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::relax;
use std::task::{Context, Poll, Waker};

const CORES: [usize; 4] = [1, 8, 32, 96];

fn carry(context: &Context<'_>, from: &Mux, to: &Mux, mut begin: impl FnMut(Stream)) {
    let mut wire = Chain::new();
    if let Poll::Ready(last) = from.poll_output(context, &mut wire) {
        assert!(!last.unwrap());
    }
    from.set_unwritten(0);
    to.input(&mut wire, &mut |stream, _| begin(stream)).unwrap();
}

fn ready<T>(poll: Poll<T>) -> T {
    let Poll::Ready(value) = poll else { panic!("it waits") };
    value
}

/// Runs a request with `bytes` of data and its response, which has the same data.
fn exchange(context: &Context<'_>, client: &Mux, server: &Mux, bytes: usize) {
    let mut head = Head::request(b"POST", b"/a", Version::HTTP_11).unwrap();
    head.add_field(Known::HOST, b"a.example").unwrap();
    let stream = client.begin(&head, b"http", None, false).unwrap();
    let mut data = Chain::new();
    data.append(&[b'x'; 3_000][..bytes]).unwrap();
    ready(stream.poll_send(context, &mut data, true)).unwrap();
    let mut served = None;
    carry(context, client, server, |stream| served = Some(stream));
    let peer = served.unwrap();
    let mut got = Chain::new();
    while !matches!(ready(peer.poll_recv(context, &mut got, usize::MAX)).unwrap(), Received::End) {}
    peer.consume(got.len());
    peer.send_head(&Head::response(Version::HTTP_2, 200, None).unwrap(), false).unwrap();
    ready(peer.poll_send(context, &mut got, true)).unwrap();
    drop(peer);
    carry(context, server, client, |_| {});
    assert!(matches!(ready(stream.poll_head(context)).unwrap(), ResponseHead::Final { .. }));
    while !matches!(ready(stream.poll_recv(context, &mut got, usize::MAX)).unwrap(), Received::End) {}
    stream.consume(got.len());
    assert_eq!(got.len(), bytes);
}

/// Each core has both ends of a connection of its own.
fn own_connections(cores: usize, bytes: usize) -> Report {
    let setup = || AtomicU32::new(0);
    Simulation::new(Topology::two_sockets_24x2()).cores(cores).run(setup, |met, worker| {
        let lane = Lane::new(LaneConfig::new().clock(|| Time::ZERO)).unwrap();
        let context = Context::from_waker(Waker::noop());
        let client = Mux::client(Config::default(), lane.here()).unwrap();
        let server = Mux::server(Config::default(), lane.here()).unwrap();
        // One cluster of each size is held, so that the lane has filled its caches from the pools.
        let _held = manylane_buf::CLUSTER_SIZES.map(manylane_buf::Cluster::alloc);
        (0..100).for_each(|_| exchange(&context, &client, &server, bytes));
        met.fetch_add(1, Ordering::AcqRel);
        while (met.load(Ordering::Acquire) as usize) < worker.threads() {
            relax();
        }
        worker.measure(5, 50, |_| exchange(&context, &client, &server, bytes));
    })
}

/// A stream moves no line from its request to the end of its response, whatever other lanes do.
#[test]
fn a_stream_moves_no_line() {
    for bytes in [1, 3_000] {
        for cores in CORES {
            let report = own_connections(cores, bytes);
            assert_eq!(report.transfers.total(), 0, "{bytes} bytes, {cores} cores\n{report}");
        }
    }
}
