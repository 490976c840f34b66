//! The list that owns its elements: [`OwningList`], [`Item`] and [`Handle`].

use crate::raw::{self, Added, Link};
use crate::wait::Wait;
use manylane_sync::{Arc, CachePadded};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};

/// An element of an [`OwningList`], with its value: what a [`Handle`] points at.
///
/// It is invariant in `T`: a handle whose type promises less about the value would let
/// [`OwningList::insert_after`] put something else into the list that its place is in.
/// ```compile_fail
/// # use manylane_list::Item;
/// # use std::sync::Arc;
/// fn shorter<'a>(item: Arc<Item<&'static str>>) -> Arc<Item<&'a str>> { item }
/// ```
#[repr(C)] // the link is first: a pointer to it is a pointer to the item
pub struct Item<T> {
    link: Link,
    _invariant: PhantomData<fn(T) -> T>,
    value: T,
}

// SAFETY: an item is sent by value only while it is in no list.
unsafe impl<T: Send> Send for Item<T> {}
// SAFETY: the link is changed under the protocol only; the value is shared as `&T`.
unsafe impl<T: Sync> Sync for Item<T> {}

impl<T> Item<T> {
    /// An element in no list.
    pub fn new(value: T) -> Self {
        Self { link: Link::new(), _invariant: PhantomData, value }
    }

    /// The value, when nobody else can see it.
    pub fn value_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Whether the element is in a list at some recent moment; waits while another thread holds it. One load
    /// of the element's line.
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

/// A reference to an [`Item`] that a list can own: `Box<Item<T>>`, `Arc<Item<T>>`, a pooled one.
///
/// # Safety
/// - The item stays where it is, and alive, from [`into_raw`](Self::into_raw) to
///   [`from_raw`](Self::from_raw).
/// - The pointer is the one that `from_raw` gets later, on whichever thread that is.
/// - A handle that went in as a subtype may come out as the type of the list: the handle's type promises
///   nothing, by a lifetime of its own, that is not in the type of its [`Item`], which is invariant.
pub unsafe trait Handle: Sized {
    /// The value of the item.
    type Value;

    /// Gives the reference up without releasing it.
    fn into_raw(self) -> NonNull<Item<Self::Value>>;

    /// Takes the reference back.
    ///
    /// # Safety
    /// `item` comes from [`into_raw`](Self::into_raw), and each call of that is undone at most once.
    unsafe fn from_raw(item: NonNull<Item<Self::Value>>) -> Self;

    /// The pointer that [`into_raw`](Self::into_raw) would give, while the handle keeps its reference.
    fn as_raw(&self) -> NonNull<Item<Self::Value>>;
}

/// A [`Handle`] that is the only one to its item, so that whoever has it knows that the item is in no list.
///
/// # Safety
/// Safe code has no second handle to the same item and no way to add the item to a list without the handle.
pub unsafe trait UniqueHandle: Handle {}

// SAFETY: a box's contents stay where they are.
unsafe impl<T> Handle for Box<Item<T>> {
    type Value = T;

    #[inline]
    fn into_raw(self) -> NonNull<Item<T>> {
        NonNull::from(Box::leak(self))
    }

    #[inline]
    unsafe fn from_raw(item: NonNull<Item<T>>) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { Box::from_raw(item.as_ptr()) }
    }

    #[inline]
    fn as_raw(&self) -> NonNull<Item<T>> {
        NonNull::from(&**self)
    }
}

// SAFETY: a box is the only owner.
unsafe impl<T> UniqueHandle for Box<Item<T>> {}

// SAFETY: what an `Arc` points at stays where it is while one reference is left; the list has one.
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
        // SAFETY: as the caller vouches.
        unsafe { Arc::from_raw(item.as_ptr()) }
    }

    #[inline]
    fn as_raw(&self) -> NonNull<Item<T>> {
        // SAFETY: an `Arc` never points at null.
        unsafe { NonNull::new_unchecked(Arc::as_ptr(self).cast_mut()) }
    }
}

/// Why an element was not added: it is in a list already. Holds the handle that was to be added.
#[derive(Debug, PartialEq, Eq)]
pub struct AddError<H>(
    /// What was to be added.
    pub H,
);

impl<H> fmt::Display for AddError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the element is in a list already: delete it first")
    }
}

impl<H: fmt::Debug> std::error::Error for AddError<H> {}

