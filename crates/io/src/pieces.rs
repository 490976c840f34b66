//! Pieces of one buffer, each a datagram.
//!
//! UDP segmentation offload takes pieces of equal length as one message, which goes through the kernel once
//! and is cut into datagrams last. So the receiver, also one over a network, gets the same datagrams as
//! without it.

use crate::core::Core;
use crate::datagram::last_errno;
use crate::limits::DATAGRAMS_PER_CALL;
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum number of pieces of one message: the kernel's own limit of Linux 4.18 to 6.8, which raised it.
const SEGMENTS: usize = 64;
/// Longer pieces are not combined: a segment must fit the packets of the path, mostly of 1500 bytes, with its
/// headers.
const LONGEST: usize = 1400;

/// Control message with the length of segments.
#[repr(C)]
#[derive(Clone, Copy)]
struct Cut {
    header: libc::cmsghdr,
    length: u16,
    padding: [u8; 6],
}

/// Returns the length of the run of pieces that are sent as one message: the first, and the following ones of
/// equal length, the last of which may be shorter.
fn run(ends: &[usize], start: usize) -> usize {
    let length = ends[0] - start;
    if length == 0 || length > LONGEST {
        return 1;
    }
    let (mut count, mut before) = (1, ends[0]);
    for &end in ends.iter().take(SEGMENTS).skip(1) {
        let this = end - before;
        if this == 0 || this > length || end - start > usize::from(u16::MAX) - 1000 {
            break;
        }
        count += 1;
        before = end;
        if this < length {
            break;
        }
    }
    count
}

/// Returns true if the system supports segmentation for this socket. Otherwise it would ignore the control
/// message, and send several pieces as one.
pub(crate) fn may_share(fd: BorrowedFd<'_>) -> bool {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let address = (&raw mut value).cast();
    // SAFETY: the place is of that length and lives until after the call.
    unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, address, &raw mut len) == 0 }
}

/// Makes one `sendmmsg` call with the pieces of `bytes` that end at `ends`, from number `from` on; returns
/// how many were sent. `together` says whether pieces may share a message; a refusal of the system clears it.
pub(crate) fn transmit(
    fd: BorrowedFd<'_>,
    (bytes, ends, from): (&[u8], &[usize], usize),
    to: Option<&SocketAddrAny>,
    together: &mut bool,
    core: &Core,
) -> Result<usize, Errno> {
    loop {
        let joins = *together;
        let mut counts = [0; DATAGRAMS_PER_CALL];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; DATAGRAMS_PER_CALL];
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; DATAGRAMS_PER_CALL];
        let mut cuts = [const { MaybeUninit::<Cut>::uninit() }; DATAGRAMS_PER_CALL];
        let (mut wanted, mut at) = (0, from);
        let mut start = if from == 0 { 0 } else { ends[from - 1] };
        while wanted < DATAGRAMS_PER_CALL && at < ends.len() {
            let count = if joins { run(&ends[at..], start) } else { 1 };
            let end = ends[at + count - 1];
            let piece = &bytes[start..end];
            let base = piece.as_ptr().cast_mut().cast();
            // SAFETY: a header of zeros is valid: no address, no vectors, no control data.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov =
                vectors[wanted].write(libc::iovec { iov_base: base, iov_len: piece.len() });
            header.msg_hdr.msg_iovlen = 1;
            if let Some(to) = to {
                header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
                header.msg_hdr.msg_namelen = to.addr_len();
            }
            if count > 1 {
                // SAFETY: a header of zeros is valid; it is filled in next.
                let mut cut = unsafe { std::mem::zeroed::<Cut>() };
                // SAFETY: only computes with a number.
                cut.header.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<u16>() as u32) } as usize;
                cut.header.cmsg_level = libc::SOL_UDP;
                cut.header.cmsg_type = libc::UDP_SEGMENT;
                cut.length = (ends[at] - start) as u16; // at most LONGEST
                header.msg_hdr.msg_control = std::ptr::from_mut(cuts[wanted].write(cut)).cast();
                header.msg_hdr.msg_controllen = size_of::<Cut>();
            }
            headers[wanted].write(header);
            counts[wanted] = count;
            (wanted, at, start) = (wanted + 1, at + count, end);
        }
        core.tallies.writes.add(1);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `wanted` headers are filled in; the memory that they point to lives until after the call,
        // and is only read.
        let n = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr().cast(), wanted as u32, flags) };
        match usize::try_from(n).map_err(|_| last_errno()) {
            Ok(n) => {
                let sent: usize = counts[..n].iter().sum();
                let begin = if from == 0 { 0 } else { ends[from - 1] };
                if sent > 0 {
                    core.tallies.bytes_out.add((ends[from + sent - 1] - begin) as u64);
                }
                return Ok(sent);
            }
            // The kernel, the device or the path does not support it, or supports only smaller packets.
            Err(Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::OPNOTSUPP | Errno::NOPROTOOPT)
                if counts[0] > 1 =>
            {
                *together = false;
            }
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(lengths: &[usize]) -> Vec<usize> {
        let ends: Vec<usize> = lengths
            .iter()
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect();
        let (mut at, mut start, mut found) = (0, 0, Vec::new());
        while at < ends.len() {
            let count = run(&ends[at..], start);
            found.push(count);
            (at, start) = (at + count, ends[at + count - 1]);
        }
        found
    }

    #[test]
    fn pieces_of_one_length_are_one_message_and_a_shorter_one_ends_it() {
        assert_eq!(runs(&[5, 5, 5, 3, 3, 7, 6, 6]), [4, 1, 2, 1]);
        assert_eq!(runs(&[0, 0, 4, 0, 4]), [1, 1, 1, 1, 1], "an empty datagram is one of its own");
        assert_eq!(runs(&[LONGEST + 1, LONGEST + 1, LONGEST, LONGEST]), [1, 1, 2]);
        assert_eq!(runs(&[9; 2 * SEGMENTS + 1]), [SEGMENTS, SEGMENTS, 1]);
        let most = (usize::from(u16::MAX) - 1000) / LONGEST;
        assert_eq!(runs(&vec![LONGEST; most + 1]), [most, 1]);
    }
}
