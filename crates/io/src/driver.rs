//! A lane's driver, and the handle with which its tasks use it.

use crate::choice::{DriverChoice, Kind, UnknownDriver, remedy};
use crate::clusters::CHECK_INTERVAL;
use crate::core::{Backend, Core};
use crate::epoll::Epoll;
use crate::limits::{MOST_ACCEPTS_PER_ROUND, MOST_EVENTS_PER_WAIT, SMALLEST_PIPE};
use crate::uring::Uring;
use crate::wake_fd::WakeFd;
use manylane_sched::{Here, Poller, Unpark};
use manylane_sync::Arc;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// The poller of a lane: one for each lane, created on its thread; see the crate's page.
pub struct Driver {
    io: Io,
}

/// Handle of a lane's driver, for the tasks of that lane. A clone increments a count in the lane's own
/// memory.
#[derive(Clone)]
pub struct Io {
    core: Rc<Core>,
}

impl Driver {
    /// Creates the lane's driver.
    ///
    /// # Errors
    /// [`DriverError`] if the kernel refuses the chosen one.
    pub fn new(here: Here, choice: DriverChoice) -> Result<Self, DriverError> {
        let kind = choice.settle().0;
        let backend = match kind {
            Kind::Epoll => Epoll::new().map(Backend::Epoll),
            Kind::IoUring => Uring::new().map(Backend::Uring),
        };
        let backend = backend.map_err(|errno| DriverError::new(kind, errno))?;
        let rings = &crate::stats::own().rings;
        match kind {
            Kind::Epoll => rings.forget(),
            Kind::IoUring => rings.raise(1),
        }
        Ok(Self { io: Io { core: Rc::new(Core::new(here, backend)) } })
    }

    /// Creates the driver that the environment names ([`DRIVER_VARIABLE`](crate::DRIVER_VARIABLE)); without
    /// the variable, [`DriverChoice::Auto`].
    ///
    /// # Errors
    /// [`DriverError`]; its sentence names the choices.
    pub fn from_environment(here: Here) -> Result<Self, DriverError> {
        Self::new(here, DriverChoice::from_environment().map_err(DriverError::Unknown)?)
    }

    /// Returns the handle for tasks.
    pub fn io(&self) -> Io {
        self.io.clone()
    }

    /// Returns the kind of driver.
    pub fn kind(&self) -> Kind {
        self.io.kind()
    }

    fn wake_fd(&self) -> Arc<WakeFd> {
        match &self.io.core.backend {
            Backend::Epoll(epoll) => epoll.wake_fd(),
            Backend::Uring(uring) => uring.wake_fd(),
        }
    }
}

impl Poller for Driver {
    fn unparker(&self) -> Arc<dyn Unpark> {
        self.wake_fd()
    }

    fn poll(&mut self, _: Here, timeout: Option<Duration>) -> io::Result<()> {
        let core = &*self.io.core;
        let woken = core.begin_round() | core.offer_clusters();
        let timeout = match timeout {
            _ if woken => Some(Duration::ZERO),
            timeout if core.clusters.are_waited_for() => {
                Some(timeout.map_or(CHECK_INTERVAL, |time| time.min(CHECK_INTERVAL)))
            }
            timeout => timeout,
        };
        crate::core::backend!(core, driver => driver.wait(core, timeout))?;
        Ok(())
    }

    fn has_work(&self) -> bool {
        let core = &*self.io.core;
        core.has_deferred() || crate::core::backend!(core, driver => driver.has_work())
    }
}

impl Io {
    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// Returns the lane.
    pub fn here(&self) -> Here {
        self.core.here
    }

    /// Returns the kind of driver.
    pub fn kind(&self) -> Kind {
        match self.core.backend {
            Backend::Epoll(_) => Kind::Epoll,
            Backend::Uring(_) => Kind::IoUring,
        }
    }

