//! Memory that connections hold whose peers read slowly or not at all. This test has a process of its own,
//! because the pools' counts are those of the process; so each test covers both drivers.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../h1/tests/common/mod.rs"]
mod pieces;

use common::*;
use manylane_buf::{CLUSTER_SIZES, Chain, Cluster, MAX_CLUSTER};
use manylane_io::Io;
use manylane_local::{DEFAULT_LIMIT, Kind, Socket};
use manylane_mux::h2::{Config, ConnTimeouts, Incoming, Stream};
use manylane_net::{Connection, LocalStream};
use manylane_sched::Here;
use pieces::{cuts, received};
use proptest::prelude::*;
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

const CONNECTIONS: usize = 64;
const STREAMS: usize = 100;

/// The pools' counts are those of the process, so only one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of clusters in use, and their bytes.
fn clusters() -> (u64, usize) {
    let mut sum = (0, 0);
    for pool in manylane_pool::report().iter().filter(|pool| pool.name.starts_with("cluster ")) {
        sum = (sum.0 + pool.used, sum.1 + pool.size * pool.used as usize);
    }
    sum
}

/// Sends an endless answer: it fills a cluster, as a read does, when there is room for the data.
async fn endless(stream: Stream, incoming: Incoming, sent: Rc<Cell<u64>>) {
    drop(incoming);
    stream.send_head(&response(200), false).unwrap();
    let mut left = Chain::new();
    let end = poll_fn(|context| {
        loop {
            if left.is_empty() {
                match stream.poll_room(context) {
                    Poll::Ready(Ok(_)) => {
                        left.push_back(Cluster::with(&[7; MAX_CLUSTER]).unwrap().into_segment()).unwrap();
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(error),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let before = left.len();
            let outcome = stream.poll_send(context, &mut left, false);
            sent.set(sent.get() + (before - left.len()) as u64);
            match outcome {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    let _ = end.await; // the client is gone
}

/// Returns what begins so many streams of a connection, with windows that hold nothing back.
fn requests(streams: usize) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff]);
    bytes.extend([0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0]);
    for stream in 0..streams as u32 {
        bytes.extend([0, 0, 6, 1, 5]);
        bytes.extend((2 * stream + 1).to_be_bytes());
        bytes.extend([0x82, 0x86, 0x84, 0x41, 1, b'a']);
    }
    bytes
}

/// Waits until the streams send no more.
async fn until_quiet<T: Copy + PartialEq>(sent: &Cell<T>) {
    let (mut quiet, mut observed) = (0, sent.get());
    while quiet < 1_000 {
        Here::current().unwrap().yield_now().await;
        quiet = if observed == sent.get() { quiet + 1 } else { 0 };
        observed = sent.get();
    }
}

/// The ring of io_uring takes its clusters when it receives for the first time.
async fn warm_up(io: &Io) {
    let (ours, theirs) = half_pair(io);
    (&theirs).write_all(b"x").unwrap();
    ours.recv().await.unwrap();
}

#[test]
fn saturated_connections_hold_few_clusters() {
    let _alone = alone();
    on_lane(|io| async move {
        let here = Here::current().unwrap();
        let config = Config { max_streams: STREAMS as u32, ..Config::default() };
        let sent = Rc::new(Cell::new(0));
        warm_up(&io).await;
        let (before, _) = clusters();
        // Three frames of data and a cluster for small ones (`OUTPUT_ROOM`).
        let bound = CONNECTIONS as u64 * 4;
        let (mut conns, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let (ours, theirs) = half_pair(&io);
            (&theirs).write_all(&requests(STREAMS)).unwrap();
            let sent = sent.clone();
            conns.push(server(ours, config, ConnTimeouts::default(), move |stream, incoming| {
                endless(stream, incoming, sent.clone())
            }));
            peers.push(theirs);
        }
        // No peer reads: at last nothing moves.
        until(|| conns.iter().all(|(conn, _)| conn.begun() == STREAMS as u64)).await;
        until_quiet(&sent).await;
        let held = clusters().0 - before;
        assert!(held <= bound, "{held} clusters for peers that do not read");
        // All peers read, a little each time.
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; 50_000];
            for _ in 0..60 {
                for peer in &mut peers {
                    peer.read_exact(&mut all).unwrap();
                }
            }
            peers
        });
        let mut most = 0;
        while !reader.is_finished() {
            most = most.max(clusters().0 - before);
            here.yield_now().await;
        }
        assert!(sent.get() >= 60 * 49_900 * CONNECTIONS as u64, "but for heads of frames");
        assert!(most <= bound, "{most} clusters for peers that read slowly");
        drop(reader.join().unwrap());
        until(|| conns.iter().all(|(conn, end)| end.get().is_some() && conn.begun() == STREAMS as u64)).await;
    });
}

/// A peer to which nothing can be sent, or less than a frame: the buffers between are full.
struct Full {
    ours: Connection,
    /// The other end.
    theirs: Box<dyn std::any::Any>,
}

impl Full {
    /// Makes a client that has begun so many streams, over a socket of the system or of the process.
    fn new(io: &Io, is_local: bool, streams: usize) -> Self {
        let requests = requests(streams);
        if is_local {
            let (ours, theirs) = Socket::pair(Kind::Stream);
            theirs.send(&requests).unwrap();
            ours.send(&[0; DEFAULT_LIMIT - 1000]).unwrap();
            return Self { ours: Connection::Local(LocalStream::new(ours)), theirs: Box::new(theirs) };
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(&requests).unwrap();
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[0; 4096]).is_ok() {}
        Self { ours: Connection::Socket(io.stream(ours).unwrap()), theirs: Box::new(theirs) }
    }
}

/// Sends data in pieces of these lengths, over and over, each in a cluster of its own, as reads bring them.
async fn sends_pieces(stream: Stream, cuts: Rc<[(usize, bool)]>, at_once: bool, sent: Rc<Cell<usize>>) {
    let here = Here::current().unwrap();
    stream.send_head(&response(200), false).unwrap();
    for &(length, large) in cuts.iter().cycle() {
        let Ok(room) = poll_fn(|context| stream.poll_room(context)).await else { return };
        let length = length.min(room);
        let mut data = Chain::from(received(&vec![b'x'; length], large));
        if poll_fn(|context| stream.poll_send(context, &mut data, false)).await.is_err() {
            return;
        }
        sent.set(sent.get() + 9 + length); // with the header of the frame
        if !at_once {
            here.yield_now().await;
        }
    }
}

/// Returns the bytes that wait for a peer that takes nothing, and their memory.
async fn waits(io: Io, cuts: Rc<[(usize, bool)]>, (is_local, at_once): (bool, bool)) -> (usize, usize) {
    const SENDERS: usize = 3;
    warm_up(&io).await;
    let Full { ours, theirs } = Full::new(&io, is_local, SENDERS);
    let (_, before) = clusters();
    let sent = Rc::new(Cell::new(0));
    let counted = sent.clone();
    let (conn, end) = server(ours, Config::default(), ConnTimeouts::default(), move |stream, incoming| {
        drop(incoming);
        sends_pieces(stream, cuts.clone(), at_once, counted.clone())
    });
    until(|| conn.begun() == SENDERS as u64).await;
    until_quiet(&sent).await;
    assert!(end.get().is_none(), "{end:?}");
    let waits = (sent.get(), clusters().1.saturating_sub(before));
    drop(theirs);
    until(|| end.get().is_some()).await;
    waits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Both places are counted: what the transport has, and what comes behind it. The first cluster may be
    /// large; the last one of each place is small.
    #[test]
    fn what_waits_for_a_peer_takes_at_most_twice_its_bytes_and_a_cluster(
        cuts in prop_oneof![cuts(), prop::collection::vec((513..1_100_usize, any::<bool>()), 1..30)],
        is_local: bool,
        at_once: bool,
    ) {
        let _alone = alone();
        let (sent, used) = on_lane(move |io| waits(io, cuts.into(), (is_local, at_once)));
        prop_assert!(sent > MAX_CLUSTER, "{} bytes", sent);
        let bound = 2 * sent + MAX_CLUSTER + 128 + 2 * (CLUSTER_SIZES[0] + 128);
        prop_assert!(used <= bound, "{} bytes for {}", used, sent);
    }
}
