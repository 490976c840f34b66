//! The current limit of a server: `maxconn`, or less while the backend has little load (`minconn`,
//! `fullconn`) or the server is in slow start.

use super::{Own, ServerFull};
use crate::algorithm::Algorithm;
use crate::queue::Waiter;
use crate::spec::Index;
use manylane_sched::Time;
use manylane_sync::atomic::{Ordering, fence};

/// Shortest time, in nanoseconds, between two adaptations of the limits to the load by one lane.
const ADAPT_EVERY: u64 = 1_000_000;

/// Time, in nanoseconds, for which a lane uses `first`'s wider choice after it met other lanes at the first
/// server with room.
const SPREAD_FOR: u64 = 1_000_000;

impl<W: Waiter> Own<W> {
    /// Admits a request to a server with a limit, after adapting a limit that follows the load.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(super) fn enter(&self, index: Index, now: Time) -> Result<(), ServerFull> {
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
        Err(ServerFull)
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    fn try_enter(&self, index: Index, now: Time) -> bool {
        let entered = self.core.server_limits.enter(index);
        if entered.crowded && self.core.algorithm == Algorithm::First {
            self.core.lanes.own().crowded.set(now.as_nanos() + SPREAD_FOR);
        }
        if entered.offer {
            self.offer(index);
        }
        entered.entered
    }

    /// Returns whether the limit follows the load of the backend.
    fn is_dynamic(&self, index: Index) -> bool {
        let server = &self.core.servers[index];
        let (least, most) = (server.spec.minconn, server.state.maxconn());
        least != 0 && least < most && self.core.options.fullconn != 0
    }

    /// Returns the limit at `now` as this balancer sees it. `load` caches the load of the backend: the first
    /// call that needs it fills it in.
    fn limit_at(&self, index: Index, now: Time, load: &mut Option<u64>) -> u32 {
        let server = &self.core.servers[index];
        let spec = &server.spec;
        let most = match server.state.maxconn() {
            0 => u32::MAX,
            most => most,
        };
        let mut limit = most;
        if self.is_dynamic(index) {
            let load =
                *load.get_or_insert_with(|| self.core.total_load() + self.core.server_limits.waiting.get());
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

    /// Updates the limit to what the youngest balancer of the server computes, and admits waiting requests if
    /// it grew. Returns whether it grew.
    pub(super) fn adapt(&self, index: Index, now: Time) -> bool {
        if !self.shared.has_several() {
            return self.core.is_limited(index) && self.adapt_own(index, now);
        }
        self.all(index).youngest().is_some_and(|(youngest, index)| youngest.adapt_own(index, now))
    }

    /// Updates the limits of all servers.
    pub(super) fn adapt_all(&self, now: Time) {
        for (index, _) in self.core.servers.iter() {
            self.adapt(index, now);
        }
    }

    /// Updates the limit to what this balancer computes, and admits waiting requests if it grew. Returns
    /// whether it grew.
    ///
    /// A thread that changes an input of a limit calls this after the change. This reads all inputs again
    /// after each store of the limit. So the thread that stores last has read every earlier change, and a
    /// thread that changes an input later finds the stored limit. The load of the backend is read only once,
    /// because it changes all the time.
    fn adapt_own(&self, index: Index, now: Time) -> bool {
        fence(Ordering::SeqCst); // pairs with the one below
        let server_limit = self.core.server_limits.of(index);
        let mut load = None;
        let mut new = self.limit_at(index, now, &mut load);
        if new == server_limit.limit() {
            return false;
        }
        let mut least = u32::MAX;
        loop {
            least = least.min(server_limit.limit());
            server_limit.set_limit(new);
            fence(Ordering::SeqCst); // a later change of an input finds this limit
            let again = self.limit_at(index, now, &mut load);
            if again == new {
                break;
            }
            new = again;
        }
        // A limit that dropped and rose again in this loop has grown, too: requests that came in between met
        // its lowest value.
        if server_limit.limit() <= least {
            if !server_limit.has_room() && self.core.server_limits.mark_full(index) {
                self.offer(index);
            }
            return false;
        }
        // A waiter was counted before the fence above, or it looks for room after a fence of its own and sees
        // the new limit: see `enqueue` and `WaitingForAny::add`.
        self.settle(index);
        for (one, index) in self.all(index).iter() {
            one.core.server_limits.mark_room(index);
            one.offer(index);
        }
        true
    }
}
