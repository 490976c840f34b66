//! Datagrams and splices, on both drivers.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_buf::Chain;
use manylane_io::{
    DATAGRAMS_PER_CALL, DATAGRAMS_PER_ROUND, Io, Kind, Outgoing, SEGMENTS_PER_WRITE, SocketAddrAny,
};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

on_both_drivers! {
    datagrams_keep_their_bounds_and_know_their_sender;
    many_datagrams_take_few_calls;
    what_has_arrived_is_received_without_waiting;
    a_closed_duplicate_leaves_no_registration;
    pieces_of_a_buffer_are_datagrams_whatever_their_lengths;
    a_datagram_beyond_its_room_is_marked;
    a_datagram_that_is_too_long_is_refused_and_stays;
    nothing_is_waited_for_when_nothing_is_to_be_sent;
    a_socket_that_receives_no_more_is_notified_of_room_and_not_tried_again_and_again;
}

fn socket(io: &Io) -> (manylane_io::Datagrams, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    (io.datagrams(socket).unwrap(), address)
}

fn to(address: SocketAddr, bytes: Chain) -> Outgoing {
    Outgoing { bytes, to: Some(SocketAddrAny::from(address)) }
}

fn datagrams_keep_their_bounds_and_know_their_sender(kind: Kind) {
    run(kind, |io| async move {
        let ((a, a_address), (b, b_address)) = (socket(&io), socket(&io));
        let mut out: VecDeque<_> =
            [&b"one"[..], b"", b"three"].into_iter().map(|bytes| to(b_address, chain(bytes))).collect();
        out.push_back(to(b_address, chain_of(&[b"in ", b"three ", b"pieces"])));
        while !out.is_empty() {
            a.send_batch(&mut out).await.unwrap();
        }
        let mut got = Vec::new();
        while got.len() < 4 {
            b.recv_batch(&mut got).await.unwrap();
        }
        let texts: Vec<_> = got.iter().map(|datagram| datagram.bytes.to_vec()).collect();
        assert_eq!(texts, [&b"one"[..], b"", b"three", b"in three pieces"]);
        for datagram in got {
            assert_eq!(SocketAddr::try_from(datagram.from.unwrap()).unwrap(), a_address);
            assert!(!datagram.truncated);
        }
    });
}

fn many_datagrams_take_few_calls(kind: Kind) {
    run(kind, |io| async move {
        let ((a, _), (b, address)) = (socket(&io), socket(&io));
        let before = own_report(&io);
        let mut out: VecDeque<_> = (0..100_u8).map(|n| to(address, chain(&[n]))).collect();
        while !out.is_empty() {
            a.send_batch(&mut out).await.unwrap();
        }
        let mut got = Vec::new();
        while got.len() < 100 {
            b.recv_batch(&mut got).await.unwrap();
        }
        assert!(got.iter().enumerate().all(|(n, datagram)| *datagram.bytes == [n as u8]));
        let after = own_report(&io);
        let most = 100_u64.div_ceil(DATAGRAMS_PER_CALL as u64);
        let calls = (after.writes - before.writes, after.reads - before.reads);
        assert!(calls.0 <= most && calls.1 <= most, "{calls:?} calls");
    });
}

/// More datagrams than the share of a round, in one poll of the task.
fn what_has_arrived_is_received_without_waiting(kind: Kind) {
    run(kind, |io| async move {
        let (socket, address) = socket(&io);
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1 << 20).unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let count = DATAGRAMS_PER_ROUND + 40;
        (0..count).for_each(|_| assert_eq!(other.send_to(b"x", address).unwrap(), 1));
        let mut received = Vec::new();
        while socket.recv_now(&mut received).unwrap() > 0 {}
        assert_eq!(received.len(), count);
    });
}

/// Number of entries for a socket on the interest lists of this process.
fn registrations(of: &UdpSocket) -> usize {
    let inode = format!(" ino:{:x} ", rustix::fs::fstat(of).unwrap().st_ino);
    let lists = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    // A descriptor of another test may be closed meanwhile.
    let lists = lists.filter_map(|list| std::fs::read_to_string(list.ok()?.path()).ok());
    lists
        .map(|list| list.lines().filter(|line| line.starts_with("tfd:") && line.contains(&inode)).count())
        .sum()
}

