//! Data in a buffer takes memory in proportion to its bytes, for any sequence of small and large sends. In a
//! process of its own, since the pools' numbers belong to the process.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::{CLUSTER_SIZES, Chain, Cluster, MAX_CLUSTER};
use manylane_local::{Kind, Socket};
use proptest::prelude::*;

/// Returns the bytes of all objects in use of all pools: clusters, and other objects that hold sent data.
fn used() -> usize {
    manylane_pool::report().iter().map(|pool| pool.size * pool.used as usize).sum()
}

/// Returns a chain of pieces as a driver receives them: none leaves most of a cluster empty.
fn chain(pieces: &[usize]) -> Chain {
    let mut chain = Chain::new();
    for &length in pieces {
        let mut cluster = Cluster::alloc(length.max(CLUSTER_SIZES[0])).expect("memory");
        cluster.put(&vec![b'x'; length]);
        chain.push_compact(cluster.into_segment()).expect("memory");
    }
    chain
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    fn random(
        turns in prop::collection::vec(
            prop::collection::vec(
                prop_oneof![
                    3 => 1..40_usize,
                    2 => 1..1100_usize,
                    1 => 1024..2049_usize,
                    1 => 1..16_385_usize,
                ],
                1..5,
            ),
            1..12,
        ),
    ) {
        held_by(&turns)?;
    }
}

/// An unread buffer holds at most two and a half times its bytes and two of the largest clusters: the one in
/// use, and the one before it.
#[test]
fn what_waits_in_a_stream_takes_memory_by_its_bytes() {
    random();
    // A few bytes before chains that fill their clusters, and before those that a large cluster has no room
    // for.
    for turns in [vec![vec![1_088, 1_088], vec![31]], vec![vec![8_300, 8_300], vec![1_024, 1_024, 40]]] {
        held_by(&turns).unwrap_or_else(|error| panic!("{turns:?}: {error}"));
    }
}

/// Sends the chains of `turns` one by one, until the buffer is full.
fn held_by(turns: &[Vec<usize>]) -> Result<(), TestCaseError> {
    let before = used();
    let (ours, theirs) = Socket::pair(Kind::Stream);
    let mut sent = 0;
    'full: for turn in turns.iter().cycle() {
        let mut chain = chain(turn);
        while !chain.is_empty() {
            let Ok(n) = ours.try_send_chain(&mut chain) else { break 'full };
            sent += n;
        }
    }
    let held = used() - before;
    prop_assert!(held <= sent * 5 / 2 + 2 * MAX_CLUSTER, "{held} bytes of memory for {sent} bytes");
    let mut received = 0;
    while received < sent {
        received += theirs.try_recv_chain(sent).expect("it is there").len();
    }
    prop_assert_eq!(received, sent);
    Ok(())
}
