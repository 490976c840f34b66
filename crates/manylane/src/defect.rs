//! Reports panics in one line. A panic ends the task in which it happens. If the task serves one client or
//! answers one question, the process continues. Nobody would notice that another task is gone (one that
//! accepts, checks or does housekeeping), so the process then aborts, as it does when a lane hangs, and its
//! supervisor starts another.

use crate::say;
use manylane_sched::{Here, LONGEST_WRITE};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

/// Kinds of tasks that may end alone.
const ALONE: &[&str] =
    &["session", "control", "takeover", "question to a name server", "slice of streams", "demo serve"];

/// Installs the panic hook, which reports panics like all messages. With `RUST_BACKTRACE=1` in the
/// environment a backtrace follows, but not if the process's memory is bounded (`-m`): to look up the names
/// of functions takes more than the reserve, and the process would abort for lack of it.
pub(crate) fn tell() {
    std::panic::set_hook(Box::new(|panic| {
        let write = || {
            say::text(&say::line("ALERT", sentence(panic)));
            // Only now: to look up the names may fail or take its time.
            if !manylane_pool::reserve::is_kept() {
                let calls = Backtrace::capture();
                if calls.status() == BacktraceStatus::Captured {
                    say::text(&say::line("ALERT", calls));
                }
            }
        };
        if running().is_some_and(|(_, kind)| !ALONE.contains(&kind)) {
            manylane_sched::abort_after(LONGEST_WRITE, write);
        }
        write();
    }));
}

/// Runs `work` on a thread beside the lanes.
///
/// # Errors
/// `work` panicked, which the hook has reported.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err("A defect of this program was met, and all is as before: standard error has more.".into())
    })
}

fn sentence(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let words = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let (whose, rest) = match running() {
        Some((lane, kind)) => (
            format!("lane {lane}, in a task of the kind '{kind}'"),
            match ALONE.contains(&kind) {
                true => "; what it served has ended, and all else goes on",
                false => "; the process ends, since nothing does what that task did",
            },
        ),
        None => (format!("thread '{}'", std::thread::current().name().unwrap_or("without a name")), ""),
    };
    format!(
        "A defect of this program was met at {location} on {whose}: {}{rest}. Please report it.",
        words.unwrap_or("it left no words")
    )
}

/// Returns the calling lane and the kind of its running task.
fn running() -> Option<(usize, &'static str)> {
    let lane = Here::current()?.lane();
    let report = manylane_sched::report().into_iter().find(|report| report.lane == lane)?;
    Some((lane.index(), report.running?))
}
