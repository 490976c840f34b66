//! A request's body, awaited before the request goes on: `option http-buffer-request`.

use super::Session;
use super::pump::{Broken, Pump};
use super::request::Wait;
use crate::generation::Backend;
use crate::termination::Cause;
use manylane_buf::Chain;
use manylane_expr::Data;
use manylane_h1::{Body, Request};
use manylane_http::{Known, Version};
use std::pin::pin;
use std::time::Duration;

/// Why a body is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    /// It took too long.
    Late,
    /// The client left, or there is no memory.
    Left,
    /// It is not framed as it should be: the status of the answer.
    Wrong(u16),
    /// Somebody else ended the stream.
    Ended(Cause),
}

impl Session<'_> {
    /// Waits until all of the body is there, or `least` bytes of it if that is not 0, or as much as a buffer takes. Without `time` each piece has `timeout client`.
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
        let patience = self.frontend.timeouts.client;
        let mut asked = !request.continue_expected || request.head.version() < Version::HTTP_11;
        loop {
            up.read_ahead(&mut self.client.received).map_err(|broken| match broken {
                Broken::Framing(found) => {
                    self.keep_request(&found, backend);
                    NoBody::Wrong(found.error.status)
                }
                Broken::Sender | Broken::Receiver | Broken::Memory => NoBody::Left,
            })?;
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
                let mut out = Chain::new();
                out.append(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|_| NoBody::Left)?;
                self.client.connection.send(&mut out).await.map_err(|_| NoBody::Left)?;
            }
            let deadline = whole.or(patience.map(|time| here.now() + time));
            let (local, entry) = (self.local, self.entry());
            let waiting = pin!(self.wait(deadline.unwrap_or(manylane_sched::Time::MAX), false));
            match local.streams.unless_ended(entry, waiting).await {
                Ok(Wait::Bytes) => {}
                Ok(Wait::Late) => return Err(NoBody::Late),
                Ok(Wait::Left | Wait::Stopping) => return Err(NoBody::Left),
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
