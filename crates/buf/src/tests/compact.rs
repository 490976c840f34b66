//! A compact chain takes memory by its bytes, not by the pieces in which they came.

use crate::{CLUSTER_SIZES, Chain, Cluster, Segment, header::Header};
use proptest::prelude::*;

/// Makes a segment as a read does: the bytes in a cluster of that class.
fn read(bytes: &[u8], class: usize) -> Segment {
    let mut cluster = Cluster::alloc(CLUSTER_SIZES[class]).expect("memory");
    cluster.put(bytes);
    cluster.into_segment()
}

/// Returns the memory of the clusters of a chain, headers included. No two neighbours share a cluster here.
fn memory(chain: &Chain) -> usize {
    chain.segments().map(|segment| size_of::<Header>() + segment.hold().capacity()).sum()
}

proptest! {
    /// The bound of SECURITY.md: twice the bytes and a cluster, at every moment, while nothing is removed
    /// from the front.
    #[test]
    fn what_waits_takes_at_most_twice_its_bytes_and_a_cluster(
        cuts in prop::collection::vec((prop_oneof![Just(1_usize), 1..40_usize, 1..2049_usize,
            1..16_385_usize], any::<bool>()), 1..120),
        shared in any::<bool>(),
    ) {
        let (mut chain, mut expected) = (Chain::new(), Vec::new());
        for (n, (len, large)) in cuts.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..len).map(|at| (n * 31 + at) as u8).collect();
            let class = usize::from(large || len > CLUSTER_SIZES[0]);
            let view = shared.then(|| chain.share().expect("memory"));
            chain.push_compact(read(&bytes, class)).expect("memory");
            let before = expected.len();
            expected.extend_from_slice(&bytes);
            prop_assert_eq!(chain.len(), expected.len());
            if let Some(view) = view {
                prop_assert_eq!(view.to_vec(), &expected[..before]); // bytes that another view sees
            }
            let bound = 2 * chain.len() + size_of::<Header>() + CLUSTER_SIZES[1];
            prop_assert!(memory(&chain) <= bound, "{} for {} bytes", memory(&chain), chain.len());
        }
        prop_assert_eq!(chain.to_vec(), expected);
    }

    /// The same for chains that are moved behind it while parsers remove bytes from the front: the bound then
    /// has a cluster at either end.
    #[test]
    fn what_is_moved_and_taken_stays_within_two_clusters_of_it(
        steps in prop::collection::vec((prop::collection::vec(
            prop_oneof![1..700_usize, 1..40_usize, 2049..16_385_usize], 1..6), 0..30_000_usize), 1..60),
    ) {
        let (mut chain, mut expected) = (Chain::new(), Vec::new());
        for (n, (pieces, taken)) in steps.into_iter().enumerate() {
            let mut other = Chain::new();
            for len in pieces {
                let bytes = vec![n as u8; len];
                other.push_back(read(&bytes, usize::from(len > CLUSTER_SIZES[0]))).expect("memory");
                expected.extend_from_slice(&bytes);
            }
            chain.append_compact(&mut other).expect("memory");
            prop_assert!(other.is_empty());
            let taken = taken.min(expected.len());
            chain.trim_front(taken).expect("there are so many");
            expected.drain(..taken);
            prop_assert_eq!(chain.to_vec(), &expected[..]);
            let bound = 2 * chain.len() + 2 * (size_of::<Header>() + CLUSTER_SIZES[1]);
            prop_assert!(memory(&chain) <= bound, "{} for {} bytes", memory(&chain), chain.len());
        }
    }

    /// The same for what a parser leaves and gathers: one cluster again.
    #[test]
    fn what_is_gathered_takes_at_most_twice_its_bytes_and_a_cluster(
        steps in prop::collection::vec(
            (prop_oneof![1..40_usize, 1..2049_usize, 1..16_385_usize], any::<bool>(), 0..16_384_usize),
            1..60,
        ),
    ) {
        let (mut chain, mut expected) = (Chain::new(), Vec::new());
        for (n, (len, large, left)) in steps.into_iter().enumerate() {
            let bytes = vec![n as u8; len];
            chain.push_compact(read(&bytes, usize::from(large || len > CLUSTER_SIZES[0]))).expect("memory");
            expected.extend_from_slice(&bytes);
            let taken = expected.len().saturating_sub(left);
            let view = chain.share().expect("memory");
            chain.trim_front(taken).expect("there are so many");
            chain.gather().expect("memory");
            prop_assert_eq!(view.to_vec(), &expected[..]);
            drop(expected.drain(..taken));
            prop_assert_eq!(chain.to_vec(), &expected[..]);
            let bound = 2 * chain.len() + size_of::<Header>() + CLUSTER_SIZES[1];
            prop_assert!(memory(&chain) <= bound, "{} for {} bytes", memory(&chain), chain.len());
        }
    }
}

