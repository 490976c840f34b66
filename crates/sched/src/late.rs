//! Who woke whom (R-F9): in debug builds each slot remembers its last two wakers, so that a wake-up that
//! comes after its task has ended can be traced. In release builds all of this is empty, and only the number
//! of late wake-ups is kept.

use std::fmt;
use std::panic::Location;

/// Who called for a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The lane that it ran on.
    pub lane: usize,
    /// The kind of the task that ran there; none outside of tasks (timers, the poller), and for other lanes.
    pub task: Option<&'static str>,
    /// The place in the program; none if it came through a [`std::task::Waker`], which does not tell.
    pub place: Option<&'static Location<'static>>,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}", self.lane)?;
        if let Some(task) = self.task {
            write!(f, ", task `{task}`")?;
        }
        if let Some(place) = self.place {
            write!(f, ", {place}")?;
        }
        Ok(())
    }
}

/// A wake-up that came after its task had ended. Harmless, but it tells of a waker that was kept too long.
/// Recorded in debug builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateWake {
    /// The slot.
    pub slot: u32,
    /// The generation that was meant.
    pub generation: u32,
    /// The kind of the task that lives there now, if any does.
    pub now: Option<&'static str>,
    /// The last two wakers of the slot, the latest first: the first is the late one.
    pub callers: [Option<Caller>; 2],
}

impl fmt::Display for LateWake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a task that had ended was woken (slot {}, generation {})", self.slot, self.generation)?;
        let [latest, before] = self.callers;
        if let Some(caller) = latest {
            write!(f, "; by {caller}")?;
        }
        if let Some(caller) = before {
            write!(f, "; before that by {caller}")?;
        }
        Ok(())
    }
}

/// Where a wake-up was called for. Nothing in release builds.
#[derive(Clone, Copy)]
pub(crate) struct CallerSite {
    #[cfg(debug_assertions)]
    #[cfg_attr(loom, allow(dead_code))] // models make no reports
    pub(crate) place: Option<&'static Location<'static>>,
}

impl CallerSite {
    /// The caller of the calling function.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn here() -> Self {
        Self {
            #[cfg(debug_assertions)]
            place: Some(Location::caller()),
        }
    }

    /// Not known.
    #[inline(always)]
    pub(crate) fn unknown() -> Self {
        Self {
            #[cfg(debug_assertions)]
            place: None,
        }
    }
}

#[cfg(all(debug_assertions, not(loom)))]
pub(crate) use recorded::{Callers, RemoteCaller};

#[cfg(all(debug_assertions, not(loom)))]
mod recorded {
    use super::{Caller, CallerSite, LateWake};
    use manylane_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
    use std::collections::VecDeque;
    use std::panic::Location;

    /// Late wake-ups that a lane remembers.
    const REMEMBERED: usize = 16;

    /// A lane's memory of wakers.
    pub(crate) struct Callers {
        slots: Vec<[Option<Caller>; 2]>,
        late: VecDeque<LateWake>,
    }

    impl Callers {
        pub(crate) const fn new() -> Self {
            Self { slots: Vec::new(), late: VecDeque::new() }
        }

        pub(crate) fn woken(&mut self, slot: u32, caller: Caller) {
            let slot = slot as usize;
            if self.slots.len() <= slot {
                self.slots.resize(slot + 1, [None; 2]);
            }
            self.slots[slot] = [Some(caller), self.slots[slot][0]];
        }

        pub(crate) fn late(&mut self, slot: u32, generation: u32, now: Option<&'static str>) {
            if self.late.len() == REMEMBERED {
                self.late.pop_front();
            }
            let callers = self.slots.get(slot as usize).copied().unwrap_or_default();
            self.late.push_back(LateWake { slot, generation, now, callers });
        }

        pub(crate) fn take(&mut self) -> Vec<LateWake> {
            self.late.drain(..).collect()
        }
    }

    /// The last two other lanes that woke a slot, each in the place that its turn gives it: two at the same
    /// time are both kept.
    pub(crate) struct RemoteCaller {
        turns: AtomicU32,
        places: [RemoteCall; 2],
    }

    /// A lane's number plus 1, and where it was. A third caller may mix with the first: this is for a report.
    struct RemoteCall {
        lane: AtomicU32,
        place: AtomicPtr<Location<'static>>,
    }

    impl RemoteCaller {
        // Relaxed throughout: whoever wakes swaps `pending` afterwards, and the lane looks here after its own
        // swap.
        pub(crate) fn set(&self, lane: usize, site: CallerSite) {
            let turn = self.turns.fetch_add(1, Ordering::Relaxed);
            let to = &self.places[turn as usize % 2];
            let place = site.place.map_or(std::ptr::null_mut(), |place| std::ptr::from_ref(place).cast_mut());
            to.place.store(place, Ordering::Relaxed);
            to.lane.store(lane as u32 + 1, Ordering::Relaxed);
        }

        /// Those that have come since the last call, the older one first.
        pub(crate) fn take(&self) -> impl Iterator<Item = Caller> {
            let oldest = self.turns.load(Ordering::Relaxed) as usize;
            [oldest, oldest + 1].into_iter().filter_map(|turn| {
                let from = &self.places[turn % 2];
                let lane = from.lane.swap(0, Ordering::Relaxed).checked_sub(1)?;
                // SAFETY: null, or from a reference that lives as long as the program.
                let place = unsafe { from.place.load(Ordering::Relaxed).as_ref() };
                Some(Caller { lane: lane as usize, task: None, place })
            })
        }
    }
}
