//! How many requests a server serves, where that is limited (`maxconn`).
//!
//! # Protocol
//! 1. A server's *word* holds how many requests it serves and how many wait for it, so that one compare-and-swap decides
//!    on both. A request is let in when fewer than the limit are served and none waits.
//! 2. `full` has a bit for each server (by rank of id) that has no room. It is a hint for who looks for room: the word decides.
//!    Who lets the last one in sets the bit and looks at the word again: if there is room it clears the bit. Who makes room
//!    clears it after that. All are read-modify-writes on the same words, so the one that comes later in a word's order sees the
//!    other: a bit does not stay set on a server with room.
//! 3. A server without a limit has no word to write: nobody counts it but the lanes, each for itself.
//!
//! # Cost
//! Without a limit nothing. With one: a compare-and-swap when a request begins and one when it ends, on a line of the server's
//! own, and a locked operation on a line of `full` when a limit is reached or left.

use crate::servers::Servers;
use crate::spec::Index;
use manylane_sync::CachePadded;
use manylane_sync::atomic::{AtomicU32, AtomicU64, Ordering};

const WAITING_ONE: u64 = 1 << 32;
const SERVED: u64 = WAITING_ONE - 1;

/// A server's word (rule 1), and its limit now.
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU64,
    /// 0: there is none.
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
}

/// What became of a request that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Its place is free. Whether the server was at its limit until now.
    Freed { was_full: bool },
    /// Its place belongs to one of those who wait for this server: the caller must find one and wake it.
    HandedOver,
}

impl Gate {
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn count(&self) -> Count {
        Count::of(self.word.load(Ordering::SeqCst))
    }

    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Whether a request would be let in.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn has_room(&self) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        word < WAITING_ONE && word < u64::from(self.limit())
    }

    #[inline]
    fn change(&self, mut new: impl FnMut(Count) -> Option<u64>) -> Result<Count, Count> {
        let mut word = self.word.load(Ordering::SeqCst);
        loop {
            let Some(wanted) = new(Count::of(word)) else { return Err(Count::of(word)) };
            // SeqCst: with the bits of `full` and the number of those who wait for any server it is one order (rule 2; queue, rule 4).
            match self.word.compare_exchange_weak(word, wanted, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(Count::of(word)),
                Err(found) => word = found,
            }
        }
    }

    /// Lets a request in. Gives how many are served with it.
    #[inline]
    pub(crate) fn enter(&self) -> Option<u32> {
        let limit = self.limit();
        let entered =
            self.change(|c| (c.waiting == 0 && c.served < limit).then_some(u64::from(c.served) + 1));
        entered.ok().map(|before| before.served + 1)
    }

    /// A request ended.
    #[inline]
    pub(crate) fn release(&self) -> Released {
        let limit = self.limit();
        let mut handed = false;
        let before = self
            .change(|c| {
                debug_assert!(c.served > 0, "a request that was not let in was released");
                handed = c.waiting > 0 && c.served <= limit;
                let waiting = u64::from(c.waiting) << 32;
                Some(if handed {
                    waiting - WAITING_ONE | u64::from(c.served)
                } else {
                    waiting | u64::from(c.served.saturating_sub(1))
                })
            })
            .unwrap_or_else(|found| found);
        if handed { Released::HandedOver } else { Released::Freed { was_full: before.served >= limit } }
    }
}

/// Which servers have no room (rule 2).
#[derive(Debug)]
pub(crate) struct Full(Box<[CachePadded<[AtomicU64; 16]>]>);

impl Full {
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

/// The gates of all servers of a backend.
#[derive(Debug)]
pub(crate) struct Gates {
    gates: Box<[CachePadded<Gate>]>,
    ranks: Box<[u16]>,
    pub(crate) full: Full,
}

impl Gates {
    pub(crate) fn new(servers: &Servers) -> Self {
        let gate =
            |maxconn| CachePadded::new(Gate { word: AtomicU64::new(0), limit: AtomicU32::new(maxconn) });
        Self {
            gates: servers.iter().map(|(_, server)| gate(server.spec.maxconn)).collect(),
            ranks: servers.iter().map(|(_, server)| server.rank).collect(),
            full: Full::new(servers.len()),
        }
    }

    #[inline]
    pub(crate) fn of(&self, index: Index) -> &Gate {
        &self.gates[index.get()]
    }

    /// Lets a request in to a server with a limit; rule 2.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn enter(&self, index: Index) -> bool {
        let gate = self.of(index);
        match gate.enter() {
            Some(served) if served < gate.limit() => true,
            entered => {
                self.mark_full(index);
                entered.is_some()
            }
        }
    }

    #[cold]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn mark_full(&self, index: Index) {
        let rank = self.ranks[index.get()];
        self.full.set(rank);
        if self.of(index).has_room() {
            self.full.clear(rank);
        }
    }

    /// Rule 2: there is room now.
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn mark_room(&self, index: Index) {
        self.full.clear(self.ranks[index.get()]);
    }
}
