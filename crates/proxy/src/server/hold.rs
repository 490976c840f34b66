//! A stream's place on a server.

use crate::generation::{Backend, Server};
use crate::run::Local;
use manylane_balance::{Index, Input, Key, NoPick};
use std::rc::Rc;

/// A stream that a server serves, as long as this is there.
#[derive(Debug)]
pub(crate) struct Hold {
    local: Rc<Local>,
    backend: usize,
    index: Index,
}

impl Hold {
    /// On the server that the backend's algorithm chooses.
    pub(crate) fn choose(
        local: &Rc<Local>,
        backend: &Backend,
        key: Key<'_>,
        avoid: Option<Index>,
    ) -> Result<Self, NoPick> {
        let input = Input { now: local.here().now(), key, avoid };
        let reader = local.reader();
        let index = backend.balancer.pick(&reader, &input)?;
        drop(reader);
        let hold = Self::on(local, backend, index).ok_or(NoPick::AllFull)?;
        hold.server().counts.own().chosen.add(1);
        Ok(hold)
    }

    /// On this one; none if it is full.
    pub(crate) fn on(local: &Rc<Local>, backend: &Backend, index: Index) -> Option<Self> {
        backend.balancer.take(&local.reader(), index).ok()?;
        let hold = Self { local: local.clone(), backend: backend.number, index };
        hold.server().counts.own().streams.add(1);
        Some(hold)
    }

    pub(crate) fn index(&self) -> Index {
        self.index
    }

    fn backend(&self) -> &Backend {
        &self.local.generation.backends[self.backend]
    }

    pub(crate) fn server(&self) -> &Server {
        &self.backend().servers[self.index.get()]
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.server().counts.own().streams_ended.add(1);
        self.backend().balancer.release(&self.local.reader(), self.index);
    }
}
