//! Bytes from one end to the other: local sockets, the kernel's sockets, and channels.
//!
//! Bounded ones have room for [`ROOM`] messages in transit. In the streams of small messages, our sockets and
//! the kernel's receive all available bytes, as streams allow; channels pass on single items, as they are
//! used. Every message is read.

use super::{Contest, Contestant, Crowd, Effort, Row, Target, measure, measure_crowds};
use crate::cases::Variant;
use crate::run;
use bytes::Bytes;
use manylane_buf::{Chain, Cluster};
use manylane_io::{Driver, DriverChoice};
use manylane_local::{Kind, Socket};
use manylane_sched::{Config, Lane};
use std::future::poll_fn;
use std::hint::black_box;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Most messages in transit.
const ROOM: usize = 1024;
const SMALL: usize = 64;
const LARGE: usize = 16 * 1024;

const UNIX1: Target = Target::new(50.0, Kanal::NAME, 21.0).ahead_of(Kernel::NAME, 18.0);
/// *The same each* with two threads: if each does an operation in 50 ns, both together do one every 25.
const UNIX1_OF_BOTH: Target = Target::new(25.0, Kanal::NAME, 10.5).ahead_of(Kernel::NAME, 18.0);
const STREAM_SMALL: Target = Target::new(40.0, Std::NAME, 57.0);
const STREAM_LARGE: Target = Target::new(300.0, CLONES, 490.0);
/// The channels with figures in the issue spin before they sleep, so theirs depend on how soon the answer
/// arrives.
const PING_PONG: Target = Target::new(15_000.0, Kernel::NAME, 60_000.0);
const PING_PONG_POLLING: Target = Target::new(350.0, Kernel::NAME, 60_000.0);
const CLONES: &str = "crossbeam-channel of Bytes clones";

/// A byte in at one end and out at the other, on one thread.
trait Exchange: Sized + 'static {
    const NAME: &'static str;
    const OURS: bool = false;
    fn new() -> Self;
    fn exchange(&mut self, byte: u8) -> u8;
}

struct Ours(Socket, Socket);

impl Exchange for Ours {
    const NAME: &'static str = "manylane Socket";
    const OURS: bool = true;
    fn new() -> Self {
        let (a, b) = Socket::pair(Kind::Stream);
        Self(a, b)
    }
    #[inline]
    fn exchange(&mut self, byte: u8) -> u8 {
        let mut got = [0];
        self.0.send(&[byte]).expect("the pair is connected");
        self.1.recv(&mut got).expect("it was sent");
        got[0]
    }
}

struct Kernel(UnixStream, UnixStream);

impl Exchange for Kernel {
    const NAME: &'static str = "kernel AF_UNIX";
    fn new() -> Self {
        let (a, b) = UnixStream::pair().expect("the system has descriptors left");
        Self(a, b)
    }
    #[inline]
    fn exchange(&mut self, byte: u8) -> u8 {
        let mut got = [0];
        self.0.write_all(&[byte]).expect("the pair is connected");
        self.1.read_exact(&mut got).expect("it was sent");
        got[0]
    }
}

struct Pipe(PipeWriter, PipeReader);

impl Exchange for Pipe {
    const NAME: &'static str = "pipe";
    fn new() -> Self {
        let (out, into) = std::io::pipe().expect("the system has descriptors left");
        Self(into, out)
    }
    #[inline]
    fn exchange(&mut self, byte: u8) -> u8 {
        let mut got = [0];
        self.0.write_all(&[byte]).expect("it is open");
        self.1.read_exact(&mut got).expect("it was sent");
        got[0]
    }
}

macro_rules! channel {
    ($type:ident, $name:literal, $sender:ty, $receiver:ty, $new:expr, $send:ident, $recv:ident) => {
        struct $type($sender, $receiver);

        impl Exchange for $type {
            const NAME: &'static str = $name;
            fn new() -> Self {
                let (sender, receiver) = $new;
                Self(sender, receiver)
            }
            #[inline]
            fn exchange(&mut self, byte: u8) -> u8 {
                assert!(self.0.$send(byte).is_ok(), "it is open and has room");
                self.1.$recv().expect("it was sent")
            }
        }
    };
}

