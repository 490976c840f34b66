//! Connections of HTTP/2 to servers. The requests of a lane share them, as many at a time as the server
//! allows.
//!
//! A connection is listed here from its start to its end under the key (`server/pool_key.rs`) of the requests
//! that it fits. A connection of a single client is driven here, too, but has no key: only the session of
//! that client finds it, by a weak handle (`http/private.rs`). A connection closes when it has had no stream
//! for `pool-purge-delay`, when descriptors are short, or when its generation stops.
//!
//! A reload passes the connection to the new generation, if that has the same server and would make the
//! connection with the same settings. Streams of the older generation continue on it, and find it there.

use super::Local;
use super::idle::pooled_with;
use crate::h2_counts::{CountedConn, judge_glitches};
use manylane_balance::{ConnSlot, IdlePools, Index};
use manylane_mux::h2::{Config, Conn, ConnTimeouts, SendError};
use manylane_net::Connection;
use manylane_plan::counts::BackendStats;
use manylane_plan::generation::Backend;
use manylane_sched::{Class, TaskKind};
use manylane_sync::Arc;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

static SERVER: TaskKind = TaskKind::new("h2 connection to a server");

/// Longest time for a server to acknowledge settings: a round trip, and time for a busy server.
pub const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections of HTTP/2 that a lane has to servers of one generation.
#[derive(Debug, Default)]
pub(crate) struct SharedConns {
    conns: RefCell<Vec<SharedConn>>,
    /// Counters by backend number.
    counts: RefCell<HashMap<usize, BackendCounters>>,
}

/// Counters of a backend. The connections of a lane share them by a reference count of the lane's own, so
/// they write no memory that other lanes read. They exist as long as one of the connections.
#[derive(Clone, Debug)]
#[expect(clippy::redundant_allocation)] // the outer reference count is the lane's own
struct BackendCounters(Rc<Arc<BackendStats>>);

impl Deref for BackendCounters {
    type Target = BackendStats;

    fn deref(&self) -> &BackendStats {
        &self.0
    }
}

#[derive(Debug)]
struct SharedConn {
    /// True if it has a slot of a server with `strict-maxconn`.
    has_slot: bool,
    backend: usize,
    index: Index,
    /// Key of the connection; `None` if it is for one client only.
    key: Option<u64>,
    settings: ConnSettings,
    conn: Conn,
    idle: Rc<IdleMark>,
}

/// Counts a connection among the idle ones of its server while it has no stream, if any client may use it.
#[derive(Debug)]
struct IdleMark {
    /// The server; `None` if the connection is for one client only.
    of: RefCell<Option<(Arc<IdlePools>, Index)>>,
    counts: Cell<bool>,
}

impl IdleMark {
    fn new(backend: &Backend, index: Index, key: Option<u64>) -> Rc<Self> {
        let of = key.map(|_| (backend.idle_pools.clone(), index));
        Rc::new(Self { of: RefCell::new(of), counts: Cell::new(false) })
    }

    fn set(&self, idle: bool) {
        if self.counts.replace(idle) != idle
            && let Some((idle_pools, index)) = &*self.of.borrow()
        {
            idle_pools.add_shared(*index, if idle { 1 } else { -1 });
        }
    }

    /// Counts for the same server in another generation from now on.
    fn pass_to(&self, backend: &Backend, index: Index) {
        let idle = self.counts.get();
        self.set(false);
        self.of.replace(Some((backend.idle_pools.clone(), index)));
        self.set(idle);
    }
}

impl Drop for IdleMark {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Returns true if a connection waits for another stream. One that has begun no stream is about to.
fn is_idle(conn: &Conn) -> bool {
    conn.open_streams() == 0 && conn.begun() > 0 && !conn.is_leaving()
}

/// Settings of a connection that its key does not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConnSettings {
    config: Config,
    timeouts: ConnTimeouts,
    /// Load of the process, in percent, above which glitches end a connection.
    kill_at_load: u64,
}

impl SharedConns {
    fn counts_of(&self, backend: &Backend) -> BackendCounters {
        let mut counts = self.counts.borrow_mut();
        let make = || BackendCounters(Rc::new(backend.counts.clone()));
        counts.entry(backend.number).or_insert_with(make).clone()
    }

