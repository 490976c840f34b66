//! The load: clients and servers of the proxy, on two threads, each with its own processor.
//!
//! Each thread has one `epoll` with its half of the clients and its part of the proxy's connections. A client
//! sends its next request when the response to the last one is complete (closed loop), or when it is due
//! (fixed rate). Every response is checked.

mod client;
mod message;
mod origin;

pub(crate) use message::Message;

use client::{Client, Progress};
use origin::Served;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The traffic through the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    /// Sent by clients.
    pub(crate) request: Message,
    /// Sent by servers.
    pub(crate) response: Message,
    /// Bytes of body that clients must get.
    pub(crate) expected: u64,
    /// Number of clients with open connections.
    pub(crate) clients: usize,
    /// Each request has its own connection.
    pub(crate) close: bool,
}

/// Results of a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase {
    /// Answered requests.
    pub(crate) requests: u64,
    /// Time from the first request to the last response.
    pub(crate) time: Duration,
    /// Latencies in microseconds, sorted.
    pub(crate) latencies: Vec<u32>,
}

impl Phase {
    /// A percentile of the latencies, in microseconds.
    pub(crate) fn percentile(&self, percent: f64) -> u32 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (self.latencies.len() as f64 * percent / 100.0).ceil() as usize;
        self.latencies.get(at.saturating_sub(1).min(last)).copied().unwrap_or(0)
    }
}

/// The timing of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arrival {
    /// A client sends when it has its response.
    Closed,
    /// Each client sends once, a few at a time.
    Once,
    /// This many requests per second, over all clients.
    Rate(f64),
}

enum Order {
    Open(Arc<Traffic>, SocketAddr, usize),
    Go(Arc<AtomicI64>, Arrival),
    Close,
}

type Report = Result<Vec<u32>, String>;

/// Active clients of a thread if each sends once.
const AT_ONCE: usize = 32;

/// Threads of the load.
const THREADS: usize = 2;

/// Clients and servers, idle between orders.
#[derive(Debug)]
pub(crate) struct Load {
    workers: Vec<(Sender<Order>, Receiver<Report>, OwnedFd)>,
    origin: SocketAddr,
}

impl Load {
    /// Starts the threads; their servers listen on all addresses of the loopback.
    ///
    /// # Errors
    /// A sentence if the system refuses something.
    pub(crate) fn start() -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("cannot start the load: {error}");
        let mut port = 0;
        let mut workers = Vec::new();
        for number in 0..THREADS {
            let listener = listener(port).map_err(|error| fail(error.into()))?;
            port = listener.local_addr().map_err(fail)?.port();
            let (orders, inbox) = channel();
            let (outbox, reports) = channel();
            let wake_fd = eventfd(0, EventfdFlags::NONBLOCK).map_err(|error| fail(error.into()))?;
            let mut worker =
                Worker::new(listener, wake_fd.try_clone().map_err(fail)?, inbox, outbox).map_err(fail)?;
            std::thread::spawn(move || {
                pin_to(number);
                worker.run();
            });
            workers.push((orders, reports, wake_fd));
        }
        Ok(Self { workers, origin: SocketAddr::from(([127, 0, 0, 1], port)) })
    }

    /// The servers' address.
    pub(crate) fn origin(&self) -> SocketAddr {
        self.origin
    }

    /// Connects the clients to the proxy at `to`.
    ///
    /// # Errors
    /// A sentence if that fails.
    pub(crate) fn open(&self, traffic: &Arc<Traffic>, to: SocketAddr) -> Result<(), String> {
        let share = |n| (traffic.clients + n) / THREADS;
        self.all(|n| Order::Open(traffic.clone(), to, share(n))).map(drop)
    }

    /// Makes the clients send `requests` requests.
    ///
    /// # Errors
    /// A sentence if a response is unexpected.
    pub(crate) fn go(&self, requests: u64, arrival: Arrival) -> Result<Phase, String> {
        let left = Arc::new(AtomicI64::new(requests as i64));
        let started = Instant::now();
        let mut latencies = self.all(|_| Order::Go(left.clone(), arrival))?;
        let time = started.elapsed();
        latencies.sort_unstable();
        Ok(Phase { requests: latencies.len() as u64, time, latencies })
    }

    /// Closes the clients' connections.
    pub(crate) fn close(&self) {
        let _ = self.all(|_| Order::Close);
    }

    /// Gives all workers an order, and waits for their reports.
    fn all(&self, order: impl Fn(usize) -> Order) -> Result<Vec<u32>, String> {
        for (number, (orders, _, wake_fd)) in self.workers.iter().enumerate() {
            orders.send(order(number)).map_err(|_| "the load has ended")?;
            let _ = rustix::io::write(wake_fd, &1u64.to_ne_bytes()); // it cannot be full
        }
        let mut latencies = Vec::new();
        let mut failure = None;
        for (_, reports, _) in &self.workers {
            match reports.recv_timeout(Duration::from_secs(60)) {
                Ok(Ok(mut some)) => latencies.append(&mut some),
                Ok(Err(sentence)) => failure = Some(sentence),
                Err(_) => failure = Some("the load hangs: no response for 60 s".into()),
            }
        }
        failure.map_or(Ok(latencies), Err)
    }
}

