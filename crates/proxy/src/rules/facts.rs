//! What expressions may look at.

use crate::generation::{Backend, Frontend, Generation, Listener, Server};
use crate::run::Local;
use crate::session::{Peers, now};
use manylane_config::tree::Mode;
use manylane_expr::{
    ClientFacts, Data, Direction, Env, Host, LogFacts, Number, ProxyFacts, ProxyId, Scratch, ServerFacts, ServerId,
    StreamFacts, UserlistId, Value, Variables,
};
use manylane_http::Head;
use std::cell::RefCell;
use std::net::IpAddr;

/// Variables of a session and of its request at work.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    session: RefCell<Variables>,
    transaction: RefCell<Variables>,
    request: RefCell<Variables>,
    response: RefCell<Variables>,
}

impl Scopes {
    /// The next request begins.
    pub(crate) fn next_request(&self) {
        self.transaction.borrow_mut().clear();
        self.request.borrow_mut().clear();
        self.response.borrow_mut().clear();
    }
}

/// Who takes part.
pub(crate) struct Facts<'a> {
    pub(crate) local: &'a Local,
    pub(crate) frontend: &'a Frontend,
    pub(crate) listener: &'a Listener,
    pub(crate) peers: Peers,
    pub(crate) first_request: bool,
    pub(crate) scopes: &'a Scopes,
}

/// When, and what is there by then.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moment<'a> {
    pub(crate) request: Option<&'a Head>,
    pub(crate) response: Option<&'a Head>,
    pub(crate) backend: Option<&'a Backend>,
    pub(crate) server: Option<&'a Server>,
    /// What is here of the request's body, or of the client's bytes.
    pub(crate) request_data: Data<'a>,
    /// What is here of the response's body, or of the server's bytes.
    pub(crate) response_data: Data<'a>,
    /// Whose bytes the rules look at, where there may be no head to tell.
    pub(crate) side: Option<Direction>,
    /// More bytes may still come and are waited for.
    pub(crate) may_grow: bool,
    /// At the end, what only log lines know.
    pub(crate) log: Option<(&'a LogFacts<'a>, &'a StreamFacts<'a>)>,
}

fn proxy<'a>(id: u32, name: &'a str, default_backend: &'a [u8]) -> ProxyFacts<'a> {
    ProxyFacts { id: id.into(), name: name.as_bytes(), default_backend }
}

