//! The list that owns references to its elements: [`OwningList`], [`Item`] and [`Handle`].

use crate::raw::{self, Added, Link};
use crate::wait::Wait;
use manylane_sync::{Arc, CachePadded};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};

/// An element of an [`OwningList`] with its value; a [`Handle`] points to it.
///
/// The type is invariant in `T`. Otherwise a caller could shorten the lifetime in a handle's type, and
/// [`OwningList::insert_after`] would put a shorter-lived value into the list of a longer-lived one.
/// ```compile_fail
/// # use manylane_list::Item;
/// # use std::sync::Arc;
/// fn shorter<'a>(item: Arc<Item<&'static str>>) -> Arc<Item<&'a str>> { item }
/// ```
#[repr(C)] // the link is first, so a pointer to the link is a pointer to the item
pub struct Item<T> {
    link: Link,
    _invariant: PhantomData<fn(T) -> T>,
    value: T,
}

// SAFETY: an item can be sent by value only while it is in no list.
unsafe impl<T: Send> Send for Item<T> {}
// SAFETY: the link changes only under the protocol; the value is shared as `&T`.
unsafe impl<T: Sync> Sync for Item<T> {}

impl<T> Item<T> {
    /// Creates an element in no list.
    pub fn new(value: T) -> Self {
        Self { link: Link::new(), _invariant: PhantomData, value }
    }

    /// True if the element was in a list at some recent moment. Waits while another thread holds the element.
    /// Costs one load of the element's line.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn is_in_list(&self) -> bool {
        self.link.is_in_list()
    }
}

impl<T> Deref for Item<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("value", &self.value).finish_non_exhaustive()
    }
}

/// A counted or owning reference to an [`Item`] that a list can own: `Box<Item<T>>`, `Arc<Item<T>>`, a pooled
/// one.
///
/// # Safety
/// - The item neither moves nor dies between [`into_raw`](Self::into_raw) and [`from_raw`](Self::from_raw).
/// - `from_raw` later gets the pointer that `into_raw` returned, possibly on another thread.
/// - A list may return a handle of its own type for a handle that was added as a subtype. So the handle's
///   type must promise nothing, by a lifetime of its own, beyond the type of its [`Item`], which is
///   invariant.
pub unsafe trait Handle: Sized {
    /// Type of the item's value.
    type Value;

    /// Gives up the reference without releasing it.
    fn into_raw(self) -> NonNull<Item<Self::Value>>;

    /// Returns the reference to its owner.
    ///
    /// # Safety
    /// `item` comes from [`into_raw`](Self::into_raw), and each such call is undone at most once.
    unsafe fn from_raw(item: NonNull<Item<Self::Value>>) -> Self;

    /// Returns the pointer that [`into_raw`](Self::into_raw) would return; the handle keeps its reference.
    fn as_raw(&self) -> NonNull<Item<Self::Value>>;
}

/// A [`Handle`] that is the only one to its item: its owner knows that the item is in no list.
///
/// # Safety
/// Safe code has no second handle to the same item and no way to add the item to a list without the handle.
pub unsafe trait UniqueHandle: Handle {}

// SAFETY: a box's contents do not move.
unsafe impl<T> Handle for Box<Item<T>> {
    type Value = T;

    #[inline]
    fn into_raw(self) -> NonNull<Item<T>> {
        NonNull::from(Box::leak(self))
    }

    #[inline]
    unsafe fn from_raw(item: NonNull<Item<T>>) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Box::from_raw(item.as_ptr()) }
    }

    #[inline]
    fn as_raw(&self) -> NonNull<Item<T>> {
        NonNull::from(&**self)
    }
}

// SAFETY: a box is the only owner.
unsafe impl<T> UniqueHandle for Box<Item<T>> {}

// SAFETY: the target of an `Arc` neither moves nor dies while a reference is left; the list has one.
unsafe impl<T> Handle for Arc<Item<T>> {
    type Value = T;

    #[inline]
    fn into_raw(self) -> NonNull<Item<T>> {
        let item = Arc::into_raw(self).cast_mut();
        // SAFETY: an `Arc` never points at null.
        unsafe { NonNull::new_unchecked(item) }
    }