channel!(
    Std,
    "std sync_channel",
    mpsc::SyncSender<u8>,
    mpsc::Receiver<u8>,
    mpsc::sync_channel(ROOM),
    send,
    recv
);
channel!(
    Crossbeam,
    "crossbeam-channel",
    crossbeam_channel::Sender<u8>,
    crossbeam_channel::Receiver<u8>,
    crossbeam_channel::bounded(ROOM),
    send,
    recv
);
channel!(Kanal, "kanal", kanal::Sender<u8>, kanal::Receiver<u8>, kanal::bounded(ROOM), send, recv);
channel!(
    Tokio,
    "tokio mpsc",
    tokio::sync::mpsc::Sender<u8>,
    tokio::sync::mpsc::Receiver<u8>,
    tokio::sync::mpsc::channel(ROOM),
    try_send,
    try_recv
);
channel!(Rtrb, "rtrb", rtrb::Producer<u8>, rtrb::Consumer<u8>, rtrb::RingBuffer::new(ROOM), push, pop);

fn alone<E: Exchange>() -> Contestant {
    let mut ends = E::new();
    let work = move |n| {
        let ends = black_box(&mut ends);
        for i in 0..n {
            assert_eq!(ends.exchange(black_box(i as u8)), i as u8, "what was sent arrives");
        }
    };
    if E::OURS { Contestant::ours(E::NAME, work) } else { Contestant::peer(E::NAME, work) }
}

pub(super) const CONTESTS: &[Contest] = &[Contest {
    operation: "local: unix1, a byte sent and received, 1 thread",
    target: Some(UNIX1),
    contestants: || {
        vec![
            alone::<Ours>(),
            alone::<Kernel>(),
            alone::<Pipe>(),
            alone::<Kanal>(),
            alone::<Std>(),
            alone::<Crossbeam>(),
            alone::<Tokio>(),
            alone::<Rtrb>(),
        ]
    },
}];

/// Each thread has its own ends.
struct Each<E>(PhantomData<fn(E)>);

impl<E: Exchange> Variant for Each<E> {
    const NAME: &'static str = E::NAME;
    type Own<'a> = E;
    fn new(_: usize) -> Self {
        Self(PhantomData)
    }
    fn enter(&self, _: usize) -> E {
        E::new()
    }
    #[inline]
    fn operate(&self, own: &mut E) {
        assert_eq!(own.exchange(black_box(7)), 7, "what was sent arrives");
    }
}

fn crowd<E: Exchange>() -> Crowd {
    Crowd { name: E::NAME, ours: E::OURS, run: run::once::<Each<E>> }
}

pub(super) fn crowds(effort: Effort) -> Vec<Row> {
    let pairs = [
        crowd::<Ours>(),
        crowd::<Kernel>(),
        crowd::<Pipe>(),
        crowd::<Kanal>(),
        crowd::<Std>(),
        crowd::<Crossbeam>(),
    ];
    let mut rows = vec![Row::new(
        "local: unix1, 2 threads with pairs of their own, per operation of both",
        Some(UNIX1_OF_BOTH),
        measure_crowds(effort, 2, &pairs),
    )];
    // The cost of waking the other thread must be small relative to a sample.
    let long = Effort { time: effort.time * 10, ..effort };
    rows.push(Row::new(
        "local: stream of 64 B, two threads",
        Some(STREAM_SMALL),
        measure(long, small_streams()),
    ));
    rows.push(Row::new(
        "local: stream of 16 KiB, two threads",
        Some(STREAM_LARGE),
        measure(long, large_streams()),
    ));
    // A sample has at least thousands of round trips, so a few samples are enough.
    let few = Effort { samples: effort.samples.min(9), ..effort };
    for (operation, target, contestants) in [
        ("local: ping-pong, two lanes, both sleep", Some(PING_PONG), lanes as fn() -> Vec<Contestant>),
        ("local: ping-pong, two lanes, both poll busily", Some(PING_PONG_POLLING), polling_lanes),
        ("local: wake-ups there and back, two lanes, no socket", None, bare_wake_ups),
        ("local: ping-pong, two threads, both sleep", Some(PING_PONG), sleeping),
        ("local: ping-pong, two threads, both poll", Some(PING_PONG_POLLING), polling),
    ] {
        rows.push(Row::new(operation, target, measure(few, contestants())));
    }
    rows
}

