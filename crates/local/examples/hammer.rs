//! Times of the operations in README's table: `cargo run --release -p manylane-local --example hammer
//! [CASE...]`.
//!
//! The least and the median of many samples; for a comparison with others, see `manylane-bench peers --row
//! local`.

use manylane_buf::{Chain, Cluster};
use manylane_local::{Kind, Socket};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Prints the nanoseconds of an operation.
#[derive(Clone, Copy)]
struct Figures {
    least: f64,
    median: f64,
}

/// The times of `samples` calls, for each of the `n` operations that a call makes.
fn measure(samples: usize, n: usize, mut work: impl FnMut()) -> Figures {
    let times = (0..samples).map(|_| {
        let started = Instant::now();
        work();
        started.elapsed().as_nanos() as f64 / n as f64
    });
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    Figures { least: times[0], median: times[samples / 2] }
}

fn unix1() -> Figures {
    let (a, b) = Socket::pair(Kind::Stream);
    measure(400, 2000, || {
        for _ in 0..2000 {
            let mut byte = [0];
            a.send(black_box(&[7])).expect("there is room");
            b.recv(&mut byte).expect("it was sent");
            black_box(byte);
        }
    })
}

fn message_pair(kind: Kind) -> Figures {
    let (a, b) = Socket::pair(kind);
    measure(400, 2000, || {
        for _ in 0..2000 {
            let mut bytes = [0; 64];
            a.send(black_box(&[7; 64])).expect("there is room");
            black_box(b.recv(&mut bytes).expect("it was sent"));
        }
    })
}

/// Maximum number of waiting messages: as many as fit into the bounded channels of the comparison.
const ON_THE_WAY: usize = 1024;

/// A second thread receives everything queued at once, and reads each message.
fn stream(message: usize, messages: usize, send: impl Fn(&Socket)) -> Figures {
    let (a, b) = Socket::pair(Kind::Stream);
    b.set_recv_limit(ON_THE_WAY * message).expect("it is more than 0");
    a.set_send_limit(ON_THE_WAY * message).expect("it is more than 0");
    let total = message * messages;
    std::thread::scope(|scope| {
        let (order, orders) = std::sync::mpsc::channel::<()>();
        let (done, finished) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            while orders.recv().is_ok() {
                let mut left = total;
                let mut sum = 0u64;
                while left > 0 {
                    let chain = b.recv_chain(usize::MAX).expect("the sender is there");
                    left -= chain.len();
                    for segment in chain.segments() {
                        sum += segment
                            .iter()
                            .step_by(message.min(4096))
                            .map(|byte| u64::from(*byte))
                            .sum::<u64>();
                    }
                }
                black_box(sum);
                done.send(()).expect("the other side listens");
            }
        });
        measure(60, messages, || {
            order.send(()).expect("the other side listens");
            for _ in 0..messages {
                send(&a);
            }
            finished.recv().expect("the other side answers");
        })
    })
}

fn stream_64() -> Figures {
    stream(64, 40_000, |socket| {
        socket.send(black_box(&[7; 64])).expect("the receiver is there");
    })
}

fn stream_16k() -> Figures {
    let mut cluster = Cluster::alloc(16384).expect("memory");
    cluster.put(&[7; 16384]);
    let all = Chain::from(cluster.into_segment());
    stream(16384, 5_000, move |socket| {
        let mut chain = all.share().expect("one segment needs no memory");
        socket.send_chain(&mut chain).expect("the receiver is there");
    })
}

/// Round trips between two threads.
fn ping_pong(poll: Option<Duration>, rounds: usize) -> Figures {
    let (a, b) = Socket::pair(Kind::Stream);
    for socket in [&a, &b] {
        if let Some(poll) = poll {
            socket.set_busy_poll(poll);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut byte = [0];
            while b.recv(&mut byte).expect("the other side is there") == 1 {
                b.send(&byte).expect("the other side is there");
            }
        });
        let figures = measure(40, rounds, || {
            for _ in 0..rounds {
                let mut byte = [7];
                a.send(&byte).expect("the other side is there");
                a.recv(&mut byte).expect("the other side is there");
            }
        });
        drop(a);
        figures
    })
}

fn main() {
    type Case = (&'static str, fn() -> Figures);
    let cases: [Case; 9] = [
        ("unix1", unix1),
        ("seqpacket 64 B", || message_pair(Kind::SeqPacket)),
        ("datagram 64 B", || message_pair(Kind::Datagram)),
        ("stream 64 B", stream_64),
        ("stream 16 KiB", stream_16k),
        ("ping-pong", || ping_pong(None, 1000)),
        ("ping-pong, no spinning", || ping_pong(Some(Duration::ZERO), 200)),
        ("ping-pong, busy poll", || ping_pong(Some(Duration::from_millis(10)), 1000)),
        ("pair, close", || measure(100, 100, || (0..100).for_each(|_| drop(Socket::pair(Kind::Stream))))),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for (name, case) in cases {
        if wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            let Figures { least, median } = case();
            println!("{name:<24} least {least:>9.1} ns  median {median:>9.1} ns");
        }
    }
}
