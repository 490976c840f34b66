//! Targets of logs, and their settings.

use crate::descriptor::Descriptor;
use crate::line::{Facility, Format, Level};
use crate::outbox::MOST_BYTES;
use crate::ring::Ring;
use crate::tls::TargetTls;
use manylane_stats::{CounterGroup, counters};
use manylane_sync::{Arc, LockClass, Mutex};
use rustix::net::{SocketAddrAny, SocketAddrUnix, SocketType, sockopt};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Smallest `len`.
pub const MIN_LENGTH: usize = 80;
/// Largest `len`.
pub const MAX_LENGTH: usize = 65_535;

static DESCRIPTOR: LockClass = LockClass::new("log file", 70);

/// How lines are separated in a stream (RFC 6587).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// A line end after each.
    #[default]
    Lines,
    /// The length before each: `log-proto octet-count`.
    OctetCount,
}

/// Destination of lines.
#[derive(Debug)]
pub enum Sink {
    /// A syslog server's UDP address.
    Udp(SocketAddr),
    /// A syslog daemon's socket, such as `/dev/log`. It may not exist yet, and may be replaced.
    Unix(PathBuf),
    /// A socket in the abstract namespace.
    Abstract(Vec<u8>),
    /// A syslog server's TCP address.
    Tcp(SocketAddr, Framing),
    /// A local stream socket.
    UnixStream(PathBuf, Framing),
    /// TLS over a stream.
    Tls(Box<Self>, TargetTls),
    /// `stdout`, `stderr`, `fd@`: a pipe, a terminal, a file, a socket.
    Descriptor(OwnedFd),
    /// `ring@`: a ring in memory.
    Ring(Arc<Ring>),
    /// `backend@`: one of several other targets, which is chosen for each line; the group's number.
    Group(usize),
}

impl Sink {
    /// The delivery, its framing and TLS, if the sink is a stream to a server.
    pub(crate) fn stream(self) -> Result<(Delivery, Framing, Option<Arc<TargetTls>>), BadTarget> {
        match self {
            Self::Tcp(address, framing) => Ok((Delivery::Tcp(address), framing, None)),
            Self::UnixStream(path, framing) => Ok((Delivery::UnixStream(unix(path)?), framing, None)),
            Self::Tls(stream, tls) => {
                let (delivery, framing, _) = stream.stream()?;
                Ok((delivery, framing, Some(Arc::new(tls))))
            }
            _ => Err(BadTarget::NoStream),
        }
    }

    /// A duplicate of `stdout`.
    ///
    /// # Errors
    /// The system's error: it is closed, or there are no descriptors left.
    pub fn stdout() -> io::Result<Self> {
        Ok(Self::Descriptor(io::stdout().as_fd().try_clone_to_owned()?))
    }

    /// A duplicate of `stderr`.
    ///
    /// # Errors
    /// As [`stdout`](Self::stdout).
    pub fn stderr() -> io::Result<Self> {
        Ok(Self::Descriptor(io::stderr().as_fd().try_clone_to_owned()?))
    }
}

/// `sample`: the lines of each round that are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Ranges of line numbers, from 1, inclusive.
    pub ranges: Vec<(u32, u32)>,
    /// Lines of a round.
    pub size: u32,
}

/// A `log` line of the configuration.
#[derive(Debug)]
pub struct TargetSpec {
    /// The destination.
    pub sink: Sink,
    /// `format`, or what is usual for the sink.
    pub format: Format,
    /// No `format` was given: messages that are [forwarded](crate::Message) keep theirs.
    pub keeps_format: bool,
    /// `len`: bytes of a line with its end, [`MIN_LENGTH`] to [`MAX_LENGTH`]; usually 1024.
    pub length: usize,
    /// `log-bufsize`: bytes of lines that wait on a lane at most, if fewer than
    /// [`MOST_BYTES`](crate::MOST_BYTES).
    pub room: Option<usize>,
    /// The facility of all lines.
    pub facility: Facility,
    /// Less severe lines are left out.
    pub level: Level,
    /// More severe lines are sent with this level.
    pub min_level: Level,
    /// `sample`
    pub sample: Option<Sample>,
    /// Timeouts of a stream server.
    pub timeouts: Timeouts,
}

/// Timeouts of a stream server; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// `timeout connect`
    pub connect: Option<Duration>,
    /// `timeout server`: for lines sent together, a batch or a part of a ring.
    pub server: Option<Duration>,
}

/// Why a target cannot be created.
#[derive(Debug)]
pub enum BadTarget {
    /// `len` is out of range.
    Length(usize),
    /// The socket's path is too long, or has a NUL byte.
    Path(PathBuf),
    /// A sample's ranges do not fit its size.
    Sample(Sample),
    /// A ring's server must be a stream.
    NoStream,
}

impl fmt::Display for BadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => {
                write!(f, "log lines of {length} bytes are out of range: use {MIN_LENGTH} to {MAX_LENGTH}")
            }
            Self::Path(path) => write!(
                f,
                "`{}` cannot be a socket's path: expected one shorter than 108 bytes, without NUL bytes",
                path.display()
            ),
            Self::NoStream => f.write_str(
                "lines of a ring are sent over streams: give its server an address and a port, or a local \
                    socket's path",
            ),
            Self::Sample(sample) => write!(
                f,
                "the sample's ranges have to lie within 1 to {}, each with its lower end first",
                sample.size
            ),
        }
    }
}

impl std::error::Error for BadTarget {}

counters! {
    /// Counters of a target's lines.
    pub struct Counts {
        /// Lines that the system took.
        pub sent,
        /// Lines that were lost: the target was too slow, refused them, or did not exist.
        pub lost,
    }
}

