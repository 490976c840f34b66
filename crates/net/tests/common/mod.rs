//! Helpers shared by the tests of sockets.
#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part of it

use manylane_io::options::{SocketOption, option};
use manylane_io::{Driver, Io};
use manylane_net::{Address, Endpoint, Rules};
use manylane_sched::{Config, Lane};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// Length of the pieces into which a wait is cut: while a debugger or a measurement stops the process, at
/// most one piece passes.
pub(crate) const PIECE: Duration = Duration::from_millis(500);

/// Number of pieces in a minute. On an otherwise idle machine, nothing here takes longer than a second.
pub(crate) const PIECES: usize = 120;

/// Returns the next event, or fails with a sentence about the missing one.
#[track_caller]
pub(crate) fn wait_for<T>(events: &Receiver<T>, what: &str) -> T {
    for _ in 0..PIECES {
        match events.recv_timeout(PIECE) {
            Ok(event) => return event,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("{what} did not happen: its thread panicked"),
        }
    }
    panic!("{what} did not happen within a minute");
}

/// Runs `test` on a thread of its own and fails if it does not end within a minute, whatever it waits for.
/// The thread is then left behind, and ends with the process.
#[track_caller]
pub(crate) fn within_a_minute<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let (ended, end) = mpsc::channel();
    let run = move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        let _ = ended.send(outcome); // after a minute, the receiver is gone
    };
    std::thread::Builder::new().name(name.clone()).spawn(run).unwrap();
    match wait_for(&end, &format!("the end of {name}")) {
        Ok(output) => output,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs `test` on a lane with the driver that `MANYLANE_DRIVER` names. Its deadline is a minute.
#[track_caller]
pub(crate) fn on_lane<F: Future + 'static>(test: impl FnOnce(Io) -> F + Send + 'static) -> F::Output
where
    F::Output: Send + 'static,
{
    within_a_minute(move || {
        let mut lane = Lane::new(Config::new()).unwrap();
        let mut driver = Driver::from_environment(lane.here()).unwrap();
        let io = driver.io();
        lane.block_on(&mut driver, test(io)).unwrap()
    })
}

/// Parses an endpoint as `bind` does; port 1 stands for a port that the system chooses.
pub(crate) fn endpoint(text: &str) -> Endpoint {
    let address = Address::parse(text, &Rules::BIND).unwrap();
    match address.endpoints().unwrap().remove(0) {
        Endpoint::Ip(address) if address.port() == 1 => Endpoint::Ip(SocketAddr::new(address.ip(), 0)),
        other => other,
    }
}

pub(crate) fn ip(endpoint: &Endpoint) -> SocketAddr {
    match endpoint {
        Endpoint::Ip(address) => *address,
        other => panic!("{other} is no IP address"),
    }
}

/// Asserts the system's value of an option.
#[track_caller]
pub(crate) fn assert_option(socket: impl AsFd, which: SocketOption, expected: i32) {
    assert_eq!(option(socket.as_fd(), which), Ok(expected), "{which}");
}

/// A folder that is removed with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("manylane-net-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the names of the files in the directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Prints why a test shows nothing on this machine.
pub(crate) fn not_shown(what: &str, why: impl std::fmt::Display) {
    eprintln!("NOT SHOWN HERE: {what}: {why}");
}

/// Returns a chain with these bytes.
pub(crate) fn chain(bytes: &[u8]) -> manylane_buf::Chain {
    let mut chain = manylane_buf::Chain::new();
    chain.append(bytes).unwrap();
    chain
}
