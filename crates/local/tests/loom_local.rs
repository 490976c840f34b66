//! The protocol in every interleaving of two threads, three in some, with at most 3 involuntary switches, or
//! without that bound (`make long-models`): no leak (the model checker counts objects that are never
//! dropped), no lost wake-up (a thread that waits for ever is a deadlock), no use after free (a freed pcb
//! stays marked, and every access checks that). Readers start last, and each model lists its outcomes, so
//! that a model without a race fails.
//!
//! Mostly seqpacket sockets: their small messages need no memory from the pools, which have models of their
//! own.
#![cfg(loom)]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_local::{Error, Handle, Kind, Name, Received, Socket, collect, in_flight, sockets};
use manylane_sync::{Arc, model, thread};
use std::collections::BTreeSet;
use std::future::Future;
use std::net::Shutdown;
use std::sync::Mutex; // what outcomes were seen is no part of the model
use std::task::{Context, Poll, Wake, Waker};

/// Counts of the outcomes of all executions.
#[derive(Default)]
struct Outcomes(Mutex<BTreeSet<String>>);

impl Outcomes {
    fn note(&self, outcome: impl std::fmt::Debug) {
        self.0.lock().unwrap().insert(format!("{outcome:?}"));
    }
}

/// Runs `body` in all its interleavings, which must have exactly these outcomes, in this order.
#[track_caller]
fn outcomes(expected: &[&str], body: impl Fn(&Outcomes) + Send + Sync + 'static) {
    let observed = std::sync::Arc::new(Outcomes::default());
    let all = observed.clone();
    model(move || body(&all));
    let observed = observed.0.lock().unwrap();
    assert_eq!(observed.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

fn pair() -> (Socket, Socket) {
    Socket::pair(Kind::SeqPacket)
}

/// Where a thread of a model sleeps: a thread that is not woken is a deadlock, which the model checker
/// reports.
struct WakeFd(loom::sync::Mutex<bool>, loom::sync::Condvar);

impl Wake for WakeFd {
    fn wake(self: std::sync::Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

/// Waits as an executor does. (Blocking calls make the same attempts and park in between; see `wait.rs`.)
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let wake_fd = std::sync::Arc::new(WakeFd(loom::sync::Mutex::new(false), loom::sync::Condvar::new()));
    let waker = Waker::from(wake_fd.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        let mut rung = wake_fd.0.lock().unwrap();
        while !*rung {
            rung = wake_fd.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// Returns the number of the error, or the data received.
fn errno<T>(done: Result<T, Error>) -> Result<T, i32> {
    done.map_err(|error| error.raw_os_error())
}

fn with_handle(socket: &Socket, handles: &mut Vec<Handle>) -> Result<usize, Error> {
    socket.try_send_message(
        b"h",
        manylane_local::Attached { handles: Some(handles), ..manylane_local::Attached::default() },
    )
}

fn no_socket_is_left() {
    assert_eq!(sockets(), []);
    assert_eq!(in_flight(), 0);
}

#[test]
fn send_against_close() {
    outcomes(&["Err(32)", "Ok(1)"], |observed| {
        let (a, b) = pair();
        let closer = thread::spawn(move || drop(b));
        observed.note(errno(a.try_send(b"x")));
        closer.join().unwrap();
        assert_eq!(errno(a.try_send(b"x")), Err(libc::EPIPE));
        drop(a);
        no_socket_is_left();
    });
}

#[test]
fn a_receiver_that_waits_gets_the_message_then_the_end() {
    model(|| {
        let (a, b) = pair();
        let sender = thread::spawn(move || {
            assert!(a.try_send(b"x").is_ok());
        });
        let mut buffer = [0; 4];
        assert_eq!(errno(block_on(b.recv_async(&mut buffer))), Ok(1));
        assert_eq!(errno(block_on(b.recv_async(&mut buffer))), Ok(0));
        sender.join().unwrap();
        drop(b);
        no_socket_is_left();
    });
}

#[test]
fn a_sender_that_waits_for_room_gets_it_or_the_end() {
    outcomes(&["Err(32)", "Ok(1)"], |observed| {
        let (a, b) = pair();
        b.set_recv_limit(300).unwrap();
        a.try_send(b"1").unwrap();
        let receiver = thread::spawn(move || {
            assert_eq!(errno(b.try_recv(&mut [0; 4])), Ok(1));
        });
        observed.note(errno(block_on(a.send_async(b"2"))));
        receiver.join().unwrap();
        drop(a);
        no_socket_is_left();
    });
}

#[test]
fn connect_against_close_of_the_listener() {
    outcomes(&["Err(111)", "Ok(())"], |observed| {
        let name = Name::new("n").unwrap();
        let listener = Socket::new(Kind::SeqPacket);
        listener.bind(&name).unwrap();
        listener.listen(1).unwrap();
        let client = Socket::new(Kind::SeqPacket);
        let closer = thread::spawn(move || drop(listener));
        let connected = errno(client.connect(&name));
        closer.join().unwrap();
        if connected.is_ok() {
            // The listener's close closed the end that was never accepted.
            assert_eq!(errno(client.try_recv(&mut [0; 4])), Ok(0));
            assert_eq!(errno(client.try_send(b"x")), Err(libc::EPIPE));
        }
        observed.note(connected);
        drop(client);
        no_socket_is_left();
    });
}

#[test]
fn both_sides_closing() {
    for kind in [Kind::SeqPacket, Kind::Datagram] {
        model(move || {
            let (a, b) = Socket::pair(kind);
            a.try_send(b"x").unwrap();
            let closer = thread::spawn(move || drop(b));
            drop(a);
            closer.join().unwrap();
            no_socket_is_left();
        });
    }
}

#[test]
fn two_connects_to_one_listener_with_room_for_one() {
    outcomes(&["false", "true"], |observed| {
        let name = Name::new("n").unwrap();
        let listener = Socket::new(Kind::SeqPacket);
        listener.bind(&name).unwrap();
        listener.listen(1).unwrap();
        let connect = |name: &Name| {
            let client = Socket::new(Kind::SeqPacket);
            errno(client.connect(name)).map(|()| client)
        };
        let other = thread::spawn({
            let name = name.clone();
            move || connect(&name)
        });
        let one = connect(&name);
        let two = other.join().unwrap();
        assert!(one.is_ok() != two.is_ok(), "one is connected and one refused");
        observed.note(one.is_ok());
        let server = listener.try_accept().unwrap();
        assert_eq!(errno(listener.try_accept()).map(drop), Err(libc::EAGAIN));
        drop((one, two, server, listener));
        no_socket_is_left();
    });
}

#[test]
fn an_accepter_that_waits_gets_the_connection() {
    model(|| {
        let name = Name::new("n").unwrap();
        let listener = Socket::new(Kind::SeqPacket);
        listener.bind(&name).unwrap();
        listener.listen(1).unwrap();
        let connecter = thread::spawn(move || {
            let client = Socket::new(Kind::SeqPacket);
            client.connect(&name).unwrap();
        });
        drop(block_on(listener.accept_async()).unwrap());
        connecter.join().unwrap();
        drop(listener);
        no_socket_is_left();
    });
}

#[test]
fn a_handle_in_flight_against_the_close_of_the_receiver() {
    outcomes(&["Err(32)", "Ok(1)"], |observed| {
        let (a, b) = pair();
        let (c, d) = pair();
        let closer = thread::spawn(move || drop(b));
        let mut handles = vec![Handle::from(d)];
        let sent = errno(with_handle(&a, &mut handles));
        assert_eq!(handles.len(), usize::from(sent.is_err()), "refused, it is still here");
        drop(handles);
        closer.join().unwrap();
        observed.note(sent);
        // It is closed by now, wherever the handle was.
        assert_eq!(errno(c.try_send(b"x")), Err(libc::EPIPE));
        drop((a, c));
        no_socket_is_left();
    });
}

#[test]
fn a_cycle_is_collected_whoever_closes_last() {
    model(|| {
        let (a, b) = pair();
        let second = b.clone();
        // The end `b` goes into its own buffer; then both other handles go, at the same time.
        let mut handles = vec![Handle::from(b)];
        with_handle(&a, &mut handles).unwrap();
        let closer = thread::spawn(move || drop(second));
        drop(a);
        closer.join().unwrap();
        no_socket_is_left();
        assert_eq!(collect(), 0, "nothing was left to be collected");
    });
}

/// Both fences of the flight: one thread sends the end `b` into its own buffer, another drops its other
/// handle.
#[test]
fn a_cycle_is_collected_if_the_other_handle_is_dropped_while_it_takes_off() {
    model(|| {
        let (a, b) = pair();
        let second = b.clone();
        let dropper = thread::spawn(move || drop(second));
        let mut handles = vec![Handle::from(b)];
        with_handle(&a, &mut handles).unwrap();
        drop(a);
        dropper.join().unwrap();
        no_socket_is_left();
    });
}

#[test]
fn the_collector_against_a_receiver_of_the_handle() {
    model(|| {
        let (a, b) = pair();
        let (c, d) = pair();
        let mut handles = vec![Handle::from(d)];
        with_handle(&a, &mut handles).unwrap();
        let collector = thread::spawn(|| assert_eq!(collect(), 0, "it can be received"));
        let received: Received = b.try_recv_message(&mut [0; 4]).unwrap();
        assert_eq!(received.handles.len(), 1);
        collector.join().unwrap();
        assert_eq!(errno(c.try_send(b"x")), Ok(1), "it is open");
        drop((a, b, c, received));
        no_socket_is_left();
    });
}

#[test]
fn shutdown_against_send() {
    outcomes(&["Err(32)", "Ok(1)"], |observed| {
        let (a, b) = pair();
        let a = Arc::new(a);
        let shutter = thread::spawn({
            let a = a.clone();
            move || a.shutdown(Shutdown::Write).unwrap()
        });
        let sent = errno(a.try_send(b"x"));
        shutter.join().unwrap();
        let mut buffer = [0; 4];
        // The message comes before the end.
        assert_eq!(errno(b.try_recv(&mut buffer)), Ok(usize::from(sent.is_ok())));
        assert_eq!(errno(b.try_recv(&mut buffer)), Ok(0));
        observed.note(sent);
        drop((a, b));
        no_socket_is_left();
    });
}

#[test]
fn connecting_a_datagram_socket_anew_against_its_sends_and_the_close_of_its_peer() {
    outcomes(&["Err(104)", "Err(11)"], |observed| {
        let name = Name::new("n").unwrap();
        let (a, b) = Socket::pair(Kind::Datagram);
        let c = Socket::new(Kind::Datagram);
        c.bind(&name).unwrap();
        let closer = thread::spawn(move || drop(b));
        a.connect(&name).unwrap();
        let sent = errno(a.try_send(b"x"));
        closer.join().unwrap();
        // A close between connect and send cannot have taken the new connection.
        assert_eq!(sent, Ok(1));
        observed.note(errno(a.try_recv(&mut [0; 4])));
        assert_eq!(errno(c.try_recv(&mut [0; 4])), Ok(1));
        drop((a, c));
        no_socket_is_left();
    });
}

/// A thread that found the name before the close may connect to the closing socket, and close its own: then
/// each takes the other's reference.
#[test]
fn a_datagram_socket_that_connects_to_its_closing_peer_and_closes() {
    outcomes(&["Err(111)", "Ok(())"], |observed| {
        let name = Name::new("n").unwrap();
        let (a, b) = Socket::pair(Kind::Datagram);
        a.bind(&name).unwrap();
        let connecter = thread::spawn(move || errno(b.connect(&name)));
        drop(a);
        observed.note(connecter.join().unwrap());
        no_socket_is_left();
    });
}

/// A report finds the end that connect creates before any other thread does.
#[test]
fn a_report_against_connect() {
    outcomes(&["2", "3"], |observed| {
        let name = Name::new("n").unwrap();
        let listener = Socket::new(Kind::SeqPacket);
        listener.bind(&name).unwrap();
        listener.listen(1).unwrap();
        let client = Socket::new(Kind::SeqPacket);
        let reporter = thread::spawn(|| sockets().len());
        client.connect(&name).unwrap();
        observed.note(reporter.join().unwrap());
        drop((client, listener));
        no_socket_is_left();
    });
}

/// The path of streams, with the memory of the pools: fewer steps than the others.
#[test]
fn a_stream_delivers_what_it_accepted_before_the_close() {
    outcomes(&["(Ok(1), Err(11))", "(Ok(1), Ok(1))"], |observed| {
        let (a, b) = Socket::pair(Kind::Stream);
        let sender = thread::spawn(move || errno(a.try_send(b"x")));
        let mut buffer = [0; 4];
        let got = errno(b.try_recv(&mut buffer));
        let sent = sender.join().unwrap();
        observed.note((sent, got));
        if got == Err(libc::EAGAIN) {
            assert_eq!(errno(b.try_recv(&mut buffer)), Ok(1));
        }
        assert_eq!(errno(b.try_recv(&mut buffer)), Ok(0));
        drop(b);
        no_socket_is_left();
    });
}

/// Only the message can wake the receiver, since the sender lives on. Covers both ways into the buffer: the
/// short one, and that of sends that may wait.
#[test]
fn a_message_alone_wakes_a_receiver_that_waits() {
    for short in [true, false] {
        model(move || {
            let (a, b) = pair();
            let sender = thread::spawn(move || {
                assert!(if short { a.try_send(b"x").is_ok() } else { block_on(a.send_async(b"x")).is_ok() });
                a
            });
            assert_eq!(errno(block_on(b.recv_async(&mut [0; 4]))), Ok(1));
            drop((sender.join().unwrap(), b));
            no_socket_is_left();
        });
    }
}

/// A full buffer whose receiver takes nothing: only `does` can wake the sender. The receiver lives on if
/// `does` returns it.
fn a_sender_that_waits(outcome: &str, does: fn(&Socket, Socket) -> Option<Socket>) {
    outcomes(&[outcome], move |observed| {
        let (a, b) = pair();
        b.set_recv_limit(300).unwrap();
        a.try_send(b"1").unwrap();
        let a = Arc::new(a);
        let other = thread::spawn({
            let a = a.clone();
            move || does(&a, b)
        });
        observed.note(errno(block_on(a.send_async(b"2"))));
        drop((other.join().unwrap(), a));
        no_socket_is_left();
    });
}

#[test]
fn a_sender_that_waits_gets_the_room_that_a_receive_makes() {
    a_sender_that_waits("Ok(1)", |_, b| {
        assert_eq!(errno(b.try_recv(&mut [0; 4])), Ok(1));
        Some(b)
    });
}

#[test]
fn a_sender_that_waits_is_informed_that_the_receiver_closes() {
    a_sender_that_waits("Err(32)", |_, b| {
        drop(b);
        None
    });
}

#[test]
fn a_sender_that_waits_is_informed_that_the_receiver_shuts_its_half() {
    a_sender_that_waits("Err(32)", |_, b| {
        b.shutdown(Shutdown::Read).unwrap();
        Some(b)
    });
}

#[test]
fn a_sender_that_waits_is_informed_that_its_own_half_is_shut() {
    a_sender_that_waits("Err(32)", |a, b| {
        a.shutdown(Shutdown::Write).unwrap();
        Some(b)
    });
}

#[test]
fn a_sender_that_waits_gets_the_room_that_a_higher_limit_makes() {
    a_sender_that_waits("Ok(1)", |_, b| {
        b.set_recv_limit(1000).unwrap();
        Some(b)
    });
}

#[test]
fn a_sender_that_waits_gets_the_room_that_its_own_higher_limit_makes() {
    model(|| {
        let (a, b) = pair();
        a.set_send_limit(300).unwrap();
        a.try_send(b"1").unwrap();
        let a = Arc::new(a);
        let other = thread::spawn({
            let a = a.clone();
            move || a.set_send_limit(1000).unwrap()
        });
        assert_eq!(errno(block_on(a.send_async(b"2"))), Ok(1));
        other.join().unwrap();
        drop((a, b));
        no_socket_is_left();
    });
}

#[test]
fn a_receiver_that_waits_is_informed_that_its_own_half_is_shut() {
    model(|| {
        let (a, b) = pair();
        let b = Arc::new(b);
        let other = thread::spawn({
            let b = b.clone();
            move || b.shutdown(Shutdown::Read).unwrap()
        });
        assert_eq!(errno(block_on(b.recv_async(&mut [0; 4]))), Ok(0));
        other.join().unwrap();
        drop((a, b));
        no_socket_is_left();
    });
}

#[test]
fn a_receiver_of_datagrams_that_waits_is_informed_that_the_other_one_closes() {
    model(|| {
        let (a, b) = Socket::pair(Kind::Datagram);
        let other = thread::spawn(move || drop(b));
        assert_eq!(errno(block_on(a.recv_async(&mut [0; 4]))), Err(libc::ECONNRESET));
        other.join().unwrap();
        drop(a);
        no_socket_is_left();
    });
}

#[test]
fn a_sender_of_datagrams_that_waits_is_informed_of_the_shutdown() {
    model(|| {
        let (a, b) = Socket::pair(Kind::Datagram);
        b.set_recv_limit(300).unwrap();
        a.try_send(b"1").unwrap();
        let a = Arc::new(a);
        let other = thread::spawn({
            let a = a.clone();
            move || a.shutdown(Shutdown::Write).unwrap()
        });
        assert_eq!(errno(block_on(a.send_async(b"2"))), Err(libc::EPIPE));
        other.join().unwrap();
        drop((a, b));
        no_socket_is_left();
    });
}

/// Rule 2: a send reads `conn` without a lock, while another handle of the socket connects.
#[test]
fn connect_against_send() {
    outcomes(&["Err(107)", "Ok(1)"], |observed| {
        let name = Name::new("n").unwrap();
        let listener = Socket::new(Kind::SeqPacket);
        listener.bind(&name).unwrap();
        listener.listen(1).unwrap();
        let client = Socket::new(Kind::SeqPacket);
        let connecter = thread::spawn({
            let client = client.clone();
            move || client.connect(&name).unwrap()
        });
        observed.note(errno(client.try_send(b"x")));
        connecter.join().unwrap();
        drop((client, listener));
        no_socket_is_left();
    });
}

/// Rule 6: a pcb found by a report is alive.
#[test]
fn a_report_against_close() {
    outcomes(&["0", "1"], |observed| {
        let name = Name::new("n").unwrap();
        let a = Socket::new(Kind::Datagram);
        a.bind(&name).unwrap();
        let reporter = thread::spawn(|| sockets().len());
        drop(a);
        observed.note(reporter.join().unwrap());
        no_socket_is_left();
    });
}

/// The receive by reference, which tries the lock first to find out whether it collides with a sender.
#[test]
fn a_receive_by_reference_against_a_send() {
    outcomes(&["Err(11)", "Ok(1)"], |observed| {
        let (a, b) = Socket::pair(Kind::Stream);
        let sender = thread::spawn(move || a.try_send(b"x").is_ok());
        let got = errno(b.try_recv_chain(64)).map(|chain| chain.len());
        assert!(sender.join().unwrap());
        if got.is_err() {
            assert_eq!(b.try_recv_chain(64).unwrap(), b"x");
        }
        assert!(b.try_recv_chain(64).unwrap().is_empty(), "the end");
        observed.note(got);
        drop(b);
        no_socket_is_left();
    });
}
