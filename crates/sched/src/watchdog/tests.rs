use super::*;
use crate::{Class, Config, Lane, Time};
use std::sync::mpsc;

const LIMITS: Limits = Limits { warn: Duration::from_millis(100), kill: Duration::from_secs(1) };

/// Looks at a task that waits for the test, in the watchdog's own time, until it would end the process: what
/// is found of it, and when.
fn looks_at(kind: &'static TaskKind, used: fn(&Home) -> Option<Duration>) -> Vec<(bool, String)> {
    let (running, runs) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        let stuck = async move {
            running.send(()).expect("the test listens");
            released.recv().expect("the test tells");
        };
        lane.here().spawn(kind, Class::Normal, stuck).expect("memory");
        lane.round(Time::ZERO);
    });
    runs.recv().expect("the task runs");
    let mut watch = LaneWatch { used, ..LaneWatch::new(LIMITS) };
    let begin = Instant::now();
    let before = format!("a task of the kind `{}` has been running for ", kind.name());
    let mut of_it = |ms| {
        let found = watch.look(begin + Duration::from_millis(ms));
        found.into_iter().find(|found| found.text.contains(&before))
    };
    let mut all = Vec::new();
    for ms in (0..=15_000).step_by(25) {
        let Some(Found { kills, text, .. }) = of_it(ms) else { continue };
        let (since, stack) =
            text.split_once(&before).and_then(|(_, rest)| rest.split_once('\n')).expect(&text);
        assert!(stack.starts_with("   0: 0x"), "{text}");
        all.push((kills, since.to_owned()));
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
    let all = looks_at(&STUCK, |_| None);
    assert_eq!(all, [(false, "100ms".into()), (true, "1s".into())]);
}

/// A machine with too much to do must not end the process, nor fill its log.
#[test]
fn a_task_whose_thread_is_given_no_processor_has_ten_times_as_long() {
    static STARVED: TaskKind = TaskKind::new("starved in the test");
    let all = looks_at(&STARVED, |_| Some(Duration::from_millis(7)));
    assert_eq!(all, [(false, "1s".into()), (true, "10s".into())]);
}

#[test]
fn the_processor_time_of_a_lanes_thread_grows_while_it_works_and_is_unknown_without_a_thread() {
    let place = ThreadPlace::new();
    assert_eq!(place.processor_time(), None);
    place.enter();
    let before = place.processor_time().expect("the system tells");
    while place.processor_time().expect("the system tells") < before + Duration::from_millis(2) {}
}

#[test]
fn limits_that_make_no_sense_are_refused_in_a_sentence() {
    let limits = Limits { warn: Duration::from_secs(1), kill: Duration::from_millis(5) };
    assert_eq!(
        Watchdog::start(limits, |_| {}).expect_err("refused").to_string(),
        "a watchdog cannot warn after 1s and kill after 5ms: warn after 1ms or more, and kill not earlier"
    );
    let mut watch = LaneWatch::new(Limits { warn: Duration::MAX, kill: Duration::MAX });
    let now = Instant::now();
    let _ = (watch.look(now), watch.look(now + Duration::from_secs(1)));
}
