//! Number of requests that a server with a limit (`maxconn`) serves.
//!
//! # Protocol
//! 1. A server's *word* holds the number of requests that it serves and the number that wait for it, so one
//!    compare-and-swap decides on both. A request is admitted if fewer than the limit are served and none
//!    waits.
//! 2. `full` has a bit for each server without room, at the rank of the server's id. It is a hint for a
//!    search; the word decides.
//!    - A thread that admits the last request, finds no room, or lowers the limit below the number served,
//!      sets the bit and reads the word again: if there is room, it clears the bit. A thread that releases a
//!      permit reads the bit after that, and clears it if there is room. Each has a fence between its two
//!      steps, so one of them sees the other, whichever limit each of them read.
//!    - A thread that raises a limit clears the bit after that. So the bit of a server with room does not
//!      stay set.
//!    - A thread that clears a bit looks for requests that wait for any server (the backend's queue). A
//!      request that enters that queue is counted first and reads the bits after that: one of the two sees
//!      the other.
//! 3. A server without a limit has no word to write: each lane counts its own requests.
//! 4. A word belongs to its server, whichever balancer counts there (`balancer::shared`). Bits, and the count
//!    of requests that wait for any server, belong to each balancer. A thread that fills a server sets the
//!    bit of its own balancer. A thread that makes room clears the bits of all balancers of the server, one
//!    after the other, and reads after its change of the word whether there are other balancers.
//!
//! # Cost
//! Without a limit, nothing. With one: a compare-and-swap when a request begins and one when it ends, on a
//! cache line of the server; and a locked operation on a line of `full` when the server becomes full or gets
//! room.

use crate::queue::WaiterCount;
use crate::servers::Servers;
use crate::spec::Index;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use manylane_sync::{Arc, CachePadded, update};

const WAITING_ONE: u64 = 1 << 32;
const SERVED: u64 = WAITING_ONE - 1;

/// A server's word (rule 1) and current limit, shared by all balancers of the server.
#[derive(Debug)]
pub(crate) struct ServerLimit {
    word: AtomicU64,
    /// Current limit. Never read for a server without one.
    limit: AtomicU32,
    /// Connections that have a [`ConnSlot`].
    connections: AtomicU32,
}

/// A connection's share of the `maxconn` of a server that counts its connections (`strict-maxconn`). Dropping
/// it frees the share.
#[derive(Debug)]
pub struct ConnSlot(Arc<CachePadded<ServerLimit>>);

impl ConnSlot {
    /// Takes a slot if fewer than `most` are taken; 0 for no limit.
    pub(crate) fn take(server_limit: &Arc<CachePadded<ServerLimit>>, most: u32) -> Option<Self> {
        let most = if most == 0 { u32::MAX } else { most };
        // Relaxed: the number stands for itself.
        update(&server_limit.connections, Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < most).then(|| taken + 1)
        })
        .ok()?;
        Some(Self(server_limit.clone()))
    }
}

impl Drop for ConnSlot {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The two numbers in a word: requests served and requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) served: u32,
    pub(crate) waiting: u32,
}

impl Count {
    fn of(word: u64) -> Self {
        Self { served: (word & SERVED) as u32, waiting: (word >> 32) as u32 }
    }

    fn word(self) -> u64 {
        (u64::from(self.waiting) << 32) | u64::from(self.served)
    }
}

/// Result of ending a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The permit of the request is free.
    Freed,
    /// Its permit belongs to a request that waits for this server: the caller must take one out of the queue
    /// and wake it.
    HandedOver,
}

impl ServerLimit {
    pub(crate) fn new(limit: u32) -> Self {
        Self { word: AtomicU64::new(0), limit: AtomicU32::new(limit), connections: AtomicU32::new(0) }
    }

    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn count(&self) -> Count {
        Count::of(self.word.load(Ordering::SeqCst))
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit. A caller that raises it must clear the bits of `full` and offer the room.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// Returns whether a request would be admitted.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn has_room(&self) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        word < WAITING_ONE && word < u64::from(self.limit())
    }

    #[inline]
    fn change(&self, mut new: impl FnMut(Count) -> Option<Count>) -> Result<Count, Count> {
        // SeqCst: the word, the bits of `full` and the number of requests that wait for any server are in one
        // order (rule 2 here, rule 2 of `balancer::waiting`).
        update(&self.word, Ordering::SeqCst, Ordering::SeqCst, |word| new(Count::of(word)).map(Count::word))
            .map(Count::of)
            .map_err(Count::of)
    }

