//! What the tests of sockets share.
#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part of it

use manylane_io::options::{SocketOption, option};
use manylane_io::{Driver, Io};
use manylane_net::{Address, Endpoint, Rules};
use manylane_sched::{Config, Lane};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs `test` on a lane with a driver, the one that `MANYLANE_DRIVER` names.
pub(crate) fn on_lane<F: Future + 'static>(test: impl FnOnce(Io) -> F) -> F::Output {
    let mut lane = Lane::new(Config::new()).unwrap();
    let mut driver = Driver::from_environment(lane.here()).unwrap();
    let io = driver.io();
    lane.block_on(&mut driver, test(io)).unwrap()
}

/// An endpoint as `bind` has it; port 1 stands for one that the system chooses.
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

/// What the system says of an option.
#[track_caller]
pub(crate) fn assert_option(socket: impl AsFd, which: SocketOption, expected: i32) {
    assert_eq!(option(socket.as_fd(), which), Ok(expected), "{which}");
}

/// A folder that goes with the test.
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

    /// The names in it, sorted.
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

/// Says why a test shows nothing on this machine.
pub(crate) fn not_shown(what: &str, why: impl std::fmt::Display) {
    eprintln!("NOT SHOWN HERE: {what}: {why}");
}

/// Bytes to send.
pub(crate) fn chain(bytes: &[u8]) -> manylane_buf::Chain {
    let mut chain = manylane_buf::Chain::new();
    chain.append(bytes).unwrap();
    chain
}
