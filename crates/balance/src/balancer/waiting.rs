//! Requests that wait for a server, and the permits that are handed to them.
//!
//! # Protocol
//! 1. While requests wait for a server, its word says so and it admits no new request
//!    ([`server_limit`](crate::server_limit), rule 1). A request that frees its permit hands it to the first
//!    waiter of this server or of any server, without freeing it in between.
//! 2. A request that begins to wait is counted first, and then looks for room once more. A request that frees
//!    a permit then offers it to the waiters that are counted. Whichever acts second sees the other, so no
//!    request waits while there is room.
//! 3. If the waiter that a permit was handed to has left the queue, the permit goes to the next waiter.

use super::{Balancer, Core, Own};
use crate::queue::{Outcome, Queue, QueuePosition, Waiter, WaiterCount};
use crate::server_limit::{Released, WaitingFor};
use crate::spec::Index;
use manylane_sched::Time;
use manylane_sync::atomic::{Ordering, fence};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Order in which requests leave a queue: by class, then by time of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Priority {
    /// `set-priority-class`: -2047 to 2047, lower classes first. Other values are clamped.
    pub class: i16,
    /// `set-priority-offset`: milliseconds, -524287 to 524287, that are added to the time of arrival. Other
    /// values are clamped.
    pub offset: i32,
}

impl Priority {
    /// Returns the key to sort by: 16 bits of class, then 48 bits of microseconds (9 years).
    fn key(self, now: Time) -> u64 {
        const MIDDLE: i64 = 2048;
        const SHIFT: i64 = 524_288_000; // keeps every time above zero
        let class = (i64::from(self.class.clamp(-2047, 2047)) + MIDDLE) as u64;
        let offset = i64::from(self.offset.clamp(-524_287, 524_287)) * 1000;
        let time = (now.as_nanos() / 1000).cast_signed() + SHIFT + offset;
        class << 48 | time.cast_unsigned() & ((1 << 48) - 1)
    }
}

/// As many requests wait for the server as its `maxqueue` allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as many requests wait for the server as its maxqueue allows: send the request elsewhere")
    }
}

impl std::error::Error for QueueFull {}

/// State of a request in a queue.
#[derive(Debug)]
pub enum QueueState {
    /// The request may begin on this server, where it counts already: the same lane must call
    /// [`Balancer::release`]. The number counts the requests that the queue served since this one entered,
    /// this one included.
    Granted(Index, u64),
    /// The server takes no more requests: pick again.
    Elsewhere,
    /// The request still waits.
    Waiting(QueuePosition),
}