/// Sends on the measuring thread and receives on another; the time ends once the last message was read.
fn pipeline(
    name: &str,
    ours: bool,
    mut send: impl FnMut() + 'static,
    mut receive: impl FnMut() -> u64 + Send + 'static,
) -> Contestant {
    let (go, orders) = mpsc::channel::<u64>();
    let (tell, receiver) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        // Ends when the contestant is dropped.
        while let Ok(n) = orders.recv() {
            let mut got = 0;
            if tell.send(()).is_err() {
                return;
            }
            while got < n {
                got += receive();
            }
            if tell.send(()).is_err() {
                return;
            }
        }
    });
    let work = move |n: u64| -> Duration {
        go.send(n).expect("the other thread lives as long as this end of the channel");
        receiver.recv().expect("it says when it runs");
        let started = Instant::now();
        (0..n).for_each(|_| send());
        receiver.recv().expect("it says when it has all");
        started.elapsed()
    };
    if ours { Contestant::timed_ours(name, work) } else { Contestant::timed_peer(name, work) }
}

/// Number of complete messages after `bytes` more bytes of a stream.
fn whole(bytes: usize, size: usize, carry: &mut usize) -> u64 {
    *carry += bytes;
    let n = *carry / size;
    *carry %= size;
    n as u64
}

/// Reads a byte of each message of `size` bytes, and at least one of each 4 KiB.
fn read(bytes: &[u8], size: usize) {
    black_box(bytes.iter().step_by(size.min(4096)).fold(0, |sum: u8, byte| sum.wrapping_add(*byte)));
}

fn socket_pair(size: usize) -> (Socket, Socket) {
    let (a, b) = Socket::pair(Kind::Stream);
    b.set_recv_limit(ROOM * size).expect("it is more than 0");
    a.set_send_limit(ROOM * size).expect("it is more than 0");
    (a, b)
}

fn receive_all(socket: Socket, size: usize) -> impl FnMut() -> u64 + Send {
    let mut carry = 0;
    move || {
        let chain = socket.recv_chain(usize::MAX).expect("the sender is there");
        chain.segments().for_each(|segment| read(segment, size));
        whole(chain.len(), size, &mut carry)
    }
}

fn kernel(size: usize) -> Contestant {
    let (mut a, mut b) = UnixStream::pair().expect("the system has descriptors left");
    let (message, mut buffer, mut carry) = (vec![7; size], vec![0; 64 * 1024], 0);
    pipeline(
        Kernel::NAME,
        false,
        move || a.write_all(black_box(&message)).expect("the receiver is there"),
        move || {
            let n = b.read(&mut buffer).expect("the sender is there");
            read(&buffer[..n], size);
            whole(n, size, &mut carry)
        },
    )
}

