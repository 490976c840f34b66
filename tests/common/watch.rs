//! Observers of the program: a syslog server, the run-time interface, and HAProxy for comparison.

use super::{Ended, Folder, Manylane, TIMEOUT};
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

/// A syslog server.
pub struct Syslog(UdpSocket);

impl Syslog {
    pub fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// The lines before the one that equals `last`.
    pub fn until(&self, last: &str) -> Vec<String> {
        std::iter::repeat_with(|| self.wait("")).take_while(|line| line != last).collect()
    }

    /// Returns the next line that contains `what`; skips others.
    pub fn wait(&self, what: &str) -> String {
        let mut bytes = [0; 4096];
        let mut observed = String::new();
        loop {
            let length = self
                .0
                .recv(&mut bytes)
                .unwrap_or_else(|error| panic!("no '{what}' ({error}) in: {observed}"));
            let line = String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned();
            if line.contains(what) {
                return line;
            }
            observed = format!("{observed}{line}\n");
        }
    }
}

/// Waits until `is_so` returns true.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "it never is so");
        manylane_tests::look_again();
    }
}

/// Returns the response of the run-time interface to a line.
pub fn ask(socket: &Path, line: &str) -> String {
    let mut client = UnixStream::connect(socket).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// A running HAProxy.
pub struct Haproxy(#[expect(dead_code)] Ended);

impl Haproxy {
    /// Path of HAProxy 3.2, the version whose words we use; `MANYLANE_HAPROXY` names it
    /// (`.cargo/config.toml`).
    pub fn program() -> Option<PathBuf> {
        let path = PathBuf::from(std::env::var_os("MANYLANE_HAPROXY")?);
        let version = std::process::Command::new(&path).arg("-v").output().ok()?;
        String::from_utf8_lossy(&version.stdout).contains("version 3.2.").then_some(path)
    }

    /// Starts it; `None` if it is not installed.
    pub fn start(file: &std::path::Path) -> Option<Self> {
        let mut program = std::process::Command::new(Self::program()?);
        Some(Self(Ended(program.args(["-db", "-q", "-f"]).arg(file).spawn().unwrap())))
    }
}

/// Columns of a row of `show stat`, from a run-time interface.
pub fn columns(socket: &Path, proxy: &str, server: &str, names: &[&str]) -> Vec<String> {
    let answer = ask(socket, "show stat");
    let header: Vec<&str> = answer.lines().next().unwrap().trim_start_matches("# ").split(',').collect();
    let begin = format!("{proxy},{server},");
    let row: Vec<&str> = answer.lines().find(|line| line.starts_with(&begin)).unwrap().split(',').collect();
    // HAProxy quotes some texts needlessly.
    let value =
        |name: &&str| row[header.iter().position(|own| own == name).unwrap()].trim_matches('"').to_owned();
    names.iter().map(value).collect()
}

/// A program that steps are run on.
pub struct Played {
    pub log: Syslog,
    pub socket: PathBuf,
}

impl Played {
    /// Returns the response of the run-time interface to a line.
    pub fn ask(&self, line: &str) -> String {
        ask(&self.socket, line)
    }

    /// Returns log lines up to one with `last`, without dates and durations.
    pub fn lines(&self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.log.wait("");
            let text = line.split_once("]: ").map_or(line.as_str(), |(_, text)| text);
            let (before, after) = text.split_once(", check duration: ").unwrap_or((text, ""));
            let text =
                format!("{before}{}", after.trim_start_matches(|letter: char| letter.is_ascii_digit()));
            let over = text.contains(last);
            lines.push(text);
            if over {
                return lines;
            }
        }
    }

    /// As [`columns`].
    pub fn columns(&self, proxy: &str, server: &str, names: &[&str]) -> Vec<String> {
        columns(&self.socket, proxy, server, names)
    }

    /// `srv_op_state`, `srv_admin_state` and `srv_check_state` of a server.
    pub fn state(&self, backend: &str, server: &str) -> [String; 3] {
        let answer = self.ask("show servers state");
        let row = answer
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|row| row.len() > 9 && row[1] == backend && row[3] == server);
        let row = row.unwrap();
        [row[5].into(), row[6].into(), row[13].into()]
    }
}

/// Number of times that HAProxy may fail a test's steps: it has races of its own.
const MOST_RUNS_OF_HAPROXY: usize = 3;

/// Runs the same steps on both programs, if HAProxy 3.2 is installed. Returns the results of each.
pub fn both<T>(config: impl Fn(&Syslog, &Path) -> String, play: impl Fn(Played) -> T) -> (T, Option<T>) {
    let folder = Folder::new();
    // Each has a socket path of its own: the system may keep the socket of an ended program for a moment.
    let begin = |name: &str| (Syslog::new(), folder.0.join(name));
    let (log, socket) = begin("ours");
    let program = Manylane::start_ready(&config(&log, &socket));
    let ours = play(Played { log, socket });
    drop(program);
    let run_haproxy = |n: usize| {
        let (log, socket) = begin(&format!("theirs-{n}"));
        let _haproxy = Haproxy::start(&folder.file("haproxy.cfg", &config(&log, &socket)))?;
        let began = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(began.elapsed() < TIMEOUT, "HAProxy does not start");
            manylane_tests::look_again();
        }
        ask(&socket, "show version"); // it answers when all its sockets are bound
        Some(play(Played { log, socket }))
    };
    let theirs = (1..MOST_RUNS_OF_HAPROXY)
        .find_map(|n| catch_unwind(AssertUnwindSafe(|| run_haproxy(n))).ok())
        .unwrap_or_else(|| run_haproxy(MOST_RUNS_OF_HAPROXY));
    if theirs.is_none() {
        println!("There is no HAProxy 3.2: not compared");
    }
    (ours, theirs)
}

/// Creates a log target, and a channel with the texts of its lines.
pub fn log_lines() -> (SocketAddr, mpsc::Receiver<String>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = [0; 65_536];
        while let Ok(length) = socket.recv(&mut line) {
            if send.send(String::from_utf8_lossy(&line[..length]).into_owned()).is_err() {
                return;
            }
        }
    });
    (address, lines)
}
