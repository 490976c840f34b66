//! What tasks say to the lane that they run on.

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

/// The calling thread's lane. A copy of it is a copy of a pointer; it stays on its thread. Tasks take it
/// along.
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

    /// The lane of the calling thread; none where no [`Lane`](crate::Lane) lives. For code that cannot be
    /// handed one.
    #[inline]
    pub fn current() -> Option<Self> {
        home::here().map(Self::new)
    }

    /// The lane's number.
    pub fn lane(self) -> LaneId {
        self.home.lane()
    }

    /// The lane, as others see it.
    pub fn remote(self) -> Remote {
        Remote { lane: self.home.local.lane.get() }
    }

    /// The time of this round.
    #[inline]
    pub fn now(self) -> Time {
        Time::from_nanos(self.home.local.now.get())
    }

    /// Starts a task on this lane. It stays here, so it may hold what is not [`Send`]. Its first poll is in
    /// its turn.
    ///
    /// Cost: a block from the lane's cache, a slot from the free list, a push on the queue.
    ///
    /// # Errors
    /// [`SpawnError`] when there is no memory or no slot, or the lane has ended; the future is dropped.
    #[inline]
    pub fn spawn<F>(self, kind: &'static TaskKind, class: Class, future: F) -> Result<TaskId, SpawnError>
    where
        F: Future<Output = ()> + 'static,
    {
        self.spawn_made(kind, class, || future)
    }

    /// [`spawn`](Self::spawn) of the future that `make` makes, which is called when there is a block for it:
    /// so a large one is made there, and need not be copied.
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

    /// Wakes all tasks of this kind that live on this lane: to tell them something that none of them waits
    /// for. How many.
    ///
    /// Cost: a look at each slot that the lane has ever used.
    pub fn wake_kind(self, kind: &'static TaskKind) -> usize {
        self.home.wake_kind(kind)
    }

    /// The task that runs, if one does.
    pub fn task(self) -> Option<TaskId> {
        self.current_entry().map(|entry| entry.id.get())
    }

    /// Changes the class of the task that runs, from its next wake-up on; the class it had. Nothing outside
    /// of tasks.
    pub fn set_class(self, class: Class) -> Option<Class> {
        let entry = self.current_entry()?;
        let flags = entry.flags.get();
        renice(entry, flags & !bits::CLASS | (class as u32) << bits::CLASS_SHIFT);
        Some(Class::from_bits((flags & bits::CLASS) >> bits::CLASS_SHIFT))
    }

    /// Gives the task that runs a nice value, -1024 to 1024, from its next wake-up on: in class normal it
    /// overtakes that many tasks, or lets so many pass. Nothing outside of tasks.
    ///
    /// # Errors
    /// [`NiceOutOfRange`].
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
        // SAFETY: null, or one of this home's entries, which live as long as it.
        unsafe { self.home.local.current.get().as_ref() }
    }

    /// Ends a task of this lane: its future is dropped, at once or, for the one that runs, when its poll
    /// returns. `false` when it has ended already, or is another lane's.
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

    /// Lets the other tasks of this round's queues go first.
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

    /// From here on the lane looks for work for so long before it sleeps: see
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

/// Gives an entry class and nice value as in `flags`, and what follows from them.
fn renice(entry: &Entry, flags: u32) {
    let normal = flags & bits::CLASS == (Class::Normal as u32) << bits::CLASS_SHIFT;
    let niced = if normal && flags >> bits::NICE_SHIFT != 0 { bits::NICED } else { 0 };
    entry.flags.set(flags & !bits::NICED | niced);
}

/// The largest nice value, and the smallest's opposite.
const NICE_MOST: i16 = 1024;

/// A nice value beyond its range.
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

/// A lane, from anywhere: a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    lane: u32,
}

impl Remote {
    /// Lane number `lane`, whether it runs or not.
    pub fn new(lane: LaneId) -> Self {
        Self { lane: lane.index() as u32 }
    }

    /// The lane's number.
    pub fn lane(self) -> LaneId {
        LaneId::new(self.lane as usize).expect("it came from a lane")
    }

    /// Starts a task on that lane. On the calling thread's own this is [`Here::spawn`].
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

    /// Has that lane call `make`, in a new task's first poll, and run the future that it returns: so the
    /// future itself may hold what is not [`Send`].
    ///
    /// # Errors
    /// [`SpawnError`]; `make` is dropped.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn spawn_with<M, F>(self, kind: &'static TaskKind, class: Class, make: M) -> Result<(), SpawnError>
    where
        M: FnOnce(Here) -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        // SAFETY: until its first poll, which is on that lane, it holds `make` only, which is `Send`.
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
            // SAFETY: it was refused, so it is still ours, and it was never polled.
            unsafe { task::release(task) };
            ended
        })
    }

    /// Ends that lane's [`Lane::run`](crate::Lane::run).
    ///
    /// # Errors
    /// [`SpawnError`] when the lane has ended already, or there is no memory to tell it.
    pub fn stop(self) -> Result<(), SpawnError> {
        static STOP: TaskKind = TaskKind::new("stop");
        self.spawn(&STOP, Class::Urgent, async {
            if let Some(here) = Here::current() {
                here.stop();
            }
        })
    }
}

/// A future that is made at its first poll.
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
            Self::Later(_) => Poll::Ready(()), // cannot be: it was made above
        }
    }
}
