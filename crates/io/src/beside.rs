//! Writing to a stream's socket beside its lane: for answers of many megabytes that a thread makes, whose
//! copy into the kernel would take the lane as long as thousands of requests.
//!
//! # Protocol
//! 1. The lane and the thread take turns. The lane flushes the stream before it gives the thread a turn, and
//!    hands nothing over before the turn is over: so bytes keep their order, though neither knows of the
//!    other's.
//! 2. The thread never waits for the peer. What the socket does not take at once is the lane's to send, which
//!    waits for room as it does for everything else, with its limits of time.
//! 3. The socket is closed when both have let go of it, so a turn ends after a bounded number of bytes.
//!
//! # Cost
//! A descriptor for as long as it is there, and a system call for each write.

use crate::error::{Call, Error};
use crate::stream::Stream;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::{AsFd, OwnedFd};

/// A stream's socket, for a thread to write to.
#[derive(Debug)]
pub struct Beside {
    fd: OwnedFd,
}

impl Stream {
    /// The same socket for a thread that takes turns with the lane (rule 1).
    ///
    /// # Errors
    /// What the system says; there may be no descriptor left.
    pub fn beside(&self) -> Result<Beside, Error> {
        let fd = rustix::io::fcntl_dupfd_cloexec(self.as_fd(), 3)
            .map_err(|errno| Error::system(Call::Send, errno))?;
        Ok(Beside { fd })
    }
}

/// For a socket that no lane has.
impl From<OwnedFd> for Beside {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl Beside {
    /// Writes as many of `bytes` as the socket takes at once, perhaps none. How many these were.
    ///
    /// # Errors
    /// What the system says; the connection is of no more use. Never a signal.
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