/// Why an element was not inserted. Holds the handle that was to be added.
#[derive(Debug, PartialEq, Eq)]
pub enum InsertError<H> {
    /// It is in a list already.
    InList(H),
    /// The element to insert it next to is in no list.
    PlaceNotInList(H),
}

impl<H> InsertError<H> {
    /// What was to be added.
    pub fn into_inner(self) -> H {
        match self {
            Self::InList(handle) | Self::PlaceNotInList(handle) => handle,
        }
    }
}

impl<H> fmt::Display for InsertError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InList(_) => "the element is in a list already: delete it first",
            Self::PlaceNotInList(_) => "the element to insert next to is in no list: add to an end instead",
        })
    }
}

impl<H: fmt::Debug> std::error::Error for InsertError<H> {}

/// A list that owns one reference to each of its elements. Adding gives it, pop and delete give it back.
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
/// With handles that can be copied an element can be deleted by whoever has one:
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
/// A boxed element is gone when it was added:
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
/// What lives shorter than the list's own type says cannot get in:
/// ```compile_fail
/// # use manylane_list::{Item, OwningList};
/// let list: OwningList<Box<Item<&'static str>>> = OwningList::new();
/// let word = String::from("short");
/// fn add<'a>(list: &OwningList<Box<Item<&'a str>>>, word: &'a str) { list.add(Box::new(Item::new(word))) }
/// add(&list, &word);
/// let kept: &'static str = list.pop().map(|item| **item).unwrap_or_default();
/// ```
pub struct OwningList<H: Handle> {
    /// Fixed. On the heap, so that the list may move.
    head: NonNull<CachePadded<Link>>,
    /// The list owns handles.
    _owns: PhantomData<H>,
    /// Invariant: it takes them and gives them back through a shared reference.
    _invariant: PhantomData<fn(H) -> H>,
}

// SAFETY: the list owns handles, which go where it goes.
unsafe impl<H: Handle + Send> Send for OwningList<H> {}
// SAFETY: a shared list takes handles on one thread and gives them out on another; it gives no references.
unsafe impl<H: Handle + Send> Sync for OwningList<H> {}

