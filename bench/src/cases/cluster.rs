//! R-B2, R-B4: tracking the holders of a cluster.
//!
//! Source: BSD kernels linked the holders of a cluster in a ring under one global mutex. Socket splicing
//! reached 30 Gbit/s with it, and 45 with a count. There are two known places for the count: in one of the
//! holders (the *leader*), or in a separate object (the *proxy*). Ours is in the cluster, and biased: its
//! owner's lane counts without locked instructions.
//!
//! An operation makes and drops a second handle on the thread's own cluster. Threads share no cluster, only
//! the mutex.

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

/// `D` itself has the state that threads share.
struct Sharing<D>(PhantomData<fn(D)>);

impl<D: Design + 'static> Variant for Sharing<D> {
    const NAME: &'static str = D::NAME;
    type Own<'a> = D::Handle;

    fn new(_: usize) -> Self {
        // Pools are made at the first use: here, before several threads start.
        drop(cluster::<D>());
        Self(PhantomData)
    }

    fn enter(&self, _: usize) -> D::Handle {
        let own = cluster::<D>();
        drop(D::share(&own)); // fills the lane's caches
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
