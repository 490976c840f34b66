//! The run queue of a round: which tasks run, in which order, how many.

use crate::class::{self, Class};
use crate::home::Home;
use crate::slot::{Entry, bits};
use crate::task::{self, Header};
use crate::time::Time;
use manylane_sync::atomic::Ordering;
use std::mem;
use std::ptr::{self, NonNull};
use std::task::Context;

const URGENT: usize = Class::Urgent as usize;
const NORMAL: usize = Class::Normal as usize;
const BULK: usize = Class::Bulk as usize;
const HEAVY: usize = Class::Heavy as usize;

impl Home {
    /// Polls tasks within the budget of a round. Returns their number.
    ///
    /// Makes passes over the first three classes, each with its share, until the depth is reached or nothing
    /// is queued; then runs heavy tasks. Heavy tasks come last: the tasks that they delay have had their turn
    /// in this round, and the poller is next.
    #[inline]
    pub(crate) fn run_queue(&self) -> u32 {
        if self.queued() == 0 {
            return 0;
        }
        let settings = self.settings.get();
        let began = self.polls();
        let alone = self.light() == [0; 3];
        let mut ran = [0_u64; 4];
        let mut left = settings.depth;
        while left > 0 {
            let lengths = self.light();
            if lengths == [0; 3] {
                break;
            }
            let before = self.polls();
            if settings.low_latency {
                self.pass_urgent_first(left, lengths, &mut ran);
            } else {
                let shares = class::shares(left, lengths);
                for class in 0..HEAVY {
                    ran[class] += u64::from(self.run_class(class, shares[class]));
                }
            }
            let polled = self.polls().wrapping_sub(before) as u32;
            left = left.saturating_sub(polled.max(1)); // all slots of a pass may belong to ended tasks
        }
        let heavy = class::heavy_share(self.local.fifos[HEAVY].len(), alone, settings.low_latency);
        ran[HEAVY] += u64::from(self.run_class(HEAVY, heavy));
        self.between_tasks();
        let counters = &self.published.counters;
        counters.urgent.add(ran[URGENT]);
        counters.normal.add(ran[NORMAL]);
        counters.bulk.add(ran[BULK]);
        counters.heavy.add(ran[HEAVY]);
        self.polls().wrapping_sub(began) as u32
    }

    /// Returns the number of polls of this lane: that of the last one.
    #[inline(always)]
    fn polls(&self) -> u64 {
        self.published.run.load(Ordering::Relaxed) // only this lane writes it
    }

    /// Makes a pass with low latency: before each task of another class it runs the urgent ones that are
    /// ready, as long as their share lasts. The share bounds them: urgent tasks that wake each other must not
    /// starve the rest.
    fn pass_urgent_first(&self, left: u32, lengths: [u32; 3], ran: &mut [u64; 4]) {
        let [urgent, normal, bulk] = lengths;
        // Urgent tasks may become ready during the pass, so they have a share in any case.
        let shares = class::shares(left, [urgent.max(1), normal, bulk]);
        let mut urgent_left = shares[URGENT];
        let mut run_urgent = || {
            let urgent = self.run_class(URGENT, urgent_left);
            urgent_left -= urgent;
            u64::from(urgent)
        };
        ran[URGENT] += run_urgent();
        for class in NORMAL..HEAVY {
            for _ in 0..shares[class] {
                if self.run_class(class, 1) == 0 {
                    break;
                }
                ran[class] += 1;
                ran[URGENT] += run_urgent();
            }
        }
    }

    /// Returns the number of queued tasks of the three classes that share a round.
    #[inline(always)]
    fn light(&self) -> [u32; 3] {
        let [urgent, normal, bulk, _] = &self.local.fifos;
        [urgent.len(), normal.len() + self.local.niced.get(), bulk.len()]
    }

    /// Publishes that no task runs.
    fn between_tasks(&self) {
        self.local.current.set(ptr::null());
        self.published.kind.store(ptr::null_mut(), Ordering::Relaxed);
    }

    #[inline(always)]
    fn pop<const CLASS: usize>(&self) -> Option<&Entry> {
        if CLASS == NORMAL && self.local.niced.get() > 0 {
            return self.pop_merged();
        }
        self.local.fifos[CLASS].pop()
    }

