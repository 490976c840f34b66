//! R-F1, R-F2: what the lanes' schedulers might share. An operation is a request: 8 tasks are woken and
//! polled on the own lane, beside 22 microseconds of other work, as each of 16 threads had at 722,000
//! requests/s.
//!
//! The source had one tick for all threads, which gave each woken task its position, and one number of queued
//! tasks. The variants add their cost to the scheduler that ships: for the tick, a locked add at each
//! wake-up; for the length, one at each wake-up and one at each poll.

use super::work;
use crate::cases::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_sched::{Class, Config, Lane, TaskKind, Time};
use manylane_sync::atomic::{AtomicU64, Ordering, OwnedU64};
use manylane_sync::{Arc, CachePadded, label};
use std::future::poll_fn;
use std::task::Poll;

/// Wake-ups of a request: for its head, its server and its answer, on both sides.
const WAKES: usize = 8;
/// Other work of a request.
const WORK_NS: u64 = 22_000;

pub(in crate::evidence) static CASE: Case = Case {
    name: "tick",
    operation: "wake and poll 8 tasks of the own lane, beside 22 us of other work",
    requirement: "R-F1",
    contenders: &[
        Contender::of::<Lanes<Tick>>(Role::Before),
        Contender::of::<Lanes<Length>>(Role::Other),
        Contender::of::<Lanes<Nothing>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

static KIND: TaskKind = TaskKind::new("evidence");

/// What all lanes write.
trait Shared: Send + Sync + 'static {
    const NAME: &'static str;
    fn woken(_: &AtomicU64) {}
    fn polled(_: &AtomicU64) {}
}

struct Tick;

impl Shared for Tick {
    const NAME: &'static str = "shared tick";
    #[inline]
    fn woken(word: &AtomicU64) {
        word.fetch_add(1, Ordering::Relaxed);
    }
}

struct Length;

impl Shared for Length {
    const NAME: &'static str = "shared run-queue length";
    #[inline]
    fn woken(word: &AtomicU64) {
        word.fetch_add(1, Ordering::Relaxed);
    }
    #[inline]
    fn polled(word: &AtomicU64) {
        word.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Nothing;

impl Shared for Nothing {
    const NAME: &'static str = "nothing shared";
}

struct Lanes<S> {
    word: Arc<CachePadded<AtomicU64>>,
    polls: Box<[CachePadded<OwnedU64>]>,
    kind: std::marker::PhantomData<fn(S)>,
}

impl<S: Shared> Variant for Lanes<S> {
    const NAME: &'static str = S::NAME;
    type Own<'a> = (Lane, &'a OwnedU64);

    fn new(threads: usize) -> Self {
        let word = Arc::new(CachePadded::new(AtomicU64::new(0)));
        label(&**word, "shared word");
        let polls = (0..threads).map(|_| CachePadded::new(OwnedU64::new(0))).collect();
        Self { word, polls, kind: std::marker::PhantomData }
    }

    fn enter(&self, thread: usize) -> Self::Own<'_> {
        let mut lane = Lane::new(Config::new().clock(|| Time::ZERO).runqueue_depth(WAKES as u32))
            .expect("the thread has no other lane");
        for _ in 0..WAKES {
            let word = self.word.clone();
            S::woken(&word);
            let endless = poll_fn(move |context| {
                S::polled(&word);
                S::woken(&word);
                context.waker().wake_by_ref();
                Poll::<()>::Pending
            });
            lane.here().spawn(&KIND, Class::Normal, endless).expect("there is memory for a task");
        }
        lane.round(Time::ZERO);
        (lane, &self.polls[thread])
    }

    #[inline]
    fn operate(&self, (lane, polls): &mut Self::Own<'_>) {
        work(WORK_NS);
        polls.add(u64::from(lane.round(Time::ZERO).polled));
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        let polls: u64 = self.polls.iter().map(|polls| polls.get()).sum();
        if polls == operations * WAKES as u64 {
            return Ok(());
        }
        Err(format!("{operations} rounds polled {polls} tasks"))
    }
}
