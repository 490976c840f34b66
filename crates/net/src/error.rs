//! Errors of sockets, in one sentence: the purpose, the address, the step, the system's error, and a remedy.

use crate::address::Quoted;
use manylane_io::Errno;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Purpose of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The socket listens.
    Listen,
    /// The socket connects to a server.
    Connect,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The socket is opened.
    Open,
    /// Another network namespace is entered (`namespace`).
    Namespace,
    /// An option is set: the keyword, and the system's name.
    Option(&'static str, &'static str),
    /// An address is bound.
    Bind,
    /// The source address is bound (`source`).
    Source,
    /// `listen(2)` is called.
    Listen,
    /// The file of a unix socket gets its mode or its owner.
    Permissions,
    /// The file of a unix socket is renamed to its path.
    Rename,
    /// An inherited descriptor is examined.
    Inherit,
    /// The connection is made.
    Connect,
    /// The proxy of `socks4` is asked for the server.
    Socks,
    /// A descriptor is passed on (`sockpair@`).
    Pass,
    /// The driver takes over.
    Driver,
    /// The time for connecting is over.
    Time,
    /// Nothing was tried, because this is impossible.
    Unsupported(&'static str),
}

/// A socket could not be made as requested.
#[derive(Clone, PartialEq, Eq)]
pub struct SocketError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    purpose: Purpose,
    subject: Box<str>,
    step: Step,
    errno: Errno,
}

impl SocketError {
    pub(crate) fn new(purpose: Purpose, subject: &dyn fmt::Display, (step, errno): Refused) -> Self {
        let subject = Quoted(&subject.to_string()).to_string().into_boxed_str();
        Self(Box::new(Inner { purpose, subject, step, errno }))
    }

    /// Returns the step that failed.
    pub fn step(&self) -> Step {
        self.0.step
    }

    /// Returns the system's error; `ETIMEDOUT` for [`Step::Time`], `EOPNOTSUPP` for [`Step::Unsupported`].
    pub fn errno(&self) -> Errno {
        self.0.errno
    }

    /// Returns the error kind of the standard library.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.errno.kind()
    }
}

/// A step, and the system's error.
pub(crate) type Refused = (Step, Errno);

impl Inner {
    /// Returns a remedy, if one is known.
    fn remedy(&self) -> Option<&'static str> {
        let text = match (self.step, self.errno) {
            (Step::Open, Errno::MFILE) => "raise the limit of open files ('ulimit -n')",
            (Step::Open, Errno::AFNOSUPPORT) => "the system does not have this family of addresses",
            (Step::Namespace, Errno::NOENT) => "'ip netns list' shows the names",
            (Step::Namespace, Errno::PERM) => "this needs the capability CAP_SYS_ADMIN",
            (Step::Bind | Step::Listen, Errno::ADDRINUSE) => {
                "stop the program that has it, or choose another"
            }
            (Step::Bind, Errno::ADDRNOTAVAIL) => {
                "no network device has this address; 'transparent' allows it all the same"
            }
            (Step::Bind, Errno::ACCESS) if self.subject.parse::<SocketAddr>().is_ok() => {
                "ports below 1024 need the capability CAP_NET_BIND_SERVICE"
            }
            (Step::Bind, Errno::NOENT) => "make the folder first",
            (Step::Bind, Errno::NAMETOOLONG) => "choose a shorter path",
            (Step::Rename, Errno::EXIST) => {
                "a file that is no socket has this path: move it, or choose another path"
            }
            (Step::Source, Errno::ADDRNOTAVAIL) => {
                "no network device has this address, or all of its ports are in use"
            }
            (Step::Source, Errno::ADDRINUSE) => "all ports of the range are in use; make it larger",
            (Step::Option("interface", _), Errno::NODEV) => "'ip link' shows the devices",
            (Step::Option("cc", _), Errno::NOENT) => {
                "'sysctl net.ipv4.tcp_available_congestion_control' shows the algorithms"
            }
            (Step::Option("cc", _), Errno::PERM) => {
                "'sysctl net.ipv4.tcp_allowed_congestion_control' shows those that need no capability"
            }
            (Step::Option("tcp-md5sig", _), Errno::NOPROTOOPT) => {
                "the system was built without TCP_MD5SIG; leave it out"
            }
            (Step::Option(..), Errno::PERM) => "this needs a capability such as CAP_NET_ADMIN",
            (Step::Inherit, Errno::BADF) => "the parent process left no such descriptor open",
            (Step::Inherit, Errno::NOTSOCK) => "the descriptor is no socket",
            (Step::Inherit, Errno::PROTOTYPE) => "the socket is of another kind than the statement needs",
            (Step::Inherit, Errno::DESTADDRREQ) => "the socket is bound to no address",
            (Step::Inherit, Errno::NOTCONN) => "the socket is not connected",
            (Step::Connect, Errno::AGAIN) => "the server's backlog is full",
            _ => return None,
        };
        Some(text)
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { purpose, subject, step, errno } = &*self.0;
        f.write_str(match purpose {
            Purpose::Listen => "cannot listen on ",
            Purpose::Connect => "cannot connect to ",
        })?;
        write!(f, "'{subject}': ")?;
        match step {
            Step::Open => f.write_str("the socket was not opened")?,
            Step::Namespace => f.write_str("'namespace' was not entered")?,
            Step::Option(keyword, name) => write!(f, "'{keyword}' ({name}) was refused")?,
            Step::Bind => f.write_str("the address was refused")?,
            Step::Source => f.write_str("'source' was refused")?,
            Step::Listen => f.write_str("listening was refused")?,
            Step::Permissions => f.write_str("'mode', 'user' or 'group' was refused")?,
            Step::Rename => f.write_str("the socket cannot take its place")?,
            Step::Inherit => f.write_str("the descriptor cannot be used")?,
            Step::Connect => f.write_str("the connection failed")?,
            Step::Socks => f.write_str("the SOCKS4 proxy did not connect to it")?,
            Step::Pass => f.write_str("the descriptor was not passed on")?,
            Step::Driver => f.write_str("the driver refused it")?,
            Step::Time => return f.write_str("it timed out"),
            Step::Unsupported(why) => return f.write_str(why),
        }
        write!(f, ": {}", io::Error::from(*errno))?;
        match self.0.remedy() {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SocketError({self})")
    }
}

impl std::error::Error for SocketError {}

impl From<SocketError> for io::Error {
    fn from(error: SocketError) -> Self {
        Self::new(error.kind(), error)
    }
}
