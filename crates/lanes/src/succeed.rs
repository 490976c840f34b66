//! Succession of generations inside the process.
//!
//! # Protocol
//! 1. All lanes install their state of the new generation and accept for it before the old generation
//!    [retires](Local::retire) on any lane. Until then both accept from the same sockets.
//! 2. When the old generation retires on a lane, it accepts no more. Checks that both generations have
//!    continue for the new one; the others end. Idle connections to unchanged servers move to the new
//!    generation, also those that streams of the old one release later. So do clients between two requests,
//!    if the new one has their frontend and listener.
//! 3. Running streams end in the old generation. If a client's session has state that only the old generation
//!    understands (variables of rules, or a private server connection), the next response announces the end
//!    of the connection.
//! 4. The old state is removed from the lanes when no lane accepts for it any more. A connection that is on
//!    its way between lanes then begins with the new generation. The old generation is freed with its last
//!    session.

use super::{ConnGuard, Local, WaiterSlot};
use manylane_plan::generation::{Frontend, Listener};
use std::rc::Rc;

/// The state of the new generation on which a client of a replaced generation continues.
pub struct Successor {
    local: Rc<Local>,
    frontend: usize,
    listener: usize,
}

impl Local {
    /// Ends this generation on the lane in favour of the newest one, which gets its idle server connections
    /// and its idle clients.
    pub fn retire(&self) {
        if let Some(next) = self.successor() {
            next.apply();
            self.pass_idle(&next);
            self.pass_shared(&next);
        }
        self.stop();
    }

    /// Returns where clients of a listener continue, if this generation was replaced.
    pub fn successor_at(&self, frontend: &Frontend, listener: &Listener) -> Option<Successor> {
        if !self.stopping.has_happened() {
            return None;
        }
        Successor::of(self.successor()?, frontend, listener)
    }

    /// Returns the state, the frontend and the listener with which connections of a listener begin.
    pub fn successor_or_self(self: &Rc<Self>, frontend: usize, listener: usize) -> (Rc<Self>, usize, usize) {
        let own = &self.generation.frontends[frontend];
        match self.successor_at(own, &own.listeners[listener]) {
            Some(Successor { local, frontend, listener }) => (local, frontend, listener),
            None => (self.clone(), frontend, listener),
        }
    }

    /// Returns the calling lane's state of the generation that accepted a connection, or of the one that
    /// replaced it.
    pub fn for_guard(guard: &mut ConnGuard) -> Option<Rc<Self>> {
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

    /// Moves an idle session to the successor.
    pub fn take(self, local: &mut Rc<Local>, guard: &mut ConnGuard, slot: &mut WaiterSlot) {
        let Self { local: next, frontend, listener } = self;
        next.begun();
        guard.follow(&next.generation, frontend, listener);
        local.stopping.leave(slot);
        std::mem::replace(local, next).ended();
    }
}
