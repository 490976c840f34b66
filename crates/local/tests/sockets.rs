//! The behaviour of each kind of socket, with one body for all kinds where it is the same (R-A1).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_buf::{Chain, External};
use manylane_local::{Error, Kind, Name, Socket, sockets};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const KINDS: [Kind; 3] = [Kind::Stream, Kind::Datagram, Kind::SeqPacket];
const CONNECTED: [Kind; 2] = [Kind::Stream, Kind::SeqPacket];

/// Returns a name that no other test uses.
fn name(of: &str) -> Name {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    Name::new(format!("{of}-{}", NEXT.fetch_add(1, Ordering::Relaxed))).expect("it is short")
}

fn received(socket: &Socket) -> Vec<u8> {
    let mut buffer = [0; 4096];
    let n = socket.recv(&mut buffer).expect("there is something");
    buffer[..n].to_vec()
}

fn listening(kind: Kind, backlog: usize) -> (Socket, Name) {
    let (socket, name) = (Socket::new(kind), name("listener"));
    socket.bind(&name).expect("nobody has it");
    socket.listen(backlog).expect("it is bound");
    (socket, name)
}

fn connected(kind: Kind) -> (Socket, Socket) {
    let (listener, name) = listening(kind, 1);
    let client = Socket::new(kind);
    client.connect(&name).expect("it listens");
    (client, listener.accept().expect("one has connected"))
}

fn is<T: std::fmt::Debug>(got: Result<T, Error>, errno: i32) {
    let error = got.expect_err("it is refused");
    assert_eq!(error.raw_os_error(), errno, "{error}");
}

#[test]
fn what_is_sent_on_one_end_of_a_pair_is_received_on_the_other() {
    for kind in KINDS {
        let (a, b) = Socket::pair(kind);
        a.send(b"ping").unwrap();
        assert_eq!(received(&b), b"ping");
        b.send(b"pong").unwrap();
        assert_eq!(received(&a), b"pong");
    }
}

#[test]
fn connections_by_name_carry_bytes_before_they_are_accepted() {
    for kind in CONNECTED {
        let (listener, name) = listening(kind, 1);
        let client = Socket::new(kind);
        client.connect(&name).unwrap();
        client.send(b"early").unwrap();
        let server = listener.accept().unwrap();
        assert_eq!(received(&server), b"early");
        assert_eq!(client.peer_name().unwrap(), Some(name.clone()));
        assert_eq!(server.name(), Some(name));
        assert_eq!(server.peer_name().unwrap(), None);
        assert_eq!(client.peer_credentials().unwrap().process, std::process::id());
        assert_eq!(server.peer_credentials().unwrap().process, std::process::id());
    }
}

#[test]
fn a_name_is_free_again_when_its_socket_is_closed_and_accepted_ends_do_not_have_it() {
    let (listener, name) = listening(Kind::Stream, 4);
    let client = Socket::new(Kind::Stream);
    client.connect(&name).unwrap();
    drop(listener.accept().unwrap());
    is(Socket::new(Kind::Stream).bind(&name), libc::EADDRINUSE);
    drop(listener);
    Socket::new(Kind::Stream).bind(&name).unwrap();
}

#[test]
fn a_stream_has_no_boundaries_and_messages_have() {
    for kind in KINDS {
        let (a, b) = Socket::pair(kind);
        a.send(b"one").unwrap();
        a.send(b"two").unwrap();
        match kind {
            Kind::Stream => assert_eq!(received(&b), b"onetwo"),
            _ => {
                assert_eq!(received(&b), b"one");
                let mut short = [0; 2];
                let got = b.recv_message(&mut short).unwrap();
                assert_eq!((got.len, got.truncated, &short), (2, true, b"tw"), "{kind:?}");
            }
        }
        is(b.try_recv(&mut [0; 8]), libc::EAGAIN);
    }
}

#[test]
fn empty_messages_arrive_and_are_not_the_end() {
    for kind in [Kind::Datagram, Kind::SeqPacket] {
        let (a, b) = Socket::pair(kind);
        a.send(b"").unwrap();
        let got = b.recv_message(&mut [0; 8]).unwrap();
        assert_eq!((got.len, got.end), (0, false), "{kind:?}");
    }
    let (a, b) = Socket::pair(Kind::SeqPacket);
    drop(a);
    assert!(b.recv_message(&mut [0; 8]).unwrap().end);
}

