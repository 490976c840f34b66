//! Handover of listening sockets from one process to the next (`expose-fd listeners`, `-x`). No connection is
//! lost meanwhile: both processes have the same sockets until the old one closes them.
//!
//! # Protocol
//! It is HAProxy's protocol, so that either program can take over from the other. Over a unix socket of the
//! run-time interface, the new process sends the line `_getsocks`. The old process answers with the number of
//! sockets, four bytes in native byte order; if it hands nothing over, it closes without an answer. Then
//! records follow, with as many descriptors. A record is the name of the network namespace and that of the
//! interface, each after a byte with its length, and four unused bytes.

use crate::adopt::{Changes, PendingChanges};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::SocketError;
use crate::options::{ListenOptions, V6};
use manylane_io::Errno;
use manylane_io::options::{SocketOption, option};
use manylane_io::passing::{PASSENGERS, receive_descriptors, send_descriptor, send_descriptors};
use manylane_io::socket::{self, AddressFamily, Shape};
use manylane_sched::Here;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The request.
pub const QUESTION: &str = "_getsocks";

/// Largest number of sockets to take from another process.
pub const MOST_TAKEN: usize = 65_536;

/// Time that another process has for its answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a worker has for its answer to its successor: a worker that hangs must not delay its
/// replacement, and a healthy one answers within milliseconds.
const WORKER_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that a sender waits before it tries a full socket again.
const AGAIN: Duration = Duration::from_millis(2);

/// Number of unused bytes behind a record's names.
const TAIL: usize = 4;

/// A socket that another process may have.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The socket.
    pub socket: BorrowedFd<'a>,
    /// Network namespace that the socket was opened in, if that has a name.
    pub namespace: Option<&'a str>,
    /// Network device that the socket listens on.
    pub interface: Option<&'a str>,
}

/// Answers the [request](QUESTION) of the client at the other end, which has `timeout` to read the answer.
///
/// # Errors
/// The client is gone or does not read; or it did not come over a unix socket, and only those carry
/// descriptors.
pub async fn hand_over(
    here: Here,
    connection: &Connection,
    offers: &[Offer<'_>],
    timeout: Duration,
) -> Result<(), Errno> {
    let Connection::Socket(stream) = connection else { return Err(Errno::OPNOTSUPP) };
    if socket::family(stream.as_fd())? != AddressFamily::UNIX {
        return Err(Errno::OPNOTSUPP);
    }
    let count = i32::try_from(offers.len()).map_err(|_| Errno::OVERFLOW)?;
    let sending = async {
        send(here, stream.as_fd(), &count.to_ne_bytes(), &[]).await?;
        for some in offers.chunks(PASSENGERS) {
            let mut records = Vec::new();
            for offer in some {
                for name in [offer.namespace, offer.interface] {
                    let name = name.unwrap_or_default().as_bytes();
                    records.push(u8::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?);
                    records.extend_from_slice(name);
                }
                records.extend_from_slice(&[0; TAIL]);
            }
            let sockets: Vec<_> = some.iter().map(|offer| offer.socket).collect();
            send(here, stream.as_fd(), &records, &sockets).await?;
        }
        Ok(())
    };
    here.timeout(timeout, sending).await.unwrap_or(Err(Errno::TIMEDOUT))
}

/// Sends all of `bytes`, and the descriptors with the first of them.
async fn send(
    here: Here,
    to: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut with: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match send_descriptors(to, bytes, with) {
            Ok(sent) => (bytes, with) = (&bytes[sent..], &[]),
            Err(Errno::AGAIN) => here.sleep(AGAIN).await,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Sockets that another process handed over and that no listener has taken yet; and the changes to those that
/// were taken, to make once everything is bound. Dropping it closes them; the other process still has its
/// own.
#[derive(Debug, Default)]
pub struct HandedOver {
    left: Vec<Taken>,
    pub(crate) changes: Changes,
}

#[derive(Debug)]
struct Taken {
    socket: OwnedFd,
    endpoint: Endpoint,
    namespace: Vec<u8>,
    interface: Vec<u8>,
}

/// Reason why another process hands nothing over.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotHandedOver {
    /// The process cannot be asked, or the connection to it broke.
    System(io::Error),
    /// Only unix sockets can carry the request.
    NotUnix,
    /// The process did not answer within this time.
    Silent(Duration),
    /// The process has not read earlier requests, and takes no more.
    Behind,
    /// The process did not send the number of its sockets.
    Refused,
    /// The process's answer breaks the protocol.
    Nonsense,
}

impl fmt::Display for NotHandedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => error.fmt(f),
            Self::NotUnix => {
                f.write_str("expected the path of a unix socket, since only such a socket can pass listeners")
            }
            Self::Silent(time) => write!(f, "it did not answer within {} s", time.as_secs()),
            Self::Behind => f.write_str("it has not read earlier requests"),
            Self::Refused => f.write_str("its 'stats socket' lacks 'expose-fd listeners'; add it"),
            Self::Nonsense => f.write_str("expected the sockets of a process, found another answer"),
        }
    }
}

