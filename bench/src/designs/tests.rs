//! R-B4: one test body for all ways to share a cluster.

use crate::designs::{Design, Leader, Ours, Proxy, Ring};
use std::sync::mpsc;

/// All handles see the cluster, in any order of drops; its memory is free after the last drop, and not
/// before.
fn shares_one_cluster<D: Design>() {
    for first_out in 0..3 {
        let first = D::alloc().expect("memory");
        let address = D::address(&first);
        let second = D::share(&first).expect("memory");
        let third = D::share(&second).expect("memory");
        let mut handles = vec![first, second, third];
        while !handles.is_empty() {
            assert!(handles.iter().all(|handle| D::address(handle) == address), "{}", D::NAME);
            let other = D::alloc().expect("memory");
            assert_ne!(D::address(&other), address, "{}: taken again while it is in use", D::NAME);
            drop(other); // first, so that the cluster under test is the last to go back
            drop(handles.remove(first_out.min(handles.len() - 1)));
        }
        let again = D::alloc().expect("memory");
        assert_eq!(D::address(&again), address, "{}: the lane's cache has it back", D::NAME);
    }
}

/// Handles move to another lane and back; both sides share and drop at the same time.
fn survives_two_lanes<D: Design>() {
    const ROUNDS: usize = 2_000;
    let (there, from_here) = mpsc::channel::<D::Sent>();
    let (back, from_there) = mpsc::channel::<D::Sent>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for sent in from_here {
                let handle = D::receive(sent);
                let more = D::share(&handle).expect("memory");
                drop(handle);
                back.send(D::send(more)).expect("the other lane listens");
            }
        });
        for _ in 0..ROUNDS {
            let handle = D::alloc().expect("memory");
            let address = D::address(&handle);
            there.send(D::send(D::share(&handle).expect("memory"))).expect("the other lane listens");
            let more = D::share(&handle).expect("memory");
            drop(handle);
            let came = D::receive(from_there.recv().expect("the other lane answers"));
            assert_eq!((D::address(&came), D::address(&more)), (address, address), "{}", D::NAME);
        }
        drop(there);
    });
}

macro_rules! each_design {
    ($($name:ident: $design:ty;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn all_handles_share_one_cluster() {
                shares_one_cluster::<$design>();
            }

            #[test]
            fn handles_cross_lanes() {
                survives_two_lanes::<$design>();
            }
        }
    )*};
}

each_design! {
    ring: Ring;
    leader: Leader;
    proxy: Proxy;
    ours: Ours;
}
