//! HTTP checks over HTTP/2: the connection of a check, without IO, and one stream for each request.
//!
//! Allowances for a peer do not come back while a check lasts: it sees one moment.

use super::http::Answer;
use manylane_buf::{Chain, Segment};
use manylane_h2::{Config, Connection, Event, SendError, StreamId};
use manylane_http::Head;
use std::fmt;
use std::time::Duration;

/// The moment at which all of a check happens.
const NOW: Duration = Duration::ZERO;

/// A connection that speaks HTTP/2, and the request on it.
pub(super) struct Session {
    connection: Connection,
    /// What came and is no complete frame.
    input: Chain,
    /// The stream of the last request, until it has ended.
    stream: Option<StreamId>,
    /// What is left of the request's body.
    body: Chain,
}

impl Session {
    /// For a connection that is there. None: there is no memory.
    pub(super) fn new() -> Option<Box<Self>> {
        let connection = Connection::client(Config::default(), NOW).ok()?;
        Some(Box::new(Self { connection, input: Chain::new(), stream: None, body: Chain::new() }))
    }

    /// Begins a stream with this request. The one before is over.
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

    /// Sends what windows allow of the body.
    fn send_body(&mut self) -> Result<(), SendError> {
        if let Some(stream) = self.stream
            && !self.body.is_empty()
        {
            self.connection.send_data(NOW, stream, &mut self.body, true)?;
        }
        Ok(())
    }

    /// What is to be sent; empty for nothing.
    pub(super) fn output(&mut self) -> Vec<u8> {
        let (mut out, mut bytes) = (Chain::new(), Vec::new());
        // Without memory the server does not answer.
        if self.connection.poll_output(&mut out).is_ok() {
            out.segments().for_each(|segment| bytes.extend_from_slice(segment));
        }
        bytes
    }

    /// These bytes came. A stream that the server resets, and a connection that breaks a rule, end the answer
    /// as it is.
    pub(super) fn receive(&mut self, segment: &Segment, answer: &mut Answer) {
        // Copied, since a cluster for each byte would be much memory.
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
