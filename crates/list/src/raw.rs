//! The protocol on bare links: the unsafe core. Rule numbers are those of the crate documentation.
//!
//! Nothing here depends on an element's contents or on its owner. [`MtList`](crate::MtList) and
//! [`OwningList`](crate::OwningList) fulfil the contracts of these functions for safe callers.
//!
//! # Contracts of all functions
//! A `Link` is *valid* until it is freed or moved. A head is a link that points to itself while the list is
//! empty. Every function requires that the links passed to it stay valid until it returns. A link is *out* if
//! it is in no list and no other thread holds it; [`Link::is_out`] returns this to the thread that may add
//! the element.

use crate::wait::Wait;
use manylane_sync::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomPinned;
use std::ptr;

/// In `next`: a thread holds the link (rule 1). Odd, so it is no address of a link.
const BUSY: *mut Link = ptr::without_provenance_mut(1);

/// In `next`: the link is in no list.
const OUT: *mut Link = ptr::null_mut();

/// The two words of an element or of a list's head.
///
/// Both are in one cache line, since a thread that locks one nearly always needs the other.
#[repr(C, align(16))]
pub(crate) struct Link {
    /// The successor, [`OUT`] or [`BUSY`]: also the lock of both words (rule 1).
    next: AtomicPtr<Link>,
    /// The predecessor; rule 2 says who writes it.
    prev: AtomicPtr<Link>,
    /// Lets the model checker see every access and the end of the link's life.
    #[cfg(loom)]
    life: manylane_sync::cell::UnsafeCell<()>,
    _pinned: PhantomPinned,
}

// R-E5: a locked instruction on a word that crosses a cache line is slow everywhere, and faults on some
// processors.
#[cfg(not(loom))]
const _: () = {
    assert!(align_of::<AtomicPtr<Link>>() == size_of::<AtomicPtr<Link>>());
    assert!(size_of::<Link>() == 2 * size_of::<usize>());
    assert!(align_of::<Link>() >= size_of::<Link>());
};

// SAFETY: the words are atomics; threads follow the pointers in them only under the protocol.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

impl Link {
    /// Creates a link in no list.
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicPtr::new(OUT),
            prev: AtomicPtr::new(OUT),
            #[cfg(loom)]
            life: manylane_sync::cell::UnsafeCell::new(()),
            _pinned: PhantomPinned,
        }
    }

    /// Makes this link the head of an empty list; it must not move from now on.
    pub(crate) fn become_head(&self) {
        let me = ptr::from_ref(self).cast_mut();
        self.prev.store(me, Ordering::Relaxed);
        self.next.store(me, Ordering::Release);
    }

    /// True if the link is in no list and no thread holds it. This stays true until a thread adds it.
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        // Acquire: pairs with the release in `free`; the thread that removed the element is done with it.
        self.next.load(Ordering::Acquire) == OUT
    }

    /// True if the link is in a list. Waits while a thread holds it.
    #[inline]
    pub(crate) fn is_in_list(&self) -> bool {
        let mut wait = Wait::new();
        loop {
            // Acquire: as in `is_out`.
            match self.next.load(Ordering::Acquire) {
                OUT => return false,
                BUSY => wait.wait(),
                _ => return true,
            }
        }
    }

    /// For a head: true if the list had no element at some recent moment.
    #[inline]
    pub(crate) fn points_at_itself(&self) -> bool {
        // The word `prev` is never BUSY. Relaxed: the answer is outdated when it arrives anyway.
        ptr::eq(self.prev.load(Ordering::Relaxed), self)
    }
}

#[cfg(loom)]
impl Drop for Link {
    fn drop(&mut self) {
        // Every access by another thread must have happened before this; loom checks it.
        self.life.with_mut(|_| ());
    }
}

/// Locks `x` (rule 1) and returns its `next`; [`BUSY`] means that another thread holds `x`.
///
/// It reads nothing before the exchange, so the line moves once, in the state that the stores need (R-E4).
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn lock(x: *mut Link) -> *mut Link {
    // SAFETY: the caller knows that `x` is valid: it is the caller's own, the head, or pinned by a lock that
    // the caller holds (rule 3).
    let x = unsafe { &*x };
    #[cfg(loom)]
    x.life.with(|_| ());
    // Acquire: pairs with the release in `unlock`; `prev` and the neighbours are as the last holder left
    // them.
    x.next.swap(BUSY, Ordering::Acquire)
}

