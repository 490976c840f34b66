//! State that a generation shares with the one that it replaces: counters, permits in use, and everything
//! that is known of servers.
//!
//! Two objects are the same if the configurations name them the same: a proxy by name and mode, a listener by
//! its address as well, a server by name and address, wherever an operator has moved it since.
//!
//! A server that is the same is one object for both generations: its address, state, weight, limit and queue,
//! its checks and its counters. So a change reaches the streams of both, whoever makes it. Settings that
//! differ in the new configuration hold for both when the new generation [takes
//! effect](Generation::take_effect).

use super::{
    Backend, Frontend, Generation, Listener, Parts, Peers, Server, ServerAddress, ServerCheck, ServerTls,
    operation, variables,
};
use crate::conn_limit::ConnLimit;
use manylane_balance::{Admin, Availability, Index, Settings};
use manylane_sched::Time;
use manylane_sync::Arc;

impl Generation {
    /// Takes over the shared state of `before`, which serves until this generation does. `now` is the lane's
    /// clock.
    ///
    /// To be called before anything uses `self`. Shared limits keep the values of `before` until
    /// [`take_effect`](Self::take_effect).
    pub fn inherit(&mut self, before: &Self, now: Time) {
        self.pages = before.pages.clone();
        self.changes = before.changes.clone();
        // The parts are shared only if this generation was made of `before` itself.
        let Some(parts) = Arc::get_mut(&mut self.parts) else { return };
        parts.process_stats = before.process_stats.clone();
        for ring in &parts.logs.rings {
            if let Some(was) = before.logs.rings.iter().find(|was| was.name() == ring.name()) {
                ring.follow(was);
            }
        }
        for server in &mut parts.logs.ring_servers {
            if let Some(was) = before.logs.ring_servers.iter().find(|was| was.is_same(server)) {
                let own = std::mem::replace(server, was.clone());
                self.ring_servers.push((was.clone(), own));
            }
        }
        for section in &mut parts.resolvers {
            if let Some(was) = before.resolvers.iter().find(|was| was.is_like(section)) {
                *section = was.clone();
            }
        }
        super::stick::inherit(&mut parts.stick_tables, &before.stick_tables);
        for section in &mut parts.peers {
            let same = |was: &&Arc<Peers>| section.is_like(&parts.stick_tables, was, &before.stick_tables);
            if let Some(was) = before.peers.iter().find(same) {
                *section = was.clone();
            }
        }
        share(&mut parts.conn_limit, &before.conn_limit, &mut self.bounds);
        // Recently admitted connections count, and an operator's limit stays.
        if parts.process.connection_rate == before.process.connection_rate {
            parts.connection_rate = before.connection_rate.clone();
        }
        if parts.process.session_rate == before.process.session_rate {
            parts.session_rate = before.session_rate.clone();
        }
        let rate = |parts: &Parts| parts.process.tls.rate.map(|set| set.value);
        if rate(parts) == rate(&before.parts) {
            parts.tls_rate = before.tls_rate.clone();
        }
        share(&mut parts.tls_conn_limit, &before.tls_conn_limit, &mut self.bounds);
        variables::inherit(
            &mut parts.expressions,
            &before.expressions,
            [parts.saved.variables(), before.saved.variables()],
        );
        for frontend in &mut parts.frontends {
            let Some(was) = before.frontend_named(&frontend.name).filter(|was| was.mode == frontend.mode)
            else {
                continue;
            };
            frontend.counts = was.counts.clone();
            frontend.gate = was.gate.clone();
            frontend.invalid = was.invalid.clone();
            share(&mut frontend.conn_limit, &was.conn_limit, &mut self.bounds);
            let mut successors = vec![false; was.listeners.len()];
            for listener in &mut frontend.listeners {
                let Some(was) = was.listener_like(listener).filter(|was| !successors[was.index]) else {
                    continue;
                };
                successors[was.index] = true; // of two lines with one address, only one inherits
                listener.counts = was.counts.clone();
                share(&mut listener.conn_limit, &was.conn_limit, &mut self.bounds);
            }
        }
        for backend in self.backends.iter_mut().filter_map(Arc::get_mut) {
            let Some(was) = before.backend_named(&backend.name).filter(|was| was.mode == backend.mode) else {
                continue;
            };
            backend.counts = was.counts.clone();
            backend.past = was.past.clone();
            if backend.begins_published == was.begins_published {
                backend.published = was.published.clone();
            }
            backend.invalid = was.invalid.clone();
            for server in backend.servers.iter_mut().filter_map(Arc::get_mut) {
                if let Some(was) = was.server_like(server) {
                    server.succeed(was);
                }
            }
            let limits = backend.limits_of(was);
            if !limits.is_empty()
                && let Ok(limited) = backend.limited(&limits)
            {
                *backend = limited;
            }
            let Backend { balancer, servers, .. } = &mut *backend;
            let same = |index: Index| was.same_server(&servers[index.get()]);
            balancer.succeed(&was.balancer, |index| was.balancer.servers().index(same(index)?.index), now);
            for (index, own) in balancer.servers().iter() {
                let check = servers[index.get()].check.as_ref();
                let begins = check.filter(|_| same(index).is_some_and(|was| was.check.is_none()));
                if let Some(check) = begins.filter(|_| own.state().standing().is_in_maintenance()) {
                    check.board.pause();
                }
            }
        }
        self.settle_followers(now);
    }

