//! What expressions ask the proxy: numbers of proxies and servers, users, names.

use super::local::Local;
use manylane_balance::Index;
use manylane_expr::{Host, Number, ProxyId, ServerId, UserlistId, Value};
use manylane_plan::generation::{Backend, Generation};
use std::net::IpAddr;

/// Numbers that only the proxy knows.
impl Host for Local {
    fn number(&self, which: Number) -> Option<i64> {
        let generation = &*self.generation;
        let backend = |id: ProxyId| generation.backends.get(id.0 as usize);
        let frontend = |id: ProxyId| generation.frontends.get(id.0 as usize);
        let server = |id: ServerId| {
            let backend = generation
                .backends
                .iter()
                .find(|backend| backend.servers.iter().any(|server| server.number == id.0 as usize))?;
            let server = backend.servers.iter().find(|server| server.number == id.0 as usize)?;
            Some((backend, server, backend.balancer.servers().index(server.index)?))
        };
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        // A server without a limit makes the sum `None`: unlimited.
        let room = |most: u32, used: u64| (most != 0).then(|| (i64::from(most) - number(used)).max(0));
        let free = |backend: &Backend| -> Option<i64> {
            let bound = |index: Index| backend.balancer.servers()[index].state().maxconn();
            backend.balancer.serving().map(|index| room(bound(index), backend.balancer.load(index))).sum()
        };
        let slots = |backend: &Backend| -> Option<i64> {
            let balancer = &backend.balancer;
            let own =
                backend.listed().filter_map(|server| Some((server, balancer.servers().index(server.index)?)));
            let there = own.filter(|(_, index)| balancer.servers()[*index].state().serves_its_own());
            there
                .map(|(server, index)| {
                    let waiting = u64::from(balancer.waiting(index));
                    let slots = room(
                        balancer.servers()[index].state().maxconn(),
                        balancer.load(index).saturating_sub(waiting),
                    )?;
                    Some(slots + room(server.maxqueue, waiting)?)
                })
                .sum()
        };
        match which {
            Number::BackConn(id) => backend(id).map(|backend| number(current_of(backend))),
            Number::BackConnFree(id) => backend(id).map(|backend| free(backend).unwrap_or(-1)),
            Number::ConnSlots(id) => backend(id).map(|backend| slots(backend).unwrap_or(-1)),
            Number::FrontConn(id) => frontend(id).map(|frontend| {
                let begun = frontend.counts.read_cheap_one(|counts| &counts.connections);
                let ended = frontend.counts.read_cheap_one(|counts| &counts.connections_ended);
                number(begun.saturating_sub(ended))
            }),
            Number::NbSrv(id) => backend(id).map(|backend| backend.balancer.serving().count() as i64),
            Number::Queue(id) => backend(id).map(|backend| {
                let servers = backend.balancer.servers();
                let own: u64 = backend
                    .servers
                    .iter()
                    .filter_map(|server| servers.index(server.index))
                    .map(|index| u64::from(backend.balancer.waiting(index)))
                    .sum();
                number(own + backend.balancer.waiting_for_any())
            }),
            Number::SrvConn(id) => server(id).map(|(backend, _, index)| number(backend.balancer.load(index))),
            Number::SrvConnFree(id) => server(id).map(|(backend, server, index)| match server.maxconn {
                0 => -1,
                most => (i64::from(most) - number(backend.balancer.load(index))).max(0),
            }),
            Number::SrvIsUp(id) => server(id)
                .map(|(backend, _, index)| i64::from(backend.balancer.servers()[index].state().is_usable())),
            Number::SrvQueue(id) => {
                server(id).map(|(backend, _, index)| backend.balancer.waiting(index).into())
            }
            Number::SrvIweight(id) => server(id).map(|(_, server, _)| server.weight.into()),
            Number::SrvUweight(id) | Number::SrvWeight(id) => server(id)
                .map(|(backend, _, index)| backend.balancer.servers()[index].state().weight().into()),
            Number::Stopping => Some(i64::from(self.stopping.has_happened())),
            Number::Uptime => Some(number(manylane_plan::clock::uptime().as_secs())),
            Number::Thread => Some(self.here().lane().index() as i64),
            // Rounded up, as in HAProxy; without servers the waiting requests count twice.
            Number::AvgQueue(id) => {
                let (waiting, servers) = (self.number(Number::Queue(id))?, self.number(Number::NbSrv(id))?);
                Some(if servers > 0 { (waiting + servers - 1) / servers } else { 2 * waiting })
            }
            Number::BackSessRate(id) => {
                backend(id).map(|backend| number(backend.counts.rate(0, self.here().now())))
            }
            Number::FrontSessRate(id) => {
                frontend(id).map(|frontend| number(frontend.counts.rate(0, self.here().now())))
            }
            Number::FrontReqRate(id) => {
                frontend(id).map(|frontend| number(frontend.counts.rate(1, self.here().now())))
            }
            Number::SrvSessRate(id) => {
                server(id).map(|(_, server, _)| number(server.counts.rate(0, self.here().now())))
            }
            Number::ListenerConn(id, listener) => {
                let counts = &frontend(id)?.listeners.get(listener as usize)?.counts;
                let begun = counts.read_cheap_one(|counts| &counts.connections);
                Some(number(begun.saturating_sub(counts.read_cheap_one(|counts| &counts.connections_ended))))
            }
            Number::LogLines(id) => {
                frontend(id).map(|frontend| number(frontend.counts.read_cheap_one(|counts| &counts.lines)))
            }
            Number::ProcessConn => (0..generation.frontends.len())
                .map(|id| self.number(Number::FrontConn(ProxyId(id as u32))))
                .sum(),
        }
    }

    fn backend(&self, name: &[u8]) -> Option<ProxyId> {
        backend_named(&self.generation, name).map(|number| ProxyId(number as u32))
    }

    fn server(&self, backend: ProxyId, name: &[u8]) -> Option<ServerId> {
        let backend = self.generation.backends.get(backend.0 as usize)?;
        let server = backend.listed().find(|server| server.name.as_bytes() == name)?;
        Some(ServerId(server.number as u32))
    }

    fn authenticate(&self, list: UserlistId, user: &[u8], password: &[u8]) -> bool {
        let number = list.0 as usize;
        let known = || self.passwords.known(number, user, password);
        self.generation.userlists.get(number).is_some_and(|list| list.knows(user, password, known))
    }

    fn group(&self, list: UserlistId, user: &[u8], number: usize) -> Option<&[u8]> {
        self.generation.userlists.get(list.0 as usize)?.group(user, number)
    }

    fn is_local(&self, address: IpAddr) -> bool {
        manylane_net::is_local(address)
    }

    fn hostname(&self) -> &[u8] {
        self.generation.logs.hostname.as_bytes()
    }

    fn verify_error(&self, code: i64) -> Option<&'static str> {
        manylane_tls::verify_error(code)
    }

    fn debug(&self, _: &[u8], _: &[u8], _: Option<Value<'_>>) {}
}

/// Returns the number of streams of a backend.
pub fn current_of(backend: &Backend) -> u64 {
    let begun = backend.counts.read_cheap_one(|counts| &counts.streams);
    begun.saturating_sub(backend.counts.read_cheap_one(|counts| &counts.streams_ended))
}

/// Returns the number of the backend with this name.
pub fn backend_named(generation: &Generation, name: &[u8]) -> Option<usize> {
    generation.backends.iter().position(|backend| backend.name.as_bytes() == name)
}