/// Unlocks `x` and stores the successor `next`. This is the last access: another thread may then free `x`.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn unlock(x: *mut Link, next: *mut Link) {
    // SAFETY: the caller holds `x`.
    let x = unsafe { &*x };
    #[cfg(loom)]
    x.life.with(|_| ());
    // Release: pairs with the acquire in `lock`, `is_out` and `is_in_list`.
    #[cfg(not(loom))]
    x.next.store(next, Ordering::Release);
    // loom never orders a store against another thread's exchanges, so a waiter that exchanges might never
    // see this store. An exchange has a place in their order, as the store has on hardware after finite time.
    #[cfg(loom)]
    x.next.swap(next, Ordering::Release);
}

#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn prev(x: *mut Link) -> *mut Link {
    // SAFETY: the caller holds `x`.
    let x = unsafe { &*x };
    #[cfg(loom)]
    x.life.with(|_| ());
    // Acquire: pairs with the release in `set_prev` of an `add_head` in progress; the new element's own words
    // are set.
    x.prev.load(Ordering::Acquire)
}

#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn set_prev(x: *mut Link, prev: *mut Link) {
    // SAFETY: the caller holds `x`, or the head and `x` comes after it (rule 2).
    let x = unsafe { &*x };
    #[cfg(loom)]
    x.life.with(|_| ());
    // Release: pairs with the acquire in `prev`.
    x.prev.store(prev, Ordering::Release);
}

/// Sets the words of an element that is about to be linked. The caller holds a shared element until it is
/// linked.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn fill<const SHARED: bool>(el: *mut Link, prev: *mut Link, next: *mut Link) {
    // SAFETY: the caller may add the element, so it is valid.
    let el = unsafe { &*el };
    #[cfg(loom)]
    el.life.with(|_| ());
    // Relaxed: published by the release that links the element.
    el.prev.store(prev, Ordering::Relaxed);
    if !SHARED {
        el.next.store(next, Ordering::Relaxed);
    }
}

/// Ends the hold on a shared element, which is linked now.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn filled<const SHARED: bool>(el: *mut Link, next: *mut Link) {
    if SHARED {
        // SAFETY: the caller has held `el` since `claim`.
        unsafe { unlock(el, next) }
    }
}

/// Ends the hold on an element that was removed from its list.
///
/// # Safety
/// The caller holds `el`, which is in no list.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn free(el: *mut Link) {
    // SAFETY: the caller's contract.
    unsafe { unlock(el, OUT) }
}

/// Outcome of an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The element is in the list.
    Yes,
    /// The element was in a list already; nothing has changed.
    WasInList,
    /// The place to add the element at was in no list; nothing has changed.
    AnchorIsOut,
}

/// Locks a shared element that is out, so that no other thread adds it. Returns `false` if it is in a list.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn claim<const SHARED: bool>(el: *mut Link, wait: &mut Wait) -> bool {
    if !SHARED {
        return true;
    }
    loop {
        // SAFETY: `el` is valid.
        match unsafe { lock(el) } {
            OUT => return true,
            BUSY => wait.wait(),
            next => {
                // SAFETY: this thread holds it.
                unsafe { unlock(el, next) };
                return false;
            }
        }
    }
}

/// Releases the lock of [`claim`], and waits: a waiter holds nothing (rule 4).
#[cold]
unsafe fn yield_claim<const SHARED: bool>(el: *mut Link, wait: &mut Wait) {
    if SHARED {
        // SAFETY: the caller holds `el`, which is in no list.
        unsafe { free(el) };
    }
    wait.wait();
}

/// Adds `el` as the first element. Takes one locked instruction, for a shared element one more.
///
/// # Safety
/// `head` is a head. `el` is valid. Unless `SHARED`, `el` is out, and no other thread adds or deletes it now.
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn add_head<const SHARED: bool>(head: *mut Link, el: *mut Link) -> Added {
    let mut wait = Wait::new();
    loop {
        // SAFETY: `el` is valid.
        if !unsafe { claim::<SHARED>(el, &mut wait) } {
            return Added::WasInList;
        }
        // SAFETY: the head never leaves.
        let first = unsafe { lock(head) };
        if first != BUSY {
            wait.linger();
            // SAFETY: rule 3 pins `first` while this thread holds the head. Rule 2 allows a write to its
            // `prev` without its lock. `el` is complete or held before that store, since a holder of `first`
            // may follow it at once.
            unsafe {
                fill::<SHARED>(el, head, first);
                set_prev(first, el);
                unlock(head, el);
                filled::<SHARED>(el, first);
            }
            return Added::Yes;
        }
        // SAFETY: `claim` locked it.
        unsafe { yield_claim::<SHARED>(el, &mut wait) };
    }
}

