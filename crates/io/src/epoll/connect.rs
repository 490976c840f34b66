//! Connecting: a system call begins it, an edge completes it.

use super::Epoll;
use crate::core::{Core, Direction, Fd};
use crate::error::Call;
use crate::slab::Key;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, connect, sockopt};
use std::task::{Context, Poll};

impl Epoll {
    /// Prepares a source for another connection of its socket; returns true if no state of the previous one
    /// is left. It stays registered; an edge of the previous connection is treated like any other (rule 2).
    pub(crate) fn begins_anew(&self, key: Key) -> bool {
        let mut sources = self.sources.borrow_mut();
        let Some(source) = sources.get(key) else { return false };
        (source.readable, source.writable) = (true, true);
        source.outbox.is_empty() && source.broken.is_none()
    }

    /// Begins to connect at the first poll, and waits for the outcome.
    pub(crate) fn poll_connect(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        (address, begun): (&SocketAddrAny, &mut bool),
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Errno>> {
        if !std::mem::replace(begun, true) {
            core.tallies.connects.add(1);
            match connect(fd, address) {
                Ok(()) => return Poll::Ready(Ok(())),
                // An interrupted connect goes on.
                Err(Errno::INPROGRESS | Errno::INTR) => self.forget_readiness(key, Direction::Write),
                Err(errno) => return Poll::Ready(Err(errno)),
            }
        }
        match self.poll_ready(core, key, fd, (Direction::Write, Call::Connect), context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.errno().unwrap_or(Errno::ALREADY))),
            Poll::Ready(Ok(())) => {
                core.tallies.others.add(1);
                Poll::Ready(sockopt::socket_error(fd).unwrap_or_else(Err))
            }
        }
    }
}
