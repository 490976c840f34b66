//! The count: how many handles a cluster has, and who may write where.
//!
//! After J. Choi, T. Shull, J. Torrellas, "Biased Reference Counting: Minimizing Atomic Operations in Garbage
//! Collection", PACT 2018: the lane that owns an object counts its own references in a plain word, the others
//! in an atomic one. Their queue, in which other threads ask the owner to merge the two counts, is not
//! needed here: the group of all handles on the owner lane holds *one* unit of the atomic count, so whoever
//! releases the last unit knows that nobody is left.
//!
//! # Protocol
//!
//! A cluster is alive while it has *units*; `shared` is their number. A unit belongs to one of
//! - the *group*: all group handles together, which are `local` in number, all on the lane `owner`;
//! - a *unit handle*: it has one to itself, on any lane, or inside a `Parcel` between lanes.
//!
//! 1. **Kind.** A handle knows its kind (a bit of its pointer). Handles are neither `Send` nor `Sync`; only a
//!    `Parcel` crosses lanes, and it holds unit handles only. So all group handles are on one thread.
//! 2. **Plain words.** `local` and `filled` are touched by the thread of the group handles only. A new thread
//!    may join them (rule 6) or start them afresh (rule 7); both are ordered after the old thread's last use.
//! 3. **Group.** Cloning a group handle adds one to `local`, dropping subtracts one. Dropping the last sets
//!    `local` to 0 and releases the group's unit. The group is *present* while `local` > 0.
//! 4. **Units.** Cloning a unit handle adds a unit (relaxed: the handle keeps the cluster alive). Releasing
//!    subtracts one with release order; who takes the last one acquires and frees. Who sees by an acquire
//!    load that `shared` is 1 while it holds a unit is the only unit holder: nobody else can add or release,
//!    so it frees without a locked instruction.
//! 5. **Pack.** To put a group handle into a parcel: if it is the last of the group, the group's unit becomes
//!    its own, `local` is 0 and nothing atomic happens; else `local` shrinks by one and a unit is added.
//! 6. **Join.** A parcel is opened on lane L and `owner` is L. Then the handle joins the group: group
//!    present: its unit is released (never the last: the group has one); absent: its unit becomes the
//!    group's. The words of rule 2 were last used by this lane, and what a lane's earlier thread did is
//!    visible to the next (lane numbers are handed over through a mutex, after all of Rust's thread-local
//!    destructors ran; a destructor of a pthread key must not touch segments).
//! 7. **Re-own.** Else, if the handle holds the only unit (rule 4), there is no group and no other handle:
//!    this lane becomes the owner, `local` is 1, `filled` the end of the handle's view. The acquire load
//!    orders it after everything that former holders did. `owner` changes only here, when no other handle
//!    exists that could read it.
//! 8. **Sole.** A handle is the only one if `shared` is 1 (acquire) and, for a group handle, `local` is 1.
//!    While its owner shares it with nobody it stays so, and all bytes of the cluster are the handle's alone.
//! 9. **Spare space.** No handle's view reaches beyond `filled` while the group is present, except that unit
//!    handles may look at what was visible when they were made, which is below `filled` as well. Bytes from
//!    `filled` on belong to the group. A group handle whose view ends at `filled` may claim them: `filled`
//!    moves up *before* the bytes are lent out, so a second handle with the same end cannot claim them too. A
//!    sole handle first sets `filled` to its own end.
//! 10. **Zero mark.** Set by anyone with a handle: one relaxed store of `true` into a byte that nothing else
//!     shares; nobody ever stores `false`. The marker's release (rule 4) or its parcel's handover orders it
//!     before the last release, whose holder reads it: no mark is lost (R-B5).
//! 11. **End.** The last holder zeroes the payload if marked, then gives the memory to the dropping lane's
//!     pool cache, or calls the free function of foreign bytes: exactly once, since only one handle can be
//!     last.
//!
//! # Progress
//! Every operation is wait-free: no loop, no lock, no retry.
//!
//! # Cost
//! Group handles: a load and a store on line 0, which only the owner writes. Unit handles: one locked add on
//! line 1. Dropping a sole handle: two plain loads, then the pool.

