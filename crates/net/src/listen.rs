//! Sockets that listen: made, or inherited.

use crate::apply::{CLIENTS, Options};
use crate::endpoint::Endpoint;
use crate::error::{Purpose, Refused, SocketError, Step};
use crate::options::ListenOptions;
use crate::unix_file::UnixFile;
use manylane_io::namespace::Namespace;
use manylane_io::options::{SocketOption, option};
use manylane_io::socket::{self, AddressFamily, Shape};
use manylane_io::{Accepted, Errno, Error, Io, Listener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket that listens, or that takes datagrams, of no lane yet. Dropped, it is closed, and the file of a unix socket is removed;
/// lanes that accept from it by [`acceptor`](Self::acceptor) go on until they drop theirs.
#[derive(Debug)]
pub struct Bound {
    socket: OwnedFd,
    endpoint: Endpoint,
    /// Goes with the socket.
    _file: Option<UnixFile>,
}

/// Listens for connections at `endpoint`.
///
/// The file of a unix socket replaces the one of another socket, whether anybody listens there or not: that is how a successor takes
/// over. A file that is no socket is left alone.
///
/// # Errors
/// [`SocketError`], with the address, the option that was refused, and what the system said.
pub fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Bound, SocketError> {
    bind(endpoint, Shape::Stream, options)
}

/// Takes datagrams at `endpoint`. Options that are for connections mean nothing here.
///
/// # Errors
/// As [`listen`].
pub fn bind_datagrams(endpoint: &Endpoint, options: &ListenOptions) -> Result<Bound, SocketError> {
    bind(endpoint, Shape::Datagram, options)
}

/// `shards`: several sockets at one IP address, between which the system shares the connections. Elsewhere there is one:
/// lanes can accept from the same.
///
/// # Errors
/// As [`listen`]; the sockets that were made are closed.
pub fn listen_sharded(
    endpoint: &Endpoint,
    options: &ListenOptions,
    shards: usize,
) -> Result<Vec<Bound>, SocketError> {
    let first = listen(endpoint, options)?;
    if !matches!(endpoint, Endpoint::Ip(_)) {
        return Ok(vec![first]);
    }
    if shards > 1 && !options.reuse_port {
        let why = "shards share their address, which 'noreuseport' forbids; leave one of them out";
        return Err(SocketError::new(Purpose::Listen, endpoint, (Step::Unsupported(why), Errno::OPNOTSUPP)));
    }
    let address = first.endpoint.clone(); // with the port, where the system chose it
    let mut all = vec![first];
    for _ in 1..shards {
        all.push(listen(&address, options)?);
    }
    Ok(all)
}

fn bind(endpoint: &Endpoint, shape: Shape, options: &ListenOptions) -> Result<Bound, SocketError> {
    let refused = |refused: Refused| SocketError::new(Purpose::Listen, endpoint, refused);
    let (socket, file) = match endpoint {
        Endpoint::Descriptor(number) => (inherit(*number, shape, options).map_err(refused)?, None),
        _ => make(endpoint, shape, options).map_err(refused)?,
    };
    let told = socket::local_address(socket.as_fd()).ok().and_then(|address| Endpoint::from_system(&address));
    let endpoint = match told {
        Some(told @ Endpoint::Ip(_)) => told,
        // A unix socket that was bound beside its place tells its first name.
        _ => endpoint.clone(),
    };
    Ok(Bound { socket, endpoint, _file: file })
}

fn make(
    endpoint: &Endpoint,
    shape: Shape,
    options: &ListenOptions,
) -> Result<(OwnedFd, Option<UnixFile>), Refused> {
    let Some((family, address)) = endpoint.system()? else {
        let why = "sockets of this kind are not listened on in this way";
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
    socket::listen(on.socket, options.backlog).map_err(|errno| (Step::Listen, errno))
}

/// The parent's socket: it must be bound, and may be listening.
fn inherit(number: i32, shape: Shape, options: &ListenOptions) -> Result<OwnedFd, Refused> {
    let refused = |errno| (Step::Inherit, errno);
    let socket = socket::inherited(number).map_err(refused)?;
    if socket::shape(socket.as_fd()).map_err(refused)? != shape {
        return Err(refused(Errno::PROTOTYPE));
    }
    let family = socket::family(socket.as_fd()).map_err(refused)?;
    let address = socket::local_address(socket.as_fd()).map_err(refused)?;
    let bound = match Endpoint::from_system(&address) {
        Some(Endpoint::Ip(address)) => address.port() != 0,
        other => other.is_some(),
    };
    if !bound {
        return Err(refused(Errno::DESTADDRREQ));
    }
    start(&Options { socket: socket.as_fd(), family }, shape, options)?;
    Ok(socket)
}

impl Bound {
    /// Where it listens: with the port, where the system chose it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether it lets connections in, rather than datagrams.
    pub fn is_listening(&self) -> bool {
        option(self.socket.as_fd(), SocketOption::Listening) == Ok(1)
    }

    /// The same socket once more, for another lane or another process.
    ///
    /// # Errors
    /// [`SocketError`] when there are no descriptors left.
    pub fn duplicate(&self) -> Result<OwnedFd, SocketError> {
        self.socket.try_clone().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::MFILE);
            SocketError::new(Purpose::Listen, &self.endpoint, (Step::Open, errno))
        })
    }

    /// Accepts connections on the lane of `io`. Each lane that shall do so has one of its own.
    ///
    /// # Errors
    /// [`SocketError`] when there are no descriptors left, or the driver refuses.
    pub fn acceptor(&self, io: &Io) -> Result<Acceptor, SocketError> {
        let listener = io.listener(self.duplicate()?).map_err(|error| {
            let errno = error.errno().unwrap_or(Errno::NOMEM);
            SocketError::new(Purpose::Listen, &self.endpoint, (Step::Driver, errno))
        })?;
        Ok(Acceptor { listener })
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A lane's hand on a listener. Dropped, this lane accepts no more; connections wait for others, or for the next acceptor.
#[derive(Debug)]
pub struct Acceptor {
    listener: Listener,
}

impl Acceptor {
    /// The next connection, with the options that were asked for.
    ///
    /// A few are accepted in each round of the lane (R-F5). While the process has no descriptors left, it waits, and
    /// connections wait in the system: the driver sees to both.
    ///
    /// # Errors
    /// What concerns the listener itself; trying again is in vain.
    pub async fn accept(&self) -> Result<Accepted, Error> {
        self.listener.accept().await
    }
}
