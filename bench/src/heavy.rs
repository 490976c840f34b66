//! `manylane-bench heavy`: the effect of the heavy class (R-F3). A lane whose queue is full of tasks of 700
//! microseconds also serves requests of 20 microseconds of work, in three steps with a poll between them. The
//! table shows response times with all tasks in one class, with the long ones in the heavy class, and with
//! low latency, too.
//!
//! Requests arrive at random times that do not depend on the answers, one in 2 ms on average, the same in
//! every run. A response time begins when the request was due, so that none is hidden by a late lane
//! (coordinated omission).
//!
//! The same code runs in real time, where work is a loop that reads the clock, and in virtual time, where it
//! advances the clock. Then the result is exact, and the same on every machine.

use crate::cli::HeavyArguments;
use manylane_sched::{Class, Config, Here, Lane, TaskId, TaskKind, Time};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

static HANDSHAKE: TaskKind = TaskKind::new("handshake");
static REQUEST: TaskKind = TaskKind::new("request");

/// Work of a long task in one poll, like a TLS handshake.
const HANDSHAKE_WORK: Duration = Duration::from_micros(700);
/// Work of a request in total.
const REQUEST_WORK: Duration = Duration::from_micros(20);
/// Steps of a request: like waiting for the head, the server, and the server's answer.
const STEPS: u32 = 3;
/// Average time between two requests.
const INTERVAL: Duration = Duration::from_millis(2);
/// Cost of a poll in virtual time.
const POLL_TIME: Duration = Duration::from_micros(1);

/// The source of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Real,
    Virtual,
}

thread_local! {
    /// Nanoseconds of the virtual clock, from 1, since 0 means "unknown".
    static VIRTUAL: Cell<u64> = const { Cell::new(1) };
}

impl Clock {
    fn now(self) -> Time {
        match self {
            Self::Real => Time::now(),
            Self::Virtual => Time::from_nanos(VIRTUAL.get()),
        }
    }

    /// Keeps the processor busy for `time`.
    fn work(self, time: Duration) {
        match self {
            Self::Real => {
                let end = Time::now() + time;
                while Time::now() < end {
                    std::hint::spin_loop();
                }
            }
            Self::Virtual => VIRTUAL.set(VIRTUAL.get() + time.as_nanos() as u64),
        }
    }
}

/// State of the poller: waiting tasks, and response times of finished requests.
#[derive(Default)]
struct Shared {
    ready: Vec<TaskId>,
    responses: Vec<Duration>,
}

async fn request(here: Here, clock: Clock, due: Time, shared: Rc<RefCell<Shared>>) {
    for step in 0..STEPS {
        clock.work(REQUEST_WORK / STEPS);
        if step + 1 < STEPS {
            let mut polled = false;
            poll_fn(|_| {
                if std::mem::replace(&mut polled, true) {
                    return Poll::Ready(());
                }
                shared.borrow_mut().ready.extend(here.task());
                Poll::Pending
            })
            .await;
        }
    }
    shared.borrow_mut().responses.push(clock.now().since(due));
}

/// Settings of the lane.
struct Setting {
    name: &'static str,
    class: Class,
    low_latency: bool,
}

const SETTINGS: [Setting; 3] = [
    Setting { name: "one class", class: Class::Normal, low_latency: false },
    Setting { name: "heavy class", class: Class::Heavy, low_latency: false },
    Setting { name: "heavy class, low latency", class: Class::Heavy, low_latency: true },
];

/// Response times in ascending order.
fn measure(clock: Clock, setting: &Setting, depth: u32, handshakes: usize, requests: usize) -> Vec<Duration> {
    VIRTUAL.set(1);
    let read: fn() -> Time = match clock {
        Clock::Real => Time::now,
        Clock::Virtual => || Clock::Virtual.now(),
    };
    let config = Config::new().clock(read).low_latency(setting.low_latency).runqueue_depth(depth);
    let mut lane = Lane::new(config).expect("this thread has one at a time");
    let here = lane.here();
    let shared = Rc::new(RefCell::new(Shared::default()));
    for _ in 0..handshakes {
        let endless = async move {
            loop {
                clock.work(HANDSHAKE_WORK);
                here.yield_now().await;
            }
        };
        here.spawn(&HANDSHAKE, setting.class, endless).expect("there is memory");
    }
    let (mut seed, mut due, mut sent) = (1_u64, clock.now(), 0);
    while shared.borrow().responses.len() < requests {
        // The poller: requests that are due, and steps whose data has arrived.
        while due <= clock.now() && sent < requests {
            here.spawn(&REQUEST, Class::Normal, request(here, clock, due, shared.clone()))
                .expect("there is memory");
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            due = due + Duration::from_nanos((seed >> 33) % (2 * INTERVAL.as_nanos() as u64));
            sent += 1;
        }
        let ready = std::mem::take(&mut shared.borrow_mut().ready);
        ready.into_iter().for_each(TaskId::wake);
        if clock == Clock::Virtual {
            clock.work(POLL_TIME);
        }
        lane.round(clock.now());
    }
    let mut responses = std::mem::take(&mut shared.borrow_mut().responses);
    responses.sort_unstable();
    responses
}