use crate::external;
use crate::store::store;
use manylane_pool::BytePool;
use manylane_sync::atomic::{AtomicBool, AtomicU32, Ordering, acquire_after_last};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::lane;
use std::ptr::NonNull;

/// Units that a cluster may have; more is taken for a leak. Half of the range, so that racing holders cannot
/// wrap the count before one of them panics. Group handles need no limit: see [`Group`].
pub(crate) const LIMIT: u32 = u32::MAX / 2;

/// Class of a header whose bytes are foreign.
pub(crate) const EXTERNAL: u8 = u8::MAX;

/// What stands in front of a cluster's payload, or for foreign bytes. The order of the fields lets a compiler
/// write a new header with few stores.
///
/// Key: `I` fixed after construction; `G` rule 2, the group's thread only; `O` rule 7; `A` atomic.
#[repr(C, align(64))]
pub(crate) struct Header {
    // Line 0: written by the owner lane.
    group: UnsafeCell<Group>, // G
    capacity: u32,            // I: payload bytes
    class: u8,                // I: size class, or EXTERNAL
    free_fn: u8,              // I: index of the free function, for EXTERNAL
    writable: bool,           // I: may the payload be written?
    data: NonNull<u8>,        // I: the payload
    argument: usize,          // I: for the free function
    // Line 1: written by other lanes, and all that they read: opened and dropped elsewhere, a handle does
    // not move line 0.
    remote: Remote,
}

/// The plain words of the group handles.
///
/// Their number is a difference of two counts that only grow, so that a clone and the drop after it do not
/// wait for each other's store to be forwarded: one chain through memory for each count, not one through
/// both. The counts have 64 bits, so that a clone need not look whether there is room: leaking a handle each
/// nanosecond fills them in 584 years.
#[derive(Clone, Copy)]
#[repr(C)]
struct Group {
    /// Handles that ever joined.
    joined: u64,
    /// Handles that left.
    left: u64,
    /// Where the spare space begins (rule 9).
    filled: u32,
}

impl Group {
    /// A group of one handle.
    #[inline]
    fn of_one(filled: u32) -> Self {
        Self { joined: 1, left: 0, filled }
    }

    /// Group handles that exist: `local` in the rules.
    #[inline]
    fn local(&self) -> u64 {
        self.joined.wrapping_sub(self.left)
    }

    /// One more handle.
    #[inline]
    fn join(&mut self) {
        self.joined = self.joined.wrapping_add(1);
    }

    /// One handle less; true when it was the last.
    #[inline]
    fn leave(&mut self) -> bool {
        self.left = self.left.wrapping_add(1);
        self.left == self.joined
    }
}

#[repr(C, align(64))]
struct Remote {
    shared: AtomicU32,      // A: order at each use
    owner: UnsafeCell<u32>, // O
    zero: AtomicBool,       // A: rule 10
}

#[cfg(not(any(loom, manylane_sim)))]
const _: () = {
    assert!(size_of::<Header>() == 128);
    assert!(std::mem::offset_of!(Header, remote) == 64);
};

/// What a header is made from.
pub(crate) struct Parts {
    pub(crate) data: NonNull<u8>,
    pub(crate) capacity: u32,
    pub(crate) filled: u32,
    pub(crate) class: u8,
    pub(crate) free_fn: u8,
    pub(crate) writable: bool,
    pub(crate) argument: usize,
}

/// One counted handle on a cluster: a pointer whose lowest bit is set for a unit handle (rule 1).
///
/// `NonNull` makes it neither `Send` nor `Sync`, which rule 1 needs.
pub(crate) struct Ref(NonNull<Header>);

const UNIT: usize = 1;

