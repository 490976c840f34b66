//! The protocol on bare links: the unsafe core. Rule numbers are those of the crate documentation.
//!
//! Nothing here knows what an element contains or who frees it. [`MtList`](crate::MtList) and
//! [`OwningList`](crate::OwningList) keep the contracts of these functions for safe callers.
//!
//! # Contracts that are the same everywhere
//! A `Link` is *valid* until it is freed or moved; a head is a link that points at itself when the list is
//! empty. Every function asks that the links it is given stay valid until it returns. *Out* means in no list
//! and held by nobody else, which [`Link::is_out`] tells to whoever may add the element.

use crate::wait::Wait;
use manylane_sync::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomPinned;
use std::ptr;

/// In `next`: somebody holds the link (rule 1). Odd, so it is no address of a link.
const BUSY: *mut Link = ptr::without_provenance_mut(1);

/// In `next`: the link is in no list.
const OUT: *mut Link = ptr::null_mut();

/// The two words of an element or of a list's head.
///
/// Both are in one cache line, because a thread that locks one nearly always needs the other.
#[repr(C, align(16))]
pub(crate) struct Link {
    /// The successor, [`OUT`], or [`BUSY`]: also the lock of both words (rule 1).
    next: AtomicPtr<Link>,
    /// The predecessor; written as rule 2 says.
    prev: AtomicPtr<Link>,
    /// Lets the model checker see every touch and the end of the link's life.
    #[cfg(loom)]
    life: manylane_sync::cell::UnsafeCell<()>,
    _pinned: PhantomPinned,
}

// R-E5: a locked instruction on a word that crosses a cache line is slow everywhere and a fault on some.
#[cfg(not(loom))]
const _: () = {
    assert!(align_of::<AtomicPtr<Link>>() == size_of::<AtomicPtr<Link>>());
    assert!(size_of::<Link>() == 2 * size_of::<usize>());
    assert!(align_of::<Link>() >= size_of::<Link>());
};

// SAFETY: the words are atomics; the pointers in them are followed under the protocol only.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

impl Link {
    /// A link in no list.
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicPtr::new(OUT),
            prev: AtomicPtr::new(OUT),
            #[cfg(loom)]
            life: manylane_sync::cell::UnsafeCell::new(()),
            _pinned: PhantomPinned,
        }
    }

    /// Makes this link the head of an empty list; it must stay where it is from now on.
    pub(crate) fn become_head(&self) {
        let me = ptr::from_ref(self).cast_mut();
        self.prev.store(me, Ordering::Relaxed);
        self.next.store(me, Ordering::Release);
    }

    /// True when the link is in no list and held by nobody. It stays so as long as nobody adds it.
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        // Acquire: pairs with the release in `free`; whoever took the element out is done with it.
        self.next.load(Ordering::Acquire) == OUT
    }

    /// Whether the link is in a list; waits while somebody holds it.
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

    /// For a head: whether the list had no element at some recent moment.
    #[inline]
    pub(crate) fn points_at_itself(&self) -> bool {
        // The word `prev` is never BUSY. Relaxed: the answer is old when it arrives.
        ptr::eq(self.prev.load(Ordering::Relaxed), self)
    }
}

#[cfg(loom)]
impl Drop for Link {
    fn drop(&mut self) {
        // Every touch by another thread must have happened before: loom checks.
        self.life.with_mut(|_| ());
    }
}

/// Takes the lock of `x` (rule 1) and gives its `next`; [`BUSY`]: another holder has it.
///
/// It reads nothing before the exchange, so the line arrives once, in the state that the stores need (R-E4).
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

/// Gives the lock of `x` back with the successor `next`. The last touch: `x` may be freed from here on.
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
    // loom leaves the order of a store and another thread's exchanges open for ever, so a waiter that
    // exchanges might never see this store. An exchange takes its place in their order, which is what
    // happens in finite time.
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
    // Acquire: pairs with the release in `set_prev` of an `add_head` that is still under way; the
    // new element's own words are set.
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

/// Sets the words of an element that is about to be linked. A shared element stays held until it is linked.
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

/// Ends the hold of [`fill`] on a shared element, which is linked now.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn filled<const SHARED: bool>(el: *mut Link, next: *mut Link) {
    if SHARED {
        // SAFETY: the caller holds `el` since `claim`.
        unsafe { unlock(el, next) }
    }
}