#[test]
fn after_a_close_the_rest_is_received_then_the_end_and_sends_fail() {
    for kind in CONNECTED {
        for (a, b) in [Socket::pair(kind), connected(kind)] {
            a.send(b"rest").unwrap();
            drop(a);
            assert_eq!(received(&b), b"rest");
            assert_eq!(received(&b), b"");
            is(b.send(b"x"), libc::EPIPE);
            is(b.peer_name(), libc::ENOTCONN);
        }
    }
}

#[test]
fn a_datagram_pair_tells_once_that_the_other_is_gone() {
    let (a, b) = Socket::pair(Kind::Datagram);
    a.send(b"rest").unwrap();
    drop(a);
    assert_eq!(received(&b), b"rest");
    is(b.recv(&mut [0; 8]), libc::ECONNRESET);
    is(b.try_recv(&mut [0; 8]), libc::EAGAIN);
    is(b.send(b"x"), libc::EDESTADDRREQ);
}

#[test]
fn a_datagram_to_a_closed_socket_is_refused_once() {
    let (a, to) = (Socket::new(Kind::Datagram), name("datagrams"));
    let b = Socket::new(Kind::Datagram);
    b.bind(&to).unwrap();
    a.connect(&to).unwrap();
    a.send(b"x").unwrap();
    drop(b);
    is(a.send(b"x"), libc::ECONNREFUSED);
    is(a.send(b"x"), libc::EDESTADDRREQ);
    is(a.send_to(b"x", &to), libc::ECONNREFUSED);
}

#[test]
fn datagrams_tell_who_sent_them_and_go_where_they_are_sent() {
    let (to, from) = (name("to"), name("from"));
    let (receiver, sender) = (Socket::new(Kind::Datagram), Socket::new(Kind::Datagram));
    receiver.bind(&to).unwrap();
    sender.bind(&from).unwrap();
    sender.send_to(b"hello", &to).unwrap();
    let mut buffer = [0; 8];
    let got = receiver.recv_message(&mut buffer).unwrap();
    assert_eq!((&buffer[..got.len], got.from), (&b"hello"[..], Some(from.clone())));
    receiver.send_to(b"back", &from).unwrap();
    assert_eq!(received(&sender), b"back");
    // Connected to itself.
    sender.connect(&from).unwrap();
    sender.send(b"self").unwrap();
    assert_eq!(received(&sender), b"self");
}

#[test]
fn half_a_connection_can_be_shut() {
    for kind in CONNECTED {
        let (a, b) = Socket::pair(kind);
        a.send(b"last").unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        is(a.send(b"x"), libc::EPIPE);
        assert_eq!(received(&b), b"last");
        assert_eq!(received(&b), b"");
        b.send(b"still").unwrap();
        assert_eq!(received(&a), b"still", "{kind:?}: the other half goes on");
        b.send(b"lost").unwrap();
        a.shutdown(Shutdown::Read).unwrap();
        assert_eq!(received(&a), b"");
        is(b.send(b"x"), libc::EPIPE);
    }
    let (a, b) = Socket::pair(Kind::Datagram);
    a.shutdown(Shutdown::Both).unwrap();
    is(a.send(b"x"), libc::EPIPE);
    is(b.send(b"x"), libc::EPIPE);
}

#[test]
fn senders_wait_when_the_receive_buffer_is_full_and_go_on_when_half_of_it_is_free() {
    for kind in KINDS {
        let (a, b) = Socket::pair(kind);
        b.set_recv_limit(4096).unwrap();
        let message = [7; 512];
        let mut sent = 0;
        while let Ok(n) = a.try_send(&message) {
            sent += n;
        }
        assert!(sent > 0 && sent <= 4096, "{kind:?}: {sent}");
        is(a.try_send(&message), libc::EAGAIN);
        assert_eq!(b.queued(), sent);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| a.send(&message));
            let mut got = 0;
            while got < sent + message.len() {
                got += b.recv(&mut [0; 512]).unwrap();
            }
            assert_eq!(sender.join().unwrap().unwrap(), message.len());
        });
    }
}

#[test]
fn a_send_limit_binds_like_a_receive_limit() {
    let (a, b) = Socket::pair(Kind::Stream);
    a.set_send_limit(100).unwrap();
    assert_eq!(a.try_send(&[1; 300]).unwrap(), 100);
    assert_eq!(b.try_send(&[1; 300]).unwrap(), 300, "the other direction has its own");
    assert_eq!((a.send_limit(), b.recv_limit()), (100, manylane_local::DEFAULT_LIMIT));
    let (client, server) = {
        let (listener, name) = listening(Kind::Stream, 1);
        let client = Socket::new(Kind::Stream);
        client.set_send_limit(10).unwrap();
        client.connect(&name).unwrap();
        (client, listener.accept().unwrap())
    };
    assert_eq!(client.try_send(&[1; 300]).unwrap(), 10, "a limit set before the connection holds in it");
    assert_eq!(server.queued(), 10);
}

