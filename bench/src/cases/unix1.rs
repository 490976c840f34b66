//! R-A2: write a byte to one end of the thread's own pair of local sockets, and read it from the other.
//!
//! Source: FreeBSD's local sockets had one reader-writer lock for all connections, which every send shared:
//! 1.69 million operations per second with 96 processes, and the peak with 6. A lock for each socket's
//! control block gave 70.7 million. Ours takes the receive buffer's lock only. Threads share no pair, only
//! the lock.

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

/// The locks that a send takes.
pub(crate) trait Locking: Send + Sync + 'static {
    const NAME: &'static str;
    fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, Error>;
}

/// One reader-writer lock for all connections.
pub(crate) struct Global;

impl Locking for Global {
    const NAME: &'static str = "one global rwlock";
    #[inline]
    fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, Error> {
        // If this cannot send (the first byte of a cluster), the real one does.
        designs::send_under_global_lock(socket, bytes).or_else(|_| socket.send(bytes))
    }
}

/// The locks of both control blocks.
pub(crate) struct PerPcb;

impl Locking for PerPcb {
    const NAME: &'static str = "per-pcb locks";
    #[inline]
    fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, Error> {
        designs::send_under_pcb_locks(socket, bytes).or_else(|_| socket.send(bytes))
    }
}

/// The variant that ships.
pub(crate) struct Ours;

impl Locking for Ours {
    const NAME: &'static str = "receive-buffer lock only";
    #[inline]
    fn send(socket: &Socket, bytes: &[u8]) -> Result<usize, Error> {
        socket.send(bytes)
    }
}

/// A pair for each thread. The sockets' statics have the state that threads share.
pub(crate) struct Pairs<L>(PhantomData<L>);

impl<L: Locking> Variant for Pairs<L> {
    const NAME: &'static str = L::NAME;
    type Own<'a> = (Socket, Socket);

    fn new(_: usize) -> Self {
        // Statics and pools are made at the first use: here, before several threads start.
        let (a, b) = Socket::pair(Kind::Stream);
        exchange::<L>(&a, &b);
        Self(PhantomData)
    }

    fn enter(&self, _: usize) -> (Socket, Socket) {
        let (a, b) = Socket::pair(Kind::Stream);
        // More than a cluster, which fills the lane's caches.
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

/// The kernel's sockets, for comparison on the real machine.
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
