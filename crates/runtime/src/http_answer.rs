//! An answer of HTTP/1 to a request of the program's own, received in parts. `tests/drips.rs`
//! includes this file.

use manylane_buf::{Chain, Segment};
use manylane_h1::{BodyReader, From, Limits, RequestInfo, ResponseParser};
use manylane_http::{Head, Method};
use std::fmt::Display;

/// An answer.
pub(super) struct HttpAnswer {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

/// Receives an answer. What it holds takes at most twice its bytes and a cluster: the bytes that are not read
/// yet, and the body.
pub(super) struct AnswerReader {
    request: RequestInfo,
    /// Largest number of bytes of the body.
    most: usize,
    parser: ResponseParser,
    pub(super) received: Chain,
    /// The head and the rest of the body, when the head is complete.
    pub(super) begun: Option<(Head, BodyReader)>,
    pub(super) body: Chain,
}

fn text(why: impl Display) -> String {
    why.to_string()
}

impl AnswerReader {
    /// Creates the reader of an answer to a request with this method, whose body has at most `most` bytes.
    pub(super) fn new(method: Method, most: usize) -> Self {
        Self {
            request: RequestInfo { method, upgrade: false },
            most,
            parser: ResponseParser::new(Limits::default()),
            received: Chain::new(),
            begun: None,
            body: Chain::new(),
        }
    }

    /// Reads more bytes. Returns the answer if it is complete.
    ///
    /// # Errors
    /// A clause that says what is wrong.
    pub(super) fn read(&mut self, segment: Segment) -> Result<Option<HttpAnswer>, String> {
        self.received.push_compact(segment).map_err(|error| text(manylane_buf::Error::from(error)))?;
        while self.begun.is_none()
            && let Some(response) = self.parser.parse(&mut self.received, self.request).map_err(text)?
        {
            if response.is_interim() {
                self.parser = ResponseParser::new(Limits::default());
                continue;
            }
            let reader = BodyReader::new(response.body, From::Server, Limits::default());
            self.begun = Some((response.head, reader));
        }
        if let Some((_, reader)) = &mut self.begun {
            let mut data = Chain::new();
            reader.read(&mut self.received, &mut data).map_err(text)?;
            self.body.append_compact(&mut data).map_err(text)?;
            if self.body.len() > self.most {
                return Err(format!("the response has more than {} bytes", self.most));
            }
        }
        let complete = self.begun.take_if(|(_, reader)| reader.is_done());
        Ok(complete.map(|(head, _)| HttpAnswer { head, body: self.body.to_vec() }))
    }

    /// Returns the answer that ends with its connection. `truncated` says that an attacker may have ended
    /// that.
    ///
    /// # Errors
    /// A clause that says what is wrong.
    pub(super) fn end(self, truncated: bool) -> Result<HttpAnswer, String> {
        let Some((head, mut reader)) = self.begun else {
            return Err("the host closed the connection without an answer".to_owned());
        };
        // A body that ends with its connection may have been cut by an attacker.
        if truncated {
            return Err("the connection ended within the answer".to_owned());
        }
        reader.end().map(|()| HttpAnswer { head, body: self.body.to_vec() }).map_err(text)
    }
}