    /// Admits one waiting request if there is room. Returns true if so: the caller must take one out of the
    /// queue and wake it.
    pub(crate) fn admit(&self) -> bool {
        let limit = self.limit();
        self.change(|c| {
            let admits = c.waiting > 0 && c.served < limit;
            admits.then(|| Count { served: c.served + 1, waiting: c.waiting - 1 })
        })
        .is_ok()
    }

    /// Counts one waiting request down. Returns true if there was one: the caller must take one out of the
    /// queue and send it elsewhere.
    pub(crate) fn dismiss(&self) -> bool {
        self.change(|c| (c.waiting > 0).then(|| Count { waiting: c.waiting - 1, ..c })).is_ok()
    }

    /// Admits a request. Returns the number served, with this one, or `None`; and whether other threads
    /// changed the word meanwhile.
    #[inline]
    pub(crate) fn enter(&self) -> (Option<u32>, bool) {
        let limit = self.limit();
        let enters = |c: Count| c.waiting == 0 && c.served < limit;
        let mut attempts = 0;
        let entered = self.change(|c| {
            attempts += 1;
            enters(c).then(|| Count { served: c.served + 1, waiting: 0 })
        });
        (entered.ok().map(|before| before.served + 1), attempts > 1)
    }

    /// Ends a request.
    #[inline]
    pub(crate) fn release(&self) -> Released {
        let limit = self.limit();
        let hands_over = |c: Count| c.waiting > 0 && c.served <= limit;
        let before = self.change(|c| {
            debug_assert!(c.served > 0, "a request that was not let in was released");
            Some(match hands_over(c) {
                true => Count { waiting: c.waiting - 1, ..c },
                false => Count { served: c.served.saturating_sub(1), ..c },
            })
        });
        match before {
            Ok(before) if hands_over(before) => Released::HandedOver,
            _ => Released::Freed,
        }
    }
}

/// Count of the requests that wait for one server.
pub(crate) struct WaitingFor<'a> {
    pub(crate) server_limit: &'a ServerLimit,
    /// Largest number of waiting requests; 0 for no bound.
    pub(crate) maxqueue: u32,
}

impl WaiterCount for WaitingFor<'_> {
    fn add(&self) -> bool {
        let most = if self.maxqueue == 0 { u32::MAX } else { self.maxqueue };
        self.server_limit
            .change(|c| (c.waiting < most).then(|| Count { waiting: c.waiting + 1, ..c }))
            .is_ok()
    }

    fn claim(&self) -> bool {
        self.server_limit.dismiss()
    }
}

/// Number of requests that wait for any server of the backend.
#[derive(Debug)]
pub(crate) struct WaitingForAny(AtomicU64);

impl WaitingForAny {
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl WaiterCount for WaitingForAny {
    fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        // Rule 2: a request that is counted reads the bits and words after that. Pairs with the fence in
        // `has_any_waiting`.
        fence(Ordering::SeqCst);
        true
    }

    fn claim(&self) -> bool {
        update(&self.0, Ordering::SeqCst, Ordering::SeqCst, |waiting| waiting.checked_sub(1)).is_ok()
    }
}

/// One bit for each server, at the rank of its id.
#[derive(Debug)]
pub(crate) struct Bits(Box<[CachePadded<[AtomicU64; 16]>]>);

impl Bits {
    fn new(servers: usize) -> Self {
        let block = |_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)));
        Self((0..servers.div_ceil(64 * 16)).map(block).collect())
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn word(&self, word: usize) -> u64 {
        self.0[word / 16][word % 16].load(Ordering::SeqCst)
    }

    #[cfg_attr(manylane_sim, track_caller)]
    fn is_set(&self, rank: u16) -> bool {
        self.word(usize::from(rank) / 64) & 1 << (rank % 64) != 0
    }

    #[cfg_attr(manylane_sim, track_caller)]
    fn set(&self, rank: u16) {
        let (word, bit) = (usize::from(rank) / 64, 1 << (rank % 64));
        if self.word(word) & bit == 0 {
            self.0[word / 16][word % 16].fetch_or(bit, Ordering::SeqCst);
        }
    }

    #[cfg_attr(manylane_sim, track_caller)]
    fn clear(&self, rank: u16) {
        let (word, bit) = (usize::from(rank) / 64, 1u64 << (rank % 64));
        self.0[word / 16][word % 16].fetch_and(!bit, Ordering::SeqCst);
    }
}

