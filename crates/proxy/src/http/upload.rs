//! Uploads a request's body while other work handles the response, and watches the client meanwhile.

use super::pump::Broken;
use crate::flow::ClientEnd;
use manylane_buf::Segment;
use manylane_net::Connection;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// Upload of a body that runs beside other work.
pub(super) struct Upload<'a, F> {
    pub(super) work: Pin<&'a mut F>,
    pub(super) outcome: Option<Result<(), Broken>>,
}

impl<F: Future<Output = Result<(), Broken>>> Upload<'_, F> {
    /// Runs `work` and the upload, and returns the output of `work`. A server that takes no more of a body
    /// may still respond, so only a failure of the client ends both.
    ///
    /// # Errors
    /// The failure of the client, or the violation in its body.
    pub(super) async fn beside<W: Future>(&mut self, mut work: Pin<&mut W>) -> Result<W::Output, Broken> {
        poll_fn(|context| self.poll_beside(work.as_mut(), context)).await
    }

    /// Runs the upload alone until it ends, successfully or not.
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

    /// Like [`beside`](Self::beside), but also ends when the client leaves as `leaving` says. The error is
    /// [`Sender`](Broken::Sender) if the client's connection failed, and [`Receiver`](Broken::Receiver) if
    /// the client closed its sending side.
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
            // A client that resets its stream has left, whatever the configuration says.
            if let Some(stream) = client.h2()
                && stream.poll_gone(context).is_ready()
            {
                return Poll::Ready(Err(Broken::Sender));
            }
            // While a body goes up, the upload reads from the client.
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
                    // Without memory for its data, the client's state is unknown.
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

/// State of a watched client.
#[derive(Default)]
pub(super) struct Watched {
    /// A piece of what follows the request. No more is read.
    pub(super) received: Option<Segment>,
    /// The client has closed its sending side.
    pub(super) closed: bool,
    /// The client cannot be watched any more.
    pub(super) unseen: bool,
}

/// What a watched client did when it stopped sending.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// The client resets the connection.
    Reset,
    /// The client closes its sending side, which may mean that it has left: `option abortonclose`.
    Closed,
}
