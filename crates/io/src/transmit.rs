//! Sends a chain's bytes to a socket, with vectors, partial writes and a bound.

use crate::limits::{SEGMENTS_PER_WRITE, WRITTEN_PER_ROUND};
use crate::stats::Tallies;
use manylane_buf::Chain;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

/// How much of a chain was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All of it.
    All,
    /// The socket takes no more for now.
    Full,
    /// The chain had its share of this round.
    Enough,
}

/// Number of vectors for chains of a few segments: preparing more costs more than it gains.
const FEW: usize = 8;

/// Sends from the front of the chain and removes the sent bytes. Tries again after a short write, since only
/// `EAGAIN` makes the kernel deliver an event.
pub(crate) fn transmit(fd: BorrowedFd<'_>, chain: &mut Chain, tallies: &Tallies) -> Result<Sent, Errno> {
    transmit_with(fd, chain, FLAGS, tallies)
}

/// Sends the last bytes of a stream, whose end follows at once: the kernel keeps a rest that fills no packet,
/// so that the end goes with it.
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

/// Raises no signal if the peer has disconnected, and never waits, even if the owner of a duplicate has made
/// the socket blocking.
const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Makes one call.
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
