//! Idle connections to servers: kept in the lane's idle pools, and taken from there or from a lane that has
//! one.
//!
//! # Protocol
//! 1. The pool keeps a connection under a key (`server/pool_key.rs`), which covers everything that makes it
//!    fit a request. A connection that fits only one client has no key and stays with that client's session.
//! 2. A lane asks another lane only if its own idle pool has no connection of the key. It asks one lane at a
//!    time, which the shared idle pools name. That lane takes a connection from its own pool, detaches the
//!    descriptor and hands it over (`balance::oneshot`): no lane touches the pool of another.
//! 3. The asking lane waits for [`TIMEOUT`], then connects; it waits longer where it has no slot to connect
//!    with. A connection that arrives later goes back to the pool that it came from.
//! 4. When more than `tune.pool-low-fd-ratio` of the descriptors that the process may open are in use, no
//!    connection is kept. Above `tune.pool-high-fd-ratio`, one idle connection is closed for each connection
//!    that is made. A client without a request does not count: `maxconn` reserves half of the descriptors for
//!    clients, and idle clients take none of the other half. A lane that uses less than its share of the
//!    limit reads no other lane's count; a lane that uses more reads all of them, at most once in
//!    [`READ_INTERVAL`].
//! 5. The pools of the current generation are the lane's pools. A generation that retires passes its idle
//!    connections to them, and its streams take connections from them and return them there, where both
//!    generations have the same server.
//! 6. A lane that gave away a connection of a server does not ask for one of that server until
//!    `pool-purge-delay` has passed, and connects instead. Otherwise lanes that use a server in turn would
//!    pass one connection to and fro.

use super::{Local, conn_slot};
use crate::traffic::Parties;
use manylane_balance::{ConnSlot, IdlePool, Index, Reply, oneshot};
use manylane_net::{Connection, UseSource};
use manylane_plan::generation::{Backend, Generation, Server};
use manylane_sched::{Class, Remote, TaskKind};
use manylane_stats::{CounterGroup, counters};
use manylane_sync::Arc;
use std::cell::RefCell;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::{Context, Waker};
use std::time::Duration;

static TAKEOVER: TaskKind = TaskKind::new("takeover");

/// Longest wait for another lane's reply where this lane can connect instead. A running lane replies within
/// its round; connecting costs about as much as waking a lane.
const TIMEOUT: Duration = Duration::from_millis(5);

/// Shortest time between two readings of the other lanes' descriptor counts.
const READ_INTERVAL: Duration = Duration::from_millis(1);

counters! {
    /// Clients without a request, of all generations.
    struct IdleClients {
        began,
        ended,
    }
}

static IDLE_CLIENTS: CounterGroup<IdleClients> = CounterGroup::new();

/// Counts a client without a complete head of a request, which does not count among the descriptors in use
/// (rule 4). It stays on its lane.
#[derive(Debug)]
pub struct IdleClient(PhantomData<*const ()>);

impl IdleClient {
    /// Counts a client.
    #[inline]
    pub fn begin() -> Self {
        IDLE_CLIENTS.own().began.add(1);
        Self(PhantomData)
    }
}

impl Drop for IdleClient {
    fn drop(&mut self) {
        IDLE_CLIENTS.own().ended.add(1);
    }
}

/// A server connection that no request uses.
#[derive(Debug)]
pub struct Idle {
    /// The connection.
    pub connection: Connection,
    /// Number of requests that it has served.
    pub served: u32,
    /// Its share of the server's `maxconn`, if connections count. Freed behind the connection.
    pub slot: Option<ConnSlot>,
}