impl<W: Waiter> Balancer<W> {
    fn waiting_for(&self, index: Index) -> WaitingFor<'_> {
        let core = &self.own.core;
        WaitingFor { server_limit: core.server_limits.of(index), maxqueue: core.servers[index].spec.maxqueue }
    }

    /// Queues a request for this server, which has a `maxconn`.
    ///
    /// The request may have its permit before this returns: call [`poll`](Self::poll) once more, or use
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`QueueFull`] if `maxqueue` requests wait already.
    ///
    /// # Panics
    /// If the server has no limit: there, [`take`](Self::take) never fails.
    pub fn enqueue(
        &self,
        index: Index,
        priority: Priority,
        now: Time,
        waiter: W,
    ) -> Result<QueuePosition, QueueFull> {
        let key = priority.key(now);
        let claims = self.waiting_for(index);
        let position = self.own.queue(index).enter(Some(index), key, waiter, &claims);
        let position = position.ok_or(QueueFull)?;
        self.own.core.begin(index);
        // Pairs with the fences of a thread that raises a limit (`adapt`) or takes the server out
        // (`changed`): that thread sees this request, or this lane sees the change.
        fence(Ordering::SeqCst);
        self.own.settle(index);
        if !self.own.core.servers[index].state().serves_its_own() {
            self.own.dismiss(index);
        }
        Ok(position)
    }

    /// Queues a request for any server of the backend.
    pub fn enqueue_any(&self, priority: Priority, now: Time, waiter: W) -> QueuePosition {
        let waiting = &*self.own.core.server_limits.waiting;
        let position = self.own.any.enter(None, priority.key(now), waiter, waiting);
        let position = position.expect("a backend's queue has no limit");
        self.own.offer_all();
        position
    }

    /// Returns the state of the request in this position. While it waits, `waiter` replaces the one that its
    /// turn will wake.
    pub fn poll(&self, position: QueuePosition, waiter: W) -> QueueState {
        let server = position.server;
        match self.queue_of(server).poll(position, waiter) {
            Ok(outcome) => self.turn(server, outcome),
            Err(position) => QueueState::Waiting(position),
        }
    }

    /// Takes the request out of its queue (`timeout queue`, or the client left). Returns the server if the
    /// request's turn had come: it counts there, so call [`release`](Self::release).
    pub fn leave(&self, position: QueuePosition) -> Option<Index> {
        let server = position.server;
        let outcome = match server {
            Some(index) => self.own.queue(index).leave(position, &self.waiting_for(index)),
            None => self.own.any.leave(position, &*self.own.core.server_limits.waiting),
        };
        match outcome {
            Some(outcome) => match self.turn(server, outcome) {
                QueueState::Granted(index, _) => Some(index),
                QueueState::Elsewhere | QueueState::Waiting(_) => None,
            },
            None => {
                if let Some(index) = server {
                    self.own.core.end(index);
                }
                None
            }
        }
    }

    fn queue_of(&self, server: Option<Index>) -> &Queue<W> {
        server.map_or(&self.own.any, |index| self.own.queue(index))
    }

    /// Updates this lane's load for an outcome of its request.
    fn turn(&self, server: Option<Index>, outcome: Outcome) -> QueueState {
        match (outcome, server) {
            // The request has counted since it entered. The balancer that granted it may use another index
            // for the server.
            (Outcome::Granted(_, served), Some(index)) => QueueState::Granted(index, served),
            (Outcome::Granted(index, served), None) => {
                self.own.core.begin(index);
                QueueState::Granted(index, served)
            }
            (Outcome::Elsewhere, server) => {
                server.inspect(|&index| self.own.core.end(index));
                QueueState::Elsewhere
            }
        }
    }

    /// Returns the number of requests served so far from the queue of this server, or from the queue for any
    /// server if `server` is `None`.
    pub fn served_from_queue(&self, server: Option<Index>) -> u64 {
        self.queue_of(server).served()
    }

    /// Returns the number of lines in each queue: one for each group of lanes.
    pub fn queue_lines(&self) -> usize {
        self.own.any.lines()
    }

    /// Returns the number of requests that wait for this server.
    pub fn waiting(&self, index: Index) -> u32 {
        self.own.core.server_limits.of(index).count().waiting
    }

    /// Returns the number of requests that wait for any server.
    pub fn waiting_for_any(&self) -> u64 {
        self.own.core.server_limits.waiting.get()
    }
}

/// Result of offering a permit to the requests that wait for any server.
enum Passed {
    /// A waiter has the permit.
    On,
    /// The first request had left before it could get the permit.
    Left,
    /// No request for any server waits, or one for this server comes first.
    Nobody,
}

impl<W: Waiter> Own<W> {
    fn queue(&self, index: Index) -> &Queue<W> {
        self.queues[index.get()].get().expect("only servers with a limit have those who wait")
    }

    /// Hands the caller's permit on `index` to the first waiter of `queue`; the caller has claimed one of its
    /// waiters. Returns false if that waiter had left: the caller still holds the permit.
    fn hand_over(&self, index: Index, queue: &Queue<W>) -> bool {
        match queue.take(Some(index)) {
            Some(waiter) => {
                waiter.wake();
                true
            }
            None => false,
        }
    }

    /// Hands the caller's permit on `index` to the first waiter (rule 1), or frees it.
    #[cfg_attr(manylane_sim, track_caller)]
    pub(super) fn free(&self, index: Index) {
        let Core { server_limits, .. } = &self.core;
        let server_limit = server_limits.of(index);
        let mut offer = false;
        loop {
            let passed = match self.shared.has_several() {
                false => self.pass_to_any(index),
                true => self.pass_to_any_of_all(index),
            };
            match passed {
                Passed::On => break,
                Passed::Left => continue, // rule 3
                Passed::Nobody => {}
            }
            match server_limit.release() {
                Released::HandedOver => {
                    if self.hand_over(index, self.queue(index)) {
                        break;
                    }
                }
                Released::Freed => {
                    if self.shared.has_several() {
                        self.offer_to_others(index);
                    }
                    if !server_limits.released(index) || !server_limits.is_wanted(index) {
                        break;
                    }
                    let again = server_limits.enter(index);
                    offer |= again.offer;
                    if !again.entered {
                        break;
                    }
                }
            }
        }
        if offer {
            self.offer(index);
        }
    }

