//! Listeners, on both drivers.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_io::{
    ACCEPTED_AHEAD, ACCEPTS_PER_ROUND, Io, Kind, MOST_ACCEPTS_PER_ROUND, accept_waiting, tcp_listener,
};
use std::cell::Cell;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

on_both_drivers! {
    every_connection_is_accepted_once;
    a_round_accepts_no_more_than_its_bound;
    another_bound_of_a_round_is_kept;
    a_port_in_use_is_one_sentence_with_the_address;
    an_address_of_another_machine_is_one_sentence;
    an_accepted_connection_knows_its_peer;
    a_dropped_accept_has_taken_nothing;
    connections_that_no_task_asks_for_are_accepted_up_to_a_bound;
    a_burst_that_no_task_asks_for_is_accepted_up_to_a_backlog_more;
    a_connection_that_only_one_of_two_was_notified_of_is_not_lost_with_that_one;
    a_connection_that_a_killed_process_was_notified_of_is_accepted_by_the_next;
    what_cannot_be_taken_from_a_passage_counts_in_its_round;
    a_descriptor_that_is_no_socket_is_refused;
}

fn every_connection_is_accepted_once(kind: Kind) {
    run(kind, |io| async move {
        let (listener, address) = listener(&io);
        let before = counted(&io);
        let connecting = std::thread::spawn(move || {
            // Kept until all are accepted: with either driver only an open connection knows its peer.
            (0..100).map(|_| TcpStream::connect(address).unwrap()).collect::<Vec<_>>()
        });
        let mut peers = Vec::new();
        for _ in 0..100 {
            let accepted = listener.accept().await.unwrap();
            let peer = accepted.peer().unwrap().unwrap();
            peers.push(std::net::SocketAddr::try_from(peer).unwrap());
            drop(accepted.into_stream(&io));
        }
        let mut connected: Vec<_> =
            connecting.join().unwrap().iter().map(|client| client.local_addr().unwrap()).collect();
        peers.sort();
        connected.sort();
        assert_eq!(peers, connected);
        let none = io.here().timeout(Duration::from_millis(5), listener.accept()).await;
        assert!(none.is_err(), "there were only 100");
        let after = counted(&io);
        assert_eq!(after.accepted - before.accepted, 100);
        if kind == Kind::IoUring {
            // One operation accepts until it is stopped: when 64 connections are there ahead of requests.
            let operations = after.accepts - before.accepts;
            assert!(operations <= 10, "{operations} operations for 100 connections");
        }
    });
}