#[test]
fn the_lower_one_of_both_limits_holds_from_the_beginning() {
    let connection = || {
        let (listener, name) = listening(Kind::Stream, 1);
        let client = Socket::new(Kind::Stream);
        client.connect(&name).unwrap();
        (client, listener.accept().unwrap())
    };
    let swapped = |(a, b)| (b, a);
    for (a, b) in [Socket::pair(Kind::Stream), connection(), swapped(connection())] {
        b.set_recv_limit(1 << 20).unwrap();
        assert_eq!(a.send_limit(), manylane_local::DEFAULT_LIMIT);
        assert_eq!(a.try_send(&vec![1; 1 << 20]).unwrap(), 256 << 10);
        a.set_send_limit(1 << 19).unwrap();
        assert_eq!(a.try_send(&vec![1; 1 << 20]).unwrap(), (1 << 19) - manylane_local::DEFAULT_LIMIT);
    }
}

#[test]
fn a_large_send_on_a_stream_arrives_in_order_through_a_small_buffer() {
    let (a, b) = Socket::pair(Kind::Stream);
    b.set_recv_limit(10_000).unwrap();
    let bytes: Vec<u8> = (0..1_000_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(a.send(&bytes).unwrap(), bytes.len());
            a.shutdown(Shutdown::Write).unwrap();
        });
        let (mut got, mut buffer) = (Vec::new(), [0; 3000]);
        loop {
            match b.recv(&mut buffer).unwrap() {
                0 => break,
                n => got.extend_from_slice(&buffer[..n]),
            }
        }
        assert!(got == bytes);
    });
}

#[test]
fn a_full_backlog_refuses_and_accepting_makes_room() {
    let (listener, name) = listening(Kind::SeqPacket, 2);
    let clients: Vec<_> = (0..3).map(|_| Socket::new(Kind::SeqPacket)).collect();
    clients[0].connect(&name).unwrap();
    clients[1].connect(&name).unwrap();
    is(clients[2].connect(&name), libc::ECONNREFUSED);
    let _server = listener.accept().unwrap();
    clients[2].connect(&name).unwrap();
}

#[test]
fn closing_a_listener_ends_connections_that_nobody_accepted() {
    let (listener, name) = listening(Kind::Stream, 2);
    let client = Socket::new(Kind::Stream);
    client.connect(&name).unwrap();
    drop(listener);
    assert_eq!(received(&client), b"");
    is(client.send(b"x"), libc::EPIPE);
    is(Socket::new(Kind::Stream).connect(&name), libc::ECONNREFUSED);
}

#[test]
fn a_receiver_that_sleeps_is_woken_by_bytes_and_by_the_end() {
    for kind in CONNECTED {
        for spin in [Duration::ZERO, Duration::from_millis(100)] {
            let (a, b) = Socket::pair(kind);
            b.set_busy_poll(spin);
            let asleep = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    asleep.wait();
                    assert_eq!(received(&b), b"x");
                    asleep.wait();
                    assert_eq!(received(&b), b"");
                });
                asleep.wait();
                a.send(b"x").unwrap();
                asleep.wait();
                drop(a);
            });
        }
    }
}

#[test]
fn several_threads_that_wait_on_one_socket_are_all_served() {
    let (listener, name) = listening(Kind::Stream, 16);
    std::thread::scope(|scope| {
        let accepters: Vec<_> = (0..3).map(|_| scope.spawn(|| listener.accept().unwrap())).collect();
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let client = Socket::new(Kind::Stream);
                client.connect(&name).unwrap();
                client.send(b"hi").unwrap();
                client
            })
            .collect();
        for accepter in accepters {
            assert_eq!(received(&accepter.join().unwrap()), b"hi");
        }
        drop(clients);
    });
}

