//! Handles: their kind, their owner, and which of them may write (the rules of the header).

use crate::{CLUSTER_SIZES, Chain, Cluster, External, Parcel, Segment};

fn segment(bytes: &[u8]) -> Segment {
    Cluster::with(bytes).expect("memory").into_segment()
}

fn on_another_lane<R: Send>(chain: Chain, f: impl FnOnce(Chain) -> R + Send) -> R {
    let parcel = Parcel::from(chain);
    std::thread::scope(|scope| scope.spawn(|| f(parcel.open())).join().expect("no assertion failed"))
}

/// Memory that comes back from the pool has what its last holder wrote into it. Nobody is shown that.
#[test]
fn a_cluster_that_was_used_before_shows_what_is_put_into_it_alone() {
    let secret = segment(&[b's'; CLUSTER_SIZES[0]]);
    let memory = secret.as_slice().as_ptr();
    drop(secret);
    let mut cluster = Cluster::alloc(CLUSTER_SIZES[0]).expect("memory");
    assert!(cluster.is_empty() && cluster.as_slice().is_empty());
    assert_eq!(cluster.put(b"new"), 3);
    let mut segment = cluster.into_segment();
    assert_eq!(segment.as_slice().as_ptr(), memory, "it is the same memory");
    assert_eq!((segment.as_slice(), segment.len()), (&b"new"[..], 3));
    assert!(segment.slice(0..4).is_err() && segment.split_off(4).is_err() && segment.trim_front(4).is_err());
    let mut chain = Chain::from(segment);
    assert!(chain.copy_range(..4).is_err() && chain.pull_up(4).is_err() && chain.split_to(4).is_err());
    let room = chain.spare(1, 2048).expect("room");
    assert_eq!(room.fill(|room| Ok::<_, ()>(room[..0].write_copy_of_slice(b""))), Ok(0));
    assert_eq!(chain.to_vec(), b"new");
}

#[test]
fn a_unique_cluster_changes_its_owner_when_it_crosses() {
    let chain = segment(b"hello").into();
    on_another_lane(chain, |mut chain| {
        assert!(chain.front().expect("one").is_unique());
        chain.append(b", world").expect("the same cluster has room");
        assert_eq!((chain.segment_count(), chain.to_vec()), (1, b"hello, world".to_vec()));
        assert_eq!(chain.share().expect("memory"), chain);
    });
}

#[test]
fn a_lane_that_does_not_own_a_shared_cluster_does_not_write_into_it() {
    let keep = segment(b"hello");
    on_another_lane(keep.clone().into(), |mut chain| {
        let first = chain.front().expect("one").as_ptr().addr();
        chain.append(b", world").expect("memory");
        assert_eq!(chain.segment_count(), 2, "the rest is in a cluster of its own");
        assert_eq!(chain.front().expect("two").as_ptr().addr(), first);
        assert_eq!(chain, b"hello, world");
    });
    assert!(keep.is_unique(), "the other lane has dropped its handle");
}

#[test]
fn the_owner_goes_on_filling_a_cluster_whose_start_is_elsewhere() {
    let mut chain = Chain::from(segment(b"hello"));
    let head = chain.share().expect("memory");
    let there = Parcel::from(head);
    chain.append(b", world").expect("memory");
    assert_eq!((chain.segment_count(), chain.to_vec()), (1, b"hello, world".to_vec()));
    let there = there.open();
    assert_eq!(there, b"hello");
}

#[test]
fn two_views_with_the_same_end_cannot_both_claim_the_room_behind_it() {
    let mut a = Chain::from(segment(b"x"));
    let mut b = a.share().expect("memory");
    a.append(b"aaa").expect("memory");
    b.append(b"bbb").expect("memory");
    assert_eq!((a.to_vec(), b.to_vec()), (b"xaaa".to_vec(), b"xbbb".to_vec()));
    assert_eq!((a.segment_count(), b.segment_count()), (1, 2));
}

