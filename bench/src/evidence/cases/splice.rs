//! R-B2 as its source measured it: joined sockets. An operation moves a cluster's worth of bytes from one
//! socket to another: it receives them into a cluster, shares the cluster with what is sent, as a socket
//! buffer that keeps bytes until they are acknowledged does, sends, and drops the share.
//!
//! Real sockets are two pairs of Unix domain sockets of the thread's own; the thread also plays both peers.
//! On the simulator the four calls are work, as long as they took here (`set_work`).

#![allow(unsafe_code)] // bytes are received into clusters by address (ARCHITECTURE.md)

#[cfg(manylane_sim)]
use super::work;
use crate::cases::{Case, Contender, Shape, Variant};
#[cfg(not(manylane_sim))]
use crate::designs::CLUSTER;
use crate::designs::{Design, Ours, Ring};
use crate::results::Role;
use std::hint::black_box;
use std::marker::PhantomData;

pub(in crate::evidence) static CASE: Case = Case {
    name: "splice",
    operation: "receive 2 KiB into a cluster, share it, send it, drop the share",
    requirement: "R-B2",
    contenders: &[
        Contender::of::<Splicing<Ring>>(Role::Before),
        Contender::of::<Splicing<Ours>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

struct Splicing<D>(PhantomData<fn(D)>);

/// The sockets of a thread.
pub(super) struct Sockets {
    #[cfg(not(manylane_sim))]
    from: [std::os::unix::net::UnixStream; 2],
    #[cfg(not(manylane_sim))]
    to: [std::os::unix::net::UnixStream; 2],
}

impl Sockets {
    #[cfg(manylane_sim)]
    fn new() -> Self {
        Self {}
    }

    #[cfg(not(manylane_sim))]
    fn new() -> Self {
        let pair = || std::os::unix::net::UnixStream::pair().expect("the system has descriptors left").into();
        Self { from: pair(), to: pair() }
    }

    /// The peer sends, and the bytes are received at `address`.
    #[cfg(not(manylane_sim))]
    fn receive(&mut self, address: usize) {
        use std::io::{Read as _, Write as _};
        let [peer, here] = &mut self.from;
        // SAFETY: the caller's handle keeps the cluster of `CLUSTER` bytes alive, and no other thread has
        // one.
        let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, CLUSTER) };
        peer.write_all(&[1; CLUSTER]).expect("the pair is connected and has room");
        here.read_exact(bytes).expect("what was sent arrives");
    }

    /// The bytes at `address` are sent, and the peer receives them.
    #[cfg(not(manylane_sim))]
    fn send(&mut self, address: usize) {
        use std::io::{Read as _, Write as _};
        let [here, peer] = &mut self.to;
        // SAFETY: as in `receive`.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, CLUSTER) };
        here.write_all(bytes).expect("the pair is connected and has room");
        peer.read_exact(&mut [0; CLUSTER]).expect("what was sent arrives");
    }

    #[cfg(manylane_sim)]
    fn receive(&mut self, _: usize) {
        work(super::WORK.load(std::sync::atomic::Ordering::Relaxed) / 2);
    }

    #[cfg(manylane_sim)]
    fn send(&mut self, address: usize) {
        self.receive(address);
    }
}

impl<D: Design + 'static> Variant for Splicing<D> {
    const NAME: &'static str = D::NAME;
    type Own<'a> = (D::Handle, Sockets);

    fn new(_: usize) -> Self {
        drop(D::alloc());
        Self(PhantomData)
    }

    fn enter(&self, _: usize) -> Self::Own<'_> {
        let own = D::alloc().expect("there is memory for a cluster");
        drop(D::share(&own)); // fills the lane's caches
        (own, Sockets::new())
    }

    #[inline]
    fn operate(&self, (own, sockets): &mut Self::Own<'_>) {
        sockets.receive(D::address(own));
        let shared = D::share(own).expect("there is memory for a handle");
        sockets.send(D::address(&shared));
        drop(black_box(shared));
    }
}
