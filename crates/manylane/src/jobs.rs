//! Threads beside the lanes for jobs that may take long: reading files, writing to a terminal.
//!
//! They start with the process: later, under `-m`, the system may have no memory for a new thread, just when
//! the process has to report that.

use crate::channel::{Sender, channel};
use crate::system;

/// Stack size in bytes of a thread that only writes or waits: the system counts all of it under `-m`.
pub(crate) const SMALL_STACK: usize = 256 << 10;

/// A thread that runs jobs one after another, as long as this handle or a copy of it exists.
#[derive(Clone)]
pub(crate) struct JobThread(Sender<Job>);

type Job = Box<dyn FnOnce() + Send>;

impl JobThread {
    /// Starts a thread that writes to standard error. The reader there may have stopped, and neither a lane
    /// nor the end of the process may wait for it.
    ///
    /// # Errors
    /// A sentence, if the system has no thread.
    pub(crate) fn to_say() -> Result<Self, String> {
        Self::start(std::thread::Builder::new().name("say".into()).stack_size(SMALL_STACK), || true)
            .ok_or_else(|| "cannot start a thread to write to standard error".into())
    }

    /// Starts a thread that calls `begin` first. `None` if `begin` returns false or the system has no thread.
    fn start(thread: std::thread::Builder, begin: impl FnOnce() -> bool + Send + 'static) -> Option<Self> {
        let (give, jobs) = channel::<Job>();
        let (tell, receiver) = channel();
        let run = move || {
            let _ = tell.send(begin()); // the starter waits for this
            while let Ok(job) = jobs.recv() {
                job();
            }
        };
        thread.spawn(run).ok()?;
        receiver.recv().is_ok_and(|begun| begun).then_some(Self(give))
    }

    /// Starts a thread that reads files. With `own_root` it keeps the system's root when the process enters a
    /// `chroot` later: on Linux a thread may have a root of its own, which is the process's until one of them
    /// changes. `None` if the system refuses that, as some containers do.
    pub(crate) fn for_files(own_root: bool, gets_no_rights: bool) -> Option<Self> {
        Self::start(std::thread::Builder::new().name("files".into()), move || {
            if gets_no_rights {
                system::no_new_rights(); // this setting belongs to each thread
            }
            !own_root || nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok()
        })
    }

    /// Queues `job` behind the thread's earlier jobs.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.0.send(Box::new(job)).map_err(|_| std::io::Error::other("the thread has ended"))
    }
}