#[test]
fn waiting_ends_at_the_deadline_and_at_the_timeout() {
    let (a, b) = Socket::pair(Kind::Stream);
    let soon = Duration::from_millis(5);
    let started = Instant::now();
    is(a.recv_until(&mut [0; 8], Instant::now() + soon), libc::EAGAIN);
    a.set_recv_timeout(Some(soon));
    is(a.recv(&mut [0; 8]), libc::EAGAIN);
    b.set_recv_limit(1).unwrap();
    a.send(b"x").unwrap();
    a.set_send_timeout(Some(soon));
    is(a.send(b"y"), libc::EAGAIN);
    assert!(started.elapsed() >= 3 * soon);
    assert_eq!(received(&b), b"x");
    let (listener, _) = listening(Kind::Stream, 1);
    is(listener.accept_until(Instant::now() + soon), libc::EAGAIN);
}

struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn futures_wait_with_the_same_waiters_as_threads_do() {
    let wakes = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    for kind in KINDS {
        let (a, b) = Socket::pair(kind);
        let mut buffer = [0; 8];
        {
            let mut receiving = std::pin::pin!(b.recv_async(&mut buffer));
            assert!(receiving.as_mut().poll(&mut context).is_pending());
            let before = wakes.0.load(Ordering::Relaxed);
            a.send(b"x").unwrap();
            assert_eq!(wakes.0.load(Ordering::Relaxed), before + 1);
            assert!(matches!(receiving.as_mut().poll(&mut context), Poll::Ready(Ok(1))));
        }
        // A dropped future no longer waits.
        {
            let mut dropped = std::pin::pin!(b.recv_async(&mut buffer));
            assert!(dropped.as_mut().poll(&mut context).is_pending());
        }
        let before = wakes.0.load(Ordering::Relaxed);
        a.send(b"y").unwrap();
        assert_eq!(wakes.0.load(Ordering::Relaxed), before, "{kind:?}");
        // A sender.
        b.set_recv_limit(600).unwrap();
        let message = [1; 300];
        while a.try_send(&message).is_ok() {}
        let mut sending = std::pin::pin!(a.send_async(&message));
        assert!(sending.as_mut().poll(&mut context).is_pending(), "{kind:?}");
        while b.try_recv(&mut [0; 512]).is_ok() {}
        assert!(matches!(sending.as_mut().poll(&mut context), Poll::Ready(Ok(300))), "{kind:?}");
    }
    let (listener, name) = listening(Kind::Stream, 1);
    let mut accepting = std::pin::pin!(listener.accept_async());
    assert!(accepting.as_mut().poll(&mut context).is_pending());
    Socket::new(Kind::Stream).connect(&name).unwrap();
    assert!(accepting.as_mut().poll(&mut context).is_ready());
}

/// Foreign code that reads a socket, which would block while the thread holds the socket's lock.
#[derive(Debug)]
struct PeeksOnDrop(Arc<Socket>);
impl Drop for PeeksOnDrop {
    fn drop(&mut self) {
        self.0.queued();
    }
}
impl Wake for PeeksOnDrop {
    fn wake(self: Arc<Self>) {}
}
impl AsRef<[u8]> for PeeksOnDrop {
    fn as_ref(&self) -> &[u8] {
        &[7; 10]
    }
}

#[test]
fn a_waker_that_is_replaced_is_dropped_without_a_lock() {
    for kind in KINDS {
        let (a, b) = Socket::pair(kind);
        let b = Arc::new(b);
        let mut buffer = [0; 8];
        let mut receiving = std::pin::pin!(b.recv_async(&mut buffer));
        for _ in 0..2 {
            let waker = Waker::from(Arc::new(PeeksOnDrop(b.clone())));
            assert!(receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        a.send(b"x").unwrap();
        assert!(matches!(
            receiving.as_mut().poll(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(Ok(1))
        ));
    }
}

#[test]
fn foreign_bytes_are_freed_without_a_lock() {
    let (a, b) = Socket::pair(Kind::Stream);
    let b = Arc::new(b);
    let foreign = || External::from_owner(PeeksOnDrop(b.clone())).unwrap();
    // The sender copies and frees few bytes.
    let mut few = Chain::from(foreign());
    assert_eq!(a.send_chain(&mut few).unwrap(), 10);
    assert_eq!(received(&b), [7; 10]);
    // The receiver frees many bytes, here some of them at a time.
    let mut many = Chain::from(foreign());
    many.append(&[8; 5000]).unwrap();
    assert_eq!(a.send_chain(&mut many).unwrap(), 5010);
    let (mut got, mut buffer) = (Vec::new(), [0; 25]);
    while got.len() < 5010 {
        let n = b.recv(&mut buffer).unwrap();
        got.extend_from_slice(&buffer[..n]);
    }
    assert_eq!(got, [&[7; 10][..], &[8; 5000]].concat());
}

#[test]
fn a_sender_that_polls_for_ever_is_done_when_there_is_room() {
    for kind in KINDS {
        let (a, b) = Socket::pair(kind);
        a.set_busy_poll(Duration::MAX);
        let message = [1; 200];
        b.set_recv_limit(500).unwrap();
        let while_it_polls = |make_room: &dyn Fn()| {
            let barrier = Barrier::new(2);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    barrier.wait();
                    a.send(&message).unwrap();
                });
                barrier.wait();
                (0..100).for_each(|_| std::thread::yield_now()); // so that it mostly finds no room
                make_room();
            });
        };
        for _ in 0..20 {
            while a.try_send(&message).is_ok() {}
            while_it_polls(&|| assert!(b.recv(&mut [0; 512]).is_ok()));
            while a.try_send(&message).is_ok() {}
            while_it_polls(&|| b.set_recv_limit(5000).unwrap());
            while b.try_recv(&mut [0; 512]).is_ok() {}
            b.set_recv_limit(500).unwrap();
        }
    }
}

