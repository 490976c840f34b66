//! The interface of tasks to the lane on which they run.

use crate::class::Class;
use crate::error::{Cause, SpawnError};
use crate::home::{self, Home, Settings};
use crate::inbox::Closed;
use crate::kind::TaskKind;
use crate::slot::{Entry, bits};
use crate::task;
use crate::time::Time;
use crate::waker::TaskId;
use manylane_sync::LaneId;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The calling thread's lane. A copyable pointer that stays on its thread; tasks keep one.
#[derive(Clone, Copy)]
pub struct Here {
    home: &'static Home,
    not_send: PhantomData<*const ()>,
}

impl Here {
    #[inline(always)]
    pub(crate) fn new(home: &'static Home) -> Self {
        Self { home, not_send: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn home(self) -> &'static Home {
        self.home
    }

    /// Returns the lane of the calling thread, or none without a [`Lane`](crate::Lane). For code that cannot
    /// get one as an argument.
    #[inline]
    pub fn current() -> Option<Self> {
        home::here().map(Self::new)
    }

    /// Returns the lane's number.
    pub fn lane(self) -> LaneId {
        self.home.lane()
    }

    /// Returns a handle for other lanes.
    pub fn remote(self) -> Remote {
        Remote { lane: self.home.local.lane.get() }
    }

    /// Returns the time of this round.
    #[inline]
    pub fn now(self) -> Time {
        Time::from_nanos(self.home.local.now.get())
    }

    /// Starts a task on this lane, behind the queued ones. It never leaves the lane, so it need not be
    /// [`Send`].
    ///
    /// Cost: a block from the lane's cache, a slot from the free list, a push on the queue.
    ///
    /// # Errors
    /// [`SpawnError`] if there is no memory or no slot, or if the lane has ended; the future is dropped.
    #[inline]
    pub fn spawn<F>(self, kind: &'static TaskKind, class: Class, future: F) -> Result<TaskId, SpawnError>
    where
        F: Future<Output = ()> + 'static,
    {
        self.spawn_made(kind, class, || future)
    }

    /// Spawns, as [`spawn`](Self::spawn) does, the future that `make` returns. Calls `make` once there is a
    /// block for the future, so that a large future is built in place, without a copy.
    ///
    /// # Errors
    /// Those of [`spawn`](Self::spawn); `make` is dropped.
    #[inline(always)] // else the future would be made elsewhere
    pub fn spawn_made<F>(
        self,
        kind: &'static TaskKind,
        class: Class,
        make: impl FnOnce() -> F,
    ) -> Result<TaskId, SpawnError>
    where
        F: Future<Output = ()> + 'static,
    {
        if !self.home.local.open.get() {
            return Err(SpawnError(Cause::Ended(self.lane())));
        }
        self.home.adopt(task::create(kind, class, make)?, class)
    }

    /// Wakes all tasks of this kind on this lane, for an event that none of them waits for. Returns their
    /// number.
    ///
    /// Cost: reads each slot that the lane ever used.
    pub fn wake_kind(self, kind: &'static TaskKind) -> usize {
        self.home.wake_kind(kind)
    }

    /// Returns the running task, if there is one.
    pub fn task(self) -> Option<TaskId> {
        self.current_entry().map(|entry| entry.id.get())
    }

    /// Changes the class of the running task, from its next wake-up on, and returns its previous class. Does
    /// nothing outside of tasks.
    pub fn set_class(self, class: Class) -> Option<Class> {
        let entry = self.current_entry()?;
        let flags = entry.flags.get();
        renice(entry, flags & !bits::CLASS | (class as u32) << bits::CLASS_SHIFT);
        Some(Class::from_bits((flags & bits::CLASS) >> bits::CLASS_SHIFT))
    }

    /// Yields once as a task of `class`. Restores the task's own class afterwards, or when the future is
    /// dropped.
    pub async fn turn_in(self, class: Class) {
        struct Restored(Here, Option<Class>);
        impl Drop for Restored {
            fn drop(&mut self) {
                if let Some(class) = self.1 {
                    self.0.set_class(class);
                }
            }
        }
        let _restored = Restored(self, self.set_class(class));
        self.yield_now().await;
    }

    /// Sets the nice value of the running task, -1024 to 1024, from its next wake-up on: in class normal the
    /// task overtakes that many tasks, or lets that many pass. Does nothing outside of tasks.
    ///
    /// # Errors
    /// [`NiceOutOfRange`] for other values.
    pub fn set_nice(self, nice: i16) -> Result<(), NiceOutOfRange> {
        if !(-NICE_MOST..=NICE_MOST).contains(&nice) {
            return Err(NiceOutOfRange(nice));
        }
        if let Some(entry) = self.current_entry() {
            let others = entry.flags.get() & ((1 << bits::NICE_SHIFT) - 1);
            renice(entry, others | u32::from(nice.cast_unsigned()) << bits::NICE_SHIFT);
        }
        Ok(())
    }

    fn current_entry(self) -> Option<&'static Entry> {
        // SAFETY: null, or one of this home's entries, which live as long as the home.
        unsafe { self.home.local.current.get().as_ref() }
    }

    /// Ends a task of this lane: its future is dropped at once, or, if it is running, when its poll returns.
    /// Returns `false` if the task has ended already or belongs to another lane.
    pub fn abort(self, id: TaskId) -> bool {
        if id.lane_number() != self.home.local.lane.get() {
            return false;
        }
        let entry = self.home.entry(id.slot());
        if entry.id.get() != id || entry.task.get().is_null() {
            return false;
        }
        if std::ptr::eq(entry, self.home.local.current.get()) {
            entry.flags.set(entry.flags.get() | bits::ABORTED);
        } else {
            self.home.finish(entry);
        }
        true
    }

    /// Lets the other tasks in this round's queues run first.
    pub async fn yield_now(self) {
        let mut yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Sets for how long the lane polls busily before it sleeps: see
    /// [`Config::busy_poll`](crate::Config::busy_poll).
    pub fn set_busy_poll(self, time: Duration) {
        let settings = Settings { busy_poll: time, ..self.home.settings.get() };
        self.home.settings.set(settings);
    }

    /// Ends [`Lane::run`](crate::Lane::run) after this round.
    pub fn stop(self) {
        self.home.local.stopping.set(true);
    }
}

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Here({})", self.lane())
    }
}

