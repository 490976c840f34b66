//! Sockets that listen: made, or inherited.

use crate::adopt::Changes;
use crate::apply::{CLIENTS, Options};
use crate::connection::Incoming;
use crate::endpoint::Endpoint;
use crate::error::{Purpose, Refused, SocketError, Step};
use crate::hand_over::HandedOver;
use crate::options::ListenOptions;
use crate::unix_file::UnixFile;
use manylane_io::namespace::Namespace;
use manylane_io::socket::{self, AddressFamily, Shape};
use manylane_io::{Accepted, Errno, Error, Io, Listener, Passage, accept_waiting};
use manylane_local::{Kind, Name, Socket};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket that listens, or that takes datagrams, of no lane yet. Dropped, it is closed, and the file of a
/// unix socket is removed; lanes that accept from it by [`acceptor`](Self::acceptor) go on until they drop
/// theirs.
#[derive(Debug)]
pub struct Bound {
    socket: Inner,
    endpoint: Endpoint,
}

#[derive(Debug)]
enum Inner {
    /// A socket of the system.
    System {
        socket: OwnedFd,
        /// Goes with the socket.
        _file: Option<UnixFile>,
    },
    /// The end of a connected unix socket, over which others come.
    Passage(OwnedFd),
    /// A socket of this process.
    Local(Socket),
}

/// Listens for connections at `endpoint`.
///
/// The file of a unix socket replaces the one of another socket, whether anybody listens there or not: that
/// is how a successor takes over. A file that is no socket is left alone.
///
/// # Errors
/// [`SocketError`], with the address, the option that was refused, and what the system said.
pub fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Bound, SocketError> {
    bind_now(endpoint, Shape::Stream, options)
}

/// Takes datagrams at `endpoint`. Options that are for connections mean nothing here.
///
/// # Errors
/// As [`listen`].
pub fn bind_datagrams(endpoint: &Endpoint, options: &ListenOptions) -> Result<Bound, SocketError> {
    bind_now(endpoint, Shape::Datagram, options)
}

/// `shards`: several sockets at one IP address, between which the system shares the connections. Elsewhere
/// there is one: lanes can accept from the same.
///
/// # Errors
/// As [`listen`]; the sockets that were made are closed.
pub fn listen_sharded(
    endpoint: &Endpoint,
    options: &ListenOptions,
    shards: usize,
) -> Result<Vec<Bound>, SocketError> {
    let mut none = HandedOver::default();
    let all = listen_or_take(endpoint, options, shards, &mut none)?;
    none.changes.now()?;
    Ok(all)
}

/// The same, with sockets that another process has handed over where there are such. What is missing is made.
/// What others would see of it waits for [`HandedOver::begin`]: options of sockets that are there already,
/// and that files of unix sockets take their places.
///
/// # Errors
/// As [`listen_sharded`].
pub fn listen_or_take(
    endpoint: &Endpoint,
    options: &ListenOptions,
    shards: usize,
    handed_over: &mut HandedOver,
) -> Result<Vec<Bound>, SocketError> {
    let is_ip = matches!(endpoint, Endpoint::Ip(_));
    let shards = if is_ip { shards.max(1) } else { 1 };
    let mut all = Vec::new();
    while all.len() < shards
        && let Some(socket) = handed_over.take(endpoint, options)
    {
        let noted = handed_over.changes.note(&socket, endpoint, Shape::Stream, options, true);
        noted.map_err(|refused| SocketError::new(Purpose::Listen, endpoint, refused))?;
        all.push(Bound { socket: Inner::System { socket, _file: None }, endpoint: endpoint.clone() });
    }
    if all.len() == shards {
        return Ok(all);
    }
    if !is_ip {
        return Ok(vec![bind(endpoint, Shape::Stream, options, &mut handed_over.changes)?]);
    }
    if shards > 1 && !options.reuse_port {
        let why =
            "'shards' and 'noreuseport' exclude each other, since shards share their address; leave one out";
        return Err(SocketError::new(Purpose::Listen, endpoint, (Step::Unsupported(why), Errno::OPNOTSUPP)));
    }
    let mut address = endpoint.clone();
    while all.len() < shards {
        let next = bind(&address, Shape::Stream, options, &mut handed_over.changes)?;
        address = next.endpoint.clone(); // with the port, where the system chose it
        all.push(next);
    }
    Ok(all)
}

