//! How many requests a server serves, where that is limited (`maxconn`).
//!
//! # Protocol
//! 1. A server's *word* holds how many requests it serves and how many wait for it, so that one
//!    compare-and-swap decides on both. A request is let in when fewer than the limit are served and none
//!    waits.
//! 2. `full` has a bit for each server (by rank of id) that has no room. It is a hint for who looks for room:
//!    the word decides. Who lets the last one in, or finds no room, or lowers the limit below what is served,
//!    sets the bit and looks at the word again: if there is room it clears the bit. Who releases a place
//!    looks at the bit after that, and clears it if there is room. A fence is between the two steps of each,
//!    so that one of them sees the other, whatever limit each of them knows. Who raises a limit clears the
//!    bit after that. A bit does not stay set on a server with room. Who clears it looks for requests that
//!    wait for any server (queue of the backend), and those who enter that queue look at the bits after they
//!    were counted: one of the two sees the other.
//! 3. A server without a limit has no word to write: nobody counts it but the lanes, each for itself.
//! 4. A word belongs to its server, whichever balancer counts there (`balancer::shared`); bits and those
//!    who wait for any server are each balancer's. Who fills a server sets the bit of its own balancer; who
//!    makes room does so in the name of all balancers of the server, one after the other, and reads behind
//!    its change of the word whether there are others.
//!
//! # Cost
//! Without a limit nothing. With one: a compare-and-swap when a request begins and one when it ends, on a
//! line of the server's own, and a locked operation on a line of `full` when a limit is reached or left.

use crate::queue::Claims;
use crate::servers::Servers;
use crate::spec::Index;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use manylane_sync::{Arc, CachePadded};

const WAITING_ONE: u64 = 1 << 32;
const SERVED: u64 = WAITING_ONE - 1;

/// A server's word (rule 1), and its limit now: one for all balancers of the server.
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU64,
    /// Of a server without one nobody asks.
    limit: AtomicU32,
}

/// Served and waiting.
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

/// What became of a request that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Its place is free.
    Freed,
    /// Its place belongs to one of those who wait for this server: the caller must find one and wake it.
    HandedOver,
}

impl Gate {
    pub(crate) fn new(limit: u32) -> Self {
        Self { word: AtomicU64::new(0), limit: AtomicU32::new(limit) }
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

    /// Changes the limit. Who raises it clears the bits of `full` and offers the room.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// Whether a request would be let in.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn has_room(&self) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        word < WAITING_ONE && word < u64::from(self.limit())
    }

    #[inline]
    fn change(&self, mut new: impl FnMut(Count) -> Option<Count>) -> Result<Count, Count> {
        let mut word = self.word.load(Ordering::SeqCst);
        loop {
            let Some(wanted) = new(Count::of(word)) else { return Err(Count::of(word)) };
            // SeqCst: with the bits of `full` and the number of those who wait for any server it is one order
            // (rule 2; queue, rule 4).
            match self.word.compare_exchange_weak(word, wanted.word(), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(Count::of(word)),
                Err(found) => word = found,
            }
        }
    }

    /// Lets one of those who wait in, if there is room: the caller must find one and wake it.
    pub(crate) fn admit(&self) -> bool {
        let limit = self.limit();
        self.change(|c| {
            let admits = c.waiting > 0 && c.served < limit;
            admits.then(|| Count { served: c.served + 1, waiting: c.waiting - 1 })
        })
        .is_ok()
    }

    /// Gives one of those who wait up: the caller must find one and send it elsewhere.
    pub(crate) fn dismiss(&self) -> bool {
        self.change(|c| (c.waiting > 0).then(|| Count { waiting: c.waiting - 1, ..c })).is_ok()
    }

    /// Lets a request in. Gives how many are served with it, and whether others changed the word meanwhile.
    #[inline]
    pub(crate) fn enter(&self) -> (Option<u32>, bool) {
        let limit = self.limit();
        let enters = |c: Count| c.waiting == 0 && c.served < limit;
        let mut looks = 0;
        let entered = self.change(|c| {
            looks += 1;
            enters(c).then(|| Count { served: c.served + 1, waiting: 0 })
        });
        (entered.ok().map(|before| before.served + 1), looks > 1)
    }

    /// A request ended.
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

/// Those who wait for one server.
pub(crate) struct WaitingFor<'a> {
    pub(crate) gate: &'a Gate,
    /// 0: any number.
    pub(crate) maxqueue: u32,
}

