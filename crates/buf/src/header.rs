//! The reference count of a cluster: how many handles it has, and which of them may write where.
//!
//! After J. Choi, T. Shull, J. Torrellas, "Biased Reference Counting: Minimizing Atomic Operations in Garbage
//! Collection", PACT 2018: the lane that owns an object counts its own references in a plain word, the others
//! in an atomic one. The paper has a queue in which other threads ask the owner to merge the two counts. It
//! is not needed here: the group of all handles on the owner lane holds *one* unit of the atomic count, so
//! the release of the last unit shows that no handle is left.
//!
//! # Protocol
//!
//! A cluster is alive while it has *units*; `shared` is their number. A unit belongs to one of
//! - the *group*: all group handles together, `local` in number, all on the lane `owner`;
//! - a *unit handle*, which has a unit of its own, on any lane, or inside a `Parcel` between lanes.
//!
//! 1. **Kind.** A handle knows its kind (a bit of its pointer). Handles are neither `Send` nor `Sync`; only a
//!    `Parcel` crosses lanes, and it holds unit handles only. So all group handles are on one thread.
//! 2. **Plain words.** Only the thread of the group handles touches `local` and `filled`. A new thread may
//!    join the group (rule 6) or start it afresh (rule 7); both are ordered after the old thread's last use.
//! 3. **Group.** Cloning a group handle adds one to `local`, dropping subtracts one. Dropping the last sets
//!    `local` to 0 and releases the group's unit. The group is *present* while `local` > 0.
//! 4. **Units.** Cloning a unit handle adds a unit (relaxed: the handle keeps the cluster alive). Releasing
//!    subtracts one with release order; the holder that releases the last one acquires and frees. A holder of
//!    a unit that sees by an acquire load that `shared` is 1 is the only unit holder: no other thread can add
//!    or release, so it frees without a locked instruction.
//! 5. **Pack.** Putting a group handle into a parcel makes it a unit handle. If it is the last of the group,
//!    it takes over the group's unit, `local` is 0 and there is no atomic operation; otherwise `local`
//!    shrinks by one and a unit is added.
//! 6. **Join.** If a parcel is opened on lane L and `owner` is L, the handle joins the group. Group present:
//!    the handle's unit is released (never the last: the group has one). Group absent: the handle's unit
//!    becomes the group's. This lane was the last user of the words of rule 2, and the next thread of a lane
//!    sees the writes of an earlier one (a mutex orders the handover of lane numbers, after all of Rust's
//!    thread-local destructors ran; a destructor of a pthread key must not touch segments).
//! 7. **Re-own.** If the handle of an opened parcel does not join and holds the only unit (rule 4), there is
//!    no group and no other handle: this lane becomes the owner, `local` is 1, and `filled` the end of the
//!    handle's view. The acquire load orders this after all actions of former holders. `owner` changes only
//!    here, when no other handle exists that could read it.
//! 8. **Sole.** A handle is the only one if `shared` is 1 (acquire) and, for a group handle, `local` is 1.
//!    This stays true until its owner shares it, and meanwhile all bytes of the cluster belong to the handle.
//! 9. **Spare space.** While the group is present, no group handle's view reaches beyond `filled`, and unit
//!    handles see only bytes that were visible when they were made, which are below `filled` as well. Bytes
//!    from `filled` on belong to the group. A group handle whose view ends at `filled` may claim them:
//!    `filled` moves up *before* the bytes are lent out, so a second handle with the same end cannot claim
//!    them too. A sole handle first sets `filled` to its own end.
//! 10. **Zero mark.** Any holder of a handle may set it: one relaxed store of `true` into a byte of its own;
//!     no thread ever stores `false`. The marker's release (rule 4), or the handover of its parcel, orders
//!     the store before the last release, whose holder reads it: no mark is lost (R-B5).
//! 11. **End.** The last holder zeroes the payload if it is marked, then puts the memory into the dropping
//!     lane's pool cache, or calls the free function of foreign bytes: exactly once, since only one handle
//!     can be the last.
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

/// Maximum number of units of a cluster; more means leaked handles. Half of the range, so that racing holders
/// cannot wrap the count before one of them panics. Group handles need no limit: see [`Group`].
pub(crate) const LIMIT: u32 = u32::MAX / 2;

/// Class of a header for foreign bytes.
pub(crate) const EXTERNAL: u8 = u8::MAX;

