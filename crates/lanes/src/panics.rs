//! What ends a stream, and nothing else: a panic in it, and growth while memory is short.

use manylane_plan::Cause;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// Tells whether a poll has taken memory that is kept for allocations which must not fail
/// ([`manylane_pool::taken_while_short`]).
pub struct Growth(isize);

impl Growth {
    /// Begins before a poll.
    #[inline]
    pub fn begin() -> Self {
        Self(manylane_pool::taken_while_short())
    }

    /// Returns true if memory was taken since [`begin`](Self::begin).
    #[inline]
    pub fn has_happened(&self) -> bool {
        manylane_pool::taken_while_short() > self.0
    }
}

/// Runs `work`, which must not be polled again afterwards.
///
/// Cost: one call for each poll that is not inlined.
///
/// # Errors
/// - [`Cause::Internal`]: it panicked, which the panic hook has reported. The panic has dropped its state.
/// - [`Cause::Resource`]: memory is short and `work` has taken some, which is freed with `work`.
pub async fn caught<W: Future>(mut work: Pin<&mut W>) -> Result<W::Output, Cause> {
    poll_fn(|context| {
        let growth = Growth::begin();
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) if growth.has_happened() => Poll::Ready(Err(Cause::Resource)),
            Ok(polled) => polled.map(Ok),
            Err(panic) => {
                // The payload of the panic may panic when it is dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
                Poll::Ready(Err(Cause::Internal))
            }
        }
    })
    .await
}