fn small_streams() -> Vec<Contestant> {
    const MESSAGE: [u8; SMALL] = [7; SMALL];
    let (a, b) = socket_pair(SMALL);
    let (std_in, std_out) = mpsc::sync_channel(ROOM);
    let (crossbeam_in, crossbeam_out) = crossbeam_channel::bounded(ROOM);
    let (kanal_in, kanal_out) = kanal::bounded(ROOM);
    let (tokio_in, mut tokio_out) = tokio::sync::mpsc::channel(ROOM);
    let (mut rtrb_in, mut rtrb_out) = rtrb::RingBuffer::new(ROOM);
    let one = |message: [u8; SMALL]| {
        read(&message, SMALL);
        1
    };
    vec![
        pipeline(
            Ours::NAME,
            true,
            move || assert_eq!(a.send(black_box(&MESSAGE)).expect("the receiver is there"), SMALL),
            receive_all(b, SMALL),
        ),
        kernel(SMALL),
        pipeline(
            Std::NAME,
            false,
            move || std_in.send(black_box(MESSAGE)).expect("the receiver is there"),
            move || one(std_out.recv().expect("the sender is there")),
        ),
        pipeline(
            Crossbeam::NAME,
            false,
            move || crossbeam_in.send(black_box(MESSAGE)).expect("the receiver is there"),
            move || one(crossbeam_out.recv().expect("the sender is there")),
        ),
        pipeline(
            Kanal::NAME,
            false,
            move || kanal_in.send(black_box(MESSAGE)).expect("the receiver is there"),
            move || one(kanal_out.recv().expect("the sender is there")),
        ),
        pipeline(
            Tokio::NAME,
            false,
            move || tokio_in.blocking_send(black_box(MESSAGE)).expect("the receiver is there"),
            move || one(tokio_out.blocking_recv().expect("the sender is there")),
        ),
        pipeline(
            "rtrb, spinning",
            false,
            move || {
                while rtrb_in.push(black_box(MESSAGE)).is_err() {
                    std::hint::spin_loop();
                }
            },
            move || loop {
                match rtrb_out.pop() {
                    Ok(message) => return one(message),
                    Err(_) => std::hint::spin_loop(),
                }
            },
        ),
    ]
}

fn large_streams() -> Vec<Contestant> {
    let (a, b) = socket_pair(LARGE);
    let shared = {
        let mut cluster = Cluster::alloc(LARGE).expect("there is memory for a cluster");
        cluster.put(&[7; LARGE]);
        Chain::from(cluster.into_segment())
    };
    let bytes = Bytes::from(vec![7; LARGE]);
    let (crossbeam_in, crossbeam_out) = crossbeam_channel::bounded::<Bytes>(ROOM);
    let (tokio_in, mut tokio_out) = tokio::sync::mpsc::channel::<Vec<u8>>(ROOM);
    vec![
        pipeline(
            "manylane Socket, by reference",
            true,
            move || {
                let mut chain = black_box(&shared).share().expect("one segment needs no memory");
                assert_eq!(a.send_chain(&mut chain).expect("the receiver is there"), LARGE);
            },
            receive_all(b, LARGE),
        ),
        kernel(LARGE),
        pipeline(
            CLONES,
            false,
            move || crossbeam_in.send(black_box(&bytes).clone()).expect("the receiver is there"),
            move || {
                read(&crossbeam_out.recv().expect("the sender is there"), LARGE);
                1
            },
        ),
        pipeline(
            "tokio mpsc of fresh vectors",
            false,
            move || tokio_in.blocking_send(black_box(vec![7; LARGE])).expect("the receiver is there"),
            move || {
                read(&tokio_out.blocking_recv().expect("the sender is there"), LARGE);
                1
            },
        ),
    ]
}

/// Round trips of a byte: `trip` on the measuring thread; `answer` on another, until it returns that the
/// other side has closed.
fn round_trips(
    name: &str,
    ours: bool,
    mut trip: impl FnMut() + 'static,
    mut answer: impl FnMut() -> bool + Send + 'static,
) -> Contestant {
    std::thread::spawn(move || while answer() {});
    let work = move |n| (0..n).for_each(|_| trip());
    if ours { Contestant::ours(name, work) } else { Contestant::peer(name, work) }
}

