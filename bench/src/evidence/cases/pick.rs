//! R-G2: a server is picked under a lock, or without one. An operation is a request: its server is picked and
//! counted, and counted down when it ends. 20 microseconds of other work stand for the rest of the request.
//!
//! The variants with a lock are what was replaced: `first` walks the servers in order under the lock of the
//! backend, `leastconn` keeps them in a tree by their numbers of requests, and moves one at each begin and
//! end.

use super::work;
use crate::cases::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_balance::{Algorithm, Balancer, Index, Input, Options, ServerSpec, Servers};
use manylane_sched::Time;
use manylane_sync::atomic::OwnedU64;
use manylane_sync::{CachePadded, LockClass, Mutex, Reader, label};
use std::collections::BTreeSet;

/// Other work of a request.
const WORK_NS: u64 = 20_000;
/// Requests of a lane at a time.
const LIVE: usize = 8;
/// `maxconn` of each server, where it has one: high enough that requests need not wait.
const MAXCONN: u32 = 1_000;
/// Requests in a millisecond of the clock that the balancer sees, a lane's at this work.
const PER_MS: u64 = 40;

macro_rules! case {
    ($static:ident, $name:literal, $words:literal, $locked:ident, $ours:ty, $servers:literal) => {
        pub(in crate::evidence) static $static: Case = Case {
            name: $name,
            operation: concat!(
                $words,
                " among ",
                stringify!($servers),
                " servers, beside 20 us of other work"
            ),
            requirement: "R-G2",
            contenders: &[
                Contender::of::<Picks<$locked<$servers>>>(Role::Before),
                Contender::of::<Picks<$ours>>(Role::After),
            ],
            shape: Shape::PeaksEarly,
            after_is_linear: false,
        };
    };
}

case!(FIRST_1, "first-1", "balance first", FirstLocked, First<1, 0>, 1);
case!(FIRST_8, "first-8", "balance first", FirstLocked, First<8, 0>, 8);
case!(FIRST_500, "first-500", "balance first", FirstLocked, First<500, 0>, 500);
case!(FIRST_LIMITED, "first-8-maxconn", "balance first, maxconn 1000,", FirstLocked, First<8, MAXCONN>, 8);
case!(LEASTCONN_1, "leastconn-1", "balance leastconn", LeastConnLocked, LeastConn<1>, 1);
case!(LEASTCONN_8, "leastconn-8", "balance leastconn", LeastConnLocked, LeastConn<8>, 8);
case!(LEASTCONN_500, "leastconn-500", "balance leastconn", LeastConnLocked, LeastConn<500>, 500);

static CLASS: LockClass = LockClass::new("evidence servers", LockClass::LEAF);

/// A way to pick and to count.
trait Picking: Send + Sync + 'static {
    const NAME: &'static str;
    type Server: Copy;
    fn new(threads: usize) -> Self;
    /// Begins a request.
    fn begin(&self, reader: &Reader, made: u64) -> Self::Server;
    fn end(&self, server: Self::Server);
}

/// The lock, and the requests of each server on a line of its own.
struct FirstLocked<const SERVERS: usize>(Box<CachePadded<Mutex<()>>>, Box<[CachePadded<OwnedU64>]>);

impl<const SERVERS: usize> Picking for FirstLocked<SERVERS> {
    const NAME: &'static str = "first under a lock";
    type Server = usize;

    fn new(_: usize) -> Self {
        let lock = Box::new(CachePadded::new(Mutex::new(&CLASS, ())));
        label(&**lock, "lock of the backend");
        Self(lock, (0..SERVERS).map(|_| CachePadded::new(OwnedU64::new(0))).collect())
    }

    fn begin(&self, _: &Reader, _: u64) -> usize {
        let _held = self.0.lock();
        let first = self.1.iter().position(|served| served.get() < MAXCONN.into()).expect("there is room");
        self.1[first].add(1);
        first
    }

    fn end(&self, server: usize) {
        let _held = self.0.lock();
        self.1[server].add(u64::MAX); // one less
    }
}

/// Servers by requests and number, and the requests of each.
struct Tree(BTreeSet<(u32, usize)>, Vec<u32>);

struct LeastConnLocked<const SERVERS: usize>(Box<CachePadded<Mutex<Tree>>>);

impl<const SERVERS: usize> LeastConnLocked<SERVERS> {
    fn moves(tree: &mut Tree, server: usize, to: u32) {
        let from = std::mem::replace(&mut tree.1[server], to);
        tree.0.remove(&(from, server));
        tree.0.insert((to, server));
    }
}

