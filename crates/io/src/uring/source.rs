//! What the io_uring driver keeps of a descriptor.

use crate::clusters::Turn;
use crate::core::Direction;
use crate::held::Held;
use crate::slab::Key;
use crate::waiter::Waiter;
use manylane_pool::Pooled;
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::task::Waker;

/// What an operation is, in the highest byte of its number; below it the source's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    Receive = 1,
    Send = 2,
    Accept = 3,
    Readable = 4,
    Writable = 5,
    Connect = 6,
    /// The event descriptor, which is no source.
    WakeFd = 7,
    /// Cancellations and closes: nobody waits for them.
    Ignored = 8,
}

impl Op {
    const ALL: [Self; 8] = [
        Self::Receive,
        Self::Send,
        Self::Accept,
        Self::Readable,
        Self::Writable,
        Self::Connect,
        Self::WakeFd,
        Self::Ignored,
    ];

    pub(crate) const fn bits(self) -> u64 {
        (self as u64) << 56
    }

    /// The number of this operation of a source. Keys are below 2^56.
    pub(crate) fn of(self, key: Key) -> u64 {
        self.bits() | key.bits()
    }

    pub(crate) fn split(data: u64) -> Option<(Self, Key)> {
        let op = usize::try_from(data >> 56).ok()?.checked_sub(1)?;
        Some((*Self::ALL.get(op)?, Key::from_bits(data & ((1 << 56) - 1))))
    }
}

/// Whether a call may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// As far as is known.
    Ready,
    /// Not when it was tried last.
    Unknown,
    /// The kernel was asked to tell.
    Requested,
}

/// Header and vectors of one `sendmsg`, which stay where they are until it is done.
pub(crate) struct Vectors {
    pub(crate) header: libc::msghdr,
    pub(crate) vectors: [libc::iovec; crate::limits::SEGMENTS_PER_WRITE],
}

/// A descriptor's state (rules 1 and 2 of the driver). An idle connection holds this and no buffer.
pub(crate) struct Source {
    /// Operations whose last completion has not come.
    pub(crate) ops: u32,
    pub(crate) reader: Waiter,
    pub(crate) writer: Waiter,
    /// Who waits for operations to end.
    pub(crate) detacher: Option<Waker>,
    /// Released: to be closed when `ops` is 0.
    pub(crate) closing: Option<OwnedFd>,

    pub(crate) turn: Turn,
    pub(crate) receiving: bool,
    /// The operation that receives, or accepts, was asked to end.
    pub(crate) stopping: bool,
    /// Bulk comes: it is received with calls of its own.
    pub(crate) large: bool,
    /// Reads in a row for which the other way would be right.
    pub(crate) misfits: u8,
    pub(crate) arrived: Held,
    /// The end of the stream, or why there is none, behind what arrived.
    pub(crate) ended: Option<Result<(), Errno>>,

    pub(crate) sending: bool,
    /// Where the outbox goes.
    pub(crate) fd: RawFd,
    pub(crate) outbox: Held,
    pub(crate) vectors: Option<Pooled<Vectors>>,
    pub(crate) broken: Option<Errno>,

    pub(crate) accepting: bool,
    /// Of listeners only, which are few.
    #[expect(clippy::box_collection)] // a word of each source, and most are no listeners
    pub(crate) accepted: Option<Box<VecDeque<OwnedFd>>>,
    pub(crate) refused: Option<Errno>,
    pub(crate) round: u32,
    pub(crate) taken: u32,

    pub(crate) connecting: bool,
    pub(crate) address: Option<Box<SocketAddrAny>>,
    pub(crate) connected: Option<Result<(), Errno>>,

    /// Room cannot be waited for: see [`Self::tells_of_room`].
    deaf: bool,
    /// What tells of room in its stead: an epoll instance that watches this socket for nothing else.
    pub(crate) watch: Option<OwnedFd>,
    readable: Readiness,
    writable: Readiness,
}

impl Source {
    pub(crate) fn new() -> Self {
        Self {
            ops: 0,
            reader: Waiter::new(),
            writer: Waiter::new(),
            detacher: None,
            closing: None,
            turn: Turn::None,
            receiving: false,
            stopping: false,
            large: false,
            misfits: 0,
            arrived: Held::new(),
            ended: None,
            sending: false,
            fd: -1,
            outbox: Held::new(),
            vectors: None,
            broken: None,
            accepting: false,
            accepted: None,
            refused: None,
            round: 0,
            taken: 0,
            connecting: false,
            address: None,
            connected: None,
            deaf: false,
            watch: None,
            readable: Readiness::Ready,
            writable: Readiness::Ready,
        }
    }

    pub(crate) fn waiter(&mut self, direction: Direction) -> &mut Waiter {
        match direction {
            Direction::Read => &mut self.reader,
            Direction::Write => &mut self.writer,
        }
    }

    pub(crate) fn readiness(&self, direction: Direction) -> Readiness {
        match direction {
            Direction::Read => self.readable,
            Direction::Write => self.writable,
        }
    }

    pub(crate) fn set_readiness(&mut self, direction: Direction, to: Readiness) {
        match direction {
            Direction::Read => self.readable = to,
            Direction::Write => self.writable = to,
        }
    }

    /// A poll for room ended with these events. The ring's polls end with the peer's end of its stream, too,
    /// whatever they ask for: such a poll would be over at once for ever, so this socket is asked no
    /// more.
    pub(crate) fn told_of_room(&mut self, result: Result<usize, Errno>) {
        self.deaf = self.watch.is_none() && result == Ok(libc::POLLRDHUP as usize);
        self.writable = if self.deaf { Readiness::Unknown } else { Readiness::Ready };
    }

    /// Whether a poll tells when there is room to send. Where it does not, an operation that sends waits for
    /// it, and for datagrams a [`watch`](Self::watch).
    pub(crate) fn tells_of_room(&self) -> bool {
        !self.deaf || self.watch.is_some()
    }

    /// Each operation, and whether it is the kernel's.
    pub(crate) fn active(&self) -> [(Op, bool); 6] {
        [
            (Op::Receive, self.receiving),
            (Op::Send, self.sending),
            (Op::Accept, self.accepting),
            (Op::Readable, self.readable == Readiness::Requested),
            (Op::Writable, self.writable == Readiness::Requested),
            (Op::Connect, self.connecting),
        ]
    }

    /// Whether something of `limit` is left in this round.
    pub(crate) fn may_take(&mut self, round: u32, limit: u32) -> bool {
        if self.round != round {
            self.round = round;
            self.taken = 0;
        }
        self.taken < limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operations_number_tells_what_it_is_and_whose() {
        let key = Key::from_bits((1 << 56) - 1);
        for op in Op::ALL {
            assert_eq!(Op::split(op.of(key)), Some((op, key)));
        }
        assert_eq!((Op::split(0), Op::split(u64::MAX)), (None, None));
    }
}