fn bind_now(endpoint: &Endpoint, shape: Shape, options: &ListenOptions) -> Result<Bound, SocketError> {
    let mut changes = Changes::default();
    let bound = bind(endpoint, shape, options, &mut changes)?;
    changes.now()?;
    Ok(bound)
}

/// Without what others would see of it, which goes to `changes`.
fn bind(
    endpoint: &Endpoint,
    shape: Shape,
    options: &ListenOptions,
    changes: &mut Changes,
) -> Result<Bound, SocketError> {
    let refused = |refused: Refused| SocketError::new(Purpose::Listen, endpoint, refused);
    let socket = match endpoint {
        Endpoint::Descriptor(number) => inherit(*number, shape).and_then(|socket| {
            changes.note(&socket, endpoint, shape, options, false)?;
            Ok(Inner::System { socket, _file: None })
        }),
        Endpoint::SocketPair(number) if shape == Shape::Stream => passage(*number).map(Inner::Passage),
        Endpoint::Local(name) if shape == Shape::Stream => local(name, options).map(Inner::Local),
        _ => make(endpoint, shape, options).map(|(socket, file)| {
            file.iter().for_each(|file| changes.place(file.placing(), endpoint));
            Inner::System { socket, _file: file }
        }),
    };
    let socket = socket.map_err(refused)?;
    let told = match &socket {
        Inner::System { socket, .. } => socket::local_address(socket.as_fd()).ok(),
        Inner::Passage(_) | Inner::Local(_) => None,
    };
    let endpoint = match told.and_then(|address| Endpoint::from_system(&address)) {
        Some(told @ Endpoint::Ip(_)) => told,
        // A unix socket that was bound beside its place tells its first name.
        _ => endpoint.clone(),
    };
    Ok(Bound { socket, endpoint })
}

/// A socket inside of this process. It has no options but its backlog.
fn local(name: &str, options: &ListenOptions) -> Result<Socket, Refused> {
    let name = Name::new(name).map_err(|error| (Step::Bind, errno(&error)))?;
    let socket = Socket::new(Kind::Stream);
    socket.bind(&name).map_err(|error| (Step::Bind, errno(&error)))?;
    socket.listen(options.backlog as usize).map_err(|error| (Step::Listen, errno(&error)))?;
    Ok(socket)
}

/// The number that the system would give for what a local socket says.
pub(crate) fn errno(error: &manylane_local::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error())
}

/// The parent's end of a connection, over which others come.
pub(crate) fn passage(number: i32) -> Result<OwnedFd, Refused> {
    let refused = |errno| (Step::Inherit, errno);
    let passage = socket::inherited(number).map_err(refused)?;
    if socket::family(passage.as_fd()).map_err(refused)? != AddressFamily::UNIX {
        return Err(refused(Errno::PROTOTYPE));
    }
    socket::peer_address(passage.as_fd()).map_err(refused)?;
    Ok(passage)
}

fn make(
    endpoint: &Endpoint,
    shape: Shape,
    options: &ListenOptions,
) -> Result<(OwnedFd, Option<UnixFile>), Refused> {
    let Some((family, address)) = endpoint.system()? else {
        let why = "sockets of this kind cannot listen in this way";
        return Err((Step::Unsupported(why), Errno::OPNOTSUPP));
    };
    let socket = open(family, shape, options.namespace.as_deref())?;
    let on = Options { socket: socket.as_fd(), family };
    on.before_bind(shape, options)?;
    let start = || start(&on, shape, options);
    if let Endpoint::Unix(path) = endpoint {
        let file = UnixFile::bind(&socket, path, &options.unix, start)?;
        return Ok((socket, Some(file)));
    }
    socket::bind(socket.as_fd(), &address).map_err(|errno| (Step::Bind, errno))?;
    start()?;
    Ok((socket, None))
}

/// Whether an address is one of this machine's: whether a socket could be bound to it. Three system calls.
pub fn is_local(address: IpAddr) -> bool {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    open(family, Shape::Datagram, None)
        .is_ok_and(|socket| socket::bind(socket.as_fd(), &SocketAddr::new(address, 0).into()).is_ok())
}