/// Average and percentiles of sorted times, in milliseconds.
fn milliseconds(responses: &[Duration]) -> [f64; 4] {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let at = |percent: usize| ms(responses[(responses.len() * percent / 100).min(responses.len() - 1)]);
    [ms(responses.iter().sum::<Duration>()) / responses.len() as f64, at(50), at(90), at(99)]
}

/// Average response times in milliseconds, in virtual time: with one class, with the heavy class, and with
/// low latency, too.
pub(crate) fn averages(depth: u32, handshakes: usize, requests: usize) -> [f64; 3] {
    SETTINGS
        .each_ref()
        .map(|setting| milliseconds(&measure(Clock::Virtual, setting, depth, handshakes, requests))[0])
}

/// Runs the command.
///
/// # Errors
/// None; the signature is that of other commands.
pub fn run(arguments: &HeavyArguments) -> Result<(), String> {
    let clock = if arguments.simulated { Clock::Virtual } else { Clock::Real };
    let requests = arguments.requests as usize;
    println!(
        "response times in ms, {requests} requests of {REQUEST_WORK:?} in {STEPS} steps beside tasks of \
            {HANDSHAKE_WORK:?}, {}\n",
        if arguments.simulated { "virtual time" } else { "real time" }
    );
    println!(
        "{:>10} {:>6}  {:<26} {:>9} {:>9} {:>9} {:>9}",
        "long tasks", "depth", "", "average", "50 %", "90 %", "99 %"
    );
    for &handshakes in &arguments.tasks {
        for &depth in &arguments.depth {
            for setting in &SETTINGS {
                let responses = measure(clock, setting, depth, handshakes as usize, requests);
                let [average, half, nine, most] = milliseconds(&responses);
                println!(
                    "{handshakes:>10} {depth:>6}  {:<26} {average:>9.2} {half:>9.2} {nine:>9.2} {most:>9.2}",
                    setting.name
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_sched::RUNQUEUE_DEPTH;

    /// R-F3, in virtual time: the published averages are 14 ms with one class, 3.0 with the heavy class, 1.8
    /// with low latency, too.
    #[test]
    fn the_heavy_class_takes_long_tasks_out_of_the_way_of_requests_and_low_latency_some_more() {
        let averages = |depth, handshakes| {
            SETTINGS
                .each_ref()
                .map(|setting| milliseconds(&measure(Clock::Virtual, setting, depth, handshakes, 1000))[0])
        };
        let [one, heavy, low] = averages(RUNQUEUE_DEPTH, 300);
        assert!(one / heavy > 14.0 / 3.0, "{one} -> {heavy}");
        assert!(heavy > low * 1.1 && heavy < 3.0 && low < 2.0, "{heavy} -> {low}");
        let [one, heavy, low] = averages(RUNQUEUE_DEPTH, 20);
        assert!(one / heavy > 14.0 / 3.0 && (heavy - low).abs() < 0.1, "{one} -> {heavy} -> {low}");
    }

    /// R-F4: without classes, each step of a request waits for as many long tasks as a round takes.
    #[test]
    fn a_deeper_run_queue_makes_requests_wait_longer_when_all_tasks_are_of_one_class() {
        let average = |depth| milliseconds(&measure(Clock::Virtual, &SETTINGS[0], depth, 300, 1000))[0];
        let (small, large) = (average(RUNQUEUE_DEPTH), average(5 * RUNQUEUE_DEPTH));
        println!("depth {RUNQUEUE_DEPTH}: {small} ms, {}: {large} ms", 5 * RUNQUEUE_DEPTH);
        assert!(large > 1.1 * small, "{small} -> {large}");
    }

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(milliseconds(&times), [50.5, 51.0, 91.0, 100.0]);
        assert_eq!(milliseconds(&times[..1]), [1.0; 4]);
    }
}