    #[inline]
    unsafe fn from_raw(item: NonNull<Item<T>>) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Arc::from_raw(item.as_ptr()) }
    }

    #[inline]
    fn as_raw(&self) -> NonNull<Item<T>> {
        // SAFETY: an `Arc` never points at null.
        unsafe { NonNull::new_unchecked(Arc::as_ptr(self).cast_mut()) }
    }
}

/// Error: the element is in a list already. Returns the handle.
#[derive(Debug, PartialEq, Eq)]
pub struct AddError<H>(
    /// The handle that was to be added.
    pub H,
);

impl<H> fmt::Display for AddError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the element is in a list already: delete it first")
    }
}

impl<H: fmt::Debug> std::error::Error for AddError<H> {}

/// Error of an insertion. Returns the handle that was to be added.
#[derive(Debug, PartialEq, Eq)]
pub enum InsertError<H> {
    /// The element is in a list already.
    InList(H),
    /// The element next to which to insert is in no list.
    AnchorNotInList(H),
}

impl<H> InsertError<H> {
    /// Returns the handle that was to be added.
    pub fn into_inner(self) -> H {
        match self {
            Self::InList(handle) | Self::AnchorNotInList(handle) => handle,
        }
    }
}

impl<H> fmt::Display for InsertError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InList(_) => "the element is in a list already: delete it first",
            Self::AnchorNotInList(_) => "the element to insert next to is in no list: add to an end instead",
        })
    }
}

impl<H: fmt::Debug> std::error::Error for InsertError<H> {}

/// A list that owns one reference to each of its elements: adding moves it in, pop and delete move it out.
///
/// ```
/// use manylane_list::{Item, OwningList};
///
/// let idle = OwningList::new();
/// idle.add(Box::new(Item::new("connection 1")));
/// idle.add_tail(Box::new(Item::new("connection 2")));
/// let taken = idle.pop().map(|item| **item);
/// assert_eq!(taken, Some("connection 1"));
/// ```
/// Any owner of a copyable handle can delete the element:
/// ```
/// use manylane_list::{Item, OwningList};
/// use std::sync::Arc;
///
/// let list = OwningList::new();
/// let item = Arc::new(Item::new(7));
/// assert!(list.try_add(item.clone()).is_ok());
/// assert!(list.try_add(item.clone()).is_err()); // in a list already
/// assert!(OwningList::delete(&item).is_some());
/// assert!(list.is_empty());
/// ```
/// Adding a boxed element moves it:
/// ```compile_fail
/// # use manylane_list::{Item, OwningList};
/// let list = OwningList::new();
/// let item = Box::new(Item::new(7));
/// list.add(item);
/// list.add(item);
/// ```
/// Only handles that cannot be copied may skip the check:
/// ```compile_fail
/// # use manylane_list::{Item, OwningList};
/// let list = OwningList::new();
/// list.add(std::sync::Arc::new(Item::new(7)));
/// ```
/// The type system keeps out a value that lives shorter than the list's own type says:
/// ```compile_fail
/// # use manylane_list::{Item, OwningList};
/// let list: OwningList<Box<Item<&'static str>>> = OwningList::new();
/// let word = String::from("short");
/// fn add<'a>(list: &OwningList<Box<Item<&'a str>>>, word: &'a str) { list.add(Box::new(Item::new(word))) }
/// add(&list, &word);
/// let kept: &'static str = list.pop().map(|item| **item).unwrap_or_default();
/// ```
pub struct OwningList<H: Handle> {
    /// Never changes. On the heap, so that the list may move.
    head: NonNull<CachePadded<Link>>,
    /// The list owns handles.
    _owns: PhantomData<H>,
    /// Invariant: handles go in and out through a shared reference.
    _invariant: PhantomData<fn(H) -> H>,
}

// SAFETY: the list owns its handles, which move with it.
unsafe impl<H: Handle + Send> Send for OwningList<H> {}
// SAFETY: a shared list takes handles on one thread and returns them on another; it gives no references.
unsafe impl<H: Handle + Send> Sync for OwningList<H> {}

impl<H: Handle> OwningList<H> {
    /// Creates an empty list. Allocates the list's head.
    pub fn new() -> Self {
        let head = Box::new(CachePadded::new(Link::new()));
        head.become_head();
        Self { head: NonNull::from(Box::leak(head)), _owns: PhantomData, _invariant: PhantomData }
    }

