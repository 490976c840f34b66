//! A receiver of log lines.

use crate::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

/// Longest line that is taken.
const LONGEST: usize = 64 << 10;

/// A socket that keeps what is sent to it until it is asked.
#[derive(Debug)]
pub struct Syslog {
    socket: UdpSocket,
    /// What was read while one was waited for.
    read: Vec<String>,
    /// How many of these were waited for.
    passed: usize,
}

impl Default for Syslog {
    fn default() -> Self {
        Self::new()
    }
}

impl Syslog {
    /// On a port of the kernel's choice.
    pub fn new() -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, read: Vec::new(), passed: 0 }
    }

    /// Where to send to.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Waits for a line that has `text`, behind the one that was waited for last.
    ///
    /// # Panics
    /// When none comes.
    pub fn wait(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.receive();
            while let Some(line) = self.read.get(self.passed) {
                self.passed += 1;
                if line.contains(text) {
                    return;
                }
            }
            let patience = until.saturating_duration_since(Instant::now());
            let patience = Timespec::try_from(patience).unwrap();
            let mut comes = [PollFd::new(&self.socket, PollFlags::IN)];
            assert!(
                poll(&mut comes, Some(&patience)).unwrap() == 1,
                "no log line has '{text}':\n{}",
                self.read.join("\n")
            );
        }
    }

    /// Waits until so many lines have `text`.
    ///
    /// # Panics
    /// When no more come.
    pub fn wait_for(&mut self, count: usize, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.receive();
            if self.read.iter().filter(|line| line.contains(text)).count() >= count {
                return;
            }
            let patience = Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap();
            let mut comes = [PollFd::new(&self.socket, PollFlags::IN)];
            let came = poll(&mut comes, Some(&patience)).unwrap() == 1;
            assert!(came, "fewer than {count} log lines have '{text}':\n{}", self.read.join("\n"));
        }
    }

    fn receive(&mut self) {
        let mut line = vec![0; LONGEST];
        while let Ok(length) = self.socket.recv(&mut line) {
            self.read.push(String::from_utf8_lossy(&line[..length]).trim_end().to_owned());
        }
    }

    /// All lines that came. What was sent before a program ended is there.
    pub fn lines(mut self) -> Vec<String> {
        self.receive();
        self.read
    }
}
