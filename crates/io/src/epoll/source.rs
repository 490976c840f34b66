//! The epoll driver's state of a descriptor.

use crate::clusters::Turn;
use crate::core::{Direction, FdKind};
use crate::held::Held;
use crate::waiter::Waiter;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// State of a descriptor. An idle connection needs this and no buffer.
pub(crate) struct Source {
    pub(crate) nature: FdKind,
    pub(crate) registered: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// True once the end of the stream, an error or urgent data was reported (rule 3 of the driver).
    pub(crate) short_reads_lie: bool,
    /// True if the next read uses a large cluster.
    pub(crate) large: bool,
    /// Round to which `taken` belongs.
    pub(crate) round: u32,
    /// Bytes read, or connections accepted, in that round.
    pub(crate) taken: u32,
    pub(crate) turn: Turn,
    pub(crate) reader: Waiter,
    pub(crate) writer: Waiter,
    /// Bytes that a task handed over and the socket has not accepted yet, with the descriptor to which to
    /// send them.
    pub(crate) outbox: Held,
    pub(crate) outbox_to: RawFd,
    /// True if the outbox had its share of the round, and goes on in the next.
    pub(crate) unfinished: bool,
    /// Error after which the last of these bytes will never be sent.
    pub(crate) broken: Option<Errno>,
}

impl Source {
    pub(crate) fn new(nature: FdKind) -> Self {
        Self {
            nature,
            registered: false,
            readable: true,
            writable: true,
            short_reads_lie: nature != FdKind::Tcp,
            large: false,
            round: 0,
            taken: 0,
            turn: Turn::None,
            reader: Waiter::new(),
            writer: Waiter::new(),
            outbox: Held::new(),
            outbox_to: -1,
            unfinished: false,
            broken: None,
        }
    }

    /// Returns the events to register for. A listener may be registered by several lanes: an edge wakes one
    /// of them.
    pub(crate) fn interest(&self) -> EventFlags {
        match self.nature {
            FdKind::Listener => EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE,
            _ => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::PRI | EventFlags::ET,
        }
    }

    pub(crate) fn waiter(&mut self, direction: Direction) -> &mut Waiter {
        match direction {
            Direction::Read => &mut self.reader,
            Direction::Write => &mut self.writer,
        }
    }

    pub(crate) fn ready(&self, direction: Direction) -> bool {
        match direction {
            Direction::Read => self.readable,
            Direction::Write => self.writable,
        }
    }

    pub(crate) fn set_ready(&mut self, direction: Direction, ready: bool) {
        match direction {
            Direction::Read => self.readable = ready,
            Direction::Write => self.writable = ready,
        }
    }

    /// Records an edge.
    #[inline]
    pub(crate) fn happened(&mut self, flags: EventFlags) {
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(ends | EventFlags::PRI) {
            self.short_reads_lie = true;
        }
        if flags.intersects(ends | EventFlags::IN | EventFlags::PRI) {
            self.readable = true;
        }
        if flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR) {
            self.writable = true;
        }
    }

    /// True if some of `limit` is left in this round.
    #[inline]
    pub(crate) fn may_take(&mut self, round: u32, limit: u32) -> bool {
        if self.round != round {
            self.round = round;
            self.taken = 0;
        }
        self.taken < limit
    }
}
