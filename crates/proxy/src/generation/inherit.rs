//! What a generation takes over from the one that it replaces: what was counted, the places that are taken,
//! and how servers were found.
//!
//! Things are the same when the file names them so: a proxy by its name and mode, a listener by its address
//! too, a server by its name and address, wherever an operator sent it since.

use super::{Backend, Frontend, Generation, Listener, Server, ServerPlace, Whereabouts, variables};
use crate::conn_limit::ConnLimit;
use manylane_balance::Standing;
use manylane_sched::Time;
use manylane_sync::Arc;

impl Generation {
    /// Takes over from `before`, which serves until this one does. `now` is the lane's clock.
    ///
    /// Before anybody uses `self`. What is shared has the bounds of `before` until
    /// [`take_effect`](Self::take_effect).
    pub fn inherit(&mut self, before: &Self, now: Time) {
        self.pages = before.pages.clone();
        self.changes = before.changes.clone();
        // it would have been made of `before` itself
        let Some(parts) = Arc::get_mut(&mut self.parts) else { return };
        parts.process_stats = before.process_stats.clone();
        for ring in &parts.logs.rings {
            if let Some(was) = before.logs.rings.iter().find(|was| was.name() == ring.name()) {
                ring.follow(was);
            }
        }
        for server in &mut parts.logs.ring_servers {
            if let Some(was) = before.logs.ring_servers.iter().find(|was| was.is_same(server)) {
                self.ring_patience.push((was.clone(), server.timeouts()));
                *server = was.clone();
            }
        }
        for section in &mut parts.resolvers {
            if let Some(was) = before.resolvers.iter().find(|was| was.is_like(section)) {
                *section = was.clone();
            }
        }
        share(&mut parts.places, &before.places, &mut self.bounds);
        // Who was let in a moment ago counts, and what an operator set stays.
        if parts.process.connection_rate == before.process.connection_rate {
            parts.connection_rate = before.connection_rate.clone();
        }
        if parts.process.session_rate == before.process.session_rate {
            parts.session_rate = before.session_rate.clone();
        }
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
            share(&mut frontend.places, &was.places, &mut self.bounds);
            let mut successors = vec![false; was.listeners.len()];
            for listener in &mut frontend.listeners {
                let Some(was) = was.listener_like(listener).filter(|was| !successors[was.index]) else {
                    continue;
                };
                successors[was.index] = true; // of two lines with one address, one
                listener.counts = was.counts.clone();
                share(&mut listener.places, &was.places, &mut self.bounds);
            }
        }
        for backend in self.backends.iter_mut().filter_map(Arc::get_mut) {
            let Some(was) = before.backend_named(&backend.name).filter(|was| was.mode == backend.mode) else {
                continue;
            };
            backend.counts = was.counts.clone();
            backend.past = was.past.clone();
            backend.invalid = was.invalid.clone();
            for server in backend.servers.iter_mut().filter_map(Arc::get_mut) {
                if let Some(was) = was.server_like(server) {
                    server.counts = was.counts.clone();
                    server.past = was.past.clone();
                    server.share_site(was);
                }
            }
            let limits = backend.limits_of(was);
            if !limits.is_empty()
                && let Ok(limited) = backend.limited(&limits)
            {
                *backend = limited;
            }
            backend.share_places(was);
        }
        self.inherit_servers(before, now);
    }

    /// Goes on with servers where `before` is now. What an operator did to one stays, as long as the file
    /// does not say something else about the same thing.
    pub fn inherit_servers(&self, before: &Self, now: Time) {
        for backend in &self.backends {
            if let Some(was) = before.backend_named(&backend.name).filter(|was| was.mode == backend.mode) {
                backend.inherit(was, now);
            }
        }
        self.settle_followers(now);
    }

    /// All lanes have the generation: a place that one before gave back until now may have been told to
    /// nobody.
    pub fn look_for_places(&self, now: Time) {
        self.backends.iter().for_each(|backend| backend.balancer.look_for_places(now));
    }

    /// The generation serves: `maxconn`, sizes of rings and times of their servers are what it says.
    pub fn take_effect(&self) {
        for (places, most) in &self.bounds {
            places.give(*most);
        }
        self.backends.iter().for_each(|backend| backend.settle_past(Time::now()));
        self.logs.rings.iter().for_each(|ring| ring.take_effect());
        for (server, timeouts) in &self.ring_patience {
            server.set_patience(*timeouts);
        }
    }

    /// The frontend of that name.
    pub(crate) fn frontend_named(&self, name: &str) -> Option<&Frontend> {
        self.frontends_by_name.get(name).map(|&number| &self.frontends[number])
    }

    /// The backend of that name.
    pub fn backend_named(&self, name: &str) -> Option<&Backend> {
        self.backends_by_name.get(name).map(|&number| &*self.backends[number])
    }
}

/// The same places, where both are bounded: without a bound nobody counts. The bound that is to be is noted.
fn share(own: &mut Arc<ConnLimit>, before: &Arc<ConnLimit>, bounds: &mut Vec<(Arc<ConnLimit>, u64)>) {
    if own.most() > 0 && before.most() > 0 {
        bounds.push((before.clone(), own.given()));
        *own = before.clone();
    }
}

impl Frontend {
    /// The listener at the same place as that one.
    pub(crate) fn listener_like(&self, other: &Listener) -> Option<&Listener> {
        let same = |own: &&Listener| own.endpoint == other.endpoint;
        self.listeners.get(other.index).filter(same).or_else(|| self.listeners.iter().find(same))
    }
}

