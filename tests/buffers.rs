//! `tune.buffers.limit`: connections wait for buffers, none is dropped, and all complete (R-D4).

use crate::common;

use common::{DEFAULTS, Folder, Manylane, TIMEOUT, fd, listener, origin_of};
use manylane_io::options::{SocketOption, set_option};
use manylane_io::{DriverChoice, Kind};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// Buffers of the process, and their size in bytes. Two lanes share them.
const LIMIT: usize = 32;
const BYTES: usize = LIMIT * (16 << 10);
const CLIENTS: usize = 64;
/// Larger than what the kernel buffers of a message with these socket buffers: large enough on one side for
/// bulk reads, small on the other.
const MESSAGE: usize = 1 << 20;
const SENT: usize = 128 << 10;
const TAKEN: i32 = 4096;

/// Peers that must not read yet wait here.
#[derive(Clone, Default)]
struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let (open, opened) = &*self.0;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// Bytes of clusters, headers included, that io_uring keeps for the kernel on two lanes and that no limit
/// covers.
fn ring() -> usize {
    let (driver, _) = DriverChoice::from_environment().unwrap().settle(); // as the program under test does
    if driver == Kind::IoUring { 2 * 256 * (128 + 2048) } else { 0 }
}

/// Bytes of allocated clusters, and of those in use.
fn clusters(control: &Path) -> (usize, usize) {
    if !control.exists() {
        return (0, 0); // the program is not ready yet
    }
    let mut client = UnixStream::connect(control).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"show pools\n").unwrap();
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    let number = |line: &str, what: &str| -> usize {
        let before = line.split(what).next().unwrap().trim_end();
        before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let pools = || said.lines().filter(|line| line.contains("Pool cluster "));
    let sum = |what| pools().map(|line| number(line, " bytes)") * number(line, what)).sum();
    (sum("allocated"), sum("used"))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    /// HTTP responses to clients that read late.
    Responses,
    /// HTTP requests to servers that read late.
    Requests,
    /// As `Responses`, in TCP mode.
    Plain,
}

/// A connection with small buffers from the start.
fn connect(address: SocketAddr) -> TcpStream {
    let socket = manylane_io::tcp_socket(&address).unwrap();
    set_option(socket.as_fd(), SocketOption::ReceiveBuffer, TAKEN).unwrap();
    rustix::io::ioctl_fionbio(&socket, false).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Reads a head.
fn head(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if !stream.read(&mut byte).is_ok_and(|n| n == 1) {
            return false;
        }
        head.push(byte[0]);
    }
    true
}

/// A server of the case; it reads bodies once `latch` is open.
fn server(case: Case, latch: &Latch) -> SocketAddr {
    let latch = latch.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_option(listener.as_fd(), SocketOption::ReceiveBuffer, TAKEN).unwrap();
    origin_of(listener, move |mut stream| {
        let body = vec![b'x'; MESSAGE];
        match case {
            Case::Responses => {
                while head(&mut stream) {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {MESSAGE}\r\n\r\n");
                    if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
                        return;
                    }
                }
            }
            Case::Requests => {
                let mut body = body;
                while head(&mut stream) {
                    latch.pass();
                    stream.read_exact(&mut body).unwrap();
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
                }
            }
            Case::Plain => {
                let _ = stream.read_exact(&mut [0]);
                let _ = stream.write_all(&body);
            }
        }
    })
}

/// A client of the case; returns the number of body bytes received.
fn client(case: Case, address: SocketAddr, latch: &Latch) -> usize {
    let mut stream = connect(address);
    match case {
        Case::Responses => stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(),
        Case::Requests => {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {MESSAGE}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&vec![b'x'; MESSAGE]).unwrap();
        }
        Case::Plain => stream.write_all(b"x").unwrap(),
    }
    if case != Case::Requests {
        latch.pass();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    let said = String::from_utf8_lossy(&got[..got.len().min(100)]);
    assert!(case == Case::Plain || said.starts_with("HTTP/1.1 200 "), "{case:?}: {said}");
    let head = got.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
    got.len() - head
}

/// Runs many slow clients until `pressed` accepts the bytes of clusters in use, then lets all read. Returns
/// the maximum of allocated bytes.
fn run(case: Case, limit: usize, pressed: impl Fn(usize) -> bool) -> usize {
    let (socket, address) = listener();
    set_option(socket.as_fd(), SocketOption::SendBuffer, SENT as i32).unwrap();
    let folder = Folder::new();
    let control = folder.0.join("control");
    let latch = Latch::default();
    let server = server(case, &latch);
    let mode = if case == Case::Plain { "tcp" } else { "http" };
    let config = format!(
        "global\n nosplice\n stats socket {}\n tune.buffers.limit {limit}\n \
         tune.sndbuf.server {SENT}\n{DEFAULTS} mode {mode}\nlisten l\n bind {}\n server s {server}\n",
        control.display(),
        fd(&socket)
    );
    let _program = Manylane::start(&config);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let latch = latch.clone();
            std::thread::spawn(move || client(case, address, &latch))
        })
        .collect();
    let begin = Instant::now();
    let mut most = 0;
    let mut used = || {
        let (allocated, used) = clusters(&control);
        most = most.max(allocated);
        used
    };
    while !pressed(used()) {
        assert!(begin.elapsed() < TIMEOUT, "{case:?}, limit {limit}: {} bytes", used());
        manylane_tests::look_again();
    }
    latch.open();
    let body = if case == Case::Requests { 2 } else { MESSAGE };
    for client in clients {
        assert_eq!(client.join().unwrap(), body, "{case:?}, limit {limit}: no message is cut");
    }
    let begin = Instant::now();
    while used() > if limit == 0 { ring() } else { 0 } {
        assert!(begin.elapsed() < TIMEOUT, "{case:?}, limit {limit}: {} are left", used());
        manylane_tests::look_again();
    }
    most
}

fn slow_clients_complete_within_the_limit(case: Case) {
    // Without a limit more is held, so the limit matters.
    run(case, 0, |used| used > BYTES + ring());
    let most = run(case, LIMIT, |used| used >= BYTES / 8);
    assert!(most <= BYTES, "{case:?}: {most} bytes at once");
}

#[test]
fn slow_clients_with_large_responses_complete_within_the_limit_of_buffers() {
    slow_clients_complete_within_the_limit(Case::Responses);
}

#[test]
fn large_requests_to_a_slow_server_complete_within_the_limit_of_buffers() {
    slow_clients_complete_within_the_limit(Case::Requests);
}

#[test]
fn slow_clients_of_tcp_complete_within_the_limit_of_buffers() {
    slow_clients_complete_within_the_limit(Case::Plain);
}
