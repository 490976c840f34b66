//! `option abortonclose`: a client that leaves ends the wait of its stream.

use crate::client::Client;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// The client has left.
#[derive(Debug)]
pub(super) struct Left;

/// Runs `waiting`, unless the client leaves first. Keeps one piece of the data that the client sends
/// meanwhile, and reads no more.
pub(super) async fn unless_left<T>(client: &mut Client, waiting: impl Future<Output = T>) -> Result<T, Left> {
    let mut waiting = pin!(waiting);
    if let Some(stream) = client.end.h2() {
        return poll_fn(|context| match waiting.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => stream.poll_gone(context).map(|()| Err(Left)),
        })
        .await;
    }
    let mut received = None;
    let outcome = {
        let mut receiving = pin!(client.end.connection().recv());
        poll_fn(|context| {
            if let Poll::Ready(output) = waiting.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            if received.is_none()
                && let Poll::Ready(outcome) = receiving.as_mut().poll(context)
            {
                match outcome {
                    Ok(Some(segment)) => received = Some(segment),
                    Ok(None) | Err(_) => return Poll::Ready(Err(Left)),
                }
            }
            Poll::Pending
        })
        .await
    };
    if let Some(segment) = received {
        client.received.push_compact(segment).map_err(|_| Left)?; // without memory nothing can continue
    }
    outcome
}
