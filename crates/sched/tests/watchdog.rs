//! The watchdog's report on a stuck lane before it ends the process, which is one of its own.
//! The thread sanitizer holds signals back until the thread next calls into it, which the tasks here never
//! do.
#![cfg(not(any(loom, manylane_sim, manylane_tsan)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_sched::{Class, Config, Lane, Limits, TaskKind, ThreadPoller, Watchdog};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

static BLOCKED: TaskKind = TaskKind::new("blocked");
static CIRCLING: TaskKind = TaskKind::new("circling");

/// Set in the process that is to die.
const VICTIM: &str = "MANYLANE_TEST_VICTIM";

/// The signal of `abort`.
const SIGABRT: i32 = 6;

/// Waits in a system call, inside of std.
#[inline(never)]
fn waits_for_what_never_comes(never: &mpsc::Receiver<()>) {
    std::hint::black_box(never).recv().unwrap();
}

#[inline(never)]
fn turns_in_circles() -> u64 {
    let mut turns = 0_u64;
    while std::hint::black_box(true) {
        turns = turns.wrapping_add(1);
    }
    turns
}

/// Starts a lane on a thread of its own, with a task.
fn start<F: Future<Output = ()> + Send + 'static>(kind: &'static TaskKind, task: F) {
    let (tell, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lane = Lane::new(Config::new()).unwrap();
        lane.here().spawn(kind, Class::Normal, task).unwrap();
        tell.send(()).unwrap();
        lane.run(&mut ThreadPoller::new()).unwrap();
    });
    receiver.recv().unwrap();
}

fn die() -> ! {
    // The waiting task is reported after 100 ms. All lanes must exist before the watchdog kills because of
    // the first.
    let limits = Limits { warn: Duration::from_millis(10), kill: Duration::from_secs(3) };
    let _watchdog = Watchdog::start(limits, |stuck| eprint!("warning: {stuck}")).unwrap();
    start(&CIRCLING, async {
        turns_in_circles();
    });
    let (_keep, never) = mpsc::channel();
    start(&BLOCKED, async move { waits_for_what_never_comes(&never) });
    start(&BLOCKED, std::future::pending());
    loop {
        std::thread::park();
    }
}

#[test]
fn a_lane_that_does_not_come_back_is_shown_with_its_stack_and_ends_the_process_with_every_lanes_state() {
    if std::env::var_os(VICTIM).is_some() {
        die();
    }
    let victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("a_lane_that_does_not_come_back_is_shown_with_its_stack_and_ends_the_process_with_every_lanes_state")
        .env(VICTIM, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&victim.stderr);
    assert_eq!(victim.status.signal(), Some(SIGABRT), "{said}");
    let (warnings, end) = said.split_once("aborting; the lanes:\n").expect(&said);
    for (kind, function) in [("blocked", "waits_for_what_never_comes"), ("circling", "turns_in_circles")] {
        let warning =
            warnings.split("warning: ").find(|text| text.contains(&format!("of the kind `{kind}`")));
        let warning = warning.unwrap_or_else(|| panic!("no warning of `{kind}`:\n{said}"));
        assert!(warning.contains(function), "{function} is not in:\n{warning}");
        assert!(warning.contains("tests/watchdog.rs:"), "{warning}");
        // The way there, through the scheduler. Matched by its file, since an inlined function has no path in
        // its name.
        assert!(warning.contains("sched/src/lane.rs:"), "{warning}");
        let state = end.split("lane ").find(|text| text.contains(&format!("runs one of the kind `{kind}`")));
        let state = state.unwrap_or_else(|| panic!("no state of the lane with `{kind}`:\n{said}"));
        assert!(state.contains(function), "{function} is not in:\n{state}");
    }
    assert!(end.contains("live 1, runs none; queued: 0 urgent, 0 normal"), "the third lane sleeps: {end}");
}

/// Fills the pipe of its standard error, if somebody holds the other end, and hangs. Ends with its input.
fn die_unread() -> ! {
    std::thread::spawn(|| while std::io::stderr().write_all(&[b'x'; 4096]).is_ok() {});
    let limits = Limits { warn: Duration::from_millis(10), kill: Duration::from_millis(500) };
    let _watchdog = Watchdog::start(limits, |_| {}).unwrap();
    start(&CIRCLING, async {
        turns_in_circles();
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0)
}

/// The reader of standard error has left, or it has stopped and the pipe is full.
#[test]
fn a_lane_that_does_not_come_back_ends_the_process_although_nobody_reads_the_report() {
    if std::env::var_os(VICTIM).is_some() {
        die_unread();
    }
    for has_left in [true, false] {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("a_lane_that_does_not_come_back_ends_the_process_although_nobody_reads_the_report")
            .env(VICTIM, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(writer)
            .spawn()
            .unwrap();
        let reader = (!has_left).then_some(reader);
        let input = victim.stdin.take();
        let (tell, ended) = mpsc::channel();
        std::thread::spawn(move || tell.send(victim.wait().unwrap().signal()));
        let ended = ended.recv_timeout(Duration::from_secs(60));
        drop((input, reader)); // a victim that still runs ends with its input
        assert_eq!(ended, Ok(Some(SIGABRT)), "the reader has left: {has_left}");
    }
}