#[test]
fn a_datagram_sender_that_waits_for_room_is_informed_that_its_half_was_shut() {
    let (a, b) = Socket::pair(Kind::Datagram);
    b.set_recv_limit(600).unwrap();
    while a.try_send(&[1; 200]).is_ok() {}
    let wakes = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut sending = std::pin::pin!(a.send_async(&[1; 200]));
    assert!(sending.as_mut().poll(&mut context).is_pending());
    a.shutdown(Shutdown::Write).unwrap();
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(matches!(sending.as_mut().poll(&mut context), Poll::Ready(Err(Error::BrokenPipe))));
}

#[test]
fn a_message_that_never_fits_is_refused_before_it_is_copied() {
    let huge = vec![0; 1 << 28]; // pages that are never touched, unless it is copied
    let pages = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    };
    let before = pages();
    for kind in [Kind::Datagram, Kind::SeqPacket] {
        let (a, b) = Socket::pair(kind);
        is(a.try_send(&huge), libc::EMSGSIZE);
        drop(b);
        let gone = if kind == Kind::Datagram { libc::EMSGSIZE } else { libc::EPIPE };
        is(a.try_send(&huge), gone);
    }
    is(Socket::new(Kind::SeqPacket).try_send(&huge), libc::ENOTCONN);
    assert!(pages() < before + (1 << 28) / 4096 / 2, "pages in memory");
}

#[test]
fn nobody_has_agreed_to_be_the_peer_of_a_datagram_socket_that_connects_by_name() {
    let (a, b, name) = (Socket::new(Kind::Datagram), Socket::new(Kind::Datagram), name("datagram"));
    b.bind(&name).unwrap();
    a.connect(&name).unwrap();
    assert_eq!(a.peer_name().unwrap(), Some(name));
    is(a.peer_credentials(), libc::ENOTCONN);
    let (one, _two) = Socket::pair(Kind::Datagram);
    assert_eq!(one.peer_credentials().unwrap().process, std::process::id());
}

#[test]
fn futures_may_be_sent_to_other_threads() {
    fn sendable<T: Send>(_: &T) {}
    let (a, b) = Socket::pair(Kind::Stream);
    let mut buffer = [0; 8];
    sendable(&a.send_async(b"x"));
    sendable(&b.recv_async(&mut buffer));
    sendable(&a.accept_async());
}

#[test]
fn handles_are_counted_and_the_last_one_closes() {
    let (a, b) = Socket::pair(Kind::Stream);
    let second = a.clone();
    drop(a);
    second.send(b"x").unwrap();
    assert_eq!(received(&b), b"x");
    drop(second);
    assert_eq!(received(&b), b"");
}

#[test]
fn the_lists_of_the_lanes_show_every_socket_until_it_is_closed() {
    let (listener, name) = listening(Kind::Stream, 4);
    let client = Socket::new(Kind::Stream);
    client.connect(&name).unwrap();
    client.send(b"four").unwrap();
    let find = |number| sockets().into_iter().find(|socket| socket.number == number);
    let shown = find(listener.number()).unwrap();
    assert_eq!((shown.phase, shown.name, shown.backlog), ("listening", Some(name), 1));
    let server = listener.accept().unwrap();
    assert_eq!(find(server.number()).unwrap().queued, 4);
    assert_eq!(find(client.number()).unwrap().phase, "connected");
    let number = client.number();
    std::thread::spawn(move || drop(client)).join().unwrap();
    assert_eq!(find(number), None, "also when another lane closes it");
    assert_eq!(find(server.number()).unwrap().phase, "disconnected");
}