/// The header of a cluster, in front of its payload, or of foreign bytes. The order of the fields lets a
/// compiler write a new header with few stores.
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
    // Line 1: all that other lanes write and read. A handle that is opened and dropped on another lane does
    // not move line 0.
    remote: Remote,
}

/// The plain words of the group handles.
///
/// The number of handles is the difference of two counts that only grow, so that a clone and the drop after
/// it do not wait for each other's store to be forwarded: each count has its own chain through memory. The
/// counts have 64 bits, so a clone need not check for room: leaking a handle each nanosecond would fill them
/// in 584 years.
#[derive(Clone, Copy)]
#[repr(C)]
struct Group {
    /// Number of handles that ever joined.
    joined: u64,
    /// Number of handles that left.
    left: u64,
    /// Start of the spare space (rule 9).
    filled: u32,
}

impl Group {
    /// A group of one handle.
    #[inline]
    fn of_one(filled: u32) -> Self {
        Self { joined: 1, left: 0, filled }
    }

    /// Returns the number of group handles: `local` in the rules.
    #[inline]
    fn local(&self) -> u64 {
        self.joined.wrapping_sub(self.left)
    }

    /// Adds one handle.
    #[inline]
    fn join(&mut self) {
        self.joined = self.joined.wrapping_add(1);
    }

    /// Removes one handle. Returns true if it was the last.
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

/// Contents of a new header.
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
    /// Creates the first handle, of the calling lane's group.
    ///
    /// # Safety
    /// `at` is unused, aligned memory for a `Header`, from the pool that `parts.class` names. The bytes of
    /// `parts` stay valid until rule 11.
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
        // SAFETY: a header's address is a multiple of 64 and not 0, so clearing the lowest bit does not make
        // it 0.
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

    /// True if both are handles on the same cluster.
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

    /// Calls `f` with the group's plain words.
    ///
    /// # Safety
    /// The caller has a group handle, or is about to be the only one (rules 6 and 7).
    #[inline]
    unsafe fn group<R>(&self, f: impl FnOnce(&mut Group) -> R) -> R {
        // SAFETY: rule 2: only this thread touches the words; `f` does not call `group` again.
        self.header().group.with_mut(|group| f(unsafe { &mut *group }))
    }

    /// Rule 8: true if this is the only handle.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        // SAFETY: checked: this is a group handle.
        if !self.is_unit() && unsafe { self.group(|group| group.local()) } != 1 {
            return false;
        }
        // Acquire: pairs with the release in `release_unit`; what former holders did is visible.
        self.header().remote.shared.load(Ordering::Acquire) == 1
    }

    /// Applies rule 7 if the handle holds the only unit. Returns true if it is a group handle afterwards.
    #[inline]
    pub(crate) fn own(&mut self, end: u32) -> bool {
        if !self.is_unit() {
            return true;
        }
        if !self.is_sole() {
            return false;
        }
        let me = lane::current().index() as u32;
        // SAFETY: rule 7: no other handle exists that could read it.
        self.header().remote.owner.with_mut(|owner| unsafe { *owner = me });
        // SAFETY: rule 7.
        unsafe { self.group(|group| *group = Group::of_one(end)) };
        self.set_group();
        true
    }

    /// Applies rule 5. The handle is a unit handle afterwards.
    #[inline]
    pub(crate) fn pack(&mut self) {
        if self.is_unit() {
            return;
        }
        // SAFETY: checked: this is a group handle.
        if unsafe { self.group(|group| group.local()) } > 1 {
            self.add_unit(); // first, since it may panic
        }
        // SAFETY: as above.
        unsafe { self.group(|group| group.leave()) };
        self.set_unit();
    }

    /// Applies rules 6 and 7, on the lane that opens a parcel. `end` is the end of the handle's view.
    #[inline]
    pub(crate) fn unpack(&mut self, end: u32) {
        debug_assert!(self.is_unit(), "parcels hold unit handles only");
        let me = lane::current().index() as u32;
        // SAFETY: rule 7: `owner` does not change while handles other than the writer's exist.
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
            // Release: everything done under this unit happens before the cluster's end. Not the last unit:
            // rule 6.
            self.header().remote.shared.fetch_sub(1, Ordering::Release);
        }
    }

    #[inline]
    fn add_unit(&self) {
        // Relaxed: rule 4: the caller's handle keeps the cluster alive.
        let before = self.header().remote.shared.fetch_add(1, Ordering::Relaxed);
        if before >= LIMIT {
            // Not the last unit, since the caller has one. Subtracted again, so that callers who go on trying
            // cannot wrap the count.
            self.header().remote.shared.fetch_sub(1, Ordering::Relaxed);
            too_many_handles(before);
        }
    }

    /// Rule 9: number of spare bytes that this handle may claim, with its view ending at `end`.
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

    /// Returns the start of the group's spare space. Legal for group handles only.
    #[inline]
    pub(crate) fn filled(&self) -> u32 {
        debug_assert!(!self.is_unit(), "rule 2");
        // SAFETY: callers have a group handle.
        unsafe { self.group(|group| group.filled) }
    }

    /// Rule 9: moves the start of the spare space. Legal for a group handle that may claim the spare space.
    #[inline]
    pub(crate) fn set_filled(&mut self, filled: u32) {
        debug_assert!(!self.is_unit() && filled as usize <= self.capacity(), "rule 9");
        // SAFETY: callers have a group handle.
        unsafe { self.group(|group| group.filled = filled) };
    }

    /// Rule 10: marks the cluster.
    #[inline]
    pub(crate) fn mark_zero(&self) {
        self.header().remote.zero.store(true, Ordering::Relaxed);
    }

    /// Rule 10: true if a holder has marked the cluster, as far as this lane knows.
    pub(crate) fn is_marked(&self) -> bool {
        self.header().remote.zero.load(Ordering::Relaxed)
    }

    /// Releases a unit. Returns true if it was the last (rule 4).
    #[inline]
    fn release_unit(&mut self) -> bool {
        let shared = &self.header().remote.shared;
        // A unit handle does not load first: it is seldom the last, and the load would wait for the locked
        // add of the clone before it.
        // Acquire: pairs with the release below, of earlier releases.
        if !self.is_unit() && shared.load(Ordering::Acquire) == 1 {
            return true;
        }
        // Release: publishes everything done under this unit to the thread that frees.
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
            // SAFETY: checked: this is a group handle.
            unsafe { self.group(Group::join) };
        }
        Self(self.0)
    }
}

