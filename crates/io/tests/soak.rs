//! Random connects, sends, half closes, closes and resets between two processes of two lanes; at the end
//! nothing is left.
//!
//! Each lane of each process listens, and has clients that connect to the lanes of the other process. So a
//! process has about as many connections as there are clients in both, half of them accepted: 1,000 open
//! together, for six seconds with each driver; with `MANYLANE_LONG=1` 10,000, for ten minutes. There are two
//! processes, since both ends in one would need twice the descriptors. The test prints the seed, and takes it
//! from `MANYLANE_SEED`; `MANYLANE_DRIVER` selects one driver.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use manylane_buf::Chain;
use manylane_io::{Driver, DriverChoice, Io, Kind, Shutdown, Stream, tcp_listener, tcp_socket};
use manylane_sched::{Class, Config, Lane, Round, TaskKind, Time};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

static CLIENT: TaskKind = TaskKind::new("soak client");
static SERVER: TaskKind = TaskKind::new("soak server");

/// Number of lanes of a process.
const LANES: usize = 2;
/// Additional time for a busy machine to have all connections open.
const MOST_LATE: Duration = Duration::from_secs(60);
/// Marks the second process, and names its driver.
const CHILD: &str = "MANYLANE_SOAK_CHILD";

/// Size of the run.
#[derive(Clone, Copy)]
struct Plan {
    length: Duration,
    /// Number of connections that a process must have had open at one moment.
    together: usize,
    /// Number of clients of each lane.
    clients: usize,
    /// Longest pause of a client. A connection lives some ten times that.
    still: Duration,
}

impl Plan {
    fn get() -> Self {
        if std::env::var("MANYLANE_LONG").is_ok_and(|value| value == "1") {
            let length = Duration::from_secs(600);
            Self { length, together: 10_000, clients: 2_750, still: Duration::from_secs(5) }
        } else {
            let length = Duration::from_secs(6);
            Self { length, together: 1_000, clients: 400, still: Duration::from_millis(300) }
        }
    }
}

/// xorshift64*
#[derive(Clone)]
struct Random(Rc<Cell<u64>>);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Rc::new(Cell::new(seed | 1)))
    }

    fn below(&self, n: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }

    fn millis(&self, below: Duration) -> Duration {
        Duration::from_millis(1 + self.below(below.as_millis() as u64))
    }
}

/// Number of open connections of a process, its maximum so far, and whether the other has reached the
/// required number.
struct Together {
    open: AtomicUsize,
    most: AtomicUsize,
    other_is_full: AtomicBool,
}

static TOGETHER: Together =
    Together { open: AtomicUsize::new(0), most: AtomicUsize::new(0), other_is_full: AtomicBool::new(false) };

enum Event {
    LaneIsOver,
    OtherIsOver,
}

/// Counts while it lives.
struct Counted;

