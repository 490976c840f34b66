//! The list of pinned elements that their owners keep: [`MtList`] and [`Node`].

use crate::raw::{self, Added, Link};
use manylane_sync::CachePadded;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::ptr::NonNull;

/// A list of [`Node`]s. Each stays with its owner, who adds and deletes it; anyone may take the first one
/// out.
///
/// ```
/// use manylane_list::{MtList, Node};
/// use std::pin::pin;
///
/// let list = MtList::new();
/// let apple = pin!(Node::new(&list, "apple"));
/// let pear = pin!(Node::new(&list, "pear"));
/// apple.as_ref().add_tail();
/// pear.as_ref().add_tail();
/// assert!(apple.as_ref().delete());
/// assert_eq!(list.pop_with(|fruit| *fruit), Some("pear"));
/// assert!(!pear.as_ref().is_in_list());
/// ```
pub struct MtList<T> {
    /// Fixed. On the heap, so that the list may move; on a line of its own, so that the ends of the list are
    /// no neighbours of anything.
    head: NonNull<CachePadded<Link>>,
    /// Invariant: values go in and are shown through a shared reference.
    _elements: PhantomData<fn(T) -> T>,
}

// SAFETY: any thread may free the head. Elements that were forgotten may still be in the list, and the new
// thread sees them through `&T`.
unsafe impl<T: Sync> Send for MtList<T> {}
// SAFETY: whoever shares the list sees elements of other threads through `&T`.
unsafe impl<T: Sync> Sync for MtList<T> {}

impl<T> MtList<T> {
    /// An empty list. Allocates its head.
    pub fn new() -> Self {
        let head = Box::new(CachePadded::new(Link::new()));
        head.become_head();
        // Not kept as a `Box`, which would claim the head for itself whenever the list is moved.
        Self { head: NonNull::from(Box::leak(head)), _elements: PhantomData }
    }

    fn head(&self) -> &Link {
        // SAFETY: allocated in `new`, freed in `drop`.
        unsafe { self.head.as_ref() }
    }

    /// Names the head's line in the simulator's reports.
    pub fn label(&self, name: &'static str) {
        manylane_sync::label(self.head(), name);
    }

    /// Takes the first element out and calls `visit` with its value; `None` when the list is empty.
    ///
    /// The element is held until `visit` returns: its owner cannot free, delete or add it before. So `visit`
    /// should be short, and must not touch the element's own [`Node`], which would wait for itself for
    /// ever.
    ///
    /// Cost: three locked instructions; two for the only element; one when empty.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn pop_with<R>(&self, visit: impl FnOnce(&T) -> R) -> Option<R> {
        /// Ends the hold, also when `visit` panics.
        struct Popped(*mut Link);
        impl Drop for Popped {
            fn drop(&mut self) {
                // SAFETY: popped and held by `pop_with`.
                unsafe { raw::free(self.0) }
            }
        }
        // SAFETY: `head` lives as long as the list.
        let popped = Popped(unsafe { raw::pop(self.head_ptr())? });
        // SAFETY: held, so its owner cannot free it; every link of this list but the head is the first
        // field of a `Node<T>`.
        let node = unsafe { &*popped.0.cast::<Node<'_, T>>() };
        Some(visit(&node.value))
    }

