//! A master in the background (`-D`, `daemon`), from both sides: whoever starts it waits until it serves.

use crate::system;
use manylane_io::socket::{self, Shape};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};

/// What the master says once a worker serves.
const SERVES: u8 = b'+';

/// Starts this program as a master in the background, and waits for its first worker. The code to end with.
///
/// # Errors
/// The system's.
pub(crate) fn to_background() -> io::Result<ExitCode> {
    let (ours, theirs) = socket::pair(Shape::Stream)?;
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).map_err(io::Error::from)?; // it is inherited
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--background").arg(theirs.as_raw_fd().to_string()).args(std::env::args_os().skip(1));
    let mut master = command.spawn()?;
    drop((theirs, command));
    let mut told = UnixStream::from(ours);
    told.set_nonblocking(false)?;
    let mut word = [0];
    if told.read_exact(&mut word).is_ok() && word == [SERVES] {
        return Ok(ExitCode::SUCCESS);
    }
    let code = master.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.filter(|code| *code > 0).unwrap_or(1)))
}

/// In the master: whoever waits for it.
#[derive(Debug)]
pub(super) struct Background {
    starter: UnixStream,
    nowhere: File,
}

impl Background {
    /// The process leaves its terminal's session; what it says is still read there. `number` is the
    /// descriptor's that was inherited.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn new(number: i32) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("Cannot go to the background: {error}");
        let starter = socket::inherited(number).map_err(|error| failed(&error))?;
        socket::keep_from_children(number).map_err(|error| failed(&error))?;
        nix::unistd::setsid().map_err(|error| failed(&error))?;
        Ok(Self { starter: starter.into(), nowhere: system::nowhere()? })
    }

    /// A worker serves: the starter may end, and nobody reads any more.
    pub(super) fn leave(mut self) {
        let _ = self.starter.write_all(&[SERVES]); // it may have ended already
        system::leave_the_terminal(&self.nowhere);
    }
}
