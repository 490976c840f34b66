//! The checks of a lane, which its generations share.

use super::check_sockets::CheckSockets;
use super::event::Event;
use super::local::Local;
use manylane_balance::Index;
use manylane_plan::ConnLimit;
use manylane_plan::generation::{Backend, Generation, Server, ServerCheck};
use manylane_sync::Arc;
use std::rc::Rc;

/// Kind of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// Asks the server.
    Health,
    /// Asks the agent beside the server.
    Agent,
}

/// State that all checks of a lane share, across generations. A generation that allows another number of
/// concurrent checks begins a new one.
#[derive(Debug)]
pub struct Checks {
    /// Limit of concurrent checks.
    pub conn_limit: ConnLimit,
    /// Kept sockets of checks that only connect.
    pub sockets: CheckSockets,
    /// Happens when the checks of the lane end.
    pub over: Event,
}

impl Checks {
    pub(crate) fn new(most: u32) -> Rc<Self> {
        Rc::new(Self {
            conn_limit: ConnLimit::new(most),
            sockets: CheckSockets::default(),
            over: Event::default(),
        })
    }
}

impl Local {
    /// Returns the oldest generation's state that shares these checks and does not stop: a later generation
    /// may fail to start.
    pub fn predecessor(&self) -> Option<Rc<Self>> {
        Self::all().find(|other| {
            Rc::ptr_eq(&other.checks, &self.checks)
                && !std::ptr::eq(&**other, self)
                && !other.stopping.has_happened()
        })
    }

    /// Ends the checks of this generation. Checks that another generation has, too, continue there unaware;
    /// the others end.
    pub(crate) fn leave_checks(&self) {
        let Some(successor) = self.predecessor() else {
            self.checks.over.happen();
            return self.checks.sockets.clear();
        };
        for (_, server, kind) in checks_beside(&self.generation, Some(&successor.generation)) {
            kind.of(server).iter().for_each(|check| check.notify.notify_one());
        }
    }
}

/// Returns the checks of a generation that `other` does not have. A backend that both generations share costs
/// one comparison.
pub fn checks_beside<'a>(
    own: &'a Generation,
    other: Option<&'a Generation>,
) -> impl Iterator<Item = (&'a Backend, &'a Arc<Server>, CheckKind)> {
    let is_in = move |backend: &Arc<Backend>| {
        other.is_some_and(|other| {
            other.backends.get(backend.number).is_some_and(|other| Arc::ptr_eq(other, backend))
        })
    };
    own.backends.iter().filter(move |backend| !is_in(backend)).flat_map(move |backend| {
        let kinds = |server| [CheckKind::Health, CheckKind::Agent].map(|kind| (server, kind));
        backend
            .listed()
            .flat_map(kinds)
            .filter(|(server, kind)| kind.of(server).is_some())
            .filter(move |(server, kind)| {
                other.is_none_or(|other| find(other, &backend.name, server, *kind).is_none())
            })
            .map(move |(server, kind)| (&**backend, server, kind))
    })
}

/// Returns the backend and the server that have this check in a generation.
pub fn find(
    generation: &Generation,
    backend: &str,
    server: &Arc<Server>,
    kind: CheckKind,
) -> Option<(usize, Index)> {
    let own = generation.backend_named(backend)?;
    let servers = own.balancer.servers();
    if own.has(server) {
        return Some((own.number, servers.index(server.index)?));
    }
    let index = servers.by_name(&server.name)?;
    let (check, known) = (kind.of(&own.servers[index.get()])?, kind.of(server)?);
    Arc::ptr_eq(&check.notify, &known.notify).then_some((own.number, index))
}

impl CheckKind {
    /// Returns the server's check of this kind.
    pub fn of(self, server: &Server) -> Option<&ServerCheck> {
        if self == Self::Agent { server.agent.as_ref() } else { server.check.as_ref() }
    }
}
