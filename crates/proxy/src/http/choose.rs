//! Chooses the server of a request, and an idle connection to it.

use super::body::{data, phase_of};
use super::pump::Pump;
use super::stream::{Persistence, Stream};
use crate::server::IdleConn;
use manylane_balance::{Index, Key, Priority};
use manylane_h1::Request;
use manylane_http::Method;
use manylane_lanes::{Local, ServerPermit, SetTime, Wanted};
use manylane_plan::generation::{Backend, Reuse, TimeoutOf};
use manylane_rules::{EvalPhase, chosen_server, key};

impl Stream<'_> {
    /// Returns the server that `use-server` chooses.
    pub(super) fn by_rule(&self, request: &Request, up: &Pump, backend: &Backend) -> Option<Index> {
        if backend.rules.use_server.is_empty() {
            return None;
        }
        let phase = phase_of(request, up, backend);
        let obeyed = backend.http.persist || self.persistence.forced;
        chosen_server(&backend.rules.use_server, &self.eval(), phase, backend.balancer.servers(), obeyed)
    }

    /// Runs `stick match`, `stick on` and `stick store-request`.
    #[inline(always)]
    pub(super) fn stick(&mut self, request: &Request, up: &Pump, backend: &Backend) {
        if !backend.rules.stick.is_empty() {
            self.stick_by_rules(request, up, backend);
        }
    }

    #[inline(never)] // most requests have no such rules
    fn stick_by_rules(&mut self, request: &Request, up: &Pump, backend: &Backend) {
        let phase = phase_of(request, up, backend);
        let assigned = self.persistence.ruled.or(self.by_cookie(backend)).is_some();
        let obeyed = backend.http.persist || self.persistence.forced;
        (self.persistence.stuck, self.persistence.stores) =
            self.eval().stick(phase, backend, assigned, obeyed);
    }

    /// Returns the server that the cookie names, if it accepts persistent requests.
    fn by_cookie(&self, backend: &Backend) -> Option<Index> {
        let obeyed = backend.http.persist || self.persistence.forced;
        let serves = |index: &Index| backend.balancer.servers()[*index].state().serves_its_own();
        self.persistence.cookie.server.filter(|index| !self.persistence.ignored && (obeyed || serves(index)))
    }

    /// Returns the log's letter for the cookie of a request that goes to the server `reached`, or is about to
    /// go to one.
    pub(super) fn cookie_letter(&self, backend: &Backend, reached: Option<Index>) -> u8 {
        let Persistence { cookie, ignored, ruled, .. } = &self.persistence;
        let serves = |named: Index| backend.balancer.servers()[named].state().serves_its_own();
        cookie.late.unwrap_or_else(|| match cookie.server {
            _ if !cookie.there => b'N',
            _ if *ignored || ruled.is_some() => b'U',
            None => b'I',
            Some(named) if reached.is_none_or(|index| index == named) && serves(named) => b'V',
            Some(_) => b'D',
        })
    }

    /// Returns the wanted server, and the inputs to choose another one.
    pub(super) fn wanted<'k>(&self, request: &'k Request, up: &Pump, backend: &Backend) -> Wanted<'k> {
        let head = &request.head;
        let servers = backend.balancer.servers();
        let serves = |index: &Index| servers[*index].state().serves_its_own();
        let by_habit = self
            .last
            .filter(|(number, _)| {
                backend.http.prefer_last
                    && !backend.balancer.algorithm().goes_by_key()
                    && *number == backend.number
            })
            .map(|(_, index)| index)
            .filter(serves)
            .filter(|index| {
                backend.http.keep_queue.is_none_or(|most| {
                    backend.balancer.has_room(*index) || backend.balancer.waiting(*index) < most
                })
            });
        // The server of an authenticated connection, even if the request has to queue for it.
        let authenticated = self
            .private
            .authenticated_with(backend)
            .filter(|_| !backend.balancer.algorithm().goes_by_key())
            .filter(serves);
        let persistent =
            self.persistence.ruled.or_else(|| self.by_cookie(backend)).or(self.persistence.stuck);
        Wanted {
            key: self.balanced_by(request, up, backend),
            server: persistent.or(authenticated).or(by_habit).or(backend.of_client),
            avoid: None,
            persistent: persistent.is_some(),
            priority: Priority {
                class: self.scopes.memory.priority_class.get(),
                offset: self.scopes.memory.priority_offset.get(),
            },
            packets: self.scopes.memory.server_packets.get(),
            stream: self.entry(),
            head: Some(head),
            names: &[],
            headers: None,
            early: false,
            websocket: false,
            memory: None,
            queue_time: SetTime::new(self.scopes.memory.timeout(TimeoutOf::Queue).get()),
            connect_time: SetTime::new(self.scopes.memory.timeout(TimeoutOf::Connect).get()),
        }
    }

    /// Returns the key for the balancing algorithm.
    fn balanced_by<'k>(&self, request: &'k Request, up: &Pump, backend: &Backend) -> Key<'k> {
        if let Some(key) = self.key.get() {
            return key;
        }
        let keep = |key| {
            self.key.set(Some(key));
            key
        };
        if backend.key.is_expression() {
            let request_data = data(request, up);
            let phase = EvalPhase {
                request: Some(&request.head),
                request_data,
                backend: Some(backend),
                ..EvalPhase::default()
            };
            return keep(key(&self.eval(), phase, backend));
        }
        match backend.key.of_request(self.client.source, &request.head) {
            Key::None if backend.key.wants_body() && request.head.method_kind() == Method::Post => {
                keep(backend.key.of_body(backend.balancer.algorithm().hash_function(), up.data()))
            }
            key => key,
        }
    }
}

/// Returns an HTTP/2 connection to the server that may carry another request.
pub(super) fn take_shared(
    local: &Local,
    backend: &Backend,
    key: Option<u64>,
    first: bool,
    permit: &ServerPermit,
) -> IdleConn {
    let Some(least) = served_before(backend.http.reuse, first, true) else { return IdleConn::Nothing };
    let least = u64::from(least.max(1)); // its owner starts the first stream
    let conn = key.and_then(|key| local.take_shared(backend, permit.index(), key, least));
    conn.map_or(IdleConn::Nothing, IdleConn::Shared)
}

/// Takes a connection from the lane's idle pool that may carry the request.
pub(super) fn take_idle(
    local: &Local,
    backend: &Backend,
    key: Option<u64>,
    first: bool,
    permit: &ServerPermit,
) -> IdleConn {
    let index = permit.index();
    let Some(least) = served_before(backend.http.reuse, first, false) else { return IdleConn::Nothing };
    let Some(key) = key else { return IdleConn::Nothing };
    match local.take_kept(backend, index, key, least) {
        Some(idle) => IdleConn::This(idle),
        None if permit.server().tls.is_some() => IdleConn::Nothing, // TLS connections stay on their lane
        None => IdleConn::Elsewhere { key, least },
    }
}

/// Returns how many requests a connection must have served to carry another one; `None` if it may not.
///
/// The `first` request of a client is not retried if the connection turns out to be closed, so the connection
/// must have shown that its server keeps it open. With `safe`, a first request uses no idle connection, but
/// may use a `shared` one: a stream that a closing connection refuses is retried elsewhere.
const fn served_before(reuse: Reuse, first: bool, shared: bool) -> Option<u32> {
    match (reuse, first) {
        (Reuse::Never, _) => None,
        (Reuse::Safe, true) if !shared => None,
        (Reuse::Safe | Reuse::Aggressive, true) => Some(2),
        (Reuse::Always, _) | (_, false) => Some(0),
    }
}
