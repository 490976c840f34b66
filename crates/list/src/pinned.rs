//! The list of pinned elements that their owners keep: [`MtList`] and [`Node`].

use crate::raw::{self, Added, Link};
use manylane_sync::CachePadded;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::ptr::NonNull;

/// A list of [`Node`]s. Each node stays with its owner, who adds and deletes it; any thread may remove the
/// first one.
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
    /// Never changes. On the heap, so that the list may move; on a line of its own, so that the ends of the
    /// list share no line with other data.
    head: NonNull<CachePadded<Link>>,
    /// Invariant: values go in, and visitors see them, through a shared reference.
    _elements: PhantomData<fn(T) -> T>,
}

// SAFETY: any thread may free the head. Elements that were forgotten may still be in the list, and the new
// thread sees them through `&T`.
unsafe impl<T: Sync> Send for MtList<T> {}
// SAFETY: threads that share the list see elements of other threads through `&T`.
unsafe impl<T: Sync> Sync for MtList<T> {}

impl<T> MtList<T> {
    /// Creates an empty list. Allocates the list's head.
    pub fn new() -> Self {
        let head = Box::new(CachePadded::new(Link::new()));
        head.become_head();
        // Not kept as a `Box`, which would claim unique access to the head whenever the list moves.
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

    /// Removes the first element and calls `visit` with its value; `None` if the list is empty.
    ///
    /// This call holds the element until `visit` returns: its owner cannot free, delete or add it before. So
    /// `visit` should be short. It must not touch the element's own [`Node`], since it would wait for itself
    /// for ever.
    ///
    /// Cost: three locked instructions; two for the only element; one when empty.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn pop_with<R>(&self, visit: impl FnOnce(&T) -> R) -> Option<R> {
        /// Ends the hold, also if `visit` panics.
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
    /// The walk holds the element meanwhile, and threads that want to change it or its neighbours wait. So
    /// `visit` should be short, and must not add to, delete from or walk this list. The walk may miss
    /// elements that are added or deleted meanwhile.
    ///
    /// Cost: one locked instruction per element and one for the head.
    pub fn for_each(&self, mut visit: impl FnMut(&T)) {
        // SAFETY: `head` lives as long as the list; `walk` holds the element while `visit` runs, and every
        // link of this list but the head is the first field of a `Node<T>`.
        unsafe { raw::walk(self.head_ptr(), |el| visit(&(*el.cast::<Node<'_, T>>()).value)) }
    }

    /// True if the list had no element at some recent moment. Costs one load of the head's line.
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
        // Every `Node` borrows the list, so only forgotten nodes can be left. Forgotten pinned memory stays
        // valid for ever: remove these nodes, so that none points to the freed head.
        // SAFETY: `head` lives until the next statement but one; popped elements are held.
        while let Some(el) = unsafe { raw::pop(self.head_ptr()) } {
            // SAFETY: popped just now.
            unsafe { raw::free(el) };
        }
        // SAFETY: from `Box::leak` in `new`; no link points to the head.
        drop(unsafe { Box::from_raw(self.head.as_ptr()) });
    }
}

impl<T> fmt::Debug for MtList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MtList").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

/// An element of one [`MtList`], with its value. Its owner pins it, and is the only one to add and delete it.
///
/// It is `!Sync`: one thread at a time owns it, which makes its operations cheap. Dropping it first deletes
/// it from its list. To avoid false sharing, lanes put it in a [`CachePadded`](manylane_sync::CachePadded).
///
/// An unpinned node could move while links point to it, so its operations need a pinned one:
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
/// Values that are not `Sync` cannot be shared:
/// ```compile_fail
/// # use manylane_list::{MtList, Node};
/// let list = MtList::<std::cell::Cell<u32>>::new();
/// std::thread::scope(|s| { s.spawn(|| list.pop_with(|c| c.set(1))); });
/// ```
/// Nor can such values be sent with the list, in which forgotten elements stay:
/// ```compile_fail
/// # use manylane_list::MtList;
/// let list = MtList::<std::rc::Rc<u32>>::new();
/// std::thread::spawn(move || list.for_each(|count| drop(count.clone())));
/// ```
#[repr(C)] // the link is first, so a pointer to the link is a pointer to the node
pub struct Node<'list, T> {
    link: Link,
    list: &'list MtList<T>,
    /// `!Sync`: rule 5, one owner at a time.
    _owned: PhantomData<std::cell::Cell<()>>,
    value: T,
}

// SAFETY: the owner may move it to another thread, in a list or not: other threads follow the link under the
// protocol. `T: Send` since the value is dropped on the owner's thread, `T: Sync` since `pop_with` and
// `for_each` show it to other threads.
unsafe impl<T: Send + Sync> Send for Node<'_, T> {}

impl<'list, T> Node<'list, T> {
    /// Creates an element for `list`, in no list so far.
    pub fn new(list: &'list MtList<T>, value: T) -> Self {
        Self { link: Link::new(), list, _owned: PhantomData, value }
    }

    /// Returns the value.
    #[inline]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Returns the list that the element can be in.
    #[inline]
    pub fn list(&self) -> &'list MtList<T> {
        self.list
    }

    /// Adds the element as the first of its list. The caller knows that it is out of the list.
    ///
    /// Cost: one locked instruction, on the head.
    ///
    /// # Panics
    /// If the element is in the list: call [`is_in_list`](Self::is_in_list) first, or use
    /// [`try_add`](Self::try_add).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(self: Pin<&Self>) {
        self.must_be_out();
        // SAFETY: pinned, out of the list, and this thread's alone (`!Sync`).
        unsafe { raw::add_head::<false>(self.list.head_ptr(), self.link_ptr()) };
    }

    /// Adds the element as the last of its list. The caller knows that it is out of the list.
    ///
    /// Cost: two locked instructions, on the head and the last element; one when the list is empty.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add_tail(self: Pin<&Self>) {
        self.must_be_out();
        // SAFETY: pinned, out of the list, and this thread's alone (`!Sync`).
        unsafe { raw::add_tail::<false>(self.list.head_ptr(), self.link_ptr()) };
    }

