//! Rules for single words that threads share: R-E2, R-E4 and R-E5.

#![allow(unsafe_code)] // unaligned words (ARCHITECTURE.md)

use super::work;
use crate::cases::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_sync::atomic::{AtomicU64, Ordering, OwnedU64};
use manylane_sync::{Backoff, CachePadded, label, relax};
use std::marker::PhantomData;

/// R-E2: a word that all threads increment; a failed try is repeated at once, after a pause, or after a
/// back-off.
pub(in crate::evidence) static RELAX: Case = Case {
    name: "relax",
    operation: "read a word, compute for 10 ns, exchange it unless it has changed; again if it has",
    requirement: "R-E2",
    contenders: &[
        Contender::of::<Words<AtOnce>>(Role::Before),
        Contender::of::<Words<Relaxing>>(Role::Other),
        Contender::of::<Words<BackingOff>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: false,
};

/// R-E4: the contended word is read before it is exchanged, or exchanged at once.
pub(in crate::evidence) static READ_FIRST: Case = Case {
    name: "read-first",
    operation: "exchange a word that all threads exchange, beside 200 ns of other work",
    requirement: "R-E4",
    contenders: &[
        Contender::of::<Words<ReadFirst>>(Role::Before),
        Contender::of::<Words<Exchange>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: false,
};

/// R-E5: a word that begins in one line and ends in the next, or is naturally aligned. On the real machine
/// the unaligned word lies within a line, since processors trap what does not.
pub(in crate::evidence) static ALIGNED: Case = Case {
    name: "aligned",
    operation: "a locked add to an own word",
    requirement: "R-E5",
    contenders: &[
        Contender::of::<Addresses<UNALIGNED>>(Role::Before),
        Contender::of::<Addresses<0>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

/// Offset of the unaligned word in its two lines.
const UNALIGNED: usize = if cfg!(manylane_sim) { 60 } else { 4 };

trait Operation: Send + Sync + 'static {
    const NAME: &'static str;
    fn operate(word: &AtomicU64);
}

/// Increments the word, and calls `again` after each failed try.
#[inline]
fn count_up(word: &AtomicU64, mut again: impl FnMut()) {
    let mut found = word.load(Ordering::Relaxed);
    loop {
        work(10);
        match word.compare_exchange_weak(found, found + 1, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => found = now,
        }
        again();
    }
}

struct AtOnce;

impl Operation for AtOnce {
    const NAME: &'static str = "tries again at once";
    fn operate(word: &AtomicU64) {
        count_up(word, || ());
    }
}

struct Relaxing;

impl Operation for Relaxing {
    const NAME: &'static str = "relaxes";
    fn operate(word: &AtomicU64) {
        count_up(word, relax);
    }
}

struct BackingOff;

impl Operation for BackingOff {
    const NAME: &'static str = "backs off";
    fn operate(word: &AtomicU64) {
        let mut backoff = Backoff::new();
        count_up(word, || backoff.wait());
    }
}

struct ReadFirst;

impl Operation for ReadFirst {
    const NAME: &'static str = "reads first";
    fn operate(word: &AtomicU64) {
        work(200);
        let found = word.load(Ordering::Relaxed);
        work(5); // what is decided by the value
        word.swap(found.wrapping_add(1), Ordering::AcqRel);
    }
}

struct Exchange;

impl Operation for Exchange {
    const NAME: &'static str = "exchanges at once";
    fn operate(word: &AtomicU64) {
        work(200);
        word.swap(1, Ordering::AcqRel);
        work(5);
    }
}

struct Words<O>(Box<CachePadded<AtomicU64>>, PhantomData<fn(O)>);

impl<O: Operation> Variant for Words<O> {
    const NAME: &'static str = O::NAME;
    type Own<'a> = ();

    fn new(_: usize) -> Self {
        let word = Box::new(CachePadded::new(AtomicU64::new(0)));
        label(&**word, "shared word");
        Self(word, PhantomData)
    }

    fn enter(&self, _: usize) {}

    #[inline]
    fn operate(&self, (): &mut ()) {
        O::operate(&self.0);
    }
}

/// Two lines of a thread.
#[repr(C, align(128))]
struct Lines(std::cell::UnsafeCell<[u8; 128]>);

/// A word of each thread at `OFFSET` of its lines.
struct Addresses<const OFFSET: usize> {
    lines: Box<[Lines]>,
    made: Box<[CachePadded<OwnedU64>]>,
}

// SAFETY: only locked instructions of the thread that owns a word reach it while threads run.
unsafe impl<const OFFSET: usize> Sync for Addresses<OFFSET> {}

impl<const OFFSET: usize> Variant for Addresses<OFFSET> {
    const NAME: &'static str = if OFFSET == 0 { "aligned" } else { "unaligned" };
    type Own<'a> = (usize, &'a OwnedU64);

    fn new(threads: usize) -> Self {
        let lines = (0..threads).map(|_| Lines(std::cell::UnsafeCell::new([0; 128]))).collect();
        Self { lines, made: (0..threads).map(|_| CachePadded::new(OwnedU64::new(0))).collect() }
    }

    fn enter(&self, thread: usize) -> Self::Own<'_> {
        (self.lines[thread].0.get().expose_provenance() + OFFSET, &self.made[thread])
    }

    #[inline]
    fn operate(&self, (address, made): &mut Self::Own<'_>) {
        made.add(1);
        #[cfg(manylane_sim)]
        manylane_sim::access(*address, 8, manylane_sim::Access::Rmw, std::panic::Location::caller());
        #[cfg(all(not(manylane_sim), target_arch = "x86_64"))]
        // SAFETY: the eight bytes lie in the thread's own lines, which live as long as `self`.
        unsafe {
            std::arch::asm!("lock add qword ptr [{0}], 1", in(reg) *address, options(nostack));
        }
        #[cfg(all(not(manylane_sim), not(target_arch = "x86_64")))]
        let _ = address; // without unaligned atomics there is nothing to compare
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        let made: u64 = self.made.iter().map(|made| made.get()).sum();
        if made == operations { Ok(()) } else { Err(format!("{operations} adds, {made} counted")) }
    }
}
