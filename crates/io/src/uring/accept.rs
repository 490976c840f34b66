//! Accepting connections (rule 4 of the driver).

use super::Uring;
use super::source::{Op, Source};
use crate::core::{Core, Direction, Fd};
use crate::error::{Call, Error};
use crate::limits::ACCEPTED_AHEAD;
use crate::listener::{Fault, fault};
use crate::slab::Key;
use io_uring::{cqueue, opcode, types};
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll};

impl Uring {
    pub(crate) fn poll_accept(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(OwnedFd, Option<SocketAddrAny>), Error>> {
        let mut sources = self.sources.borrow_mut();
        let source = sources.get(key).expect("a source lives as long as its handle");
        let may = source.may_take(core.round.get(), core.accepts.get());
        if may && let Some(fd) = source.accepted.as_mut().and_then(|accepted| accepted.pop_front()) {
            source.taken += 1;
            return Poll::Ready(Ok((fd, None)));
        }
        if may && let Some(errno) = source.refused.take() {
            return Poll::Ready(Err(Error::system(Call::Accept, errno)));
        }
        if source.reader.park(context.waker()).is_err() {
            return Poll::Ready(Err(Error::busy(Call::Accept)));
        }
        if source.accepted.as_ref().is_some_and(|accepted| !accepted.is_empty()) {
            core.defer(key, Direction::Read, context.waker());
        } else if !source.accepting {
            core.tallies.accepts.add(1);
            source.accepting = true;
            source.stopping = false;
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            let accept = opcode::AcceptMulti::new(types::Fd(fd.as_raw_fd())).flags(flags).build();
            self.begin(source, key, Op::Accept, accept);
        }
        Poll::Pending
    }

    /// Begins accepting anew: the new operation finds connections that no event reported.
    pub(crate) fn check_again(&self, key: Key) {
        if let Some(source) = self.sources.borrow_mut().get(key)
            && source.accepting
            && !source.stopping
        {
            source.stopping = true;
            self.cancel(Op::Accept.of(key));
        }
    }

    /// Handles a completion of the operation that accepts. Returns true if a task is to be woken.
    pub(super) fn accepted(
        &self,
        source: &mut Source,
        key: Key,
        result: Result<usize, Errno>,
        flags: u32,
    ) -> bool {
        match result {
            Ok(fd) => {
                // SAFETY: the kernel has just created it for this process.
                let accepted = unsafe { OwnedFd::from_raw_fd(fd as i32) };
                source.accepted.get_or_insert_default().push_back(accepted);
            }
            Err(Errno::CANCELED | Errno::AGAIN) => {}
            Err(errno) => {
                if fault(errno) != Fault::Connection {
                    source.refused = Some(errno);
                }
            }
        }
        if !cqueue::more(flags) {
            source.accepting = false;
        } else if source.accepted.as_ref().is_some_and(|accepted| accepted.len() >= ACCEPTED_AHEAD)
            && !source.stopping
        {
            source.stopping = true;
            self.cancel(Op::Accept.of(key));
        }
        true
    }
}
