//! Idle connections of a lane, by what they are good for; and how lanes give each other of theirs.
//!
//! # Protocol
//! 1. A [`IdlePool`] belongs to its lane: no other touches it, so what is on it need not be `Send`. Taking
//!    the own lane's connections and putting them back writes no line that other lanes write.
//! 2. Connections lie by key: the hash of all that must be equal for a connection to serve (server, name
//!    asked for in TLS, source address, PROXY header). The one that came last is taken first: it is the
//!    warmest, and the old ones age together at the bottom.
//! 3. A lane publishes how many idle connections it has of each server, on all of its idle pools (`idle` in
//!    [`IdlePools`], stored when it changes). Only a lane whose own idle pool has none looks there. It takes
//!    none from a lane that has not more than the server's `pool-low-conn`.
//! 4. What another lane has is *asked for*: [`IdlePools::ask`] gives the lane to ask, the room above sends
//!    that lane a task, which takes a connection from its idle pool, detaches it from its driver and sends it
//!    back; or sends back that there is none, and the asker connects.
//! 5. Each `pool-purge-delay` a lane closes half of what lay idle all that time, of each server: those that
//!    were not needed at the busiest moment since.
//! 6. A lane that gave a connection away and then misses one makes one, for as long as the server's
//!    `pool-purge-delay` ([`IdlePool::has_given`]): asking for it back would wake both lanes at each request
//!    that they do in turns.
//!
//! # Cost
//! Taking and putting: a look into a hash table and a few stores; with `pool-max-conn` a put reads a line of
//! each lane. Asking: a line of each lane that is looked at, up to [`LOOKED_AT`].

use crate::lane::Numbers;
use crate::spec::Index;
use manylane_sched::Time;
use manylane_sync::{Arc, LaneId, PerLane, lane};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::marker::PhantomData;
use std::time::Duration;

/// Lanes that are looked at for a connection at most.
pub const LOOKED_AT: usize = 8;

/// Limits of one server's idle connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleLimits {
    /// `pool-max-conn`: idle connections on all lanes together; `None` for any number.
    pub most: Option<u32>,
    /// `pool-low-conn`: with so many or fewer, a lane keeps what it has for itself.
    pub low: u32,
    /// `pool-purge-delay`; zero: nothing is kept.
    pub purge: Duration,
}

impl Default for IdleLimits {
    /// The defaults of the configuration language.
    fn default() -> Self {
        Self { most: None, low: 0, purge: Duration::from_secs(5) }
    }
}

/// What all lanes know of each other's idle pools, for one backend.
pub struct IdlePools {
    limits: Box<[IdleLimits]>,
    /// Of each lane: idle connections by server.
    idle: PerLane<Numbers, Box<dyn Fn(LaneId) -> Numbers + Send + Sync>>,
}

impl IdlePools {
    /// For servers with these limits, in the order of their indexes.
    pub fn new(limits: impl IntoIterator<Item = IdleLimits>) -> Self {
        let limits: Box<[IdleLimits]> = limits.into_iter().collect();
        let servers = limits.len();
        Self { idle: PerLane::new(Box::new(move |_| Numbers::new(servers))), limits }
    }

    /// Idle connections of a server on all lanes. Cost: a line of each lane.
    pub fn idle(&self, server: Index) -> u64 {
        self.idle.iter().map(|(_, idle)| u64::from(idle.get(server.get()))).sum()
    }

    /// The same of all servers.
    pub fn idle_in_all(&self) -> u64 {
        let all =
            |idle: &Numbers| (0..self.limits.len()).map(|server| u64::from(idle.get(server))).sum::<u64>();
        self.idle.iter().map(|(_, idle)| all(idle)).sum()
    }

    /// Idle connections of a server on that lane.
    pub fn idle_on(&self, lane: LaneId, server: Index) -> u64 {
        self.idle.get(lane).map_or(0, |idle| idle.get(server.get()).into())
    }

    /// A lane that has connections of this server to give (rules 3 and 4). `start`: any number, so that not
    /// all ask the same.
    ///
    /// Whether these have the right key only that lane can tell.
    pub fn ask(&self, server: Index, start: usize) -> Option<LaneId> {
        let own = lane::current();
        let low = self.limits[server.get()].low;
        let lanes = self.idle.iter().map(|(lane, _)| lane.index() + 1).max()?;
        let mut looked = 0;
        for step in 0..lanes {
            let Ok(lane) = LaneId::new((start % lanes + step) % lanes) else { continue };
            if lane == own {
                continue;
            }
            let Some(idle) = self.idle.get(lane) else { continue };
            if idle.get(server.get()) > low {
                return Some(lane);
            }
            looked += 1;
            if looked == LOOKED_AT {
                break;
            }
        }
        None
    }
}