impl Idle {
    /// Returns true if the connection still works: no bytes arrived, and the server has not closed it. Asks
    /// the kernel only if the driver has seen an event, or has seen many and asks for no more.
    pub fn is_quiet(&self) -> bool {
        if !self.connection.is_readable() {
            return true;
        }
        let receiving = pin!(self.connection.recv());
        receiving.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}

impl Idle {
    /// Like [`is_quiet`](Self::is_quiet), for a connection that a request is about to use: also sees events
    /// that the driver has not seen yet. Bytes that arrived before the request would be taken for its
    /// response, and its response for that of the next client's request. Costs one system call.
    pub fn may_be_used(&self) -> bool {
        self.connection.is_silent().unwrap_or_else(|| self.is_quiet())
    }
}

/// A connection that one lane hands to another.
struct Transfer {
    fd: OwnedFd,
    served: u32,
    slot: Option<ConnSlot>,
}

/// Random hash state, so that no client can choose addresses that collide.
pub fn hasher() -> &'static RandomState {
    static HASHER: OnceLock<RandomState> = OnceLock::new();
    HASHER.get_or_init(RandomState::new)
}

impl Local {
    /// Returns the key of connections that any client may use: the number of the server's pool as long as the
    /// server has its first address, else a hash with the address.
    #[inline]
    pub fn key_for_all(pool: u64, addr: u32) -> u64 {
        match (pool, addr) {
            (pool, 0) => pool,
            moved => hasher().hash_one(moved) | 1 << 63,
        }
    }

    /// Hashes a name that keeps idle connections apart.
    pub fn hash(name: &[u8]) -> u64 {
        hasher().hash_one(name)
    }

    /// Returns the key of connections to `server` that checks share with requests, if there is one.
    fn own_key(server: &Server) -> Option<u64> {
        let present = server.connect.source.as_ref().and_then(|source| source.present.as_ref());
        // With `strict-maxconn` a check's connection would count.
        let plain = server.header.is_none()
            && !server.stands_in
            && !server.strict_maxconn
            && server.pool_name.is_none()
            && server.tls.is_none();
        let here =
            !matches!(present, Some(UseSource::Client | UseSource::ClientIp)) && server.addr.word() == 0;
        (plain && here).then_some(server.pool)
    }

    /// Takes an idle connection for a check. Asks no other lane, since a check is no reason to wake one.
    pub fn take_own(&self, backend: &Backend, index: Index) -> Option<Idle> {
        let key = Self::own_key(&backend.servers[index.get()])?;
        self.take_kept(backend, index, key, 0)
    }

    /// Keeps the connection of a check for requests and for the next check.
    pub fn keep_own(&self, backend: &Backend, index: Index, idle: Idle) {
        if let Some(key) = Self::own_key(&backend.servers[index.get()]) {
            self.keep(backend, index, key, idle);
        }
    }

    /// Returns the successor that keeps connections to this server once this generation has stopped, with the
    /// backend and the server there: the lane's pools are those of the current generation.
    pub(crate) fn keeper(&self, backend: &Backend, index: Index) -> Option<(Rc<Self>, usize, Index)> {
        if !self.stopping.has_happened() {
            return None;
        }
        let next = self.successor()?;
        let own = next.generation.backend_named(&backend.name)?;
        let (number, index) = (own.number, pooled_with(own, &backend.servers[index.get()])?);
        Some((next, number, index))
    }

    /// Keeps a connection if there is room; otherwise closes it.
    pub fn keep(&self, backend: &Backend, index: Index, key: u64, idle: Idle) {
        if let Some((next, backend, index)) = self.keeper(backend, index) {
            return next.keep(&next.generation.backends[backend], index, key, idle);
        }
        if self.is_above(self.generation.process.pool_low) || self.stopping.has_happened() {
            return;
        }
        let now = self.here().now();
        if self.idle_pools[backend.number].borrow_mut().put(index, key, idle, now).is_ok() {
            self.idle.set(self.idle.get() + 1);
        }
    }