    /// Names the head's line in the simulator's reports.
    pub fn label(&self, name: &'static str) {
        // SAFETY: allocated in `new`, freed in `drop`.
        manylane_sync::label(unsafe { self.head.as_ref() }, name);
    }

    /// Adds an element as the first. Cost: one locked instruction, on the head.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add(&self, handle: H)
    where
        H: UniqueHandle,
    {
        // SAFETY: this is the only handle to its item: the item is out, and no other thread can lock it
        // before it is linked.
        unsafe { self.add_unchecked(handle) }
    }

    /// Adds an element as the last. Cost: two locked instructions; one when the list is empty.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add_tail(&self, handle: H)
    where
        H: UniqueHandle,
    {
        // SAFETY: this is the only handle to its item: the item is out, and no other thread can lock it
        // before it is linked.
        unsafe { self.add_tail_unchecked(handle) }
    }

    /// Adds an element as the first, without the locked instruction that checks that it is out.
    ///
    /// # Safety
    /// The element is in no list, and no other thread adds it, inserts next to it or deletes it meanwhile.
    ///
    /// # Panics
    /// In debug builds, if the element is in a list.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub unsafe fn add_unchecked(&self, handle: H) {
        debug_must_be_out(&handle);
        let item = handle.into_raw();
        // SAFETY: the caller's contract; the list's handle now keeps the item valid.
        unsafe { raw::add_head::<false>(self.head_ptr(), item.as_ptr().cast()) };
    }

    /// Adds an element as the last, without the locked instruction that checks that it is out.
    ///
    /// # Safety
    /// As [`add_unchecked`](Self::add_unchecked).
    ///
    /// # Panics
    /// In debug builds, if the element is in a list.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub unsafe fn add_tail_unchecked(&self, handle: H) {
        debug_must_be_out(&handle);
        let item = handle.into_raw();
        // SAFETY: the caller's contract; the list's handle now keeps the item valid.
        unsafe { raw::add_tail::<false>(self.head_ptr(), item.as_ptr().cast()) };
    }

    /// Adds an element as the first, unless it is in a list. If several threads try with the same element,
    /// one succeeds.
    ///
    /// Cost: two locked instructions, on the element and the head.
    ///
    /// # Errors
    /// [`AddError`] with the handle if the element is in this list or another.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn try_add(&self, handle: H) -> Result<(), AddError<H>> {
        let item = handle.into_raw();
        // SAFETY: the handle keeps the item valid, whether the list or the caller owns it.
        match unsafe { raw::add_head::<true>(self.head_ptr(), item.as_ptr().cast()) } {
            Added::Yes => Ok(()),
            // SAFETY: the list did not take the item.
            _ => Err(AddError(unsafe { H::from_raw(item) })),
        }
    }

    /// Adds an element as the last, unless it is in a list.
    ///
    /// Cost: three locked instructions, on the element, the head and the last element; two when the list is
    /// empty.
    ///
    /// # Errors
    /// As [`try_add`](Self::try_add).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn try_add_tail(&self, handle: H) -> Result<(), AddError<H>> {
        let item = handle.into_raw();
        // SAFETY: the handle keeps the item valid, whether the list or the caller owns it.
        match unsafe { raw::add_tail::<true>(self.head_ptr(), item.as_ptr().cast()) } {
            Added::Yes => Ok(()),
            // SAFETY: the list did not take the item.
            _ => Err(AddError(unsafe { H::from_raw(item) })),
        }
    }

    /// Adds an element right after `anchor`, into the list that contains `anchor`, unless the element is in a
    /// list.
    ///
    /// Cost: three locked instructions, on the element, on `anchor` and on its successor.
    ///
    /// # Errors
    /// [`InsertError`] with the handle. `anchor` itself is refused, too: an element cannot be in a list and
    /// out of it.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn insert_after(handle: H, anchor: &H) -> Result<(), InsertError<H>> {
        let (item, anchor) = (handle.into_raw(), anchor.as_raw());
        if item == anchor {
            // SAFETY: no list took the item.
            return Err(InsertError::AnchorNotInList(unsafe { H::from_raw(item) }));
        }
        // SAFETY: both handles keep their items valid, and the items differ.
        let added = unsafe { raw::insert_after::<true>(anchor.as_ptr().cast(), item.as_ptr().cast()) };
        // SAFETY: `item` is from `into_raw`.
        unsafe { inserted(added, item) }
    }

    /// Adds an element right before `anchor`; as [`insert_after`](Self::insert_after).
    ///
    /// # Errors
    /// As [`insert_after`](Self::insert_after).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn insert_before(handle: H, anchor: &H) -> Result<(), InsertError<H>> {
        let (item, anchor) = (handle.into_raw(), anchor.as_raw());
        if item == anchor {
            // SAFETY: no list took the item.
            return Err(InsertError::AnchorNotInList(unsafe { H::from_raw(item) }));
        }
        // SAFETY: both handles keep their items valid, and the items differ.
        let added = unsafe { raw::insert_before::<true>(anchor.as_ptr().cast(), item.as_ptr().cast()) };
        // SAFETY: `item` is from `into_raw`.
        unsafe { inserted(added, item) }
    }

    /// Removes the element from the list that contains it, and returns that list's handle; `None` if no list
    /// contains it.
    ///
    /// Cost: three locked instructions, on the element and its neighbours; two for the only element.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn delete(element: &H) -> Option<H> {
        let item = element.as_raw();
        // SAFETY: `element` keeps the item valid.
        let deleted = unsafe { raw::delete(item.as_ptr().cast(), ptr::null_mut(), &mut Wait::new()) };
        // SAFETY: the list's own handle, which the list has just given up.
        deleted.then(|| unsafe { H::from_raw(item) })
    }

    /// Removes the first element and returns the list's handle; `None` if the list is empty.
    ///
    /// Cost: three locked instructions; two for the only element; one when empty.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn pop(&self) -> Option<H> {
        // SAFETY: the head lives as long as the list.
        let el = unsafe { raw::pop(self.head_ptr())? };
        // SAFETY: popped and held; every link of this list except the head is the first field of an `Item`
        // that `into_raw` added. The list's handle keeps the item valid until this function returns it.
        unsafe {
            raw::free(el);
            Some(H::from_raw(NonNull::new_unchecked(el.cast())))
        }
    }

    /// Calls `visit` for each element from the first to the last; as
    /// [`MtList::for_each`](crate::MtList::for_each).
    pub fn for_each(&self, mut visit: impl FnMut(&H::Value))
    where
        H::Value: Sync,
    {
        // SAFETY: the head lives as long as the list; `walk` holds the element while `visit` runs, so the
        // list's handle keeps it valid.
        unsafe { raw::walk(self.head_ptr(), |el| visit(&(*el.cast::<Item<H::Value>>()).value)) }
    }

    /// True if the list had no element at some recent moment. Costs one load of the head's line.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn is_empty(&self) -> bool {
        // SAFETY: allocated in `new`, freed in `drop`.
        unsafe { self.head.as_ref() }.points_at_itself()
    }

    #[inline]
    fn head_ptr(&self) -> *mut Link {
        self.head.as_ptr().cast()
    }
}