impl fmt::Debug for IdlePools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdlePools").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Keys are hashes already.
#[derive(Debug, Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed by this");
    }

    fn write_u64(&mut self, n: u64) {
        // The table takes its group from the upper bits and its place from the lower ones.
        self.0 = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

const NONE: u32 = u32::MAX;

/// A connection that lies here, or a free place.
#[derive(Debug)]
struct IdleSlot<C> {
    connection: Option<C>,
    key: u64,
    server: Index,
    /// When it was put here.
    since: Time,
    /// Towards the top and the bottom of its key; in free places `below` is the next free one.
    above: u32,
    below: u32,
    /// Towards the newest and the oldest of its server.
    newer: u32,
    older: u32,
}

/// The connections of one server: from the oldest to the newest, and how many were never needed.
#[derive(Clone, Copy, Debug)]
struct OfServer {
    oldest: u32,
    newest: u32,
    count: u32,
    /// The fewest that lay here since the last purge.
    fewest: u32,
    purged: Time,
    /// When another lane last got one.
    gave: Option<Time>,
}

/// One lane's idle connections for one backend.
///
/// `C` needs not be `Send`. What is dropped here is closed by `C`'s own drop.
pub struct IdlePool<C> {
    idle_pools: Arc<IdlePools>,
    places: Vec<IdleSlot<C>>,
    free: u32,
    /// The top of each key's pile.
    keys: HashMap<u64, u32, BuildHasherDefault<Same>>,
    servers: Box<[OfServer]>,
    /// Connections of all servers.
    count: usize,
    /// It publishes in its lane's numbers, so it stays there.
    stays: PhantomData<*const ()>,
}

impl<C> IdlePool<C> {
    /// The calling lane's idle pool, empty.
    pub fn new(idle_pools: Arc<IdlePools>) -> Self {
        let of = OfServer { oldest: NONE, newest: NONE, count: 0, fewest: 0, purged: Time::ZERO, gave: None };
        Self {
            places: Vec::new(),
            free: NONE,
            keys: HashMap::default(),
            servers: vec![of; idle_pools.limits.len()].into(),
            idle_pools,
            count: 0,
            stays: PhantomData,
        }
    }

    /// Puts an idle connection on the idle pool.
    ///
    /// # Errors
    /// The connection, when the server has its `pool-max-conn` of them, or keeps none: close it.
    pub fn put(&mut self, server: Index, key: u64, connection: C, now: Time) -> Result<(), C> {
        let limits = &self.idle_pools.limits[server.get()];
        let of = &mut self.servers[server.get()];
        if limits.purge.is_zero()
            || limits.most.is_some_and(|most| self.idle_pools.idle(server) >= u64::from(most))
        {
            return Err(connection);
        }
        if of.count == 0 {
            of.fewest = 0;
            of.purged = now;
        }
        let number = match self.free {
            NONE => {
                let number = u32::try_from(self.places.len()).expect("descriptors are fewer");
                self.places.push(IdleSlot {
                    connection: None,
                    key,
                    server,
                    since: now,
                    above: NONE,
                    below: NONE,
                    newer: NONE,
                    older: NONE,
                });
                number
            }
            number => {
                self.free = self.places[number as usize].below;
                number
            }
        };
        let below = self.keys.insert(key, number).unwrap_or(NONE);
        let older = std::mem::replace(&mut of.newest, number);
        if older == NONE {
            of.oldest = number;
        }
        of.count += 1;
        self.count += 1;
        let place = &mut self.places[number as usize];
        (place.connection, place.key, place.server, place.since) = (Some(connection), key, server, now);
        (place.above, place.below, place.newer, place.older) = (NONE, below, NONE, older);
        if below != NONE {
            self.places[below as usize].above = number;
        }
        if older != NONE {
            self.places[older as usize].newer = number;
        }
        self.publish(server, 1);
        Ok(())
    }

    /// The connection with this key that came last (rule 2).
    pub fn take(&mut self, key: u64) -> Option<C> {
        let top = *self.keys.get(&key)?;
        Some(self.remove(top))
    }

    /// The oldest connection of a server, and its key.
    pub fn take_oldest(&mut self, server: Index) -> Option<(u64, C)> {
        match self.servers[server.get()].oldest {
            NONE => None,
            oldest => Some((self.places[oldest as usize].key, self.remove(oldest))),
        }
    }

    /// Notes that another lane got a connection of this server.
    pub fn gave(&mut self, server: Index, now: Time) {
        self.servers[server.get()].gave = Some(now);
    }

    /// Whether another lane got a connection of this server lately, so that one is made rather than asked for
    /// (rule 6).
    pub fn has_given(&self, server: Index, now: Time) -> bool {
        let delay = self.idle_pools.limits[server.get()].purge;
        self.servers[server.get()].gave.is_some_and(|gave| now < gave + delay)
    }

    /// Idle connections of a server on this lane.
    pub fn len(&self, server: Index) -> u32 {
        self.servers[server.get()].count
    }

    /// Idle connections of all servers on this lane.
    pub fn total(&self) -> usize {
        self.count
    }

    /// Closes those that are of no use any more. Cost: each connection is looked at.
    pub fn sweep(&mut self, mut is_good: impl FnMut(&C) -> bool) {
        for number in 0..self.places.len() {
            if self.places[number].connection.as_ref().is_some_and(|connection| !is_good(connection)) {
                drop(self.remove(number as u32));
            }
        }
    }

    /// Closes the oldest connection of the server that has most: room for another descriptor. Whether there
    /// was one.
    pub fn close_one(&mut self) -> bool {
        let most = (0..self.servers.len()).max_by_key(|number| self.servers[*number].count);
        let oldest = most.map_or(NONE, |number| self.servers[number].oldest);
        if oldest == NONE {
            return false;
        }
        drop(self.remove(oldest));
        true
    }

    /// Whether the lane has no idle connection at all.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Closes half of what was never needed since the last time, of servers whose `pool-purge-delay` passed
    /// (rule 5). Gives when it wants to be called again; `None` when nothing lies here.
    pub fn purge(&mut self, now: Time) -> Option<Time> {
        let mut next: Option<Time> = None;
        let mut left = self.count as u32; // of thousands of servers few have any, or none
        for number in 0..self.servers.len() {
            if left == 0 {
                break;
            }
            let of = self.servers[number];
            if of.count == 0 {
                continue;
            }
            left -= of.count;
            let delay = self.idle_pools.limits[number].purge;
            let mut due = of.purged + delay;
            if due <= now {
                for _ in 0..of.fewest.div_ceil(2) {
                    let oldest = self.servers[number].oldest;
                    drop(self.remove(oldest));
                }
                let of = &mut self.servers[number];
                (of.fewest, of.purged) = (of.count, now);
                due = now + delay;
            }
            if self.servers[number].count > 0 {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        next
    }

    /// Closes all connections of a server: it went down, or its address changed.
    pub fn clear(&mut self, server: Index) {
        while let Some(connection) = self.take_oldest(server) {
            drop(connection);
        }
    }

    /// So many more lie here. Not how many: another idle pool of the lane may have some of the same idle
    /// pools, too, while one takes the place of the other.
    fn publish(&self, server: Index, more: i32) {
        let own = self.idle_pools.idle.own();
        own.set(server.get(), own.get(server.get()).wrapping_add_signed(more));
    }

    fn remove(&mut self, number: u32) -> C {
        let free = std::mem::replace(&mut self.free, number);
        let place = &mut self.places[number as usize];
        let connection = place.connection.take().expect("who is linked is there");
        let (key, server, above, below, newer, older) = (
            place.key,
            place.server,
            place.above,
            std::mem::replace(&mut place.below, free),
            place.newer,
            place.older,
        );
        match (above, below) {
            (NONE, NONE) => {
                self.keys.remove(&key);
            }
            (NONE, below) => {
                self.keys.insert(key, below);
            }
            (above, _) => self.places[above as usize].below = below,
        }
        if below != NONE {
            self.places[below as usize].above = above;
        }
        let of = &mut self.servers[server.get()];
        match newer {
            NONE => of.newest = older,
            newer => self.places[newer as usize].older = older,
        }
        match older {
            NONE => of.oldest = newer,
            older => self.places[older as usize].newer = newer,
        }
        of.count -= 1;
        of.fewest = of.fewest.min(of.count);
        self.count -= 1;
        self.publish(server, -1);
        connection
    }
}

impl<C> Drop for IdlePool<C> {
    fn drop(&mut self) {
        for (number, of) in self.servers.iter().enumerate().filter(|(_, of)| of.count > 0) {
            self.publish(Index(number as u16), -of.count.cast_signed());
        }
    }
}

impl<C> fmt::Debug for IdlePool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdlePool").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}