/// Ends the hold on an element that was taken out.
///
/// # Safety
/// The caller holds `el`, which is in no list.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn free(el: *mut Link) {
    // SAFETY: as the caller vouches.
    unsafe { unlock(el, OUT) }
}

/// What became of an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The element is in the list.
    Yes,
    /// The element was in a list already; nothing has changed.
    WasInList,
    /// The place to add it at was in no list; nothing has changed.
    PlaceIsOut,
}

/// Takes a shared element that is out, so that nobody else adds it: `false` when it is in a list.
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
                // SAFETY: we hold it.
                unsafe { unlock(el, next) };
                return false;
            }
        }
    }
}

/// Gives up what [`claim`] took, and waits: rule 4, whoever waits holds nothing.
#[cold]
unsafe fn yield_claim<const SHARED: bool>(el: *mut Link, wait: &mut Wait) {
    if SHARED {
        // SAFETY: the caller holds `el`, which is in no list.
        unsafe { free(el) };
    }
    wait.wait();
}

/// Adds `el` as the first element. One locked instruction; a shared element one more.
///
/// # Safety
/// `head` is a head. `el` is valid. Not `SHARED`: `el` is out, and no other thread adds or deletes it now.
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
            // SAFETY: rule 3 pins `first` while we hold the head. Rule 2 lets us write its `prev` without its
            // lock. `el` is complete or held before that store, since a holder of `first` may follow it at
            // once.
            unsafe {
                fill::<SHARED>(el, head, first);
                set_prev(first, el);
                unlock(head, el);
                filled::<SHARED>(el, first);
            }
            return Added::Yes;
        }
        // SAFETY: `claim` took it.
        unsafe { yield_claim::<SHARED>(el, &mut wait) };
    }
}

/// Adds `el` as the last element. Two locked instructions, one when the list is empty; a shared element one
/// more.
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
            // SAFETY: we hold the head, which is its own neighbour on both sides.
            unsafe {
                fill::<SHARED>(el, head, head);
                set_prev(head, el);
                unlock(head, el);
                filled::<SHARED>(el, head);
            }
            return Added::Yes;
        }
        if first != BUSY {
            // SAFETY: we hold the head; rule 3 pins its predecessor `last`.
            let last = unsafe { prev(head) };
            // SAFETY: as above.
            if unsafe { lock(last) } != BUSY {
                wait.linger();
                // SAFETY: both ends of the link are ours. The head is released last (rule 6).
                unsafe {
                    fill::<SHARED>(el, last, head);
                    set_prev(head, el);
                    unlock(last, el);
                    unlock(head, first);
                    filled::<SHARED>(el, head);
                }
                return Added::Yes;
            }
            // SAFETY: we hold the head and changed nothing.
            unsafe { unlock(head, first) };
        }
        // SAFETY: `claim` took it.
        unsafe { yield_claim::<SHARED>(el, &mut wait) };
    }
}

/// Adds `el` right after `place`. Two locked instructions; a shared element one more.
///
/// # Safety
/// `place` is an element that the caller may lock (rule 5), and no head. `el` as for [`add_head`], and
/// another one.
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn insert_after<const SHARED: bool>(place: *mut Link, el: *mut Link) -> Added {
    let mut wait = Wait::new();
    loop {
        // SAFETY: `el` is valid.
        if !unsafe { claim::<SHARED>(el, &mut wait) } {
            return Added::WasInList;
        }
        // SAFETY: `place` is valid.
        let next = unsafe { lock(place) };
        if next == OUT {
            // SAFETY: we hold it, and `claim` took `el`.
            unsafe { place_is_out::<SHARED>(place, el) };
            return Added::PlaceIsOut;
        }
        if next != BUSY {
            // SAFETY: rule 3 pins `next` while we hold `place`.
            let after = unsafe { lock(next) };
            if after != BUSY {
                wait.linger();
                // SAFETY: both ends of the link are ours.
                unsafe {
                    fill::<SHARED>(el, place, next);
                    set_prev(next, el);
                    unlock(next, after);
                    unlock(place, el);
                    filled::<SHARED>(el, next);
                }
                return Added::Yes;
            }
            // SAFETY: we hold `place` and changed nothing.
            unsafe { unlock(place, next) };
        }
        // SAFETY: `claim` took it.
        unsafe { yield_claim::<SHARED>(el, &mut wait) };
    }
}

