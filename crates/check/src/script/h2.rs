//! HTTP checks over HTTP/2: the connection of a check, without IO, with one stream for each request.
//!
//! The allowances of a peer are not restored during a check, because all of its time stamps are equal.

use super::http::Answer;
use manylane_buf::{Chain, Segment};
use manylane_h2::{Config, Connection, Event, SendError, StreamId};
use manylane_http::Head;
use std::fmt;
use std::time::Duration;

/// Time stamp of everything in a check.
const NOW: Duration = Duration::ZERO;

/// An HTTP/2 connection, and the request on it.
pub(super) struct Session {
    connection: Connection,
    /// Received bytes that are no complete frame yet.
    input: Chain,
    /// Stream of the last request, until it has ended.
    stream: Option<StreamId>,
    /// The rest of the request's body.
    body: Chain,
}

impl Session {
    /// Creates a session on a new connection. Returns `None` without memory.
    pub(super) fn new() -> Option<Box<Self>> {
        let connection = Connection::client(Config::default(), NOW).ok()?;
        Some(Box::new(Self { connection, input: Chain::new(), stream: None, body: Chain::new() }))
    }

    /// Begins a stream with this request. An earlier request is reset.
    ///
    /// # Errors
    /// [`SendError`]
    pub(super) fn request(&mut self, head: &Head, body: &[u8]) -> Result<(), SendError> {
        if let Some(before) = self.stream.take() {
            self.connection.reset(before, manylane_h2::Reason::CANCEL)?;
        }
        self.body.clear();
        self.body.append(body).map_err(|_| SendError::NoMemory)?;
        self.stream = Some(self.connection.send_request(head, b"http", None, body.is_empty())?);
        self.send_body()
    }

    /// Sends as much of the body as the windows allow.
    fn send_body(&mut self) -> Result<(), SendError> {
        if let Some(stream) = self.stream
            && !self.body.is_empty()
        {
            self.connection.send_data(NOW, stream, &mut self.body, true)?;
        }
        Ok(())
    }

    /// Returns the bytes to send; empty for none.
    pub(super) fn output(&mut self) -> Vec<u8> {
        let (mut out, mut bytes) = (Chain::new(), Vec::new());
        // Without memory, nothing is sent, and the check times out.
        if self.connection.poll_output(&mut out).is_ok() {
            out.segments().for_each(|segment| bytes.extend_from_slice(segment));
        }
        bytes
    }

    /// Handles received bytes. If the server resets the stream, or the connection fails, the answer ends as
    /// it is.
    pub(super) fn receive(&mut self, segment: &Segment, answer: &mut Answer) {
        // Copied, because a cluster for each byte would take much memory.
        let mut more = self.input.append(segment).is_ok();
        while more && let Ok(true) = self.connection.handle_input(NOW, &mut self.input) {
            while let Some(event) = self.connection.poll_event() {
                more &= self.happened(event, answer).is_ok();
            }
        }
        if !more || self.connection.error().is_some() || self.send_body().is_err() {
            answer.end();
        }
    }

    fn happened(&mut self, event: Event, answer: &mut Answer) -> Result<(), SendError> {
        match event {
            Event::Response { stream, response, end } if Some(stream) == self.stream => {
                answer.begin(response.head);
                self.ended(end, answer);
            }
            Event::Data { stream, data, end } => {
                self.connection.consume(stream, data.len())?;
                if Some(stream) == self.stream {
                    answer.add(&data);
                    self.ended(end, answer);
                }
            }
            Event::Trailers { stream, .. } | Event::Reset { stream, .. } if Some(stream) == self.stream => {
                self.ended(true, answer);
            }
            _ => {}
        }
        Ok(())
    }

    fn ended(&mut self, end: bool, answer: &mut Answer) {
        if end {
            self.stream = None;
            answer.end();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("stream", &self.stream).finish_non_exhaustive()
    }
}
