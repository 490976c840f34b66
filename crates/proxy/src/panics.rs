//! Panics: a panic ends the stream in which it happens, and nothing else.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// Runs `work`; returns `None` if it panicked, which the panic hook has reported. The panic has dropped the
/// state of `work`, and `work` must not be polled again.
///
/// Cost: one call for each poll that is not inlined.
pub(crate) async fn caught<W: Future>(mut work: Pin<&mut W>) -> Option<W::Output> {
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(polled) => polled.map(Some),
        Err(panic) => {
            // The payload of the panic may panic when it is dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
            Poll::Ready(None)
        }
    })
    .await
}
