//! R-A7: data sent by reference is received without copying: the bytes do not move.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too
#![allow(clippy::single_range_in_vec_init)] // one segment, one range

use manylane_buf::{Chain, Cluster};
use manylane_local::{Kind, Socket};
use std::ops::Range;

const SIZE: usize = 16 * 1024;

fn filled() -> Chain {
    let mut cluster = Cluster::alloc(SIZE).unwrap();
    assert_eq!(cluster.put(&[7; SIZE]), SIZE);
    Chain::from(cluster.into_segment())
}

fn addresses(chain: &Chain) -> Vec<Range<usize>> {
    chain.segments().map(|segment| segment.as_ptr().addr()..segment.as_ptr().addr() + segment.len()).collect()
}

#[test]
fn sixteen_kibibytes_arrive_at_the_address_where_they_were_sent() {
    for kind in [Kind::Stream, Kind::Datagram, Kind::SeqPacket] {
        let (a, b) = Socket::pair(kind);
        let mut chain = filled();
        let sent = addresses(&chain);
        assert_eq!(a.send_chain(&mut chain).unwrap(), SIZE);
        assert!(chain.is_empty(), "it moved");
        let received = std::thread::spawn(move || {
            let chain = b.recv_chain(usize::MAX).unwrap();
            assert_eq!(chain, &[7; SIZE]);
            addresses(&chain)
        });
        assert_eq!(received.join().unwrap(), sent, "{kind:?}");
    }
}

#[test]
fn a_stream_is_cut_by_reference_wherever_the_receiver_cuts_it() {
    let (a, b) = Socket::pair(Kind::Stream);
    let mut chain = filled();
    let sent = addresses(&chain)[0].clone();
    a.send_chain(&mut chain).unwrap();
    let first = b.recv_chain(1000).unwrap();
    let mut middle = [0; 24];
    assert_eq!(b.recv(&mut middle).unwrap(), 24, "a part may be copied");
    let rest = b.recv_chain(usize::MAX).unwrap();
    assert_eq!(addresses(&first), [sent.start..sent.start + 1000]);
    assert_eq!(addresses(&rest), [sent.start + 1024..sent.end]);
}

/// A part that fills less than half of its cluster is copied: the cluster would wait with it.
#[test]
fn a_chain_that_is_larger_than_the_room_is_sent_in_parts_by_reference() {
    let (a, b) = Socket::pair(Kind::Stream);
    b.set_recv_limit(20_000).unwrap();
    let mut chain = filled();
    chain.append_chain(&mut filled()).unwrap();
    let [first, second] = &addresses(&chain)[..] else { panic!("two clusters") };
    assert_eq!(a.try_send_chain(&mut chain).unwrap(), 20_000);
    assert_eq!(chain.len(), 2 * SIZE - 20_000, "what was not sent is still the caller's");
    let received = b.recv_chain(usize::MAX).unwrap();
    assert_eq!(received.len(), 20_000);
    assert_eq!(addresses(&received)[0], *first);
    assert!(!second.contains(&addresses(&received)[1].start), "the part is copied");
    a.try_send_chain(&mut chain).unwrap();
    assert_eq!(addresses(&b.recv_chain(usize::MAX).unwrap()), [second.start + 20_000 - SIZE..second.end]);
}

#[test]
fn small_sends_of_a_stream_share_clusters_and_are_received_at_once() {
    let (a, b) = Socket::pair(Kind::Stream);
    for i in 0..100u8 {
        a.send(&[i; 64]).unwrap();
    }
    let chain = b.recv_chain(usize::MAX).unwrap();
    assert_eq!(chain.len(), 6400);
    assert!(chain.segment_count() <= 3, "{} segments", chain.segment_count());
    let bytes = chain.to_vec();
    assert!((0..100u8).all(|i| bytes[usize::from(i) * 64..][..64] == [i; 64]));
}

#[test]
fn a_refused_chain_is_as_it_was() {
    for kind in [Kind::Stream, Kind::SeqPacket] {
        let (a, b) = Socket::pair(kind);
        drop(b);
        let mut chain = filled();
        let before = addresses(&chain);
        assert_eq!(a.send_chain(&mut chain).unwrap_err().raw_os_error(), libc::EPIPE);
        assert_eq!(addresses(&chain), before, "{kind:?}");
    }
    let (a, b) = Socket::pair(Kind::SeqPacket);
    a.send_chain(&mut filled()).unwrap();
    assert_eq!(b.recv_chain(100).unwrap_err().raw_os_error(), libc::EMSGSIZE);
    assert_eq!(b.recv_chain(SIZE).unwrap().len(), SIZE, "a message that was too long for one call stays");
}

#[test]
fn pieces_by_copy_and_by_reference_arrive_in_the_order_in_which_they_were_sent() {
    let (a, b) = Socket::pair(Kind::Stream);
    let mut all = Vec::new();
    for i in 0..40u8 {
        let len = [1, 3000, 100, 1024, 1025][usize::from(i % 5)];
        let bytes = vec![i; len];
        if i % 2 == 0 {
            a.send(&bytes).unwrap();
        } else {
            let mut chain = Chain::new();
            chain.append(&bytes).unwrap();
            a.send_chain(&mut chain).unwrap();
        }
        all.extend(bytes);
    }
    let mut got = Vec::new();
    let mut buffer = [0; 777];
    for turn in 0.. {
        if got.len() == all.len() {
            break;
        }
        match turn % 3 {
            0 => got.extend(b.recv_chain(2500).unwrap().to_vec()),
            1 => {
                let n = b.recv(&mut buffer).unwrap();
                got.extend(&buffer[..n]);
            }
            _ => got.extend(b.recv_chain(1).unwrap().to_vec()),
        }
    }
    assert!(got == all);
}