    /// Hands the caller's permit on `index` to the first request that waits for any server of this balancer,
    /// if that request precedes those that wait for the server.
    #[inline]
    fn pass_to_any(&self, index: Index) -> Passed {
        let server_limits = &self.core.server_limits;
        if !server_limits.is_wanted(index) || !self.any_is_first(index) || !server_limits.waiting.claim() {
            return Passed::Nobody;
        }
        if self.hand_over(index, &self.any) { Passed::On } else { Passed::Left }
    }

    /// Hands the permit over as [`pass_to_any`](Self::pass_to_any) does, where several balancers have the
    /// server: the balancer whose first waiter is oldest gets the permit.
    #[cold]
    fn pass_to_any_of_all(&self, index: Index) -> Passed {
        let all = self.all(index);
        let wanting = all.iter().filter(|(one, index)| one.core.server_limits.is_wanted(*index));
        let first = wanting.min_by_key(|(one, _)| one.any.first_key());
        first.map_or(Passed::Nobody, |(one, index)| one.pass_to_any(index))
    }

    /// Offers room on the server to the requests that wait in other balancers.
    #[cold]
    fn offer_to_others(&self, index: Index) {
        for (one, index) in self.all(index).others() {
            if one.core.server_limits.released(index) {
                one.offer(index);
            }
        }
    }

    /// Returns whether the first request that waits for any server may have a permit on this one before those
    /// that wait for this one.
    fn any_is_first(&self, index: Index) -> bool {
        let server_limit = self.core.server_limits.of(index);
        let count = server_limit.count();
        count.served <= server_limit.limit()
            && (count.waiting == 0 || self.any.first_key() < self.queue(index).first_key())
    }

    /// Admits requests that wait for `index`, as long as there is room.
    pub(super) fn settle(&self, index: Index) {
        while self.core.server_limits.of(index).admit() {
            if !self.hand_over(index, self.queue(index)) {
                self.free(index); // rule 3
            }
        }
    }

    /// Offers room on `index` to the requests that wait for any server.
    pub(super) fn offer(&self, index: Index) {
        let server_limits = &self.core.server_limits;
        if !self.core.is_limited(index) {
            while server_limits.is_wanted(index) && server_limits.waiting.claim() {
                self.hand_over(index, &self.any); // if the waiter had left, there is no permit to return
            }
            return;
        }
        while server_limits.is_wanted(index) {
            let entered = server_limits.enter(index);
            if !entered.entered {
                if entered.offer {
                    continue; // a permit became free meanwhile
                }
                break;
            }
            if !server_limits.waiting.claim() || !self.hand_over(index, &self.any) {
                self.free(index);
            }
        }
    }

    /// Offers the room of all servers to the requests that wait for any server.
    pub(super) fn offer_all(&self) {
        let Core { servers, server_limits, .. } = &self.core;
        for word in 0..servers.len().div_ceil(64) {
            let mut bits = server_limits.members.word(word) & !server_limits.full.word(word);
            while bits != 0 {
                self.offer(servers.at_rank(word * 64 + bits.trailing_zeros() as usize));
                bits &= bits - 1;
            }
        }
    }

    /// Sends all requests that wait for `index` elsewhere.
    pub(super) fn dismiss(&self, index: Index) {
        while self.core.server_limits.of(index).dismiss() {
            if let Some(waiter) = self.queue(index).take(None) {
                waiter.wake();
            }
        }
    }
}

/// Future of a request that waits in a queue. Dropping it before its turn takes the request out of the queue.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Wait<'a> {
    balancer: &'a Balancer,
    position: Option<QueuePosition>,
}

impl Balancer {
    /// Waits until the turn of `position` comes, and returns [`QueueState::Granted`] or
    /// [`QueueState::Elsewhere`]. If the future is dropped earlier, the request leaves the queue, and a
    /// permit that it was granted meanwhile goes to the next waiter.
    pub fn wait(&self, position: QueuePosition) -> Wait<'_> {
        Wait { balancer: self, position: Some(position) }
    }
}

impl Future for Wait<'_> {
    type Output = QueueState;

    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<QueueState> {
        let position = self.position.take().expect("a future is not polled after it was ready");
        let waker: Waker = context.waker().clone();
        match self.balancer.poll(position, waker) {
            QueueState::Waiting(position) => {
                self.position = Some(position);
                Poll::Pending
            }
            turn => Poll::Ready(turn),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(index) = self.position.take().and_then(|position| self.balancer.leave(position)) {
            self.balancer.release(index);
        }
    }
}
