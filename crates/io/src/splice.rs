//! Moves bytes from one stream to another within the kernel, through a pipe (R-B7).
//!
//! System calls: `splice`, non-blocking, with either driver. io_uring would run it on a thread of its own, so
//! it only reports when a socket is ready, and the call is the same. If the kernel refuses (`EINVAL`), the
//! bytes are received and sent.
//!
//! The pipe is filled only when it is empty: so "would block" means that the socket is empty, never that the
//! pipe is full.

use crate::core::{Budget, Core, Direction, backend};
use crate::error::{Call, Error};
use crate::limits::{LARGE_READ, READ_PER_ROUND};
use crate::pipe::Pipe;
use crate::stream::Stream;
use crate::waiter::Waiting;
use manylane_buf::Chain;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::pipe::{SpliceFlags, splice};
use std::fmt;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Moves bytes in one direction, from one stream to another.
///
/// It holds bytes that have left one stream and not entered the other, so dropping the future of
/// [`step`](Self::step) loses none. Dropping the splicer loses them, as closing either stream would.
pub struct Splicer {
    core: Rc<Core>,
    /// Holds bytes between steps only if a step was dropped or failed.
    pipe: Option<Pipe>,
    /// True once the kernel refused, or there was no pipe: from here on, bytes are copied.
    copies: bool,
    /// Bytes that were copied out of one stream and not handed to the other.
    held: Chain,
    /// Number of bytes that have left one stream and that no step has returned yet. If a step was dropped,
    /// the next one returns its bytes.
    moving: usize,
    budget: Budget,
}

impl fmt::Debug for Splicer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Splicer").field("held", &self.held()).field("copies", &self.copies).finish()
    }
}

impl crate::Io {
    /// Creates a splicer. It takes a pipe when there are bytes to move, and returns it after that.
    pub fn splicer(&self) -> Splicer {
        Splicer {
            core: self.core().clone(),
            pipe: None,
            copies: false,
            held: Chain::new(),
            moving: 0,
            budget: Budget::new(),
        }
    }
}

impl Splicer {
    /// Returns the number of bytes that have left one stream and not entered the other.
    pub fn held(&self) -> usize {
        self.pipe.as_ref().map_or(0, |pipe| pipe.held) + self.held.len()
    }

    /// Returns true if the kernel refused to splice between such streams, so that bytes are copied.
    pub fn copies(&self) -> bool {
        self.copies
    }

    /// Waits for bytes from `from`, moves at most `limit` of them into `to`, and returns their number. It is
    /// 0 only at the end of the stream, or for a `limit` of 0. Bytes that a dropped or failed step has taken
    /// go first, alone, and count, regardless of `limit`: so the sum of the results of all steps is what has
    /// entered `to`, and `from` lost no bytes beyond the limits.
    ///
    /// Cost: two `splice`, one more each if a socket is empty or full.
    ///
    /// # Errors
    /// Those of [`Stream::recv`] and [`Stream::send`].
    ///
    /// # Panics
    /// If a stream belongs to the driver of another lane.
    pub async fn step(&mut self, from: &Stream, to: &Stream, limit: usize) -> Result<usize, Error> {
        assert!(
            std::ptr::eq(&raw const *self.core, from.core()) && std::ptr::eq(from.core(), to.core()),
            "a splicer and its streams belong to one driver"
        );
        to.flush().await?; // bytes handed over earlier go first
        if limit == 0 {
            return Ok(0);
        }
        if self.moving == 0 {
            // Bytes that the driver has received ahead of requests.
            let core = from.core();
            self.held = backend!(core, driver => driver.stop_receiving(core, from.key(), limit).await)?;
            if self.held() == 0 && !self.fill(from, limit).await? {
                return Ok(0);
            }
            self.moving = self.held(); // no await since it was taken
        }
        self.drain(to).await?;
        Ok(std::mem::take(&mut self.moving))
    }

