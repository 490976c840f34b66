//! `track`: servers that copy the state of other servers.
//!
//! # Protocol
//! 1. The relations are fixed when the generation is built: a chain ends at a server with checks and has no
//!    loop.
//! 2. Code that changes a server copies the state to the servers that track it, reads the state again, and
//!    repeats this if it has changed. So the last of two concurrent changes wins on all of them, without a
//!    lock over several servers.
//! 3. A tracking server copies the operational state of the server that it names, and inherits the
//!    administrative state of that server in addition to its own. Requests read only the server's own word.

use super::refuse::Refuse;
use super::{Backend, Generation, Server};
use manylane_balance::{Availability, Index, Operation};
use manylane_check::HealthState;
use manylane_config::lex::Word;
use manylane_config::tree::{Config, Proxy};
use manylane_sched::Time;
use manylane_sync::{Arc, LockClass, Mutex};
use std::collections::HashMap;

/// A server, by the number of its backend and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerNumber {
    /// Number of the backend.
    pub backend: usize,
    /// Number in the backend.
    pub server: usize,
}

static FOLLOWERS: LockClass = LockClass::new("tracking servers", LockClass::LEAF);

/// Servers that track a server; an added server may join them. Read when the server changes.
#[derive(Debug)]
pub struct TrackingServers(Mutex<Vec<ServerNumber>>);

impl Default for TrackingServers {
    fn default() -> Self {
        Self(Mutex::new(&FOLLOWERS, Vec::new()))
    }
}

impl TrackingServers {
    /// Returns the current tracking servers.
    pub fn all(&self) -> Vec<ServerNumber> {
        self.0.lock().clone()
    }

    pub(super) fn add(&self, number: ServerNumber) {
        self.0.lock().push(number);
    }

    pub(super) fn remove(&self, number: ServerNumber) {
        self.0.lock().retain(|own| *own != number);
    }
}

/// Resolves `track` options, and registers the tracking servers.
pub(super) fn resolve(config: &Config, backends: &mut [Backend], refuse: &mut Refuse<'_>) {
    let numbers: std::collections::HashMap<Box<str>, usize> =
        backends.iter().map(|backend| (backend.name.clone(), backend.number)).collect();
    let is_started = |proxy: &Proxy| !proxy.settings.disabled.is_some_and(|set| set.value);
    let number_of = |proxy: &Proxy| {
        let is_backend = proxy.kind.is_backend() && is_started(proxy);
        numbers.get(proxy.name.text()?).copied().filter(|_| is_backend)
    };
    let mut tracking: Vec<(ServerNumber, &Word)> = Vec::new();
    let mut sections: HashMap<usize, &Word> = HashMap::new();
    for (proxy, number) in config.proxies.iter().filter_map(|proxy| Some((proxy, number_of(proxy)?))) {
        sections.insert(number, &proxy.name);
        for (server, line) in proxy.servers.iter().enumerate() {
            let Some(set) = &line.options.track else { continue };
            let follower = ServerNumber { backend: number, server };
            let mut wrong = |message: String| refuse.found.alert(set.value.pos(), message);
            let backend = &backends[number];
            let name = format!("server '{}/{}'", backend.name, backend.servers[server].name);
            if line.options.check.is_some_and(|set| set.value) {
                wrong(format!(
                    "'track' expects a server without checks, found 'check' of {name}: leave out one of \
                        the two"
                ));
                continue;
            }
            let (of_name, wanted) = match set.value.text().and_then(|text| text.split_once('/')) {
                Some((of, wanted)) => (Some(of), wanted),
                None => (proxy.name.text(), set.value.text().unwrap_or_default()),
            };
            let of = of_name.and_then(|of| numbers.get(of)).map(|&number| &backends[number]);
            let root = of.and_then(|of| Some((of, of.listed().find(|server| *server.name == *wanted)?)));
            let Some((of, root)) = root else {
                let written = |of: &str| {
                    let mut proxies =
                        config.proxies.iter().filter(|proxy| proxy.kind.is_backend() && proxy.name == *of);
                    proxies.any(|proxy| proxy.servers.iter().any(|server| server.name == *wanted))
                };
                // A server that the configuration does not have was reported before.
                if of_name.is_some_and(written) {
                    wrong(format!(
                        "'track' of {name} expects a server of an enabled backend, found '{}'",
                        set.value.shown()
                    ));
                }
                continue;
            };
            let tracked = ServerNumber { backend: of.number, server: root.index };
            if let Some(server) = Arc::get_mut(&mut backends[number].servers[server]) {
                server.tracks = Some(tracked); // the server is not shared yet
            }
            tracking.push((follower, &set.value));
        }
    }
    let number_of_all = tracking.len();
    for (follower, word) in tracking {
        let server = |number: ServerNumber| &backends[number.backend].servers[number.server];
        let name = format!("server '{}/{}'", backends[follower.backend].name, server(follower).name);
        let mut at = follower;
        for _ in 0..=number_of_all {
            let Some(next) = server(at).tracks else { break };
            at = next;
        }
        if server(at).tracks.is_some() {
            refuse.found.alert(
                word.pos(),
                format!(
                    "'track' of {name} expects a server with checks, found '{}', which tracks it in turn",
                    word.shown()
                ),
            );
        } else if sections
            .get(&at.backend)
            .is_some_and(|section| config.is_refused(section, "server", server(at).name.as_bytes()))
        {
            // Its options are not known.
        } else if !server(at).is_checked() {
            let root = format!("{}/{}", backends[at.backend].name, server(at).name);
            refuse.found.alert(
                word.pos(),
                format!("'track' of {name} expects a server with checks, found '{root}'; add 'check' to it"),
            );
        } else if let Some(tracked) = server(follower).tracks {
            backends[tracked.backend].servers[tracked.server].followers.add(follower);
        }
    }
}