    /// Applies the settings of this generation once it serves in place of `before`: limits, sizes of rings
    /// and timeouts of their servers, and the settings of servers that differ from `before`. Other changes
    /// that an operator made to a server stay.
    pub fn take_effect(&self, before: &Self, now: Time) {
        for (conn_limit, most) in &self.bounds {
            conn_limit.give(*most);
        }
        for backend in &self.backends {
            if let Some(was) = before.backend_named(&backend.name).filter(|was| was.mode == backend.mode) {
                backend.take_effect(was, now);
            }
        }
        self.settle_followers(now);
        self.backends.iter().for_each(|backend| backend.settle_past(now));
        self.logs.rings.iter().for_each(|ring| ring.take_effect());
        for (server, own) in &self.ring_servers {
            server.follow(own);
        }
    }

    /// Returns the frontend with this name.
    pub fn frontend_named(&self, name: &str) -> Option<&Frontend> {
        self.frontends_by_name.get(name).map(|&number| &self.frontends[number])
    }

    /// Returns the backend with this name.
    pub fn backend_named(&self, name: &str) -> Option<&Backend> {
        self.backends_by_name.get(name).map(|&number| &*self.backends[number])
    }
}

/// Shares the limit, if both generations have one: without a limit nothing is counted. Notes the value that
/// will hold.
fn share(own: &mut Arc<ConnLimit>, before: &Arc<ConnLimit>, bounds: &mut Vec<(Arc<ConnLimit>, u64)>) {
    if own.most() > 0 && before.most() > 0 {
        bounds.push((before.clone(), own.given()));
        *own = before.clone();
    }
}

/// Returns true if a check gives the same result with both: neither has TLS, or both have equal settings.
fn alike(own: Option<&ServerTls>, was: Option<&ServerTls>) -> bool {
    match (own, was) {
        (Some(own), Some(was)) => own.is_like(was),
        (own, was) => own.is_none() && was.is_none(),
    }
}

impl Frontend {
    /// Returns the listener with the same address as `other`.
    pub fn listener_like(&self, other: &Listener) -> Option<&Listener> {
        let same = |own: &&Listener| own.endpoint == other.endpoint;
        self.listeners.get(other.index).filter(same).or_else(|| self.listeners.iter().find(same))
    }
}

impl Backend {
    /// Returns the server with the same name and address as `other`. For a server whose address is resolved
    /// at run time, its host name counts instead.
    pub fn server_like(&self, other: &Server) -> Option<&Server> {
        let index = self.balancer.servers().by_name(&other.name)?;
        Some(&*self.servers[index.get()]).filter(|own| own.is_like(other))
    }

