//! What the epoll driver keeps of a descriptor.

use crate::clusters::Turn;
use crate::core::{Direction, Nature};
use crate::held::Held;
use crate::waiter::Waiter;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// A descriptor's state. An idle connection holds this and no buffer.
pub(crate) struct Source {
    pub(crate) nature: Nature,
    pub(crate) registered: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The end of the stream, an error or urgent data has been reported (rule 3 of the driver).
    pub(crate) short_reads_lie: bool,
    /// The next read asks for a large cluster.
    pub(crate) large: bool,
    /// The round that `taken` counts for.
    pub(crate) round: u32,
    /// What was read, or accepted, in that round.
    pub(crate) taken: u32,
    pub(crate) turn: Turn,
    pub(crate) reader: Waiter,
    pub(crate) writer: Waiter,
    /// Bytes that were handed over and that the socket has not taken yet, with the descriptor to send them
    /// to.
    pub(crate) outbox: Held,
    pub(crate) outbox_to: RawFd,
    /// The outbox had its share of the round, and goes on in the next.
    pub(crate) unfinished: bool,
    /// Why the last of them will never be sent.
    pub(crate) broken: Option<Errno>,
}

impl Source {
    pub(crate) fn new(nature: Nature) -> Self {
        Self {
            nature,
            registered: false,
            readable: true,
            writable: true,
            short_reads_lie: nature != Nature::Tcp,
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

    /// What it is registered for. A listener may be on the lists of several lanes: an edge wakes one of them.
    pub(crate) fn interest(&self) -> EventFlags {
        match self.nature {
            Nature::Listener => EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE,
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

    /// An edge.
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

    /// Whether something of `limit` is left in this round.
    #[inline]
    pub(crate) fn may_take(&mut self, round: u32, limit: u32) -> bool {
        if self.round != round {
            self.round = round;
            self.taken = 0;
        }
        self.taken < limit
    }
}
