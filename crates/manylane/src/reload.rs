//! Another configuration while the lanes go on: read and checked beside what serves, on a thread of its own,
//! since names may have to be looked up.
//!
//! A process in a `chroot` reads on a thread that stays outside ([`Outside`]): all files that the
//! configuration names, `/etc/passwd` and what names are resolved by are where they were at the start. The
//! thread has the rights of the user that the process became.

use crate::arguments::Arguments;
use crate::master::{Sender, channel};
use crate::{start, system};
use manylane_config::diag::ExitCode as Code;
use manylane_proxy::{Beside, BoundListener, Generation};
use std::cell::RefCell;
use std::fmt::Write;
use std::future::poll_fn;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A thread that sees the system's files when the process is in a `chroot`. It ends with this.
pub(crate) struct Outside(Sender<Job>);

type Job = Box<dyn FnOnce() + Send>;

impl Outside {
    /// To be called before the `chroot`. On Linux a thread may have a root of its own, which is the process's
    /// until one of both changes. `None` where the system refuses that, as some containers do.
    pub(crate) fn new(gets_no_rights: bool) -> Option<Self> {
        let (give, jobs) = channel::<Job>();
        let (tell, told) = channel();
        let run = move || {
            if gets_no_rights {
                system::no_new_rights(); // of each thread by itself
            }
            let own = nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS);
            let _ = tell.send(own.is_ok()); // the starter waits
            while let Ok(job) = jobs.recv() {
                job();
            }
        };
        std::thread::Builder::new().name("files".into()).spawn(run).ok()?;
        told.recv().is_ok_and(|own| own).then_some(Self(give))
    }

    /// Has the thread run `job` behind those that it was given before.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.0.send(Box::new(job)).map_err(|_| std::io::Error::other("the thread for files has ended"))
    }
}

/// What was read: it is good, and its listeners are bound.
pub(crate) struct Fresh {
    pub(crate) generation: Generation,
    pub(crate) listeners: Beside,
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
    // At the start a pipe may be read, once; whoever opens it again may wait for ever.
    let is_pipe = |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo());
    if let Some(path) = arguments.files.iter().find(is_pipe) {
        return Err(format!(
            "The configuration file '{}' is a pipe and is not read again; name a file.",
            path.display()
        ));
    }
    let read = start::read_files(arguments)?;
    match read.verdict.code {
        Code::Ok => {}
        Code::Error => return Err(read.said + &read.verdict.errors),
        Code::Unusable => return Err(read.said + "No enabled listener found (check for 'bind' directives)."),
    }
    let (mut generation, mut said) = (read.generation, read.said);
    for name in generation.process.keep_what_is_fixed(process) {
        let _ = writeln!(said, "'{name}' is what it was when the process started; a change needs a restart.");
    }
    for name in generation.misses(before.0) {
        let _ = writeln!(
            said,
            "Server '{name}' was added by a command and is in no file: it is gone, and who is with it ends \
                there."
        );
    }
    generation.set_maxconn(system::limits(&generation, lanes, arguments.maxconn)?);
    generation.descriptors = system::descriptors();
    let listeners = manylane_proxy::bind_beside(&generation, lanes, system::owner, before)
        .map_err(|failures| failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    for listener in &listeners.as_before {
        let _ = writeln!(
            said,
            "The socket at '{listener}' is what it was; other options of it, or shards, need a restart."
        );
    }
    Ok(Fresh { generation, listeners, said })
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