/// Adds `el` as the last element. Takes two locked instructions, or one if the list is empty; for a shared
/// element one more.
///
/// # Safety
/// As for [`add_head`].
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn add_tail<const SHARED: bool>(head: *mut Link, el: *mut Link) -> Added {
    let mut wait = Wait::new();
    loop {
        // SAFETY: `el` is valid.
        if !unsafe { claim::<SHARED>(el, &mut wait) } {
            return Added::WasInList;
        }
        // SAFETY: the head never leaves.
        let first = unsafe { lock(head) };
        if first == head {
            wait.linger();
            // SAFETY: this thread holds the head, which is its own neighbour on both sides.
            unsafe {
                fill::<SHARED>(el, head, head);
                set_prev(head, el);
                unlock(head, el);
                filled::<SHARED>(el, head);
            }
            return Added::Yes;
        }
        if first != BUSY {
            // SAFETY: this thread holds the head; rule 3 pins its predecessor `last`.
            let last = unsafe { prev(head) };
            // SAFETY: as above.
            if unsafe { lock(last) } != BUSY {
                wait.linger();
                // SAFETY: this thread holds both ends of the link. The head is released last (rule 6).
                unsafe {
                    fill::<SHARED>(el, last, head);
                    set_prev(head, el);
                    unlock(last, el);
                    unlock(head, first);
                    filled::<SHARED>(el, head);
                }
                return Added::Yes;
            }
            // SAFETY: this thread holds the head and changed nothing.
            unsafe { unlock(head, first) };
        }
        // SAFETY: `claim` locked it.
        unsafe { yield_claim::<SHARED>(el, &mut wait) };
    }
}

/// Adds `el` right after `anchor`. Takes two locked instructions, for a shared element one more.
///
/// # Safety
/// `anchor` is an element that the caller may lock (rule 5), and no head. `el` is as for [`add_head`], and
/// not `anchor`.
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn insert_after<const SHARED: bool>(anchor: *mut Link, el: *mut Link) -> Added {
    let mut wait = Wait::new();
    loop {
        // SAFETY: `el` is valid.
        if !unsafe { claim::<SHARED>(el, &mut wait) } {
            return Added::WasInList;
        }
        // SAFETY: `anchor` is valid.
        let next = unsafe { lock(anchor) };
        if next == OUT {
            // SAFETY: this thread holds `anchor`, and `claim` locked `el`.
            unsafe { anchor_is_out::<SHARED>(anchor, el) };
            return Added::AnchorIsOut;
        }
        if next != BUSY {
            // SAFETY: rule 3 pins `next` while this thread holds `anchor`.
            let after = unsafe { lock(next) };
            if after != BUSY {
                wait.linger();
                // SAFETY: this thread holds both ends of the link.
                unsafe {
                    fill::<SHARED>(el, anchor, next);
                    set_prev(next, el);
                    unlock(next, after);
                    unlock(anchor, el);
                    filled::<SHARED>(el, next);
                }
                return Added::Yes;
            }
            // SAFETY: this thread holds `anchor` and changed nothing.
            unsafe { unlock(anchor, next) };
        }
        // SAFETY: `claim` locked it.
        unsafe { yield_claim::<SHARED>(el, &mut wait) };
    }
}

/// Adds `el` right before `anchor`. Takes two locked instructions, for a shared element one more.
///
/// # Safety
/// As for [`insert_after`].
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn insert_before<const SHARED: bool>(anchor: *mut Link, el: *mut Link) -> Added {
    let mut wait = Wait::new();
    loop {
        // SAFETY: `el` is valid.
        if !unsafe { claim::<SHARED>(el, &mut wait) } {
            return Added::WasInList;
        }
        // SAFETY: `anchor` is valid.
        let next = unsafe { lock(anchor) };
        if next == OUT {
            // SAFETY: this thread holds `anchor`, and `claim` locked `el`.
            unsafe { anchor_is_out::<SHARED>(anchor, el) };
            return Added::AnchorIsOut;
        }
        if next != BUSY {
            // SAFETY: this thread holds `anchor`, which is in the list.
            if let Some(before) = unsafe { lock_prev(anchor) } {
                wait.linger();
                // SAFETY: this thread holds both ends of the link. If one is the head, it is `before`,
                // released last (rule 6).
                unsafe {
                    fill::<SHARED>(el, before, anchor);
                    set_prev(anchor, el);
                    unlock(anchor, next);
                    unlock(before, el);
                    filled::<SHARED>(el, anchor);
                }
                return Added::Yes;
            }
            // SAFETY: this thread holds `anchor` and changed nothing.
            unsafe { unlock(anchor, next) };
        }
        // SAFETY: `claim` locked it.
        unsafe { yield_claim::<SHARED>(el, &mut wait) };
    }
}