/// A new socket, in the network namespace that is named.
pub(crate) fn open(family: AddressFamily, shape: Shape, namespace: Option<&str>) -> Result<OwnedFd, Refused> {
    let Some(name) = namespace else {
        return socket::open(family, shape).map_err(|errno| (Step::Open, errno));
    };
    let mut opening = Ok(());
    let outcome = Namespace::named(name).and_then(|there| {
        there.within(|| {
            let socket = socket::open(family, shape);
            opening = socket.as_ref().map(|_| ()).map_err(|errno| *errno);
            socket
        })
    });
    outcome.map_err(|errno| (if opening.is_err() { Step::Open } else { Step::Namespace }, errno))
}

/// The last steps: what a bound socket needs to let connections in.
fn start(on: &Options<'_>, shape: Shape, options: &ListenOptions) -> Result<(), Refused> {
    on.packets(&options.common)?;
    if shape == Shape::Datagram {
        return Ok(());
    }
    on.before_listen(options)?;
    on.connection(&options.common, &CLIENTS)?;
    socket::listen(on.socket, options.backlog).map_err(|errno| (Step::Listen, errno))?;
    on.after_listen(options)
}

/// The parent's socket: it must be bound, and may be listening.
fn inherit(number: i32, shape: Shape) -> Result<OwnedFd, Refused> {
    let refused = |errno| (Step::Inherit, errno);
    let socket = socket::inherited(number).map_err(refused)?;
    if socket::shape(socket.as_fd()).map_err(refused)? != shape {
        return Err(refused(Errno::PROTOTYPE));
    }
    let address = socket::local_address(socket.as_fd()).map_err(refused)?;
    let bound = match Endpoint::from_system(&address) {
        Some(Endpoint::Ip(address)) => address.port() != 0,
        other => other.is_some(),
    };
    if !bound {
        return Err(refused(Errno::DESTADDRREQ));
    }
    Ok(socket)
}

impl Bound {
    /// Where it listens: with the port, where the system chose it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn refused(&self, step: Step, errno: Errno) -> SocketError {
        SocketError::new(Purpose::Listen, &self.endpoint, (step, errno))
    }

    /// The system's socket; none for `local@`.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.socket {
            Inner::System { socket, .. } | Inner::Passage(socket) => Some(socket.as_fd()),
            Inner::Local(_) => None,
        }
    }

    /// The system's socket once more, for another lane or another process.
    ///
    /// # Errors
    /// [`SocketError`] when there are no descriptors left, or the socket is none of the system's.
    pub fn duplicate(&self) -> Result<OwnedFd, SocketError> {
        let Some(socket) = self.socket() else {
            let why = "a socket of this process has no descriptor; connect to it by its name";
            return Err(self.refused(Step::Unsupported(why), Errno::OPNOTSUPP));
        };
        socket
            .try_clone_to_owned()
            .map_err(|error| self.refused(Step::Open, Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))
    }

    /// Changes how many connections may wait to be accepted, of a socket that listens.
    ///
    /// # Errors
    /// [`SocketError`] when the system refuses.
    pub fn set_backlog(&self, backlog: u32) -> Result<(), SocketError> {
        let outcome = match &self.socket {
            Inner::System { socket, .. } => socket::listen(socket.as_fd(), backlog),
            Inner::Passage(_) => Ok(()), // nothing waits there but what was sent
            Inner::Local(socket) => socket.listen(backlog as usize).map_err(|error| errno(&error)),
        };
        outcome.map_err(|errno| self.refused(Step::Listen, errno))
    }

    /// Whether it takes connections: not after [`refuse`](Self::refuse).
    pub fn listens(&self) -> bool {
        match &self.socket {
            Inner::System { socket, .. } => socket::listens(socket.as_fd()).unwrap_or(true),
            Inner::Passage(_) | Inner::Local(_) => true,
        }
    }

    /// Has it refuse connections, until its [backlog is set](Self::set_backlog) again, where the system can:
    /// that is a socket of TCP. At others who connects waits. Acceptors of it fail. A socket whose port
    /// the system chose would listen at another one then.
    pub fn refuse(&self) {
        if let Inner::System { socket, .. } = &self.socket
            && socket::local_address(socket.as_fd())
                .is_ok_and(|address| SocketAddr::try_from(address).is_ok())
        {
            let _ = socket::refuse(socket.as_fd()); // what goes wrong here leaves connections waiting
        }
    }

    /// Accepts connections on the lane of `io`. Each lane that shall do so has one of its own.
    ///
    /// # Errors
    /// [`SocketError`] when there are no descriptors left, or the driver refuses.
    pub fn acceptor(&self, io: &Io) -> Result<Acceptor, SocketError> {
        let refused = |error: Error| self.refused(Step::Driver, error.errno().unwrap_or(Errno::NOMEM));
        let source = match &self.socket {
            Inner::System { .. } => AcceptFrom::Listener(io.listener(self.duplicate()?).map_err(refused)?),
            Inner::Passage(_) => AcceptFrom::Passage(io.passage(self.duplicate()?).map_err(refused)?),
            Inner::Local(socket) => AcceptFrom::Local(socket.clone(), io.clone(), Cell::new(0)),
        };
        Ok(Acceptor(source))
    }
}