/// Adds `el` right before `place`. Two locked instructions; a shared element one more.
///
/// # Safety
/// As for [`insert_after`].
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn insert_before<const SHARED: bool>(place: *mut Link, el: *mut Link) -> Added {
    let mut wait = Wait::new();
    loop {
        // SAFETY: `el` is valid.
        if !unsafe { claim::<SHARED>(el, &mut wait) } {
            return Added::WasInList;
        }
        // SAFETY: `place` is valid.
        let next = unsafe { lock(place) };
        if next == OUT {
            // SAFETY: we hold it, and `claim` took `el`.
            unsafe { place_is_out::<SHARED>(place, el) };
            return Added::PlaceIsOut;
        }
        if next != BUSY {
            // SAFETY: we hold `place`, which is in the list.
            if let Some(before) = unsafe { lock_prev(place) } {
                wait.linger();
                // SAFETY: both ends of the link are ours. If one is the head, it is `before`, released last
                // (rule 6).
                unsafe {
                    fill::<SHARED>(el, before, place);
                    set_prev(place, el);
                    unlock(place, next);
                    unlock(before, el);
                    filled::<SHARED>(el, place);
                }
                return Added::Yes;
            }
            // SAFETY: we hold `place` and changed nothing.
            unsafe { unlock(place, next) };
        }
        // SAFETY: `claim` took it.
        unsafe { yield_claim::<SHARED>(el, &mut wait) };
    }
}

#[cold]
unsafe fn place_is_out<const SHARED: bool>(place: *mut Link, el: *mut Link) {
    // SAFETY: the caller holds both, and both are in no list.
    unsafe {
        free(place);
        if SHARED {
            free(el);
        }
    }
}

/// Locks the predecessor of `el`; `None` when another holder has it.
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
        // Rule 2's exception: `before` is the head, and something was added in front of `el` since its `prev`
        // was read. Its `prev` now names that element, and cannot change again while `el` is held.
        // SAFETY: we hold `before` and changed nothing.
        unsafe { unlock(before, next) };
    }
}