    /// Calls `visit` for each element from the first to the last.
    ///
    /// The element is held meanwhile: whoever wants to change it or its neighbours waits, so `visit` should
    /// be short, and must not add to, delete from or walk this list. Elements that come or go during the
    /// walk may be missed.
    ///
    /// Cost: one locked instruction per element and one for the head.
    pub fn for_each(&self, mut visit: impl FnMut(&T)) {
        // SAFETY: `head` lives as long as the list; `walk` holds the element while `visit` runs, and every
        // link of this list but the head is the first field of a `Node<T>`.
        unsafe { raw::walk(self.head_ptr(), |el| visit(&(*el.cast::<Node<'_, T>>()).value)) }
    }

    /// Whether the list had no element at some recent moment. One load of the head's line.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn is_empty(&self) -> bool {
        self.head().points_at_itself()
    }

    #[inline]
    fn head_ptr(&self) -> *mut Link {
        self.head.as_ptr().cast()
    }
}

impl<T> Default for MtList<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for MtList<T> {
    fn drop(&mut self) {
        // Every `Node` borrows the list, so only forgotten ones can be left. Pinned memory that is forgotten
        // stays valid for ever: take them out, so that none points at the freed head.
        // SAFETY: `head` lives until the next statement but one; popped elements are held.
        while let Some(el) = unsafe { raw::pop(self.head_ptr()) } {
            // SAFETY: popped just now.
            unsafe { raw::free(el) };
        }
        // SAFETY: from `Box::leak` in `new`; nothing points at it.
        drop(unsafe { Box::from_raw(self.head.as_ptr()) });
    }
}

impl<T> fmt::Debug for MtList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MtList").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

/// An element of one [`MtList`], with its value. Pinned by its owner, the only one to add and delete it.
///
/// It is `!Sync`: one thread at a time owns it, and that is what makes its operations cheap. Dropping it
/// deletes it from its list first. Lanes that want no false sharing put it in a
/// [`CachePadded`](manylane_sync::CachePadded).
///
/// A node that could be unpinned could move while others point at it; so it cannot be used unpinned:
/// ```compile_fail
/// # use manylane_list::{MtList, Node};
/// let list = MtList::new();
/// let node = Node::new(&list, 1);
/// node.add(); // needs Pin<&Node>
/// ```
/// The list outlives its nodes:
/// ```compile_fail
/// # use manylane_list::{MtList, Node};
/// let list = MtList::new();
/// let node = Box::pin(Node::new(&list, 1));
/// drop(list);
/// drop(node);
/// ```
/// Two threads cannot own one node:
/// ```compile_fail
/// # use manylane_list::{MtList, Node};
/// let list = MtList::new();
/// let node = Box::pin(Node::new(&list, 1));
/// std::thread::scope(|s| { s.spawn(|| node.as_ref().delete()); });
/// ```
/// Values that two threads may not see at once do not travel:
/// ```compile_fail
/// # use manylane_list::{MtList, Node};
/// let list = MtList::<std::cell::Cell<u32>>::new();
/// std::thread::scope(|s| { s.spawn(|| list.pop_with(|c| c.set(1))); });
/// ```
/// Nor do they travel with the list, in which forgotten elements stay:
/// ```compile_fail
/// # use manylane_list::MtList;
/// let list = MtList::<std::rc::Rc<u32>>::new();
/// std::thread::spawn(move || list.for_each(|count| drop(count.clone())));
/// ```
#[repr(C)] // the link is first: a pointer to it is a pointer to the node
pub struct Node<'list, T> {
    link: Link,
    list: &'list MtList<T>,
    /// `!Sync`: rule 5, one owner at a time.
    _owned: PhantomData<std::cell::Cell<()>>,
    value: T,
}

// SAFETY: the owner may move it to another thread, in a list or not: others follow the link under the
// protocol. `T: Send` because it is dropped where the owner is, `T: Sync` because `pop_with` and `for_each`
// show it meanwhile.
unsafe impl<T: Send + Sync> Send for Node<'_, T> {}

impl<'list, T> Node<'list, T> {
    /// An element for `list`, in no list so far.
    pub fn new(list: &'list MtList<T>, value: T) -> Self {
        Self { link: Link::new(), list, _owned: PhantomData, value }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The list that it can be in.
    #[inline]
    pub fn list(&self) -> &'list MtList<T> {
        self.list
    }

    /// Adds the element as the first of its list. The caller knows that it is out.
    ///
    /// Cost: one locked instruction, on the head.
    ///
    /// # Panics
    /// When it is in the list: ask [`is_in_list`](Self::is_in_list), or use [`try_add`](Self::try_add).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(self: Pin<&Self>) {
        self.must_be_out();
        // SAFETY: pinned, out, and ours alone (`!Sync`).
        unsafe { raw::add_head::<false>(self.list.head_ptr(), self.link_ptr()) };
    }

    /// Adds the element as the last of its list. The caller knows that it is out.
    ///
    /// Cost: two locked instructions, on the head and the last element; one when the list is empty.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add_tail(self: Pin<&Self>) {
        self.must_be_out();
        // SAFETY: pinned, out, and ours alone (`!Sync`).
        unsafe { raw::add_tail::<false>(self.list.head_ptr(), self.link_ptr()) };
    }