impl Generation {
    /// Returns the server with this number.
    pub fn server(&self, number: ServerNumber) -> (&Backend, &Server) {
        let backend = &self.backends[number.backend];
        (backend, &backend.servers[number.server])
    }

    /// Returns the server with this number, if there is one: an earlier generation lacks servers that were
    /// added later.
    pub fn known(&self, number: ServerNumber) -> Option<(&Backend, &Server)> {
        let backend = self.backends.get(number.backend)?;
        Some((backend, backend.servers.get(number.server)?))
    }

    /// Returns the standing of a server; `None` if the balancer does not have it.
    pub fn standing(&self, number: ServerNumber) -> Option<Availability> {
        let (backend, server) = self.known(number)?;
        let servers = backend.balancer.servers();
        servers.index(server.index).map(|index| servers[index].state().standing())
    }

    /// Returns the end of the chain that begins at this server: the server itself if it tracks none.
    pub fn root_of(&self, number: ServerNumber) -> ServerNumber {
        let mut at = number;
        while let Some(next) = self.server(at).1.tracks {
            at = next; // rule 1
        }
        at
    }

    /// Copies states to all tracking servers without reports, before the generation serves.
    pub fn settle_followers(&self, now: Time) {
        let all = self.backends.iter().flat_map(|backend| &backend.servers);
        for root in all.filter(|server| server.tracks.is_none()) {
            let mut pending = root.followers.all();
            while let Some(number) = pending.pop() {
                let Some((backend, server)) = self.known(number) else { continue };
                let tracked = server.tracks.and_then(|tracked| self.standing(tracked));
                if let (Some(tracked), Some(index)) =
                    (tracked, backend.balancer.servers().index(server.index))
                {
                    backend.balancer.update(index, now, |standing| follow(standing, tracked));
                }
                pending.extend(server.followers.all());
            }
        }
    }
}

/// Returns the standing of a server that tracks `tracked` (rule 3).
pub fn follow(own: Availability, tracked: Availability) -> Availability {
    Availability { operation: tracked.operation, inherited: tracked.admin(), ..own }
}

/// Converts the result of checks into the balancer's type.
pub fn operation(running: HealthState) -> Operation {
    match running {
        HealthState::Up => Operation::Up,
        HealthState::Stopping => Operation::Stopping,
        HealthState::Down => Operation::Down,
    }
}

impl Backend {
    /// Returns the number of one of the backend's servers.
    pub fn number_of(&self, index: Index) -> ServerNumber {
        ServerNumber { backend: self.number, server: index.get() }
    }
}