impl Drop for Ref {
    #[inline]
    fn drop(&mut self) {
        if !self.is_unit() {
            // SAFETY: checked: this is a group handle. Rule 3.
            if !unsafe { self.group(Group::leave) } {
                return;
            }
        }
        if self.release_unit() {
            // SAFETY: this was the last unit, so the only handle left is this one, which its owner gives up.
            unsafe { end(self.pointer()) };
        }
    }
}

/// Frees the cluster (rule 11). Out of line, so that a handle that is not the last costs only its few
/// instructions.
///
/// # Safety
/// No handle is left but the caller's, and the call is the only one.
#[inline(never)]
unsafe fn end(at: NonNull<Header>) {
    // SAFETY: alive and the caller's alone, by contract. Relaxed: ordered by the acquire of the last release.
    let (class, zero) = unsafe {
        let header = at.as_ref();
        (header.class, header.remote.zero.load(Ordering::Relaxed))
    };
    // SAFETY: by contract; the memory came from the named pool.
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
    // SAFETY: alive and the caller's alone, by contract.
    unsafe {
        let header = at.as_ref();
        let (data, len, class) = (header.data, header.capacity as usize, header.class);
        let (free_fn, argument) = (header.free_fn, header.argument);
        if header.remote.zero.load(Ordering::Relaxed) && header.writable {
            zero(data, len);
        }
        // Frees the header first: if the free function panics, nothing of this crate is lost or freed twice.
        let pools = store();
        give_back(at, if class == EXTERNAL { &pools.proxies } else { &pools.clusters[usize::from(class)] });
        if class == EXTERNAL {
            external::call(free_fn, data, len, argument);
        }
    }
}

/// Zeroes memory that is about to be freed, in a way that the compiler cannot optimise away.
///
/// # Safety
/// The bytes are valid for writes and belong to the caller alone.
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

    /// Returns the panic message of a refused clone of `hold`.
    fn refusal(hold: &Ref) -> String {
        let panic = catch_unwind(AssertUnwindSafe(|| drop(hold.clone()))).expect_err("one too many");
        panic.downcast_ref::<String>().expect("a sentence").clone()
    }

    #[test]
    fn more_group_handles_than_32_bits_hold_are_counted() {
        let segment = External::from_static(b"x").expect("memory");
        let many = u64::from(u32::MAX) * 3;
        // SAFETY: a group handle; the test corrects the count before it drops anything.
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