fn millis(time: Option<std::time::Duration>) -> i64 {
    time.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

impl Facts<'_> {
    /// Evaluates something at a moment. What it makes of text is in the lane's scratch, and gone when this returns.
    pub(crate) fn with<R>(&self, moment: Moment<'_>, work: impl FnOnce(&Env<'_>, &mut Scratch<'_>) -> R) -> R {
        let generation = &*self.local.generation;
        let default = self.frontend.default_backend.map(|number| &generation.backends[number]);
        let client = ClientFacts {
            source: self.peers.source,
            destination: self.peers.destination,
            link_source: self.peers.link_source,
            link_destination: self.peers.link_destination,
            accepted: self.peers.accepted,
            frontend: proxy(
                self.frontend.id,
                &self.frontend.name,
                default.map_or(b"", |backend| backend.name.as_bytes()),
            ),
            listener_id: self.listener.index as i64 + 1,
            listener_name: self.listener.name.as_deref().unwrap_or_default().as_bytes(),
            http_major: i64::from(self.frontend.mode == Mode::Http),
            proxied: self.listener.accept_proxy,
            first_request: self.first_request,
            timeout: millis(self.frontend.timeouts.client),
            ..ClientFacts::default()
        };
        let backend = moment.backend;
        let server = ServerFacts {
            backend: backend.map(|backend| proxy(backend.id, &backend.name, b"")),
            server: moment.server.map(|server| (server.id.into(), server.name.as_bytes())),
            http_major: i64::from(self.frontend.mode == Mode::Http && backend.is_some()),
            timeout: backend.map_or(0, |backend| millis(backend.timeouts.server)),
            current_timeout: backend.map_or(0, |backend| millis(backend.timeouts.server)),
            tunnel: backend.map_or(0, |backend| millis(backend.timeouts.tunnel)),
            current_tunnel: backend.map_or(0, |backend| millis(backend.timeouts.tunnel)),
            ..ServerFacts::default()
        };
        let nothing = StreamFacts::default();
        let (log, stream) = moment.log.unzip();
        let reader = self.local.reader();
        let env = Env {
            now: now(),
            zone: &generation.zone,
            direction: match moment.side {
                Some(direction) => direction,
                None if moment.response.is_some() || moment.log.is_some() => Direction::Response,
                None => Direction::Request,
            },
            is_final: !moment.may_grow,
            request: moment.request,
            response: moment.response,
            request_data: moment.request_data,
            response_data: moment.response_data,
            client: &client,
            server: &server,
            stream: stream.unwrap_or(&nothing),
            log,
            variables: manylane_expr::Scopes {
                process: Some(&generation.expressions.process),
                session: Some(&self.scopes.session),
                transaction: Some(&self.scopes.transaction),
                request: Some(&self.scopes.request),
                response: Some(&self.scopes.response),
                check: None,
            },
            reader: &reader,
            host: self.local,
        };
        let mut memory = self.local.memory.borrow_mut();
        work(&env, &mut memory.scratch())
    }
}

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
        let slots = |backend: &Backend| -> i64 {
            let servers = backend.balancer.servers();
            let free = |server: &Server| -> i64 {
                let Some(index) = servers.index(server.index).filter(|index| servers[*index].state().is_usable())
                else {
                    return 0;
                };
                match server.maxconn {
                    0 => i64::from(i32::MAX), // no bound
                    most => i64::from(most) - number(backend.balancer.load(index)),
                }
            };
            backend.servers.iter().map(free).sum::<i64>().clamp(0, i64::from(i32::MAX))
        };
        match which {
            Number::BackConn(id) => backend(id).map(|backend| number(current_of(backend))),
            Number::BackConnFree(id) | Number::ConnSlots(id) => backend(id).map(slots),
            Number::FrontConn(id) => frontend(id).map(|frontend| {
                let begun = frontend.counts.read_cheap_one(|counts| &counts.connections);
                let ended = frontend.counts.read_cheap_one(|counts| &counts.connections_ended);
                number(begun.saturating_sub(ended))
            }),
            Number::NbSrv(id) => backend(id).map(|backend| backend.balancer.servers().usable() as i64),
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
            Number::SrvQueue(id) => server(id).map(|(backend, _, index)| backend.balancer.waiting(index).into()),
            Number::SrvIweight(id) => server(id).map(|(_, server, _)| server.weight.into()),
            Number::SrvUweight(id) | Number::SrvWeight(id) => {
                server(id).map(|(backend, _, index)| backend.balancer.servers()[index].state().weight().into())
            }
            Number::Stopping => Some(i64::from(self.stopping.has_happened())),
            Number::Thread => Some(self.here().lane().index() as i64),
            // Rates and averages are not kept yet.
            Number::AvgQueue(_)
            | Number::BackSessRate(_)
            | Number::FrontReqRate(_)
            | Number::FrontSessRate(_)
            | Number::SrvSessRate(_)
            | Number::ListenerConn => None,
        }
    }

    fn backend(&self, name: &[u8]) -> Option<ProxyId> {
        backend_named(&self.generation, name).map(|number| ProxyId(number as u32))
    }

    fn server(&self, backend: ProxyId, name: &[u8]) -> Option<ServerId> {
        let backend = self.generation.backends.get(backend.0 as usize)?;
        let server = backend.servers.iter().find(|server| server.name.as_bytes() == name)?;
        Some(ServerId(server.number as u32))
    }

    fn authenticate(&self, _: UserlistId, _: &[u8], _: &[u8], _: Option<&[u8]>) -> bool {
        false // user lists are refused when the configuration is checked
    }

    fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback()
    }

    fn hostname(&self) -> &[u8] {
        self.generation.logs.hostname.as_bytes()
    }

    fn debug(&self, _: &[u8], _: &[u8], _: Option<Value<'_>>) {}
}

fn current_of(backend: &Backend) -> u64 {
    let begun = backend.counts.read_cheap_one(|counts| &counts.streams);
    begun.saturating_sub(backend.counts.read_cheap_one(|counts| &counts.streams_ended))
}

/// The number of the backend with this name.
pub(crate) fn backend_named(generation: &Generation, name: &[u8]) -> Option<usize> {
    generation.backends.iter().position(|backend| backend.name.as_bytes() == name)
}