/// A lane's handle of a listener. Dropped, this lane accepts no more; connections wait for others, or for the
/// next acceptor. Only those that the driver has accepted ahead, as io_uring does, are closed then, and of
/// one that waits nobody may have been told but this lane: [`close`](Self::close) gives them.
#[derive(Debug)]
pub struct Acceptor(AcceptFrom);

#[derive(Debug)]
enum AcceptFrom {
    Listener(Listener),
    Passage(Passage),
    /// With the connections that were accepted since the last pause.
    Local(Socket, Io, Cell<u32>),
}

impl Acceptor {
    /// The next connection.
    ///
    /// A few are accepted in each round of the lane (R-F5). While the process has no descriptors left, it
    /// waits, and connections wait in the system: the driver sees to both.
    ///
    /// # Errors
    /// What concerns the listener itself; trying again is in vain. For `sockpair@` that is also the end of
    /// the other side.
    pub async fn accept(&self) -> Result<Incoming, AcceptError> {
        match &self.0 {
            AcceptFrom::Listener(listener) => {
                listener.accept().await.map(Incoming::Socket).map_err(AcceptError::Socket)
            }
            AcceptFrom::Passage(passage) => loop {
                match passage.accept().await {
                    Ok(Some(accepted)) => return Ok(Incoming::Socket(accepted)),
                    Ok(None) => return Err(AcceptError::End),
                    // That connection is lost; the next may be good.
                    Err(error) if error.errno() == Some(Errno::MFILE) => {}
                    Err(error) => return Err(AcceptError::Socket(error)),
                }
            },
            AcceptFrom::Local(socket, io, accepted) => {
                if accepted.get() >= io.accepts_per_round() {
                    accepted.set(0);
                    io.here().yield_now().await;
                }
                accepted.set(accepted.get() + 1);
                socket.accept_async().await.map(Incoming::Local).map_err(AcceptError::Local)
            }
        }
    }

    /// Accepts no more on this lane, and gives back what the driver has accepted ahead, and what waits:
    /// others that accept from the same socket may not have been told of it.
    ///
    /// # Errors
    /// When the driver cannot let go of the listener.
    pub async fn close(self) -> Result<PendingAccepts, AcceptError> {
        match self.0 {
            AcceptFrom::Listener(listener) => {
                let (socket, ahead) = listener.detach().await.map_err(AcceptError::Socket)?;
                Ok(PendingAccepts { ahead: ahead.into(), socket: Some(socket), more: TAKEN_AT_END })
            }
            AcceptFrom::Passage(_) | AcceptFrom::Local(..) => Ok(PendingAccepts::default()),
        }
    }
}

/// Connections that an acceptor takes out of its socket at its end; a backlog is seldom longer. What comes
/// later wakes others.
pub const TAKEN_AT_END: usize = 4096;

/// What an acceptor leaves behind, one connection after another: each is accepted when it is asked for.
#[derive(Debug, Default)]
pub struct PendingAccepts {
    ahead: VecDeque<Accepted>,
    socket: Option<OwnedFd>,
    more: usize,
}

impl Iterator for PendingAccepts {
    type Item = Incoming;

    fn next(&mut self) -> Option<Incoming> {
        if let Some(accepted) = self.ahead.pop_front() {
            return Some(Incoming::Socket(accepted));
        }
        self.more = self.more.checked_sub(1)?;
        accept_waiting(self.socket.as_ref()?).map(Incoming::Socket)
    }
}

/// A listener that is of no use any more.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptError {
    /// What the driver says.
    Socket(Error),
    /// What the local socket says.
    Local(manylane_local::Error),
    /// The other end of a `sockpair@` is closed.
    End,
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => error.fmt(f),
            Self::Local(error) => error.fmt(f),
            Self::End => f.write_str("the process that passes connections has closed its end"),
        }
    }
}

impl std::error::Error for AcceptError {}
