//! Defects of the program: a panic ends the task that meets it, and is told in one line.

use crate::say;
use manylane_sched::Here;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

/// From now on panics are told as all else is. With `RUST_BACKTRACE=1` in the environment the calls that led there follow.
pub(crate) fn tell() {
    std::panic::set_hook(Box::new(|panic| {
        say::alert(sentence(panic));
        let calls = Backtrace::capture();
        if calls.status() == BacktraceStatus::Captured {
            say::alert(calls);
        }
    }));
}

fn sentence(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let words = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let (whose, rest) = match running() {
        Some((lane, kind)) => (
            format!("lane {lane}, in a task of the kind '{kind}'"),
            "; what it served has ended, and all else goes on",
        ),
        None => (format!("thread '{}'", std::thread::current().name().unwrap_or("without a name")), ""),
    };
    format!(
        "A defect of this program was met at {place} on {whose}: {}{rest}. Please report it.",
        words.unwrap_or("it left no words")
    )
}

/// The calling lane, and what it runs.
fn running() -> Option<(usize, &'static str)> {
    let lane = Here::current()?.lane();
    let report = manylane_sched::report().into_iter().find(|report| report.lane == lane)?;
    Some((lane.index(), report.running?))
}
