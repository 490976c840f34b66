//! The last bytes of a stream with its end, on both drivers.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_io::Kind;
use std::os::fd::{AsFd, AsRawFd};

on_both_drivers! {
    the_last_bytes_and_the_end_are_one_packet;
    the_end_comes_behind_last_bytes_that_have_to_wait;
}

/// Packets that a TCP socket has received.
#[allow(unsafe_code)] // a system call
fn packets_in(socket: impl AsFd) -> u32 {
    const SEGS_IN: usize = 140; // in `tcp_info`, of which libc knows the beginning
    let mut info = [0u8; 256];
    let mut len = info.len() as libc::socklen_t;
    let (fd, address) = (socket.as_fd().as_raw_fd(), info.as_mut_ptr().cast());
    // SAFETY: the buffer has that length and lives until after the call.
    let outcome = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, address, &raw mut len) };
    assert!(outcome == 0 && len as usize >= SEGS_IN + 4);
    u32::from_ne_bytes(info[SEGS_IN..SEGS_IN + 4].try_into().unwrap())
}

fn the_last_bytes_and_the_end_are_one_packet(kind: Kind) {
    run(kind, |io| async move {
        let (a, b) = tcp_pair(&io).await;
        let before = packets_in(&b);
        let mut last = chain_of(&[b"head", b"body"]);
        a.send_last(&mut last).await.unwrap();
        assert!(last.is_empty());
        assert_eq!(to_end(&b).await, b"headbody");
        assert_eq!(packets_in(&b) - before, 1);
        // The other direction goes on.
        b.send(&mut chain(b"still here")).await.unwrap();
        assert_eq!(exactly(&a, 10).await, b"still here");
    });
}

fn the_end_comes_behind_last_bytes_that_have_to_wait(kind: Kind) {
    const BULK: usize = 16 << 20;
    run(kind, |io| async move {
        let (a, b) = tcp_pair(&io).await;
        let bulk = pattern(BULK);
        let sent = bulk.clone();
        spawn(&io, async move {
            a.send(&mut chain(&sent[..100])).await.unwrap();
            a.send_last(&mut chain(&sent[100..])).await.unwrap();
            assert!(
                a.send(&mut chain(b"more")).await.is_err() || a.flush().await.is_err(),
                "nothing follows the end"
            );
        });
        assert!(to_end(&b).await == bulk);
    });
}