impl std::error::Error for NotHandedOver {}

impl From<io::Error> for NotHandedOver {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<Errno> for NotHandedOver {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

impl HandedOver {
    /// Asks the process that listens at `at` for its sockets. It blocks: for the start of a process.
    ///
    /// # Errors
    /// [`NotHandedOver`].
    pub fn ask(at: &Endpoint) -> Result<Self, NotHandedOver> {
        let mut timeout = TIMEOUT;
        let stream = match at {
            Endpoint::Unix(path) => UnixStream::connect(path)?,
            Endpoint::Abstract(name) => {
                UnixStream::connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)?
            }
            Endpoint::SocketPair(number) => {
                let passage = socket::inherited(*number)?;
                let (ours, theirs) = UnixStream::pair()?;
                match send_descriptor(passage.as_fd(), theirs.as_fd()) {
                    Err(Errno::AGAIN) => return Err(NotHandedOver::Behind),
                    sent => sent?,
                }
                timeout = WORKER_TIMEOUT;
                ours
            }
            _ => return Err(NotHandedOver::NotUnix),
        };
        Self::over(stream, timeout)
    }

    /// Asks the process at the other end of `stream`.
    fn over(mut stream: UnixStream, timeout: Duration) -> Result<Self, NotHandedOver> {
        // one deadline for the whole answer: small pieces could take hours
        let deadline = Deadline { began: Instant::now(), timeout };
        stream.set_write_timeout(Some(timeout))?;
        stream.write_all(format!("{QUESTION}\n").as_bytes())?;
        let (mut bytes, mut sockets) = (Vec::new(), Vec::new());
        let mut count = [0; 4];
        while bytes.len() < count.len() {
            if !more(&stream, &deadline, &mut bytes, &mut sockets)? {
                return Err(NotHandedOver::Refused);
            }
        }
        count.copy_from_slice(&bytes[..4]);
        let count = usize::try_from(i32::from_ne_bytes(count)).map_err(|_| NotHandedOver::Nonsense)?;
        if count > MOST_TAKEN {
            return Err(NotHandedOver::Nonsense);
        }
        let mut records = Records { bytes, at: 4 };
        let mut names = Vec::new();
        while names.len() < count || sockets.len() < count {
            match records.next() {
                Some(record) if names.len() < count => names.push(record),
                _ if more(&stream, &deadline, &mut records.bytes, &mut sockets)? => {}
                _ => return Err(NotHandedOver::Nonsense),
            }
            if sockets.len() > count || records.bytes.len() > 4 + count * LONGEST_RECORD {
                return Err(NotHandedOver::Nonsense);
            }
        }
        let known = sockets.into_iter().zip(names).filter_map(|(socket, (namespace, interface))| {
            let endpoint = Endpoint::from_system(&socket::local_address(socket.as_fd()).ok()?)?;
            (socket::shape(socket.as_fd()) == Ok(Shape::Stream)).then_some(Taken {
                socket,
                endpoint,
                namespace,
                interface,
            })
        });
        Ok(Self { left: known.collect(), changes: Changes::default() })
    }

