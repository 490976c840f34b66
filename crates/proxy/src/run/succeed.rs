//! From one generation to the next, inside the process.
//!
//! # Protocol
//! 1. The lanes have their side of the new generation, and accept for it, before the old one
//!    [retires](Local::retire) anywhere. Both accept from the same sockets meanwhile.
//! 2. A lane of the old one accepts no more, then. Checks that both have go on for the new one, others end.
//!    What is idle goes over: connections to servers that are as they were, also those that streams of the
//!    old one leave later, and clients between two requests, if the new one has their frontend and listener.
//! 3. What is at work ends where it began. A client whose session has what only the old generation
//!    understands, variables of rules or a connection to a server of its own, is told with its next response
//!    that the connection ends.
//! 4. The old side is removed from its lanes when on each of them nothing accepts for it any more. A
//!    connection that is on its way from one to another at that moment begins with the new generation. The
//!    old one goes with its last session.

use super::{ConnGuard, Local, WaiterSlot};
use crate::generation::{Frontend, Listener};
use std::rc::Rc;

/// Where a client of a generation that was replaced goes on.
pub(crate) struct Successor {
    local: Rc<Local>,
    frontend: usize,
    listener: usize,
}

impl Local {
    /// Another generation serves: idle connections to servers and clients go there, and nothing new comes
    /// here.
    pub fn retire(&self) {
        if let Some(next) = self.successor() {
            next.apply();
            self.pass_idle(&next);
            self.pass_shared(&next);
        }
        self.stop();
    }

    /// Where clients of that listener go on, if this generation was replaced.
    pub(crate) fn successor_at(&self, frontend: &Frontend, listener: &Listener) -> Option<Successor> {
        if !self.stopping.has_happened() {
            return None;
        }
        Successor::of(self.successor()?, frontend, listener)
    }

    /// Where connections of that listener begin, by the numbers.
    pub(super) fn successor_or_self(
        self: &Rc<Self>,
        frontend: usize,
        listener: usize,
    ) -> (Rc<Self>, usize, usize) {
        let own = &self.generation.frontends[frontend];
        match self.successor_at(own, &own.listeners[listener]) {
            Some(Successor { local, frontend, listener }) => (local, frontend, listener),
            None => (self.clone(), frontend, listener),
        }
    }

    /// What the calling lane has of the generation that accepted a connection, or of the one that replaced
    /// it.
    pub(super) fn for_guard(guard: &mut ConnGuard) -> Option<Rc<Self>> {
        if let Some(local) = Self::of(&guard.generation) {
            return Some(local);
        }
        let frontend = &guard.generation.frontends[guard.frontend];
        let Successor { local, frontend, listener } =
            Successor::of(Self::newest()?, frontend, &frontend.listeners[guard.listener])?;
        guard.follow(&local.generation, frontend, listener);
        Some(local)
    }
}

impl Successor {
    fn of(local: Rc<Local>, frontend: &Frontend, listener: &Listener) -> Option<Self> {
        let successor = local
            .generation
            .frontend_named(&frontend.name)
            .filter(|successor| successor.mode == frontend.mode)?;
        let (frontend, listener) = (successor.number, successor.listener_like(listener)?.index);
        Some(Self { local, frontend, listener })
    }

    /// A session that rests goes on there.
    pub(crate) fn take(self, local: &mut Rc<Local>, guard: &mut ConnGuard, place: &mut WaiterSlot) {
        let Self { local: next, frontend, listener } = self;
        next.begun();
        guard.follow(&next.generation, frontend, listener);
        local.stopping.leave(place);
        std::mem::replace(local, next).ended();
    }
}