impl<const SERVERS: usize> Picking for LeastConnLocked<SERVERS> {
    const NAME: &'static str = "leastconn under a lock";
    type Server = usize;

    fn new(_: usize) -> Self {
        let tree = Tree((0..SERVERS).map(|server| (0, server)).collect(), vec![0; SERVERS]);
        let all = Box::new(CachePadded::new(Mutex::new(&CLASS, tree)));
        label(&**all, "lock of the backend");
        Self(all)
    }

    fn begin(&self, _: &Reader, _: u64) -> usize {
        let mut tree = self.0.lock();
        let &(served, server) = tree.0.first().expect("there are servers");
        Self::moves(&mut tree, server, served + 1);
        server
    }

    fn end(&self, server: usize) {
        let mut tree = self.0.lock();
        let served = tree.1[server];
        Self::moves(&mut tree, server, served - 1);
    }
}

fn balancer(algorithm: Algorithm, servers: usize, maxconn: u32, threads: usize) -> Balancer {
    let spec = |id: usize| ServerSpec { maxconn, ..ServerSpec::new(format!("s{id}"), id as u32) };
    let servers = Servers::new((1..=servers).map(spec)).expect("names and ids differ");
    Balancer::new(servers, algorithm, Options { lanes: threads, ..Options::default() })
}

fn begin(balancer: &Balancer, reader: &Reader, made: u64) -> Index {
    let now = Time::from_millis(1_000_000 + made / PER_MS);
    loop {
        let picked = balancer.pick(reader, &Input::new(now)).expect("there is room");
        if balancer.take(picked, now).is_ok() {
            return picked;
        }
        manylane_sync::relax(); // another lane was faster
    }
}

/// A server with a limit is counted on the server's line, which all lanes that choose it write.
struct First<const SERVERS: usize, const LIMIT: u32>(Balancer);

impl<const SERVERS: usize, const LIMIT: u32> Picking for First<SERVERS, LIMIT> {
    const NAME: &'static str = "first without a lock";
    type Server = Index;

    fn new(threads: usize) -> Self {
        Self(balancer(Algorithm::First, SERVERS, LIMIT, threads))
    }

    fn begin(&self, reader: &Reader, made: u64) -> Index {
        begin(&self.0, reader, made)
    }

    fn end(&self, server: Index) {
        self.0.release(server);
    }
}

struct LeastConn<const SERVERS: usize>(Balancer);

impl<const SERVERS: usize> Picking for LeastConn<SERVERS> {
    const NAME: &'static str = "leastconn without a lock";
    type Server = Index;

    fn new(threads: usize) -> Self {
        Self(balancer(Algorithm::LeastConn, SERVERS, 0, threads))
    }

    fn begin(&self, reader: &Reader, made: u64) -> Index {
        begin(&self.0, reader, made)
    }

    fn end(&self, server: Index) {
        self.0.release(server);
    }
}

struct Picks<P> {
    picking: P,
    made: Box<[CachePadded<OwnedU64>]>,
}

/// Requests of a lane, the oldest at `made` modulo their number.
struct Own<'a, P: Picking> {
    reader: Reader,
    picking: &'a P,
    live: Vec<P::Server>,
    made: u64,
    counted: &'a OwnedU64,
}

impl<P: Picking> Drop for Own<'_, P> {
    fn drop(&mut self) {
        self.live.drain(..).for_each(|server| self.picking.end(server));
    }
}

impl<P: Picking> Variant for Picks<P> {
    const NAME: &'static str = P::NAME;
    type Own<'a> = Own<'a, P>;

    fn new(threads: usize) -> Self {
        let made = (0..threads).map(|_| CachePadded::new(OwnedU64::new(0))).collect();
        Self { picking: P::new(threads), made }
    }

    fn enter(&self, thread: usize) -> Own<'_, P> {
        let reader = Reader::new();
        let live = (0..LIVE).map(|_| self.picking.begin(&reader, 0)).collect();
        Own { reader, picking: &self.picking, live, made: 0, counted: &self.made[thread] }
    }

    #[inline]
    fn operate(&self, own: &mut Own<'_, P>) {
        work(WORK_NS);
        let oldest = own.made as usize % LIVE;
        own.picking.end(own.live[oldest]);
        own.live[oldest] = own.picking.begin(&own.reader, own.made);
        own.made += 1;
        own.counted.add(1);
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        let made: u64 = self.made.iter().map(|made| made.get()).sum();
        if made == operations {
            Ok(())
        } else {
            Err(format!("{operations} requests were made, {made} counted"))
        }
    }
}
