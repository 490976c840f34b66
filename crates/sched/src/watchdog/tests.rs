use super::*;
use crate::{Class, Config, Lane, Time};
use stack::{DONE, STATE, WALKING, install};
use std::sync::{Mutex, mpsc};

/// Held while a test asks for stacks: a walk that hangs leaves none to others.
static ALONE: Mutex<()> = Mutex::new(());

/// Otherwise the report would lack the last lanes of a machine whose stacks take their whole time.
#[test]
fn the_last_report_has_time_for_each_stack() {
    assert!(longest_report(64) > stack::TIMEOUT * 64);
}

#[test]
fn a_task_that_does_not_come_back_is_reported_once_and_kills_at_the_limit() {
    static STUCK: TaskKind = TaskKind::new("stuck in the test");
    const SAID: &str = "a task of the kind `stuck in the test` has been running for ";
    let limits = Limits { warn: Duration::from_millis(100), kill: Duration::from_secs(1) };
    let _alone = ALONE.lock();
    install().expect("a signal");
    let unknown: fn(&Home) -> Option<Duration> = |_| None;
    // An overloaded machine must neither end the process nor fill its log: a thread without a processor has
    // ten times as long.
    for (used, factor) in [(unknown, 1), (|_| Some(Duration::from_millis(7)), 10)] {
        let (warn, kill, begin) = (limits.warn * factor, limits.kill * factor, Instant::now());
        let (tell, receiver) = mpsc::channel();
        let self_check = async move {
            let (mut lane_watch, mut now, mut all) = (LaneWatch::new(limits), begin, Vec::new());
            while now <= begin + kill {
                lane_watch.check(now, used, |kills, text| {
                    all.extend(text.split_once(SAID).map(|(_, rest)| (kills, rest.to_owned())));
                });
                now += Duration::from_millis(25);
            }
            let _ = tell.send((lane_watch, all));
        };
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        lane.here().spawn(&STUCK, Class::Normal, self_check).expect("memory");
        lane.round(Time::ZERO);
        let (mut lane_watch, all) = receiver.recv().expect("the task ends");
        lane_watch.check(begin + kill * 2, used, |_, text| assert!(!text.contains(SAID), "{text}"));
        assert_eq!(all.iter().map(|(kills, _)| *kills).collect::<Vec<_>>(), [false, true]);
        for ((_, text), after) in all.iter().zip([warn, kill]) {
            // The sanitizer may hold a signal back.
            let held_back = cfg!(manylane_tsan) && text.contains("answer");
            assert!(text.starts_with(&format!("{after:?}\n   0: 0x")) || held_back, "{text}");
        }
    }
}

#[test]
fn a_lanes_thread_that_hangs_or_has_ended_has_no_stack_and_only_one_that_works_uses_a_processor() {
    let _alone = ALONE.lock();
    let lane = Lane::new(Config::new()).expect("a new thread");
    let home = home::of(lane.here().lane().index()).expect("the lane's");
    let before = processor_time(home).expect("the system tells");
    while processor_time(home).expect("the system tells") < before + Duration::from_millis(2) {}
    // SAFETY: only signals of tests that have `ALONE` are ignored.
    unsafe { libc::signal(libc::SIGRTMAX(), libc::SIG_IGN) };
    let thread = this_thread();
    let walks_without_end = std::thread::spawn(move || {
        while STATE.compare_exchange(thread, WALKING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
    });
    let mut asks =
        std::iter::repeat_with(|| stack_of(home)).skip_while(|text| text.contains("did not answer"));
    let (first, second) = (asks.next().expect("endless"), stack_of(home));
    walks_without_end.join().expect("it was asked");
    STATE.store(DONE, Ordering::Relaxed);
    let ignores = stack_of(home);
    drop(lane);
    for (text, why) in [
        (first, "the walk through it does not end"),
        (second, "the handler of an earlier signal has not ended"),
        (ignores, "the thread did not answer; it may block the last real-time signal"),
        (stack_of(home), "the lane's thread has ended"),
    ] {
        assert_eq!(text.trim(), format!("there is no stack: {why}"));
    }
    assert_eq!(processor_time(home), None);
}

#[test]
fn limits_that_make_no_sense_are_refused_in_a_sentence() {
    let limits = Limits { warn: Duration::from_secs(1), kill: Duration::from_millis(5) };
    assert_eq!(
        Watchdog::start(limits, |_| {}).expect_err("refused").to_string(),
        "a watchdog cannot warn after 1s and kill after 5ms: warn after 1ms or more, and kill not earlier"
    );
    let mut lane_watch = LaneWatch::new(Limits { warn: Duration::MAX, kill: Duration::MAX });
    let now = Instant::now();
    lane_watch.check(now, |_| None, |_, _| {});
    lane_watch.check(now + Duration::from_secs(1), |_| None, |_, _| {});
}
