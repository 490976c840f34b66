//! A call without memory returns an error with its number and changes nothing. Failures affect the calling
//! thread only.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_local::{Error, Kind, Name, Socket};
use manylane_pool::inject;

/// `ENOBUFS` of Linux.
const NO_BUFFERS: i32 = 105;
/// More bytes than a socket keeps without a cluster.
const BYTES: [u8; 1000] = [7; 1000];

/// Returns the result of `attempt` while every allocation fails.
fn without_memory<T>(attempt: impl FnOnce() -> Result<T, Error>) -> Error {
    let guard = inject::every(1);
    let error = attempt().err();
    drop(guard);
    error.expect("there was no memory")
}

/// Only builds that inject failures test it: debug builds, and those with the pool's feature
/// `fault-injection`.
fn can_fail() -> bool {
    if !inject::ENABLED {
        eprintln!("NOT SHOWN HERE: ENOBUFS: this build injects no failures");
    }
    inject::ENABLED
}

/// R-A1, R-B6
#[test]
fn bytes_without_memory_are_refused_with_enobufs_and_the_next_try_succeeds() {
    if !can_fail() {
        return;
    }
    for kind in [Kind::Stream, Kind::Datagram, Kind::SeqPacket] {
        let (a, b) = Socket::pair(kind);
        let error = without_memory(|| a.try_send(&BYTES));
        assert!(matches!(error, Error::NoBuffers(_)), "{kind:?}: {error:?}");
        assert_eq!(error.raw_os_error(), NO_BUFFERS);
        assert_eq!(b.queued(), 0, "{kind:?}: nothing was sent");
        assert_eq!(a.send(&BYTES).unwrap(), BYTES.len());
        let mut got = [0; BYTES.len()];
        assert_eq!(b.recv(&mut got).unwrap(), BYTES.len());
        assert_eq!(got, BYTES, "{kind:?}");
    }
}

/// R-A1, R-B6
#[test]
fn a_connection_without_memory_for_its_other_end_is_refused_with_enobufs_and_can_be_made_later() {
    if !can_fail() {
        return;
    }
    let error = without_memory(|| Socket::try_new(Kind::Stream));
    assert_eq!(error.raw_os_error(), NO_BUFFERS);
    let (listener, client) = (Socket::new(Kind::Stream), Socket::new(Kind::Stream));
    let name = Name::new("short of memory").unwrap();
    listener.bind(&name).unwrap();
    listener.listen(1).unwrap();
    let error = without_memory(|| client.connect(&name));
    assert_eq!(error.raw_os_error(), NO_BUFFERS, "{error:?}");
    client.connect(&name).unwrap();
    client.send(b"x").unwrap();
    assert_eq!(listener.accept().unwrap().recv(&mut [0]).unwrap(), 1);
}