#[cold]
unsafe fn anchor_is_out<const SHARED: bool>(anchor: *mut Link, el: *mut Link) {
    // SAFETY: the caller holds both, and both are in no list.
    unsafe {
        free(anchor);
        if SHARED {
            free(el);
        }
    }
}

/// Locks the predecessor of `el`; `None` if another thread holds it.
///
/// # Safety
/// The caller holds `el`, which is in a list.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn lock_prev(el: *mut Link) -> Option<*mut Link> {
    loop {
        // SAFETY: the caller holds `el`, so rule 3 pins its predecessor.
        let before = unsafe { prev(el) };
        // SAFETY: as above.
        let next = unsafe { lock(before) };
        if next == el {
            return Some(before);
        }
        if next == BUSY {
            return None;
        }
        // Rule 2's exception: `before` is the head, and a thread added an element in front of `el` since this
        // thread read `prev`. The `prev` of `el` now names that element, and cannot change again while `el`
        // is held.
        // SAFETY: this thread holds `before` and changed nothing.
        unsafe { unlock(before, next) };
    }
}

/// Removes `el` from the list that contains it; `false` if no list does. Takes three locked instructions, two
/// for the only element.
///
/// `head` is the list's head if the caller knows it, otherwise null. It decides the order of release (rule
/// 6).
///
/// # Safety
/// `el` is an element that the caller may lock (rule 5), and no head.
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn delete(el: *mut Link, head: *mut Link, wait: &mut Wait) -> bool {
    loop {
        // SAFETY: `el` is valid.
        let next = unsafe { lock(el) };
        if next == OUT {
            // SAFETY: this thread holds it.
            unsafe { unlock(el, OUT) };
            return false;
        }
        if next != BUSY {
            // SAFETY: this thread holds `el`, which is in the list.
            if let Some(before) = unsafe { lock_prev(el) } {
                if next == before {
                    wait.linger();
                    // SAFETY: only a head is on both sides; this thread holds both links of the ring.
                    unsafe {
                        set_prev(before, before);
                        free(el);
                        unlock(before, before);
                    }
                    return true;
                }
                // SAFETY: rule 3 pins `next` while this thread holds `el`.
                let after = unsafe { lock(next) };
                if after != BUSY {
                    wait.linger();
                    // SAFETY: this thread holds `el` and both neighbours (rule 3). The head is released last
                    // (rule 6); `el` is in no list after the first release, and freed after the last.
                    unsafe {
                        set_prev(next, before);
                        if next == head {
                            unlock(before, next);
                            unlock(next, after);
                        } else {
                            unlock(next, after);
                            unlock(before, next);
                        }
                        free(el);
                    }
                    return true;
                }
                // SAFETY: this thread holds `before` and changed nothing.
                unsafe { unlock(before, el) };
            }
            // SAFETY: this thread holds `el` and changed nothing.
            unsafe { unlock(el, next) };
        }
        wait.wait();
    }
}

/// As [`delete`], for the owner of an element that other threads lock only as a neighbour (rule 5). Takes one
/// locked instruction for the only element, three otherwise.
///
/// # Safety
/// `el` is the caller's own, and `head` the head of the only list that can contain it.
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn delete_own(el: *mut Link, head: *mut Link) -> bool {
    let mut wait = Wait::new();
    // SAFETY: `el` is this thread's own. Relaxed: only a hint, checked under the head's lock.
    if unsafe { &*el }.prev.load(Ordering::Relaxed) == head {
        // SAFETY: the head never leaves.
        let first = unsafe { lock(head) };
        if first == el {
            // SAFETY: this thread holds the head, and `el` is next to it (rule 3).
            if unsafe { delete_first_own(el, head) } {
                return true;
            }
            wait.wait();
        } else if first == BUSY {
            wait.wait();
        } else {
            // SAFETY: this thread holds the head and changed nothing. `el` now has a predecessor, or is out.
            unsafe { unlock(head, first) };
        }
    }
    // SAFETY: the caller's contract.
    unsafe { delete(el, head, &mut wait) }
}