    /// Removes connections that begin no more streams; each connection's task drives it to its end.
    fn forget_leaving(&self) {
        self.conns.borrow_mut().retain(|shared| !shared.conn.is_leaving());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.conns.borrow().is_empty()
    }

    /// Ends the oldest connection that has no stream, if there is one.
    pub(super) fn close_one(&self) {
        self.close_first(|_| true);
    }

    /// Ends the oldest connection to a server that has a slot and no stream. Returns whether there was one.
    /// Connections from before a reload that brought `strict-maxconn` have no slot.
    pub(super) fn close_one_of(&self, backend: &Backend, index: Index) -> bool {
        self.close_first(|shared| {
            shared.has_slot && shared.backend == backend.number && shared.index == index
        })
    }

    fn close_first(&self, wanted: impl Fn(&SharedConn) -> bool) -> bool {
        let conns = self.conns.borrow();
        let idle = conns.iter().find(|shared| wanted(shared) && is_idle(&shared.conn));
        if let Some(idle) = idle {
            idle.conn.shutdown();
        }
        idle.is_some()
    }

    /// Ends all connections once their streams have ended.
    pub(crate) fn shutdown(&self) {
        for shared in self.conns.take() {
            shared.conn.shutdown();
        }
    }
}

impl Local {
    /// Returns a connection of the key that can begin a stream and has begun at least `least` before. Shuts
    /// down connections that have served as many streams as the server's `max-reuse` allows.
    pub fn take_shared(&self, backend: &Backend, index: Index, key: u64, least: u64) -> Option<Conn> {
        if let Some((next, backend, index)) = self.keeper(backend, index) {
            return next.take_shared(&next.generation.backends[backend], index, key, least);
        }
        self.shared_conns.forget_leaving();
        let conns = self.shared_conns.conns.borrow();
        let own = conns.iter().filter(|shared| shared.backend == backend.number && shared.key == Some(key));
        // A client that reads nothing fills the windows of its streams, which together must leave a part of
        // the connection's window to others. Up to half of that window may be consumed but not announced yet.
        let mut own = own
            .filter(|shared| {
                let ConnSettings { config, .. } = shared.settings;
                let most = config.connection_window / 2 / config.stream_window.max(1);
                shared.conn.open_streams() < most.max(1) as usize
            })
            .map(|shared| &shared.conn);
        own.find(|conn| {
            let used = !backend.servers[index.get()].allows_reuse(conn.begun());
            if used {
                conn.shutdown();
            }
            !used && conn.begun() >= least && conn.can_begin()
        })
        .cloned()
    }

    /// Begins HTTP/2 on a new connection, which other requests with the key share. `slot` is freed with it.
    ///
    /// # Errors
    /// There is no memory for the connection.
    pub fn share(
        &self,
        backend: &Backend,
        index: Index,
        key: Option<u64>,
        connection: Connection,
        slot: Option<ConnSlot>,
    ) -> Result<Conn, SendError> {
        if let Some((next, backend, index)) = self.keeper(backend, index) {
            return next.share(&next.generation.backends[backend], index, key, connection, slot);
        }
        let settings = self.settings(backend, index);
        let ConnSettings { config, timeouts, kill_at_load } = settings;
        let conn = Conn::client(connection, config, self.here())?;
        let mut counted = CountedConn::begin(self.shared_conns.counts_of(backend), conn.clone());
        let (driven, process_stats) = (conn.clone(), self.generation.process_stats.clone());
        let has_slot = slot.is_some();
        let idle = IdleMark::new(backend, index, key);
        let mark = idle.clone();
        let task = async move {
            {
                let mut running = pin!(driven.run(&timeouts, |stream, _| drop(stream)));
                poll_fn(|context| {
                    judge_glitches(&driven, kill_at_load, config.glitches, || process_stats.idle_percent());
                    let polled = running.as_mut().poll(context);
                    let happened = counted.update();
                    if happened.connection_errors + happened.stream_errors > 0 {
                        Self::keep_violation(&driven, &mark);
                    }
                    mark.set(polled.is_pending() && is_idle(&driven));
                    polled
                })
                .await;
            }
            drop((counted, driven));
            Self::all().for_each(|local| local.shared_conns.forget_leaving());
            drop(slot); // after the connection has closed
        };
        self.here().spawn(&SERVER, Class::Normal, task).map_err(|_| SendError::NoMemory)?;
        let shared =
            SharedConn { has_slot, backend: backend.number, index, key, settings, conn: conn.clone(), idle };
        self.shared_conns.conns.borrow_mut().push(shared);
        Ok(conn)
    }

