//! A bounded pool of threads for jobs that block: name lookups through libc, reads of files. Lanes never
//! block themselves.
//!
//! # Protocol
//! One lock guards the queue and the list of idle threads. A call queues its job and wakes an idle thread, or
//! starts a thread while there are fewer than the limit. A thread that finds the queue empty lists itself as
//! idle before it unlocks, so no job waits while a thread sleeps. A thread that takes a job removes itself
//! from the list, since it may have woken for another reason, such as a `park` token that an earlier job
//! left. A job stores its result, then wakes its task by the task's waker.
//!
//! # Cost
//! One or two allocations, a lock, a wake-up: microseconds. For work that takes longer than that.

use manylane_sync::thread::{self, JoinHandle, Thread};
use manylane_sync::{Arc, LockClass, Mutex};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Default number of threads of a pool: enough for lookups that hang for seconds while the lanes go on.
pub const BLOCKING_THREADS: usize = 16;
/// Default maximum of waiting jobs. A caller beyond it gets an error at once, since a queue that only grows
/// helps no caller.
pub const BLOCKING_QUEUE: usize = 1024;

static QUEUE: LockClass = LockClass::new("blocking pool", 2);
static RESULT: LockClass = LockClass::new("blocking result", LockClass::LEAF);

type Job = Box<dyn FnOnce() + Send>;

/// A bounded pool of threads that may block. Dropping it finishes the queued jobs, ends the threads and waits
/// for both, so a lane must not drop it.
pub struct BlockingPool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    threads: usize,
    queue: usize,
    /// Name of the threads in the system.
    name: &'static str,
}

struct State {
    jobs: VecDeque<Job>,
    idle: Vec<Thread>,
    started: Vec<JoinHandle<()>>,
    ending: bool,
}

/// The pool refused a job, and dropped it.
#[derive(Debug)]
pub enum Refused {
    /// The queue is full.
    Full {
        /// Maximum number of waiting jobs.
        queue: usize,
    },
    /// The pool has no thread yet, and the system refused one.
    NoThread(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { queue } => {
                write!(
                    f,
                    "the blocking pool is full: {queue} jobs wait; try again later, or raise its limits"
                )
            }
            Self::NoThread(error) => {
                write!(f, "the blocking pool has no thread, and the system gave none: {error}")
            }
        }
    }
}

impl std::error::Error for Refused {}

impl BlockingPool {
    /// Creates a pool of at most `threads` threads (0 counts as 1) and at most `queue` waiting jobs. It
    /// starts threads as it needs them.
    pub fn new(threads: usize, queue: usize) -> Self {
        Self::named("blocking", threads, queue)
    }

    /// Creates a pool whose threads have a name of up to 15 bytes in the system.
    pub fn named(name: &'static str, threads: usize, queue: usize) -> Self {
        let state = State { jobs: VecDeque::new(), idle: Vec::new(), started: Vec::new(), ending: false };
        let shared = Shared { state: Mutex::new(&QUEUE, state), threads: threads.max(1), queue, name };
        Self { shared: Arc::new(shared) }
    }

    /// Runs `job` on one of the threads. The returned future resolves to the job's result. If the future is
    /// dropped earlier, the job still runs; the pool's thread drops its result and wakes no task. A result
    /// that is already stored is dropped with the future.
    ///
    /// # Errors
    /// [`Refused`]; the job is dropped.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Blocking<T>, Refused> {
        let slot = Arc::new(Mutex::new(&RESULT, Slot { result: None, waker: None }));
        let shared = slot.clone();
        let job: Job = Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(job));
            let waker = {
                let mut slot = shared.lock();
                slot.result = Some(result);
                slot.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        Shared::submit(&self.shared, job)?;
        Ok(Blocking { slot })
    }

    /// Starts a thread, unless there is one, for a caller that may have no memory for it later. If the system
    /// refuses, [`run`](Self::run) tries again.
    pub fn prepare(&self) {
        let mut state = self.shared.state.lock();
        if state.started.is_empty()
            && let Ok(thread) = Shared::thread(&self.shared)
        {
            state.started.push(thread);
        }
    }

    /// Returns the number of started threads.
    pub fn threads(&self) -> usize {
        self.shared.state.lock().started.len()
    }
}

