//! The epoll driver's state of a descriptor.

use crate::clusters::Turn;
use crate::core::{Direction, FdKind};
use crate::held::Held;
use crate::limits::MAX_UNREAD_EVENTS;
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
    /// Events for bytes since a task last read or waited (rule 4 of the driver).
    pub(crate) unread_events: u8,
    /// True if arriving bytes cause no events.
    pub(crate) ignores_bytes: bool,
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
    /// Bytes that a task handed over and the socket has not accepted yet.
    pub(crate) outbox: Held,
    /// The descriptor, once it is registered or has an outbox.
    pub(crate) fd: RawFd,
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
            unread_events: 0,
            ignores_bytes: false,
            short_reads_lie: nature != FdKind::Tcp,
            large: false,
            round: 0,
            taken: 0,
            turn: Turn::None,
            reader: Waiter::new(),
            writer: Waiter::new(),
            outbox: Held::new(),
            fd: -1,
            unfinished: false,
            broken: None,
        }
    }

    /// Returns the events to register for. A listener may be registered by several lanes: an edge wakes one
    /// of them.
    pub(crate) fn interest(&self) -> EventFlags {
        match self.nature {
            FdKind::Listener => EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE,
            _ => {
                // The kernel reports ordinary bytes to those who ask for urgent ones, too.
                let bytes = EventFlags::IN | EventFlags::PRI;
                let bytes = if self.ignores_bytes { EventFlags::empty() } else { bytes };
                bytes | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
            }
        }
    }

    /// Counts an event that no reader waited for. Returns true if it is time to ask for no more of them (rule
    /// 4 of the driver).
    #[inline]
    pub(crate) fn count_unread(&mut self, flags: EventFlags) -> bool {
        if !flags.contains(EventFlags::IN) || self.nature == FdKind::Listener {
            return false;
        }
        self.unread_events = self.unread_events.saturating_add(1);
        self.unread_events == MAX_UNREAD_EVENTS
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::buffer::spare_capacity;
    use rustix::event::Timespec;
    use rustix::event::epoll::{self, CreateFlags, Event, EventData};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_source_that_ignores_bytes_has_no_event_for_them_but_for_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let mut source = Source::new(FdKind::Tcp);
        source.ignores_bytes = true;
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, &socket, EventData::new_u64(1), source.interest()).unwrap();
        let next = |timeout: Option<Timespec>| {
            let mut events: Vec<Event> = Vec::with_capacity(1);
            epoll::wait(&epoll, spare_capacity(&mut events), timeout.as_ref()).unwrap();
            events.first().map(|event| event.flags)
        };
        let now = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        assert_eq!(next(now), Some(EventFlags::OUT), "it may send");
        peer.write_all(b"x").unwrap();
        // Bytes are there, as another epoll says.
        let other = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&other, &socket, EventData::new_u64(1), EventFlags::IN).unwrap();
        let mut events: Vec<Event> = Vec::with_capacity(1);
        epoll::wait(&other, spare_capacity(&mut events), None).unwrap();
        assert_eq!(next(now), None);
        drop(peer);
        assert!(next(None).unwrap().contains(EventFlags::RDHUP));
        source.ignores_bytes = false;
        epoll::modify(&epoll, &socket, EventData::new_u64(1), source.interest()).unwrap();
        assert!(next(now).unwrap().contains(EventFlags::IN));
    }
}