/// Counters for all targets and servers of rings since the process began; they outlive the targets.
static LOST: CounterGroup<Lost> = CounterGroup::new();

counters! {
    struct Lost {
        lines,
    }
}

/// Number of lines that were lost since the process began, including those of removed targets.
pub fn lost_lines() -> u64 {
    LOST.read_cheap_one(|lost| &lost.lines)
}

static RECEIVED: CounterGroup<Received> = CounterGroup::new();

counters! {
    struct Received {
        messages,
    }
}

/// Returns the number of messages that other programs sent for forwarding since the process began.
pub fn received_messages() -> u64 {
    RECEIVED.read_cheap_one(|received| &received.messages)
}

/// Counts messages of other programs.
pub fn count_received(messages: u64) {
    RECEIVED.own().messages.add(messages);
}

/// Counts lines as lost, for a target and for the process.
pub(crate) fn lose(counts: &CounterGroup<Counts>, lines: u64) {
    if lines > 0 {
        counts.own().lost.add(lines);
        LOST.own().lines.add(lines);
    }
}

/// A target of a generation, shared by all lanes.
#[derive(Debug)]
pub struct Target {
    pub(crate) delivery: Delivery,
    pub(crate) framing: Option<Framing>,
    pub(crate) tls: Option<Arc<TargetTls>>,
    pub(crate) format: Format,
    pub(crate) keeps_format: bool,
    pub(crate) length: usize,
    pub(crate) room: usize,
    pub(crate) facility: Facility,
    pub(crate) level: Level,
    pub(crate) min_level: Level,
    pub(crate) sample: Option<Sample>,
    pub(crate) timeouts: Timeouts,
    counts: CounterGroup<Counts>,
}

/// How lines are delivered.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// A datagram for each line, to this address.
    Datagrams(SocketAddrAny),
    /// A datagram for each line, on a connected socket; each lane has a duplicate.
    Connected(OwnedFd),
    /// A TCP connection for each lane.
    Tcp(SocketAddr),
    /// A local connection for each lane.
    UnixStream(SocketAddrUnix),
    /// Written on the blocking pool, one batch at a time.
    Descriptor(Arc<Mutex<Descriptor>>),
    /// Kept in a ring.
    Ring(Arc<Ring>),
    /// By another target.
    Group(usize),
}

fn unix(path: PathBuf) -> Result<SocketAddrUnix, BadTarget> {
    SocketAddrUnix::new(&path).map_err(|_| BadTarget::Path(path))
}

impl Target {
    /// Checks the specification.
    ///
    /// # Errors
    /// [`BadTarget`]
    pub fn new(spec: TargetSpec) -> Result<Self, BadTarget> {
        if !(MIN_LENGTH..=MAX_LENGTH).contains(&spec.length) {
            return Err(BadTarget::Length(spec.length));
        }
        if let Some(sample) = &spec.sample {
            let good = |&(low, high): &(u32, u32)| 1 <= low && low <= high && high <= sample.size;
            if sample.ranges.is_empty() || !sample.ranges.iter().all(good) {
                return Err(BadTarget::Sample(sample.clone()));
            }
        }
        let mut tls = None;
        let (delivery, framing) = match spec.sink {
            Sink::Udp(address) => (Delivery::Datagrams(address.into()), None),
            Sink::Unix(path) => (Delivery::Datagrams(unix(path)?.into()), None),
            Sink::Abstract(name) => {
                let address = SocketAddrUnix::new_abstract_name(&name).map_err(|_| {
                    BadTarget::Path(PathBuf::from(String::from_utf8_lossy(&name).into_owned()))
                })?;
                (Delivery::Datagrams(address.into()), None)
            }
            Sink::Ring(ring) => (Delivery::Ring(ring), None),
            Sink::Group(group) => (Delivery::Group(group), None),
            sink @ (Sink::Tcp(..) | Sink::UnixStream(..) | Sink::Tls(..)) => {
                let (delivery, framing, own) = sink.stream()?;
                tls = own;
                (delivery, Some(framing))
            }
            Sink::Descriptor(fd) => match sockopt::socket_type(&fd) {
                Ok(SocketType::DGRAM) => (Delivery::Connected(fd), None),
                _ => {
                    let descriptor = Mutex::new(&DESCRIPTOR, Descriptor::new(fd));
                    (Delivery::Descriptor(Arc::new(descriptor)), Some(Framing::Lines))
                }
            },
        };
        Ok(Self {
            delivery,
            framing,
            tls,
            format: spec.format,
            keeps_format: spec.keeps_format,
            length: spec.length - 1,
            room: spec.room.unwrap_or(MOST_BYTES).min(MOST_BYTES),
            facility: spec.facility,
            level: spec.level,
            min_level: spec.min_level,
            sample: spec.sample,
            timeouts: spec.timeouts,
            counts: CounterGroup::new(),
        })
    }

    /// Counters of the target's lines, on all lanes.
    pub fn counts(&self) -> &CounterGroup<Counts> {
        &self.counts
    }

    /// Returns the number of the group, if the target is one: each line goes to one of its members.
    pub(crate) fn group(&self) -> Option<usize> {
        match self.delivery {
            Delivery::Group(group) => Some(group),
            _ => None,
        }
    }

    /// Most bytes of a line, without its end.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The level to send a line with, or `None` to leave it out.
    pub(crate) fn admits(&self, level: Level) -> Option<Level> {
        (level <= self.level).then(|| level.max(self.min_level))
    }
}
