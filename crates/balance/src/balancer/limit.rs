//! The limit of a server now: `maxconn`, less while the backend is little loaded (`minconn`, `fullconn`) or
//! the server is in slow start.

use super::{Full, Own};
use crate::algorithm::Algorithm;
use crate::queue::Waiter;
use crate::spec::Index;
use manylane_sched::Time;
use manylane_sync::atomic::{Ordering, fence};

/// How often a lane adapts the limits to the backend's load at most, in nanoseconds.
const ADAPT_EVERY: u64 = 1_000_000;

/// For how long a lane that met others at the first server with room goes by `first`'s wider choice, in
/// nanoseconds.
const SPREAD_FOR: u64 = 1_000_000;

impl<W: Waiter> Own<W> {
    /// Lets a request in to a server with a limit.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(super) fn enter(&self, index: Index, now: Time) -> Result<(), Full> {
        if self.is_dynamic(index) {
            let own = self.core.lanes.own();
            if now.as_nanos().wrapping_sub(own.adapted.get()) >= ADAPT_EVERY {
                own.adapted.set(now.as_nanos());
                self.adapt(index, now);
            }
        }
        if self.try_enter(index, now)
            || self.is_dynamic(index) && self.adapt(index, now) && self.try_enter(index, now)
        {
            return Ok(());
        }
        Err(Full)
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn try_enter(&self, index: Index, now: Time) -> bool {
        let entered = self.core.gates.enter(index);
        if entered.crowded && self.core.algorithm == Algorithm::First {
            self.core.lanes.own().crowded.set(now.as_nanos() + SPREAD_FOR);
        }
        if entered.offer {
            self.offer(index);
        }
        entered.entered
    }

    /// Whether the limit follows the load.
    fn is_dynamic(&self, index: Index) -> bool {
        let server = &self.core.servers[index];
        let (least, most) = (server.spec.minconn, server.state.maxconn());
        least != 0 && least < most && self.core.options.fullconn != 0
    }

    /// The limit at `now`, if nobody else sends requests to the server. The backend's load is the one that
    /// was found before, if it was.
    fn limit_at(&self, index: Index, now: Time, load: &mut Option<u64>) -> u32 {
        let server = &self.core.servers[index];
        let spec = &server.spec;
        let most = match server.state.maxconn() {
            0 => u32::MAX,
            most => most,
        };
        let mut limit = most;
        if self.is_dynamic(index) {
            let load = *load.get_or_insert_with(|| self.core.total_load() + self.core.gates.waiting.get());
            let full = u64::from(self.core.options.fullconn);
            if load < full {
                limit = spec.minconn.max((u64::from(most) * load / full) as u32);
            }
        }
        let warmth = server.state.warmth(spec.slowstart, now);
        if warmth < 1.0 {
            limit = ((f64::from(limit) * warmth) as u32).max(1);
        }
        limit
    }

    /// Brings the limit up to date, as the youngest balancer of the server has it, and lets those in who wait
    /// when it grew. Whether it grew.
    pub(super) fn adapt(&self, index: Index, now: Time) -> bool {
        if !self.shared.has_several() {
            return self.core.is_limited(index) && self.adapt_own(index, now);
        }
        self.all(index).youngest().is_some_and(|(youngest, index)| youngest.adapt_own(index, now))
    }

    /// The same of all servers.
    pub(super) fn adapt_all(&self, now: Time) {
        for (index, _) in self.core.servers.iter() {
            self.adapt(index, now);
        }
    }

    /// Who changes what a limit follows from calls this after it. Who sets a limit reads all of that once
    /// more: so who sets it last has read what was changed before, and who changes something later finds
    /// what was set. The backend's load is looked at once only, since it never stands still.
    fn adapt_own(&self, index: Index, now: Time) -> bool {
        fence(Ordering::SeqCst); // pairs with the one below
        let gate = self.core.gates.of(index);
        let mut load = None;
        let mut new = self.limit_at(index, now, &mut load);
        if new == gate.limit() {
            return false;
        }
        let mut least = u32::MAX;
        loop {
            least = least.min(gate.limit());
            gate.set_limit(new);
            fence(Ordering::SeqCst); // who changes something behind this finds the limit that was set
            let again = self.limit_at(index, now, &mut load);
            if again == new {
                break;
            }
            new = again;
        }
        // What grew again is room for those who came meanwhile and found the least of it.
        if gate.limit() <= least {
            if !gate.has_room() && self.core.gates.mark_full(index) {
                self.offer(index);
            }
            return false;
        }
        // They are counted behind the fence, or look behind theirs: see `enqueue`, and `WaitingForAny::add`.
        self.settle(index);
        for (one, index) in self.all(index).iter() {
            one.core.gates.mark_room(index);
            one.offer(index);
        }
        true
    }
}
