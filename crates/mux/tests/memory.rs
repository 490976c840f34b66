//! Memory that connections hold whose peers read slowly or not at all. This test has a process of its own,
//! because the pools' counts are those of the process; so one test covers both drivers.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_buf::{Chain, Cluster, MAX_CLUSTER};
use manylane_mux::h2::{Config, ConnTimeouts, Incoming, Stream};
use manylane_sched::Here;
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::Poll;

const CONNECTIONS: usize = 64;
const STREAMS: usize = 100;

/// Returns the number of clusters in use.
fn clusters() -> u64 {
    let pools = manylane_pool::report();
    pools.iter().filter(|pool| pool.name.starts_with("cluster ")).map(|pool| pool.used).sum()
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

/// Begins all streams of a connection, with windows that hold nothing back.
fn ask(mut socket: &UnixStream) {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff]);
    bytes.extend([0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0]);
    for stream in 0..STREAMS as u32 {
        bytes.extend([0, 0, 6, 1, 5]);
        bytes.extend((2 * stream + 1).to_be_bytes());
        bytes.extend([0x82, 0x86, 0x84, 0x41, 1, b'a']);
    }
    socket.write_all(&bytes).unwrap();
}

#[test]
fn saturated_connections_hold_few_clusters() {
    on_lane(|io| async move {
        let here = Here::current().unwrap();
        let config = Config { max_streams: STREAMS as u32, ..Config::default() };
        let sent = Rc::new(Cell::new(0));
        // The ring of io_uring takes its clusters when it receives for the first time.
        let (ours, theirs) = half_pair(&io);
        (&theirs).write_all(b"x").unwrap();
        ours.recv().await.unwrap();
        drop((ours, theirs));
        let before = clusters();
        // Three frames of data and a cluster for small ones (`OUTPUT_ROOM`).
        let bound = CONNECTIONS as u64 * 4;
        let (mut conns, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let (ours, theirs) = half_pair(&io);
            ask(&theirs);
            let sent = sent.clone();
            conns.push(server(ours, config, ConnTimeouts::default(), move |stream, incoming| {
                endless(stream, incoming, sent.clone())
            }));
            peers.push(theirs);
        }
        // No peer reads: at last nothing moves.
        until(|| conns.iter().all(|(conn, _)| conn.begun() == STREAMS as u64)).await;
        let (mut quiet, mut observed) = (0, 0);
        while quiet < 1_000 {
            here.yield_now().await;
            quiet = if observed == sent.get() { quiet + 1 } else { 0 };
            observed = sent.get();
        }
        let held = clusters() - before;
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
            most = most.max(clusters() - before);
            here.yield_now().await;
        }
        assert!(sent.get() >= 60 * 49_900 * CONNECTIONS as u64, "but for heads of frames");
        assert!(most <= bound, "{most} clusters for peers that read slowly");
        drop(reader.join().unwrap());
        until(|| conns.iter().all(|(conn, end)| end.get().is_some() && conn.begun() == STREAMS as u64)).await;
    });
}
