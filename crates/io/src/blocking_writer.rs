//! Writing to a stream's socket from a thread beside its lane, for responses of many megabytes that a thread
//! makes. Copying these into the kernel would take the lane as long as thousands of requests.
//!
//! # Protocol
//! 1. The lane and the thread take turns. The lane flushes the stream before it gives the thread a turn, and
//!    hands over no bytes before the turn is over: so bytes keep their order, although neither side knows of
//!    the other's.
//! 2. The thread never waits for the peer. The lane sends the bytes that the socket does not accept at once,
//!    and waits for room as usual, with its timeouts.
//! 3. The socket is closed when both have dropped it, so a turn ends after a bounded number of bytes.
//!
//! # Cost
//! A descriptor while it exists, and a system call for each write.

use crate::error::{Call, Error};
use crate::stream::Stream;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::{AsFd, OwnedFd};

/// A stream's socket, to which a thread writes.
#[derive(Debug)]
pub struct BlockingWriter {
    fd: OwnedFd,
}

impl Stream {
    /// Returns the same socket for a thread that takes turns with the lane (rule 1).
    ///
    /// # Errors
    /// The system's; there may be no descriptor left.
    pub fn beside(&self) -> Result<BlockingWriter, Error> {
        let fd = rustix::io::fcntl_dupfd_cloexec(self.as_fd(), 3)
            .map_err(|errno| Error::system(Call::Send, errno))?;
        Ok(BlockingWriter { fd })
    }
}

/// Wraps a socket that no lane has.
impl From<OwnedFd> for BlockingWriter {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl BlockingWriter {
    /// Writes as many of `bytes` as the socket accepts at once, perhaps none, and returns their number.
    ///
    /// # Errors
    /// The system's; the connection is then unusable. Raises no signal.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Error> {
        let mut written = 0;
        while written < bytes.len() {
            match send(&self.fd, &bytes[written..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(taken) => written += taken,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::system(Call::Send, errno)),
            }
        }
        Ok(written)
    }
}