    /// Takes the most recent connection of the key that still works. If that has served fewer than `least`
    /// requests, returns `None`.
    pub fn take_kept(&self, backend: &Backend, index: Index, key: u64, least: u32) -> Option<Idle> {
        if let Some((next, backend, index)) = self.keeper(backend, index) {
            return next.take_kept(&next.generation.backends[backend], index, key, least);
        }
        let mut idle_pool = self.idle_pools[backend.number].borrow_mut();
        loop {
            let idle = idle_pool.take(key)?;
            // Checked only once: the check consumes the event.
            let good = idle.may_be_used();
            if good && idle.served < least {
                let _ = idle_pool.put(index, key, idle, self.here().now()); // its own place is free
                return None;
            }
            self.idle.set(self.idle.get() - 1);
            if good {
                return Some(idle);
            }
        }
    }

    /// Takes a connection from another lane that has one (rule 2), unless this lane gave one away lately
    /// (rule 6).
    pub async fn take_over(&self, backend: &Backend, index: Index, key: u64, least: u32) -> Option<Idle> {
        let next = self.keeper(backend, index);
        let (local, backend, index) = match &next {
            Some((next, backend, index)) => (&**next, &*next.generation.backends[*backend], *index),
            None => (self, backend, index),
        };
        if !local.generation.process.idle_shared {
            return None;
        }
        let here = self.here();
        if local.idle_pools[backend.number].borrow().has_given(index, here.now()) {
            return None;
        }
        let start = here.lane().index().wrapping_add(self.transfer_requests.get());
        let lane = backend.idle_pools.ask(index, start)?;
        self.transfer_requests.set(self.transfer_requests.get().wrapping_add(1));
        let (mut request, reply) = oneshot();
        let (generation, number) = (local.generation.clone(), backend.number);
        let give = move |_| give(generation, number, index, key, least, reply);
        Remote::new(lane).spawn_with(&TAKEOVER, Class::Urgent, give).ok()?;
        let answer = poll_fn(|context| request.poll_task(context));
        let server = &*backend.servers[index.get()];
        // The reply may hold the last slot. Without it the request cannot connect, so it waits longer.
        let is_full =
            server.strict_maxconn && backend.balancer.servers()[index].state().take_slot().is_none();
        let most = if is_full { conn_slot::TIMEOUT } else { TIMEOUT };
        let Transfer { fd, served, slot } = here.timeout(most, answer).await.ok()??;
        let stream = self.io.stream(fd).ok()?;
        let idle = Idle { connection: Connection::Socket(stream), served, slot };
        if !idle.may_be_used() {
            return None; // the server closed it meanwhile, or sent something
        }
        Parties { server: Some(server), ..Parties::new(&self.generation) }.connection_taken_over();
        Some(idle)
    }

    /// Closes an idle connection before a new one is made, if descriptors are short (rule 4): one of this
    /// backend if there is one, else one of another.
    pub fn make_room(&self, backend: &Backend) {
        let any = self.idle.get() > 0 || !self.shared_conns.is_empty();
        if !any || !self.is_above(self.generation.process.pool_high) {
            return;
        }
        let close_one = |idle_pool: &RefCell<IdlePool<Idle>>| idle_pool.borrow_mut().close_one();
        if close_one(&self.idle_pools[backend.number]) || self.idle_pools.iter().any(close_one) {
            self.idle.set(self.idle.get() - 1);
        } else {
            self.shared_conns.close_one();
        }
    }

    /// Closes connections that servers have closed or that were not needed for long. Yields to other tasks
    /// between backends that have idle connections.
    pub(crate) async fn purge_idle(&self) {
        let here = self.here();
        for idle_pool in &self.idle_pools {
            if idle_pool.borrow().total() == 0 {
                continue;
            }
            {
                let mut idle_pool = idle_pool.borrow_mut();
                idle_pool.sweep(Idle::is_quiet);
                idle_pool.purge(here.now());
            }
            here.yield_now().await;
        }
        self.idle.set(self.idle_pools.iter().map(|idle_pool| idle_pool.borrow().total()).sum());
    }

