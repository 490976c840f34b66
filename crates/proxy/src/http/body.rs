//! Waits for a request's body before the proxy forwards the request: `option http-buffer-request`.

use super::pump::{Broken, Pump};
use super::request::Wait;
use super::stream::Stream;
use manylane_buf::Chain;
use manylane_expr::Data;
use manylane_h1::{Body, Request};
use manylane_http::{Head, Known, Version};
use manylane_plan::Cause;
use manylane_plan::generation::Backend;
use manylane_rules::EvalPhase;
use manylane_sched::Time;
use std::pin::pin;
use std::time::Duration;

/// Reason why a body did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    /// The time ran out.
    Late,
    /// The client left or takes no data, or there is no memory: no response is sent.
    Left(Cause),
    /// The framing of the body is invalid. Holds the status of the response.
    Wrong(u16),
    /// Something other than the client ended the stream.
    Ended(Cause),
}

/// Most bytes of a request's body that the proxy reads and drops behind a response of its own, so that the
/// connection can be used again. Reading this many takes less time than a new connection; for more, it is
/// cheaper to close the connection.
const SKIPPED: u64 = 1 << 16;

impl Stream<'_> {
    /// Returns true if the next request can follow a response that needs no more of this body. That holds if
    /// the body has arrived and was dropped, or if few bytes remain, which the caller [skips](Self::skip)
    /// behind the response.
    ///
    /// A client that waits for a 100 and receives a final response may omit the body (RFC 9110, 10.1.1). The
    /// proxy could not tell its next request from the body, so the connection ends.
    pub(super) fn ends_soon(&mut self, up: &mut Pump) -> bool {
        if self.client.end.h2().is_some() {
            return true; // nothing follows on a stream of HTTP/2, and the stream's end discards the rest
        }
        up.skip(self.client.end.body(), &mut self.client.received).is_ok()
            && !up.may_be_left_out()
            && (up.is_done() || up.left().is_some_and(|left| left <= SKIPPED))
    }

    /// Reads and drops the rest of a body behind the response. Returns true if the next request can follow:
    /// the client has to send the rest within `timeout http-request`, else `timeout client`, and no more than
    /// about [`SKIPPED`] bytes.
    pub(super) async fn skip(&mut self, up: &mut Pump) -> bool {
        let time = self.frontend.timeouts.request.or(self.frontend.timeouts.client);
        let deadline = time.map_or(Time::MAX, |time| self.local.here().now() + time);
        let mut skipped = 0;
        loop {
            let there = self.client.received.len();
            let skipping = up.skip(self.client.end.body(), &mut self.client.received);
            skipped += (there - self.client.received.len()) as u64;
            match skipping {
                Ok(()) if up.is_done() => return true,
                Ok(()) if skipped <= SKIPPED => {}
                _ => {
                    self.send_last(&mut Chain::new()).await; // part of the response may be unsent
                    return false;
                }
            }
            if !matches!(self.wait(deadline, false).await, Wait::Bytes) {
                return false;
            }
        }
    }

    /// Waits until the whole body has arrived, or `least` bytes if that is not 0, or as many bytes as a
    /// buffer holds. `time` bounds the whole wait; without it, each piece has `timeout client`.
    pub(super) async fn await_body(
        &mut self,
        request: &mut Request,
        up: &mut Pump,
        time: Option<Duration>,
        least: usize,
    ) -> Result<(), NoBody> {
        let here = self.local.here();
        let room = self.local.generation.process.bufsize;
        let whole = time.map(|time| here.now() + time);
        let timeouts = self.frontend.timeouts.client;
        let mut requested = !request.continue_expected || request.head.version() < Version::HTTP_11;
        loop {
            up.read_ahead(self.client.end.body(), &mut self.client.received).map_err(
                |broken| match broken {
                    Broken::Framing(found) => {
                        self.keep_request(&found);
                        NoBody::Wrong(found.error.status)
                    }
                    Broken::Sender | Broken::Receiver => NoBody::Left(Cause::ClientLeft),
                    Broken::Memory => NoBody::Left(Cause::Resource),
                },
            )?;
            self.unsent.set(self.came + up.data().len() as u64);
            let enough = if least == 0 { room } else { least.min(room) };
            if up.is_done() || up.data().len() >= enough {
                self.note(|record| record.request = Some(record.age(here.now())));
                return Ok(());
            }
            if !requested {
                // The client waits for a 100: the proxy sends it here, and the server need not.
                requested = true;
                request.head.remove_fields(Known::EXPECT);
                request.continue_expected = false;
                let gone = NoBody::Left(Cause::ClientLeft);
                let mut head = Head::response(Version::HTTP_11, 100, None).map_err(|_| gone)?;
                match self.send_interim(&mut head).await {
                    Ok(sent) => sent.map_err(|_| gone)?,
                    Err(Cause::ClientSilent) => return Err(NoBody::Left(Cause::ClientSilent)),
                    Err(cause) => return Err(NoBody::Ended(cause)),
                };
                up.wait_for_continue(false);
            }
            let deadline = whole.or(timeouts.map(|time| here.now() + time));
            let (local, entry) = (self.local, self.entry());
            let waiting = pin!(self.wait(deadline.unwrap_or(Time::MAX), false));
            match local.streams.unless_ended(entry, waiting).await {
                Ok(Wait::Bytes) => {}
                Ok(Wait::Late) => return Err(NoBody::Late),
                Ok(Wait::Left | Wait::Stopping) => return Err(NoBody::Left(Cause::ClientLeft)),
                Err(cause) => return Err(NoBody::Ended(cause)),
            }
        }
    }
}

/// Returns the request's body as rules see it.
pub(super) fn data<'a>(request: &Request, up: &'a Pump) -> Data<'a> {
    let announced = match request.body {
        Body::Length(length) => Some(length),
        _ => None,
    };
    Data { bytes: Some(up.data()), complete: up.is_done(), announced, is_body: true }
}

/// Returns the phase in which the rules of a backend see a request and what was read of its body.
pub(super) fn phase_of<'a>(request: &'a Request, up: &'a Pump, backend: &'a Backend) -> EvalPhase<'a> {
    EvalPhase {
        request: Some(&request.head),
        request_data: data(request, up),
        backend: Some(backend),
        ..EvalPhase::default()
    }
}