impl<H: Handle> OwningList<H> {
    /// An empty list. Allocates its head.
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
        // SAFETY: the only handle to an item: it is out, and nobody else can lock it before it is linked.
        unsafe { self.add_unchecked(handle) }
    }

    /// Adds an element as the last. Cost: two locked instructions; one when the list is empty.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn add_tail(&self, handle: H)
    where
        H: UniqueHandle,
    {
        // SAFETY: the only handle to an item: it is out, and nobody else can lock it before it is linked.
        unsafe { self.add_tail_unchecked(handle) }
    }

    /// Adds an element as the first, without the locked instruction that makes sure that it is out.
    ///
    /// # Safety
    /// The element is in no list, and no other thread adds it, inserts next to it or deletes it meanwhile.
    ///
    /// # Panics
    /// In debug builds, when the element is in a list.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub unsafe fn add_unchecked(&self, handle: H) {
        debug_must_be_out(&handle);
        let item = handle.into_raw();
        // SAFETY: as the caller vouches; the handle that the list owns now keeps it valid.
        unsafe { raw::add_head::<false>(self.head_ptr(), item.as_ptr().cast()) };
    }

    /// Adds an element as the last, without the locked instruction that makes sure that it is out.
    ///
    /// # Safety
    /// As [`add_unchecked`](Self::add_unchecked).
    ///
    /// # Panics
    /// In debug builds, when the element is in a list.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub unsafe fn add_tail_unchecked(&self, handle: H) {
        debug_must_be_out(&handle);
        let item = handle.into_raw();
        // SAFETY: as the caller vouches; the handle that the list owns now keeps it valid.
        unsafe { raw::add_tail::<false>(self.head_ptr(), item.as_ptr().cast()) };
    }

    /// Adds an element as the first, unless it is in a list. Many threads may try with the same element: one
    /// wins.
    ///
    /// Cost: two locked instructions, on the element and the head.
    ///
    /// # Errors
    /// [`AddError`] with the handle when the element is in a list, this one or another.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn try_add(&self, handle: H) -> Result<(), AddError<H>> {
        let item = handle.into_raw();
        // SAFETY: the handle keeps it valid, whoever owns that.
        match unsafe { raw::add_head::<true>(self.head_ptr(), item.as_ptr().cast()) } {
            Added::Yes => Ok(()),
            // SAFETY: the list has not taken it.
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
        // SAFETY: the handle keeps it valid, whoever owns that.
        match unsafe { raw::add_tail::<true>(self.head_ptr(), item.as_ptr().cast()) } {
            Added::Yes => Ok(()),
            // SAFETY: the list has not taken it.
            _ => Err(AddError(unsafe { H::from_raw(item) })),
        }
    }

    /// Adds an element right after `place`, into whichever list that is in, unless the element is in a list.
    ///
    /// Cost: three locked instructions, on the element, `place` and the one after it.
    ///
    /// # Errors
    /// [`InsertError`] with the handle. An element is never in a list and out of it, so `place` itself is
    /// refused too.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn insert_after(handle: H, place: &H) -> Result<(), InsertError<H>> {
        let (item, place) = (handle.into_raw(), place.as_raw());
        if item == place {
            // SAFETY: no list has taken it.
            return Err(InsertError::PlaceNotInList(unsafe { H::from_raw(item) }));
        }
        // SAFETY: both handles keep their items valid, and the items differ.
        let added = unsafe { raw::insert_after::<true>(place.as_ptr().cast(), item.as_ptr().cast()) };
        // SAFETY: `item` is from `into_raw`.
        unsafe { inserted(added, item) }
    }

    /// Adds an element right before `place`; as [`insert_after`](Self::insert_after).
    ///
    /// # Errors
    /// As [`insert_after`](Self::insert_after).
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn insert_before(handle: H, place: &H) -> Result<(), InsertError<H>> {
        let (item, place) = (handle.into_raw(), place.as_raw());
        if item == place {
            // SAFETY: no list has taken it.
            return Err(InsertError::PlaceNotInList(unsafe { H::from_raw(item) }));
        }
        // SAFETY: both handles keep their items valid, and the items differ.
        let added = unsafe { raw::insert_before::<true>(place.as_ptr().cast(), item.as_ptr().cast()) };
        // SAFETY: `item` is from `into_raw`.
        unsafe { inserted(added, item) }
    }

    /// Takes the element out of whichever list it is in and gives that list's handle; `None` when it is in
    /// none.
    ///
    /// Cost: three locked instructions, on the element and its neighbours; two for the only element.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn delete(element: &H) -> Option<H> {
        let item = element.as_raw();
        // SAFETY: `element` keeps it valid.
        let deleted = unsafe { raw::delete(item.as_ptr().cast(), ptr::null_mut(), &mut Wait::new()) };
        // SAFETY: the list's own handle, which it has just given up.
        deleted.then(|| unsafe { H::from_raw(item) })
    }

    /// Takes the first element out and gives the list's handle; `None` when the list is empty.
    ///
    /// Cost: three locked instructions; two for the only element; one when empty.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn pop(&self) -> Option<H> {
        // SAFETY: the head lives as long as the list.
        let el = unsafe { raw::pop(self.head_ptr())? };
        // SAFETY: popped and held; every link of this list but the head is the first field of an `Item`,
        // added by `into_raw`. The list's handle keeps it valid until it is given out.
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

    /// Whether the list had no element at some recent moment. One load of the head's line.
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

/// What [`raw`] said about an insertion, with the handle given back when it was not made.
///
/// # Safety
/// `item` is from `into_raw`, and the insertion with it gave `added`.
#[inline]
unsafe fn inserted<H: Handle>(added: Added, item: NonNull<Item<H::Value>>) -> Result<(), InsertError<H>> {
    match added {
        Added::Yes => Ok(()),
        // SAFETY: no list has taken it, so the handle is ours.
        Added::WasInList => Err(InsertError::InList(unsafe { H::from_raw(item) })),
        // SAFETY: as above.
        Added::PlaceIsOut => Err(InsertError::PlaceNotInList(unsafe { H::from_raw(item) })),
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
        // A thread that is just deleting one of the elements is waited for: it holds the element or the head.
        while self.pop().is_some() {}
        // SAFETY: from `Box::leak` in `new`; the list is empty, so nothing points at the head.
        drop(unsafe { Box::from_raw(self.head.as_ptr()) });
    }
}

impl<H: Handle> fmt::Debug for OwningList<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwningList").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}
