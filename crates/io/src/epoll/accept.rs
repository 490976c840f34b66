//! Accepting connections.

use super::Epoll;
use crate::core::{Core, Direction, Fd};
use crate::error::{Call, Error};
use crate::listener::{Fault, fault};
use crate::slab::Key;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

impl Epoll {
    /// Accepts the next connection. The error "no descriptors" leaves the listener readable, since no edge
    /// will come for the connections that wait there.
    pub(crate) fn poll_accept(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(OwnedFd, Option<SocketAddrAny>), Error>> {
        let mut sources = self.sources.borrow_mut();
        let source = sources.get(key).expect("a source lives as long as its handle");
        while source.readable {
            if !source.may_take(core.round.get(), core.accepts.get()) {
                if source.reader.park(context.waker()).is_err() {
                    return Poll::Ready(Err(Error::busy(Call::Accept)));
                }
                core.defer(key, Direction::Read, context.waker());
                return Poll::Pending;
            }
            core.tallies.accepts.add(1);
            match acceptfrom_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(accepted) => {
                    source.taken += 1;
                    return Poll::Ready(Ok(accepted));
                }
                Err(Errno::AGAIN) => source.readable = false,
                Err(errno) => match fault(errno) {
                    Fault::Connection => source.taken += 1,
                    Fault::Starved | Fault::Listener => {
                        return Poll::Ready(Err(Error::system(Call::Accept, errno)));
                    }
                },
            }
        }
        self.wait_for(core, source, key, fd, (Direction::Read, Call::Accept), context)
    }

    /// Lets the next call accept connections that no event reported.
    pub(crate) fn check_again(&self, key: Key) {
        if let Some(source) = self.sources.borrow_mut().get(key) {
            source.readable = true;
        }
    }
}
