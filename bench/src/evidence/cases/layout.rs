//! R-F6: what other lanes write beside what only the lane uses, or on lines of its own.
//!
//! An operation is what a lane's scheduler does for a wake-up of its own: it changes six words of its run
//! queue. Every fourth one also leaves a word in the inbox of the next lane, as a wake-up from afar does. The
//! lane looks into its inbox once a round of 40. The words are those of `sched::home::Local` and its inbox.

use crate::cases::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_sync::atomic::{AtomicU64, Ordering, OwnedU64};
use manylane_sync::{CachePadded, label};

/// Own wake-ups for each one from afar.
const OWN: u64 = 4;
/// Wake-ups of a round.
const ROUND: u64 = 40;
const WORDS: usize = 6;

pub(in crate::evidence) static CASE: Case = Case {
    name: "layout",
    operation: "change own words; every 4th time write to the next lane's inbox; every 40th empty its own",
    requirement: "R-F6",
    contenders: &[Contender::of::<Lanes<Together>>(Role::Before), Contender::of::<Lanes<Apart>>(Role::After)],
    shape: Shape::PeaksEarly,
    after_is_linear: false,
};

/// A lane's words.
trait Words: Default + Send + Sync + 'static {
    const NAME: &'static str;
    fn own(&self) -> &[OwnedU64; WORDS];
    fn inbox(&self) -> &AtomicU64;
}

/// One line: seven words.
#[derive(Default)]
#[repr(C)]
struct Together {
    inbox: AtomicU64,
    own: [OwnedU64; WORDS],
}

impl Words for Together {
    const NAME: &'static str = "inbox on the line of the own words";
    fn own(&self) -> &[OwnedU64; WORDS] {
        &self.own
    }
    fn inbox(&self) -> &AtomicU64 {
        &self.inbox
    }
}

#[derive(Default)]
struct Apart {
    own: CachePadded<[OwnedU64; WORDS]>,
    inbox: CachePadded<AtomicU64>,
}

impl Words for Apart {
    const NAME: &'static str = "inbox on lines of its own";
    fn own(&self) -> &[OwnedU64; WORDS] {
        &self.own
    }
    fn inbox(&self) -> &AtomicU64 {
        &self.inbox
    }
}

struct Lanes<W>(Box<[CachePadded<W>]>);

impl<W: Words> Variant for Lanes<W> {
    const NAME: &'static str = W::NAME;
    /// The thread, and its operations so far.
    type Own<'a> = (usize, u64);

    fn new(threads: usize) -> Self {
        let lanes: Box<[CachePadded<W>]> = (0..threads).map(|_| CachePadded::new(W::default())).collect();
        label(&*lanes, "words of lanes");
        Self(lanes)
    }

    fn enter(&self, thread: usize) -> (usize, u64) {
        (thread, 0)
    }

    #[inline]
    fn operate(&self, (thread, made): &mut (usize, u64)) {
        let lane = &self.0[*thread];
        for word in lane.own() {
            word.add(1);
        }
        *made += 1;
        if made.is_multiple_of(ROUND) && lane.inbox().load(Ordering::Relaxed) != 0 {
            lane.inbox().swap(0, Ordering::Acquire);
        }
        if made.is_multiple_of(OWN) {
            let next = &self.0[(*thread + 1) % self.0.len()];
            next.inbox().fetch_add(1, Ordering::Release);
        }
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        let counted: u64 = self.0.iter().map(|lane| lane.own()[0].get()).sum();
        if counted == operations { Ok(()) } else { Err(format!("{operations} made, {counted} counted")) }
    }
}
