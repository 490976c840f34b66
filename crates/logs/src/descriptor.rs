//! Writes to a descriptor: a pipe, a terminal, a file, a stream.
//!
//! Others may share the descriptor, so its flags are not changed: a shell's terminal would stay non-blocking
//! after this process exits. Instead, `poll` tells whether there is room, and each write to a pipe or stream
//! is flagged as non-blocking, if the kernel supports it (for pipes since Linux 6.4). Otherwise a write has
//! no more bytes than a pipe with room is certain to take. Lines of up to that size are always written with
//! one call: a pipe takes them as a whole or not at all, so lines of several writers, including generations
//! of a configuration, do not mix.

use crate::outbox::Batch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, ReadWriteFlags, pwritev2, write};
use std::io::IoSlice;
use std::os::fd::OwnedFd;

/// Bytes that a pipe takes without blocking when it has room (`PIPE_BUF`).
const SURE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: OwnedFd,
    kind: Kind,
    /// The rest of a partly written line.
    rest: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Blocks no longer than a disk does.
    File,
    /// May be full; writes can be flagged as non-blocking.
    Nonblocking,
    /// May be full.
    Polled,
}

/// Result of writing.
#[derive(Debug)]
pub(crate) struct Written {
    /// Number of whole lines. The last one may have a rest, which the next call writes first.
    pub(crate) lines: usize,
    /// There was no room for more.
    pub(crate) is_full: bool,
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let kind = match fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile) => Kind::File,
            Ok(FileType::Fifo | FileType::Socket) => Kind::Nonblocking,
            _ => Kind::Polled,
        };
        Self { fd, kind, rest: Vec::new() }
    }

    /// Writes lines from number `from` on until there is no room.
    pub(crate) fn write(&mut self, batch: &Batch, from: usize) -> Result<Written, Errno> {
        let written = self.write_some(batch, from);
        if written.is_err() {
            self.rest.clear();
        }
        written
    }

    fn write_some(&mut self, batch: &Batch, from: usize) -> Result<Written, Errno> {
        let mut next = from;
        loop {
            if !self.put_rest()? {
                return Ok(Written { lines: next - from, is_full: true });
            }
            let start = if next == 0 { 0 } else { batch.ends[next - 1] };
            let fits = match self.kind {
                Kind::File => batch.ends.len(),
                Kind::Nonblocking | Kind::Polled => batch.ends.partition_point(|end| *end <= start + SURE),
            };
            if next == batch.ends.len() {
                return Ok(Written { lines: next - from, is_full: false });
            }
            let end = batch.ends[fits.max(next + 1) - 1];
            let Some(some) = self.put(&batch.bytes[start..end])? else {
                return Ok(Written { lines: next - from, is_full: true });
            };
            next = batch.ends.partition_point(|end| *end <= start + some);
            let whole = if next == 0 { 0 } else { batch.ends[next - 1] };
            if start + some > whole {
                self.rest.extend_from_slice(&batch.bytes[start + some..batch.ends[next]]);
                next += 1;
            }
        }
    }

    /// Writes the rest of a line. Returns true if all of it was written.
    fn put_rest(&mut self) -> Result<bool, Errno> {
        while !self.rest.is_empty() {
            let mut rest = std::mem::take(&mut self.rest);
            let some = self.put(&rest)?;
            rest.drain(..some.unwrap_or(0));
            self.rest = rest;
            if some.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes once. `None` if there is no room. May block for a disk only.
    fn put(&mut self, bytes: &[u8]) -> Result<Option<usize>, Errno> {
        loop {
            let written = match self.kind {
                Kind::File => write(&self.fd, bytes),
                Kind::Nonblocking => {
                    match pwritev2(&self.fd, &[IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT) {
                        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                            self.kind = Kind::Polled;
                            continue;
                        }
                        written => written,
                    }
                }
                Kind::Polled => match self.has_room() {
                    Ok(true) => write(&self.fd, &bytes[..bytes.len().min(SURE)]),
                    Ok(false) => Err(Errno::AGAIN),
                    Err(errno) => Err(errno),
                },
            };
            match written {
                Ok(0) => return Err(Errno::IO),
                Ok(some) => return Ok(Some(some)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    fn has_room(&self) -> Result<bool, Errno> {
        let mut polled = [PollFd::new(&self.fd, PollFlags::OUT)];
        Ok(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
    }
}
