//! Bad input and failed allocations: a clear sentence, and nothing changes (R-B3, R-B6).

use crate::{
    Chain, Cluster, Error, External, FreeIndex, MAX_CLUSTER, MAX_FREE_FNS, MAX_SEGMENTS, RegisterError, fail,
};
use std::ptr::NonNull;
use std::sync::Arc;

fn chain(bytes: &[u8]) -> Chain {
    let mut chain = Chain::new();
    chain.append(bytes).expect("memory");
    chain
}

#[test]
fn an_over_long_split_says_where_and_what_to_do() {
    let mut chain = chain(&[1; 64]);
    let error = chain.split_off(70).expect_err("too far");
    assert_eq!(error.to_string(), "split at 70 of a chain of 64 bytes: use a position from 0 to 64");
    assert_eq!(
        chain.split_to(65).expect_err("too far").to_string(),
        "split at 65 of a chain of 64 bytes: use a position from 0 to 64"
    );
    assert_eq!(chain.len(), 64);
    let mut segment = chain.pop_front().expect("one");
    assert_eq!(
        segment.split_off(65).expect_err("too far").to_string(),
        "split at 65 of a segment of 64 bytes: use a position from 0 to 64"
    );
    assert_eq!(
        segment.trim_front(65).expect_err("too far").to_string(),
        "trim of the first 65 of a segment of 64 bytes: use a position from 0 to 64"
    );
}

#[test]
fn positions_behind_the_end_are_refused_everywhere() {
    let mut chain = chain(b"hello");
    assert!(chain.trim_front(6).is_err());
    assert!(matches!(chain.copy_range(2..6), Err(Error::OutOfRange(_))));
    assert!(matches!(chain.pull_up(6), Err(Error::OutOfRange(_))));
    let mut cursor = chain.cursor();
    assert_eq!(
        cursor.read_array::<8>().expect_err("five bytes").to_string(),
        "read of 8 of a rest of a chain of 5 bytes: use a position from 0 to 5"
    );
    assert!(cursor.advance(6).is_err());
    assert_eq!((cursor.position(), chain.len()), (0, 5));
}

#[test]
fn more_than_a_cluster_in_one_piece_is_refused() {
    let mut chain = chain(&vec![1; MAX_CLUSTER + 1]);
    assert_eq!(
        chain.pull_up(MAX_CLUSTER + 1).expect_err("too long").to_string(),
        "pull up of 16385 bytes: one piece has at most 16384; ask for less at a time"
    );
    assert_eq!(
        Cluster::alloc(MAX_CLUSTER + 1).expect_err("too long").to_string(),
        "a cluster of 16385 bytes: one piece has at most 16384; ask for less at a time"
    );
    assert!(matches!(Cluster::alloc(0), Err(Error::EmptyCluster)));
    assert!(Chain::new().spare(0, 0).is_ok(), "room of at least one byte");
    assert!(matches!(Cluster::with_headroom(usize::MAX, 1), Err(Error::TooLong { .. })));
}

#[test]
#[cfg(target_pointer_width = "64")]
fn foreign_bytes_beyond_4_gib_are_refused() {
    let index = FreeIndex::from_index(1).expect("built in");
    // SAFETY: refused before any access to the bytes.
    let refused = unsafe { External::from_raw(NonNull::dangling(), 1 << 32, index, 0, false) };
    assert_eq!(
        refused.expect_err("too long").to_string(),
        "an external segment of 4294967296 bytes: one piece has at most 4294967295; ask for less at a time"
    );
}

#[test]
#[should_panic(expected = "commit of 2049 bytes where 2048 were lent")]
fn committing_more_than_was_lent_is_refused() {
    let mut cluster = Cluster::alloc(2048).expect("memory");
    // SAFETY: none of them is read: the call panics.
    unsafe { cluster.commit(2049) };
}

#[test]
#[should_panic(expected = "the bytes written must start where the room starts")]
fn a_fill_that_returns_other_bytes_is_refused() {
    let mut chain = Chain::new();
    let _ =
        chain.spare(1, 2048).expect("memory").fill(|room| Ok::<_, ()>(room[1..3].write_copy_of_slice(b"ab")));
}