fn a_closed_duplicate_leaves_no_registration(kind: Kind) {
    run(kind, move |io| async move {
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        let duplicates: Vec<_> = (0..10).map(|_| io.datagrams(own.try_clone().unwrap()).unwrap()).collect();
        for duplicate in &duplicates {
            let mut received = Vec::new();
            let mut receiving = pin!(duplicate.recv_batch(&mut received));
            poll_fn(|context| {
                assert!(receiving.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        assert_eq!(registrations(&own), if kind == Kind::Epoll { 10 } else { 0 });
        drop(duplicates);
        assert_eq!(registrations(&own), 0);
    });
}

fn pieces_of_a_buffer_are_datagrams_whatever_their_lengths(kind: Kind) {
    run(kind, |io| async move {
        let ((a, a_address), (mut b, address)) = (socket(&io), socket(&io));
        b.set_room(4096);
        let lengths = [5, 5, 5, 3, 7, 7, 0, 0, 7, 3000, 3000, 1, 1, 1, 1, 1400, 1400, 900];
        let mut bytes = pattern(20_000);
        let ends: Vec<usize> = lengths
            .iter()
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect();
        bytes.truncate(*ends.last().unwrap());
        let to = SocketAddrAny::from(address);
        let before = own_report(&io);
        let mut from = 0;
        while from < ends.len() {
            from += a.send_pieces((&bytes, &ends, from), Some(&to)).await.unwrap();
        }
        let after = own_report(&io);
        assert_eq!(after.bytes_out - before.bytes_out, bytes.len() as u64);
        let mut got = Vec::new();
        while got.len() < ends.len() {
            b.recv_batch(&mut got).await.unwrap();
        }
        for (n, datagram) in got.iter().enumerate() {
            let start = if n == 0 { 0 } else { ends[n - 1] };
            assert_eq!(datagram.bytes.to_vec(), bytes[start..ends[n]], "piece {n}");
            assert_eq!(SocketAddr::try_from(datagram.from.clone().unwrap()).unwrap(), a_address);
        }
    });
}

fn own_report(io: &Io) -> manylane_io::IoReport {
    let lane = io.here().lane();
    manylane_io::report().into_iter().find(|report| report.lane == lane).unwrap()
}

fn a_datagram_beyond_its_room_is_marked(kind: Kind) {
    run(kind, |io| async move {
        let ((a, _), (mut b, address)) = (socket(&io), socket(&io));
        for (room, kept) in [(1, 2048), (3000, 5000)] {
            b.set_room(room);
            let mut out = VecDeque::from([to(address, chain(&pattern(5000)))]);
            a.send_batch(&mut out).await.unwrap();
            let mut got = Vec::new();
            b.recv_batch(&mut got).await.unwrap();
            assert_eq!((got[0].bytes.len(), got[0].truncated), (kept, kept < 5000));
        }
    });
}

fn a_datagram_that_is_too_long_is_refused_and_stays(kind: Kind) {
    run(kind, |io| async move {
        let (a, address) = socket(&io);
        let pieces: Vec<&[u8]> = vec![b"x"; SEGMENTS_PER_WRITE + 1];
        for bytes in [chain(&vec![0; 70_000]), chain_of(&pieces)] {
            let mut out = VecDeque::from([to(address, bytes)]);
            let error = a.send_batch(&mut out).await.unwrap_err();
            assert_eq!(error.to_string(), "sending datagrams failed: Message too long (os error 90)");
            assert_eq!(out.len(), 1);
        }
    });
}

fn nothing_is_waited_for_when_nothing_is_to_be_sent(kind: Kind) {
    run(kind, |io| async move {
        let (a, _) = socket(&io);
        assert_eq!(a.send_batch(&mut VecDeque::new()).await.unwrap(), 0);
        let mut got = Vec::new();
        let none = io.here().timeout(Duration::from_millis(2), a.recv_batch(&mut got)).await;
        assert!(none.is_err() && got.is_empty());
    });
}

/// Programs that only send on a socket, such as loggers, may shut down its receiving half. The ring's polls
/// for room then complete at once.
fn a_socket_that_receives_no_more_is_notified_of_room_and_not_tried_again_and_again(kind: Kind) {
    const ROUNDS: u64 = 200;
    run(kind, |io| async move {
        let (own, peer) = UnixDatagram::pair().unwrap();
        own.shutdown(Shutdown::Read).unwrap();
        own.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let filler = own.try_clone().unwrap();
        let own = io.datagrams(own).unwrap();
        let (one, other) = pair(&io);
        for _ in 0..2 {
            while filler.send(b"filled").is_ok() {}
            let before = own_report(&io).writes;
            let mut sending = pin!(own.send_pieces((b"last", &[4], 0), None));
            for _ in 0..ROUNDS {
                one.send(&mut chain(b"x")).await.unwrap();
                other.recv().await.unwrap().unwrap();
                let early = poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
                assert!(early.is_pending(), "{early:?}");
            }
            let tries = own_report(&io).writes - before - ROUNDS;
            assert!(tries < 10, "{tries} tries in {ROUNDS} rounds");
            let mut bytes = [0; 16];
            while peer.recv(&mut bytes).is_ok() {}
            assert_eq!(sending.await.unwrap(), 1);
            assert_eq!(peer.recv(&mut bytes).map(|length| bytes[..length].to_vec()).unwrap(), b"last");
        }
    });
}
