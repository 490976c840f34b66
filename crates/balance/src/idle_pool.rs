//! Idle connections of a lane, by key, and how lanes transfer them to each other.
//!
//! # Protocol
//! 1. An [`IdlePool`] belongs to its lane and no other lane touches it, so its connections need not be
//!    `Send`. Taking and putting a connection of the own lane writes no cache line that other lanes write.
//! 2. Connections have a key: the hash of everything that must be equal for a connection to serve a request
//!    (server, name for TLS, source address, PROXY header). The connection that came last is taken first: its
//!    state is the warmest, and the old ones become due for the purge together.
//! 3. A lane publishes the number of its idle connections of each server, over all of its idle pools (`idle`
//!    in [`IdlePools`], stored at each change). Only a lane whose own idle pool has none reads these numbers.
//!    It takes no connection from a lane that has no more than the server's `pool-low-conn`.
//! 4. To get a connection of another lane, [`IdlePools::ask`] returns the lane to ask. The caller sends that
//!    lane a task, which takes a connection from its idle pool, detaches it from its driver and sends it
//!    back; or it replies that there is none, and the asker connects.
//! 5. Every `pool-purge-delay`, a lane closes half of the connections of each server that were idle all that
//!    time: they were not needed at the busiest moment since the last purge.
//! 6. A lane that gave a connection away and then needs one opens a new one for as long as the server's
//!    `pool-purge-delay` ([`IdlePool::has_given`]). If it asked for the connection back, two lanes that serve
//!    requests in turns would wake each other at every request.
//!
//! # Cost
//! Taking and putting: a look-up in a hash table and a few stores; with `pool-max-conn`, a put also reads a
//! cache line of each lane. Asking: a cache line of each lane that it looks at, at most [`MAX_SEARCHED`].

use crate::lane::Numbers;
use crate::spec::Index;
use manylane_sched::Time;
use manylane_sync::{Arc, LaneId, PerLane, lane};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::marker::PhantomData;
use std::time::Duration;

/// Largest number of lanes that a search for a connection looks at.
pub const MAX_SEARCHED: usize = 8;

/// Limits of one server's idle connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleLimits {
    /// `pool-max-conn`: number of idle connections on all lanes together; `None` for no limit.
    pub most: Option<u32>,
    /// `pool-low-conn`: a lane with this many or fewer keeps its connections for itself.
    pub low: u32,
    /// `pool-purge-delay`; zero keeps no connection.
    pub purge: Duration,
}

impl Default for IdleLimits {
    /// Returns the defaults of the configuration language.
    fn default() -> Self {
        Self { most: None, low: 0, purge: Duration::from_secs(5) }
    }
}

/// Limits and sizes of the idle pools of all lanes, for one backend.
pub struct IdlePools {
    limits: Box<[IdleLimits]>,
    /// Number of idle connections by server, for each lane.
    idle: LaneNumbers,
    /// Number of connections of HTTP/2 without streams by server, for each lane. They stay on their lane, and
    /// are in no [`IdlePool`].
    shared: LaneNumbers,
}

/// A number for each server, on each lane.
type LaneNumbers = PerLane<Numbers, Box<dyn Fn(LaneId) -> Numbers + Send + Sync>>;

/// Returns the number of a server on all lanes. Cost: reads one cache line of each lane.
fn sum(numbers: &LaneNumbers, server: Index) -> u64 {
    numbers.iter().map(|(_, own)| u64::from(own.get(server.get()))).sum()
}

/// Adds `more` to the calling lane's number of a server. Adding instead of storing lets several owners on a
/// lane count in one number: while one pool replaces another, both count.
fn add(numbers: &LaneNumbers, server: Index, more: i32) {
    let own = numbers.own();
    own.set(server.get(), own.get(server.get()).wrapping_add_signed(more));
}

impl IdlePools {
    /// Creates the state for servers with these limits, in the order of their indexes.
    pub fn new(limits: impl IntoIterator<Item = IdleLimits>) -> Self {
        let limits: Box<[IdleLimits]> = limits.into_iter().collect();
        let servers = limits.len();
        let numbers = || -> LaneNumbers { PerLane::new(Box::new(move |_| Numbers::new(servers))) };
        Self { idle: numbers(), shared: numbers(), limits }
    }

    /// Returns the number of idle connections of a server on all lanes. Cost: reads two cache lines of each
    /// lane.
    pub fn idle(&self, server: Index) -> u64 {
        sum(&self.idle, server) + sum(&self.shared, server)
    }

