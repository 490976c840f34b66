use super::*;
use crate::{Class, Config, Lane, Time};
use manylane_sync::atomic::AtomicU32;
use std::sync::{Mutex, mpsc};

const LIMITS: Limits = Limits { warn: Duration::from_millis(100), kill: Duration::from_secs(1) };

/// Watches a task that runs `first`, which reports that it runs, and then waits for the test, until the
/// watchdog, in its own time, would end the process. Returns each report: whether it kills, when, and the
/// first line of the stack.
fn looks_at(
    kind: &'static TaskKind,
    first: fn(&dyn Fn()),
    used: fn(&Home) -> Option<Duration>,
) -> Vec<(bool, String, String)> {
    static ALONE: Mutex<()> = Mutex::new(()); // a walk that hangs leaves no stack to other tests
    let _alone = ALONE.lock();
    let (running, runs) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        let stuck = async move {
            first(&|| running.send(()).expect("the test listens"));
            released.recv().expect("the test tells");
        };
        lane.here().spawn(kind, Class::Normal, stuck).expect("memory");
        lane.round(Time::ZERO);
    });
    runs.recv().expect("the task runs");
    let mut watch = LaneWatch { used, ..LaneWatch::new(LIMITS).expect("a signal") };
    let begin = Instant::now();
    let before = format!("a task of the kind `{}` has been running for ", kind.name());
    let mut of_it = |ms| {
        let found = watch.look(begin + Duration::from_millis(ms));
        found.into_iter().find(|found| found.text.contains(&before))
    };
    let mut all = Vec::new();
    for ms in (0..=15_000).step_by(25) {
        let Some(Found { kills, text, .. }) = of_it(ms) else { continue };
        let mut lines = text.split_once(&before).expect(&text).1.lines().map(str::to_owned);
        let mut next = || lines.next().expect("a sentence and a stack");
        all.push((kills, next(), next()));
        if kills {
            break;
        }
    }
    release.send(()).expect("the task listens");
    thread.join().expect("the lane ends well");
    assert!(of_it(16_000).is_none());
    all
}

#[test]
fn a_task_that_does_not_come_back_is_reported_once_and_kills_at_the_limit() {
    static STUCK: TaskKind = TaskKind::new("stuck in the test");
    // An overloaded machine must neither end the process nor fill its log: a thread without a processor has
    // ten times as long.
    let waits = |_: &Home| Some(Duration::from_millis(7));
    for (all, times) in [
        (looks_at(&STUCK, |runs| runs(), |_| None), ["100ms", "1s"]),
        (looks_at(&STUCK, |runs| runs(), waits), ["1s", "10s"]),
    ] {
        // The sanitizer may hold a signal back until a waiting thread goes on.
        let stack =
            |stack: &str| stack.starts_with("   0: 0x") || cfg!(manylane_tsan) && stack.contains("answer");
        assert!(all.iter().all(|(.., line)| stack(line)), "{all:?}");
        let all: Vec<_> = all.iter().map(|(kills, since, _)| (*kills, &**since)).collect();
        assert_eq!(all, [(false, times[0]), (true, times[1])]);
    }
}

#[test]
fn a_walk_that_does_not_end_is_given_up_and_none_begins_beside_it() {
    static HANGS: TaskKind = TaskKind::new("hangs in the test");
    let all = looks_at(&HANGS, stack::walk_without_end, |_| None);
    stack::end_walk();
    let stacks: Vec<_> = all.iter().map(|(.., stack)| stack.trim()).collect();
    assert_eq!(
        stacks,
        [
            "there is no stack: the walk through it does not end",
            "there is no stack: the handler of an earlier signal has not ended"
        ]
    );
}

#[test]
fn the_processor_time_of_a_lanes_thread_grows_while_it_works_and_is_unknown_without_a_thread() {
    let place = AtomicU32::new(0);
    assert_eq!(processor_time(&place), None);
    place.store(this_thread(), Ordering::Relaxed);
    let before = processor_time(&place).expect("the system tells");
    while processor_time(&place).expect("the system tells") < before + Duration::from_millis(2) {}
}

#[test]
fn limits_that_make_no_sense_are_refused_in_a_sentence() {
    let limits = Limits { warn: Duration::from_secs(1), kill: Duration::from_millis(5) };
    assert_eq!(
        Watchdog::start(limits, |_| {}).expect_err("refused").to_string(),
        "a watchdog cannot warn after 1s and kill after 5ms: warn after 1ms or more, and kill not earlier"
    );
    let mut watch = LaneWatch::new(Limits { warn: Duration::MAX, kill: Duration::MAX }).expect("a signal");
    let now = Instant::now();
    let _ = (watch.look(now), watch.look(now + Duration::from_secs(1)));
}
