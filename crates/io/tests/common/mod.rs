//! Test bodies that run on both drivers.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test file uses its part

use manylane_buf::{Chain, Cluster};
use manylane_io::{Driver, DriverChoice, Io, IoReport, Kind, Listener, Stream};
use manylane_sched::{Class, Config, Lane, TaskKind};
use rustix::event::{PollFd, PollFlags};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Makes a test for each driver of each body `fn(Kind)`.
#[macro_export]
macro_rules! on_both_drivers {
    ($($(#[$meta:meta])* $name:ident;)+) => {
        mod epoll {
            $($(#[$meta])* #[test] fn $name() { super::$name(manylane_io::Kind::Epoll) })+
        }
        mod io_uring {
            $($(#[$meta])* #[test] fn $name() {
                if $crate::common::available(manylane_io::Kind::IoUring) {
                    super::$name(manylane_io::Kind::IoUring)
                }
            })+
        }
    };
}

/// Returns whether the kernel allows a driver here, and the reason if not.
pub fn available(kind: Kind) -> bool {
    let lane = Lane::new(Config::new()).unwrap();
    match Driver::new(lane.here(), DriverChoice::Only(kind)) {
        Ok(_) => true,
        Err(error) => {
            // Once for each process, since nearly every test calls it.
            static SAID: std::sync::Once = std::sync::Once::new();
            SAID.call_once(|| not_shown(&kind.to_string(), error));
            false
        }
    }
}

/// Prints why something is not tested on this machine, around the harness, which hides the output of passing
/// tests.
pub fn not_shown(what: &str, why: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "NOT SHOWN HERE: {what}: {why}");
}

/// Runs a future on a new lane of this thread, and checks that nothing of it is left.
pub fn run<F: Future<Output = T> + 'static, T: 'static>(kind: Kind, body: impl FnOnce(Io) -> F) -> T {
    run_with(Config::new(), kind, body)
}

/// As above, on a lane with this configuration.
pub fn run_with<F: Future<Output = T> + 'static, T: 'static>(
    config: Config,
    kind: Kind,
    body: impl FnOnce(Io) -> F,
) -> T {
    let mut lane = Lane::new(config).unwrap();
    let mut driver = Driver::new(lane.here(), DriverChoice::Only(kind)).unwrap();
    assert_eq!(driver.kind(), kind);
    let io = driver.io();
    let future = body(io.clone());
    let output = lane.block_on(&mut driver, future).unwrap();
    let mut rounds = 0;
    while io.open() > 0 {
        rounds += 1;
        assert!(rounds < 1000, "{} descriptors are left", io.open());
        let round = lane.round(manylane_sched::Time::now());
        lane.park(&mut driver, &manylane_sched::Round { more: true, ..round }).unwrap();
    }
    output
}

pub fn spawn(io: &Io, future: impl Future<Output = ()> + 'static) {
    static KIND: TaskKind = TaskKind::new("test");
    io.here().spawn(&KIND, Class::Normal, future).unwrap();
}

/// Returns two ends of a local socket pair.
pub fn pair(io: &Io) -> (Stream, Stream) {
    let (a, b) = UnixStream::pair().unwrap();
    (io.stream(a).unwrap(), io.stream(b).unwrap())
}

/// Returns a listener on a free port.
pub fn listener(io: &Io) -> (Listener, SocketAddr) {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    (io.listener(socket).unwrap(), address)
}

pub async fn connect(io: &Io, address: SocketAddr) -> Stream {
    let socket = manylane_io::tcp_socket(&address).unwrap();
    io.connect(socket, address).await.unwrap()
}

/// Returns two ends of a TCP connection.
pub async fn tcp_pair(io: &Io) -> (Stream, Stream) {
    let (listener, address) = listener(io);
    let client = connect(io, address).await;
    (client, listener.accept().await.unwrap().into_stream(io))
}

pub fn chain(bytes: &[u8]) -> Chain {
    let mut chain = Chain::new();
    chain.append(bytes).unwrap();
    chain
}

/// Returns a chain of this many clusters, each with a few bytes.
pub fn chain_of(pieces: &[&[u8]]) -> Chain {
    let mut chain = Chain::new();
    for piece in pieces {
        chain.push_back(Cluster::with(piece).unwrap().into_segment()).unwrap();
    }
    chain
}

/// Receives until this many bytes are there.
pub async fn exactly(stream: &Stream, n: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < n {
        all.extend_from_slice(&stream.recv().await.unwrap().expect("the stream goes on"));
    }
    assert_eq!(all.len(), n);
    all
}

/// Receives up to the end of the stream.
pub async fn to_end(stream: &Stream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(segment) = stream.recv().await.unwrap() {
        all.extend_from_slice(&segment);
    }
    all
}

/// Waits until the lane has made this many rounds, and the driver as many checks of the kernel.
pub async fn rounds(io: &Io, n: usize) {
    for _ in 0..n {
        let round = io.here().now();
        while io.here().now() == round {
            io.here().yield_now().await;
        }
    }
}

/// Waits for a condition for which there is no waker.
pub async fn until(io: &Io, mut holds: impl FnMut() -> bool) {
    while !holds() {
        rounds(io, 1).await;
    }
}

/// Returns the kernel's present readiness of a descriptor.
pub fn is_ready(fd: impl AsFd, what: PollFlags) -> bool {
    let mut fds = [PollFd::new(&fd, what)];
    rustix::event::poll(&mut fds, Some(&rustix::fs::Timespec::default())).unwrap();
    fds[0].revents().intersects(what)
}

/// Returns the counters of the lane's driver.
pub fn counted(io: &Io) -> IoReport {
    let lane = io.here().lane();
    manylane_io::report().into_iter().find(|report| report.lane == lane).unwrap()
}

/// Runs code that has `n` bytes sent to a receiving stream, and waits until the driver has them, if it
/// receives ahead of requests.
pub async fn received_ahead(io: &Io, n: u64, send: impl AsyncFnOnce()) {
    let before = counted(io).bytes_in;
    send().await;
    if io.kind() == Kind::IoUring {
        until(io, || counted(io).bytes_in == before + n).await;
    }
}

/// Makes this thread's `calls`, and those of threads that it starts, fail with `errno` from here on. Returns
/// `false` if the kernel has no filters.
#[allow(unsafe_code)] // system calls
pub fn forbid(calls: &[libc::c_long], errno: i32) -> bool {
    // SAFETY: these functions only compute numbers.
    let step = |code: u32, k: u32| unsafe { libc::BPF_STMT(code as u16, k) };
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)]; // the call's number
    for &call in calls {
        // SAFETY: as above.
        program.push(unsafe { libc::BPF_JUMP((libc::BPF_JMP | libc::BPF_JEQ) as u16, call as u32, 0, 1) });
        program.push(step(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(step(libc::BPF_RET, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: numbers, and a filter that lives until after the call.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    }
}

/// Returns bytes that depend on their position.
pub fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}
