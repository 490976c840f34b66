//! Another configuration while the lanes go on: read and checked beside what serves, on a thread of its own, since names may have to be looked up.

use crate::arguments::Arguments;
use crate::{start, system};
use manylane_config::diag::ExitCode as Code;
use manylane_proxy::generation::Process;
use manylane_proxy::{BoundListener, Generation};
use std::cell::RefCell;
use std::fmt::Write;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// What was read: it is good, and its listeners are bound.
pub(crate) struct Fresh {
    pub(crate) generation: Generation,
    pub(crate) bound: Vec<BoundListener>,
    /// Warnings, a line each.
    pub(crate) said: String,
}

/// Reads again what the process was started with, to replace `before`.
///
/// # Errors
/// All that is wrong, as at the start. Nothing has changed then.
pub(crate) fn read(
    arguments: &Arguments,
    lanes: usize,
    before: (&Generation, &[BoundListener]),
) -> Result<Fresh, String> {
    let process = &before.0.process;
    if let Some(folder) = &process.chroot {
        let folder = folder.display();
        return Err(format!(
            "The files cannot be read from inside of 'chroot {folder}'; start another process with '-sf {}'.",
            std::process::id()
        ));
    }
    let read = start::read_files(arguments)?;
    match read.verdict.code {
        Code::Ok => {}
        Code::Error => return Err(read.said + &read.verdict.errors),
        Code::Unusable => return Err(read.said + "No enabled listener found (check for 'bind' directives)."),
    }
    let (generation, mut said) = (read.generation, read.said);
    for name in fixed(process, &generation.process) {
        let _ = writeln!(said, "'{name}' is what it was when the process started; a change needs a restart.");
    }
    let mut generation = generation;
    generation.set_maxconn(system::limits(&generation, lanes, arguments.maxconn)?);
    let bound = manylane_proxy::bind_beside(&generation, lanes, system::owner, before)
        .map_err(|failures| failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    Ok(Fresh { generation, bound, said })
}

/// Keywords whose values are applied once, at the start, and that differ.
fn fixed(before: &Process, now: &Process) -> Vec<&'static str> {
    let sockets = |process: &Process| -> Vec<_> {
        let all = process.stats_sockets.iter();
        all.map(|socket| (socket.listener.endpoint.clone(), socket.level, socket.severity)).collect()
    };
    let all = [
        ("nbthread", (before.lanes, before.most_lanes) != (now.lanes, now.most_lanes)),
        ("cpu-map", before.cpu_map != now.cpu_map),
        ("chroot", before.chroot != now.chroot),
        ("user", before.user != now.user),
        ("group", before.group != now.group),
        ("daemon", before.daemon != now.daemon),
        ("pidfile", before.pidfile != now.pidfile),
        ("busy-polling", before.busy_polling != now.busy_polling),
        ("tune.runqueue-depth", before.runqueue_depth != now.runqueue_depth),
        ("tune.sched.low-latency", before.low_latency != now.low_latency),
        ("profiling.tasks", before.profiling != now.profiling),
        ("warn-blocked-traffic-after", before.warn_blocked != now.warn_blocked),
        ("stats socket", sockets(before) != sockets(now)),
        ("stats maxconn", before.stats_maxconn != now.stats_maxconn),
    ];
    all.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
}

/// What becomes of a reload: what was said of it, or why all is as before.
pub(crate) type Outcome = Result<String, String>;

/// Who asked for a reload, and waits for what becomes of it. Of one lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asker(Rc<RefCell<(Option<Outcome>, Option<Waker>)>>);

impl Asker {
    /// Has it go on.
    pub(crate) fn answer(&self, outcome: Outcome) {
        let waker = {
            let mut slot = self.0.borrow_mut();
            slot.0 = Some(outcome);
            slot.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What became of it.
    pub(crate) async fn outcome(self) -> Outcome {
        poll_fn(|context| {
            let mut slot = self.0.borrow_mut();
            match slot.0.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    slot.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}
