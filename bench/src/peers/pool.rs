//! Taking a buffer of 16 KiB and returning it, on one lane: immediately, and with 64 in use.

use super::allocators::{Allocator, Block, Malloc, Mimalloc};
#[cfg(feature = "allocators")]
use super::allocators::{Jemalloc, Snmalloc};
use super::table::NO_POOL;
use super::{Contest, Contestant, Target};
use manylane_pool::{BytePool, PooledBytes};
use opool::{LocalPool, PoolAllocator};
use std::cell::Cell;
use std::hint::black_box;
use std::mem::MaybeUninit;

/// Bytes of a buffer.
pub(super) const SIZE: usize = 16 << 10;
/// Buffers in use in the second row: like 64 active connections.
const LIVE: usize = 64;
const TARGET: Target = Target::new(3.0, "opool local", 3.7);

/// A buffer that is written to before it is returned.
pub(super) trait Buffer {
    /// Writes its first byte.
    fn touch(&mut self);
}

impl Buffer for PooledBytes {
    #[inline(always)]
    fn touch(&mut self) {
        self.as_uninit()[0] = black_box(MaybeUninit::new(1));
    }
}

impl<A: Allocator> Buffer for Block<A, SIZE> {
    #[inline(always)]
    fn touch(&mut self) {
        Block::touch(self, 1);
    }
}

/// The content of object pools: a pointer, since nobody would move 16 KiB.
pub(super) type Boxed = Box<[u8; SIZE]>;

pub(super) fn boxed() -> Boxed {
    Box::new([0; SIZE])
}

struct Boxes;
impl PoolAllocator<Boxed> for Boxes {
    fn allocate(&self) -> Boxed {
        boxed()
    }
}

impl Buffer for opool::RefLocalGuard<'_, Boxes, Boxed> {
    #[inline(always)]
    fn touch(&mut self) {
        self[0] = black_box(1);
    }
}

impl Buffer for object_pool::Reusable<'_, Boxed> {
    #[inline(always)]
    fn touch(&mut self) {
        self[0] = black_box(1);
    }
}

/// A buffer that is neither allocated nor freed, in a handle of the same size as ours.
struct Lent {
    at: &'static Cell<u8>,
    _of: &'static Boxes,
}

impl Buffer for Lent {
    #[inline(always)]
    fn touch(&mut self) {
        self.at.set(black_box(1));
    }
}

pub(super) const CONTESTS: &[Contest] = &[
    Contest {
        operation: "pool: 16 KiB alloc + free, own lane",
        target: Some(TARGET),
        contestants: || contestants(false),
    },
    Contest {
        operation: "pool: 16 KiB alloc + free, own lane, 64 live",
        target: Some(TARGET),
        contestants: || contestants(true),
    },
];

fn contestants(live: bool) -> Vec<Contestant> {
    let ours = BytePool::new("peers", SIZE).expect("16 KiB is a size");
    // Pools live as long as the process, as in a program.
    let local: &'static LocalPool<Boxes, Boxed> =
        Box::leak(Box::new(LocalPool::new_prefilled(2 * LIVE, Boxes)));
    let objects: &'static object_pool::Pool<Boxed> =
        Box::leak(Box::new(object_pool::Pool::new(2 * LIVE, boxed)));
    let lent: &'static Cell<u8> = Box::leak(Box::new(Cell::new(0)));
    #[allow(unused_mut, reason = "without the feature there are no more")]
    let mut all = vec![
        contestant("manylane BytePool", true, live, move || ours.alloc().expect("there is memory")),
        contestant("opool local", false, live, || local.get()),
        contestant(Mimalloc::NAME, false, live, Block::<Mimalloc, SIZE>::new),
        contestant("object-pool", false, live, || objects.pull(boxed)),
        contestant(Malloc::NAME, false, live, Block::<Malloc, SIZE>::new),
        contestant(NO_POOL, false, live, move || Lent { at: lent, _of: &Boxes }),
    ];
    #[cfg(feature = "allocators")]
    all.extend([
        contestant(Snmalloc::NAME, false, live, Block::<Snmalloc, SIZE>::new),
        contestant(Jemalloc::NAME, false, live, Block::<Jemalloc, SIZE>::new),
    ]);
    all
}

fn contestant<B: Buffer + 'static>(
    name: &str,
    ours: bool,
    live: bool,
    mut take: impl FnMut() -> B + 'static,
) -> Contestant {
    let work: Box<dyn FnMut(u64)> = if live {
        let mut buffers: Vec<B> = Vec::with_capacity(LIVE);
        Box::new(move |n| {
            // Not before the first sample: under callgrind, only the counted contestant may run.
            while buffers.len() < LIVE {
                buffers.push(take());
            }
            for i in 0..n {
                let mut buffer = take();
                buffer.touch();
                buffers[i as usize % LIVE] = buffer; // the oldest is returned
            }
            black_box(&mut buffers);
        })
    } else {
        Box::new(move |n| {
            for _ in 0..n {
                let mut buffer = take();
                buffer.touch();
                black_box(&mut buffer);
            }
        })
    };
    if ours { Contestant::ours(name, work) } else { Contestant::peer(name, work) }
}