#[test]
fn room_that_is_lent_out_is_nobody_elses() {
    let mut a = Chain::from(segment(b"x"));
    let mut b = a.share().expect("memory");
    let room = a.spare(1, 2048).expect("room");
    b.append(b"bbb").expect("memory");
    let filled = room.fill(|room| Ok::<_, ()>(room[..3].write_copy_of_slice(b"aaa")));
    assert_eq!(filled, Ok(3));
    assert_eq!((a.to_vec(), b.to_vec()), (b"xaaa".to_vec(), b"xbbb".to_vec()));
    assert_eq!((a.segment_count(), b.segment_count()), (1, 2));
}

#[test]
fn room_that_was_not_filled_goes_back() {
    let mut a = Chain::from(segment(b"x"));
    let mut b = a.share().expect("memory");
    drop(a.spare(1, 2048).expect("room"));
    b.append(b"bbb").expect("memory");
    assert_eq!((b.to_vec(), b.segment_count()), (b"xbbb".to_vec(), 1));
}

#[test]
fn a_leaked_claim_keeps_others_out() {
    let mut a = Chain::from(segment(b"x"));
    let mut b = a.share().expect("memory");
    std::mem::forget(a.spare(1, 2048).expect("room"));
    b.append(b"bbb").expect("memory");
    assert_eq!((a.to_vec(), b.segment_count()), (b"x".to_vec(), 2));
}

#[test]
fn a_sole_view_gets_the_room_of_those_that_are_gone() {
    let mut a = Chain::from(segment(b"hello, world"));
    let tail = a.split_off(5).expect("inside");
    a.append(b"!").expect("memory");
    assert_eq!(a.segment_count(), 2, "the bytes behind belong to the tail");
    a.truncate(5);
    drop(tail);
    a.append(b"!").expect("memory");
    assert_eq!((a.segment_count(), a.to_vec()), (1, b"hello!".to_vec()));
}

#[test]
fn writing_in_place_is_for_sole_holders_of_writable_bytes() {
    let mut a = segment(b"hello");
    let b = a.clone();
    assert!(a.try_unique().is_none());
    drop(b);
    a.try_unique().expect("sole")[0] = b'j';
    assert_eq!(&*a, b"jello");
    assert!(External::from_static(b"fixed").expect("memory").try_unique().is_none());
    assert!(External::from_vec(vec![1]).expect("memory").try_unique().is_some());
}

#[test]
fn the_group_comes_back_after_it_was_gone() {
    let here = segment(b"hello");
    let (a, b) = (Parcel::from(Chain::from(here.clone())), Parcel::from(Chain::from(here)));
    let mut back = a.open(); // this lane still owns it: both handles are in the group again
    assert!(!back.front().expect("one").is_unique());
    back.append(b"!").expect("memory");
    assert_eq!(back.segment_count(), 1, "the owner may write behind what others see");
    assert_eq!(b.open(), b"hello");
    assert!(back.front().expect("one").is_unique());
}

#[test]
fn marked_payloads_are_zeroed_by_whoever_is_last() {
    // R-B5. `check_zeroed` checks each byte.
    let before = crate::model::zeroed();
    let a = segment(&[7; 2000]);
    let b = a.clone();
    b.zero_on_free().expect("clusters are writable");
    drop(b);
    assert!(a.is_zero_on_free());
    drop(a);
    assert_eq!(crate::model::zeroed(), before + 1);
    drop(segment(&[7; 2000])); // the mark does not stay with the memory
    assert_eq!(crate::model::zeroed(), before + 1);
}

#[test]
fn a_mark_from_another_lane_is_honoured_here() {
    let before = crate::model::zeroed();
    let a = segment(b"secret");
    on_another_lane(a.clone().into(), |chain| chain.zero_on_free().expect("clusters are writable"));
    drop(a);
    assert_eq!(crate::model::zeroed(), before + 1);
}