/// Takes `el` out of whichever list it is in; `false` when it is in none. Three locked instructions, two for
/// the only element.
///
/// `head` is the list's head where the caller knows it, else null. It decides the order of release (rule 6).
///
/// # Safety
/// `el` is an element that the caller may lock (rule 5), and no head.
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn delete(el: *mut Link, head: *mut Link, wait: &mut Wait) -> bool {
    loop {
        // SAFETY: `el` is valid.
        let next = unsafe { lock(el) };
        if next == OUT {
            // SAFETY: we hold it.
            unsafe { unlock(el, OUT) };
            return false;
        }
        if next != BUSY {
            // SAFETY: we hold `el`, which is in the list.
            if let Some(before) = unsafe { lock_prev(el) } {
                if next == before {
                    wait.linger();
                    // SAFETY: only a head is on both sides; both links of the ring are ours.
                    unsafe {
                        set_prev(before, before);
                        free(el);
                        unlock(before, before);
                    }
                    return true;
                }
                // SAFETY: rule 3 pins `next` while we hold `el`.
                let after = unsafe { lock(next) };
                if after != BUSY {
                    wait.linger();
                    // SAFETY: `el` and both neighbours are ours (rule 3). The head is released last (rule 6);
                    // `el` is in no list from the first release on, and freed after the last.
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
                // SAFETY: we hold `before` and changed nothing.
                unsafe { unlock(before, el) };
            }
            // SAFETY: we hold `el` and changed nothing.
            unsafe { unlock(el, next) };
        }
        wait.wait();
    }
}

/// As [`delete`], for the one owner of an element that nobody else may lock out of the blue (rule 5). One
/// locked instruction for the only element, three otherwise.
///
/// # Safety
/// `el` is the caller's own, `head` the head of the only list that it can be in.
#[inline]
#[cfg_attr(manylane_sim, track_caller)]
pub(crate) unsafe fn delete_own(el: *mut Link, head: *mut Link) -> bool {
    let mut wait = Wait::new();
    // SAFETY: `el` is our own. Relaxed: only a hint; it is checked under the head's lock.
    if unsafe { &*el }.prev.load(Ordering::Relaxed) == head {
        // SAFETY: the head never leaves.
        let first = unsafe { lock(head) };
        if first == el {
            // SAFETY: we hold the head, and `el` is next to it (rule 3).
            if unsafe { delete_first_own(el, head) } {
                return true;
            }
            wait.wait();
        } else if first == BUSY {
            wait.wait();
        } else {
            // SAFETY: we hold the head and changed nothing. `el` has got a predecessor, or is out.
            unsafe { unlock(head, first) };
        }
    }
    // SAFETY: as the caller vouches.
    unsafe { delete(el, head, &mut wait) }
}

/// Deletes `el`, which is the first of the list whose `head` the caller holds, and gives the head back.
/// `false`: somebody holds what is needed, and nothing has changed.
///
/// # Safety
/// As for [`delete_own`], with `head` held and `el` after it.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
unsafe fn delete_first_own(el: *mut Link, head: *mut Link) -> bool {
    // SAFETY: the caller holds the head.
    if unsafe { prev(head) } == el {
        // SAFETY: rule 7: `el` has no neighbour but the head, which is ours, so nobody else holds `el` or can
        // come to.
        unsafe {
            set_prev(head, head);
            free(el);
            unlock(head, head);
        }
        return true;
    }
    // SAFETY: `el` is our own.
    let next = unsafe { lock(el) };
    if next != BUSY {
        // SAFETY: rule 3 pins `next` while we hold `el`.
        let after = unsafe { lock(next) };
        if after != BUSY {
            // SAFETY: `el` and both neighbours are ours (rule 3). The head is released last (rule 6).
            unsafe {
                set_prev(next, head);
                unlock(next, after);
                free(el);
                unlock(head, next);
            }
            return true;
        }
        // SAFETY: we hold `el` and changed nothing.
        unsafe { unlock(el, next) };
    }
    // SAFETY: we hold the head and changed nothing.
    unsafe { unlock(head, el) };
    false
}

/// Takes the first element out and gives it *held*: the caller ends that with [`free`]. Three locked
/// instructions, two for the only element, one when the list is empty.
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
            // SAFETY: we hold it.
            unsafe { unlock(head, head) };
            return None;
        }
        if el != BUSY {
            // SAFETY: rule 3 pins `el` while we hold the head.
            let next = unsafe { lock(el) };
            if next == head {
                wait.linger();
                // SAFETY: the head and its only element are ours.
                unsafe {
                    set_prev(head, head);
                    unlock(head, head);
                }
                return Some(el);
            }
            if next != BUSY {
                // SAFETY: rule 3 pins `next` while we hold `el`.
                let after = unsafe { lock(next) };
                if after != BUSY {
                    wait.linger();
                    // SAFETY: `el` and both neighbours are ours (rule 3). The head is released last (rule 6).
                    unsafe {
                        set_prev(next, head);
                        unlock(next, after);
                        unlock(head, next);
                    }
                    return Some(el);
                }
                // SAFETY: we hold `el` and changed nothing; before the head (rule 6).
                unsafe { unlock(el, next) };
            }
            // SAFETY: we hold the head and changed nothing.
            unsafe { unlock(head, el) };
        }
        wait.wait();
    }
}

/// Calls `visit` for each element from first to last. The element is held meanwhile: it stays in the list,
/// and whoever wants it or a neighbour of it waits.
///
/// The walk goes from lock to lock and waits for the next one while it holds one. That cannot deadlock:
/// nobody else waits while holding (rule 4), and walkers wait in one direction, from the head to the last
/// element and never for the head.
///
/// # Safety
/// `head` is a head.
pub(crate) unsafe fn walk(head: *mut Link, mut visit: impl FnMut(*mut Link)) {
    /// What the walker holds; given back also when `visit` panics.
    struct Held(*mut Link, *mut Link);
    impl Drop for Held {
        fn drop(&mut self) {
            // SAFETY: the walker holds it and has not changed its `next`.
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
        // SAFETY: rule 3 pins the successor of what we hold.
        let next = unsafe { lock_waiting(at.1) };
        // SAFETY: we hold it.
        let back = unsafe { prev(next.0) };
        assert!(back == at.0, "the list is damaged: an element does not point back at the one before it");
        if at.0 == head && next.1 == head {
            // The owner of an only element trusts the head's lock (rule 7): keep that until the visit is
            // over.
            visit(next.0);
            drop(next);
            return;
        }
        at = next;
        visit(at.0);
    }
    // SAFETY: we hold the last element, so the link to the head is ours, which only its holder may change.
    let back = unsafe { prev(head) };
    assert!(back == at.0, "the list is damaged: the head does not point back at the last element");
}
