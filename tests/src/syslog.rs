//! A receiver of log lines.

use crate::TIMEOUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

/// Length limit of a line.
const LONGEST: usize = 64 << 10;

/// A socket that stores lines until they are requested.
#[derive(Debug)]
pub struct Syslog {
    socket: UdpSocket,
    /// Lines that were read during waits.
    read: Vec<String>,
    /// Number of these that a wait has passed.
    passed: usize,
}

impl Default for Syslog {
    fn default() -> Self {
        Self::new()
    }
}

impl Syslog {
    /// Listens on a port of the kernel's choice.
    pub fn new() -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, read: Vec::new(), passed: 0 }
    }

    /// Address of the receiver.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Waits for a line with `text`, after the line of the last wait.
    ///
    /// # Panics
    /// If none arrives.
    pub fn wait(&mut self, text: &str) {
        let until = Instant::now() + TIMEOUT;
        loop {
            self.receive();
            while let Some(line) = self.read.get(self.passed) {
                self.passed += 1;
                if line.contains(text) {
                    return;
                }
            }
            let timeout = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(timeout).unwrap();
            let mut comes = [PollFd::new(&self.socket, PollFlags::IN)];
            assert!(
                poll(&mut comes, Some(&timeout)).unwrap() == 1,
                "no log line has '{text}':\n{}",
                self.read.join("\n")
            );
        }
    }

    /// Waits until `count` lines contain `text`.
    ///
    /// # Panics
    /// If no more arrive.
    pub fn wait_for(&mut self, count: usize, text: &str) {
        let until = Instant::now() + TIMEOUT;
        loop {
            self.receive();
            if self.read.iter().filter(|line| line.contains(text)).count() >= count {
                return;
            }
            let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap();
            let mut comes = [PollFd::new(&self.socket, PollFlags::IN)];
            let came = poll(&mut comes, Some(&timeout)).unwrap() == 1;
            assert!(came, "fewer than {count} log lines have '{text}':\n{}", self.read.join("\n"));
        }
    }

    fn receive(&mut self) {
        let mut line = vec![0; LONGEST];
        while let Ok(length) = self.socket.recv(&mut line) {
            self.read.push(String::from_utf8_lossy(&line[..length]).trim_end().to_owned());
        }
    }

    /// Returns all lines, including those sent before a program ended.
    pub fn lines(mut self) -> Vec<String> {
        self.receive();
        self.read
    }
}