    /// Passes idle connections to the pools of another generation that has the same server.
    pub(crate) fn pass_idle(&self, next: &Self) {
        for (backend, idle_pool) in self
            .generation
            .backends
            .iter()
            .zip(&self.idle_pools)
            .filter(|(_, idle_pool)| idle_pool.borrow().total() > 0)
        {
            let Some(successor) = next.generation.backend_named(&backend.name) else { continue };
            if std::ptr::eq(successor, &**backend) && next.idle_pools[backend.number].borrow().total() == 0 {
                next.idle.set(next.idle.get() + idle_pool.borrow().total());
                // both generations share the backend, so all keys stay valid
                idle_pool.swap(&next.idle_pools[backend.number]);
                continue;
            }
            for server in &backend.servers {
                let (Some(from), Some(to)) =
                    (backend.balancer.servers().index(server.index), pooled_with(successor, server))
                else {
                    continue;
                };
                while let Some((key, idle)) = idle_pool.borrow_mut().take_oldest(from) {
                    next.keep(successor, to, key, idle); // oldest first, so the order of use stays the same
                }
            }
        }
    }

    /// Closes all idle connections, when the lane stops.
    pub(crate) fn close_idle(&self) {
        for idle_pool in &self.idle_pools {
            idle_pool.borrow_mut().sweep(|_| false);
        }
        self.idle.set(0);
    }

    /// Returns true if more than `percent` of the descriptors that the process may open are in use (rule 4).
    pub(super) fn is_above(&self, percent: u64) -> bool {
        let most = self.generation.descriptors;
        if most == 0 {
            return false;
        }
        let bound = most.saturating_mul(percent) / 100;
        let (lanes, own) = (self.lanes() as u64, IDLE_CLIENTS.own());
        let idle = own.began.get() - own.ended.get();
        manylane_io::open_here().saturating_sub(idle.min(most / 2 / lanes)) * lanes > bound
            && self.used_by_all(most) > bound
    }

    /// Returns the number of descriptors in use on all lanes, up to [`READ_INTERVAL`] old.
    fn used_by_all(&self, most: u64) -> u64 {
        let now = self.here().now();
        let (read_at, used) = self.used.get();
        if now < read_at + READ_INTERVAL {
            return used;
        }
        let began = IDLE_CLIENTS.read_cheap_one(|clients| &clients.began);
        let idle = began.saturating_sub(IDLE_CLIENTS.read_cheap_one(|clients| &clients.ended));
        let used = manylane_io::open().saturating_sub(idle.min(most / 2));
        self.used.set((now, used));
        used
    }
}

/// Returns the server of `backend` that shares its connections with `server`.
pub(crate) fn pooled_with(backend: &Backend, server: &Server) -> Option<Index> {
    let own = backend.same_server(server).filter(|own| own.pool == server.pool)?;
    backend.balancer.servers().index(own.index)
}

/// Runs on the lane that was asked: hands over a connection, or drops `reply` if there is none.
async fn give(
    generation: Arc<Generation>,
    backend: usize,
    index: Index,
    key: u64,
    least: u32,
    reply: Reply<Transfer>,
) {
    let Some(local) = Local::of(&generation) else { return };
    let backend = &generation.backends[backend];
    let Some(Idle { connection, served, slot }) = local.take_kept(backend, index, key, least) else { return };
    let stream = match connection {
        // Unsent bytes would wait for the server to take them.
        Connection::Socket(stream) if stream.unsent() == 0 => stream,
        // Sockets inside the process belong to this lane, and a new one costs little.
        own => {
            local.keep(backend, index, key, Idle { connection: own, served, slot });
            return;
        }
    };
    let Ok(detached) = stream.detach().await else { return };
    if !detached.received.is_empty() {
        return; // bytes of a response that no request belongs to; the connection is useless
    }
    match reply.give(Transfer { fd: detached.fd, served, slot }) {
        Ok(()) => local.idle_pools[backend.number].borrow_mut().gave(index, local.here().now()),
        Err(Transfer { fd, served, slot }) => {
            if let Ok(stream) = local.io.stream(fd) {
                // rule 3
                local.keep(
                    backend,
                    index,
                    key,
                    Idle { connection: Connection::Socket(stream), served, slot },
                );
            }
        }
    }
}