impl Ref {
    /// The first handle, of the calling lane's group.
    ///
    /// # Safety
    /// `at` is unused memory for a `Header`, aligned, and goes back to the pool that `parts.class` names.
    /// The bytes of `parts` stay valid until rule 11.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<u8>, parts: Parts) -> Self {
        let header = at.cast::<Header>();
        // SAFETY: by contract.
        unsafe {
            header.write(Header {
                group: UnsafeCell::new(Group::of_one(parts.filled)),
                capacity: parts.capacity,
                class: parts.class,
                free_fn: parts.free_fn,
                writable: parts.writable,
                data: parts.data,
                argument: parts.argument,
                remote: Remote {
                    shared: AtomicU32::new(1),
                    owner: UnsafeCell::new(lane::current().index() as u32),
                    zero: AtomicBool::new(false),
                },
            });
        }
        Self(header)
    }

    #[inline]
    fn pointer(&self) -> NonNull<Header> {
        // SAFETY: a header's address is a multiple of 64 and not 0, so it is not 0 without the lowest bit.
        unsafe { NonNull::new_unchecked(self.0.as_ptr().map_addr(|address| address & !UNIT)) }
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: this handle keeps the header alive (rules 3 and 4).
        unsafe { self.pointer().as_ref() }
    }

    #[inline]
    pub(crate) fn is_unit(&self) -> bool {
        self.0.as_ptr().addr() & UNIT != 0
    }

    #[inline]
    fn set_unit(&mut self) {
        self.0 = self.0.map_addr(|address| address | UNIT);
    }

    #[inline]
    fn set_group(&mut self) {
        self.0 = self.pointer();
    }

    /// True when both are handles on the same cluster.
    #[inline]
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.pointer() == other.pointer()
    }

    #[inline]
    pub(crate) fn data(&self) -> NonNull<u8> {
        self.header().data
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.header().capacity as usize
    }

    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        self.header().writable
    }

    #[inline]
    pub(crate) fn is_external(&self) -> bool {
        self.header().class == EXTERNAL
    }

    /// The group's plain words.
    ///
    /// # Safety
    /// The caller has a group handle, or is about to be the only one (rules 6 and 7).
    #[inline]
    unsafe fn group<R>(&self, f: impl FnOnce(&mut Group) -> R) -> R {
        // SAFETY: rule 2: this thread alone touches the words; `f` does not come back here.
        self.header().group.with_mut(|group| f(unsafe { &mut *group }))
    }

    /// Rule 8: is this the only handle?
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        // SAFETY: checked: a group handle.
        if !self.is_unit() && unsafe { self.group(|group| group.local()) } != 1 {
            return false;
        }
        // Acquire: pairs with the release in `release_unit`; what former holders did is visible.
        self.header().remote.shared.load(Ordering::Acquire) == 1
    }

    /// Rule 7, when the handle holds the only unit: true if it is a group handle afterwards.
    #[inline]
    pub(crate) fn own(&mut self, end: u32) -> bool {
        if !self.is_unit() {
            return true;
        }
        if !self.is_sole() {
            return false;
        }
        let me = lane::current().index() as u32;
        // SAFETY: rule 7: there is no other handle that could read it.
        self.header().remote.owner.with_mut(|owner| unsafe { *owner = me });
        // SAFETY: rule 7.
        unsafe { self.group(|group| *group = Group::of_one(end)) };
        self.set_group();
        true
    }

    /// Rule 5. The handle is a unit handle afterwards.
    #[inline]
    pub(crate) fn pack(&mut self) {
        if self.is_unit() {
            return;
        }
        // SAFETY: checked: a group handle.
        if unsafe { self.group(|group| group.local()) } > 1 {
            self.add_unit(); // first, since it may panic
        }
        // SAFETY: as above.
        unsafe { self.group(|group| group.leave()) };
        self.set_unit();
    }

    /// Rules 6 and 7, on the lane where a parcel is opened. `end`: where the handle's view ends.
    #[inline]
    pub(crate) fn unpack(&mut self, end: u32) {
        debug_assert!(self.is_unit(), "parcels hold unit handles only");
        let me = lane::current().index() as u32;
        // SAFETY: rule 7: `owner` does not change while other handles than the writer's exist.
        let owner = self.header().remote.owner.with(|owner| unsafe { *owner });
        if owner != me {
            self.own(end);
            return;
        }
        // SAFETY: rule 6: the words are this lane's.
        let alone = unsafe {
            self.group(|group| {
                group.join();
                group.local() == 1
            })
        };
        self.set_group();
        if !alone {
            // Release: what was done under this unit comes before the cluster's end. Not the last: rule 6.
            self.header().remote.shared.fetch_sub(1, Ordering::Release);
        }
    }

    #[inline]
    fn add_unit(&self) {
        // Relaxed: rule 4: the handle that the caller has keeps the cluster alive.
        let before = self.header().remote.shared.fetch_add(1, Ordering::Relaxed);
        if before >= LIMIT {
            // Not the last: the caller has one. Taken back, so that callers who go on trying cannot wrap the
            // count.
            self.header().remote.shared.fetch_sub(1, Ordering::Relaxed);
            too_many_handles(before);
        }
    }

    /// Rule 9: the spare bytes that this handle may claim, with the view ending at `end`.
    #[inline]
    pub(crate) fn spare(&mut self, end: u32) -> usize {
        if !self.is_writable() {
            return 0;
        }
        if self.is_sole() {
            if !self.own(end) {
                return 0;
            }
            self.set_filled(end);
        } else if self.is_unit() || self.filled() != end {
            return 0;
        }
        self.capacity() - end as usize
    }

    /// Where the group's spare space begins. Legal for group handles only.
    #[inline]
    pub(crate) fn filled(&self) -> u32 {
        debug_assert!(!self.is_unit(), "rule 2");
        // SAFETY: callers have a group handle.
        unsafe { self.group(|group| group.filled) }
    }

    /// Rule 9. Legal for a group handle that may claim the spare space.
    #[inline]
    pub(crate) fn set_filled(&mut self, filled: u32) {
        debug_assert!(!self.is_unit() && filled as usize <= self.capacity(), "rule 9");
        // SAFETY: callers have a group handle.
        unsafe { self.group(|group| group.filled = filled) };
    }

    /// Rule 10.
    #[inline]
    pub(crate) fn mark_zero(&self) {
        self.header().remote.zero.store(true, Ordering::Relaxed);
    }

    /// Rule 10: has anybody marked the cluster, as far as this lane knows?
    pub(crate) fn is_marked(&self) -> bool {
        self.header().remote.zero.load(Ordering::Relaxed)
    }

    /// Releases a unit; true when it was the last (rule 4).
    #[inline]
    fn release_unit(&mut self) -> bool {
        let shared = &self.header().remote.shared;
        // A unit handle does not look first: it is seldom the last, and a load waits for the locked add of
        // the clone before it.
        // Acquire: pairs with the release below, of those who went before.
        if !self.is_unit() && shared.load(Ordering::Acquire) == 1 {
            return true;
        }
        // Release: publishes to who frees what was done under this unit.
        if shared.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        // Acquire: pairs with the releases of the others.
        acquire_after_last(shared);
        true
    }
}

