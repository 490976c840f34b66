//! R-C1: statistics by memory type, modelled on will-it-scale's `lock1`.
//!
//! There, an operation takes and releases an advisory lock on the thread's own file. FreeBSD's kernel
//! allocates and frees two records for it, and counts each in the type's per-CPU statistics. These were an
//! array for the maximum number of CPUs, whose records shared cache lines with their neighbours: 30.4 M
//! operations/s with 48 threads. Aligned per CPU, it was 38.5 M. Here, a lock on the thread's own object
//! stands for the file's.
//!
//! The published figure is one point, +26 % with 48 threads, without a curve. An operation took 1,577 ns per
//! thread (48 / 30.4 M), and 1,248 ns afterwards: the array cost 329 ns per operation. Here it costs about
//! 150 ns with 48 simulated cores, beside about 60 ns for everything else; with 1,248 ns of other work, that
//! would be +12 %.
//!
//! Nothing in this layout makes the old array peak early, neither there nor here. A record of 64 bytes that
//! begins in the middle of a line shares its lines with two neighbours, whatever the number of CPUs. So do
//! the arrays of other types: each is a separate allocation, with neighbours of the same type only. Fetching
//! lines in pairs, or neighbours on another socket, would make the loss larger, but equal for each CPU. So
//! the old variant is slower with two CPUs than with one, and from there grows with their number, behind by a
//! factor. A line that all CPUs write would peak early, but there was none.
//!
//! The simulator charges the statistics and the lock; the allocator's own work costs nothing there.

use super::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_stats::{MemReport, MemType};
use manylane_sync::atomic::OwnedU64;
use manylane_sync::{CachePadded, LockClass, Mutex, label};
use std::hint::black_box;

pub(super) static CASE: Case = Case {
    name: "memtype",
    operation: "lock an own object; allocate, count, count and free two records",
    requirement: "R-C1",
    contenders: &[Contender::of::<MaxCpu>(Role::Before), Contender::of::<PerLane>(Role::After)],
    // +26 % in the source. Each line is shared by only two threads, whatever their number: see above.
    shape: Shape::SlowerBy(1.26),
    after_is_linear: true,
};

static FILE: LockClass = LockClass::new("bench file", LockClass::LEAF);
type Files = Vec<CachePadded<Mutex<u64>>>;

fn files(threads: usize) -> Files {
    (0..threads).map(|_| CachePadded::new(Mutex::new(&FILE, 0))).collect()
}

/// The allocated type: about the size of the kernel's record of an advisory lock.
type Record = [u8; 128];
const SIZE: usize = size_of::<Record>();
const PER_OPERATION: usize = 2;

#[inline]
fn operate(file: &Mutex<u64>, count_alloc: impl Fn(usize), count_free: impl Fn(usize)) {
    *file.lock() += 1;
    let records: [Box<Record>; PER_OPERATION] = std::array::from_fn(|_| {
        count_alloc(SIZE);
        black_box(Box::new([0; SIZE]))
    });
    for record in records {
        count_free(SIZE);
        drop(record);
    }
}

/// The old array: a record for each possible CPU, after a header that leaves all of them unaligned.
struct MaxCpu {
    stats: Box<CachePadded<Unaligned>>,
    files: Files,
}

/// The most CPUs of a FreeBSD kernel at the time.
const MAXCPU: usize = 256;

#[repr(C)]
struct Unaligned {
    /// The part before the array in the same allocation (probe numbers, zone), so that the records begin in
    /// the middle of a line.
    header: [u64; 5],
    records: [Counts; MAXCPU],
}

#[repr(C)]
struct Counts {
    bytes_in: OwnedU64,
    bytes_out: OwnedU64,
    allocs: OwnedU64,
    frees: OwnedU64,
    size_classes: OwnedU64,
    reserved: [u64; 3],
}
const _: () = assert!(size_of::<Counts>() == 64 && std::mem::offset_of!(Unaligned, records) == 40);

impl Variant for MaxCpu {
    const NAME: &'static str = "MAXCPU array";
    /// The thread's number, which stands for its CPU.
    type Own<'a> = usize;

    fn new(threads: usize) -> Self {
        assert!(threads <= MAXCPU, "the array is for {MAXCPU} CPUs");
        let counts = || Counts {
            bytes_in: OwnedU64::new(0),
            bytes_out: OwnedU64::new(0),
            allocs: OwnedU64::new(0),
            frees: OwnedU64::new(0),
            size_classes: OwnedU64::new(0),
            reserved: [0; 3],
        };
        let records = std::array::from_fn(|_| counts());
        let stats = Box::new(CachePadded::new(Unaligned { header: [0; 5], records }));
        label(&**stats, "MAXCPU statistics");
        Self { stats, files: files(threads) }
    }

    fn enter(&self, thread: usize) -> usize {
        black_box((self.stats.header, self.stats.records[thread].reserved));
        thread
    }

    #[inline]
    fn operate(&self, thread: &mut usize) {
        let counts = &self.stats.records[*thread];
        operate(
            &self.files[*thread],
            |size| {
                counts.allocs.add(1);
                counts.bytes_in.add(size as u64);
                counts.size_classes.set(counts.size_classes.get() | 1 << size.ilog2());
            },
            |size| {
                counts.frees.add(1);
                counts.bytes_out.add(size as u64);
            },
        );
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        let sum = |field: fn(&Counts) -> &OwnedU64| self.stats.records.iter().map(|c| field(c).get()).sum();
        counted(
            operations,
            sum(|c| &c.allocs),
            sum(|c| &c.frees),
            sum(|c| &c.bytes_in),
            sum(|c| &c.bytes_out),
        )
    }
}

/// `MemType`: a slot for each existing lane, on its own lines.
struct PerLane {
    stats: &'static MemType,
    files: Files,
}

impl Variant for PerLane {
    const NAME: &'static str = "per-lane MemType";
    type Own<'a> = usize;

    fn new(threads: usize) -> Self {
        // A type lives as long as the process; each run has one, so that its sums are those of the run.
        let stats: &'static MemType = Box::leak(Box::new(MemType::new("bench records")));
        // registers it here, since on a virtual core the registry's `Once` would stop the whole machine
        stats.own();
        Self { stats, files: files(threads) }
    }

    fn enter(&self, thread: usize) -> usize {
        self.stats.own(); // creates the slot before the measurement
        thread
    }

    #[inline]
    fn operate(&self, thread: &mut usize) {
        operate(&self.files[*thread], |size| self.stats.alloc(size), |size| self.stats.free(size));
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        let sum = MemReport::read_cheap(self.stats).sum;
        counted(operations, sum.allocs, sum.frees, sum.bytes_in, sum.bytes_out)
    }
}

fn counted(operations: u64, allocs: u64, frees: u64, bytes_in: u64, bytes_out: u64) -> Result<(), String> {
    let records = operations * PER_OPERATION as u64;
    let bytes = records * SIZE as u64;
    if (allocs, frees, bytes_in, bytes_out) == (records, records, bytes, bytes) {
        return Ok(());
    }
    Err(format!(
        "{records} records were allocated and freed; counted: {allocs} and {frees}, {bytes_in} and \
            {bytes_out} bytes"
    ))
}