    /// Begins the changes that others see; all listeners are bound and everything else is checked.
    /// `gives_rights_up` says that the process is about to give up its rights. Sockets that no listener has
    /// taken are left to the other process.
    ///
    /// # Errors
    /// [`SocketError`]; nothing has changed.
    pub fn begin(self, gives_rights_up: bool) -> Result<PendingChanges, SocketError> {
        self.changes.begin(gives_rights_up)
    }

    /// Takes the socket for a listener, if there is one: with the same address, and the same options that
    /// cannot be changed later. Files of unix sockets are replaced instead, as always.
    pub(crate) fn take(&mut self, endpoint: &Endpoint, options: &ListenOptions) -> Option<OwnedFd> {
        if !matches!(endpoint, Endpoint::Ip(_) | Endpoint::Abstract(_)) {
            return None;
        }
        let named =
            |own: &[u8], wanted: &Option<Box<str>>| own == wanted.as_deref().unwrap_or_default().as_bytes();
        let index = self.left.iter().position(|taken| {
            taken.endpoint == *endpoint
                && named(&taken.namespace, &options.namespace)
                && named(&taken.interface, &options.interface)
                && takes_the_family(taken.socket.as_fd(), endpoint, options)
        })?;
        Some(self.left.remove(index).socket)
    }
}

/// Returns whether an IPv6 socket accepts IPv4 or not, as requested.
fn takes_the_family(socket: BorrowedFd<'_>, endpoint: &Endpoint, options: &ListenOptions) -> bool {
    // An address other than `::` belongs to one family.
    if !matches!(endpoint, Endpoint::Ip(SocketAddr::V6(address)) if address.ip().is_unspecified()) {
        return true;
    }
    let wanted = match options.v6 {
        // The behaviour of a new socket.
        V6::System => socket::open(AddressFamily::INET6, Shape::Stream)
            .and_then(|new| option(new.as_fd(), SocketOption::V6Only)),
        V6::Both => Ok(0),
        V6::Only => Ok(1),
    };
    wanted.is_ok_and(|wanted| option(socket, SocketOption::V6Only) == Ok(wanted))
}

/// Longest record: two names of 255 bytes with their lengths, and the unused bytes.
const LONGEST_RECORD: usize = 2 * 256 + TAIL;

/// Bytes of records that came so far.
struct Records {
    bytes: Vec<u8>,
    at: usize,
}

impl Records {
    /// Returns namespace and interface of the next record, if it is complete.
    fn next(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (namespace, rest) = name(&self.bytes[self.at..])?;
        let (interface, rest) = name(rest)?;
        let rest = rest.get(TAIL..)?;
        let found = (namespace.to_vec(), interface.to_vec());
        self.at = self.bytes.len() - rest.len();
        Some(found)
    }
}

fn name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(length.into())
}

/// Time for a whole answer.
struct Deadline {
    began: Instant,
    timeout: Duration,
}