fn sockets(name: &str, poll: Option<Duration>) -> Contestant {
    let (a, b) = Socket::pair(Kind::Stream);
    for socket in [&a, &b] {
        if let Some(poll) = poll {
            socket.set_busy_poll(poll);
        }
    }
    round_trips(
        name,
        true,
        move || {
            let mut byte = [7];
            a.send(&byte).expect("the other side is there");
            assert_eq!(a.recv(&mut byte).expect("the other side is there"), 1);
        },
        move || {
            let mut byte = [0];
            b.recv(&mut byte).is_ok_and(|n| n == 1) && b.send(&byte).is_ok()
        },
    )
}

macro_rules! channels {
    ($name:expr, $new:expr) => {{
        let ((there, served), (back, answered)) = ($new, $new);
        round_trips(
            $name,
            false,
            move || {
                there.send(7u8).expect("the other side is there");
                assert_eq!(answered.recv().expect("the other side is there"), 7);
            },
            move || served.recv().is_ok_and(|byte| back.send(byte).is_ok()),
        )
    }};
}

/// The kernel's sockets, which always sleep.
fn kernel_round_trips() -> Contestant {
    let (mut a, mut b) = UnixStream::pair().expect("the system has descriptors left");
    round_trips(
        Kernel::NAME,
        false,
        move || {
            let mut byte = [7];
            a.write_all(&byte).expect("the other side is there");
            a.read_exact(&mut byte).expect("the other side is there");
        },
        move || {
            let mut byte = [0];
            b.read_exact(&mut byte).is_ok() && b.write_all(&byte).is_ok()
        },
    )
}

/// A lane on its own thread with an epoll driver, which runs while there are orders. Between them it does not
/// even poll, since others are measured then.
struct OnALane {
    go: mpsc::Sender<u64>,
    receiver: mpsc::Receiver<Duration>,
}

