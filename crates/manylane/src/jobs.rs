//! Threads beside the lanes, for what may take long: reading files, writing to a terminal.
//!
//! They begin with the process, since under `-m` the system may have no memory for a new thread later, when
//! there is something to say of that.

use crate::master::{Sender, channel};
use crate::system;

/// The stack of a thread that only writes or waits, in bytes: the system counts all of it under `-m`.
pub(crate) const SMALL_STACK: usize = 256 << 10;

/// A thread that does one job after the other, as long as this or a copy is kept.
#[derive(Clone)]
pub(crate) struct JobThread(Sender<Job>);

type Job = Box<dyn FnOnce() + Send>;

impl JobThread {
    /// One that writes to standard error: whoever reads that may have stopped, and neither a lane nor the end
    /// of the process must wait.
    ///
    /// # Errors
    /// A sentence, where the system gives no thread.
    pub(crate) fn to_say() -> Result<Self, String> {
        Self::start(std::thread::Builder::new().name("say".into()).stack_size(SMALL_STACK), || true)
            .ok_or_else(|| "cannot start a thread to write to standard error".into())
    }

    /// One that calls `begin` first. `None` where that says no, or the system gives no thread.
    fn start(thread: std::thread::Builder, begin: impl FnOnce() -> bool + Send + 'static) -> Option<Self> {
        let (give, jobs) = channel::<Job>();
        let (tell, told) = channel();
        let run = move || {
            let _ = tell.send(begin()); // the starter waits
            while let Ok(job) = jobs.recv() {
                job();
            }
        };
        thread.spawn(run).ok()?;
        told.recv().is_ok_and(|begun| begun).then_some(Self(give))
    }

    /// One that reads files. With `own_root` it sees the system's when the process is in a `chroot` later. On
    /// Linux a thread may have a root of its own, which is the process's until one of both changes. `None`
    /// where the system refuses that, as some containers do.
    pub(crate) fn for_files(own_root: bool, gets_no_rights: bool) -> Option<Self> {
        Self::start(std::thread::Builder::new().name("files".into()), move || {
            if gets_no_rights {
                system::no_new_rights(); // of each thread by itself
            }
            !own_root || nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok()
        })
    }

    /// Has the thread run `job` behind those that it was given before.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.0.send(Box::new(job)).map_err(|_| std::io::Error::other("the thread has ended"))
    }
}
