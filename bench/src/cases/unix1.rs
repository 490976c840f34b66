//! R-A2: write one byte into one end of an own pair of local sockets, read it from the other.
//!
//! Source: FreeBSD's local sockets had one reader-writer lock for all connections, which every send shared:
//! 1.69 million operations a second with 96 processes, and the peak at 6. With a lock for each socket's
//! control block it were 70.7 million. Ours takes the receive buffer's lock only. No pair is touched by two
//! threads; what is shared is the lock.

use super::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_local::{Error, Kind, Socket, designs};
use std::marker::PhantomData;

pub(super) static CASE: Case = Case {
    name: "unix1",
    operation: "send a byte into one end of an own pair, receive it from the other",
    requirement: "R-A2",
    contenders: &[
        Contender::of::<Pairs<Global>>(Role::Before),
        Contender::of::<Pairs<PerPcb>>(Role::Other),
        #[cfg(not(manylane_sim))]
        Contender::of::<kernel::Pairs>(Role::Other),
        Contender::of::<Pairs<Ours>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

/// What a send locks.
pub(crate) trait Locking: Send + Sync + 'static {
    const NAME: &'static str;
    fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, Error>;
}

/// One reader-writer lock for all connections.
struct Global;

impl Locking for Global {
    const NAME: &'static str = "one global rwlock";
    #[inline]
    fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, Error> {
        // Where this has nothing to offer (the first byte of a cluster), the real one goes on.
        designs::send_under_global_lock(socket, bytes).or_else(|_| socket.send(bytes))
    }
}

/// Both control blocks.
struct PerPcb;

impl Locking for PerPcb {
    const NAME: &'static str = "per-pcb locks";
    #[inline]
    fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, Error> {
        designs::send_under_pcb_locks(socket, bytes).or_else(|_| socket.send(bytes))
    }
}

/// What ships.
pub(crate) struct Ours;

impl Locking for Ours {
    const NAME: &'static str = "receive-buffer lock only";
    #[inline]
    fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, Error> {
        socket.send(bytes)
    }
}

/// A pair for each thread. What the threads share is in the sockets' own statics.
pub(crate) struct Pairs<L>(PhantomData<L>);

impl<L: Locking> Variant for Pairs<L> {
    const NAME: &'static str = L::NAME;
    type Own<'a> = (Socket, Socket);

    fn new(_: usize) -> Self {
        // Statics and pools are made at the first use: now, before several threads may want to make them.
        let (a, b) = Socket::pair(Kind::Stream);
        exchange::<L>(&a, &b);
        Self(PhantomData)
    }

    fn enter(&self, _: usize) -> (Socket, Socket) {
        let (a, b) = Socket::pair(Kind::Stream);
        // Through a whole cluster: afterwards the lane's caches have what it takes.
        (0..3000).for_each(|_| exchange::<L>(&a, &b));
        (a, b)
    }

    #[inline]
    fn operate(&self, (a, b): &mut Self::Own<'_>) {
        exchange::<L>(a, b);
    }
}

#[inline]
fn exchange<L: Locking>(a: &Socket, b: &Socket) {
    let mut byte = [0];
    assert!(matches!(L::send(a, &[7]), Ok(1)), "the pair is connected and has room");
    assert!(matches!(b.recv(&mut byte), Ok(1)) && byte == [7], "what was sent arrives");
}

/// The kernel's own, beside ours on the real machine.
#[cfg(not(manylane_sim))]
pub(crate) mod kernel {
    use super::Variant;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    pub(crate) struct Pairs;

    impl Variant for Pairs {
        const NAME: &'static str = "kernel AF_UNIX";
        type Own<'a> = (UnixStream, UnixStream);

        fn new(_: usize) -> Self {
            Self
        }

        fn enter(&self, _: usize) -> Self::Own<'_> {
            UnixStream::pair().expect("the system has descriptors left")
        }

        #[inline]
        fn operate(&self, (a, b): &mut Self::Own<'_>) {
            let mut byte = [0];
            assert!(matches!(a.write(&[7]), Ok(1)), "the pair is connected and has room");
            assert!(matches!(b.read(&mut byte), Ok(1)) && byte == [7], "what was sent arrives");
        }
    }
}
