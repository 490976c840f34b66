//! Listening sockets: created or inherited.

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
use manylane_io::{Accepted, Errno, Error, FdChannel, Io, Listener, accept_waiting};
use manylane_local::{Kind, Name, Socket};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket that listens or takes datagrams, and belongs to no lane. Dropping it closes it and removes the
/// file of a unix socket. Lanes with an [`acceptor`](Self::acceptor) go on until they drop that.
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
        /// Removed with the socket.
        _file: Option<UnixFile>,
    },
    /// One end of a connected unix socket, over which other sockets come.
    Passage(OwnedFd),
    /// A socket of this process.
    Local(Socket),
}

/// Listens for connections at `endpoint`.
///
/// The file of a unix socket replaces the one of another socket, whether a process listens there or not: that
/// is how a successor takes over. A file that is no socket stays.
///
/// # Errors
/// [`SocketError`] with the address, the refused option, and the system's error.
pub fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Bound, SocketError> {
    bind_now(endpoint, Shape::Stream, options)
}

/// Takes datagrams at `endpoint`. Options of connections have no effect but the size of the receive buffer.
///
/// # Errors
/// Those of [`listen`].
pub fn bind_datagrams(endpoint: &Endpoint, options: &ListenOptions) -> Result<Bound, SocketError> {
    bind_now(endpoint, Shape::Datagram, options)
}

/// `shards`: opens several sockets at one IP address, among which the system distributes the connections.
/// Other kinds of addresses get one socket, from which all lanes can accept. Sockets that another process has
/// handed over are taken as far as there are some. Changes that other processes would see wait for
/// [`HandedOver::begin`]: options of existing sockets, and the renaming of unix sockets' files.
///
/// # Errors
/// Those of [`listen`]; the sockets opened so far are closed.
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
        address = next.endpoint.clone(); // with the port that the system chose
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

/// Binds a socket. Changes that other processes would see are added to `changes`.
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
            file.iter().for_each(|file| changes.rename_later(file.placing(), endpoint));
            Inner::System { socket, _file: file }
        }),
    };
    let socket = socket.map_err(refused)?;
    let local = match &socket {
        Inner::System { socket, .. } => socket::local_address(socket.as_fd()).ok(),
        Inner::Passage(_) | Inner::Local(_) => None,
    };
    let endpoint = match local.and_then(|address| Endpoint::from_system(&address)) {
        Some(local @ Endpoint::Ip(_)) => local,
        // The system reports a unix socket by its first name, beside its final path.
        _ => endpoint.clone(),
    };
    Ok(Bound { socket, endpoint })
}

/// Creates a socket inside of this process. Its only option is the backlog.
fn local(name: &str, options: &ListenOptions) -> Result<Socket, Refused> {
    let name = Name::new(name).map_err(|error| (Step::Bind, errno(&error)))?;
    let socket = Socket::try_new(Kind::Stream).map_err(|error| (Step::Bind, errno(&error)))?;
    socket.bind(&name).map_err(|error| (Step::Bind, errno(&error)))?;
    socket.listen(options.backlog as usize).map_err(|error| (Step::Listen, errno(&error)))?;
    Ok(socket)
}

/// Returns the system's number of a local socket's error.
pub(crate) fn errno(error: &manylane_local::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error())
}

/// Returns the end of a connection from the parent process, over which others come.
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
    let socket = open(family, options.common.shape(family, shape), options.namespace.as_deref())?;
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

/// Returns whether an address belongs to this machine: whether a socket can be bound to it. Takes three
/// system calls.
pub fn is_local(address: IpAddr) -> bool {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    open(family, Shape::Datagram, None)
        .is_ok_and(|socket| socket::bind(socket.as_fd(), &SocketAddr::new(address, 0).into()).is_ok())
}

/// Opens a socket, in the named network namespace.
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

/// Completes a bound socket: its last options, and `listen(2)`.
fn start(on: &Options<'_>, shape: Shape, options: &ListenOptions) -> Result<(), Refused> {
    on.packets(&options.common)?;
    if shape == Shape::Datagram {
        return on.receive_buffer(&options.common);
    }
    on.before_listen(options)?;
    on.connection(&options.common, &CLIENTS)?;
    socket::listen(on.socket, options.backlog).map_err(|errno| (Step::Listen, errno))?;
    on.after_listen(options)
}

