//! Those who watch the program: a syslog server, the run-time interface, and HAProxy beside it.

use super::PATIENCE;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;

/// A syslog server.
pub struct Syslog(UdpSocket);

impl Syslog {
    pub fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// The next line that has `what` in it; others are passed over.
    pub fn wait(&self, what: &str) -> String {
        let mut bytes = [0; 4096];
        let mut seen = String::new();
        loop {
            let length =
                self.0.recv(&mut bytes).unwrap_or_else(|error| panic!("no '{what}' ({error}) in: {seen}"));
            let line = String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned();
            if line.contains(what) {
                return line;
            }
            seen = format!("{seen}{line}\n");
        }
    }
}

/// Waits until something is so.
pub fn until(mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never is so");
        std::thread::yield_now();
    }
}

/// What the run-time interface says to a line.
pub fn ask(socket: &std::path::Path, line: &str) -> String {
    let mut client = UnixStream::connect(socket).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// HAProxy, until it is dropped.
pub struct Haproxy(std::process::Child);

impl Haproxy {
    /// Of the version whose words are ours; none where there is another, or none.
    pub fn start(file: &std::path::Path) -> Option<Self> {
        let mut program = std::process::Command::new("/usr/sbin/haproxy");
        let version = program.arg("-v").output().ok()?;
        if !String::from_utf8_lossy(&version.stdout).contains("version 2.6.") {
            return None;
        }
        let mut program = std::process::Command::new("/usr/sbin/haproxy");
        Some(Self(program.args(["-db", "-q", "-f"]).arg(file).spawn().unwrap()))
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
