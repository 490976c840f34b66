//! Helpers of the tests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test file uses its part

use jiff::tz::TimeZone;
use manylane_io::{Driver, DriverChoice, Io, Kind};
use manylane_logs::{Facility, Format, LaneLogs, Level, Line, Sink, Target, TargetSpec, Timeouts};
use manylane_sched::{BlockingPool, Config, Here, Lane};
use manylane_sync::Arc;
use std::time::Duration;

pub fn spec(sink: Sink) -> TargetSpec {
    TargetSpec {
        sink,
        format: Format::Short,
        keeps_format: false,
        length: 1024,
        room: None,
        facility: Facility::new(16).unwrap(),
        level: Level::Debug,
        min_level: Level::Emerg,
        sample: None,
        timeouts: Timeouts::default(),
    }
}

pub fn line(text: &[u8]) -> Line<'_> {
    Line { level: Level::Info, tag: b"t", pid: 1, host: b"", structured: b"", time: Duration::ZERO, text }
}

/// Runs `body` on a new lane that logs to a target.
pub fn on_lane<F: Future<Output = ()> + 'static>(
    spec: TargetSpec,
    body: impl FnOnce(Here, LaneLogs, Arc<Target>) -> F,
) -> Arc<Target> {
    let target = Arc::new(Target::new(spec).unwrap());
    on_driver(Kind::Epoll, [target.clone()], |io, logs| body(io.here(), logs, target.clone()));
    target
}

/// Runs `body` on a new lane with this driver, which logs to `targets`.
pub fn on_driver<F: Future<Output = ()> + 'static>(
    kind: Kind,
    targets: impl IntoIterator<Item = Arc<Target>>,
    body: impl FnOnce(Io, LaneLogs) -> F,
) {
    let mut lane = Lane::new(Config::new()).unwrap();
    let here = lane.here();
    let mut driver = Driver::new(here, DriverChoice::Only(kind)).unwrap();
    let io = driver.io();
    let logs = LaneLogs::new(here, io.clone(), Arc::new(BlockingPool::default()), TimeZone::UTC, targets);
    lane.block_on(&mut driver, body(io, logs)).unwrap();
}

/// The drivers that the kernel allows here.
pub fn drivers() -> impl Iterator<Item = Kind> {
    [Kind::Epoll, Kind::IoUring].into_iter().filter(|kind| {
        let lane = Lane::new(Config::new()).unwrap();
        Driver::new(lane.here(), DriverChoice::Only(*kind)).is_ok()
    })
}

pub fn counts(target: &Target) -> (u64, u64) {
    let counts = target.counts().read_cheap();
    (counts[0], counts[1])
}

/// Waits until so many lines were sent or lost.
pub async fn until(here: Here, target: &Target, lines: u64) {
    while counts(target).0 + counts(target).1 < lines {
        here.yield_now().await;
    }
}

/// Logs `count` numbered lines and waits until they are sent or lost.
pub fn log_numbers(spec: TargetSpec, count: u64) -> Arc<Target> {
    on_lane(spec, move |here, logs, target| async move {
        for n in 0..count {
            logs.log(0, &line(format!("line {n}").as_bytes()));
        }
        until(here, &target, count).await;
    })
}

pub fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("manylane-logs-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
