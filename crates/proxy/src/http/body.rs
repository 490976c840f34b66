//! A request's body, awaited before the request goes on: `option http-buffer-request`.

use super::Session;
use super::pump::{Broken, Pump};
use super::request::Wait;
use crate::generation::Backend;
use crate::termination::Cause;
use manylane_buf::Chain;
use manylane_expr::Data;
use manylane_h1::{Body, Request};
use manylane_http::{Head, Known, Version};
use manylane_sched::Time;
use std::pin::pin;
use std::time::Duration;

/// Why a body is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    /// It took too long.
    Late,
    /// The client left, or takes nothing, or there is no memory: nobody is to be answered.
    Left(Cause),
    /// It is not framed as it should be: the status of the answer.
    Wrong(u16),
    /// Somebody else ended the stream.
    Ended(Cause),
}

/// What is read at most of a body behind an answer of the proxy's own, in bytes, so that the connection goes
/// on. So much is read in less time than it takes to make a new connection; a client that sends more is
/// better told to leave.
const SKIPPED: u64 = 1 << 16;

impl Session<'_> {
    /// Whether the next request can follow an answer that needs no more of this body: it is here, and
    /// dropped, or the rest of it is little and [skipped](Self::skip) behind the answer. A client that waits
    /// for a 100 and is given a final response may leave the body out (RFC 9110, 10.1.1): nothing would tell
    /// its next request from the body, so the connection ends.
    pub(super) fn ends_soon(&mut self, up: &mut Pump) -> bool {
        if self.client.end.h2().is_some() {
            return true; // nothing follows on a stream, and nobody waits for what is left
        }
        up.skip(self.client.end.body(), &mut self.client.received).is_ok()
            && !up.may_be_left_out()
            && (up.is_done() || up.left().is_some_and(|left| left <= SKIPPED))
    }

    /// Reads the rest of a body that was answered without it. Whether the next request follows: the client
    /// has to send the rest in its time, and no more than [`SKIPPED`] bytes.
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
                    self.send_last(&mut Chain::new()).await; // the answer may be on its way
                    return false;
                }
            }
            if !matches!(self.wait(deadline, false).await, Wait::Bytes) {
                return false;
            }
        }
    }

    /// Waits until all of the body is there, or `least` bytes of it if that is not 0, or as much as a buffer
    /// takes. Without `time` each piece has `timeout client`.
    pub(super) async fn await_body(
        &mut self,
        request: &mut Request,
        up: &mut Pump,
        backend: Option<&Backend>,
        time: Option<Duration>,
        least: usize,
    ) -> Result<(), NoBody> {
        let here = self.local.here();
        let room = self.local.generation.process.bufsize;
        let whole = time.map(|time| here.now() + time);
        let timeouts = self.frontend.timeouts.client;
        let mut asked = !request.continue_expected || request.head.version() < Version::HTTP_11;
        loop {
            up.read_ahead(self.client.end.body(), &mut self.client.received).map_err(
                |broken| match broken {
                    Broken::Framing(found) => {
                        self.keep_request(&found, backend);
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
            if !asked {
                // Who waits to be asked is asked here, and the server need not ask again.
                asked = true;
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

/// What rules see of a request's body.
pub(super) fn data<'a>(request: &Request, up: &'a Pump) -> Data<'a> {
    let announced = match request.body {
        Body::Length(length) => Some(length),
        _ => None,
    };
    Data { bytes: Some(up.data()), complete: up.is_done(), announced, is_body: true }
}
