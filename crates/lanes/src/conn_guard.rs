//! What a connection holds while it is served.

use crate::traffic::Parties;
use manylane_plan::ConnLimit;
use manylane_plan::generation::{Frontend, Generation, Listener};
use manylane_sched::{Here, TaskKind, Time};
use manylane_sync::Arc;

/// Kind of the tasks of clients' connections.
pub static SESSION: TaskKind = TaskKind::new("session");

/// Permits that a connection holds while it is served: one of each of three limits, and of a fourth with TLS.
/// Also counts the connection.
#[derive(Debug)]
pub struct ConnGuard {
    pub(crate) generation: Arc<Generation>,
    /// Number of the frontend in its generation.
    pub frontend: usize,
    /// Number of the listener in the frontend.
    pub listener: usize,
    /// The serving lane counts the connection as a session.
    is_session: bool,
    /// It speaks TLS, which has a limit of its own.
    is_tls: bool,
}

impl ConnGuard {
    /// Waits for the rates, then for a permit of each limit.
    pub async fn enter(here: Here, generation: Arc<Generation>, frontend: usize, listener: usize) -> Self {
        let is_tls = generation.frontends[frontend].listeners[listener].tls.is_some();
        let guard = Self { generation, frontend, listener, is_session: false, is_tls };
        let generation = &guard.generation;
        let rates = [&guard.counted().0.rate, &*generation.connection_rate, &*generation.session_rate];
        for rate in rates.into_iter().chain(is_tls.then_some(&*generation.tls_rate)) {
            // The lane's clock is the machine's, the same on all lanes.
            while let Err(wait) = rate.enter(here.now().since(Time::ZERO)) {
                here.sleep(wait).await;
            }
        }
        for limit in guard.limits() {
            limit.enter().await; // never dropped amid the wait: an accepted connection waits to the end
        }
        guard.parties().connection_begins();
        if is_tls {
            generation.process_stats.tls_clients.own().connections.add(1);
        }
        guard
    }

    fn counted(&self) -> (&Frontend, &Listener) {
        let frontend = &self.generation.frontends[self.frontend];
        (frontend, &frontend.listeners[self.listener])
    }

    fn parties(&self) -> Parties<'_> {
        let (frontend, listener) = self.counted();
        Parties::client(&self.generation, frontend, listener)
    }

    fn limits(&self) -> impl Iterator<Item = &ConnLimit> {
        limits(&self.generation, self.counted(), self.is_tls)
    }
}

impl ConnGuard {
    /// Counts the connection as a session of the calling lane.
    pub fn begin_session(&mut self) {
        self.is_session = true;
        self.parties().session_begins();
    }

    /// Moves the connection to another generation.
    pub(crate) fn follow(&mut self, generation: &Arc<Generation>, frontend: usize, listener: usize) {
        let before = std::mem::replace(&mut self.generation, generation.clone());
        let left = &before.frontends[std::mem::replace(&mut self.frontend, frontend)];
        let left_at = &left.listeners[std::mem::replace(&mut self.listener, listener)];
        let (front, at) = self.counted();
        // Mostly both generations share the counters.
        let (mut from, mut to) = (Parties::new(&before), Parties::new(generation));
        if !Arc::ptr_eq(&front.counts, &left.counts) {
            (from.frontend, to.frontend) = (Some(left), Some(front));
        }
        if !Arc::ptr_eq(&at.counts, &left_at.counts) {
            (from.listener, to.listener) = (Some(left_at), Some(at));
        }
        to.connection_begins();
        from.connection_ends();
        if self.is_session {
            to.session_begins();
            to.session_admitted(); // the session moves between two requests
            from.session_ends();
        }
        for (own, left) in self.limits().zip(limits(&before, (left, left_at), self.is_tls)) {
            if !std::ptr::eq(own, left) {
                own.enter_anyway();
                left.leave();
            }
        }
    }
}

/// The limits of a connection, the narrowest first: one that waits for a permit has none of those that other
/// frontends need.
fn limits<'a>(
    generation: &'a Generation,
    (frontend, listener): (&'a Frontend, &'a Listener),
    is_tls: bool,
) -> impl Iterator<Item = &'a ConnLimit> {
    let own: [&ConnLimit; 2] = [&listener.conn_limit, &frontend.conn_limit];
    let tls = is_tls.then_some(&*generation.tls_conn_limit);
    own.into_iter().chain(tls).chain([&*generation.conn_limit])
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        for limit in self.limits() {
            limit.leave();
        }
        self.parties().connection_ends();
        if self.is_session {
            self.parties().session_ends();
        }
        if self.is_tls {
            self.generation.process_stats.tls_clients.own().connections_ended.add(1);
        }
    }
}