#[test]
fn a_chain_with_too_many_segments_gives_the_segment_back() {
    let piece = Cluster::with(b"x").expect("memory").into_segment();
    let mut chain = Chain::new();
    for _ in 0..MAX_SEGMENTS {
        chain.push_back(piece.clone()).expect("room");
    }
    let refused = chain.push_back(piece.clone()).expect_err("full");
    assert_eq!(
        refused.to_string(),
        "the chain would have more than 16384 segments; send or join some of it before adding more"
    );
    assert_eq!((&*refused.segment, chain.len()), (&b"x"[..], MAX_SEGMENTS));
    assert!(chain.append_chain(&mut chain_of(&piece)).is_err());
}

fn chain_of(piece: &crate::Segment) -> Chain {
    Chain::from(piece.clone())
}

/// Every operation that allocates, with its first, second, ... allocation failing, until it succeeds.
#[test]
fn a_failure_at_any_allocation_leaves_everything_as_it_was() {
    // Five segments: one more than fits without a ring block.
    let build = || {
        let mut chain = Chain::new();
        for n in 0..5_u8 {
            let bytes = vec![n; 3000 + usize::from(n)];
            chain.push_back(External::from_vec(bytes).expect("memory")).expect("memory");
        }
        chain
    };
    type Operation = fn(&mut Chain) -> Result<(), Error>;
    let operations: [(&str, Operation); 13] = [
        ("append", |chain| chain.append(&[9; 40_000])),
        ("prepend", |chain| chain.prepend(&[9; 40_000])),
        ("append together", |chain| chain.append_together(&[&[8; 3000], &[9; 4000]], 2048)),
        ("split off", |chain| chain.split_off(1).map(drop)),
        ("split to", |chain| chain.split_to(14_000).map(drop)),
        ("copy", |chain| chain.copy_range(1..15_000).map(drop)),
        ("pull up", |chain| chain.pull_up(10_000).map(drop)),
        ("spare", |chain| chain.spare(1, 2048).map(drop)),
        ("push external", |chain| {
            chain.push_back(External::from_owner(vec![1, 2]).map_err(Error::from)?)?;
            Ok(())
        }),
        ("push at the front", |chain| {
            let more = || Ok::<_, Error>(chain.push_front(Cluster::with(b"x")?.into_segment())?);
            let pushed = std::iter::repeat_with(more).take(60).collect::<Result<(), _>>();
            if pushed.is_err() {
                chain.trim_front(chain.len() - 15_010)?; // removes bytes that were pushed before the failure
            }
            pushed
        }),
        ("share", |chain| chain.share().map(drop)),
        ("push compact", |chain| {
            chain.append(&[8; 2000])?; // with room for 48 more
            let pushed =
                Cluster::with(&[9; 1000]).and_then(|cluster| Ok(chain.push_compact(cluster.into_segment())?));
            if pushed.is_err() {
                assert_eq!(chain.len(), 17_010);
                assert_eq!(chain.split_off(15_010)?, [8; 2000]);
            }
            pushed
        }),
        ("append chain", |chain| {
            let mut other = chain.share()?;
            let appended = (0..3).try_for_each(|_| {
                chain.append_chain(&mut other)?;
                other = chain.copy_range(..chain.len().min(10))?;
                Ok(())
            });
            if appended.is_err() {
                chain.truncate(15_010); // removes bytes that earlier rounds added
            }
            appended
        }),
    ];
    for (name, operation) in operations {
        let mut failures = 0;
        loop {
            let mut chain = build();
            let before = chain.to_vec();
            let failing = fail::every(failures + 1);
            let done = operation(&mut chain);
            drop(failing);
            if done.is_ok() {
                break;
            }
            assert!(matches!(done, Err(Error::Alloc(_))), "{name}: {done:?}");
            assert_eq!(chain, before[..], "{name}: changed by failure {failures}");
            failures += 1;
        }
        assert!(failures > 0, "{name} allocates");
    }
}

/// Each segment is in one of the two chains, with any allocation failing.
#[test]
fn what_a_chain_has_no_memory_for_stays_in_the_other() {
    let mut failures = 0;
    for full in 0..6 {
        for failing in 1.. {
            let mut chain = Chain::new();
            for n in 0..full {
                chain.push_back(External::from_vec(vec![n; 3000]).expect("memory")).expect("memory");
            }
            let mut other = Chain::new();
            for (n, len) in [9, MAX_CLUSTER, 1000, 1000, 1000, 9, MAX_CLUSTER].into_iter().enumerate() {
                let cluster = Cluster::with(&vec![n as u8; len]).expect("memory");
                other.push_back(cluster.into_segment()).expect("memory");
            }
            let all = [chain.to_vec(), other.to_vec()].concat();
            let failing = fail::every(failing);
            let moved = chain.append_compact(&mut other);
            drop(failing);
            let is_moved = moved.is_ok();
            assert_eq!(is_moved, other.is_empty());
            chain.append_chain(&mut other).expect("memory");
            assert_eq!(chain, all[..], "{full} segments before");
            if is_moved {
                break;
            }
            failures += 1;
        }
    }
    assert!(failures > 0, "it allocates");
}