/// Converts the result of an insertion in [`raw`]; returns the handle if the element was not inserted.
///
/// # Safety
/// `item` is from `into_raw`, and its insertion returned `added`.
#[inline]
unsafe fn inserted<H: Handle>(added: Added, item: NonNull<Item<H::Value>>) -> Result<(), InsertError<H>> {
    match added {
        Added::Yes => Ok(()),
        // SAFETY: no list took the item, so the handle is the caller's.
        Added::WasInList => Err(InsertError::InList(unsafe { H::from_raw(item) })),
        // SAFETY: as above.
        Added::AnchorIsOut => Err(InsertError::AnchorNotInList(unsafe { H::from_raw(item) })),
    }
}

#[inline]
#[track_caller]
fn debug_must_be_out<H: Handle>(handle: &H) {
    debug_assert!(
        // SAFETY: the handle keeps the item alive.
        unsafe { handle.as_raw().as_ref() }.link.is_out(),
        "element added without a check that is in a list already: delete it first, or use try_add"
    );
}

impl<H: Handle> Default for OwningList<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: Handle> Drop for OwningList<H> {
    fn drop(&mut self) {
        // Waits for a thread that is just deleting an element: that thread holds the element or the head.
        while self.pop().is_some() {}
        // SAFETY: from `Box::leak` in `new`; the list is empty, so no link points to the head.
        drop(unsafe { Box::from_raw(self.head.as_ptr()) });
    }
}

impl<H: Handle> fmt::Debug for OwningList<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwningList").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}
