//! R-B2, R-B4: who else holds this cluster?
//!
//! Source: BSD kernels knew the sharers of a cluster by a ring through them under one global mutex: socket
//! splicing did 30 Gbit/s with it, 45 with a count. Two places for the count are known: in one of the sharers
//! (the *leader*), or in an object of its own (the *proxy*). Ours is in the cluster, and biased: its owner's
//! lane counts without locked instructions.
//!
//! An operation makes a second handle on the thread's own cluster and drops it. No cluster is touched by two
//! threads; what is shared is the mutex.

use super::{Case, Contender, Shape, Variant};
use crate::designs::{Design, Leader, Ours, Proxy, Ring};
use crate::results::Role;
use std::hint::black_box;
use std::marker::PhantomData;

pub(super) static CASE: Case = Case {
    name: "cluster",
    operation: "share an own cluster, drop the share",
    requirement: "R-B2, R-B4",
    contenders: &[
        Contender::of::<Sharing<Ring>>(Role::Before),
        Contender::of::<Sharing<Leader>>(Role::Other),
        Contender::of::<Sharing<Proxy>>(Role::Other),
        Contender::of::<Sharing<Ours>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

/// What the threads share is in `D` itself.
struct Sharing<D>(PhantomData<fn(D)>);

impl<D: Design + 'static> Variant for Sharing<D> {
    const NAME: &'static str = D::NAME;
    type Own<'a> = D::Handle;

    fn new(_: usize) -> Self {
        // The pools are made at the first use: now, before several threads may want to make them.
        drop(cluster::<D>());
        Self(PhantomData)
    }

    fn enter(&self, _: usize) -> D::Handle {
        let own = cluster::<D>();
        drop(D::share(&own)); // the lane's caches have what it takes
        own
    }

    #[inline]
    fn operate(&self, own: &mut D::Handle) {
        let shared = D::share(own).expect("there is memory for a handle");
        debug_assert_eq!(D::address(&shared), D::address(own));
        drop(black_box(shared));
    }
}

fn cluster<D: Design>() -> D::Handle {
    D::alloc().expect("there is memory for a cluster")
}
