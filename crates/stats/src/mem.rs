//! Memory by type: the use of each type and lane (R-C1, R-C2).
//!
//! The design is that of FreeBSD's `malloc_type_stats`: a slot for each lane with allocations, frees, bytes
//! and the size classes seen. One lane may free what another allocated, so a lane's own difference may be
//! negative; only the sum over the lanes is meaningful.

use crate::sites::CallSite;
#[cfg(feature = "call-sites")]
use crate::sites::SiteTable;
use crate::tally::Tally;
use manylane_sync::{LaneId, PerLane, lane};
use std::ops::{Add, AddAssign};
#[cfg(feature = "call-sites")]
use std::panic::Location;
use std::sync::Once;

/// Counts of a slot, or of a sum of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemCounts {
    /// Objects allocated.
    pub allocs: u64,
    /// Objects freed.
    pub frees: u64,
    /// Bytes of the objects allocated.
    pub bytes_in: u64,
    /// Bytes of the objects freed.
    pub bytes_out: u64,
    /// Bit `k` is set once an object of more than 2^(k-1) and at most 2^k bytes was allocated.
    pub size_classes: u64,
}

impl MemCounts {
    /// Returns the number of objects allocated and not freed. Negative for a lane that frees objects of other
    /// lanes.
    pub fn live(&self) -> i64 {
        self.allocs.wrapping_sub(self.frees).cast_signed()
    }

    /// Returns the number of bytes allocated and not freed; may be negative as [`live`](Self::live).
    pub fn live_bytes(&self) -> i64 {
        self.bytes_in.wrapping_sub(self.bytes_out).cast_signed()
    }

    /// Makes counts for objects that all have `size` bytes; the bytes follow from the numbers.
    pub fn of_one_size(size: usize, allocs: u64, frees: u64) -> Self {
        Self {
            allocs,
            frees,
            bytes_in: allocs.wrapping_mul(size as u64),
            bytes_out: frees.wrapping_mul(size as u64),
            size_classes: if allocs == 0 { 0 } else { Self::size_class(size) },
        }
    }

    /// Returns the bit of `size` in [`size_classes`](Self::size_classes).
    pub const fn size_class(size: usize) -> u64 {
        // 0 and 1 share class 0; more than 2^63 bytes are impossible.
        1 << ((usize::BITS - size.saturating_sub(1).leading_zeros()) % u64::BITS)
    }
}

impl Add for MemCounts {
    type Output = Self;
    #[allow(clippy::suspicious_arithmetic_impl)] // size classes are a set: their sum is the union
    fn add(self, other: Self) -> Self {
        Self {
            allocs: self.allocs.wrapping_add(other.allocs),
            frees: self.frees.wrapping_add(other.frees),
            bytes_in: self.bytes_in.wrapping_add(other.bytes_in),
            bytes_out: self.bytes_out.wrapping_add(other.bytes_out),
            size_classes: self.size_classes | other.size_classes,
        }
    }
}

impl AddAssign for MemCounts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for MemCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Self::add)
    }
}

/// One lane's counts of objects of any size.
///
/// Only the owning lane calls `alloc` and `free`; any thread reads. It may be a field of an existing slot
/// ([`MemSource`]), so that counting needs no lookup of its own.
///
/// # Cost
/// `alloc`: two additions and a test of one bit; `free`: two additions. About 1 ns together.
#[derive(Debug, Default)]
pub struct MemSlot {
    allocs: Tally,
    frees: Tally,
    bytes_in: Tally,
    bytes_out: Tally,
    size_classes: Tally,
    #[cfg(feature = "call-sites")]
    sites: SiteTable,
}

impl MemSlot {
    /// Creates a slot without counts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts an object of `size` bytes that the calling lane allocates. Call it before passing the object
    /// on.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub fn alloc(&self, size: usize) {
        self.allocs.add(1);
        self.bytes_in.add(size as u64);
        let class = MemCounts::size_class(size);
        let classes = self.size_classes.get();
        if classes & class == 0 {
            self.size_classes.set(classes | class);
        }
        #[cfg(feature = "call-sites")]
        self.sites.record(Location::caller(), size);
    }

    /// Counts an object of `size` bytes that the calling lane frees, on whichever lane it was allocated.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn free(&self, size: usize) {
        self.frees.add(1);
        self.bytes_out.add(size as u64);
    }

    /// Returns the counts, on any thread; reads frees before allocations (rule 3).
    pub fn counts(&self) -> MemCounts {
        let (frees, bytes_out) = (self.frees.get(), self.bytes_out.get());
        MemCounts {
            frees,
            bytes_out,
            allocs: self.allocs.get(),
            bytes_in: self.bytes_in.get(),
            size_classes: self.size_classes.get(),
        }
    }

    /// Calls `each` with the allocations of each call site here. Does nothing without the feature
    /// `call-sites`.
    pub fn visit_sites(&self, each: &mut dyn FnMut(CallSite)) {
        #[cfg(feature = "call-sites")]
        self.sites.visit(each);
        let _ = each;
    }
}