    /// Adds the element as the first unless it is in the list; tells whether it was added.
    ///
    /// Cost: as [`add`](Self::add). It waits for a [`pop_with`](MtList::pop_with) that is visiting the
    /// element.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn try_add(self: Pin<&Self>) -> bool {
        let out = !self.is_in_list();
        if out {
            self.add();
        }
        out
    }

    /// Adds the element as the last unless it is in the list; tells whether it was added.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn try_add_tail(self: Pin<&Self>) -> bool {
        let out = !self.is_in_list();
        if out {
            self.add_tail();
        }
        out
    }

    /// Adds the element right after `place`; `false`, with nothing changed, when `place` is not in the list
    /// (somebody may just have popped it).
    ///
    /// Cost: two locked instructions, on `place` and the element after it. The head is not touched, unless
    /// `place` is the last element.
    ///
    /// # Panics
    /// When the element is in the list, or is itself `place`, or `place` belongs to another list.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn insert_after(self: Pin<&Self>, place: Pin<&Self>) -> bool {
        self.must_be_out();
        self.must_fit(place);
        // SAFETY: both pinned and ours alone; the element is out and not `place`.
        unsafe { raw::insert_after::<false>(place.link_ptr(), self.link_ptr()) == Added::Yes }
    }

    /// Adds the element right before `place`; as [`insert_after`](Self::insert_after).
    ///
    /// # Panics
    /// As [`insert_after`](Self::insert_after).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn insert_before(self: Pin<&Self>, place: Pin<&Self>) -> bool {
        self.must_be_out();
        self.must_fit(place);
        // SAFETY: both pinned and ours alone; the element is out and not `place`.
        unsafe { raw::insert_before::<false>(place.link_ptr(), self.link_ptr()) == Added::Yes }
    }

    /// Takes the element out of its list; `false` when it was out already.
    ///
    /// When it returns, no other thread touches the element any more. It waits for a
    /// [`pop_with`](MtList::pop_with) that is visiting the element.
    ///
    /// Cost: three locked instructions, on the element and its neighbours; one when it is the only element.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn delete(self: Pin<&Self>) -> bool {
        // SAFETY: pinned and ours alone; it can be in this list only.
        unsafe { raw::delete_own(self.link_ptr(), self.list.head_ptr()) }
    }

    /// Whether the element is in its list. `false` stays true until its owner adds it; `true` is old when it
    /// arrives, since anyone may pop. It waits while another thread holds the element.
    ///
    /// Cost: one load of the element's own line.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn is_in_list(&self) -> bool {
        self.link.is_in_list()
    }

    #[inline]
    fn link_ptr(&self) -> *mut Link {
        // From the whole node, so that a reader may go from the link to the value.
        std::ptr::from_ref(self).cast::<Link>().cast_mut()
    }

    #[inline]
    #[track_caller]
    fn must_be_out(&self) {
        // One load of a line that the addition writes anyway. Nobody but the owner can add it, so "out" stays
        // true.
        if !self.link.is_out() {
            self.still_in_list();
        }
    }

    /// Not out so far: perhaps a pop is just ending.
    #[cold]
    #[track_caller]
    fn still_in_list(&self) {
        assert!(
            !self.link.is_in_list(),
            "element added that is in the list already: delete it first, or use try_add"
        );
    }

    #[inline]
    #[track_caller]
    fn must_fit(&self, place: Pin<&Self>) {
        assert!(
            std::ptr::eq(self.list, place.list),
            "element inserted next to an element of another list: both must be made for the same list"
        );
        assert!(
            !std::ptr::eq(self, &*place),
            "element inserted next to itself: give another element as the place"
        );
    }
}

impl<T> Deref for Node<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Node<'_, T> {
    fn drop(&mut self) {
        // Out is the usual case, and needs no look at the list. Else others may be looking at this node: go
        // on through a shared reference.
        let this = &*self;
        if !this.link.is_out() {
            // SAFETY: a node that was ever added is pinned, so it has not moved; it is ours alone.
            unsafe { raw::delete_own(this.link_ptr(), this.list.head_ptr()) };
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Node<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("value", &self.value).finish_non_exhaustive()
    }
}
