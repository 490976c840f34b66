//! The limit of a server now: `maxconn`, less while the backend is little loaded (`minconn`, `fullconn`) or the server is in slow start.

use super::{Balancer, Full};
use crate::algorithm::Algorithm;
use crate::queue::Waiter;
use crate::spec::Index;
use manylane_sched::Time;
use manylane_sync::atomic::{Ordering, fence};

/// How often a lane adapts the limits to the backend's load at most, in nanoseconds.
const ADAPT_EVERY: u64 = 1_000_000;

/// For how long a lane that met others at the first server with room goes by `first`'s wider choice, in nanoseconds.
const SPREAD_FOR: u64 = 1_000_000;

impl<W: Waiter> Balancer<W> {
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

    /// The limit at `now`.
    fn limit_at(&self, index: Index, now: Time) -> u32 {
        let server = &self.core.servers[index];
        let spec = &server.spec;
        let most = match server.state.maxconn() {
            0 => u32::MAX,
            most => most,
        };
        let mut limit = most;
        if self.is_dynamic(index) {
            let (load, full) = (self.total_load(), u64::from(self.core.options.fullconn));
            if load < full {
                limit = spec.minconn.max((u64::from(most) * load / full) as u32);
            }
        }
        let warmth = server.state.warmth(spec.slowstart, now);
        if warmth < 1.0 {
            limit = ((f64::from(limit) * warmth) as u32).max(1);
        }
        limit.saturating_sub(self.served_by_others(index))
    }

    /// Brings the limit up to date, and lets those in who wait when it grew. Whether it grew.
    pub(super) fn adapt(&self, index: Index, now: Time) -> bool {
        if !self.core.is_limited(index) {
            return false;
        }
        // What there is behind what there should be: whoever sets a limit meanwhile either finds what we have changed, or is found here (the lock of
        // `seats` is in between for both).
        let mut new = self.limit_at(index, now);
        let old = self.core.gates.of(index).limit();
        if new == old {
            return false;
        }
        self.core.gates.set_limit(index, new);
        let mut least = old.min(new);
        while self.shares_places(index) {
            let again = self.limit_at(index, now); // `seats`, rule 2
            if again == new {
                break;
            }
            new = again;
            self.core.gates.set_limit(index, new);
            least = least.min(new);
        }
        // What grew again is room for those who came meanwhile and found the least of it.
        if new <= least {
            if !self.core.gates.of(index).has_room() && self.core.gates.mark_full(index) {
                self.offer(index);
            }
            return false;
        }
        self.core.gates.mark_room(index);
        fence(Ordering::SeqCst); // see `enqueue`, and `WaitingForAny::add`
        self.settle(index);
        self.offer(index);
        true
    }
}