impl Claims for WaitingFor<'_> {
    fn add(&self) -> bool {
        let most = if self.maxqueue == 0 { u32::MAX } else { self.maxqueue };
        self.gate.change(|c| (c.waiting < most).then(|| Count { waiting: c.waiting + 1, ..c })).is_ok()
    }

    fn claim(&self) -> bool {
        self.gate.dismiss()
    }
}

/// How many wait for any server of the backend.
#[derive(Debug)]
pub(crate) struct WaitingForAny(AtomicU64);

impl WaitingForAny {
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Claims for WaitingForAny {
    fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        // Rule 2: who is counted looks at the bits and words after that. Pairs with the fences of
        // `has_any_waiting`.
        fence(Ordering::SeqCst);
        true
    }

    fn claim(&self) -> bool {
        let mut waiting = self.get();
        while waiting > 0 {
            match self.0.compare_exchange_weak(waiting, waiting - 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(found) => waiting = found,
            }
        }
        false
    }
}

/// A bit for each server, by rank of id.
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

/// The gates of a balancer's servers, and what the balancer knows of them.
#[derive(Debug)]
pub(crate) struct Gates {
    gates: Box<[Arc<CachePadded<Gate>>]>,
    ranks: Box<[u16]>,
    /// Servers without room (rule 2).
    pub(crate) full: Bits,
    /// Servers that requests are balanced over, as in the snapshot; written when it is replaced.
    pub(crate) members: Bits,
    pub(crate) waiting: CachePadded<WaitingForAny>,
}

/// What became of a request that wanted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entered {
    pub(crate) entered: bool,
    /// There was room when the server was marked as full, and somebody waits for any server: offer it.
    pub(crate) offer: bool,
    /// Others entered or left at the same time.
    pub(crate) crowded: bool,
}

impl Gates {
    pub(crate) fn new(servers: &Servers) -> Self {
        Self {
            gates: servers.iter().map(|(_, server)| server.state.gate.clone()).collect(),
            ranks: servers.iter().map(|(_, server)| server.rank).collect(),
            full: Bits::new(servers.len()),
            members: Bits::new(servers.len()),
            waiting: CachePadded::new(WaitingForAny(AtomicU64::new(0))),
        }
    }

    #[inline]
    pub(crate) fn of(&self, index: Index) -> &Gate {
        &self.gates[index.get()]
    }

    /// Lets a request in to a server with a limit; rule 2.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn enter(&self, index: Index) -> Entered {
        let gate = self.of(index);
        match gate.enter() {
            (Some(served), crowded) if served < gate.limit() => {
                Entered { entered: true, offer: false, crowded }
            }
            (entered, crowded) => {
                Entered { entered: entered.is_some(), offer: self.mark_full(index), crowded }
            }
        }
    }

    /// Marks the server as full if it is. True: it is not, and somebody waits for any server.
    #[cold]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn mark_full(&self, index: Index) -> bool {
        let rank = self.ranks[index.get()];
        self.full.set(rank);
        fence(Ordering::SeqCst); // pairs with that of `released`
        let room = self.of(index).has_room();
        if room {
            self.full.clear(rank);
        }
        room && self.has_any_waiting()
    }

    /// A place was released: takes the mark off if there is room (rule 2). Whether somebody waits for any
    /// server.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn released(&self, index: Index) -> bool {
        let waiting = self.has_any_waiting(); // its fence pairs with that of `mark_full`, too
        if self.full.is_set(self.ranks[index.get()]) && self.of(index).has_room() {
            self.mark_room(index);
            return self.has_any_waiting();
        }
        waiting
    }

    /// Whether somebody waits for any server, for who has just made room (rule 2).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn has_any_waiting(&self) -> bool {
        // Pairs with the fence in `WaitingForAny::add`: they see the room, or we see them.
        fence(Ordering::SeqCst);
        self.waiting.get() > 0
    }

    /// Rule 2: there is room now.
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn mark_room(&self, index: Index) {
        self.full.clear(self.ranks[index.get()]);
    }

    /// Whether somebody waits for any server and may have this one.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn is_wanted(&self, index: Index) -> bool {
        self.waiting.get() > 0 && self.members.is_set(self.ranks[index.get()])
    }

    /// Sets which servers take part.
    pub(crate) fn set_members(&self, by_rank: &[u64]) {
        for (word, &bits) in by_rank.iter().enumerate() {
            self.members.0[word / 16][word % 16].store(bits, Ordering::SeqCst);
        }
    }
}
