//! Handles in messages, and the collection of those that no socket can receive any more (R-A6).
//!
//! One test, since the collector and its counts belong to the process.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_local::{
    Attached, Handle, Kind, MAX_HANDLES, MAX_IN_FLIGHT, Socket, collect, in_flight, sockets,
};
use std::sync::Arc;

fn send(over: &Socket, handles: Vec<Handle>) {
    let mut handles = handles;
    over.send_message(b"h", Attached { handles: Some(&mut handles), ..Attached::default() }).unwrap();
    assert!(handles.is_empty(), "they moved");
}

fn receive(over: &Socket) -> Vec<Handle> {
    over.recv_message(&mut [0; 8]).unwrap().handles
}

fn into_socket(handle: Handle) -> Socket {
    match handle {
        Handle::Socket(socket) => socket,
        Handle::Object(_) => panic!("a socket was sent"),
    }
}

fn a_socket_that_was_sent_works_where_it_was_received(kind: Kind) {
    let (a, b) = Socket::pair(kind);
    let (c, d) = Socket::pair(Kind::Stream);
    send(&a, vec![d.into()]);
    assert_eq!(in_flight(), 1);
    let d = into_socket(receive(&b).pop().unwrap());
    assert_eq!(in_flight(), 0);
    c.send(b"through").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(d.recv(&mut buffer).unwrap(), 7);
}

fn objects_and_credentials_travel(kind: Kind) {
    let (a, b) = Socket::pair(kind);
    let object = Arc::new(());
    let mut handles = vec![Handle::Object(Box::new(object.clone()))];
    let attached = Attached { handles: Some(&mut handles), credentials: true, ..Attached::default() };
    a.send_message(b"o", attached).unwrap();
    let received = b.recv_message(&mut [0; 8]).unwrap();
    assert_eq!(received.credentials.unwrap().process, std::process::id());
    let Some(Handle::Object(got)) = received.handles.into_iter().next() else { panic!("an object was sent") };
    assert!(Arc::ptr_eq(got.downcast_ref::<Arc<()>>().unwrap(), &object));
    // Handles that are not received are dropped with the socket.
    let lost = Arc::new(());
    send(&a, vec![Handle::Object(Box::new(lost.clone()))]);
    drop(b);
    assert_eq!(Arc::strong_count(&lost), 1);
}

fn bytes_of_a_stream_do_not_mix_across_handles() {
    let (a, b) = Socket::pair(Kind::Stream);
    let (_c, d) = Socket::pair(Kind::Stream);
    a.send(b"before").unwrap();
    send(&a, vec![d.into()]);
    a.send(b"after").unwrap();
    let mut buffer = [0; 64];
    let first = b.recv_message(&mut buffer).unwrap();
    assert_eq!((&buffer[..first.len], first.handles.len()), (&b"before"[..], 0));
    let second = b.recv_message(&mut buffer).unwrap();
    assert_eq!((&buffer[..second.len], second.handles.len()), (&b"hafter"[..], 1));
}

fn a_plain_receive_closes_what_comes_along(kind: Kind) {
    let (a, b) = Socket::pair(kind);
    let (c, d) = Socket::pair(Kind::Stream);
    send(&a, vec![d.into()]);
    match kind {
        Kind::Stream => assert_eq!(b.recv_chain(9).unwrap(), b"h"),
        _ => assert_eq!(b.recv(&mut [0; 8]).unwrap(), 1),
    }
    assert_eq!(in_flight(), 0);
    assert_eq!(c.recv(&mut [0; 8]).unwrap(), 0, "its peer sees the end");
}

fn a_refused_message_gives_its_handles_back() {
    let (a, b) = Socket::pair(Kind::SeqPacket);
    drop(b);
    let (_c, d) = Socket::pair(Kind::Stream);
    let number = d.number();
    let mut handles = vec![Handle::from(d)];
    let error =
        a.send_message(b"h", Attached { handles: Some(&mut handles), ..Attached::default() }).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::EPIPE);
    assert_eq!(into_socket(handles.pop().unwrap()).number(), number);
}

fn open_sockets() -> usize {
    sockets().len()
}

/// An end in its own buffer, with the only other way to it closed.
fn an_end_sent_to_itself_is_collected() {
    let (a, b) = Socket::pair(Kind::Stream);
    send(&a, vec![b.into()]);
    assert_eq!(open_sockets(), 2);
    drop(a);
    assert_eq!((open_sockets(), in_flight()), (0, 0));
}

/// Rings of sockets, each in the next one's buffer. The first one's peer also sends an object, which must be
/// dropped with the ring.
fn rings_are_collected_and_what_can_be_received_is_not() {
    for length in [2, 3, 50] {
        let pairs: Vec<_> = (0..length).map(|_| Socket::pair(Kind::SeqPacket)).collect();
        for (i, (a, _)) in pairs.iter().enumerate() {
            send(a, vec![pairs[(i + 1) % length].1.clone().into()]);
        }
        let witness = Arc::new(());
        send(&pairs[0].0, vec![Handle::Object(Box::new(witness.clone()))]);
        let way_in = pairs[0].1.clone();
        drop(pairs);
        assert_eq!(collect(), 0, "one of the ring can still be read, so all can be received");
        assert_eq!(in_flight(), length);
        drop(way_in);
        collect();
        assert_eq!((open_sockets(), in_flight(), Arc::strong_count(&witness)), (0, 0, 1), "{length}");
    }
}