    /// Adds the element as the first, unless it is in the list. Returns true if it was added.
    ///
    /// Cost: as [`add`](Self::add). Waits for a [`pop_with`](MtList::pop_with) that is visiting the element.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn try_add(self: Pin<&Self>) -> bool {
        let out = !self.is_in_list();
        if out {
            self.add();
        }
        out
    }

    /// Adds the element as the last, unless it is in the list. Returns true if it was added.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn try_add_tail(self: Pin<&Self>) -> bool {
        let out = !self.is_in_list();
        if out {
            self.add_tail();
        }
        out
    }

    /// Adds the element right after `anchor`. Returns `false`, and changes nothing, if `anchor` is not in the
    /// list (another thread may just have popped it).
    ///
    /// Cost: two locked instructions, on `anchor` and on its successor. Does not touch the head, unless
    /// `anchor` is the last element.
    ///
    /// # Panics
    /// If the element is in the list or is `anchor`, or if `anchor` belongs to another list.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn insert_after(self: Pin<&Self>, anchor: Pin<&Self>) -> bool {
        self.must_be_out();
        self.must_fit(anchor);
        // SAFETY: both are pinned and this thread's alone; the element is out of the list and not `anchor`.
        unsafe { raw::insert_after::<false>(anchor.link_ptr(), self.link_ptr()) == Added::Yes }
    }

    /// Adds the element right before `anchor`; as [`insert_after`](Self::insert_after).
    ///
    /// # Panics
    /// As [`insert_after`](Self::insert_after).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn insert_before(self: Pin<&Self>, anchor: Pin<&Self>) -> bool {
        self.must_be_out();
        self.must_fit(anchor);
        // SAFETY: both are pinned and this thread's alone; the element is out of the list and not `anchor`.
        unsafe { raw::insert_before::<false>(anchor.link_ptr(), self.link_ptr()) == Added::Yes }
    }

    /// Removes the element from its list. Returns `false` if it was out already.
    ///
    /// After the return no other thread touches the element. Waits for a [`pop_with`](MtList::pop_with) that
    /// is visiting the element.
    ///
    /// Cost: three locked instructions, on the element and its neighbours; one if it is the only element.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn delete(self: Pin<&Self>) -> bool {
        // SAFETY: pinned and this thread's alone; it can be in this list only.
        unsafe { raw::delete_own(self.link_ptr(), self.list.head_ptr()) }
    }

    /// True if the element is in its list. `false` stays true until the owner adds the element; `true` may
    /// already be outdated, since any thread may pop. Waits while another thread holds the element.
    ///
    /// Cost: one load of the element's own line.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn is_in_list(&self) -> bool {
        self.link.is_in_list()
    }

    #[inline]
    fn link_ptr(&self) -> *mut Link {
        // Derived from the whole node, so that a reader may go from the link to the value.
        std::ptr::from_ref(self).cast::<Link>().cast_mut()
    }

    #[inline]
    #[track_caller]
    fn must_be_out(&self) {
        // Costs one load of a line that the addition writes anyway. Only the owner can add the element, so
        // the answer "out" stays true.
        if !self.link.is_out() {
            self.still_in_list();
        }
    }

    /// Slow path of `must_be_out`: a pop may just be ending.
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
    fn must_fit(&self, anchor: Pin<&Self>) {
        assert!(
            std::ptr::eq(self.list, anchor.list),
            "element inserted next to an element of another list: both must be made for the same list"
        );
        assert!(
            !std::ptr::eq(self, &*anchor),
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
        // Out is the usual case, and needs no access to the list. Otherwise other threads may see this node:
        // continue through a shared reference.
        let this = &*self;
        if !this.link.is_out() {
            // SAFETY: a node that was ever added is pinned, so it has not moved; it is this thread's alone.
            unsafe { raw::delete_own(this.link_ptr(), this.list.head_ptr()) };
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Node<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("value", &self.value).finish_non_exhaustive()
    }
}