impl Counted {
    fn new() -> Self {
        let open = TOGETHER.open.fetch_add(1, Ordering::Relaxed) + 1;
        TOGETHER.most.fetch_max(open, Ordering::Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        TOGETHER.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State shared by the tasks of a lane.
#[derive(Clone)]
struct Soak {
    io: Io,
    plan: Plan,
    ends: Instant,
    random: Random,
    /// Listeners of the other process.
    others: Rc<[SocketAddr]>,
    connected: Rc<Cell<u64>>,
    clients: Rc<Cell<usize>>,
    last_client: Rc<RefCell<Option<Waker>>>,
}

impl Soak {
    /// True once both processes have had the required number of connections. No client ends before, and the
    /// run goes on until then.
    fn is_full(&self) -> bool {
        TOGETHER.most.load(Ordering::Relaxed) >= self.plan.together
            && TOGETHER.other_is_full.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        let late = Instant::now().checked_duration_since(self.ends);
        late.is_some_and(|late| self.is_full() || late > MOST_LATE)
    }

    /// Makes one connection after the other.
    async fn client(self) {
        while !self.is_over() {
            self.talk().await;
        }
        self.clients.set(self.clients.get() - 1);
        if self.clients.get() == 0
            && let Some(waker) = self.last_client.take()
        {
            waker.wake();
        }
    }

    async fn talk(&self) {
        let (here, random) = (self.io.here(), &self.random);
        let address = self.others[random.below(self.others.len() as u64) as usize];
        let socket = tcp_socket(&address).unwrap();
        // Most clients are patient; some give up early.
        let timeout = if random.below(10) == 0 { random.below(300) } else { 10_000 };
        let connecting = self.io.connect(socket, address);
        let Ok(Ok(stream)) = here.timeout(Duration::from_millis(timeout), connecting).await else { return };
        let _counted = Counted::new();
        self.connected.set(self.connected.get() + 1);
        while !self.is_full() && !self.is_over() {
            if matches!(here.timeout(self.plan.still, stream.recv()).await, Ok(Ok(None) | Err(_))) {
                break;
            }
        }
        for _ in 0..random.below(20) {
            if self.is_over()
                || matches!(
                    here.timeout(random.millis(self.plan.still), stream.recv()).await,
                    Ok(Ok(None) | Err(_))
                )
            {
                break;
            }
            let size = [1, 100, 2048, 5000, 70_000][random.below(5) as usize];
            let mut chain = bytes(size);
            let wait = random.millis(Duration::from_millis(100));
            if !matches!(here.timeout(wait, stream.send(&mut chain)).await, Ok(Ok(()))) {
                break;
            }
            for _ in 0..random.below(4) {
                if !matches!(here.timeout(wait, stream.recv()).await, Ok(Ok(Some(_)))) {
                    break;
                }
            }
        }
        part(&self.io, stream, random).await;
    }

    /// Echoes, or aborts at some point.
    async fn serve(self, stream: Stream) {
        let _counted = Counted::new();
        let (here, random) = (self.io.here(), &self.random);
        // Counts bytes, not receives: a message may take more receives with one driver than with the other.
        let mut left = random.below(600_000) as usize;
        while left > 0 {
            match here.timeout(2 * self.plan.still, stream.recv()).await {
                Ok(Ok(Some(segment))) => {
                    left = left.saturating_sub(segment.len());
                    let mut chain = Chain::from(segment);
                    // Sometimes the task does not wait for the end.
                    let _ =
                        here.timeout(Duration::from_millis(random.below(50)), stream.send(&mut chain)).await;
                }
                Err(_) if !self.is_full() && !self.is_over() => {}
                _ => break,
            }
        }
        part(&self.io, stream, random).await;
    }
}

fn bytes(n: usize) -> Chain {
    let mut chain = Chain::new();
    chain.append(&vec![0x5a; n]).unwrap();
    chain
}

/// Ends a connection in one of several ways. Those that wait for bytes handed over have a timeout: two ends
/// that no longer read would wait for each other.
async fn part(io: &Io, stream: Stream, random: &Random) {
    let timeout = Duration::from_secs(1);
    match random.below(5) {
        0 => {
            let _ = io.here().timeout(timeout, stream.close()).await;
        }
        1 => {
            let _ = io.here().timeout(timeout, stream.shutdown(Shutdown::Write)).await;
        }
        2 => {
            let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)); // a reset
        }
        3 => {
            let _ = io.here().timeout(timeout, stream.shutdown(Shutdown::Both)).await;
        }
        _ => {}
    }
}

/// Runs a lane with a listener and clients, and returns the number of its connections. Calls `happens` when
/// its clients are over; goes on serving until `stop` reports that those of the other process are.
fn lane(
    kind: Kind,
    seed: u64,
    plan: Plan,
    others: &[SocketAddr],
    own: TcpListener,
    happens: &mpsc::Sender<Event>,
    stop: UnixStream,
) -> u64 {
    let mut lane = Lane::new(Config::new()).unwrap();
    let mut driver = Driver::new(lane.here(), DriverChoice::Only(kind)).unwrap();
    let io = driver.io();
    let soak = Soak {
        io: io.clone(),
        plan,
        ends: Instant::now() + plan.length,
        random: Random::new(seed),
        others: others.into(),
        connected: Rc::default(),
        clients: Rc::new(Cell::new(plan.clients)),
        last_client: Rc::default(),
    };
    let (here, listener) = (io.here(), io.listener(own).unwrap());
    let serving = soak.clone();
    let accepting = here
        .spawn(&SERVER, Class::Normal, async move {
            while let Ok(accepted) = listener.accept().await {
                let stream = accepted.into_stream(&serving.io);
                here.spawn(&SERVER, Class::Normal, serving.clone().serve(stream)).unwrap();
            }
        })
        .unwrap();
    for _ in 0..plan.clients {
        here.spawn(&CLIENT, Class::Normal, soak.clone().client()).unwrap();
    }
    let connected = soak.connected.clone();
    let (happens, stop) = (happens.clone(), io.stream(stop).unwrap());
    let main = async move {
        std::future::poll_fn(|context| {
            if soak.clients.get() == 0 {
                return Poll::Ready(());
            }
            soak.last_client.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
        happens.send(Event::LaneIsOver).unwrap();
        assert!(stop.recv().await.unwrap().is_none());
        here.abort(accepting);
    };
    lane.block_on(&mut driver, main).unwrap();
    // Serving tasks see that their peers are gone; the last closes of a ring go with the next check of the
    // kernel.
    let mut quiet = 0;
    while quiet < 3 {
        let round = lane.round(Time::now());
        quiet = if io.open() == 0 && !round.more { quiet + 1 } else { 0 };
        assert!(quiet == 0 || round.next_timer.is_none(), "a timer is left");
        let more = round.more || io.open() == 0;
        lane.park(&mut driver, &Round { more, ..round }).unwrap();
    }
    let report = manylane_sched::report().into_iter().find(|report| report.lane == lane.id()).unwrap();
    assert_eq!((report.live, report.run_queue()), (0, 0), "tasks are left");
    connected.get()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Raises the limit of descriptors to this number, if the system permits it.
#[allow(unsafe_code)] // two system calls
fn make_room(wanted: u64) {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) }, 0);
    if limits.rlim_cur < wanted {
        limits.rlim_cur = wanted.min(limits.rlim_max);
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) }, 0);
    }
    assert!(
        limits.rlim_cur >= wanted,
        "{wanted} descriptors are needed, and the system allows {}",
        limits.rlim_max
    );
}