/// An idle chain holds no memory, whichever allocation failed.
#[test]
fn a_chain_that_stays_empty_for_lack_of_memory_has_no_ring() {
    let rings = || crate::store::store().rings.iter().map(|pool| pool.used_here()).sum::<i64>();
    for appends in [true, false] {
        for failing in 1.. {
            let (mut chain, before) = (Chain::new(), rings());
            let failing = fail::every(failing);
            let done = if appends { chain.append(&[9; 200_000]) } else { chain.prepend(&[9; 200_000]) };
            drop(failing);
            if done.is_ok() {
                assert!(rings() > before, "it has a ring");
                break;
            }
            assert_eq!((chain.len(), rings()), (0, before));
        }
    }
}

#[test]
fn what_could_not_join_a_chain_is_given_back() {
    let failing = fail::every(1);
    let refused = External::from_vec(vec![1, 2, 3]).expect_err("no memory");
    assert_eq!(refused.value, [1, 2, 3]);
    let owner: Arc<[u8]> = Arc::from([1, 2, 3]);
    let refused = External::from_owner(owner.clone()).expect_err("no memory");
    assert!(Arc::ptr_eq(&refused.value, &owner));
    drop((refused, failing));
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn an_owner_is_dropped_after_the_last_view() {
    let owner: Arc<[u8]> = Arc::from(*b"mapping");
    let segment = External::from_owner(owner.clone()).expect("memory");
    assert_eq!((&*segment, Arc::strong_count(&owner)), (&b"mapping"[..], 2));
    let view = segment.slice(3..5).expect("inside");
    drop(segment);
    assert_eq!((&*view, Arc::strong_count(&owner)), (&b"pi"[..], 2));
    drop(view);
    assert_eq!(Arc::strong_count(&owner), 1);
}

/// Bytes whose owner panics when it is dropped.
#[derive(Debug)]
struct Unlucky([u8; 3]);

impl AsRef<[u8]> for Unlucky {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Unlucky {
    fn drop(&mut self) {
        panic!("out of luck");
    }
}

#[test]
fn an_owner_that_panics_leaves_the_chain_usable() {
    let mut chain = Chain::new();
    chain.push_back(External::from_owner(Unlucky([1; 3])).expect("memory")).expect("room");
    chain.append(&[2; 3]).expect("memory");
    chain.push_back(External::from_vec(vec![3; 3]).expect("memory")).expect("room");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| chain.trim_front(7)));
    assert!(panic.is_err());
    assert_eq!(chain.len(), chain.segments().map(|segment| segment.len()).sum::<usize>());
    assert_eq!(chain, [2, 2, 2, 3, 3, 3]);
}

#[test]
fn an_owner_that_panics_does_not_keep_others_from_being_freed() {
    let owner: Arc<[u8]> = Arc::from([1, 2, 3]);
    let mut chain = Chain::new();
    chain.push_back(External::from_owner(Unlucky([1; 3])).expect("memory")).expect("room");
    chain.push_back(External::from_owner(owner.clone()).expect("memory")).expect("room");
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(chain))).is_err());
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn free_functions_are_registered_once_and_found_by_number() {
    unsafe fn keep(_: NonNull<u8>, _: usize, _: usize) {}
    let index = FreeIndex::register("twice", keep).expect("the first time");
    assert_eq!(index.name(), "twice");
    assert_eq!(FreeIndex::from_index(index.index()), Ok(index));
    let error = FreeIndex::register("twice", keep).expect_err("the second time");
    assert_eq!(error, RegisterError::Twice { name: "twice", index: index.index() });
    assert_eq!(
        error.to_string(),
        format!(
            "free function \"twice\" is registered already, as number {}; keep that number instead",
            index.index()
        )
    );
    for unknown in [MAX_FREE_FNS - 1, MAX_FREE_FNS, usize::MAX] {
        let error = FreeIndex::from_index(unknown).expect_err("nobody registers so many");
        assert_eq!(
            error.to_string(),
            format!("no free function has the number {unknown}; register one first")
        );
    }
}
