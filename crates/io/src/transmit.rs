//! A chain's bytes into a socket: vectors, partial writes, a bound.

use crate::limits::{SEGMENTS_PER_WRITE, WRITTEN_PER_ROUND};
use crate::stats::Tallies;
use manylane_buf::Chain;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

/// How far a chain came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All of it went.
    All,
    /// The socket takes no more for now.
    Full,
    /// It had its share of this round.
    Enough,
}

/// Vectors for chains of a few segments: to prepare more costs more than the difference is worth.
const FEW: usize = 8;

/// Sends from the front of the chain, which loses what was sent. A short write is followed by another
/// attempt, since only `EAGAIN` makes the kernel promise an event.
pub(crate) fn transmit(fd: BorrowedFd<'_>, chain: &mut Chain, tallies: &Tallies) -> Result<Sent, Errno> {
    transmit_with(fd, chain, FLAGS, tallies)
}

/// The same for the last bytes of a stream, whose end follows at once: the kernel keeps the rest that fills
/// no packet, for the end to go with it.
pub(crate) fn transmit_last(fd: BorrowedFd<'_>, chain: &mut Chain, tallies: &Tallies) -> Result<Sent, Errno> {
    transmit_with(fd, chain, FLAGS.union(SendFlags::MORE), tallies)
}

#[inline]
fn transmit_with(
    fd: BorrowedFd<'_>,
    chain: &mut Chain,
    flags: SendFlags,
    tallies: &Tallies,
) -> Result<Sent, Errno> {
    let mut total = 0;
    let outcome = loop {
        if chain.is_empty() {
            break Ok(Sent::All);
        }
        if total >= WRITTEN_PER_ROUND {
            break Ok(Sent::Enough);
        }
        tallies.writes.add(1);
        match once(fd, chain, flags) {
            Ok(sent) => {
                chain.trim_front(sent).expect("no more is sent than there was");
                total += sent;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break Ok(Sent::Full),
            Err(errno) => break Err(errno),
        }
    };
    tallies.bytes_out.add(total as u64);
    outcome
}

/// Never a signal when the peer has gone, and never a wait, although somebody else with a duplicate may have
/// made the socket blocking.
const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// One call.
#[inline]
fn once(fd: BorrowedFd<'_>, chain: &Chain, flags: SendFlags) -> Result<usize, Errno> {
    match (chain.segment_count(), chain.front()) {
        (1, Some(segment)) => send(fd, segment, flags),
        (2..=FEW, _) => vectored::<FEW>(fd, chain, flags),
        _ => vectored::<SEGMENTS_PER_WRITE>(fd, chain, flags),
    }
}

fn vectored<const N: usize>(fd: BorrowedFd<'_>, chain: &Chain, flags: SendFlags) -> Result<usize, Errno> {
    let mut vectors = [IoSlice::new(&[]); N];
    let n = chain.io_slices(&mut vectors);
    sendmsg(fd, &vectors[..n], &mut SendAncillaryBuffer::default(), flags)
}
