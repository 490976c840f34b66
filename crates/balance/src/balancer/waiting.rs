//! Requests that wait for a server, and places that are handed to them.
//!
//! # Protocol
//! 1. While somebody waits for a server, its word says so, and nobody else is let in ([`gate`](crate::gate),
//!    rule 1). Whoever frees a place hands it to the first who waits, for this server or for any, without
//!    freeing it in between.
//! 2. A request that is about to wait is counted first and then looks for room once more; a place that was
//!    freed is offered to those who are counted. Whichever comes second sees the other, so nobody waits while
//!    there is room.
//! 3. A place that was handed to a request which had left goes to the next.

use super::{Balancer, Core, Own};
use crate::gate::{Released, WaitingFor};
use crate::queue::{Claims, Outcome, Queue, QueuePosition, Waiter};
use crate::spec::Index;
use manylane_sched::Time;
use manylane_sync::atomic::{Ordering, fence};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// In which order requests leave a queue: by class, then by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Priority {
    /// `set-priority-class`: -2047 to 2047, lower ones first. Others are cut.
    pub class: i16,
    /// `set-priority-offset`: -524287 to 524287 milliseconds that the request seems to have come later.
    /// Others are cut.
    pub offset: i32,
}

impl Priority {
    /// 16 bits of class, 48 of microseconds (9 years).
    fn key(self, now: Time) -> u64 {
        const MIDDLE: i64 = 2048;
        const SHIFT: i64 = 524_288_000; // so that no time is below zero
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

/// What became of a request in a queue.
#[derive(Debug)]
pub enum Turn {
    /// It may begin on this server, where it counts already: [`Balancer::release`] must follow on this lane.
    /// With how many were served from the queue since it entered, itself included.
    Granted(Index, u64),
    /// Its server takes no requests any more: pick anew.
    Elsewhere,
    /// It still waits.
    Waiting(QueuePosition),
}

impl<W: Waiter> Balancer<W> {
    fn waiting_for(&self, index: Index) -> WaitingFor<'_> {
        let core = &self.own.core;
        WaitingFor { gate: core.gates.of(index), maxqueue: core.servers[index].spec.maxqueue }
    }

    /// Lets a request wait for this server, which has a `maxconn`.
    ///
    /// The place may be there before this returns: [`poll`](Self::poll) once more, or use
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`QueueFull`]: `maxqueue` wait already.
    ///
    /// # Panics
    /// When the server has no limit: [`take`](Self::take) never fails there.
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
        // Pairs with the fences of who raises a limit (`adapt`) or takes the server out (`change`): they see
        // this request, or we see what they did.
        fence(Ordering::SeqCst);
        self.own.settle(index);
        if !self.own.core.servers[index].state().serves_its_own() {
            self.own.dismiss(index);
        }
        Ok(position)
    }

    /// Lets a request wait for any server of the backend.
    pub fn enqueue_any(&self, priority: Priority, now: Time, waiter: W) -> QueuePosition {
        let waiting = &*self.own.core.gates.waiting;
        let position = self.own.any.enter(None, priority.key(now), waiter, waiting);
        let position = position.expect("a backend's queue has no limit");
        self.own.offer_all();
        position
    }

    /// What became of the request with this ticket. While nothing did, `waiter` will be woken.
    pub fn poll(&self, position: QueuePosition, waiter: W) -> Turn {
        let server = position.server;
        match self.queue_of(server).poll(position, waiter) {
            Ok(outcome) => self.turn(server, outcome),
            Err(position) => Turn::Waiting(position),
        }
    }

    /// The request does not wait any more (`timeout queue`, the client left). Gives the server if its turn
    /// had come: then it counts there, and [`release`](Self::release) must follow.
    pub fn leave(&self, position: QueuePosition) -> Option<Index> {
        let server = position.server;
        let outcome = match server {
            Some(index) => self.own.queue(index).leave(position, &self.waiting_for(index)),
            None => self.own.any.leave(position, &*self.own.core.gates.waiting),
        };
        match outcome {
            Some(outcome) => match self.turn(server, outcome) {
                Turn::Granted(index, _) => Some(index),
                Turn::Elsewhere | Turn::Waiting(_) => None,
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

    /// Counts on this lane what became of its request.
    fn turn(&self, server: Option<Index>, outcome: Outcome) -> Turn {
        match (outcome, server) {
            // It counted from when it entered. Whoever granted it may have another number for the server.
            (Outcome::Granted(_, served), Some(index)) => Turn::Granted(index, served),
            (Outcome::Granted(index, served), None) => {
                self.own.core.begin(index);
                Turn::Granted(index, served)
            }
            (Outcome::Elsewhere, server) => {
                server.inspect(|&index| self.own.core.end(index));
                Turn::Elsewhere
            }
        }
    }

    /// Requests that were served so far from the queue of this server, or without one from that for any
    /// server.
    pub fn served_from_queue(&self, server: Option<Index>) -> u64 {
        self.queue_of(server).served()
    }

    /// Lines that its queues have: one for each group of lanes.
    pub fn queue_lines(&self) -> usize {
        self.own.any.lines()
    }

    /// Requests that wait for this server.
    pub fn waiting(&self, index: Index) -> u32 {
        self.own.core.gates.of(index).count().waiting
    }

    /// Requests that wait for any server.
    pub fn waiting_for_any(&self) -> u64 {
        self.own.core.gates.waiting.get()
    }
}

/// What became of a place that was offered to those who wait for any server.
enum Passed {
    /// One of them has it.
    On,
    /// The one who was to have it had left.
    InVain,
    /// None of them is next.
    Nobody,
}

impl<W: Waiter> Own<W> {
    fn queue(&self, index: Index) -> &Queue<W> {
        self.queues[index.get()].get().expect("only servers with a limit have those who wait")
    }

    /// A place on `index`, which the caller holds, goes to the first of `queue`, of whom the caller has
    /// claimed one. False: that one had left, and the caller still holds the place.
    fn hand_over(&self, index: Index, queue: &Queue<W>) -> bool {
        match queue.take(Some(index)) {
            Some(waiter) => {
                waiter.wake();
                true
            }
            None => false,
        }
    }

    /// The caller's place on `index` goes to the first who waits for it (rule 1), or is free.
    #[cfg_attr(manylane_sim, track_caller)]
    pub(super) fn free(&self, index: Index) {
        let Core { gates, .. } = &self.core;
        let gate = gates.of(index);
        let mut offer = false;
        loop {
            let passed = match self.shared.has_several() {
                false => self.pass_to_any(index),
                true => self.pass_to_any_of_all(index),
            };
            match passed {
                Passed::On => break,
                Passed::InVain => continue, // rule 3
                Passed::Nobody => {}
            }
            match gate.release() {
                Released::HandedOver => {
                    if self.hand_over(index, self.queue(index)) {
                        break;
                    }
                }
                Released::Freed => {
                    if self.shared.has_several() {
                        self.offer_to_others(index);
                    }
                    if !gates.released(index) || !gates.is_wanted(index) {
                        break;
                    }
                    let again = gates.enter(index);
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

    /// The caller's place on `index` goes to the first who waits for any server of this balancer, if that one
    /// comes before those who wait for the server.
    #[inline]
    fn pass_to_any(&self, index: Index) -> Passed {
        let gates = &self.core.gates;
        if !gates.is_wanted(index) || !self.any_is_first(index) || !gates.waiting.claim() {
            return Passed::Nobody;
        }
        if self.hand_over(index, &self.any) { Passed::On } else { Passed::InVain }
    }

    /// The same where several balancers have the server: by the one whose request came first.
    #[cold]
    fn pass_to_any_of_all(&self, index: Index) -> Passed {
        let all = self.all(index);
        let wanting = all.iter().filter(|(one, index)| one.core.gates.is_wanted(*index));
        let first = wanting.min_by_key(|(one, _)| one.any.first_key());
        first.map_or(Passed::Nobody, |(one, index)| one.pass_to_any(index))
    }

    /// There is room on the server: for those who wait by another balancer, too.
    #[cold]
    fn offer_to_others(&self, index: Index) {
        for (one, index) in self.all(index).others() {
            if one.core.gates.released(index) {
                one.offer(index);
            }
        }
    }

    /// Whether one who waits for any server may have a place on this one before those who wait for it.
    fn any_is_first(&self, index: Index) -> bool {
        let gate = self.core.gates.of(index);
        let count = gate.count();
        count.served <= gate.limit()
            && (count.waiting == 0 || self.any.first_key() < self.queue(index).first_key())
    }

    /// Lets in those who wait for `index`, as far as there is room.
    pub(super) fn settle(&self, index: Index) {
        while self.core.gates.of(index).admit() {
            if !self.hand_over(index, self.queue(index)) {
                self.free(index); // rule 3
            }
        }
    }

    /// Offers room on `index` to those who wait for any server.
    pub(super) fn offer(&self, index: Index) {
        let gates = &self.core.gates;
        if !self.core.is_limited(index) {
            while gates.is_wanted(index) && gates.waiting.claim() {
                self.hand_over(index, &self.any); // had it left, there is no place to give back
            }
            return;
        }
        while gates.is_wanted(index) {
            let entered = gates.enter(index);
            if !entered.entered {
                if entered.offer {
                    continue; // there is room meanwhile
                }
                break;
            }
            if !gates.waiting.claim() || !self.hand_over(index, &self.any) {
                self.free(index);
            }
        }
    }

    /// Offers all room there is.
    pub(super) fn offer_all(&self) {
        let Core { servers, gates, .. } = &self.core;
        for word in 0..servers.len().div_ceil(64) {
            let mut bits = gates.members.word(word) & !gates.full.word(word);
            while bits != 0 {
                self.offer(servers.at_rank(word * 64 + bits.trailing_zeros() as usize));
                bits &= bits - 1;
            }
        }
    }

    /// Sends all who wait for `index` elsewhere.
    pub(super) fn dismiss(&self, index: Index) {
        while self.core.gates.of(index).dismiss() {
            if let Some(waiter) = self.queue(index).take(None) {
                waiter.wake();
            }
        }
    }
}

/// Waits in a queue; dropped before its turn came, it leaves.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Wait<'a> {
    balancer: &'a Balancer,
    position: Option<QueuePosition>,
}

impl Balancer {
    /// Waits until the turn of `position` comes: [`Turn::Granted`] or [`Turn::Elsewhere`]. Dropped before
    /// that, the request leaves the queue and what it was granted meanwhile goes to the next.
    pub fn wait(&self, position: QueuePosition) -> Wait<'_> {
        Wait { balancer: self, position: Some(position) }
    }
}

impl Future for Wait<'_> {
    type Output = Turn;

    /// # Panics
    /// When it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn> {
        let position = self.position.take().expect("a future is not polled after it was ready");
        let waker: Waker = context.waker().clone();
        match self.balancer.poll(position, waker) {
            Turn::Waiting(position) => {
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
