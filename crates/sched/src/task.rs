//! A task in memory: the scheduler's header and the future, in one block.

use crate::class::Class;
use crate::error::SpawnError;
use crate::inbox::Node;
use crate::kind::TaskKind;
use crate::memory;
use crate::own::Own;
use std::alloc::Layout;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// The beginning of each task's block. Only its lane touches it, except that the sender of a task owns it
/// until it is in the inbox.
#[repr(C)]
pub(crate) struct Header {
    /// Link for the way to another lane. First, so that a pointer to it is a pointer to the header.
    pub(crate) node: Node,
    vtable: &'static VTable,
    pub(crate) kind: &'static TaskKind,
    /// Time of the wake-up, in nanoseconds of the lane's clock; 0 if unknown. For profiling.
    pub(crate) woken_at: Own<u64>,
}

/// Functions that depend on the future's type.
struct VTable {
    /// Polls the future; `true` once it is complete.
    poll: unsafe fn(NonNull<Header>, &mut Context<'_>) -> bool,
    /// Drops the future, complete or not, and frees the block.
    release: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Task<F> {
    header: Header,
    future: F,
}

impl<F: Future<Output = ()> + 'static> Task<F> {
    const VTABLE: VTable = VTable { poll: Self::poll, release: Self::release };

    unsafe fn poll(task: NonNull<Header>, context: &mut Context<'_>) -> bool {
        // SAFETY: the vtable belongs to a block that holds a `Task<F>`, which never moves before its release.
        // Only the future is borrowed exclusively: the lane polls one task at a time, and no other reference
        // to the future exists.
        let future = unsafe { Pin::new_unchecked(&mut (*task.cast::<Self>().as_ptr()).future) };
        matches!(future.poll(context), Poll::Ready(()))
    }

    unsafe fn release(task: NonNull<Header>) {
        /// Frees the block even if the future's destructor panics.
        struct Block<F>(NonNull<Task<F>>);
        impl<F> Drop for Block<F> {
            fn drop(&mut self) {
                // SAFETY: `new` took it with this layout, and its contents have been dropped.
                unsafe { memory::give(self.0.cast(), Layout::new::<Task<F>>()) };
            }
        }
        let block = Block(task.cast::<Self>());
        // SAFETY: the caller has the only reference to the task.
        unsafe { block.0.drop_in_place() };
    }
}

/// Makes a future in a block of its own. The caller owns it.
#[inline(always)] // else the future would be made elsewhere, and copied
pub(crate) fn create<F: Future<Output = ()> + 'static>(
    kind: &'static TaskKind,
    class: Class,
    make: impl FnOnce() -> F,
) -> Result<NonNull<Header>, SpawnError> {
    let block = memory::take(Layout::new::<Task<F>>())?.cast::<Task<F>>();
    let header = Header {
        node: Node::new(Node::TASK | class as u32),
        vtable: &Task::<F>::VTABLE,
        kind,
        woken_at: Own::new(0),
    };
    // SAFETY: a block of this layout that is ours. Should `make` panic, the block is lost and nothing else.
    unsafe {
        (&raw mut (*block.as_ptr()).future).write(make());
        (&raw mut (*block.as_ptr()).header).write(header);
    }
    Ok(block.cast())
}

/// Polls a task; `true` once its future is complete.
///
/// # Safety
/// The task lives, belongs to the calling lane, and is not being polled.
#[inline(always)]
pub(crate) unsafe fn poll(task: NonNull<Header>, context: &mut Context<'_>) -> bool {
    // SAFETY: by contract.
    unsafe { (task.as_ref().vtable.poll)(task, context) }
}

/// Drops a task.
///
/// # Safety
/// The task lives, no other reference to it exists, and it is not being polled. The caller may be on another
/// lane only before the task's first poll, while the task is as its sender created it.
#[inline(always)]
pub(crate) unsafe fn release(task: NonNull<Header>) {
    // SAFETY: by contract.
    unsafe { (task.as_ref().vtable.release)(task) };
}

const _: () = {
    assert!(std::mem::offset_of!(Header, node) == 0);
    assert!(
        cfg!(any(loom, manylane_sim)) || size_of::<Header>() <= 40,
        "a future of 24 bytes shares the header's line"
    );
};
