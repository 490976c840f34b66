//! What a connection holds while it is served.

use manylane_plan::ConnLimit;
use manylane_plan::generation::{Frontend, Generation, Listener};
use manylane_sched::{Here, TaskKind, Time};
use manylane_sync::Arc;

/// Kind of the tasks of clients' connections.
pub(crate) static SESSION: TaskKind = TaskKind::new("session");

/// Permits that a connection holds while it is served: one of each of three limits. Also counts the
/// connection.
#[derive(Debug)]
pub(crate) struct ConnGuard {
    pub(crate) generation: Arc<Generation>,
    pub(crate) frontend: usize,
    pub(crate) listener: usize,
    /// The serving lane counts the connection as a session.
    is_session: bool,
    /// It speaks TLS, which has a limit of its own.
    is_tls: bool,
}

impl ConnGuard {
    /// Waits for the rates, then for a permit of each limit.
    pub(crate) async fn enter(
        here: Here,
        generation: Arc<Generation>,
        frontend: usize,
        listener: usize,
    ) -> Self {
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
        let (limit, at) = guard.counted();
        limit.counts.own().connections.add(1);
        at.counts.own().connections.add(1);
        if is_tls {
            generation.process_stats.tls_clients.own().connections.add(1);
        }
        guard
    }

    fn counted(&self) -> (&Frontend, &Listener) {
        let frontend = &self.generation.frontends[self.frontend];
        (frontend, &frontend.listeners[self.listener])
    }

    fn limits(&self) -> impl Iterator<Item = &ConnLimit> {
        let (frontend, listener) = self.counted();
        let limits: [&ConnLimit; 3] = [&self.generation.places, &frontend.places, &listener.places];
        limits.into_iter().chain(self.is_tls.then_some(&*self.generation.tls_places))
    }
}

impl ConnGuard {
    /// Counts the connection as a session of the calling lane.
    pub(crate) fn begin_session(&mut self) {
        self.is_session = true;
        let (frontend, listener) = self.counted();
        frontend.counts.own().begin_session();
        listener.counts.own().begin_session();
    }

    /// Moves the connection to another generation.
    pub(crate) fn follow(&mut self, generation: &Arc<Generation>, frontend: usize, listener: usize) {
        let before = std::mem::replace(&mut self.generation, generation.clone());
        let left = &before.frontends[std::mem::replace(&mut self.frontend, frontend)];
        let left_at = &left.listeners[std::mem::replace(&mut self.listener, listener)];
        let (front, at) = self.counted();
        // Mostly both generations share the counters.
        if !Arc::ptr_eq(&front.counts, &left.counts) {
            front.counts.own().connections.add(1);
            left.counts.own().connections_ended.add(1);
            if self.is_session {
                front.counts.own().begin_session();
                front.counts.own().sessions_admitted.add(1); // the session moves between two requests
                left.counts.own().sessions_ended.add(1);
            }
        }
        if !Arc::ptr_eq(&at.counts, &left_at.counts) {
            at.counts.own().connections.add(1);
            left_at.counts.own().connections_ended.add(1);
            if self.is_session {
                at.counts.own().begin_session();
                at.counts.own().sessions_admitted.add(1);
                left_at.counts.own().sessions_ended.add(1);
            }
        }
        let of_before = [&before.places, &left.places, &left_at.places];
        let of_before = of_before.into_iter().chain(self.is_tls.then_some(&before.tls_places));
        for (own, left) in self.limits().zip(of_before) {
            if !std::ptr::eq(own, &**left) {
                own.enter_anyway();
                left.leave();
            }
        }
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        for limit in self.limits() {
            limit.leave();
        }
        let (frontend, listener) = self.counted();
        frontend.counts.own().connections_ended.add(1);
        if self.is_session {
            frontend.counts.own().sessions_ended.add(1);
            listener.counts.own().sessions_ended.add(1);
        }
        listener.counts.own().connections_ended.add(1);
        if self.is_tls {
            self.generation.process_stats.tls_clients.own().connections_ended.add(1);
        }
    }
}