    /// Fills the pipe or `held`; returns `false` at the end of the stream.
    async fn fill(&mut self, from: &Stream, limit: usize) -> Result<bool, Error> {
        let core = self.core.clone();
        Waiting::new(&core, from.key(), Direction::Read, |context| {
            if !self.budget.is_left(&core, READ_PER_ROUND) {
                core.defer(from.key(), Direction::Read, context.waker());
                return Poll::Pending;
            }
            loop {
                match ready(from, Direction::Read, context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
                let filled =
                    if self.copies { self.copy_in(from, limit) } else { self.fill_pipe(from, limit) };
                match filled {
                    Ok(n) => {
                        self.budget.take(n);
                        core.tallies.bytes_in.add(n as u64);
                        if n == 0 {
                            self.give_pipe();
                        }
                        return Poll::Ready(Ok(n > 0));
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        // An idle connection holds no pipe.
                        self.give_pipe();
                        core.forget_readiness(from.key(), Direction::Read);
                    }
                    Err(Errno::INVAL) if !self.copies => {
                        self.give_pipe();
                        self.copies = true;
                    }
                    Err(Errno::NOMEM) => return Poll::Ready(Err(Error::memory(Call::Splice))),
                    Err(errno) => return Poll::Ready(Err(Error::system(Call::Splice, errno))),
                }
            }
        })
        .await
    }

    /// Moves bytes into the pipe.
    fn fill_pipe(&mut self, from: &Stream, limit: usize) -> Result<usize, Errno> {
        let pipe = match self.pipe.take().map_or_else(|| self.core.take_pipe(), Ok) {
            Ok(pipe) => self.pipe.insert(pipe),
            Err(_) => return Err(Errno::INVAL), // no descriptors: copying needs none
        };
        self.core.tallies.splices.add(1);
        pipe.held = splice_once(from, &pipe.write, limit.min(self.core.pipe_size.get()))?;
        Ok(pipe.held)
    }

    /// Copies bytes into a cluster.
    fn copy_in(&mut self, from: &Stream, limit: usize) -> Result<usize, Errno> {
        let limit = limit.min(LARGE_READ);
        let room = self.held.spare(1, limit).map_err(|_| Errno::NOMEM)?;
        self.core.tallies.copied_splices.add(1);
        self.core.tallies.reads.add(1);
        room.fill(|room| {
            let most = limit.min(room.len());
            recv(from, &mut room[..most], RecvFlags::DONTWAIT).map(|((read, _), _)| read)
        })
    }

    async fn drain(&mut self, to: &Stream) -> Result<(), Error> {
        if !self.held.is_empty() {
            to.send(&mut self.held).await?;
        }
        let core = self.core.clone();
        let emptied = Waiting::new(&core, to.key(), Direction::Write, |context| {
            loop {
                let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.held > 0) else {
                    return Poll::Ready(Ok(()));
                };
                match ready(to, Direction::Write, context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
                core.tallies.splices.add(1);
                match splice_once(&pipe.read, to, pipe.held) {
                    Ok(n) => {
                        pipe.held -= n;
                        core.tallies.bytes_out.add(n as u64);
                        core.tallies.spliced_out.add(n as u64);
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => core.forget_readiness(to.key(), Direction::Write),
                    Err(errno) => return Poll::Ready(Err(Error::system(Call::Splice, errno))),
                }
            }
        })
        .await;
        match emptied {
            // The kernel splices from sockets but not into this one: the bytes in the pipe are copied.
            Err(error) if error.errno() == Some(Errno::INVAL) => self.copy_out(to).await?,
            outcome => outcome?,
        }
        self.give_pipe();
        Ok(())
    }

    async fn copy_out(&mut self, to: &Stream) -> Result<(), Error> {
        self.copies = true;
        self.core.tallies.copied_splices.add(1);
        let fail = |errno| Error::system(Call::Splice, errno);
        while let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.held > 0) {
            let room = self.held.spare(1, pipe.held.min(manylane_buf::MAX_CLUSTER));
            let room = room.map_err(|_| Error::memory(Call::Splice))?;
            let n =
                room.fill(|room| rustix::io::read(&pipe.read, room).map(|(read, _)| read)).map_err(fail)?;
            pipe.held -= n;
            to.send(&mut self.held).await?;
        }
        Ok(())
    }

    fn give_pipe(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.core.give_pipe(pipe);
        }
    }
}

impl Drop for Splicer {
    fn drop(&mut self) {
        self.give_pipe();
    }
}

fn ready(stream: &Stream, direction: Direction, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
    let core = stream.core();
    let call = (direction, Call::Splice);
    backend!(core, driver => driver.poll_ready(core, stream.key(), stream.as_fd(), call, context))
}

fn splice_once(from: impl AsFd, to: impl AsFd, limit: usize) -> Result<usize, Errno> {
    splice(from, None, to, None, limit, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)
}
