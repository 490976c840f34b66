//! Reads of a stream's bytes into clusters: into one, or into several with one call.

use crate::limits::{CLUSTERS_PER_READ, LARGE_READ, SMALL_READ};
use manylane_buf::{Chain, Cluster, Segment};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Destination of received bytes.
pub(crate) enum Destination<'a> {
    /// A single piece.
    Segment(&'a mut Option<Segment>),
    /// A single piece of at most this many bytes: the others stay for the next receiver.
    AtMost(&'a mut Option<Segment>, usize),
    /// All bytes that are there, up to about this number, behind those of the chain.
    Chain(&'a mut Chain, usize),
}

/// Number of bytes that a read returned, and its room.
pub(crate) struct Read {
    pub(crate) bytes: usize,
    pub(crate) room: usize,
}

impl Destination<'_> {
    /// Makes one call, which fills at most this many clusters. It never waits, even if the owner of a
    /// duplicate has made the socket blocking.
    #[inline]
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>, large: bool, clusters: usize) -> Result<Read, Errno> {
        match self {
            Self::Chain(chain, most) if large && *most > LARGE_READ && clusters > 1 => {
                several(fd, chain, clusters.min(*most / LARGE_READ))
            }
            Self::Chain(chain, _) => {
                let (read, segment) = one(fd, room_of(large))?;
                if let Some(segment) = segment {
                    chain.push_compact(segment).map_err(|_| Errno::NOMEM)?;
                }
                Ok(read)
            }
            Self::Segment(slot) => {
                let (read, segment) = one(fd, room_of(large))?;
                **slot = segment;
                Ok(read)
            }
            Self::AtMost(space, most) => {
                let (read, segment) = one(fd, (*most).min(SMALL_READ))?;
                **space = segment;
                Ok(read)
            }
        }
    }

    /// Delivers bytes received earlier; there are some. Without memory, `arrived` keeps what is not
    /// delivered.
    #[inline]
    pub(crate) fn put(&mut self, arrived: &mut Chain) -> Result<(), manylane_buf::Error> {
        match self {
            Self::Segment(slot) => **slot = arrived.pop_front(),
            Self::AtMost(space, most) => {
                let mut rest = arrived.split_off((*most).min(arrived.len()))?;
                **space = arrived.pop_front();
                arrived.append_chain(&mut rest)?;
            }
            Self::Chain(chain, most) if arrived.len() <= *most => {
                chain.append_compact(arrived)?;
            }
            Self::Chain(chain, most) => {
                let mut taken = 0;
                while taken < *most
                    && let Some(segment) = arrived.pop_front()
                {
                    taken += segment.len();
                    chain.push_compact(segment).map_err(|failed| failed.back_into(arrived))?;
                }
            }
        }
        Ok(())
    }
}

/// How much is read at once.
fn room_of(large: bool) -> usize {
    if large { LARGE_READ } else { SMALL_READ }
}

/// Reads at most `room` bytes into a cluster of its own.
#[inline]
fn one(fd: BorrowedFd<'_>, room: usize) -> Result<(Read, Option<Segment>), Errno> {
    let mut cluster = Cluster::alloc(room.max(SMALL_READ)).map_err(|_| Errno::NOMEM)?;
    let spare = cluster.spare_mut();
    let room = room.min(spare.len());
    let spare = &mut spare[..room];
    let ((read, _), _) = rustix::net::recv(fd, spare, RecvFlags::DONTWAIT)?;
    let bytes = read.len();
    // SAFETY: the kernel has written this many bytes from the start of the room.
    unsafe { cluster.commit(bytes) };
    Ok((Read { bytes, room }, (bytes > 0).then(|| cluster.into_segment())))
}

/// Reads into several large clusters, up to `most` bytes and [`CLUSTERS_PER_READ`].
fn several(fd: BorrowedFd<'_>, chain: &mut Chain, most: usize) -> Result<Read, Errno> {
    let mut clusters = [const { None::<Cluster> }; CLUSTERS_PER_READ];
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; CLUSTERS_PER_READ];
    let (mut wanted, mut room) = (0, 0);
    for (slot, vector) in clusters.iter_mut().zip(&mut vectors).take(most) {
        let Ok(cluster) = Cluster::alloc(LARGE_READ) else { break };
        let spare = slot.insert(cluster).spare_mut();
        *vector = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
        room += spare.len();
        wanted += 1;
    }
    if wanted == 0 {
        return Err(Errno::NOMEM);
    }
    // SAFETY: a header of zeros is valid: no address, no vectors, no control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = wanted;
    // SAFETY: this many vectors are filled in, with rooms that live until after the call and that nothing
    // else uses.
    let bytes = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let bytes = usize::try_from(bytes).map_err(|_| crate::datagram::last_errno())?;
    let mut left = bytes;
    for mut cluster in clusters.into_iter().flatten() {
        if left == 0 {
            break;
        }
        let len = left.min(cluster.spare_len());
        // SAFETY: the kernel fills one room after the other, so it has written this many bytes into this one.
        unsafe { cluster.commit(len) };
        left -= len;
        chain.push_compact(cluster.into_segment()).map_err(|_| Errno::NOMEM)?;
    }
    Ok(Read { bytes, room })
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_pool::inject;

    /// Bytes that are not delivered for lack of memory stay for the next call.
    #[test]
    fn what_there_is_no_memory_for_is_not_lost() {
        let mut failures = 0;
        for most in [2500, usize::MAX] {
            for failing in 1.. {
                let (mut chain, mut arrived) = (Chain::new(), Chain::new());
                chain.append(&[1; 2000]).expect("memory");
                for n in 2..8 {
                    let cluster = Cluster::with(&[n; 1000]).expect("memory");
                    arrived.push_back(cluster.into_segment()).expect("memory");
                }
                let all = [chain.to_vec(), arrived.to_vec()].concat();
                let failing = inject::every(failing);
                let put = Destination::Chain(&mut chain, most).put(&mut arrived);
                drop(failing);
                chain.append_chain(&mut arrived).expect("memory");
                assert_eq!(chain, all[..], "at most {most}");
                if put.is_ok() {
                    break;
                }
                failures += 1;
            }
        }
        assert!(failures > 1, "it allocates");
    }
}