/// One process's half, which exchanges lines with the other: its addresses, and the end of its clients.
fn half(kind: Kind, seed: u64, mut other: &UnixStream) {
    let plan = Plan::get();
    make_room(3 * (plan.clients * LANES) as u64);
    let before = descriptors();
    let listeners: Vec<TcpListener> = (0..LANES)
        .map(|_| tcp_listener(&"127.0.0.1:0".parse().unwrap(), 4096, false).unwrap().into())
        .collect();
    let own: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    other.write_all(format!("{}\n", own.join(" ")).as_bytes()).unwrap();
    let mut lines = BufReader::new(other).lines().map(|line| line.expect("the other process goes on"));
    let line = lines.next().expect("the other process says where it listens");
    let others: Vec<SocketAddr> = line.split(' ').map(|address| address.parse().unwrap()).collect();

    TOGETHER.most.store(0, Ordering::Relaxed);
    TOGETHER.other_is_full.store(false, Ordering::Relaxed);
    let (happens, events) = mpsc::channel();
    let mut samples = Vec::new();
    let connections: u64 = std::thread::scope(|scope| {
        let mut stops = Vec::new();
        let lanes: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(n, own)| {
                let (stop, stopped) = UnixStream::pair().unwrap();
                stops.push(stop);
                let (happens, others) = (happens.clone(), &others[..]);
                scope.spawn(move || lane(kind, seed + n as u64, plan, others, own, &happens, stopped))
            })
            .collect();
        scope.spawn(move || {
            for line in lines {
                if line == "over" {
                    return happens.send(Event::OtherIsOver).unwrap();
                }
                assert_eq!(line, "full");
                TOGETHER.other_is_full.store(true, Ordering::Relaxed);
            }
        });
        let (mut left, mut other_is_over, mut said) = (LANES, false, false);
        while left > 0 || !other_is_over {
            match events.recv_timeout(Duration::from_millis(100)) {
                Ok(Event::LaneIsOver) => {
                    left -= 1;
                    if left == 0 {
                        other.write_all(b"over\n").unwrap();
                    }
                }
                Ok(Event::OtherIsOver) => other_is_over = true,
                Err(mpsc::RecvTimeoutError::Timeout) => samples.push(TOGETHER.open.load(Ordering::Relaxed)),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    panic!("a lane, or the other process, has failed")
                }
            }
            if !said && TOGETHER.most.load(Ordering::Relaxed) >= plan.together {
                said = true;
                other.write_all(b"full\n").unwrap();
            }
        }
        drop(stops);
        lanes.into_iter().map(|lane| lane.join().unwrap()).sum()
    });
    let most = TOGETHER.most.load(Ordering::Relaxed);
    let average = samples.iter().sum::<usize>() / samples.len().max(1);
    eprintln!("{kind}: {connections} connections made, {most} open together at most, {average} on average");
    assert!(most >= plan.together, "only {most} connections were open together");
    // From its first report on, even a suppressed one, ThreadSanitizer has a pipe to and from its symbolizer.
    if !cfg!(manylane_tsan) {
        assert_eq!(descriptors(), before, "descriptors are left");
    }
    for pool in manylane_pool::report() {
        assert_eq!(pool.used, 0, "{kind}: {pool}");
    }
    for report in manylane_io::report() {
        assert_eq!(report.open(), 0, "{kind}: {report:?}");
    }
}

/// One test for both drivers, since it reads the counters of the whole process.
#[test]
fn after_random_connects_sends_closes_and_resets_nothing_is_left() {
    let seed = std::env::var("MANYLANE_SEED").ok().and_then(|seed| seed.parse().ok());
    if let Ok(child) = std::env::var(CHILD) {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == child).unwrap();
        let other = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
        return half(kind, seed.unwrap(), &other);
    }
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 0xfeed);
    println!("MANYLANE_SEED={seed}");
    let choice = DriverChoice::from_environment().unwrap();
    for kind in Kind::ALL {
        if choice != DriverChoice::Auto && choice != DriverChoice::Only(kind) || !common::available(kind) {
            continue;
        }
        let (own, other) = UnixStream::pair().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "after_random_connects_sends_closes_and_resets_nothing_is_left", "--nocapture"])
            .env(CHILD, kind.name())
            .env("MANYLANE_SEED", (seed + 0x1000).to_string())
            .stdin(OwnedFd::from(other))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        half(kind, seed, &own);
        drop(own);
        assert!(child.wait().unwrap().success(), "the other process failed");
    }
}