    /// Returns the limits that commands gave to servers without a limit in either configuration, by their
    /// numbers here.
    fn limits_of(&self, before: &Self) -> Vec<(usize, u32)> {
        let limit = |server: &Server| {
            let was = before.server_like(server)?;
            let then = before.balancer.servers().index(was.index)?;
            let (spec, state) =
                (before.balancer.servers()[then].spec(), before.balancer.servers()[then].state());
            let limited =
                server.maxconn == 0 && was.maxconn == 0 && spec.maxconn != 0 && state.maxconn() != 0;
            limited.then(|| (server.index, state.maxconn()))
        };
        self.servers.iter().filter_map(|server| limit(server)).collect()
    }

    /// Returns the server that is one object with `other`, whatever its number.
    pub fn same_server(&self, other: &Server) -> Option<&Arc<Server>> {
        let index = self.balancer.servers().by_name(&other.name)?;
        Some(&self.servers[index.get()]).filter(|own| Arc::ptr_eq(&own.counts, &other.counts))
    }

    /// Applies the settings of servers that differ from those of `before`.
    fn take_effect(&self, before: &Self, now: Time) {
        let servers = self.balancer.servers();
        let standing = |server: &Server| Some(servers[servers.index(server.index)?].state().standing());
        let same = |server: &Server| before.same_server(server);
        let earlier: Vec<_> = self.servers.iter().map(|server| standing(server)).collect();
        let is_static = self.balancer.algorithm().is_static();
        self.balancer.update_all(now, |index, own| {
            let server = &self.servers[index.get()];
            same(server).map_or(own, |was| server.settings(was, own, is_static))
        });
        for (server, earlier) in self.servers.iter().zip(earlier) {
            let (Some(was), Some(earlier), Some(own)) = (same(server), earlier, standing(server)) else {
                continue;
            };
            for (own, was) in [(&server.check, &was.check), (&server.agent, &was.agent)] {
                if let (Some(own), Some(was)) = (own, was)
                    && own.health.steps() != was.health.steps()
                {
                    own.board.set_steps(&own.health);
                }
            }
            if own.is_in_maintenance() != earlier.is_in_maintenance() {
                server.paused(own.is_in_maintenance());
            }
            if own.serves() != earlier.serves() {
                server.past.change(own.serves(), now.since(Time::ZERO));
            }
        }
    }
}

impl Server {
    /// Returns true if connections to one server fit requests for the other.
    fn has_connections_of(&self, other: &Self) -> bool {
        let names = (self.pool_name, other.pool_name); // the names that requests ask for may differ
        Arc::ptr_eq(&self.addr, &other.addr)
            && (&self.connect, self.header, self.socks4) == (&other.connect, other.header, other.socks4)
            && names == (None, None)
            && match (&self.tls, &other.tls) {
                (Some(own), Some(was)) => own.fits_connections_of(was),
                (own, was) => own.is_none() && was.is_none(),
            }
    }

    /// Returns true if the configurations name the same server.
    fn is_like(&self, other: &Self) -> bool {
        let (own, was) = (&self.written, &other.written);
        match (&self.resolution, &other.resolution) {
            (Some(now), Some(then)) => match (&now.service, &then.service) {
                (None, None) if own.name.is_none() => own.address == was.address && was.name.is_none(),
                (None, None) => own.port == was.port && own.name == was.name,
                (now, then) => now == then,
            },
            (None, None) if own.address == was.address => {
                own.address != ServerAddress::Nowhere || (&own.name, own.port) == (&was.name, was.port)
            }
            // Compare the current addresses. They agree if the name servers' last answer is what the system
            // resolves now, or if the configuration has adopted an operator's change.
            _ => self.addr.read().address == other.addr.read().address,
        }
    }