/// Two generations of a proxy share a socket for a moment, and the older one's duplicate is woken first.
fn a_connection_that_only_one_of_two_was_notified_of_is_not_lost_with_that_one(kind: Kind) {
    run(kind, |io| async move {
        for _ in 0..100 {
            let (first, address) = listener(&io);
            let second = io.listener(first.as_fd().try_clone_to_owned().unwrap()).unwrap();
            for listener in [&first, &second] {
                let mut waiting = std::pin::pin!(listener.accept());
                std::future::poll_fn(|context| {
                    assert!(waiting.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                })
                .await;
                io.here().yield_now().await; // io_uring submits at the end of the round
            }
            let _client = TcpStream::connect(address).unwrap();
            let (fd, given) = first.detach().await.unwrap();
            if given.is_empty() && accept_waiting(&fd).is_none() {
                second.accept().await.unwrap();
            }
        }
    });
}

/// A process that was killed leaves a ring that the kernel still empties while the next process accepts from
/// the same socket.
fn a_connection_that_a_killed_process_was_notified_of_is_accepted_by_the_next(kind: Kind) {
    if !available(Kind::IoUring) {
        return; // which says so
    }
    run(kind, |io| async move {
        for _ in 0..20 {
            let (listener, address) = listener(&io);
            let killed = RawRing::accepting(listener.as_fd().as_raw_fd());
            let mut waiting = std::pin::pin!(listener.accept());
            std::future::poll_fn(|context| {
                assert!(waiting.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            // io_uring submits operations in their order: one behind that of the listener has completed.
            let (other, address_of_other) = self::listener(&io);
            let _behind = TcpStream::connect(address_of_other).unwrap();
            other.accept().await.unwrap();
            drop(killed);
            let _client = TcpStream::connect(address).unwrap();
            io.here().timeout(Duration::from_secs(20), waiting).await.expect("it waits on").unwrap();
        }
    });
}

/// A ring that accepts from a socket and is dropped without an end of its operation, as by a killed process.
struct RawRing(#[expect(dead_code, reason = "dropped")] ::io_uring::IoUring);

impl RawRing {
    #[expect(unsafe_code, reason = "the queue of a ring takes operations as unsafe only")]
    fn accepting(listener: std::os::fd::RawFd) -> Self {
        let mut ring = ::io_uring::IoUring::builder();
        let mut ring = ring.setup_single_issuer().setup_defer_taskrun().build(8).unwrap();
        let accept = ::io_uring::opcode::AcceptMulti::new(::io_uring::types::Fd(listener)).build();
        // SAFETY: the operation uses no memory.
        unsafe { ring.submission().push(&accept) }.unwrap();
        ring.submit().unwrap();
        Self(ring)
    }
}

/// R-F5
fn a_round_accepts_no_more_than_its_bound(kind: Kind) {
    run(kind, |io| async move {
        let (listener, address) = listener(&io);
        let clients: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        let rounds = Rc::new(Cell::new(0_u32));
        let (counted, here) = (rounds.clone(), io.here());
        // One task for all rounds: it never sleeps, so it runs once in each.
        spawn(&io, async move {
            let mut before = here.now();
            loop {
                here.yield_now().await;
                if here.now() != before {
                    before = here.now();
                    counted.set(counted.get() + 1);
                }
                if counted.get() == u32::MAX {
                    return;
                }
            }
        });
        until(&io, || rounds.get() > 0).await;
        let began = rounds.get();
        for _ in 0..clients.len() {
            drop(listener.accept().await.unwrap());
        }
        let took = rounds.get() - began;
        rounds.set(u32::MAX - 1);
        assert!(took + 1 >= 40 / ACCEPTS_PER_ROUND, "40 were accepted in {took} rounds");
    });
}

fn another_bound_of_a_round_is_kept(kind: Kind) {
    /// Largest number of 40 waiting connections that one poll of a task got.
    async fn most_at_once(io: &Io, bound: u32) -> u32 {
        io.set_accepts_per_round(bound);
        let (listener, address) = listener(io);
        let _clients: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        let got = Cell::new(0);
        let mut all = std::pin::pin!(async {
            while got.get() < 40 {
                drop(listener.accept().await.unwrap());
                got.set(got.get() + 1);
            }
        });
        let mut most = 0;
        std::future::poll_fn(|context| {
            let before = got.get();
            let outcome = all.as_mut().poll(context);
            most = most.max(got.get() - before);
            outcome
        })
        .await;
        most
    }
    run(kind, |io| async move {
        assert_eq!(io.accepts_per_round(), ACCEPTS_PER_ROUND);
        let most = most_at_once(&io, 7).await;
        assert!(most > ACCEPTS_PER_ROUND && most <= 7, "{most} of 7");
        assert!(most_at_once(&io, u32::MAX).await > 7);
        assert_eq!(io.accepts_per_round(), MOST_ACCEPTS_PER_ROUND);
        assert_eq!(most_at_once(&io, 0).await, 1, "else a listener would never give anything");
    });
}

fn a_port_in_use_is_one_sentence_with_the_address(kind: Kind) {
    run(kind, |io| async move {
        let (_listener, address) = listener(&io);
        let error = tcp_listener(&address, 16, false).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot listen on {address}: Address already in use (os error 98)")
        );
    });
}

fn an_address_of_another_machine_is_one_sentence(_: Kind) {
    let error = tcp_listener(&"192.0.2.1:1".parse().unwrap(), 16, false).unwrap_err().to_string();
    assert_eq!(error, "cannot listen on 192.0.2.1:1: Cannot assign requested address (os error 99)");
}

fn an_accepted_connection_knows_its_peer(kind: Kind) {
    run(kind, |io| async move {
        let (listener, address) = listener(&io);
        let client = TcpStream::connect(address).unwrap();
        let accepted = listener.accept().await.unwrap();
        let peer = accepted.peer().unwrap().unwrap();
        assert_eq!(std::net::SocketAddr::try_from(peer).unwrap(), client.local_addr().unwrap());
    });
}

fn a_dropped_accept_has_taken_nothing(kind: Kind) {
    run(kind, |io| async move {
        let (listener, address) = listener(&io);
        for _ in 0..20 {
            let early = io.here().timeout(Duration::ZERO, listener.accept()).await;
            assert!(early.is_err());
            let client = TcpStream::connect(address).unwrap();
            let accepted = listener.accept().await.unwrap();
            let peer = std::net::SocketAddr::try_from(accepted.peer().unwrap().unwrap()).unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
        }
    });
}

/// With io_uring, an operation of a task that went away accepts on. The connections come one by one: of a
/// burst the kernel accepts all before anything can stop it.
fn connections_that_no_task_asks_for_are_accepted_up_to_a_bound(kind: Kind) {
    const CLIENTS: usize = 2 * ACCEPTED_AHEAD; // the backlog has room for all
    run(kind, |io| async move {
        let (listener, address) = listener(&io);
        let early = io.here().timeout(Duration::ZERO, listener.accept()).await;
        assert!(early.is_err());
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(TcpStream::connect(address).unwrap());
            rounds(&io, 2).await; // one takes it, and the other stops the operation
        }
        let (_, ahead) = listener.detach().await.unwrap();
        let bound = if kind == Kind::IoUring { ACCEPTED_AHEAD..=ACCEPTED_AHEAD + 2 } else { 0..=0 };
        assert!(bound.contains(&ahead.len()), "{} of {CLIENTS} connections were accepted", ahead.len());
    });
}

/// The kernel accepts all that the backlog holds at one check, before anything can stop it, and no more.
fn a_burst_that_no_task_asks_for_is_accepted_up_to_a_backlog_more(kind: Kind) {
    const BACKLOG: u16 = 128;
    const HELD: usize = BACKLOG as usize + 1; // Linux counts from 0
    run(kind, |io| async move {
        let socket = tcp_listener(&"127.0.0.1:0".parse().unwrap(), BACKLOG, false).unwrap();
        let address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        let address: std::net::SocketAddr = address;
        let listener = io.listener(socket).unwrap();
        let early = io.here().timeout(Duration::ZERO, listener.accept()).await;
        assert!(early.is_err());
        let mut clients = Vec::new();
        let bursts = if kind == Kind::IoUring { [ACCEPTED_AHEAD - 1, HELD, HELD] } else { [HELD, 0, 0] };
        for burst in bursts {
            clients.extend((0..burst).map(|_| TcpStream::connect(address).unwrap()));
            rounds(&io, 2).await; // one takes it, and the other stops the operation
        }
        let (_, ahead) = listener.detach().await.unwrap();
        let most = ACCEPTED_AHEAD - 1 + HELD; // one or two may be late for the check
        let bound = if kind == Kind::IoUring { most - 2..=most + 2 } else { 0..=0 };
        assert!(bound.contains(&ahead.len()), "{} of {} connections", ahead.len(), clients.len());
    });
}

fn what_cannot_be_taken_from_a_passage_counts_in_its_round(kind: Kind) {
    run(kind, |io| async move {
        let (near, far) = manylane_io::socket::pair(manylane_io::socket::Shape::Stream).unwrap();
        // The sender's credentials come first and take the room: the descriptor is then lost as without
        // descriptors.
        rustix::net::sockopt::set_socket_passcred(&near, true).unwrap();
        let passage = io.passage(near).unwrap();
        for _ in 0..3 * ACCEPTS_PER_ROUND {
            manylane_io::passing::send_descriptor(far.as_fd(), far.as_fd()).unwrap();
        }
        let mut refused = 0;
        std::future::poll_fn(|context| {
            while let Poll::Ready(outcome) = std::pin::pin!(passage.accept()).poll(context) {
                assert_eq!(outcome.unwrap_err().errno(), Some(manylane_io::Errno::MFILE));
                refused += 1;
            }
            Poll::Ready(())
        })
        .await;
        assert_eq!(refused, ACCEPTS_PER_ROUND);
    });
}

fn a_descriptor_that_is_no_socket_is_refused(kind: Kind) {
    run(kind, |io| async move {
        let file = std::fs::File::open("/dev/null").unwrap();
        let sentence = io.listener(file).unwrap_err().to_string();
        assert!(sentence.contains("Socket operation on non-socket"), "{sentence}");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(io.stream(socket).is_err());
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(io.datagrams(a).is_err());
    });
}
