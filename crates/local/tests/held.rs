//! Data in a buffer takes memory in proportion to its bytes, for any sequence of small and large sends. In a
//! process of its own, since the pools' numbers belong to the process.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::{CLUSTER_SIZES, Chain, Cluster, MAX_CLUSTER};
use manylane_local::{Kind, Socket};
use manylane_pool::used_bytes;
use proptest::prelude::*;

/// Memory of a cluster beside its bytes.
const HEADER: usize = 128;

/// What one turn does.
#[derive(Clone, Debug)]
enum Turn {
    /// Sends a chain of segments with so many bytes each, as a driver receives them: none leaves most of a
    /// cluster empty, unless there are few bytes in all.
    Chain(Vec<usize>),
    /// The same in large clusters, however few bytes.
    Sparse(Vec<usize>),
    /// Sends a copy of so many bytes.
    Bytes(usize),
    /// Receives at most so many bytes.
    Receive(usize),
}

/// The bytes of a stream, by place.
fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|index| (index % 251) as u8).collect()
}

/// Returns a chain of pieces, each in a cluster for at least `room` bytes.
fn chain(pieces: &[usize], room: usize, mut index: usize) -> Chain {
    let mut chain = Chain::new();
    for &length in pieces {
        let mut cluster = Cluster::alloc(length.max(room)).expect("memory");
        cluster.put(&bytes(index, length));
        index += length;
        if room == MAX_CLUSTER {
            chain.push_back(cluster.into_segment()).expect("memory");
        } else {
            chain.push_compact(cluster.into_segment()).expect("memory");
        }
    }
    chain
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![
        3 => 1..40_usize,
        2 => 1..1100_usize,
        1 => 1024..2049_usize,
        1 => 1..16_385_usize,
    ];
    prop::collection::vec(length, 1..9)
}

fn sends() -> impl Strategy<Value = Turn> {
    prop_oneof![
        3 => lengths().prop_map(Turn::Chain),
        1 => lengths().prop_map(Turn::Sparse),
        1 => (1..2000_usize).prop_map(Turn::Bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    fn unread(turns in prop::collection::vec(sends(), 1..12)) {
        held_by(&turns)?;
    }

    fn partly_read(turns in prop::collection::vec(
        prop_oneof![3 => sends(), 2 => (1..20_000_usize).prop_map(Turn::Receive)],
        1..12,
    )) {
        held_by(&turns)?;
    }
}

/// A buffer takes at most twice its bytes and one of the largest clusters. Where a receiver takes a part, a
/// second cluster may have a few bytes left, and a third was filled only together with those.
#[test]
fn what_waits_in_a_stream_takes_memory_by_its_bytes() {
    unread();
    partly_read();
    let found = [
        // A few bytes before chains that fill their clusters, and before those that a large cluster has no
        // room for.
        vec![Turn::Chain(vec![1_088, 1_088]), Turn::Chain(vec![31])],
        vec![Turn::Chain(vec![8_300, 8_300]), Turn::Chain(vec![1_024, 1_024, 40])],
        // A segment that the limit cuts.
        [vec![Turn::Chain(vec![8_256; 31])], vec![Turn::Bytes(1_000); 5], vec![Turn::Chain(vec![16_384])]]
            .concat(),
        // A stage of which little is left.
        vec![Turn::Bytes(1_024), Turn::Bytes(18 * 1_024 - 1_023), Turn::Receive(18 * 1_024 - 1)],
    ];
    for turns in found {
        held_by(&turns).unwrap_or_else(|error| panic!("{turns:?}: {error}"));
    }
}

/// Takes the turns one by one, until the buffer is full or has had a megabyte.
fn held_by(turns: &[Turn]) -> Result<(), TestCaseError> {
    let before = used_bytes();
    let (ours, theirs) = Socket::pair(Kind::Stream);
    let (mut sent, mut received) = (0, 0);
    let receive = |most: usize, sent: usize, received: &mut usize| {
        while *received < sent && most > 0 {
            let chain = theirs.try_recv_chain(most).expect("it is there");
            prop_assert_eq!(&chain, &bytes(*received, chain.len())[..]);
            *received += chain.len();
            if most != usize::MAX {
                break;
            }
        }
        Ok(())
    };
    let clusters = if turns.iter().any(|turn| matches!(turn, Turn::Receive(_))) { 3 } else { 1 };
    for turn in turns.iter().cycle().take(4_000) {
        let mut chain = match turn {
            Turn::Receive(most) => {
                receive(*most, sent, &mut received)?;
                Chain::new()
            }
            Turn::Bytes(length) => match ours.try_send(&bytes(sent, *length)) {
                Ok(n) => {
                    sent += n;
                    Chain::new()
                }
                Err(_) => break,
            },
            Turn::Chain(pieces) => chain(pieces, CLUSTER_SIZES[0], sent),
            Turn::Sparse(pieces) => chain(pieces, MAX_CLUSTER, sent),
        };
        let mut full = false;
        while !chain.is_empty() && !full {
            match ours.try_send_chain(&mut chain) {
                Ok(n) => sent += n,
                Err(_) => full = true,
            }
        }
        drop(chain);
        let (held, waits) = (used_bytes() - before, sent - received);
        let most = 2 * waits + clusters * (HEADER + MAX_CLUSTER);
        prop_assert!(held <= most, "{held} bytes of memory for {waits} bytes: {} more", held - most);
        if full || sent > 1 << 20 {
            break;
        }
    }
    receive(usize::MAX, sent, &mut received)
}