    /// Keeps what a server sent against the rules for `show errors`. `mark` is that of its connection.
    #[cold]
    fn keep_violation(conn: &Conn, mark: &Rc<IdleMark>) {
        let Some(violation) = conn.take_violation() else { return };
        for local in Self::all() {
            let conns = local.shared_conns.conns.borrow();
            let Some(own) = conns.iter().find(|shared| Rc::ptr_eq(&shared.idle, mark)) else { continue };
            let backend = &local.generation.backends[own.backend];
            let server = &backend.servers[own.index.get()];
            return backend.invalid.keep_frame(*violation, None, Some((server.name.clone(), server.id)));
        }
    }

    /// Returns the settings of connections to a server.
    fn settings(&self, backend: &Backend, index: Index) -> ConnSettings {
        let server = &backend.servers[index.get()];
        let purge = server.pool_purge;
        ConnSettings {
            config: self.generation.process.h2.of_server(&backend.http.response_limits),
            timeouts: ConnTimeouts {
                first: Some(purge),
                idle: Some(purge),
                write: backend.timeouts.server,
                settings: Some(SETTINGS_TIMEOUT),
                ping: server.idle_ping,
            },
            kill_at_load: self.generation.process.h2.kill_at_load,
        }
    }

    /// Passes the shared connections to another generation that has the same server.
    pub(crate) fn pass_shared(&self, next: &Self) {
        let mut left = Vec::new();
        for shared in self.shared_conns.conns.take() {
            let free = shared.key.is_some() && !shared.conn.is_leaving();
            match self.server_in(&shared, next).filter(|_| free) {
                Some((backend, index)) => {
                    shared.idle.pass_to(&next.generation.backends[backend], index);
                    let mut conns = next.shared_conns.conns.borrow_mut();
                    conns.push(SharedConn { backend, index, ..shared });
                }
                None => left.push(shared),
            }
        }
        self.shared_conns.conns.replace(left);
    }

    /// Returns the backend and the server in another generation, if its connections would have the same
    /// settings.
    fn server_in(&self, shared: &SharedConn, next: &Self) -> Option<(usize, Index)> {
        let own = &self.generation.backends[shared.backend];
        let successor = next.generation.backend_named(&own.name)?;
        let index = pooled_with(successor, &own.servers[shared.index.get()])?;
        (next.settings(successor, index) == shared.settings).then_some((successor.number, index))
    }

    /// Ends a connection whose last stream has ended, if no other request can find it (`unfindable`), if more
    /// connections are idle than the server's `pool-max-conn` allows, or if descriptors are short (rule 4 of
    /// [`idle`](super::idle)): a client may ask for many names, each with a connection of its own.
    pub fn release_shared(&self, backend: &Backend, index: Index, conn: &Conn, unfindable: bool) {
        if let Some((next, backend, index)) = self.keeper(backend, index) {
            return next.release_shared(&next.generation.backends[backend], index, conn, unfindable);
        }
        if conn.open_streams() > 0 {
            return;
        }
        let most = backend.servers[index.get()].pool_max;
        let is_idle = |shared: &&SharedConn| {
            shared.backend == backend.number && shared.index == index && shared.conn.open_streams() == 0
        };
        let idle = || self.shared_conns.conns.borrow().iter().filter(is_idle).count();
        if unfindable
            || most.is_some_and(|most| idle() > most as usize)
            || self.is_above(self.generation.process.pool_low)
        {
            conn.shutdown();
        }
    }
}
