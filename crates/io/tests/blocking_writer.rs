//! A thread that writes to a stream's socket in turns with its lane, on both drivers.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_io::{BlockingWriter, Kind};

on_both_drivers! {
    bytes_of_the_lane_and_of_a_thread_arrive_in_the_order_of_their_turns;
    what_the_socket_does_not_take_at_once_is_the_lanes_to_send;
    writing_to_a_peer_that_has_gone_is_an_error_and_no_signal;
    the_socket_is_closed_when_both_have_let_go_of_it;
}

fn on_a_thread(beside: BlockingWriter, bytes: Vec<u8>) -> (BlockingWriter, usize) {
    let writing = std::thread::spawn(move || {
        let written = beside.write(&bytes).unwrap();
        (beside, written)
    });
    writing.join().unwrap()
}

fn bytes_of_the_lane_and_of_a_thread_arrive_in_the_order_of_their_turns(kind: Kind) {
    run(kind, |io| async move {
        let (a, b) = tcp_pair(&io).await;
        let mut beside = a.beside().unwrap();
        let mut sent = Vec::new();
        for turn in 1..20 {
            let bytes = pattern(100 * turn);
            a.send(&mut chain(&bytes)).await.unwrap();
            a.flush().await.unwrap();
            sent.extend_from_slice(&bytes);
            let written;
            (beside, written) = on_a_thread(beside, bytes.clone());
            assert_eq!(written, bytes.len(), "a socket has room for so little");
            sent.extend_from_slice(&bytes);
        }
        assert!(exactly(&b, sent.len()).await == sent);
    });
}

fn what_the_socket_does_not_take_at_once_is_the_lanes_to_send(kind: Kind) {
    run(kind, |io| async move {
        let (a, b) = tcp_pair(&io).await;
        let bytes = pattern(24 << 20); // more than all buffers
        let mut beside = a.beside().unwrap();
        let sent = bytes.clone();
        spawn(&io, async move {
            let mut begin = 0;
            while begin < sent.len() {
                let written;
                let some = (sent.len() - begin).min(256 << 10);
                (beside, written) = on_a_thread(beside, sent[begin..][..some].to_vec());
                begin += written;
                let rest = (sent.len() - begin).min(64 << 10);
                a.send(&mut chain(&sent[begin..][..rest])).await.unwrap(); // waits for room
                a.flush().await.unwrap();
                begin += rest;
            }
        });
        assert!(to_end(&b).await == bytes);
    });
}

fn writing_to_a_peer_that_has_gone_is_an_error_and_no_signal(kind: Kind) {
    run(kind, |io| async move {
        let (a, b) = pair(&io);
        let beside = a.beside().unwrap();
        drop(b);
        assert!(a.recv().await.unwrap().is_none()); // io_uring closes by the end of the round
        for _ in 0..2 {
            let error = beside.write(b"to nobody").unwrap_err();
            assert_eq!(error.to_string(), "sending failed: Broken pipe (os error 32)");
        }
    });
}

fn the_socket_is_closed_when_both_have_let_go_of_it(kind: Kind) {
    run(kind, |io| async move {
        let (a, b) = pair(&io);
        let beside = a.beside().unwrap();
        drop(a);
        assert_eq!(on_a_thread(beside, b"the last".to_vec()).1, 8);
        assert_eq!(to_end(&b).await, b"the last");
    });
}