impl Clone for Ref {
    #[inline]
    fn clone(&self) -> Self {
        if self.is_unit() {
            self.add_unit();
        } else {
            // SAFETY: checked: a group handle.
            unsafe { self.group(Group::join) };
        }
        Self(self.0)
    }
}

impl Drop for Ref {
    #[inline]
    fn drop(&mut self) {
        if !self.is_unit() {
            // SAFETY: checked: a group handle. Rule 3.
            if !unsafe { self.group(Group::leave) } {
                return;
            }
        }
        if self.release_unit() {
            // SAFETY: this was the last unit, so no handle is left but this one, which its owner gives up.
            unsafe { end(self.pointer()) };
        }
    }
}

/// Rule 11. Out of line, so that a handle that is not the last costs its few instructions only.
///
/// # Safety
/// Nobody has a handle any more, and it is called once.
#[inline(never)]
unsafe fn end(at: NonNull<Header>) {
    // SAFETY: alive and ours alone, by contract. Relaxed: ordered by the acquire of the last release.
    let (class, zero) = unsafe {
        let header = at.as_ref();
        (header.class, header.remote.zero.load(Ordering::Relaxed))
    };
    // SAFETY: by contract; the memory came from the pool that is named.
    unsafe {
        if zero || class == EXTERNAL {
            return end_slowly(at);
        }
        give_back(at, &store().clusters[usize::from(class)]);
    }
}