/// A thread's listener on the shared port; the kernel distributes connections among them.
fn listener(port: u16) -> rustix::io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &SocketAddr::from(([0, 0, 0, 0], port)))?;
    listen(&socket, 4096)?;
    Ok(socket.into())
}

fn pin_to(number: usize) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = rustix::thread::CpuSet::new();
    set.set(number % processors);
    let _ = rustix::thread::sched_setaffinity(None, &set); // without it, the figures vary more
}

/// Kinds of events, in the upper half of their data.
const WAKE_FD: u64 = 0;
const LISTENER: u64 = 1;
const CLIENT: u64 = 2;
const SERVED: u64 = 3;
const TIMER: u64 = 4;

/// A thread of the load.
struct Worker {
    epoll: OwnedFd,
    listener: TcpListener,
    wake_fd: OwnedFd,
    /// Expires when the next request is due, since `epoll_pwait` waits for full milliseconds, the time of
    /// eight requests.
    timer: OwnedFd,
    inbox: Receiver<Order>,
    outbox: Sender<Report>,
    served: Vec<Option<Served>>,
    free: Vec<usize>,
    clients: Vec<Client>,
    traffic: Option<(Arc<Traffic>, SocketAddr)>,
    phase: Option<InFlight>,
    room: Vec<u8>,
}

/// State of active requests.
struct InFlight {
    left: Arc<AtomicI64>,
    arrival: Arrival,
    busy: usize,
    /// Idle clients in the order of their turns, and the time of the next request.
    idle: VecDeque<usize>,
    due: Instant,
    latencies: Vec<u32>,
}

