//! Passing descriptors over unix sockets (`SCM_RIGHTS` in `unix(7)`).
//!
//! Each goes with two bytes, since the system needs some bytes to carry it, and HAProxy's `sockpair@` sends
//! two.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Bytes that accompany a descriptor.
const COMPANY: [u8; 2] = [0; 2];

/// Sends `passenger` over `socket`. The caller's own descriptor stays open.
///
/// # Errors
/// The system's: `EAGAIN` if the socket is full, `EPIPE` if its other end is closed, `ETOOMANYREFS` if too
/// many descriptors are in flight.
pub fn send_descriptor(socket: BorrowedFd<'_>, passenger: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passengers = [passenger];
    let fits = control.push(SendAncillaryMessage::ScmRights(&passengers));
    debug_assert!(fits, "the space is for one");
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(&COMPANY)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

/// Result of a receive.
#[derive(Debug)]
pub enum Received {
    /// A descriptor, which programs started by this one do not inherit.
    Descriptor(OwnedFd),
    /// Bytes without a descriptor, which the peer should not send. They are discarded.
    Nothing,
    /// The other end is closed.
    End,
}

/// Receives one descriptor from `socket`. If the peer sends more at once, closes the others.
///
/// # Errors
/// The system's: `EAGAIN` if there is nothing to receive. `EMFILE` if there are no descriptors left: the
/// descriptor is then lost.
pub fn receive_descriptor(socket: BorrowedFd<'_>) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut bytes = COMPANY;
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message =
            match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
                Ok(message) => message,
            };
        let mut passengers = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(passengers) => Some(passengers),
            _ => None,
        });
        let first = passengers.next().and_then(|mut passengers| passengers.next());
        return match first {
            Some(passenger) => Ok(Received::Descriptor(passenger)),
            // The kernel omits descriptors for which the process has no number.
            None if message.flags.contains(rustix::net::ReturnFlags::CTRUNC) => Err(Errno::MFILE),
            None if message.bytes == 0 => Ok(Received::End),
            None => Ok(Received::Nothing),
        };
    }
}

/// Maximum number of descriptors of one message: Linux accepts 253, and HAProxy sends one less.
pub const PASSENGERS: usize = 252;

/// Sends `bytes`, with `passengers` on the first of them, and returns how many bytes the system accepted.
/// Never waits.
///
/// # Errors
/// As [`send_descriptor`]; `EINVAL` for more than [`PASSENGERS`], or for no bytes, since the system needs
/// some to carry them.
pub fn send_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    passengers: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    if passengers.len() > PASSENGERS || bytes.is_empty() {
        return Err(Errno::INVAL);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSENGERS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !passengers.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(passengers));
        debug_assert!(fits, "the space is for the most");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// Receives up to the length of `bytes`, appends the descriptors that came with them to `passengers`, and
/// returns the number of bytes: none at the end. Waits as the socket does. Programs started by this one do
/// not inherit the descriptors.
///
/// # Errors
/// The system's. `EMFILE` if there are not enough numbers for all descriptors: those without one are lost.
pub fn receive_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    passengers: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSENGERS))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(bytes)];
        let message = match rustix::net::recvmsg(socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
            Ok(message) => message,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                passengers.extend(came);
            }
        }
        return match message.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
            true => Err(Errno::MFILE),
            false => Ok(message.bytes),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Shape, pair};
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_arrives_and_refers_to_the_same() {
        for shape in [Shape::Stream, Shape::Datagram, Shape::SeqPacket] {
            let (left, right) = pair(shape).unwrap();
            let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
            send_descriptor(left.as_fd(), there.as_fd()).unwrap();
            drop(there);
            let Received::Descriptor(arrived) = receive_descriptor(right.as_fd()).unwrap() else {
                panic!("nothing arrived")
            };
            std::io::Write::write_all(&mut here, b"x").unwrap();
            let mut byte = [0];
            std::io::Read::read_exact(&mut std::os::unix::net::UnixStream::from(arrived), &mut byte).unwrap();
            assert_eq!(&byte, b"x");
            assert_eq!(receive_descriptor(right.as_fd()).unwrap_err(), Errno::AGAIN);
        }
    }

    #[test]
    fn of_several_descriptors_the_first_is_taken_and_no_other_stays_open() {
        let (left, right) = pair(Shape::Stream).unwrap();
        let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let passengers = [there.as_fd(); 5];
        assert!(control.push(SendAncillaryMessage::ScmRights(&passengers)));
        rustix::net::sendmsg(&left, &[IoSlice::new(&COMPANY)], &mut control, SendFlags::NOSIGNAL).unwrap();
        drop(there);
        let Received::Descriptor(first) = receive_descriptor(right.as_fd()).unwrap() else {
            panic!("nothing arrived")
        };
        drop(first);
        // The end arrives only after all copies of the other end are closed.
        assert_eq!(std::io::Read::read(&mut here, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn many_descriptors_go_with_bytes_that_say_what_they_are() {
        let (left, right) = pair(Shape::Stream).unwrap();
        let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let many = [there.as_fd(); PASSENGERS];
        assert_eq!(send_descriptors(left.as_fd(), b"many", &many), Ok(4));
        assert_eq!(send_descriptors(left.as_fd(), b"none", &[]), Ok(4));
        assert_eq!(send_descriptors(left.as_fd(), b"", &many), Err(Errno::INVAL));
        assert_eq!(send_descriptors(left.as_fd(), b"x", &[there.as_fd(); PASSENGERS + 1]), Err(Errno::INVAL));
        drop(there);
        let (mut bytes, mut came) = ([0; 64], Vec::new());
        assert_eq!(receive_descriptors(right.as_fd(), &mut bytes, &mut came), Ok(4));
        assert_eq!((&bytes[..4], came.len()), (&b"many"[..], PASSENGERS));
        assert_eq!(receive_descriptors(right.as_fd(), &mut bytes, &mut came), Ok(4));
        assert_eq!((&bytes[..4], came.len()), (&b"none"[..], PASSENGERS));
        assert_eq!(receive_descriptors(right.as_fd(), &mut bytes, &mut came), Err(Errno::AGAIN));
        drop(left);
        assert_eq!(receive_descriptors(right.as_fd(), &mut bytes, &mut came), Ok(0));
        drop(came);
        assert_eq!(std::io::Read::read(&mut here, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn bytes_alone_and_a_closed_end_are_distinguished() {
        let (left, right) = pair(Shape::Stream).unwrap();
        rustix::io::write(&left, b"xyz").unwrap();
        assert!(matches!(receive_descriptor(right.as_fd()), Ok(Received::Nothing)));
        assert!(matches!(receive_descriptor(right.as_fd()), Ok(Received::Nothing)));
        drop(left);
        assert!(matches!(receive_descriptor(right.as_fd()), Ok(Received::End)));
        assert_eq!(send_descriptor(right.as_fd(), right.as_fd()), Err(Errno::PIPE));
    }
}
