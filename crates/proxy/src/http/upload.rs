//! A request's body on its way up beside what is done for its response, and a client that is watched
//! meanwhile.

use super::pump::Broken;
use crate::flow::ClientEnd;
use manylane_buf::Segment;
use manylane_net::Connection;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// A way up that goes on beside other work.
pub(super) struct Upload<'a, F> {
    pub(super) work: Pin<&'a mut F>,
    pub(super) outcome: Option<Result<(), Broken>>,
}

impl<F: Future<Output = Result<(), Broken>>> Upload<'_, F> {
    /// What `work` gives, while this goes on. A server that takes no more of a body may still answer, so only
    /// what is wrong with the client ends both.
    ///
    /// # Errors
    /// What is wrong with the client, or with its body.
    pub(super) async fn beside<W: Future>(&mut self, mut work: Pin<&mut W>) -> Result<W::Output, Broken> {
        poll_fn(|context| self.poll_beside(work.as_mut(), context)).await
    }

    /// Goes on to its end, whatever that is.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &self.outcome {
            Some(_) => Poll::Ready(()),
            None => self.work.as_mut().poll(context).map(|outcome| self.outcome = Some(outcome)),
        }
    }

    #[inline]
    fn poll_beside<W: Future>(
        &mut self,
        work: Pin<&mut W>,
        context: &mut Context<'_>,
    ) -> Poll<Result<W::Output, Broken>> {
        if self.outcome.is_none()
            && let Poll::Ready(outcome) = self.work.as_mut().poll(context)
        {
            match outcome {
                Err(broken @ (Broken::Sender | Broken::Framing(_) | Broken::Memory)) => {
                    let is_memory = matches!(broken, Broken::Memory);
                    self.outcome = Some(Err(if is_memory { Broken::Memory } else { Broken::Sender }));
                    return Poll::Ready(Err(broken));
                }
                outcome => self.outcome = Some(outcome),
            }
        }
        work.poll(context).map(Ok)
    }

    /// [`beside`](Self::beside), which also ends when the client leaves in this way, though nobody waits for
    /// it: what is wrong then is the [`Sender`](Broken::Sender) where its connection failed, and that
    /// there is no [`Receiver`](Broken::Receiver) where it has closed its side.
    pub(super) async fn while_there<W: Future>(
        &mut self,
        mut work: Pin<&mut W>,
        client: &ClientEnd,
        watched: &mut Watched,
        leaving: Option<Leaving>,
    ) -> Result<W::Output, Broken> {
        let connection = client.whole().filter(|connection| connection.is_pollable() && leaving.is_some());
        let mut receiving = pin!(connection.map(Connection::recv));
        poll_fn(|context| {
            if let Poll::Ready(output) = self.poll_beside(work.as_mut(), context) {
                return Poll::Ready(output);
            }
            // One that ends its stream is not interested any more, whatever is configured.
            if let Some(stream) = client.h2()
                && stream.poll_gone(context).is_ready()
            {
                return Poll::Ready(Err(Broken::Sender));
            }
            // As long as a body goes up, that is who hears of the client.
            if self.outcome.is_some()
                && watched.received.is_none()
                && !watched.closed
                && !watched.unseen
                && let Some(receiving) = receiving.as_mut().as_pin_mut()
                && let Poll::Ready(received) = receiving.poll(context)
            {
                match received {
                    Ok(Some(segment)) => watched.received = Some(segment),
                    Ok(None) => watched.closed = true,
                    // Nothing is known of the client when there is no room for what it sends.
                    Err(error) if error.is_own() => watched.unseen = true,
                    Err(_) => return Poll::Ready(Err(Broken::Sender)),
                }
            }
            if watched.closed && leaving == Some(Leaving::Closed) {
                return Poll::Ready(Err(Broken::Receiver));
            }
            Poll::Pending
        })
        .await
    }
}

/// What was seen of a client that is watched.
#[derive(Default)]
pub(super) struct Watched {
    /// A piece of what follows its request. No more is asked for.
    pub(super) received: Option<Segment>,
    /// It has closed its side.
    pub(super) closed: bool,
    /// It cannot be watched any more.
    pub(super) unseen: bool,
}

/// How a client leaves, to those who watch it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It takes no more.
    Reset,
    /// It sends no more, which may mean that it takes no more: `option abortonclose`.
    Closed,
}