    /// Removes the next task of class normal while tasks with a nice value are among them.
    #[cold]
    fn pop_merged(&self) -> Option<&Entry> {
        let queue = &self.local.fifos[NORMAL];
        // SAFETY: belongs to this lane, and the closure calls back into nothing.
        let (niced, left) = unsafe { self.niced.with(|heap| (heap.pop(queue), heap.len())) };
        self.local.niced.set(left);
        match niced {
            Some(slot) => Some(self.entry(slot)),
            None => queue.pop(),
        }
    }

    /// Polls up to `share` tasks of a class. Returns how many left its queue.
    #[inline]
    fn run_class(&self, class: usize, share: u32) -> u32 {
        match class {
            _ if share == 0 => 0,
            URGENT => self.run_class_of::<URGENT>(share),
            NORMAL => self.run_class_of::<NORMAL>(share),
            BULK => self.run_class_of::<BULK>(share),
            _ => self.run_class_of::<HEAVY>(share),
        }
    }

    #[inline(never)]
    fn run_class_of<const CLASS: usize>(&self, share: u32) -> u32 {
        let mut taken = 0;
        while taken < share
            && let Some(entry) = self.pop::<CLASS>()
        {
            taken += 1;
            entry.flags.set(entry.flags.get() & !bits::QUEUED);
            match NonNull::new(entry.task.get()) {
                Some(task) => self.run_task(entry, task),
                None => self.vacate(entry), // it ended while it was queued
            }
        }
        taken
    }

    #[inline(always)]
    fn run_task(&self, entry: &Entry, task: NonNull<Header>) {
        /// Ends a task that panics, in its poll or in its destructor, so that the lane stays consistent; the
        /// panic goes on.
        struct Running<'a>(&'a Home, &'a Entry);
        impl Drop for Running<'_> {
            #[inline(always)] // otherwise the guard itself would have to be in memory
            fn drop(&mut self) {
                self.0.end_panicked(self.1);
            }
        }
        self.local.current.set(entry);
        // SAFETY: the task lives: it is in its entry, and only this lane ends it.
        let kind = unsafe { task.as_ref() }.kind;
        self.published.kind.store(ptr::from_ref(kind).cast_mut(), Ordering::Relaxed);
        // Release: a reader that sees the number sees this kind, or a later one.
        self.published.run.store(self.polls() + 1, Ordering::Release);
        let waker = entry.id.get().lend();
        let mut context = Context::from_waker(&waker);
        let running = Running(self, entry);
        let done = if self.local.profiling.get() {
            self.poll_measured(task, &mut context)
        } else {
            // SAFETY: the task lives and belongs to this lane; one task is polled at a time, and `abort` only
            // marks one that is being polled.
            unsafe { task::poll(task, &mut context) }
        };
        if done || entry.flags.get() & bits::ABORTED != 0 {
            self.finish(entry);
        }
        mem::forget(running);
    }

    #[cold]
    #[inline(never)]
    fn end_panicked(&self, entry: &Entry) {
        self.finish(entry);
        self.between_tasks();
    }

    #[cold]
    #[inline(never)]
    fn poll_measured(&self, task: NonNull<Header>, context: &mut Context<'_>) -> bool {
        let clock = self.settings.get().clock;
        // SAFETY: the task lives (see the caller); no exclusive borrow of a header exists.
        let (kind, woken) = unsafe { (task.as_ref().kind, task.as_ref().woken_at.replace(0)) };
        // An earlier time belongs to a wake-up whose poll was not measured; the time of the last wake-up is
        // then unknown.
        let woken = if woken >= self.local.measured_from.get() { woken } else { 0 };
        let began = clock();
        // SAFETY: as in the caller.
        let done = unsafe { task::poll(task, context) };
        measured(kind, woken, began, clock());
        done
    }
}

#[cfg(not(loom))]
fn measured(kind: &'static crate::TaskKind, woken: u64, began: Time, ended: Time) {
    crate::profile::record(kind, woken, began, ended);
}

#[cfg(loom)]
fn measured(_: &'static crate::TaskKind, _: u64, _: Time, _: Time) {}
