//! Connection slots of servers with `strict-maxconn`, where `maxconn` limits all connections, including idle
//! ones.
//!
//! - A connection takes a [`ConnSlot`] before it is opened, and keeps it until it is closed. The slot stays
//!   with the connection: at a stream, in an idle pool, on the way to another lane, at a session, or in the
//!   task of a shared HTTP/2 connection.
//! - If all slots are taken, [`Local::conn_slot`] closes an idle connection of its own lane, or else of
//!   another lane, and takes its slot. The stream cannot use that connection itself.
//! - The calling stream has a permit, so other streams with permits have at most `maxconn - 1` slots. If
//!   there is no idle connection to close, the other slots belong to private connections of HTTP/1.

use super::Local;
use manylane_balance::{ConnSlot, Index, Reply, oneshot};
use manylane_plan::generation::{Backend, Generation};
use manylane_sched::{Class, Remote, TaskKind};
use manylane_sync::Arc;
use std::future::poll_fn;
use std::time::Duration;

static CLOSING: TaskKind = TaskKind::new("close an idle connection");

/// Longest wait for a slot of other lanes, all together, or for an idle connection that holds one. A running
/// lane replies within its round. On a busy machine one may not run for many milliseconds, and a request
/// without a slot fails.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);

/// Number of lane rounds to wait until an HTTP/2 connection without streams has closed.
const ROUNDS: usize = 8;

impl Local {
    /// Takes a slot for a new connection to a server. If all are taken, closes an idle connection and takes
    /// its slot; `None` if no lane has one.
    pub async fn conn_slot(&self, backend: &Backend, index: Index) -> Option<ConnSlot> {
        let next = self.keeper(backend, index);
        let (local, backend, index) = match &next {
            Some((next, backend, index)) => (&**next, &*next.generation.backends[*backend], *index),
            None => (self, backend, index),
        };
        match local.slot_here(backend, index).await {
            None => local.here().timeout(TIMEOUT, local.slot_elsewhere(backend, index)).await.ok()?,
            slot => slot,
        }
    }

    /// Asks the other lanes, one by one, to close an idle connection.
    async fn slot_elsewhere(&self, backend: &Backend, index: Index) -> Option<ConnSlot> {
        let server = &backend.servers[index.get()];
        // A connection of HTTP/2 may be idle a moment before its task publishes that, so lanes are asked.
        let may_share = server.http2 || server.http2_websocket || server.offers_h2();
        for lane in self.lane_ids() {
            let has_idle = may_share || backend.idle_pools.idle_on(lane, index) > 0;
            if lane == self.here().lane() || !has_idle {
                continue;
            }
            let (mut request, reply) = oneshot();
            let (generation, number) = (self.generation.clone(), backend.number);
            let give = move |_| give(generation, number, index, reply);
            if Remote::new(lane).spawn_with(&CLOSING, Class::Urgent, give).is_err() {
                continue;
            }
            let slot = poll_fn(|context| request.poll_task(context)).await;
            if slot.is_some() {
                return slot;
            }
        }
        None
    }

    /// Takes a free slot, or closes an idle connection of this lane and takes its slot.
    async fn slot_here(&self, backend: &Backend, index: Index) -> Option<ConnSlot> {
        let state = backend.balancer.servers()[index].state();
        if let Some(slot) = state.take_slot().or_else(|| self.close_idle_of(backend, index)) {
            return Some(slot);
        }
        // The next one, if a peer that reads nothing keeps the oldest from closing in time.
        while self.shared_conns.close_one_of(backend, index) {
            for _ in 0..ROUNDS {
                self.here().yield_now().await;
                if let Some(slot) = state.take_slot() {
                    return Some(slot);
                }
            }
        }
        None
    }

    /// Closes idle HTTP/1 connections to a server, the oldest first, until one has a slot, and returns that.
    /// Connections from before a reload that brought `strict-maxconn` have none.
    fn close_idle_of(&self, backend: &Backend, index: Index) -> Option<ConnSlot> {
        loop {
            let (_, idle) = self.idle_pools[backend.number].borrow_mut().take_oldest(index)?;
            self.idle.set(self.idle.get() - 1);
            if idle.slot.is_some() {
                return idle.slot;
            }
        }
    }
}

/// Takes a slot on the lane that got the request, and replies with it.
async fn give(generation: Arc<Generation>, backend: usize, index: Index, reply: Reply<ConnSlot>) {
    let Some(local) = Local::of(&generation) else { return };
    if let Some(slot) = local.slot_here(&generation.backends[backend], index).await {
        let _ = reply.give(slot); // a reply after the timeout drops the slot, which frees it
    }
}