    /// Takes over the state of the same server in the generation before.
    fn succeed(&mut self, was: &Self) {
        self.counts = was.counts.clone();
        self.past = was.past.clone();
        if self.goes_where(was) {
            let found = std::mem::replace(&mut self.addr, was.addr.clone()).read();
            if self.resolution.is_some() && found.ip().is_some() {
                // The address was unknown until now.
                self.addr.change(|known| {
                    if known.ip().is_none() && !known.renamed {
                        *known = found;
                    }
                });
            }
            for check in [&mut self.check, &mut self.agent].into_iter().flatten() {
                if let Some(follows) = &mut check.follows {
                    follows.addr = was.addr.clone();
                }
            }
        }
        if self.has_connections_of(was) {
            self.pool = was.pool;
        }
        for (own, was) in [(&mut self.check, &was.check), (&mut self.agent, &was.agent)] {
            if let (Some(own), Some(was)) = (own, was) {
                own.succeed(was);
            }
        }
    }

    /// Returns true if this server follows the address of the same server in another generation, wherever
    /// that moves.
    fn goes_where(&self, was: &Self) -> bool {
        match (&self.resolution, &was.resolution) {
            (Some(_), Some(_)) => true,
            (None, None) => self.stays.is_none() && self.written.address == was.written.address,
            _ => false, // only one of the two follows the name servers
        }
    }

    /// Returns the settings that hold now; `was` has those of the configuration before.
    fn settings(&self, was: &Self, now: Settings, is_static: bool) -> Settings {
        let Settings { standing, weight, maxconn } = now;
        let checked_by =
            |server: &Self| (server.check.is_some(), server.agent.is_some(), server.tracks.is_some());
        let own = match self.disabled {
            disabled if disabled == was.disabled => standing.own,
            true => Admin::Maintenance,
            false => Admin::Ready,
        };
        let standing = Availability {
            own,
            inherited: if self.tracks.is_some() { standing.inherited } else { Admin::Ready },
            operation: if checked_by(self) == checked_by(was) {
                standing.operation
            } else {
                operation(self.found())
            },
            unresolved: self.addr.read().address == ServerAddress::Nowhere,
        };
        // A static algorithm keeps the weights of the configuration.
        let keeps = self.weight == was.weight && !(is_static && weight != 0 && weight != self.weight);
        Settings {
            standing,
            weight: if keeps { weight } else { self.weight },
            maxconn: if self.maxconn == was.maxconn { maxconn } else { self.maxconn },
        }
    }
}

impl ServerCheck {
    /// Takes over the results and settings of a check. The same check continues without a new start.
    fn succeed(&mut self, was: &Self) {
        if self.address == was.address && self.follows == was.follows {
            self.target = was.target.clone();
        }
        if self.is_same(was) {
            self.notify = was.notify.clone();
        }
        if let (Some(own), Some(was)) = (&mut self.observed, &was.observed) {
            own.succeed(was);
        }
        self.board = was.board.clone();
    }

    /// Returns true if both checks do the same at the same times. Settings that each run reads again, such as
    /// `log`, do not matter.
    fn is_same(&self, was: &Self) -> bool {
        let addr = |check: &Self| check.follows.as_ref().map(|follows| Arc::as_ptr(&follows.addr));
        let mut steps = self.tls_of_steps.iter().zip(&was.tls_of_steps);
        (&self.wording, &self.program) == (&was.wording, &was.program)
            && (self.reuses, self.http2) == (was.reuses, was.http2)
            && (&self.address, &self.follows, addr(self)) == (&was.address, &was.follows, addr(was))
            && alike(self.tls.as_deref(), was.tls.as_deref())
            && self.tls_of_steps.len() == was.tls_of_steps.len()
            && steps.all(|(own, was)| own.0 == was.0 && own.1.is_like(&was.1))
            && (&self.connect, self.has_address, self.relays) == (&was.connect, was.has_address, was.relays)
            && (self.header, self.usual_header) == (was.header, was.usual_header)
            && (self.socks4, self.via_socks4) == (was.socks4, was.via_socks4)
            && (self.intervals, self.timeouts) == (was.intervals, was.timeouts)
    }
}
