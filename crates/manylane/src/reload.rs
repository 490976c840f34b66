//! Reads another configuration while the lanes serve, and checks it beside the serving one. That runs on a
//! thread of its own, since names may have to be looked up.
//!
//! In a process with a `chroot`, the thread stays outside: all files of the configuration, `/etc/passwd` and
//! the files for name resolution are where they were at the start. The thread has the rights of the user that
//! the process became.

use crate::arguments::Arguments;
use crate::start;
use crate::system::{self, LimitBefore};
use manylane_config::diag::ExitCode as Code;
use manylane_lanes::{BoundListener, ListenersBeside};
use manylane_plan::Generation;
use std::cell::RefCell;
use std::fmt::Write;
use std::future::poll_fn;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A valid new configuration with bound listeners.
pub(crate) struct NewGeneration {
    pub(crate) generation: Generation,
    pub(crate) listeners: ListenersBeside,
    /// The limit of descriptors of the configuration before, which comes back if this one is not served.
    pub(crate) limit: LimitBefore,
    /// Warnings, one per line.
    pub(crate) said: String,
}

/// Returns a file of the command line that is a pipe. It can be read once, at the start; opening it again
/// could block forever.
pub(crate) fn pipe(arguments: &Arguments) -> Option<&PathBuf> {
    let is_pipe = |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo());
    arguments.files.iter().find(is_pipe)
}

/// Reads the files of the command line again, to replace `before`.
///
/// # Errors
/// All errors, as at the start. Then nothing has changed.
pub(crate) fn read(
    arguments: &Arguments,
    lanes: usize,
    before: (&Generation, &[BoundListener]),
) -> Result<NewGeneration, String> {
    let process = &before.0.process;
    if let Some(path) = pipe(arguments) {
        return Err(format!(
            "The configuration file '{}' is a pipe and is not read again; name a file.",
            path.display()
        ));
    }
    let read = start::read_files(arguments, Some(before.0))?;
    match read.outcome.code {
        Code::Ok => {}
        Code::Error => return Err(read.said + &read.outcome.errors),
        Code::Unusable => return Err(read.said + "No enabled listener found (check for 'bind' directives)."),
    }
    let (mut generation, mut said) = (read.generation, read.said);
    for kept in generation.process.keep_what_is_fixed(process) {
        let _ = writeln!(said, "{kept} from the start; a change needs a restart.");
    }
    for name in generation.misses(before.0) {
        let _ = writeln!(
            said,
            "Server '{name}' was added by a command and is in no file: it gets no more requests, and \
                is removed when those that it has end."
        );
    }
    let limit = LimitBefore::now();
    generation.set_maxconn(system::limits(&generation, lanes, arguments.maxconn)?);
    generation.descriptors = system::descriptors();
    generation.acme.make_account_keys((None, None))?;
    let listeners = manylane_lanes::bind_beside(&generation, lanes, system::owner, before)
        .map_err(|failures| failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    for listener in &listeners.as_before {
        let _ = writeln!(
            said,
            "The socket at '{listener}' keeps its options and shards; a change needs a restart."
        );
    }
    Ok(NewGeneration { generation, listeners, limit, said })
}

/// Result of a reload: its messages, or the reason why nothing has changed.
pub(crate) type Outcome = Result<String, String>;

/// A task that waits for the result of a reload, on one lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadWaiter(Rc<RefCell<(Option<Outcome>, Option<Waker>)>>);

impl ReloadWaiter {
    /// Sets the result and wakes the task.
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

    /// Waits for the result.
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
