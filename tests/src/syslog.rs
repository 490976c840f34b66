//! A receiver of log lines.

use std::net::{SocketAddr, UdpSocket};

/// Longest line that is taken.
const LONGEST: usize = 64 << 10;

/// A socket that keeps what is sent to it until it is asked.
#[derive(Debug)]
pub struct Syslog {
    socket: UdpSocket,
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
        Self { socket }
    }

    /// Where to send to.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// All lines that came so far. What was sent before a program ended is there.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = vec![0; LONGEST];
        while let Ok(length) = self.socket.recv(&mut line) {
            lines.push(String::from_utf8_lossy(&line[..length]).trim_end().to_owned());
        }
        lines
    }
}