/// Returns the parent's socket: it must be bound, and may be listening.
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
    /// Returns the address that the socket listens at, with the port that the system chose.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn refused(&self, step: Step, errno: Errno) -> SocketError {
        SocketError::new(Purpose::Listen, &self.endpoint, (step, errno))
    }

    /// Returns the system's socket; `None` for `local@`.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.socket {
            Inner::System { socket, .. } | Inner::Passage(socket) => Some(socket.as_fd()),
            Inner::Local(_) => None,
        }
    }

    /// Duplicates the system's socket, for another lane or another process.
    ///
    /// # Errors
    /// [`SocketError`] if there are no descriptors left, or this is no socket of the system.
    pub fn duplicate(&self) -> Result<OwnedFd, SocketError> {
        let Some(socket) = self.socket() else {
            let why = "a socket of this process has no descriptor; connect to it by its name";
            return Err(self.refused(Step::Unsupported(why), Errno::OPNOTSUPP));
        };
        socket
            .try_clone_to_owned()
            .map_err(|error| self.refused(Step::Open, Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))
    }

    /// Sets the backlog of a listening socket.
    ///
    /// # Errors
    /// [`SocketError`] if the system refuses.
    pub fn set_backlog(&self, backlog: u32) -> Result<(), SocketError> {
        let outcome = match &self.socket {
            Inner::System { socket, .. } => socket::listen(socket.as_fd(), backlog),
            Inner::Passage(_) => Ok(()), // it has no backlog but the sockets that were sent
            Inner::Local(socket) => socket.listen(backlog as usize).map_err(|error| errno(&error)),
        };
        outcome.map_err(|errno| self.refused(Step::Listen, errno))
    }

    /// Returns whether the socket accepts connections: false after [`refuse`](Self::refuse).
    pub fn listens(&self) -> bool {
        match &self.socket {
            Inner::System { socket, .. } => socket::listens(socket.as_fd()).unwrap_or(true),
            Inner::Passage(_) | Inner::Local(_) => true,
        }
    }

    /// Makes the socket refuse connections until its [backlog is set](Self::set_backlog) again. Its acceptors
    /// fail. Only TCP sockets refuse; clients of others wait. A socket whose port the system chose would
    /// listen at another port afterwards.
    pub fn refuse(&self) {
        if let Inner::System { socket, .. } = &self.socket
            && socket::local_address(socket.as_fd())
                .is_ok_and(|address| SocketAddr::try_from(address).is_ok())
        {
            let _ = socket::refuse(socket.as_fd()); // if this fails, connections wait
        }
    }

    /// Creates an acceptor for the lane of `io`. Each lane that accepts has one of its own.
    ///
    /// # Errors
    /// [`SocketError`] if there are no descriptors left, or the driver refuses.
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

/// A lane's handle of a listener. Dropping it ends accepting on this lane; waiting connections go to other
/// lanes, or to the next acceptor. But connections that the driver has accepted ahead, as io_uring does, are
/// closed, and only this lane may know of one that waits: [`close`](Self::close) returns them.
#[derive(Debug)]
pub struct Acceptor(AcceptFrom);

#[derive(Debug)]
enum AcceptFrom {
    Listener(Listener),
    Passage(FdChannel),
    /// With the number of connections accepted since the last pause.
    Local(Socket, Io, Cell<u32>),
}

impl Acceptor {
    /// Waits for the next connection.
    ///
    /// A few are accepted in each round of the lane (R-F5). While the process has no descriptors left, this
    /// waits and connections queue in the system; the driver handles both.
    ///
    /// # Errors
    /// Errors of the listener itself; trying again is useless. For `sockpair@`, also the end of the other
    /// side.
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

    /// Ends accepting on this lane. Returns the connections that the driver accepted ahead, and those that
    /// wait: other acceptors of the socket may not know of them.
    ///
    /// # Errors
    /// If the driver cannot release the listener.
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

/// Largest number of connections that a closing acceptor takes out of its socket; a backlog is seldom longer.
/// Later connections wake other acceptors.
pub const TAKEN_AT_END: usize = 4096;

/// Connections that a closed acceptor leaves behind. Each is accepted when the iterator reaches it.
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

/// Reason why a listener is useless from now on.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptError {
    /// Error of the driver.
    Socket(Error),
    /// Error of the local socket.
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
