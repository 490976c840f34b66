//! Connections of HTTP/2 to servers: the requests of a lane share them, as many at a time as the server
//! allows.
//!
//! A connection lies here from its begin to its end under the [key](Local::key) that says what it is good
//! for. One that is for a single client is driven here, too, but nobody else finds it. The connection closes
//! when it had no stream for `pool-purge-delay`, or when the lane stops.

use super::Local;
use crate::counts::BackendStats;
use crate::generation::{Backend, Server};
use crate::h2_counts::{CountedConn, judge_glitches};
use manylane_balance::Index;
use manylane_mux::h2::{Conn, ConnTimeouts, SendError};
use manylane_net::Connection;
use manylane_sched::{Class, TaskKind};
use manylane_sync::Arc;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

static SERVER: TaskKind = TaskKind::new("h2 connection to a server");

/// How long a server may take to acknowledge settings: a round trip, and time for one that is busy.
pub(crate) const SETTINGS_PATIENCE: Duration = Duration::from_secs(10);

/// A lane's connections of HTTP/2 to servers of one generation.
#[derive(Debug, Default)]
pub(crate) struct SharedConns {
    conns: RefCell<Vec<SharedConn>>,
    /// By the number of the backend.
    counts: RefCell<HashMap<usize, BackendCounters>>,
}

/// The counters of a backend, which a lane's connections share without writing to what other lanes read, and
/// which are there as long as a connection is.
#[derive(Clone, Debug)]
#[expect(clippy::redundant_allocation)] // the lane counts who holds it in a word of its own
struct BackendCounters(Rc<Arc<BackendStats>>);

impl Deref for BackendCounters {
    type Target = BackendStats;

    fn deref(&self) -> &BackendStats {
        &self.0
    }
}

#[derive(Debug)]
struct SharedConn {
    backend: usize,
    index: Index,
    /// None: for one client alone.
    key: Option<u64>,
    conn: Conn,
}

impl SharedConns {
    fn counts_of(&self, backend: &Backend) -> BackendCounters {
        let mut counts = self.counts.borrow_mut();
        let make = || BackendCounters(Rc::new(backend.counts.clone()));
        counts.entry(backend.number).or_insert_with(make).clone()
    }

    /// Those that begin no streams any more are forgotten; their own task drives them to their end.
    fn forget_leaving(&self) {
        self.conns.borrow_mut().retain(|shared| !shared.conn.is_leaving());
    }

    /// All end when their streams have.
    pub(super) fn shutdown(&self) {
        for shared in self.conns.take() {
            shared.conn.shutdown();
        }
    }
}

impl Local {
    /// A connection of the key that can begin a stream, and has begun `least` before. One that has served as
    /// many as its server's `max-reuse` allows ends behind them.
    pub(crate) fn take_shared(
        &self,
        backend: &Backend,
        server: &Server,
        key: u64,
        least: u64,
    ) -> Option<Conn> {
        self.shared_conns.forget_leaving();
        let conns = self.shared_conns.conns.borrow();
        let own = conns.iter().filter(|shared| shared.backend == backend.number && shared.key == Some(key));
        let mut own = own.map(|shared| &shared.conn);
        own.find(|conn| {
            let used = server.max_reuse.is_some_and(|most| conn.begun() > u64::from(most));
            if used {
                conn.shutdown();
            }
            !used && conn.begun() >= least && conn.can_begin()
        })
        .cloned()
    }

    /// Speaks HTTP/2 over a new connection, which others of the key use, too.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn share(
        self: &Rc<Self>,
        backend: &Backend,
        index: Index,
        key: Option<u64>,
        connection: Connection,
    ) -> Result<Conn, SendError> {
        let config = self.generation.process.h2.of_server(&backend.http.response_limits);
        let conn = Conn::client(connection, config, self.here())?;
        let mut counted = CountedConn::begin(self.shared_conns.counts_of(backend), conn.clone());
        let kill_at_load = self.generation.process.h2.kill_at_load;
        let purge = backend.servers[index.get()].pool_purge;
        let timeouts = ConnTimeouts {
            first: Some(purge),
            idle: Some(purge),
            write: backend.timeouts.server,
            settings: Some(SETTINGS_PATIENCE),
        };
        let (driven, local) = (conn.clone(), Rc::downgrade(self));
        let task = async move {
            {
                let mut running = pin!(driven.run(&timeouts, |stream, _| drop(stream)));
                poll_fn(|context| {
                    let idle =
                        || local.upgrade().map_or(100, |local| local.generation.process_stats.idle_percent());
                    judge_glitches(&driven, kill_at_load, config.glitches, idle);
                    let polled = running.as_mut().poll(context);
                    counted.look();
                    polled
                })
                .await;
            }
            drop(counted);
            if let Some(local) = local.upgrade() {
                local.shared_conns.forget_leaving();
            }
        };
        self.here().spawn(&SERVER, Class::Normal, task).map_err(|_| SendError::NoMemory)?;
        let shared = SharedConn { backend: backend.number, index, key, conn: conn.clone() };
        self.shared_conns.conns.borrow_mut().push(shared);
        Ok(conn)
    }

    /// A stream of the connection has ended. Where it was the last, and more are idle than the server's
    /// `pool-max-conn` allows, or the connection is one client's alone, it ends.
    pub(crate) fn release_shared(&self, backend: &Backend, index: Index, conn: &Conn, alone: bool) {
        if conn.open_streams() > 0 {
            return;
        }
        let most = backend.servers[index.get()].pool_max;
        let is_idle = |shared: &&SharedConn| {
            shared.backend == backend.number && shared.index == index && shared.conn.open_streams() == 0
        };
        let idle = || self.shared_conns.conns.borrow().iter().filter(is_idle).count();
        if alone || most.is_some_and(|most| idle() > most as usize) {
            conn.shutdown();
        }
    }
}