/// 15,000 single bytes take as few clusters as their number needs.
#[test]
fn single_bytes_lie_side_by_side() {
    let mut chain = Chain::new();
    for at in 0..15_000 {
        chain.push_compact(read(&[at as u8], 0)).expect("memory");
    }
    assert_eq!(chain.segment_count(), 15_000_usize.div_ceil(CLUSTER_SIZES[0]));
}

/// Large pieces are not copied.
#[test]
fn pieces_that_fill_their_clusters_are_taken_by_reference() {
    let mut chain = Chain::new();
    for _ in 0..3 {
        let segment = read(&[7; 1500], 0);
        let same = segment.clone();
        chain.push_compact(segment).expect("memory");
        assert!(chain.back().is_some_and(|back| back.shares_with(&same)));
    }
}

/// Frames of a protocol move by reference: their headers in one cluster, the data of each in its own.
#[test]
fn small_pieces_before_large_ones_are_taken_by_reference() {
    let headers = read(&[1; 27], 0);
    let mut frames = Chain::new();
    for n in 0..3 {
        frames.push_back(headers.slice(9 * n..9 * n + 9).expect("it has them")).expect("memory");
        frames.push_back(read(&[2; 16_384], 1)).expect("memory");
    }
    let (before, mut chain) = (frames.share().expect("memory"), Chain::new());
    chain.append_compact(&mut frames).expect("memory");
    assert_eq!(chain.segment_count(), 6);
    assert!(chain.segments().zip(before.segments()).all(|(now, then)| now.shares_with(then)));
}

/// Returns a small segment with a mark.
fn secret() -> Segment {
    let secret = read(b"key", 0);
    secret.zero_on_free().expect("clusters are writable");
    secret
}

/// A copy would lie in a cluster that nobody zeroes.
#[test]
fn bytes_to_be_zeroed_are_taken_by_reference() {
    let before = crate::model::zeroed();
    let mut chain = Chain::new();
    for segment in [read(b"reply", 0), secret(), read(b"more", 0), secret()] {
        chain.push_compact(segment).expect("memory");
    }
    let marks: Vec<_> = chain.segments().map(|segment| (&**segment, segment.is_zero_on_free())).collect();
    assert_eq!(marks, [(&b"reply"[..], false), (b"keymore", true), (b"key", true)]);
    drop(chain);
    assert_eq!(crate::model::zeroed(), before + 2);
}

#[test]
fn bytes_to_be_zeroed_keep_their_mark_when_they_are_pulled_up() {
    // Behind the first segment, and in a new cluster.
    for first in [&b"head"[..], &[b'h'; CLUSTER_SIZES[0]]] {
        let before = crate::model::zeroed();
        let mut chain = Chain::from(read(first, 0));
        chain.push_back(secret()).expect("memory");
        let mut rest = Chain::from(read(b"rest", 0));
        chain.append_chain(&mut rest).expect("memory");
        chain.pull_up(first.len()).expect("there are so many");
        chain.pull_up(first.len() + 1).expect("there are so many");
        let marks: Vec<_> =
            chain.segments().map(|segment| (segment.len(), segment.is_zero_on_free())).collect();
        assert_eq!(marks, [(first.len() + 1, true), (2, true), (4, false)]);
        drop(chain);
        assert_eq!(crate::model::zeroed(), before + 2);
    }
    let mut chain = Chain::from(read(b"head", 0));
    chain.push_back(read(b"body", 0)).expect("memory");
    chain.push_back(secret()).expect("memory");
    chain.pull_up(8).expect("there are so many");
    assert!(!chain.front().is_some_and(Segment::is_zero_on_free), "it has none of the secret");
}
