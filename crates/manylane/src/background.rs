//! A process in the background (`-D`, `daemon`), from both sides: its starter waits until it serves, or a
//! worker of it.

use crate::system;
use manylane_io::socket::{self, Shape};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};

/// Byte that the process in the background sends once it or a worker serves.
const SERVES: u8 = b'+';

/// Starts this program in the background and waits until it or its first worker serves. Returns the exit
/// code.
///
/// # Errors
/// An error of the system.
pub(crate) fn to_background() -> io::Result<ExitCode> {
    let (ours, theirs) = socket::pair(Shape::Stream)?;
    // the child inherits the descriptor
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).map_err(io::Error::from)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--background").arg(theirs.as_raw_fd().to_string()).args(std::env::args_os().skip(1));
    let mut started = command.spawn()?;
    drop((theirs, command));
    let mut report = UnixStream::from(ours);
    report.set_nonblocking(false)?;
    let mut word = [0];
    if report.read_exact(&mut word).is_ok() && word == [SERVES] {
        return Ok(ExitCode::SUCCESS);
    }
    let code = started.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.filter(|code| *code > 0).unwrap_or(1)))
}

/// The other side: the process that waits for this one.
#[derive(Debug)]
pub(crate) struct Background {
    starter: UnixStream,
    nowhere: File,
}

impl Background {
    /// Takes the process out of its terminal's session; its messages still go to the terminal. `number` is
    /// the inherited descriptor.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn new(number: i32) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("Cannot go to the background: {error}");
        let starter = socket::inherited(number).map_err(|error| failed(&error))?;
        socket::keep_from_children(number).map_err(|error| failed(&error))?;
        nix::unistd::setsid().map_err(|error| failed(&error))?;
        Ok(Self { starter: starter.into(), nowhere: system::nowhere()? })
    }

    /// Reports that this process or a worker serves, so the starter may end, and closes standard error.
    pub(crate) fn leave(mut self) {
        let _ = self.starter.write_all(&[SERVES]); // the starter may have ended already
        system::leave_the_terminal(&self.nowhere);
    }
}