#[test]
fn each_refusal_is_one_sentence_that_says_what_to_do() {
    let stream = || Socket::new(Kind::Stream);
    let (pair, _peer) = Socket::pair(Kind::SeqPacket);
    let (listener, taken) = listening(Kind::Stream, 1);
    let bound = stream();
    bound.bind(&name("bound")).unwrap();
    let (datagram, _other) = Socket::pair(Kind::Datagram);
    datagram.set_send_limit(10).unwrap();
    let cases: Vec<(Error, i32, &str)> = vec![
        (Name::new("").unwrap_err(), libc::EINVAL, "a name of 0 bytes: use one of 1 to 107 bytes"),
        (
            Name::new([1; 108]).unwrap_err(),
            libc::ENAMETOOLONG,
            "a name of 108 bytes: use one of 1 to 107 bytes",
        ),
        (stream().send(b"x").unwrap_err(), libc::ENOTCONN, "the socket is not connected; connect it first"),
        (stream().recv(&mut [0]).unwrap_err(), libc::ENOTCONN, "not connected"),
        (stream().shutdown(Shutdown::Both).unwrap_err(), libc::ENOTCONN, "not connected"),
        (stream().listen(1).unwrap_err(), libc::EINVAL, "needs a name: bind it first"),
        (stream().accept().unwrap_err(), libc::EINVAL, "call listen before accept"),
        (stream().bind(&taken).unwrap_err(), libc::EADDRINUSE, "is in use; close the socket that has it"),
        (bound.bind(&name("again")).unwrap_err(), libc::EINVAL, "has a name already"),
        (
            stream().connect(&name("nobody")).unwrap_err(),
            libc::ECONNREFUSED,
            "no socket listens under that name",
        ),
        (
            Socket::new(Kind::SeqPacket).connect(&taken).unwrap_err(),
            libc::EPROTOTYPE,
            "use a socket of the same kind",
        ),
        (listener.connect(&taken).unwrap_err(), libc::EINVAL, "cannot connect to itself"),
        (pair.listen(1).unwrap_err(), libc::EISCONN, "use a new one for another connection"),
        (datagram.listen(1).unwrap_err(), libc::EOPNOTSUPP, "use a stream"),
        (
            datagram.send(&[0; 11]).unwrap_err(),
            libc::EMSGSIZE,
            "a message of 11 bytes does not fit into buffers of 10",
        ),
        (
            pair.send(&vec![0; 1 << 20]).unwrap_err(),
            libc::EMSGSIZE,
            "send less at a time, or raise the limits",
        ),
        (pair.send_to(b"x", &taken).unwrap_err(), libc::EISCONN, "is or was connected"),
        (
            Socket::new(Kind::Datagram).send(b"x").unwrap_err(),
            libc::EDESTADDRREQ,
            "a datagram needs a destination",
        ),
        (pair.set_recv_limit(0).unwrap_err(), libc::EINVAL, "use 1 or more"),
        (pair.set_send_limit(usize::MAX).unwrap_err(), libc::EINVAL, "use 1 or more"),
        (pair.try_recv(&mut [0]).unwrap_err(), libc::EAGAIN, "try again when the socket is ready"),
    ];
    for (error, errno, sentence) in cases {
        assert_eq!(error.raw_os_error(), errno, "{error}");
        assert!(error.to_string().contains(sentence), "{error}");
        let io: std::io::Error = error.into();
        assert_eq!(io.kind(), std::io::Error::from_raw_os_error(errno).kind());
    }
    let client = stream();
    client.connect(&taken).unwrap();
    is(client.connect(&taken), libc::EISCONN);
}

#[test]
fn who_gives_up_is_informed_behind_what_was_sent_and_once() {
    for kind in CONNECTED {
        let (a, b) = connected(kind);
        a.send(b"begun").unwrap();
        a.abort();
        drop(a);
        assert_eq!(received(&b), b"begun");
        let mut buffer = [0; 8];
        is(b.recv(&mut buffer), libc::ECONNRESET);
        assert_eq!(b.recv(&mut buffer).unwrap(), 0, "then the end");
        let lone = Socket::new(kind);
        lone.abort(); // there is no peer to report it to
    }
    let (a, b) = connected(Kind::Stream);
    let waiting = std::thread::spawn(move || b.recv(&mut [0; 8]).map(drop));
    a.abort();
    assert_eq!(waiting.join().unwrap().unwrap_err().raw_os_error(), libc::ECONNRESET, "who waits is woken");
}