impl InFlight {
    /// Takes a request from the remaining ones; false if there are none.
    fn take(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

impl Worker {
    fn new(
        listener: TcpListener,
        wake_fd: OwnedFd,
        inbox: Receiver<Order>,
        outbox: Sender<Report>,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER << 32), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &wake_fd, epoll::EventData::new_u64(WAKE_FD << 32), epoll::EventFlags::IN)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        // Edge-triggered, so that the timer need not be read.
        let once = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER << 32), once)?;
        Ok(Self {
            epoll,
            listener,
            wake_fd,
            timer,
            inbox,
            outbox,
            served: Vec::new(),
            free: Vec::new(),
            clients: Vec::new(),
            traffic: None,
            phase: None,
            room: vec![0; 256 << 10],
        })
    }

    fn run(&mut self) {
        let mut events = Vec::with_capacity(256);
        loop {
            events.clear();
            let timeout = self.pause();
            let waited =
                epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            if waited.is_err() {
                continue; // interrupted
            }
            for event in &events {
                let data = event.data.u64();
                let index = data as u32 as usize;
                let done = match data >> 32 {
                    CLIENT => self.client(index),
                    SERVED => self.serve(index),
                    LISTENER => self.accept(),
                    TIMER => Ok(()), // handled below
                    _ => match self.orders() {
                        Ok(true) => Ok(()),
                        Ok(false) => return, // the load was dropped
                        Err(sentence) => Err(sentence),
                    },
                };
                if let Err(sentence) = done {
                    self.fail(sentence);
                }
            }
            if let Err(sentence) = self.send_what_is_due() {
                self.fail(sentence);
            }
        }
    }

    /// How long to wait for events. If a request will be due, the timer is one of them.
    fn pause(&self) -> Option<Timespec> {
        let phase = self.phase.as_ref().filter(|phase| matches!(phase.arrival, Arrival::Rate(_)))?;
        if phase.idle.is_empty() {
            return None;
        }
        let time = phase.due.saturating_duration_since(Instant::now());
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let until = Itimerspec {
            it_interval: zero,
            it_value: Timespec { tv_nsec: i64::from(time.subsec_nanos()), ..zero },
        };
        let armed =
            !time.is_zero() && timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &until).is_ok();
        (!armed).then_some(zero) // there are many per second
    }

    fn orders(&mut self) -> Result<bool, String> {
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.wake_fd, &mut rung);
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Open(traffic, to, clients)) => {
                    self.traffic = Some((traffic, to));
                    self.clients = (0..clients).map(|_| Client::new()).collect();
                    for index in 0..clients {
                        if !self.traffic.as_ref().is_some_and(|(traffic, _)| traffic.close) {
                            self.connect(index)?;
                        }
                    }
                    self.report(Ok(Vec::new()));
                }
                Ok(Order::Go(left, arrival)) => {
                    let all = 0..self.clients.len();
                    let (first, idle) = match arrival {
                        Arrival::Closed => (all, VecDeque::new()),
                        Arrival::Once => (0..AT_ONCE.min(all.len()), all.skip(AT_ONCE).collect()),
                        Arrival::Rate(_) => (0..0, all.collect()),
                    };
                    let now = Instant::now();
                    self.phase =
                        Some(InFlight { left, arrival, busy: 0, idle, due: now, latencies: Vec::new() });
                    for index in first {
                        self.begin(index, now)?;
                    }
                    self.end_if_done();
                }
                Ok(Order::Close) => {
                    self.clients.clear();
                    self.report(Ok(Vec::new()));
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => return Ok(true),
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    fn report(&self, report: Report) {
        let _ = self.outbox.send(report);
    }

    fn fail(&mut self, sentence: String) {
        self.clients.clear();
        if self.phase.take().is_some() || self.traffic.take().is_some() {
            self.report(Err(sentence));
        }
    }

    fn connect(&mut self, index: usize) -> Result<(), String> {
        let Some((_, to)) = &self.traffic else { return Ok(()) };
        let Some(socket) = self.clients[index].connect(*to)? else { return Ok(()) };
        register(&self.epoll, socket, CLIENT, index)
    }

    /// Makes a client begin another request, if there is one.
    fn begin(&mut self, index: usize, since: Instant) -> Result<(), String> {
        let Some(phase) = &mut self.phase else { return Ok(()) };
        if !phase.take() {
            return Ok(());
        }
        phase.busy += 1;
        self.connect(index)?;
        self.clients[index].begin(since);
        self.client(index)
    }

    /// Continues a client.
    fn client(&mut self, index: usize) -> Result<(), String> {
        let Some((traffic, _)) = &self.traffic else { return Ok(()) };
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        if client.go_on(traffic, &mut self.room)? == Progress::UnderWay {
            return Ok(());
        }
        let since = client.since;
        let Some(phase) = &mut self.phase else { return Ok(()) };
        let now = Instant::now();
        phase.latencies.push((now - since).as_micros() as u32);
        phase.busy -= 1;
        match phase.arrival {
            Arrival::Closed => self.begin(index, now)?,
            Arrival::Rate(_) => phase.idle.push_back(index),
            Arrival::Once => {
                if let Some(next) = phase.idle.pop_front() {
                    self.begin(next, now)?;
                }
            }
        }
        self.end_if_done();
        Ok(())
    }

    /// At a fixed rate, idle clients send due requests; others wait for the next idle client.
    fn send_what_is_due(&mut self) -> Result<(), String> {
        loop {
            let Some(phase) = &mut self.phase else { return Ok(()) };
            let Arrival::Rate(rate) = phase.arrival else { return Ok(()) };
            if phase.due > Instant::now() {
                return Ok(());
            }
            let Some(index) = phase.idle.pop_front() else { return Ok(()) };
            let due = phase.due;
            phase.due += Duration::from_secs_f64(THREADS as f64 / rate);
            self.begin(index, due)?;
            self.end_if_done();
        }
    }

    fn end_if_done(&mut self) {
        let over = |phase: &InFlight| phase.busy == 0 && phase.left.load(Ordering::Relaxed) <= 0;
        let once = |phase: &InFlight| phase.busy == 0 && phase.arrival == Arrival::Once;
        if self.phase.as_ref().is_some_and(|phase| over(phase) || once(phase))
            && let Some(phase) = self.phase.take()
        {
            self.report(Ok(phase.latencies));
        }
    }

    fn accept(&mut self) -> Result<(), String> {
        while let Ok((socket, _)) = self.listener.accept() {
            let ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
            ready.map_err(|error| error.to_string())?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.served.push(None);
                self.served.len() - 1
            });
            register(&self.epoll, &socket, SERVED, index)?;
            self.served[index] = Some(Served::new(socket));
        }
        Ok(())
    }

    fn serve(&mut self, index: usize) -> Result<(), String> {
        let Some(served) = self.served[index].as_mut() else { return Ok(()) };
        let there = match &self.traffic {
            Some((traffic, _)) => served.go_on(&traffic.response, &mut self.room)?,
            None => true, // this thread has no traffic yet
        };
        if !there {
            self.served[index] = None;
            self.free.push(index);
        }
        Ok(())
    }
}

fn register(epoll: &OwnedFd, socket: impl AsFd, kind: u64, index: usize) -> Result<(), String> {
    let flags =
        epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    epoll::add(epoll, socket, epoll::EventData::new_u64(kind << 32 | index as u64), flags)
        .map_err(|error| format!("cannot watch a connection: {error}"))
}
