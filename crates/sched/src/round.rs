//! A round's run queue: who runs, in which order, how many.

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
    /// Polls tasks within the budget of a round; returns how many.
    ///
    /// Passes over the first three classes, each with its share, until the depth is reached or nothing is
    /// queued; then the heavy ones. Heavy tasks come last, so what they hold up in this round has had its
    /// turn, and the poller is next.
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
            left = left.saturating_sub(polled.max(1)); // a pass may meet slots only whose tasks have ended
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

    /// Tasks polled since the lane exists: the number of the last one.
    #[inline(always)]
    fn polls(&self) -> u64 {
        self.published.run.load(Ordering::Relaxed) // ours: nobody else writes it
    }

    /// A pass with low latency: before each task of another class the urgent ones that are ready, as long as
    /// their share lasts. It does not last for ever: urgent tasks that wake each other must not starve
    /// the rest.
    fn pass_urgent_first(&self, left: u32, lengths: [u32; 3], ran: &mut [u64; 4]) {
        let [urgent, normal, bulk] = lengths;
        // Urgent ones may become ready during the pass, so they have a share in any case.
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

    /// Tasks queued in the three classes that share a round.
    #[inline(always)]
    fn light(&self) -> [u32; 3] {
        let [urgent, normal, bulk, _] = &self.local.fifos;
        [urgent.len(), normal.len() + self.local.niced.get(), bulk.len()]
    }

    /// No task runs.
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

    /// The next of class normal, when tasks with a nice value are among them.
    #[cold]
    fn pop_merged(&self) -> Option<&Entry> {
        let queue = &self.local.fifos[NORMAL];
        // SAFETY: this lane's, and nothing is called back.
        let (niced, left) = unsafe { self.niced.with(|heap| (heap.pop(queue), heap.len())) };
        self.local.niced.set(left);
        match niced {
            Some(slot) => Some(self.entry(slot)),
            None => queue.pop(),
        }
    }

    /// Polls the next `share` tasks of a class, as far as there are; how many left its queue.
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
        /// Ends a task that panics, in its poll or in its destructor, so that the lane stays whole; the panic
        /// goes on.
        struct Running<'a>(&'a Home, &'a Entry);
        impl Drop for Running<'_> {
            #[inline(always)] // else the guard itself would have to be in memory
            fn drop(&mut self) {
                self.0.end_panicked(self.1);
            }
        }
        self.local.current.set(entry);
        // SAFETY: the task lives: it is in its entry, and only this lane ends it.
        let kind = unsafe { task.as_ref() }.kind;
        self.published.kind.store(ptr::from_ref(kind).cast_mut(), Ordering::Relaxed);
        // Release: who sees the number sees this kind, or a later one.
        self.published.run.store(self.polls() + 1, Ordering::Release);
        let waker = entry.id.get().lend();
        let mut context = Context::from_waker(&waker);
        let running = Running(self, entry);
        let done = if self.local.profiling.get() {
            self.poll_measured(task, &mut context)
        } else {
            // SAFETY: it lives and is this lane's; one task is polled at a time, and one that is being polled
            // is only marked by `abort`.
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
        // SAFETY: it lives, see the caller; nobody borrows a header exclusively.
        let (kind, woken) = unsafe { (task.as_ref().kind, task.as_ref().woken_at.replace(0)) };
        // A time from before is of a wake-up whose poll was not measured; that of the last one is not known
        // then.
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