/// A source of memory counts by lane for the report: a [`MemType`] or a pool.
pub trait MemSource: Sync {
    /// Returns the name for reports.
    fn name(&self) -> &str;

    /// Calls `each` with the counts of every lane that has a slot, in order of lane. For each slot it reads
    /// frees before allocations, with acquire, as [`MemSlot::counts`] and [`Tally::get`] do (rule 3).
    fn visit(&self, each: &mut dyn FnMut(LaneId, MemCounts));

    /// Calls `each` with every lane's call sites (R-C3).
    fn visit_sites(&self, each: &mut dyn FnMut(CallSite)) {
        let _ = each;
    }
}

/// A type of memory: a name, and a slot for each lane that allocated or freed memory of the type.
///
/// It lives as long as the process, and is in [`report_mem`](crate::report_mem) from its first use on.
///
/// # Cost
/// The lookup of the lane's slot and [`MemSlot`]'s additions; 0 line transfers in steady state. 128 bytes
/// a lane that used it.
///
/// ```
/// # #[cfg(not(loom))] {
/// use manylane_stats::{MemReport, MemType};
/// static HEADS: MemType = MemType::new("heads");
/// HEADS.alloc(300);
/// HEADS.alloc(20);
/// HEADS.free(20);
/// let report = MemReport::read_cheap(&HEADS);
/// assert_eq!((report.sum.live(), report.sum.live_bytes()), (1, 300));
/// # }
/// ```
#[derive(Debug)]
pub struct MemType {
    name: &'static str,
    slots: PerLane<MemSlot>,
    registered: Once,
}

impl MemType {
    crate::const_fn! {
        /// Creates a type called `name`.
        pub fn new(name: &'static str) -> Self {
            Self { name, slots: PerLane::new(|_| MemSlot::new()), registered: Once::new() }
        }
    }

    /// Returns the calling lane's slot: one lookup for several calls.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn own(&'static self) -> &'static MemSlot {
        match self.slots.get(lane::current()) {
            Some(slot) => slot,
            None => self.first_use(),
        }
    }

    #[cold]
    #[inline(never)]
    fn first_use(&'static self) -> &'static MemSlot {
        self.registered.call_once(|| crate::register_mem(self));
        self.slots.own()
    }

    /// Counts an object of `size` bytes that the calling lane allocates. Call it before passing the object
    /// on.
    #[inline]
    #[cfg_attr(any(manylane_sim, feature = "call-sites"), track_caller)]
    pub fn alloc(&'static self, size: usize) {
        self.own().alloc(size);
    }

    /// Counts an object of `size` bytes that the calling lane frees, on whichever lane it was allocated.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn free(&'static self, size: usize) {
        self.own().free(size);
    }
}

impl MemSource for MemType {
    fn name(&self) -> &str {
        self.name
    }

    fn visit(&self, each: &mut dyn FnMut(LaneId, MemCounts)) {
        self.slots.iter().for_each(|(lane, slot)| each(lane, slot.counts()));
    }

    fn visit_sites(&self, each: &mut dyn FnMut(CallSite)) {
        self.slots.iter().for_each(|(_, slot)| slot.visit_sites(each));
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_powers_of_two_rounded_up() {
        for (size, class) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (4096, 12), (4097, 13)] {
            assert_eq!(MemCounts::size_class(size), 1 << class, "size {size}");
        }
    }

    #[test]
    fn counts_of_objects_of_one_size_are_those_of_a_slot() {
        let any = MemSlot::new();
        assert_eq!(MemCounts::of_one_size(300, 0, 0), any.counts());
        (0..5).for_each(|_| any.alloc(300));
        any.free(300);
        assert_eq!(MemCounts::of_one_size(300, 5, 1), any.counts());
        assert_eq!(any.counts().live_bytes(), 1200);
    }
}
