//! A future in a block of its own, for state that a task needs only for a while.
//!
//! A future is as large as the largest future that it ever awaits. If a task awaits that one rarely, or for a
//! short part of its life, a [`Boxed`] holds it meanwhile, and the task is small for the rest of its life.

use crate::error::SpawnError;
use crate::memory;
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// A future with the output `T`, in a block of the lane's cache. It may borrow for `'a`, and stays on its
/// lane.
///
/// Dropping it frees the block; completion of the future does not.
///
/// ```
/// use manylane_sched::{Boxed, Config, Lane, ThreadPoller};
///
/// let mut lane = Lane::new(Config::new())?;
/// let length = lane.block_on(&mut ThreadPoller::new(), async {
///     let text = String::from("a text");
///     let work = Boxed::new(|| async { text.len() }).expect("there is memory");
///     work.await
/// });
/// assert_eq!(length?, 6);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a future does nothing before it is polled"]
pub struct Boxed<'a, T: 'static> {
    block: NonNull<u8>,
    vtable: &'static VTable<T>,
    future: PhantomData<Box<dyn Future<Output = T> + 'a>>,
}

/// Functions that depend on the future's type.
struct VTable<T> {
    poll: unsafe fn(NonNull<u8>, &mut Context<'_>) -> Poll<T>,
    /// Drops the future, complete or not, and frees the block.
    release: unsafe fn(NonNull<u8>),
}

/// Layout of the block for a future: at least one byte, so that each has a block.
const fn layout<F>() -> Layout {
    if size_of::<F>() == 0 { Layout::new::<u8>() } else { Layout::new::<F>() }
}

/// A block without a future, or with one whose destructor runs. Freed also if that destructor panics.
struct Block<F>(NonNull<F>);

impl<F> Drop for Block<F> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `Boxed::new` took it with this layout, and nothing uses its contents any more.
        unsafe { memory::give(self.0.cast(), layout::<F>()) };
    }
}

struct Of<F>(PhantomData<F>);

impl<F: Future> Of<F>
where
    F::Output: 'static,
{
    const VTABLE: VTable<F::Output> = VTable { poll: Self::poll, release: Self::release };

    /// # Safety
    /// The block holds an `F`, which does not move before its release, and whose `Boxed` is borrowed
    /// exclusively.
    unsafe fn poll(block: NonNull<u8>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: by contract.
        unsafe { Pin::new_unchecked(block.cast::<F>().as_mut()) }.poll(context)
    }

    /// # Safety
    /// The block came from [`Boxed::new`] and holds an `F`; neither is used again.
    unsafe fn release(block: NonNull<u8>) {
        let block = Block::<F>(block.cast());
        // SAFETY: by contract the block holds an `F`, to which no other reference exists.
        unsafe { block.0.drop_in_place() };
    }
}

impl<'a, T: 'static> Boxed<'a, T> {
    /// Allocates a block, then calls `make` to create the future in it: a large future is built in place,
    /// without a move.
    ///
    /// Cost: a block from the lane's cache.
    ///
    /// # Errors
    /// [`SpawnError`] if there is no memory; then `make` is dropped.
    #[inline(always)] // otherwise the future would be built elsewhere and moved
    pub fn new<F: Future<Output = T> + 'a>(make: impl FnOnce() -> F) -> Result<Self, SpawnError> {
        const { assert!(size_of::<F>() > 0 || align_of::<F>() == 1, "nothing that has no size is aligned") };
        let block = Block::<F>(memory::take(layout::<F>())?.cast());
        // SAFETY: a block of this layout that this function owns.
        unsafe { block.0.write(make()) };
        Ok(Self { block: ManuallyDrop::new(block).0.cast(), vtable: &Of::<F>::VTABLE, future: PhantomData })
    }
}

impl<T> Future for Boxed<'_, T> {
    type Output = T;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // SAFETY: made by `new` with this vtable, and not dropped yet.
        unsafe { (self.vtable.poll)(self.block, context) }
    }
}

impl<T> Drop for Boxed<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: made by `new` with this vtable, and never used again.
        unsafe { (self.vtable.release)(self.block) };
    }
}

impl<T> fmt::Debug for Boxed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Boxed(..)")
    }
}
