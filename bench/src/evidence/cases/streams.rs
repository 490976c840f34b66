//! R-G3: the list of all streams. An operation is a request of the source, 11.4 microseconds (350,000 a
//! second by 4 threads), that enters the list, and leaves it when the next one has come.
//!
//! The variants are those of the source: one list under a lock, a list for each thread with its own lock, and
//! a list for each thread without a lock. Lists are doubly linked, as there: a stream that enters or leaves
//! writes its neighbours.

use super::work;
use crate::cases::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_sync::atomic::{AtomicU32, Ordering, OwnedU64};
use manylane_sync::{CachePadded, LockClass, Mutex, label};

/// Work of a request.
const WORK_NS: u64 = 11_400;
/// Streams of a thread at a time.
const LIVE: usize = 16;

pub(in crate::evidence) static CASE: Case = Case {
    name: "streams",
    operation: "a stream enters the list and one leaves it, beside 11.4 us of other work",
    requirement: "R-G3",
    contenders: &[
        Contender::of::<Streams<Global>>(Role::Before),
        Contender::of::<Streams<Locked>>(Role::Other),
        Contender::of::<Streams<Plain>>(Role::After),
    ],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

static CLASS: LockClass = LockClass::new("evidence streams", LockClass::LEAF);

/// A stream's links, by index. The first node of a list is its head.
#[derive(Default)]
struct Node {
    next: AtomicU32,
    prev: AtomicU32,
}

struct Nodes(Box<[CachePadded<Node>]>);

impl Nodes {
    fn next(&self, node: u32) -> u32 {
        self.0[node as usize].next.load(Ordering::Relaxed)
    }

    fn link(&self, first: u32, second: u32) {
        self.0[first as usize].next.store(second, Ordering::Relaxed);
        self.0[second as usize].prev.store(first, Ordering::Relaxed);
    }

    fn enter(&self, head: u32, node: u32) {
        let last = self.0[head as usize].prev.load(Ordering::Relaxed);
        self.link(last, node);
        self.link(node, head);
    }

    fn leave(&self, node: u32) {
        let prev = self.0[node as usize].prev.load(Ordering::Relaxed);
        self.link(prev, self.next(node));
    }
}

trait Listing: Send + Sync + 'static {
    const NAME: &'static str;
    /// The list of a thread.
    fn list(thread: usize) -> usize;
    fn locked(lock: &Mutex<()>, change: impl FnOnce());
}

struct Global;

impl Listing for Global {
    const NAME: &'static str = "one list under a lock";
    fn list(_: usize) -> usize {
        0
    }
    #[inline]
    fn locked(lock: &Mutex<()>, change: impl FnOnce()) {
        let _held = lock.lock();
        change();
    }
}

struct Locked;

impl Listing for Locked {
    const NAME: &'static str = "a list a lane, each under a lock";
    fn list(thread: usize) -> usize {
        thread
    }
    #[inline]
    fn locked(lock: &Mutex<()>, change: impl FnOnce()) {
        let _held = lock.lock();
        change();
    }
}

struct Plain;

impl Listing for Plain {
    const NAME: &'static str = "a list a lane, no lock";
    fn list(thread: usize) -> usize {
        thread
    }
    #[inline]
    fn locked(_: &Mutex<()>, change: impl FnOnce()) {
        change();
    }
}

struct Streams<L> {
    locks: Box<[CachePadded<Mutex<()>>]>,
    nodes: Nodes,
    made: Box<[CachePadded<OwnedU64>]>,
    kind: std::marker::PhantomData<fn(L)>,
}

impl<L: Listing> Streams<L> {
    fn threads(&self) -> usize {
        self.locks.len()
    }

    /// The node of a thread's stream; heads are before all streams.
    fn node(&self, thread: usize, stream: usize) -> u32 {
        (self.threads() + thread * LIVE + stream) as u32
    }
}

impl<L: Listing> Variant for Streams<L> {
    const NAME: &'static str = L::NAME;
    /// The thread, and the stream that leaves next.
    type Own<'a> = (usize, usize);

    fn new(threads: usize) -> Self {
        let nodes: Box<[CachePadded<Node>]> =
            (0..threads * (1 + LIVE)).map(|_| CachePadded::default()).collect();
        label(&*nodes, "links of streams");
        let nodes = Nodes(nodes);
        (0..threads as u32).for_each(|head| nodes.link(head, head));
        let locks: Box<[_]> = (0..threads).map(|_| CachePadded::new(Mutex::new(&CLASS, ()))).collect();
        label(&*locks, "locks of lists");
        let made = (0..threads).map(|_| CachePadded::new(OwnedU64::new(0))).collect();
        Self { locks, nodes, made, kind: std::marker::PhantomData }
    }

    fn enter(&self, thread: usize) -> (usize, usize) {
        let list = L::list(thread);
        L::locked(&self.locks[list], || {
            (0..LIVE).for_each(|stream| self.nodes.enter(list as u32, self.node(thread, stream)));
        });
        (thread, 0)
    }

    #[inline]
    fn operate(&self, (thread, oldest): &mut (usize, usize)) {
        work(WORK_NS);
        let list = L::list(*thread);
        let node = self.node(*thread, *oldest);
        L::locked(&self.locks[list], || self.nodes.leave(node));
        L::locked(&self.locks[list], || self.nodes.enter(list as u32, node));
        *oldest = (*oldest + 1) % LIVE;
        self.made[*thread].add(1);
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        let made: u64 = self.made.iter().map(|made| made.get()).sum();
        let mut listed = 0;
        for head in 0..self.threads() as u32 {
            let mut node = self.nodes.next(head);
            while node != head && listed <= self.threads() * LIVE {
                listed += 1;
                node = self.nodes.next(node);
            }
        }
        if made == operations && listed == self.threads() * LIVE {
            return Ok(());
        }
        Err(format!("{operations} streams came, {made} were counted, {listed} are in the lists"))
    }
}
