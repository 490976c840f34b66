//! The program under test and its environment.
//!
//! Tests create the listening sockets, on ports of the kernel's choice, and pass them as `fd@N`. So tests
//! need not wait for the program: early connections wait in the kernel.

#![allow(unreachable_pub)] // no other crate uses it

pub mod dns;
pub mod h2;
pub mod watch;

pub use manylane_tests::program::manylane;

pub use manylane_tests::look_again;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longer than any step takes on a busy machine, and short enough to notice a hang.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder of this test, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("manylane-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A script for `/bin/sh` that runs in any environment.
    pub fn script(&self, name: &str, lines: &str) -> PathBuf {
        let path = self.file(name, &format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{lines}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A listening socket for the program to inherit.
pub fn listener() -> (TcpListener, SocketAddr) {
    listener_at("127.0.0.1:0")
}

/// As [`listener`], at this address.
pub fn listener_at(address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    nix::fcntl::fcntl(&listener, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// `fd@N` of a listener.
pub fn fd(listener: &TcpListener) -> String {
    format!("fd@{}", listener.as_raw_fd())
}

/// An address where nothing listens. It stays bound for as long as the test runs, so that the system gives it
/// to no other program.
pub fn nobody() -> SocketAddr {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let socket = TcpListener::from(socket); // by type only: it never listens
    let address = socket.local_addr().unwrap();
    std::mem::forget(socket);
    address
}

/// An address for a program that binds by itself and cannot take [`own_address`]. The system may give it to
/// another program meanwhile: the caller tries again then.
pub fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// An IP address that no other process uses, so that its ports can be released and bound again.
pub fn own_ip() -> Ipv4Addr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 | a, b, c)
}

/// An address for the programs of one test: each call returns another IP address.
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(64);
    let [_, _, high, low] = own_ip().octets();
    let ip = Ipv4Addr::new(127, NEXT.fetch_add(1, Ordering::Relaxed) as u8, high, low);
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

/// Sends a request over a connection of its own and returns the status of the response.
///
/// # Errors
/// What arrived instead.
pub fn status_of(address: SocketAddr) -> Result<u16, String> {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    };
    let answer = ask().map_err(|error: std::io::Error| error.to_string())?;
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(answer)
}

/// Clients that send requests one after another, each over a new connection, until one fails.
pub struct Traffic {
    over: Arc<AtomicBool>,
    served: Arc<AtomicU32>,
    clients: Vec<JoinHandle<Result<(), String>>>,
}

impl Traffic {
    /// Starts clients of this address. `is_right` accepts the status of a response.
    pub fn start(address: SocketAddr, is_right: fn(u16) -> bool) -> Self {
        let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let client = |_| {
            let (over, served) = (over.clone(), served.clone());
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let status = status_of(address)?;
                    if !is_right(status) {
                        return Err(status.to_string());
                    }
                    served.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        let clients = (0..4).map(client).collect();
        Self { over, served, clients }
    }

    /// Waits until some more requests have succeeded, or one has failed.
    pub fn goes_on(&self) {
        let before = self.served.load(Ordering::Relaxed);
        while self.served.load(Ordering::Relaxed) < before + 50
            && self.clients.iter().all(|client| !client.is_finished())
        {
            look_again();
        }
    }

    /// Stops the clients. Panics if a request has failed.
    pub fn ends_well(self) {
        self.over.store(true, Ordering::Relaxed);
        for client in self.clients {
            assert_eq!(client.join().unwrap(), Ok(()));
        }
    }
}

/// Number of replacements under load: 100 in the long run (`make long-reloads`), else `few`.
pub fn reloads(few: usize) -> usize {
    if std::env::var_os("MANYLANE_LONG").is_some() { 100 } else { few }
}

/// Number of descriptors of a process.
pub fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// A connection with a read timeout.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Serves each connection with `serve` on its own thread.
pub fn origin(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    origin_of(TcpListener::bind("127.0.0.1:0").unwrap(), serve)
}

/// As [`origin`], with this listener.
pub fn origin_of(listener: TcpListener, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    let serve = std::sync::Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// An origin that responds with its name and closes.
pub fn named(name: &'static str) -> SocketAddr {
    origin(move |mut stream| {
        let _ = stream.write_all(name.as_bytes());
    })
}

/// An origin that echoes, and closes when the client does.
pub fn echo() -> SocketAddr {
    origin(|mut stream| {
        let mut copy = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut copy);
        let _ = copy.shutdown(Shutdown::Write);
    })
}

/// Resets a connection at once. A close with `SO_LINGER` 0 resets it only when the last copy of the
/// descriptor closes, and a child of another test has a copy until it executes its program.
pub fn reset(stream: TcpStream) {
    rustix::net::connect_unspec(stream).unwrap();
}

/// Reads to the end of a connection. Returns how it ended.
pub fn end_of(stream: &mut TcpStream) -> Result<(), std::io::ErrorKind> {
    stream.read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.kind())
}

/// Returns everything until the end.
pub fn read_all(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Requests a path of a frontend that responds with 200, over a connection of its own.
pub fn get(address: SocketAddr, path: &str) {
    let mut client = connect(address);
    write!(client, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let answer = read_all(&mut client);
    assert!(answer.contains(" 200 "), "{answer}");
}

/// A program that is killed when its test ends.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// The running program.
pub struct Manylane {
    child: Ended,
    _folder: Folder,
}

pub fn command() -> Command {
    let mut command = Command::new(manylane());
    command.stdin(Stdio::null());
    command
}

/// Makes a named pipe. A process that reads it blocks until the returned file is dropped, at the latest when
/// the test ends.
pub fn held_pipe(path: &Path) -> File {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

/// True if the program was built with assertions, which take time and memory: the tests may be a build of
/// another kind.
pub fn has_assertions() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        let shown = command().arg("-vv").output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap();
        shown.lines().find_map(|line| line.strip_prefix("Debug assertions : ")).expect("it says so") == "on"
    });
    *HAS
}

impl Manylane {
    /// Starts it with this configuration, preceded by common timeouts.
    pub fn start(config: &str) -> Self {
        Self::start_with(config, &[])
    }

    pub fn start_with(config: &str, arguments: &[&str]) -> Self {
        Self::start_as(config, |command| {
            command.args(arguments);
        })
    }

    /// Starts it with changes to its command.
    pub fn start_as(config: &str, change: impl FnOnce(&mut Command)) -> Self {
        let folder = Folder::new();
        let file = folder.file("test.cfg", config);
        let mut command = command();
        command.arg("-f").arg(file);
        change(&mut command);
        Self { child: Ended(command.spawn().unwrap()), _folder: folder }
    }

    /// Starts it and returns the lines of its standard error.
    pub fn start_heard(
        config: &str,
        arguments: &[&str],
    ) -> (Self, std::io::Lines<std::io::BufReader<std::process::ChildStderr>>) {
        Self::start_heard_as(config, command().args(arguments))
    }

    /// Starts it as this command, and returns the lines of its standard error.
    pub fn start_heard_as(
        config: &str,
        command: &mut Command,
    ) -> (Self, std::io::Lines<std::io::BufReader<std::process::ChildStderr>>) {
        let folder = Folder::new();
        let file = folder.file("test.cfg", config);
        let mut child = Ended(command.arg("-f").arg(file).stderr(Stdio::piped()).spawn().unwrap());
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.0.stderr.take().unwrap()));
        (Self { child, _folder: folder }, lines)
    }

    /// Starts it and waits until all lanes are ready.
    pub fn start_ready(config: &str) -> Self {
        Self::start_ready_as(config, &mut command())
    }

    /// Starts it as this command, and waits until all lanes are ready.
    pub fn start_ready_as(config: &str, command: &mut Command) -> Self {
        let (program, mut said) = Self::start_heard_as(config, command.arg("-V"));
        while !said.next().unwrap().unwrap().contains("lanes are ready") {}
        std::thread::spawn(move || said.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        program
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Returns its written memory in kilobytes. Pages of its file do not count: how many are mapped depends
    /// on the system's read-ahead.
    pub fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.0.id() as i32), signal).unwrap();
    }

    /// Waits for its end and returns the status.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.0.wait().unwrap()
    }

    /// Returns true while it runs.
    pub fn runs(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_none()
    }
}

/// Runs `-c` on a configuration.
pub fn check(config: &str, arguments: &[&str]) -> Output {
    let folder = Folder::new();
    let file = folder.file("test.cfg", config);
    command().arg("-c").arg("-f").arg(file).args(arguments).output().unwrap()
}

/// [`DEFAULTS`] for tests that measure memory: a report of a lane that got no processor for a second reads
/// debug symbols into it.
pub fn measured() -> String {
    DEFAULTS.replace("nbthread 2", "nbthread 2\n warn-blocked-traffic-after 1s")
}

/// Settings of each proxy in the tests.
pub const DEFAULTS: &str =
    "global\n nbthread 2\ndefaults\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n";

/// [`DEFAULTS`] with one lane. `nbthread 1` in a section before it has no effect: the last `nbthread` holds.
pub const ONE_LANE: &str =
    "global\n nbthread 1\ndefaults\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n";
