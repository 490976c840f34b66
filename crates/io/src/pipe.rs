//! Pipes for splicing, kept by the lane.

use crate::core::Core;
use crate::limits::{PIPES_KEPT, SPLICE_AT_ONCE};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::os::fd::OwnedFd;

/// A pipe, and the number of bytes in it.
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    pub(crate) held: usize,
}

impl Core {
    /// Returns an empty pipe, a kept or a new one. [`Errno::MFILE`] if the lane has reached its maximum.
    pub(crate) fn take_pipe(&self) -> Result<Pipe, Errno> {
        if let Some(pipe) = self.pipes.borrow_mut().pop() {
            self.tallies.pipes_taken.add(1);
            return Ok(pipe);
        }
        if self.pipes_open.get() >= self.most_pipes.get() {
            return Err(Errno::MFILE);
        }
        self.tallies.others.add(1);
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let size = self.pipe_size.get();
        if size != SPLICE_AT_ONCE {
            // Beyond the user's allowance the kernel keeps the usual size, and splicing goes on.
            let _ = fcntl_setpipe_size(&write, size);
        }
        self.pipes_open.set(self.pipes_open.get() + 1);
        self.tallies.pipes_made.add(1);
        self.tallies.pipes_taken.add(1);
        Ok(Pipe { read, write, held: 0 })
    }

    /// Keeps a pipe for later use, if it is empty and not too many are kept.
    pub(crate) fn give_pipe(&self, pipe: Pipe) {
        self.tallies.pipes_given.add(1);
        let mut pipes = self.pipes.borrow_mut();
        if pipe.held == 0 && pipes.len() < PIPES_KEPT {
            pipes.push(pipe);
            return;
        }
        drop(pipes);
        self.pipes_open.set(self.pipes_open.get() - 1);
        self.tallies.pipes_closed.add(1);
        self.close_plainly(pipe.read);
        self.close_plainly(pipe.write);
    }
}
