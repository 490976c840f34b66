//! The heavy class at work (R-F3): a lane that is saturated by handshakes of 700 microseconds also serves requests of 20
//! microseconds, in three steps with a look at the poller between them. Response times in virtual time, the same in every run.
//!
//! `cargo run --release -p manylane-sched --example heavy`

use manylane_sched::{Class, Config, Here, Lane, TaskId, TaskKind, Time};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

static HANDSHAKE: TaskKind = TaskKind::new("handshake");
static REQUEST: TaskKind = TaskKind::new("request");

/// Microseconds.
static CLOCK: AtomicU64 = AtomicU64::new(0);
const HANDSHAKE_US: u64 = 700;
const REQUEST_US: u64 = 20;
const STEPS: u32 = 3;
/// Between two requests, on average.
const INTERVAL_US: u64 = 2_000;
const REQUESTS: usize = 5_000;

fn now() -> u64 {
    CLOCK.load(Ordering::Relaxed)
}

fn work(microseconds: u64) {
    CLOCK.fetch_add(microseconds, Ordering::Relaxed);
}

/// What the poller knows: tasks that wait for it, and response times of those that are done.
#[derive(Default)]
struct Shared {
    ready: Vec<TaskId>,
    responses: Vec<u64>,
}

async fn request(here: Here, arrived: u64, shared: Rc<RefCell<Shared>>) {
    for step in 0..STEPS {
        work(REQUEST_US / u64::from(STEPS));
        if step + 1 < STEPS {
            let mut asked = false;
            poll_fn(|_| {
                if std::mem::replace(&mut asked, true) {
                    return Poll::Ready(());
                }
                shared.borrow_mut().ready.extend(here.task());
                Poll::Pending
            })
            .await;
        }
    }
    shared.borrow_mut().responses.push(now() - arrived);
}

/// Response times in microseconds, ascending.
fn run(handshakes: usize, class: Class, low_latency: bool) -> Vec<u64> {
    CLOCK.store(0, Ordering::Relaxed);
    let clock = || Time::from_nanos(now() * 1000);
    let mut lane = Lane::new(Config::new().clock(clock).low_latency(low_latency)).expect("one at a time");
    let here = lane.here();
    let shared = Rc::new(RefCell::new(Shared::default()));
    for _ in 0..handshakes {
        let endless = async move {
            loop {
                work(HANDSHAKE_US);
                here.yield_now().await;
            }
        };
        here.spawn(&HANDSHAKE, class, endless).expect("there is memory");
    }
    let (mut seed, mut next, mut sent) = (1_u64, 0, 0);
    while shared.borrow().responses.len() < REQUESTS {
        // The poller: arrivals, and steps whose data has come.
        while next <= now() && sent < REQUESTS {
            here.spawn(&REQUEST, Class::Normal, request(here, next, shared.clone()))
                .expect("there is memory");
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            next += (seed >> 33) % (2 * INTERVAL_US);
            sent += 1;
        }
        let ready = std::mem::take(&mut shared.borrow_mut().ready);
        ready.into_iter().for_each(TaskId::wake);
        work(1);
        lane.round(clock());
    }
    let mut responses = std::mem::take(&mut shared.borrow_mut().responses);
    responses.sort_unstable();
    responses
}

fn main() {
    println!("{:>10}  {:<24} {:>9} {:>9} {:>9}", "handshakes", "ms", "mean", "median", "99 %");
    for handshakes in [20, 300] {
        for (name, class, low_latency) in [
            ("one class", Class::Normal, false),
            ("heavy class", Class::Heavy, false),
            ("heavy, low latency", Class::Heavy, true),
        ] {
            let responses = run(handshakes, class, low_latency);
            let ms = |us: u64| us as f64 / 1000.0;
            let mean = ms(responses.iter().sum()) / responses.len() as f64;
            let at = |part: usize| ms(responses[responses.len() * part / 100]);
            println!("{handshakes:>10}  {name:<24} {mean:>9.2} {:>9.2} {:>9.2}", at(50), at(99));
        }
    }
}