    /// Adds `more` to the number of the calling lane's connections of HTTP/2 without streams.
    pub fn add_shared(&self, server: Index, more: i32) {
        add(&self.shared, server, more);
    }

    /// Returns the number of idle connections of all servers on all lanes, without those of HTTP/2.
    pub fn idle_in_all(&self) -> u64 {
        let all =
            |idle: &Numbers| (0..self.limits.len()).map(|server| u64::from(idle.get(server))).sum::<u64>();
        self.idle.iter().map(|(_, idle)| all(idle)).sum()
    }

    /// Returns the number of idle connections of a server on one lane.
    pub fn idle_on(&self, lane: LaneId, server: Index) -> u64 {
        let on = |numbers: &LaneNumbers| numbers.get(lane).map_or(0, |own| own.get(server.get()).into());
        on(&self.idle) + on(&self.shared)
    }

    /// Returns a lane with idle connections of this server to give (rules 3 and 4). `start` is any number; it
    /// spreads the requests of different callers over the lanes.
    ///
    /// Only that lane can tell whether one of them has the right key.
    pub fn ask(&self, server: Index, start: usize) -> Option<LaneId> {
        let own = lane::current();
        let low = self.limits[server.get()].low;
        let lanes = self.idle.iter().map(|(lane, _)| lane.index() + 1).max()?;
        let mut searched = 0;
        for step in 0..lanes {
            let Ok(lane) = LaneId::new((start % lanes + step) % lanes) else { continue };
            if lane == own {
                continue;
            }
            let Some(idle) = self.idle.get(lane) else { continue };
            if idle.get(server.get()) > low {
                return Some(lane);
            }
            searched += 1;
            if searched == MAX_SEARCHED {
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

/// A hasher for keys that are hashes already.
#[derive(Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed by this");
    }

    fn write_u64(&mut self, n: u64) {
        // The table uses the upper bits for the group and the lower ones for the slot.
        self.0 = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

const NONE: u32 = u32::MAX;

/// An idle connection or a free slot.
#[derive(Debug)]
struct IdleSlot<C> {
    connection: Option<C>,
    key: u64,
    server: Index,
    /// Time when the connection was put here.
    since: Time,
    /// Neighbours in the list of its key, towards the newest and the oldest. In a free slot, `below` is the
    /// next free one.
    above: u32,
    below: u32,
    /// Neighbours in the list of its server, towards the newest and the oldest.
    newer: u32,
    older: u32,
}

/// Idle connections of one server: a list from the oldest to the newest, and the numbers for the purge.
#[derive(Clone, Copy, Debug)]
struct ServerIdleList {
    oldest: u32,
    newest: u32,
    count: u32,
    /// Smallest number of idle connections since the last purge.
    fewest: u32,
    purged: Time,
    /// Time when another lane last got one.
    gave: Option<Time>,
}

/// Idle connections of one lane for one backend.
///
/// `C` need not be `Send`. Dropping a `C` closes its connection.
pub struct IdlePool<C> {
    idle_pools: Arc<IdlePools>,
    slots: Vec<IdleSlot<C>>,
    free: u32,
    /// Newest slot of each key.
    keys: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    servers: Box<[ServerIdleList]>,
    /// Number of connections of all servers.
    count: usize,
    /// Makes the pool `!Send`: it publishes in its lane's numbers.
    stays: PhantomData<*const ()>,
}

impl<C> IdlePool<C> {
    /// Returns the number of bytes that an idle connection takes in the pool beside the connection itself:
    /// its links, key and server.
    pub const fn slot_bytes() -> usize {
        size_of::<IdleSlot<C>>() - size_of::<Option<C>>()
    }

    /// Creates an empty idle pool of the calling lane.
    pub fn new(idle_pools: Arc<IdlePools>) -> Self {
        let of = ServerIdleList {
            oldest: NONE,
            newest: NONE,
            count: 0,
            fewest: 0,
            purged: Time::ZERO,
            gave: None,
        };
        Self {
            slots: Vec::new(),
            free: NONE,
            keys: HashMap::default(),
            servers: vec![of; idle_pools.limits.len()].into(),
            idle_pools,
            count: 0,
            stays: PhantomData,
        }
    }

    /// Puts an idle connection into the pool.
    ///
    /// # Errors
    /// The connection, if the server has `pool-max-conn` of them already or keeps none: close it.
    pub fn put(&mut self, server: Index, key: u64, connection: C, now: Time) -> Result<(), C> {
        let limits = &self.idle_pools.limits[server.get()];
        let of = &mut self.servers[server.get()];
        if limits.purge.is_zero()
            || limits.most.is_some_and(|most| sum(&self.idle_pools.idle, server) >= u64::from(most))
        {
            return Err(connection);
        }
        if of.count == 0 {
            of.fewest = 0;
            of.purged = now;
        }
        let number = match self.free {
            NONE => {
                let number = u32::try_from(self.slots.len()).expect("descriptors are fewer");
                self.slots.push(IdleSlot {
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
                self.free = self.slots[number as usize].below;
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
        let slot = &mut self.slots[number as usize];
        (slot.connection, slot.key, slot.server, slot.since) = (Some(connection), key, server, now);
        (slot.above, slot.below, slot.newer, slot.older) = (NONE, below, NONE, older);
        if below != NONE {
            self.slots[below as usize].above = number;
        }
        if older != NONE {
            self.slots[older as usize].newer = number;
        }
        self.publish(server, 1);
        Ok(())
    }

    /// Takes the connection with this key that came last (rule 2).
    pub fn take(&mut self, key: u64) -> Option<C> {
        let top = *self.keys.get(&key)?;
        Some(self.remove(top))
    }

    /// Takes the oldest connection of a server, with its key.
    pub fn take_oldest(&mut self, server: Index) -> Option<(u64, C)> {
        match self.servers[server.get()].oldest {
            NONE => None,
            oldest => Some((self.slots[oldest as usize].key, self.remove(oldest))),
        }
    }

    /// Notes that another lane got a connection of this server.
    pub fn gave(&mut self, server: Index, now: Time) {
        self.servers[server.get()].gave = Some(now);
    }

    /// Returns whether another lane got a connection of this server lately. If so, the caller opens a new
    /// connection instead of asking another lane (rule 6).
    pub fn has_given(&self, server: Index, now: Time) -> bool {
        let delay = self.idle_pools.limits[server.get()].purge;
        self.servers[server.get()].gave.is_some_and(|gave| now < gave + delay)
    }

    /// Returns the number of idle connections of a server on this lane.
    pub fn len(&self, server: Index) -> u32 {
        self.servers[server.get()].count
    }

    /// Returns the number of idle connections of all servers on this lane.
    pub fn total(&self) -> usize {
        self.count
    }

    /// Closes the connections for which `is_good` returns false. Cost: looks at every connection.
    pub fn sweep(&mut self, mut is_good: impl FnMut(&C) -> bool) {
        for number in 0..self.slots.len() {
            if self.slots[number].connection.as_ref().is_some_and(|connection| !is_good(connection)) {
                drop(self.remove(number as u32));
            }
        }
    }

    /// Closes the oldest connection of the server that has most, to free a descriptor. Returns whether there
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

    /// Returns whether the lane has no idle connection.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Closes half of the connections that were never needed since the last purge, for each server whose
    /// `pool-purge-delay` has passed (rule 5). Returns the time of the next call; `None` if the pool is
    /// empty.
    pub fn purge(&mut self, now: Time) -> Option<Time> {
        let mut next: Option<Time> = None;
        let mut left = self.count as u32; // most servers of a long list have none
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

    /// Closes all connections of a server, which went down or changed its address.
    pub fn clear(&mut self, server: Index) {
        while let Some(connection) = self.take_oldest(server) {
            drop(connection);
        }
    }

    /// Adds `more` to the published number.
    fn publish(&self, server: Index, more: i32) {
        add(&self.idle_pools.idle, server, more);
    }

    fn remove(&mut self, number: u32) -> C {
        let free = std::mem::replace(&mut self.free, number);
        let slot = &mut self.slots[number as usize];
        let connection = slot.connection.take().expect("who is linked is there");
        let (key, server, above, below, newer, older) = (
            slot.key,
            slot.server,
            slot.above,
            std::mem::replace(&mut slot.below, free),
            slot.newer,
            slot.older,
        );
        match (above, below) {
            (NONE, NONE) => {
                self.keys.remove(&key);
            }
            (NONE, below) => {
                self.keys.insert(key, below);
            }
            (above, _) => self.slots[above as usize].below = below,
        }
        if below != NONE {
            self.slots[below as usize].above = above;
        }
        let of = &mut self.servers[server.get()];
        match newer {
            NONE => of.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => of.oldest = newer,
            older => self.slots[older as usize].newer = newer,
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