/// The limits of a balancer's servers, and the balancer's own bits and count.
#[derive(Debug)]
pub(crate) struct ServerLimits {
    server_limits: Box<[Arc<CachePadded<ServerLimit>>]>,
    ranks: Box<[u16]>,
    /// Servers without room (rule 2).
    pub(crate) full: Bits,
    /// Servers that the current snapshot balances over; written when the snapshot is replaced.
    pub(crate) members: Bits,
    pub(crate) waiting: CachePadded<WaitingForAny>,
}

/// Result of a request's attempt to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entered {
    pub(crate) entered: bool,
    /// There was room when the server was marked full, and requests wait for any server: the caller must
    /// offer it.
    pub(crate) offer: bool,
    /// Other requests entered or left at the same time.
    pub(crate) crowded: bool,
}

impl ServerLimits {
    pub(crate) fn new(servers: &Servers) -> Self {
        Self {
            server_limits: servers.iter().map(|(_, server)| server.state.server_limit.clone()).collect(),
            ranks: servers.iter().map(|(_, server)| server.rank).collect(),
            full: Bits::new(servers.len()),
            members: Bits::new(servers.len()),
            waiting: CachePadded::new(WaitingForAny(AtomicU64::new(0))),
        }
    }

    #[inline]
    pub(crate) fn of(&self, index: Index) -> &ServerLimit {
        &self.server_limits[index.get()]
    }

    /// Admits a request to a server with a limit; rule 2.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn enter(&self, index: Index) -> Entered {
        let server_limit = self.of(index);
        match server_limit.enter() {
            (Some(served), crowded) if served < server_limit.limit() => {
                Entered { entered: true, offer: false, crowded }
            }
            (entered, crowded) => {
                Entered { entered: entered.is_some(), offer: self.mark_full(index), crowded }
            }
        }
    }

    /// Marks the server as full if it is. Returns true if it has room and requests wait for any server.
    #[cold]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn mark_full(&self, index: Index) -> bool {
        let rank = self.ranks[index.get()];
        self.full.set(rank);
        fence(Ordering::SeqCst); // pairs with the one in `released`
        let room = self.of(index).has_room();
        if room {
            self.full.clear(rank);
        }
        room && self.has_any_waiting()
    }

    /// Clears the server's mark if a release made room (rule 2). Returns whether requests wait for any
    /// server.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn released(&self, index: Index) -> bool {
        let waiting = self.has_any_waiting(); // its fence pairs with the one in `mark_full`, too
        if self.full.is_set(self.ranks[index.get()]) && self.of(index).has_room() {
            self.mark_room(index);
            return self.has_any_waiting();
        }
        waiting
    }

    /// Returns whether requests wait for any server. Called after making room (rule 2).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn has_any_waiting(&self) -> bool {
        // Pairs with the fence in `WaitingForAny::add`: the waiter sees the room, or this thread sees the
        // waiter.
        fence(Ordering::SeqCst);
        self.waiting.get() > 0
    }

    /// Clears the server's mark: it has room (rule 2).
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn mark_room(&self, index: Index) {
        self.full.clear(self.ranks[index.get()]);
    }

    /// Returns whether a request waits for any server and may use this one.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn is_wanted(&self, index: Index) -> bool {
        self.waiting.get() > 0 && self.members.is_set(self.ranks[index.get()])
    }

    /// Sets which servers take part in balancing.
    pub(crate) fn set_members(&self, by_rank: &[u64]) {
        for (word, &bits) in by_rank.iter().enumerate() {
            self.members.0[word / 16][word % 16].store(bits, Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn no_more_slots_are_taken_than_there_are_and_dropped_ones_are_free() {
        let server_limit = Arc::new(CachePadded::new(ServerLimit::new(3)));
        let most_at_once = AtomicU32::new(0);
        let taken = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let Some(slot) = ConnSlot::take(&server_limit, 3) else { continue };
                        most_at_once.fetch_max(taken.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        taken.fetch_sub(1, Ordering::SeqCst);
                        drop(slot);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most_at_once.load(Ordering::SeqCst)));
        let slots: Vec<_> = std::iter::from_fn(|| ConnSlot::take(&server_limit, 3)).collect();
        assert_eq!(slots.len(), 3);
        assert!(ConnSlot::take(&server_limit, 0).is_some(), "0 is no limit");
        // A limit that was lowered below what is taken.
        drop(slots);
        let slot = ConnSlot::take(&server_limit, 1);
        assert!(slot.is_some() && ConnSlot::take(&server_limit, 1).is_none());
    }
}