/// Sets class and nice value of an entry to those in `flags`, and updates the bits derived from them.
fn renice(entry: &Entry, flags: u32) {
    let normal = flags & bits::CLASS == (Class::Normal as u32) << bits::CLASS_SHIFT;
    let niced = if normal && flags >> bits::NICE_SHIFT != 0 { bits::NICED } else { 0 };
    entry.flags.set(flags & !bits::NICED | niced);
}

/// Largest nice value; the smallest is its negative.
const NICE_MOST: i16 = 1024;

/// Error: a nice value out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NiceOutOfRange(
    /// The value.
    pub i16,
);

impl fmt::Display for NiceOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nice value {} is out of range: choose one from -{NICE_MOST} to {NICE_MOST}", self.0)
    }
}

impl std::error::Error for NiceOutOfRange {}

/// A handle on a lane for any thread: the lane's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    lane: u32,
}

impl Remote {
    /// Returns the handle of lane number `lane`, running or not.
    pub fn new(lane: LaneId) -> Self {
        Self { lane: lane.index() as u32 }
    }

    /// Returns the lane's number.
    pub fn lane(self) -> LaneId {
        LaneId::new(self.lane as usize).expect("it came from a lane")
    }

    /// Starts a task on that lane. On the calling thread's own lane this is [`Here::spawn`].
    ///
    /// Cost: a block from the calling lane's cache, one compare-and-swap on the other lane's inbox; if that
    /// lane sleeps, the system call that wakes it.
    ///
    /// # Errors
    /// [`SpawnError`]; the future is dropped.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn spawn<F>(self, kind: &'static TaskKind, class: Class, future: F) -> Result<(), SpawnError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // SAFETY: it is `Send`.
        unsafe { self.send(kind, class, future) }
    }

    /// Starts a task on that lane that calls `make` in its first poll and runs the returned future, which
    /// need not be [`Send`].
    ///
    /// # Errors
    /// [`SpawnError`]; then `make` is dropped.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn spawn_with<M, F>(self, kind: &'static TaskKind, class: Class, make: M) -> Result<(), SpawnError>
    where
        M: FnOnce(Here) -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        // SAFETY: until its first poll, on that lane, the task holds only `make`, which is `Send`.
        unsafe { self.send(kind, class, Made::Later(Some(make))) }
    }

    /// # Safety
    /// The future may change lanes before its first poll.
    #[cfg_attr(manylane_sim, track_caller)]
    unsafe fn send<F>(self, kind: &'static TaskKind, class: Class, future: F) -> Result<(), SpawnError>
    where
        F: Future<Output = ()> + 'static,
    {
        if let Some(home) = home::here()
            && home.local.lane.get() == self.lane
        {
            return Here::new(home).spawn(kind, class, future).map(|_| ());
        }
        let ended = SpawnError(Cause::Ended(self.lane()));
        let home = home::of(self.lane as usize).ok_or(ended)?;
        let task = task::create(kind, class, || future)?;
        // SAFETY: just made; the rest by contract.
        unsafe { home.send(task) }.map_err(|Closed| {
            // SAFETY: the lane refused the task, so this function still owns it, and no lane polled it.
            unsafe { task::release(task) };
            ended
        })
    }

    /// Ends [`Lane::run`](crate::Lane::run) of that lane.
    ///
    /// # Errors
    /// [`SpawnError`] if the lane has ended already, or there is no memory for the message.
    pub fn stop(self) -> Result<(), SpawnError> {
        static STOP: TaskKind = TaskKind::new("stop");
        self.spawn(&STOP, Class::Urgent, async {
            if let Some(here) = Here::current() {
                here.stop();
            }
        })
    }
}

/// A future that its first poll creates.
enum Made<M, F> {
    /// Taken once.
    Later(Option<M>),
    Now(F),
}

impl<M, F> Future for Made<M, F>
where
    M: FnOnce(Here) -> F,
    F: Future<Output = ()>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the future is never moved out of `Now`; `make` is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if let Self::Later(make) = this {
            let here = Here::current().expect("tasks are polled by their lane");
            let make = make.take().expect("a future is polled again only after it was made");
            *this = Self::Now(make(here));
        }
        match this {
            // SAFETY: as above.
            Self::Now(future) => unsafe { Pin::new_unchecked(future) }.poll(context),
            Self::Later(_) => Poll::Ready(()), // unreachable: created above
        }
    }
}