/// Deletes `el`, the first element of the list whose `head` the caller holds, and unlocks the head. Returns
/// `false`, and changes nothing, if another thread holds a needed link.
///
/// # Safety
/// As for [`delete_own`], with `head` held and `el` after it.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn delete_first_own(el: *mut Link, head: *mut Link) -> bool {
    // SAFETY: the caller holds the head.
    if unsafe { prev(head) } == el {
        // SAFETY: rule 7: the only neighbour of `el` is the head, which this thread holds, so no other thread
        // holds `el` or can lock it.
        unsafe {
            set_prev(head, head);
            free(el);
            unlock(head, head);
        }
        return true;
    }
    // SAFETY: `el` is this thread's own.
    let next = unsafe { lock(el) };
    if next != BUSY {
        // SAFETY: rule 3 pins `next` while this thread holds `el`.
        let after = unsafe { lock(next) };
        if after != BUSY {
            // SAFETY: this thread holds `el` and both neighbours (rule 3). The head is released last (rule
            // 6).
            unsafe {
                set_prev(next, head);
                unlock(next, after);
                free(el);
                unlock(head, next);
            }
            return true;
        }
        // SAFETY: this thread holds `el` and changed nothing.
        unsafe { unlock(el, next) };
    }
    // SAFETY: this thread holds the head and changed nothing.
    unsafe { unlock(head, el) };
    false
}

/// Removes the first element and returns it *held*: the caller ends the hold with [`free`]. Takes three
/// locked instructions, two for the only element, one if the list is empty.
///
/// # Safety
/// `head` is a head.
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn pop(head: *mut Link) -> Option<*mut Link> {
    let mut wait = Wait::new();
    loop {
        // SAFETY: the head never leaves.
        let el = unsafe { lock(head) };
        if el == head {
            // SAFETY: this thread holds it.
            unsafe { unlock(head, head) };
            return None;
        }
        if el != BUSY {
            // SAFETY: rule 3 pins `el` while this thread holds the head.
            let next = unsafe { lock(el) };
            if next == head {
                wait.linger();
                // SAFETY: this thread holds the head and its only element.
                unsafe {
                    set_prev(head, head);
                    unlock(head, head);
                }
                return Some(el);
            }
            if next != BUSY {
                // SAFETY: rule 3 pins `next` while this thread holds `el`.
                let after = unsafe { lock(next) };
                if after != BUSY {
                    wait.linger();
                    // SAFETY: this thread holds `el` and both neighbours (rule 3). The head is released last
                    // (rule 6).
                    unsafe {
                        set_prev(next, head);
                        unlock(next, after);
                        unlock(head, next);
                    }
                    return Some(el);
                }
                // SAFETY: this thread holds `el` and changed nothing; it releases `el` before the head (rule
                // 6).
                unsafe { unlock(el, next) };
            }
            // SAFETY: this thread holds the head and changed nothing.
            unsafe { unlock(head, el) };
        }
        wait.wait();
    }
}

/// Calls `visit` for each element from first to last. The walk holds the element meanwhile: the element stays
/// in the list, and threads that want it or a neighbour wait.
///
/// The walk goes from lock to lock, and waits for the next lock while it holds one. That cannot deadlock: all
/// other operations release their locks before they wait (rule 4), and walks wait in one direction, from the
/// head to the last element, and never for the head.
///
/// # Safety
/// `head` is a head.
pub(crate) unsafe fn walk(head: *mut Link, mut visit: impl FnMut(*mut Link)) {
    /// A link that the walk holds; unlocked also if `visit` panics.
    struct Held(*mut Link, *mut Link);
    impl Drop for Held {
        fn drop(&mut self) {
            // SAFETY: the walk holds it and has not changed its `next`.
            unsafe { unlock(self.0, self.1) }
        }
    }
    /// Locks `x`, which the caller has pinned.
    unsafe fn lock_waiting(x: *mut Link) -> Held {
        let mut wait = Wait::new();
        loop {
            // SAFETY: the caller has pinned `x`.
            let next = unsafe { lock(x) };
            if next != BUSY {
                return Held(x, next);
            }
            wait.wait();
        }
    }

    // SAFETY: the head never leaves.
    let mut at = unsafe { lock_waiting(head) };
    while at.1 != head {
        // SAFETY: rule 3 pins the successor of a held link.
        let next = unsafe { lock_waiting(at.1) };
        // SAFETY: this thread holds it.
        let back = unsafe { prev(next.0) };
        assert!(back == at.0, "the list is damaged: an element does not point back at the one before it");
        if at.0 == head && next.1 == head {
            // The owner of an only element relies on the head's lock (rule 7): keep it until the visit is
            // over.
            visit(next.0);
            drop(next);
            return;
        }
        at = next;
        visit(at.0);
    }
    // SAFETY: this thread holds the last element and with it the link to the head, which only its holder may
    // change.
    let back = unsafe { prev(head) };
    assert!(back == at.0, "the list is damaged: the head does not point back at the last element");
}
