//! Defects: a panic ends the stream that it is met in, and nothing else.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// What `work` gives; none if it panicked, which the panic hook has told. What it held was let go then, as at
/// any other end, and it must not be polled again.
///
/// Cost: a call that is not inlined for each poll.
pub(crate) async fn caught<W: Future>(mut work: Pin<&mut W>) -> Option<W::Output> {
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(polled) => polled.map(Some),
        Err(panic) => {
            // What it was told with may panic when it is dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
            Poll::Ready(None)
        }
    })
    .await
}
