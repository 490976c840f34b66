//! A program that the bench observes: by its sockets, its standard error, and `/proc`.

use super::Bench;
use crate::proxy::program::Kind;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time limit of any step.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Interval of repeated checks.
const AGAIN: Duration = Duration::from_millis(2);

/// A running program, ended on drop.
pub(super) struct Running {
    pub(super) child: Child,
    pub(super) port: u16,
    control: PathBuf,
    said: Arc<Mutex<String>>,
}

impl Bench {
    /// Path of the run-time socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("control")
    }

    pub(super) fn master(&self) -> PathBuf {
        self.folder.join("master")
    }

    /// Writes the configuration.
    pub(super) fn write(&self, text: &str) -> Result<PathBuf, String> {
        let file = self.folder.join("manage.cfg");
        fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        Ok(file)
    }

    /// Starts a program with a configuration and arguments. It may not serve yet.
    pub(super) fn start(&self, kind: Kind, port: u16, text: &str, words: &[&str]) -> Result<Running, String> {
        let file = self.write(text)?;
        let mut command = Command::new(if kind.is_ours() { &self.manylane } else { &self.haproxy });
        command.args(["-db", "-f"]).arg(&file).args(words);
        if kind.is_ours() {
            command.env("MANYLANE_DRIVER", if kind == Kind::Uring { "io_uring" } else { "epoll" });
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| {
            format!("cannot start {kind}: {error}; `scripts/setup bench` installs the peers")
        })?;
        let said = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let said = said.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    if let Ok(mut said) = said.lock() {
                        said.push_str(&line);
                        said.push('\n');
                    }
                }
            });
        }
        Ok(Running { child, port, control: self.socket(), said })
    }

    /// As [`start`](Self::start), and waits until it serves.
    pub(super) fn serve(&self, kind: Kind, port: u16, text: &str, words: &[&str]) -> Result<Running, String> {
        let mut running = self.start(kind, port, text, words)?;
        until(&format!("{kind} to serve"), || running.answers().is_ok() || running.has_ended())?;
        if running.has_ended() {
            return Err(format!("{kind} does not start: {}", running.said()));
        }
        Ok(running)
    }
}

/// Repeats a check until it succeeds.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > TIMEOUT {
            return Err(format!("waited in vain for {what}"));
        }
        std::thread::sleep(AGAIN);
    }
    Ok(())
}

/// The answer at a socket: its first `keep` bytes, and its length.
pub(super) fn ask(socket: &Path, line: &str, keep: usize) -> Result<(String, usize), String> {
    let failed = |error: std::io::Error| format!("cannot ask '{line}' at {}: {error}", socket.display());
    let mut client = UnixStream::connect(socket).map_err(failed)?;
    client.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    client.write_all(format!("{line}\n").as_bytes()).map_err(failed)?;
    client.shutdown(std::net::Shutdown::Write).map_err(failed)?; // otherwise a master waits for more
    drain(client, keep).map_err(failed)
}

fn drain(mut from: impl Read, keep: usize) -> std::io::Result<(String, usize)> {
    let (mut kept, mut length, mut room) = (Vec::new(), 0, vec![0; 256 << 10]);
    loop {
        let n = from.read(&mut room)?;
        if n == 0 {
            return Ok((String::from_utf8_lossy(&kept).into_owned(), length));
        }
        length += n;
        kept.extend_from_slice(&room[..n.min(keep - kept.len().min(keep))]);
    }
}

impl Running {
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_some())
    }

    /// Its output so far.
    pub(super) fn said(&self) -> String {
        self.said.lock().map(|said| said.clone()).unwrap_or_default()
    }

    /// Number of occurrences of `what` in its output.
    pub(super) fn times(&self, what: &str) -> usize {
        self.said().matches(what).count()
    }

    /// Kinds of tasks that took a lane for `limit` of processor time, as reported by the watchdog if `limit`
    /// is its setting. After ten times `limit`, the watchdog also reports lanes that only waited for a
    /// processor; these are left out, since the load or another process causes them.
    pub(super) fn slices(&self, limit: Duration) -> Vec<String> {
        let said = self.said();
        let reported = said.lines().filter_map(|line| {
            let (before, time) = line.split_once("` has been running for ")?;
            let unit = time.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
            let number: f64 = time.strip_suffix(unit)?.parse().ok()?;
            // the watchdog's minimum is a millisecond
            let seconds = number * if unit == "s" { 1.0 } else { 0.001 };
            (seconds < 10.0 * limit.as_secs_f64())
                .then(|| before.rsplit('`').next().unwrap_or_default().to_owned())
        });
        reported.collect()
    }

    /// Checks that it answers a request itself.
    pub(super) fn answers(&self) -> Result<(), String> {
        self.get("/ready", 12).and_then(|(text, _)| match text.starts_with("HTTP/1.") {
            true => Ok(()),
            false => Err(format!("it answers '{text}'")),
        })
    }

    /// A response: its first `keep` bytes, and its length.
    pub(super) fn get(&self, path: &str, keep: usize) -> Result<(String, usize), String> {
        let failed = |error: std::io::Error| format!("cannot get {path}: {error}");
        let mut client = TcpStream::connect(self.address()).map_err(failed)?;
        client.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).map_err(failed)?;
        drain(client, keep).map_err(failed)
    }

    pub(super) fn ask(&self, line: &str, keep: usize) -> Result<(String, usize), String> {
        ask(&self.control, line, keep)
    }

    pub(super) fn signal(&self, signal: rustix::process::Signal) -> Result<(), String> {
        signal_to(self.pid(), signal)
    }
}

/// Sends a signal to a process.
pub(super) fn signal_to(pid: u32, signal: rustix::process::Signal) -> Result<(), String> {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).ok_or("no such process")?;
    rustix::process::kill_process(pid, signal).map_err(|error| format!("no signal can be sent: {error}"))
}

/// Number of open descriptors of a process.
pub(super) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Resident memory of a process, in KiB.
pub(super) fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Times of a process's serving threads so far: its lanes or, with `all`, all threads.
#[derive(Clone, Copy, Default)]
pub(super) struct Scheduled {
    /// Processor time.
    pub ran: Duration,
    /// Time in which they were runnable without a processor.
    pub waited: Duration,
}

pub(super) fn scheduled(pid: u32, all: bool) -> Scheduled {
    let mut nanos = [0; 2];
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let is_first = thread.file_name().to_str() == Some(&pid.to_string());
        if all || is_first || name.starts_with("lane ") {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            for (sum, field) in nanos.iter_mut().zip(text.split(' ')) {
                *sum += field.parse::<u64>().unwrap_or(0);
            }
        }
    }
    let [ran, waited] = nanos.map(Duration::from_nanos);
    Scheduled { ran, waited }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.signal(rustix::process::Signal::TERM);
        let begun = Instant::now();
        while !self.has_ended() {
            if begun.elapsed() > Duration::from_secs(5) {
                let _ = self.child.kill();
            }
            std::thread::sleep(AGAIN);
        }
    }
}