/// A cycle through a connection that was never accepted.
fn a_cycle_through_a_backlog_is_collected() {
    let name = manylane_local::Name::new("backlog").unwrap();
    let listener = Socket::new(Kind::Stream);
    listener.bind(&name).unwrap();
    listener.listen(1).unwrap();
    let client = Socket::new(Kind::Stream);
    client.connect(&name).unwrap();
    send(&client, vec![listener.into()]);
    drop(client);
    collect();
    assert_eq!((open_sockets(), in_flight()), (0, 0));
}

/// Each socket is in the buffer of the one before it: closing the first closes all, without recursion.
fn a_deep_chain_is_closed_in_a_small_stack() {
    const DEPTH: usize = 20_000;
    let thread = std::thread::Builder::new().stack_size(128 * 1024);
    let chain = thread.spawn(|| {
        let (first, mut last) = Socket::pair(Kind::SeqPacket);
        let mut outer = Vec::new();
        for _ in 0..DEPTH {
            let (a, b) = Socket::pair(Kind::SeqPacket);
            send(&a, vec![last.into()]);
            outer.push(a);
            last = b;
        }
        drop(outer);
        drop(last);
        drop(first);
    });
    chain.unwrap().join().unwrap();
    collect();
    assert_eq!((open_sockets(), in_flight()), (0, 0));
}

fn too_many_handles_are_refused_and_come_back() {
    let (a, _b) = Socket::pair(Kind::SeqPacket);
    let (_c, d) = Socket::pair(Kind::Stream);
    let mut handles: Vec<Handle> = (0..=MAX_HANDLES).map(|_| d.clone().into()).collect();
    let error =
        a.send_message(b"h", Attached { handles: Some(&mut handles), ..Attached::default() }).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::ETOOMANYREFS);
    assert!(
        error.to_string().contains("254 handles in a message or in flight, expected at most 253"),
        "{error}"
    );
    assert_eq!(handles.len(), MAX_HANDLES + 1);

    handles.pop();
    let (a, b) = Socket::pair(Kind::SeqPacket);
    b.set_recv_limit(1 << 30).unwrap();
    a.set_send_limit(1 << 30).unwrap();
    let mut sent = 0;
    loop {
        let attached = Attached { handles: Some(&mut handles), ..Attached::default() };
        match a.send_message(b"h", attached) {
            Ok(_) => sent += MAX_HANDLES,
            Err(error) => {
                assert_eq!(error.raw_os_error(), libc::ETOOMANYREFS);
                break;
            }
        }
        handles = (0..MAX_HANDLES).map(|_| d.clone().into()).collect();
    }
    assert_eq!(sent, MAX_IN_FLIGHT / MAX_HANDLES * MAX_HANDLES);
    assert_eq!(in_flight(), sent);
    drop(b);
    assert_eq!(in_flight(), 0);
}

/// Unreachable handles do not take the places of reachable ones.
fn at_the_bound_cycles_make_room() {
    // Many survivors of a run postpone the next one.
    let (keeper, _kept) = Socket::pair(Kind::SeqPacket);
    let survivors: Vec<Socket> = (0..MAX_HANDLES).map(|_| Socket::new(Kind::Stream)).collect();
    send(&keeper, survivors.into_iter().map(Handle::from).collect());
    collect();
    let witness = Arc::new(());
    let (a, b) = Socket::pair(Kind::SeqPacket);
    send(&a, (0..MAX_HANDLES).map(|_| b.clone().into()).collect());
    send(&a, vec![Handle::Object(Box::new(witness.clone()))]);
    drop((a, b));
    assert_eq!(Arc::strong_count(&witness), 2, "it waits for a run");

    let (a, b) = Socket::pair(Kind::SeqPacket);
    b.set_recv_limit(1 << 30).unwrap();
    a.set_send_limit(1 << 30).unwrap();
    let (_c, d) = Socket::pair(Kind::Stream);
    while in_flight() + MAX_HANDLES <= MAX_IN_FLIGHT {
        send(&a, (0..MAX_HANDLES).map(|_| d.clone().into()).collect());
    }
    assert_eq!(Arc::strong_count(&witness), 2, "it still waits");
    send(&a, (0..MAX_HANDLES).map(|_| d.clone().into()).collect());
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn handles_are_passed_and_none_is_left_behind() {
    for kind in [Kind::Stream, Kind::Datagram, Kind::SeqPacket] {
        a_socket_that_was_sent_works_where_it_was_received(kind);
        objects_and_credentials_travel(kind);
        a_plain_receive_closes_what_comes_along(kind);
    }
    bytes_of_a_stream_do_not_mix_across_handles();
    a_refused_message_gives_its_handles_back();
    assert_eq!(open_sockets(), 0);
    an_end_sent_to_itself_is_collected();
    rings_are_collected_and_what_can_be_received_is_not();
    a_cycle_through_a_backlog_is_collected();
    a_deep_chain_is_closed_in_a_small_stack();
    too_many_handles_are_refused_and_come_back();
    at_the_bound_cycles_make_room();
    assert_eq!((open_sockets(), in_flight()), (0, 0));
}
