//! Records of wakers (R-F9): in debug builds each slot remembers its last two wakers, to trace a wake-up that
//! comes after the end of its task. Release builds have no records and only count late wake-ups.

use std::fmt;
use std::panic::Location;

/// The origin of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Number of the waking lane.
    pub lane: usize,
    /// Kind of the running task; none outside of tasks (timers, the poller), and for other lanes.
    pub task: Option<&'static str>,
    /// Line in the source; none for a wake-up through a [`std::task::Waker`], which does not pass it on.
    pub location: Option<&'static Location<'static>>,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}", self.lane)?;
        if let Some(task) = self.task {
            write!(f, ", task `{task}`")?;
        }
        if let Some(location) = self.location {
            write!(f, ", {location}")?;
        }
        Ok(())
    }
}

/// A wake-up that came after the end of its task. Harmless, but a sign that some code kept a waker too long.
/// Recorded in debug builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateWake {
    /// Number of the slot.
    pub slot: u32,
    /// Generation of the task that was to be woken.
    pub generation: u32,
    /// Kind of the task in the slot now, if there is one.
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

/// Line in the source that requested a wake-up. Empty in release builds.
#[derive(Clone, Copy)]
pub(crate) struct CallerSite {
    #[cfg(debug_assertions)]
    #[cfg_attr(loom, allow(dead_code))] // models make no reports
    pub(crate) location: Option<&'static Location<'static>>,
}

impl CallerSite {
    /// Returns the place of the caller's caller.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn here() -> Self {
        Self {
            #[cfg(debug_assertions)]
            location: Some(Location::caller()),
        }
    }

    /// Returns an unknown place.
    #[inline(always)]
    pub(crate) fn unknown() -> Self {
        Self {
            #[cfg(debug_assertions)]
            location: None,
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

    /// Number of late wake-ups that a lane remembers.
    const REMEMBERED: usize = 16;

    /// A lane's records of wakers.
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

    /// The last two wakers of a slot on other lanes. Each takes a turn and with it a place, so two
    /// simultaneous ones are both kept.
    pub(crate) struct RemoteCaller {
        turns: AtomicU32,
        callers: [RemoteCall; 2],
    }

    /// A lane's number plus 1, and its place. A third waker may mix with the first, which a report tolerates.
    struct RemoteCall {
        lane: AtomicU32,
        location: AtomicPtr<Location<'static>>,
    }

    impl RemoteCaller {
        // Relaxed throughout: each waker swaps `pending` afterwards, and the lane reads this after its own
        // swap.
        pub(crate) fn set(&self, lane: usize, site: CallerSite) {
            let turn = self.turns.fetch_add(1, Ordering::Relaxed);
            let to = &self.callers[turn as usize % 2];
            let location =
                site.location.map_or(std::ptr::null_mut(), |caller| std::ptr::from_ref(caller).cast_mut());
            to.location.store(location, Ordering::Relaxed);
            to.lane.store(lane as u32 + 1, Ordering::Relaxed);
        }

        /// Returns the wakers since the last call, the older one first.
        pub(crate) fn take(&self) -> impl Iterator<Item = Caller> {
            let oldest = self.turns.load(Ordering::Relaxed) as usize;
            [oldest, oldest + 1].into_iter().filter_map(|turn| {
                let from = &self.callers[turn % 2];
                let lane = from.lane.swap(0, Ordering::Relaxed).checked_sub(1)?;
                // SAFETY: null, or from a reference that lives as long as the program.
                let location = unsafe { from.location.load(Ordering::Relaxed).as_ref() };
                Some(Caller { lane: lane as usize, task: None, location })
            })
        }
    }
}