impl Default for BlockingPool {
    /// [`BLOCKING_THREADS`] and [`BLOCKING_QUEUE`].
    fn default() -> Self {
        Self::new(BLOCKING_THREADS, BLOCKING_QUEUE)
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        write!(f, "BlockingPool({} threads, {} jobs wait)", state.started.len(), state.jobs.len())
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        let (idle, threads) = {
            let mut state = self.shared.state.lock();
            state.ending = true;
            (std::mem::take(&mut state.idle), std::mem::take(&mut state.started))
        };
        idle.iter().for_each(Thread::unpark);
        for thread in threads {
            // A pool that one of its own jobs drops does not wait for that job's thread. Panics of jobs are
            // caught.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn submit(this: &Arc<Self>, job: Job) -> Result<(), Refused> {
        let mut state = this.state.lock();
        if let Some(thread) = state.idle.pop() {
            state.jobs.push_back(job);
            drop(state);
            thread.unpark();
            return Ok(());
        }
        if state.jobs.len() >= this.queue && state.started.len() >= this.threads {
            return Err(Refused::Full { queue: state.jobs.len() });
        }
        if state.started.len() < this.threads {
            match Self::thread(this) {
                Ok(thread) => state.started.push(thread),
                Err(error) if state.started.is_empty() => return Err(Refused::NoThread(error)),
                Err(_) if state.jobs.len() >= this.queue => {
                    return Err(Refused::Full { queue: state.jobs.len() });
                }
                Err(_) => {} // running threads will take the job
            }
        }
        state.jobs.push_back(job);
        Ok(())
    }

    fn thread(this: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let shared = this.clone();
        thread::Builder::new().name(this.name.to_owned()).spawn(move || shared.work())
    }

    fn work(&self) {
        #[cfg(not(any(loom, manylane_sim)))]
        crate::placement::unbind(); // the starter may be a lane that `cpu-map` binds
        let this = thread::current().id();
        loop {
            let job = {
                let mut state = self.state.lock();
                let job = state.jobs.pop_front();
                let listed = state.idle.iter().position(|idle| idle.id() == this);
                match (&job, listed) {
                    (Some(_), Some(index)) => drop(state.idle.swap_remove(index)),
                    (None, _) if state.ending => return,
                    (None, None) => state.idle.push(thread::current()),
                    _ => {}
                }
                job
            };
            match job {
                // A job cannot panic by itself, but the destructor of its result or a foreign waker may. The
                // thread goes on.
                Some(job) => drop(catch_unwind(AssertUnwindSafe(job)).map_err(std::mem::forget)),
                None => thread::park(),
            }
        }
    }
}

struct Slot<T> {
    result: Option<Result<T, Box<dyn Any + Send>>>,
    waker: Option<Waker>,
}

/// A future of a job's result.
#[must_use = "the result comes when it is awaited"]
pub struct Blocking<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

impl<T> Future for Blocking<T> {
    type Output = T;

    /// # Panics
    /// Panics with the panic of the job. Panics if it is polled after completion.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Cloned and dropped outside of the lock, since a foreign waker may call anything.
        let waker = context.waker().clone();
        let (result, before) = {
            let mut slot = self.slot.lock();
            match slot.result.take() {
                None => (None, slot.waker.replace(waker)),
                result => (result, Some(waker)),
            }
        };
        drop(before);
        match result {
            Some(Ok(value)) => Poll::Ready(value),
            Some(Err(panic)) => resume_unwind(panic),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Blocking<T> {
    fn drop(&mut self) {
        let waker = self.slot.lock().waker.take();
        drop(waker); // outside of the lock
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.slot.lock().result.is_some() { "Blocking(done)" } else { "Blocking(pending)" })
    }
}
