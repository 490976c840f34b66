//! Sharing, cutting and dropping buffers of 2 KiB.

use super::{Contest, Contestant, Target};
use bytes::{Bytes, BytesMut};
use manylane_buf::{Chain, Cluster, Parcel, Segment};
use std::hint::black_box;
use std::sync::Arc;
use trc::{SharedTrc, Trc};

const SIZE: usize = 2048;
const CLONE_OWN: Target = Target::new(2.0, "trc (thread-bound)", 0.8);
const CLONE_OTHER: Target = Target::new(15.0, "Arc", 14.5);
const SPLIT: Target = Target::new(20.0, "bytes", 42.0);
const UNIQUE: Target = Target::new(5.0, "BytesMut::with_capacity", 60.0);

type Payload = [u8; SIZE];

pub(super) const CONTESTS: &[Contest] = &[
    Contest {
        operation: "buffer: clone + drop of a shared cluster, own lane",
        target: Some(CLONE_OWN),
        contestants: own_lane,
    },
    Contest {
        operation: "buffer: clone + drop of a shared cluster, other lane",
        target: Some(CLONE_OTHER),
        contestants: other_lane,
    },
    Contest { operation: "buffer: clone + split + drop both", target: Some(SPLIT), contestants: split },
    Contest {
        operation: "buffer: take 2 KiB, fill nothing, drop",
        target: Some(UNIQUE),
        contestants: unique,
    },
];

fn segment() -> Segment {
    Cluster::with(&[7; SIZE]).expect("there is memory for a cluster").into_segment()
}

/// Makes a second handle that is never dropped, so that the cluster is shared.
fn shared<T: Clone>(handle: T) -> T {
    std::mem::forget(handle.clone());
    handle
}

/// Clones and drops one of two handles.
fn clones<T: Clone + 'static>(handle: T) -> impl FnMut(u64) {
    move |n| {
        let handle = black_box(&handle);
        for _ in 0..n {
            black_box(handle.clone());
        }
    }
}

fn own_lane() -> Vec<Contestant> {
    vec![
        Contestant::ours("manylane Segment", clones(shared(segment()))),
        Contestant::peer("bytes", clones(shared(Bytes::from(vec![7; SIZE])))),
        Contestant::peer("Arc", clones(shared(Arc::<Payload>::new([7; SIZE])))),
        Contestant::peer("trc (thread-bound)", clones(shared(Trc::<Payload>::new([7; SIZE])))),
    ]
}

/// One lane allocates the cluster and keeps a handle; another lane clones.
fn other_lane() -> Vec<Contestant> {
    let owner = std::thread::spawn(|| {
        let ours = Parcel::from(Chain::from(shared(segment())));
        let bytes = shared(Bytes::from(vec![7; SIZE]));
        let arc = shared(Arc::<Payload>::new([7; SIZE]));
        let trc = shared(Trc::<Payload>::new([7; SIZE]));
        (ours, bytes, arc, SharedTrc::from_trc(&trc))
    });
    let (ours, bytes, arc, trc) = owner.join().expect("nothing in it panics");
    let bound = SharedTrc::to_trc(trc.clone());
    vec![
        Contestant::ours("manylane Segment", clones(ours.open().pop_front().expect("one segment was sent"))),
        Contestant::peer("bytes", clones(bytes)),
        Contestant::peer("Arc", clones(arc)),
        Contestant::peer("trc SharedTrc", clones(trc)),
        Contestant::peer("trc (bound to that lane)", clones(bound)),
    ]
}

fn split() -> Vec<Contestant> {
    let (ours, bytes) = (shared(segment()), shared(Bytes::from(vec![7; SIZE])));
    vec![
        Contestant::ours("manylane Segment", move |n| {
            let ours = black_box(&ours);
            for _ in 0..n {
                let mut head = ours.clone();
                let tail = head.split_off(black_box(SIZE / 2)).expect("the middle is inside");
                black_box((head, tail));
            }
        }),
        Contestant::peer("bytes", move |n| {
            let bytes = black_box(&bytes);
            for _ in 0..n {
                let mut head = bytes.clone();
                let tail = head.split_off(black_box(SIZE / 2));
                black_box((head, tail));
            }
        }),
    ]
}

fn unique() -> Vec<Contestant> {
    vec![
        Contestant::ours("manylane Cluster", |n| {
            for _ in 0..n {
                black_box(Cluster::alloc(black_box(SIZE)).expect("there is memory for a cluster"));
            }
        }),
        Contestant::peer("BytesMut::with_capacity", |n| {
            for _ in 0..n {
                black_box(BytesMut::with_capacity(black_box(SIZE)));
            }
        }),
        Contestant::peer("Vec::with_capacity", |n| {
            for _ in 0..n {
                black_box(Vec::<u8>::with_capacity(black_box(SIZE)));
            }
        }),
    ]
}