impl Backend {
    /// The server of the same name at the same place; one whose address is resolved all the time, by the same
    /// name.
    pub(crate) fn server_like(&self, other: &Server) -> Option<&Server> {
        let index = self.balancer.servers().by_name(&other.name)?;
        Some(&*self.servers[index.get()]).filter(|own| own.is_like(other))
    }

    /// Limits that commands have given to servers which have none in either file: by their numbers here.
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

    /// A `maxconn` holds for what both generations send to a server.
    fn share_places(&mut self, before: &Self) {
        for server in &self.servers {
            let Some(was) = before.server_like(server) else { continue };
            let (own, then) =
                (self.balancer.servers().index(server.index), before.balancer.servers().index(was.index));
            if let (Some(own), Some(then)) = (own, then) {
                self.balancer.join(own, &before.balancer, then);
            }
        }
    }

    /// How the servers were found.
    fn inherit(&self, before: &Self, now: Time) {
        for server in &self.servers {
            let Some(was) = before.server_like(server) else { continue };
            let (servers, older) = (self.balancer.servers(), before.balancer.servers());
            let (Some(index), Some(then)) = (servers.index(server.index), older.index(was.index)) else {
                continue;
            };
            let state = older[then].state();
            let standing = state.standing();
            if server.disabled == was.disabled {
                self.balancer.set_admin(index, standing.own, now);
            }
            if server.follow(was) {
                self.balancer.update(index, now, |own| Standing { unresolved: standing.unresolved, ..own });
            }
            if server.weight == was.weight && servers[index].state().weight() != state.weight() {
                // An algorithm whose weights are fixed now has those of the file.
                let _ = self.balancer.set_weight(index, state.weight(), now);
            }
            if server.maxconn == was.maxconn && servers[index].state().maxconn() != state.maxconn() {
                self.balancer.set_maxconn(index, state.maxconn(), now);
            }
            if let (Some(check), Some(older)) = (&server.check, &was.check) {
                check.board.inherit(&older.board);
                check.inherit_errors(older);
            }
            for (own, older) in [(&server.check, &was.check), (&server.agent, &was.agent)] {
                if let (Some(own), Some(older)) = (own, older) {
                    own.board.disable(older.board.read().disabled);
                    if own.place == older.place && own.follows == older.follows {
                        let set = older.target.read();
                        own.target.set(|aim| *aim = set);
                    }
                }
            }
            if let (Some(agent), Some(older)) = (&server.agent, &was.agent) {
                agent.board.inherit(&older.board);
            }
            // What nobody looks after is as it was left; what began to be looked after is as the file says.
            let asked = |server: &Server| (server.check.is_some(), server.agent.is_some());
            if asked(server) == asked(was) && server.tracks.is_none() {
                self.balancer.set_operation(index, standing.operation, now);
            }
        }
    }
}

impl Server {
    /// Whether a connection to one is as good for the other.
    pub(crate) fn has_connections_of(&self, other: &Self) -> bool {
        // Those of one that has moved lie under another key, unless both have moved together.
        let together = Arc::ptr_eq(&self.addr, &other.addr) || self.addr.word() | other.addr.word() == 0;
        together
            && self.addr.read().place == other.addr.read().place
            && (&self.connect, self.header) == (&other.connect, other.header)
    }

    /// Whether it is the same server, as the file names it.
    fn is_like(&self, other: &Self) -> bool {
        let (own, was) = (&self.written, &other.written);
        match (&self.resolution, &other.resolution) {
            (Some(now), Some(then)) => match (&now.service, &then.service) {
                (None, None) if own.name.is_none() => own.place == was.place && was.name.is_none(),
                (None, None) => own.port == was.port && own.name == was.name,
                (now, then) => now == then,
            },
            (None, None) if own.place == was.place => {
                own.place != ServerPlace::Nowhere || (&own.name, own.port) == (&was.name, was.port)
            }
            // What name servers have said of it lately, and what the system says now; or the file has
            // followed the operator.
            _ => self.addr.read().place == other.addr.read().place,
        }
    }

    /// It is where the same server of another generation is, and goes with it when an operator sends that
    /// elsewhere.
    fn share_site(&mut self, was: &Self) {
        let resolves = self.resolution.is_some() || was.resolution.is_some();
        if resolves || self.stays.is_some() || self.written.place != was.written.place {
            return;
        }
        self.addr = was.addr.clone();
        for check in [&mut self.check, &mut self.agent].into_iter().flatten() {
            if let Some(follows) = &mut check.follows {
                follows.addr = was.addr.clone();
            }
        }
    }

    /// Where it is to go along with the same server of the generation that serves: only that one hears what
    /// name servers say.
    pub(crate) fn goes_along(&self, serving: &Self) -> Option<Whereabouts> {
        (self.resolution.is_some() && serving.resolution.is_some()).then(|| serving.addr.read())
    }

    /// It is there now.
    pub(crate) fn go_along(&self, known: &Whereabouts) {
        self.addr.change(|own| own.clone_from(known));
    }

    /// Goes on where another one is whose address was resolved: answers will tell whether that is right.
    fn follow(&self, was: &Self) -> bool {
        let known = was.addr.read();
        let moves =
            self.resolution.is_some() && was.resolution.is_some() && (known.ip().is_some() || known.renamed);
        if moves {
            self.addr.change(|own| *own = known);
        }
        moves
    }
}