/// # Safety
/// As for [`end`].
#[inline(always)]
unsafe fn give_back(at: NonNull<Header>, pool: &BytePool) {
    // SAFETY: by contract; the models' atomics need their destructor.
    unsafe {
        at.drop_in_place();
        pool.free_raw(at.cast());
    }
}

/// # Safety
/// As for [`end`].
#[cold]
#[inline(never)]
unsafe fn end_slowly(at: NonNull<Header>) {
    // SAFETY: alive and ours alone, by contract.
    unsafe {
        let header = at.as_ref();
        let (data, len, class) = (header.data, header.capacity as usize, header.class);
        let (free_fn, argument) = (header.free_fn, header.argument);
        if header.remote.zero.load(Ordering::Relaxed) && header.writable {
            zero(data, len);
        }
        // The header goes first: should the free function panic, nothing of ours is lost or freed twice.
        let pools = store();
        give_back(at, if class == EXTERNAL { &pools.proxies } else { &pools.clusters[usize::from(class)] });
        if class == EXTERNAL {
            external::call(free_fn, data, len, argument);
        }
    }
}

/// Zeroes memory that is about to be freed, in a way that the compiler cannot leave out.
///
/// # Safety
/// The bytes are valid for writes and the caller's alone.
unsafe fn zero(data: NonNull<u8>, len: usize) {
    // SAFETY: by contract.
    unsafe { data.write_bytes(0, len) };
    // The pointer escapes: to the compiler the bytes may be read after this.
    std::hint::black_box(data);
    #[cfg(any(test, feature = "model"))]
    crate::model::check_zeroed(data, len);
}

#[cold]
#[inline(never)]
fn too_many_handles(before: u32) -> ! {
    panic!("{before} handles on one cluster: some lane clones segments and never drops them");
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::{LIMIT, Ref};
    use crate::External;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering;

    /// What a clone of `hold` says when it is refused.
    fn refusal(hold: &Ref) -> String {
        let panic = catch_unwind(AssertUnwindSafe(|| drop(hold.clone()))).expect_err("one too many");
        panic.downcast_ref::<String>().expect("a sentence").clone()
    }

    #[test]
    fn more_group_handles_than_32_bits_hold_are_counted() {
        let segment = External::from_static(b"x").expect("memory");
        let many = u64::from(u32::MAX) * 3;
        // SAFETY: a group handle; the count is put right before anything is dropped.
        unsafe { segment.hold().group(|group| group.joined += many) };
        drop(segment.clone());
        assert!(!segment.is_unique());
        // SAFETY: as above. All of them leave at once.
        unsafe { segment.hold().group(|group| group.left += many) };
        assert!(segment.is_unique());
    }

    #[test]
    fn units_beyond_the_limit_are_refused_and_not_counted() {
        let says = format!("{LIMIT} handles on one cluster: some lane clones segments and never drops them");
        let mut segment = External::from_static(b"x").expect("memory");
        segment.pack();
        let shared = &segment.hold().header().remote.shared;
        shared.fetch_add(LIMIT - 1, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(refusal(segment.hold()), says);
        }
        assert_eq!(shared.fetch_sub(LIMIT - 1, Ordering::Relaxed), LIMIT);
        assert!(segment.is_unique());
    }
}
