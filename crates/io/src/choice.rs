//! Choice of the driver, by name or by environment variable.

use crate::uring::{TrialFailure as Failure, try_out};
use rustix::io::Errno;
use std::fmt;
use std::str::FromStr;

/// Environment variable that chooses the driver.
pub const DRIVER_VARIABLE: &str = "MANYLANE_DRIVER";

/// Returns the end of a sentence about an error of io_uring: the remedy, if there is one.
pub(crate) fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::NOMEM => {
            "; rings are locked memory: raise its limit ('ulimit -l', LimitMEMLOCK= of systemd) to 88 KiB \
             for each lane of each worker"
        }
        _ => "",
    }
}

/// A driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Readiness events, then a system call for each transfer. Any Linux.
    Epoll,
    /// Transfers submitted to the kernel in batches.
    IoUring,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Epoll, Self::IoUring];

    /// Returns the name that [`DriverChoice`] parses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The requested driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// `io_uring` if it passes a trial, otherwise `epoll`: [`settle`](Self::settle).
    #[default]
    Auto,
    /// This driver or none.
    Only(Kind),
}

impl DriverChoice {
    /// Returns the driver that [`Auto`](Self::Auto) selects on this machine: `io_uring` if one operation
    /// receives two messages from a socket pair, otherwise `epoll` and the reason. Another choice stays as it
    /// is.
    ///
    /// The trial takes about 100 us, and a ring's memory meanwhile. Run it with the privileges of the lanes,
    /// and once for all of them, so that they agree.
    pub fn settle(self) -> (Kind, Option<IoUringUnavailable>) {
        match self {
            Self::Only(kind) => (kind, None),
            Self::Auto => match try_out() {
                Ok(()) => (Kind::IoUring, None),
                Err(Failure { step, errno }) => (Kind::Epoll, Some(IoUringUnavailable { step, errno })),
            },
        }
    }

    /// Reads [`DRIVER_VARIABLE`]; returns [`Auto`](Self::Auto) if it is not set or empty.
    ///
    /// # Errors
    /// [`UnknownDriver`].
    pub fn from_environment() -> Result<Self, UnknownDriver> {
        match std::env::var_os(DRIVER_VARIABLE) {
            None => Ok(Self::Auto),
            Some(name) if name.is_empty() => Ok(Self::Auto),
            Some(name) => name.to_string_lossy().parse(),
        }
    }
}

impl FromStr for DriverChoice {
    type Err = UnknownDriver;

    fn from_str(name: &str) -> Result<Self, UnknownDriver> {
        match name {
            "auto" => Ok(Self::Auto),
            "epoll" => Ok(Self::Only(Kind::Epoll)),
            "io_uring" => Ok(Self::Only(Kind::IoUring)),
            _ => Err(UnknownDriver(name.into())),
        }
    }
}

/// Reason why `io_uring` is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoUringUnavailable {
    step: &'static str,
    errno: Errno,
}

impl IoUringUnavailable {
    /// Returns the reason for a lane that the kernel refuses a ring.
    pub fn of_a_lane(errno: Errno) -> Self {
        Self { step: "setting up a lane's ring", errno }
    }
}

impl fmt::Display for IoUringUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, errno } = *self;
        write!(f, "io_uring failed at {step}: {}{}", std::io::Error::from(errno), remedy(errno))
    }
}

impl std::error::Error for IoUringUnavailable {}

/// Error: no driver has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDriver(Box<str>);

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there is no driver {:?}; set {DRIVER_VARIABLE} to epoll, io_uring or auto, or leave it unset",
            self.0
        )
    }
}

impl std::error::Error for UnknownDriver {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_choices() {
        let error = "kqueue".parse::<DriverChoice>().unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no driver \"kqueue\"; set MANYLANE_DRIVER to epoll, io_uring or auto, or leave it unset"
        );
    }

    #[test]
    fn a_failed_trial_is_reported_with_its_step() {
        let unsuitable = IoUringUnavailable { step: "setting up a ring", errno: Errno::PERM };
        assert_eq!(
            unsuitable.to_string(),
            "io_uring failed at setting up a ring: Operation not permitted (os error 1)"
        );
    }

    #[test]
    fn every_driver_is_chosen_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(DriverChoice::Only(kind)));
        }
        assert_eq!("auto".parse(), Ok(DriverChoice::Auto));
    }
}