impl OnALane {
    /// `trips` makes or answers a number of round trips, and returns how long that took.
    fn new<F>(busy_poll: Duration, trips: impl Fn(u64) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Duration> + 'static,
    {
        let (go, orders) = mpsc::channel::<u64>();
        let (tell, receiver) = mpsc::channel::<Duration>();
        std::thread::spawn(move || {
            let mut lane = Lane::new(Config::new().busy_poll(busy_poll)).expect("a new thread");
            let choice = DriverChoice::Only(manylane_io::Kind::Epoll);
            let mut driver = Driver::new(lane.here(), choice).expect("the system has descriptors left");
            // Ends when the contestant is dropped.
            while let Ok(n) = orders.recv() {
                let took = lane.block_on(&mut driver, trips(n)).expect("the lane runs until it has all");
                if tell.send(took).is_err() {
                    return;
                }
            }
        });
        Self { go, receiver }
    }

    fn begin(&self, n: u64) {
        self.go.send(n).expect("the lane lives as long as this end of the channel");
    }

    fn end(&self) -> Duration {
        self.receiver.recv().expect("it says how long it took")
    }
}

/// Round trips between two lanes. The measuring thread only gives orders.
fn in_turns(name: &str, answers: OnALane, asks: OnALane) -> Contestant {
    Contestant::timed_ours(name, move |n| {
        answers.begin(n);
        asks.begin(n);
        answers.end();
        asks.end()
    })
}

/// A task on each of two lanes, with asynchronous calls.
fn between_lanes(name: &str, busy_poll: Duration) -> Contestant {
    let (a, b) = Socket::pair(Kind::Stream);
    let (a, b) = (Arc::new(a), Arc::new(b));
    let answers = OnALane::new(busy_poll, move |n| {
        let b = b.clone();
        async move {
            let mut byte = [0];
            for _ in 0..n {
                assert_eq!(b.recv_async(&mut byte).await.expect("the other side is there"), 1);
                b.send_async(&byte).await.expect("the other side is there");
            }
            Duration::ZERO
        }
    });
    let asks = OnALane::new(busy_poll, move |n| {
        let a = a.clone();
        async move {
            let started = Instant::now();
            for _ in 0..n {
                let mut byte = [7];
                a.send_async(&byte).await.expect("the other side is there");
                assert_eq!(a.recv_async(&mut byte).await.expect("the other side is there"), 1);
            }
            started.elapsed()
        }
    });
    in_turns(name, answers, asks)
}

/// Wake-ups without data.
fn wake_ups(name: &str, busy_poll: Duration) -> Contestant {
    let ((to_b, from_a), (to_a, from_b)) = (mpsc::channel(), mpsc::channel());
    let from_a = Arc::new(Mutex::new(from_a));
    let from_b = Arc::new(Mutex::new(from_b));
    let answers = OnALane::new(busy_poll, move |n| {
        let (to_a, from_a) = (to_a.clone(), from_a.clone());
        async move {
            let a = meet(&to_a, &from_a).await;
            for _ in 0..n {
                woken().await;
                a.wake_by_ref();
            }
            Duration::ZERO
        }
    });
    let asks = OnALane::new(busy_poll, move |n| {
        let (to_b, from_b) = (to_b.clone(), from_b.clone());
        async move {
            let b = meet(&to_b, &from_b).await;
            let started = Instant::now();
            for _ in 0..n {
                b.wake_by_ref();
                woken().await;
            }
            started.elapsed()
        }
    });
    in_turns(name, answers, asks)
}

/// Sends this task's waker, and receives the other's.
async fn meet(to: &mpsc::Sender<Waker>, from: &Mutex<mpsc::Receiver<Waker>>) -> Waker {
    to.send(poll_fn(|context| Poll::Ready(context.waker().clone())).await).expect("the other side is there");
    from.lock().expect("nobody panics under it").recv().expect("the other side is there")
}

/// Waits for the next wake-up.
async fn woken() {
    let mut waited = false;
    poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Ours between lanes; the peers, which have no lanes, between threads, as above.
fn lanes() -> Vec<Contestant> {
    vec![
        between_lanes("manylane Socket, between lanes", Duration::ZERO),
        kernel_round_trips(),
        channels!("crossbeam-channel (spins first)", crossbeam_channel::bounded(ROOM)),
        channels!("kanal (spins first)", kanal::bounded(ROOM)),
    ]
}

/// As [`lanes`], with lanes that do not sleep.
fn polling_lanes() -> Vec<Contestant> {
    vec![
        between_lanes("manylane Socket, between lanes", Duration::MAX),
        kernel_round_trips(),
        channels!("crossbeam-channel (spins first)", crossbeam_channel::bounded(ROOM)),
        channels!("kanal (spins first)", kanal::bounded(ROOM)),
    ]
}

/// The part of a round trip between lanes that does not depend on a socket.
fn bare_wake_ups() -> Vec<Contestant> {
    vec![
        wake_ups("manylane wake-up, both poll busily", Duration::MAX),
        wake_ups("manylane wake-up, both sleep", Duration::ZERO),
    ]
}

fn sleeping() -> Vec<Contestant> {
    vec![
        sockets("manylane Socket, sleeps at once", Some(Duration::ZERO)),
        sockets("manylane Socket, as it comes", None),
        kernel_round_trips(),
        channels!("crossbeam-channel (spins first)", crossbeam_channel::bounded(ROOM)),
        channels!("std sync_channel (spins first)", mpsc::sync_channel(ROOM)),
        channels!("kanal (spins first)", kanal::bounded(ROOM)),
    ]
}

fn polling() -> Vec<Contestant> {
    vec![
        sockets("manylane Socket, busy-poll 10 ms", Some(Duration::from_millis(10))),
        kernel_round_trips(),
        channels!("crossbeam-channel (spins first)", crossbeam_channel::bounded(ROOM)),
        channels!("kanal (spins first)", kanal::bounded(ROOM)),
    ]
}