    /// Returns how many connections each listener of this lane accepts in one round (R-F5). Initially
    /// [`ACCEPTS_PER_ROUND`](crate::ACCEPTS_PER_ROUND).
    pub fn accepts_per_round(&self) -> u32 {
        self.core.accepts.get()
    }

    /// Sets how many connections each listener accepts in one round, from this round on. Zero counts as one,
    /// since a listener that accepts nothing would wake its task in each round for ever; the maximum is
    /// [`MOST_ACCEPTS_PER_ROUND`](crate::MOST_ACCEPTS_PER_ROUND). A larger number lets a storm of new
    /// connections delay established ones for longer.
    pub fn set_accepts_per_round(&self, connections: u32) {
        self.core.accepts.set(connections.clamp(1, MOST_ACCEPTS_PER_ROUND));
    }

    /// Returns the maximum number of events of one check of the kernel.
    pub fn events_per_wait(&self) -> usize {
        self.core.events.get()
    }

    /// Sets the maximum number of events of one check of the kernel, from the next check on: 1 to
    /// [`MOST_EVENTS_PER_WAIT`](crate::MOST_EVENTS_PER_WAIT). The kernel keeps further events for the
    /// following check.
    pub fn set_events_per_wait(&self, events: usize) {
        self.core.events.set(events.clamp(1, MOST_EVENTS_PER_WAIT));
    }

    /// Sets the maximum number of pipes for splicing of this lane; without a free pipe, bytes are copied.
    /// Initially unlimited.
    pub fn set_most_pipes(&self, pipes: usize) {
        self.core.most_pipes.set(pipes);
    }

    /// Returns the number of pipes for splicing of this lane, unused ones included.
    pub fn pipes(&self) -> usize {
        self.core.pipes_open.get()
    }

    /// Sets the size in bytes of later pipes, and of one splice: at least a page, and at most the kernel's
    /// limit.
    pub fn set_pipe_size(&self, bytes: usize) {
        self.core.pipe_size.set(bytes.max(SMALLEST_PIPE));
    }

    /// Sets the limit on clusters in use on this lane (`tune.buffers.limit`, R-D4). From the limit on a
    /// receive that holds nothing ([`recv_within_limit`](crate::Stream::recv_within_limit)) waits until some
    /// are released, and any other takes one at a time. `usize::MAX`, the initial value, means no limit.
    ///
    /// With io_uring and a limit, streams are received with system calls of their own, since the kernel would
    /// fill its ring for connections that have to wait.
    pub fn set_most_clusters(&self, clusters: usize) {
        self.core.clusters.limit(clusters);
    }

    /// Returns the number of descriptors of the driver, including those that are being closed.
    pub fn open(&self) -> usize {
        crate::core::backend!(self.core, driver => driver.len())
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({}, {:?})", self.kind(), self.io.here())
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Io({}, {:?})", self.kind(), self.here())
    }
}

/// Error: a lane has no driver.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverError {
    /// The environment names a driver that does not exist.
    Unknown(UnknownDriver),
    /// The kernel refused the driver.
    Refused {
        /// Kind of driver.
        kind: Kind,
        /// The kernel's error.
        errno: Errno,
    },
}

impl DriverError {
    pub(crate) fn new(kind: Kind, errno: Errno) -> Self {
        Self::Refused { kind, errno }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(error) => error.fmt(f),
            Self::Refused { kind, errno } => {
                write!(f, "the kernel does not offer {kind} to this program: {}", io::Error::from(*errno))?;
                match kind {
                    Kind::Epoll => Ok(()),
                    Kind::IoUring => {
                        let or = if *errno == Errno::NOMEM { ", or" } else { ";" };
                        write!(f, "{}{or} set {} to epoll or auto", remedy(*errno), crate::DRIVER_VARIABLE)
                    }
                }
            }
        }
    }
}

impl fmt::Debug for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverError({self})")
    }
}

impl std::error::Error for DriverError {}

impl From<DriverError> for io::Error {
    fn from(error: DriverError) -> Self {
        Self::other(error)
    }
}