/// Receives the next bytes of the other process before the deadline; returns false at the end.
fn more(
    stream: &UnixStream,
    deadline: &Deadline,
    bytes: &mut Vec<u8>,
    sockets: &mut Vec<OwnedFd>,
) -> Result<bool, NotHandedOver> {
    let silent = NotHandedOver::Silent(deadline.timeout);
    let left = deadline.timeout.saturating_sub(deadline.began.elapsed());
    if left.is_zero() {
        return Err(silent);
    }
    stream.set_read_timeout(Some(left))?;
    let mut some = [0; 4096];
    let length = match receive_descriptors(stream.as_fd(), &mut some, sockets) {
        Err(Errno::AGAIN) => return Err(silent),
        outcome => outcome?,
    };
    bytes.extend_from_slice(&some[..length]);
    Ok(length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{CommonOptions, KeepAlive};
    use std::net::TcpListener;
    use std::os::unix::fs::MetadataExt;

    /// Returns the result of an answer, in which each part may carry a socket.
    fn answered(parts: &[(&[u8], Option<BorrowedFd<'_>>)]) -> Result<HandedOver, NotHandedOver> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        for (bytes, socket) in parts {
            let sockets: Vec<_> = socket.iter().copied().collect();
            assert_eq!(send_descriptors(theirs.as_fd(), bytes, &sockets), Ok(bytes.len()));
        }
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        HandedOver::over(ours, TIMEOUT)
    }

    fn count(count: i32) -> [u8; 4] {
        count.to_ne_bytes()
    }

    #[test]
    fn an_answer_may_come_in_any_parts_and_is_taken_by_what_cannot_be_changed() {
        let (one, other) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut came = answered(&[
            (&count(3)[..3], None),
            (&[&count(3)[3..], b"\x02"].concat(), Some(one.as_fd())),
            (b"in\x02l", None),
            (b"o\0\0\0\0\0\0\0\0\0\0\0", Some(other.as_fd())),
            (b"\0\0\0\0\0", Some(datagrams.as_fd())),
        ])
        .unwrap();
        let at = |listener: &TcpListener| Endpoint::Ip(listener.local_addr().unwrap());
        let named = ListenOptions {
            namespace: Some("in".into()),
            interface: Some("lo".into()),
            ..ListenOptions::default()
        };
        assert_eq!(came.left.len(), 2, "datagrams are nobody's");
        assert!(came.take(&at(&one), &ListenOptions::default()).is_none(), "it is in another namespace");
        assert!(came.take(&at(&other), &named).is_none());
        assert!(came.take(&at(&one), &named).is_some());
        assert!(came.take(&at(&one), &named).is_none(), "it was taken");
        assert!(came.take(&at(&other), &ListenOptions::default()).is_some());
        assert!(came.take(&Endpoint::Unix("/x".into()), &ListenOptions::default()).is_none());
    }

    #[test]
    fn an_ipv6_socket_is_taken_by_who_wants_the_same_families() {
        let new = |v6| {
            let options = ListenOptions { v6, ..ListenOptions::default() };
            crate::listen(&Endpoint::Ip("[::]:0".parse().unwrap()), &options)
        };
        let Ok(default) = new(V6::System) else { return }; // a machine without IPv6
        let only = option(default.socket().unwrap(), SocketOption::V6Only).unwrap() == 1;
        for is in [V6::Only, V6::Both] {
            let bound = new(is).unwrap();
            for wanted in [V6::Only, V6::Both, V6::System] {
                let mut came = answered(&[(&count(1), None), (&[0; 6], bound.socket())]).unwrap();
                let options = ListenOptions { v6: wanted, ..ListenOptions::default() };
                let same = if wanted == V6::System { only == (is == V6::Only) } else { wanted == is };
                assert_eq!(came.take(bound.endpoint(), &options).is_some(), same, "{is:?} {wanted:?}");
            }
        }
    }

    #[test]
    fn what_is_no_answer_is_reported_and_nothing_is_waited_for() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let with = Some(socket.as_fd());
        type Parts<'a> = &'a [(&'a [u8], Option<BorrowedFd<'a>>)];
        let refused: [Parts<'_>; 2] = [&[], &[(b"\0\0", None)]];
        for parts in refused {
            assert!(matches!(answered(parts), Err(NotHandedOver::Refused)), "{parts:?}");
        }
        let (one, two) = (count(1), count(2));
        let nonsense: [Parts<'_>; 7] = [
            &[(b"Unknown command", None)],
            &[(&count(-1), None)],
            &[(&one, None)],
            &[(&one, None), (&[0; 6], None)],
            &[(&one, None), (&[0; 5], with)],
            &[(&two, None), (&[0; 6], with)],
            &[(&one, None), (&[0; 3], with), (&[0; 3], with)],
        ];
        for parts in nonsense {
            assert!(matches!(answered(parts), Err(NotHandedOver::Nonsense)), "{parts:?}");
        }
        assert!(answered(&[(&count(0), None)]).unwrap().left.is_empty());
    }

    /// Returns options that show the state of a socket.
    fn options_of(socket: BorrowedFd<'_>) -> ([i32; 6], bool, bool) {
        let of = |which| option(socket, which).unwrap();
        let numbers = [
            SocketOption::DeferAccept,
            SocketOption::FastOpen,
            SocketOption::NoDelay,
            SocketOption::KeepAlive,
            SocketOption::ReceiveBuffer,
            SocketOption::Tos,
        ];
        (
            numbers.map(of),
            manylane_io::options::reset_on_close(socket).unwrap(),
            socket::listens(socket).unwrap(),
        )
    }

    #[test]
    fn a_socket_that_is_taken_changes_when_all_is_bound_and_becomes_what_a_new_one_would_be() {
        let before = ListenOptions {
            defer_accept: Some(Duration::from_secs(1)),
            mss: Some(1000),
            common: CommonOptions {
                no_linger: true,
                receive_buffer: Some(30_000),
                ..CommonOptions::default()
            },
            ..ListenOptions::default()
        };
        let after = ListenOptions {
            fast_open: Some(7),
            common: CommonOptions {
                keep_alive: Some(KeepAlive::default()),
                tos: Some(16),
                no_delay: false,
                ..CommonOptions::default()
            },
            ..ListenOptions::default()
        };
        let at = Endpoint::Ip("127.0.0.1:0".parse().unwrap());
        let new = crate::listen(&at, &after).unwrap();
        // A second socket, by its number: a socket that refuses forgets a port that the system chose.
        let chosen = crate::listen(&at, &before).unwrap();
        let one = crate::listen(chosen.endpoint(), &before).unwrap();
        drop(chosen);
        let socket = one.socket().unwrap();
        let old = options_of(socket);
        let take = |options: &ListenOptions| {
            let mut came = answered(&[(&count(1), None), (&[0; 6], Some(socket))]).unwrap();
            let outcome = crate::listen_or_take(one.endpoint(), options, 1, &mut came);
            outcome.map(|taken| (came, taken))
        };
        // A refused option is refused before any change.
        let wrong = CommonOptions { congestion_control: Some("nonsense".into()), ..after.common.clone() };
        let error = take(&ListenOptions { common: wrong, ..after.clone() }).unwrap_err();
        assert!(error.to_string().contains("cc"), "{error}");
        // A start that fails, at each step.
        drop(take(&after).unwrap());
        assert_eq!(options_of(socket), old);
        for gives_rights_up in [false, true] {
            drop(take(&after).unwrap().0.begin(gives_rights_up).unwrap());
            assert_eq!(options_of(socket), old);
        }
        socket::refuse(socket).unwrap();
        let (came, taken) = take(&after).unwrap();
        let begun = came.begin(true).unwrap();
        assert!(taken[0].listens(), "before a lane accepts");
        drop(begun);
        assert!(!taken[0].listens());
        // A start that succeeds.
        let (came, _taken) = take(&after).unwrap();
        assert!(came.begin(true).unwrap().complete().is_none());
        assert_eq!(options_of(socket), options_of(new.socket().unwrap()));
        assert_ne!(options_of(socket), old);
        let largest = |socket| option(socket, SocketOption::MaxSegment).unwrap();
        assert_eq!(largest(socket), largest(new.socket().unwrap()));
    }

    #[test]
    fn the_file_of_a_unix_socket_appears_when_all_is_bound() {
        let path = std::env::temp_dir().join(format!("manylane-handover-{}", std::process::id()));
        let at = Endpoint::Unix(path.clone());
        let old = crate::listen(&at, &ListenOptions::default()).unwrap();
        let inode = || std::fs::metadata(&path).unwrap().ino();
        let before = inode();
        let new =
            |came: &mut HandedOver| crate::listen_or_take(&at, &ListenOptions::default(), 1, came).unwrap();
        let mut came = HandedOver::default();
        drop(new(&mut came));
        assert_eq!(inode(), before);
        let mut came = HandedOver::default();
        let bound = new(&mut came);
        let begun = came.begin(false).unwrap();
        assert_eq!(inode(), before);
        assert!(begun.complete().is_none());
        assert_ne!(inode(), before);
        drop(old);
        assert!(path.exists(), "it is another's");
        drop(bound);
        assert!(!path.exists());
        let left = std::fs::read_dir(std::env::temp_dir()).unwrap();
        let own = path.file_name().unwrap().to_str().unwrap();
        let left: Vec<_> = left.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains(own)), "{left:?}");
    }
}
