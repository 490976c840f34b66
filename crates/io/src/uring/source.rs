//! The io_uring driver's state of a descriptor.

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

/// Kind of an operation, in the highest byte of its number; below it is the source's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    Receive = 1,
    Send = 2,
    Accept = 3,
    Readable = 4,
    Writable = 5,
    Connect = 6,
    /// Polls the wake-up descriptor, which is no source.
    WakeFd = 7,
    /// Cancellations and closes, for which no task waits.
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

    /// Returns the number of this operation of a source. Keys are below 2^56.
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
    /// A call may succeed, as far as is known.
    Ready,
    /// The last call found nothing.
    Unknown,
    /// The kernel was requested to report readiness.
    Requested,
}

/// Header and vectors of one `sendmsg`, which must not move until it completes.
pub(crate) struct Vectors {
    pub(crate) header: libc::msghdr,
    pub(crate) vectors: [libc::iovec; crate::limits::SEGMENTS_PER_WRITE],
}

/// State of a descriptor (rules 1 and 2 of the driver). An idle connection needs this and no buffer.
pub(crate) struct Source {
    /// Number of operations without a last completion.
    pub(crate) ops: u32,
    pub(crate) reader: Waiter,
    pub(crate) writer: Waiter,
    /// Task that waits for operations to end.
    pub(crate) detacher: Option<Waker>,
    /// Descriptor of a released source: to be closed when `ops` is 0.
    pub(crate) closing: Option<OwnedFd>,

    pub(crate) turn: Turn,
    pub(crate) receiving: bool,
    /// True if the operation that receives, or accepts, was requested to end.
    pub(crate) stopping: bool,
    /// True for bulk, which is received with system calls.
    pub(crate) large: bool,
    /// Number of consecutive reads that suit the other way of receiving.
    pub(crate) misfits: u8,
    /// Number of receives since `arrived` was last empty.
    pub(crate) ahead: u8,
    pub(crate) arrived: Held,
    /// End of the stream, or an error, behind the bytes in `arrived`.
    pub(crate) ended: Option<Result<(), Errno>>,

    pub(crate) sending: bool,
    /// Descriptor to which the outbox is sent.
    pub(crate) fd: RawFd,
    pub(crate) outbox: Held,
    pub(crate) vectors: Option<Pooled<Vectors>>,
    pub(crate) broken: Option<Errno>,

    pub(crate) accepting: bool,
    /// Only of listeners, which are few.
    #[expect(clippy::box_collection)] // a word of each source, and most are no listeners
    pub(crate) accepted: Option<Box<VecDeque<OwnedFd>>>,
    pub(crate) refused: Option<Errno>,
    pub(crate) round: u32,
    pub(crate) taken: u32,

    pub(crate) connecting: bool,
    pub(crate) address: Option<Box<SocketAddrAny>>,
    pub(crate) connected: Option<Result<(), Errno>>,

    /// True if polls cannot report room: see [`Self::tells_of_room`].
    deaf: bool,
    /// Reports room instead: an epoll instance that watches this socket only for that.
    pub(crate) poller: Option<OwnedFd>,
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
            ahead: 0,
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
            poller: None,
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

    /// Handles the end of a poll for room with these events. The ring's polls also complete at the end of the
    /// peer's stream, whatever they request. Such a poll would complete at once for ever, so this socket is
    /// not polled any more.
    pub(crate) fn room_polled(&mut self, result: Result<usize, Errno>) {
        self.deaf = self.poller.is_none() && result == Ok(libc::POLLRDHUP as usize);
        self.writable = if self.deaf { Readiness::Unknown } else { Readiness::Ready };
    }

    /// Returns true if a poll reports room to send. Otherwise an operation that sends waits for it, and for
    /// datagrams a [`poller`](Self::poller).
    pub(crate) fn tells_of_room(&self) -> bool {
        !self.deaf || self.poller.is_some()
    }

    /// Returns each operation, and whether the kernel has it.
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

    /// True if some of `limit` is left in this round.
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
