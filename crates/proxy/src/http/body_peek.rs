//! Bodies of responses that rules read. The body is decoded from a copy of the received bytes; the proxy
//! forwards the originals.

use super::pump::Broken;
use crate::flow::BodyEnd;
use manylane_buf::Chain;
use manylane_expr::Data;
use manylane_h1::{Body, BodyReader, From, Limits, Progress};
use manylane_io::READ_AT_ONCE;
use manylane_plan::invalid::Found;
use manylane_stats::Tally;

/// The part of a body that has arrived.
#[derive(Debug)]
pub(super) struct BodyPeek {
    reader: BodyReader,
    announced: Option<u64>,
    /// Bytes that were received but not decoded.
    raw: Chain,
    data: Chain,
    /// Most bytes that rules wait for.
    most: usize,
    complete: bool,
    begun: bool,
}

/// The body of a message while it arrives.
pub(super) struct Incoming<'a> {
    pub(super) server: BodyEnd<'a>,
    pub(super) input: &'a mut Chain,
    pub(super) peek: &'a mut BodyPeek,
    /// Counts received bytes.
    pub(super) received: &'a Tally,
}

impl BodyPeek {
    pub(super) fn new(server: BodyEnd<'_>, body: Body, from: From, limits: Limits) -> Self {
        let none = matches!(body, Body::None | Body::Length(0) | Body::Tunnel);
        // Data of an HTTP/2 stream has no framing of its own; the stream reports its end.
        let framed = if server.h2().is_some() && !none { Body::UntilClose } else { body };
        Self {
            reader: BodyReader::new(framed, from, limits),
            announced: match body {
                Body::Length(length) => Some(length),
                _ => None,
            },
            raw: Chain::new(),
            data: Chain::new(),
            most: limits.head,
            complete: none,
            begun: false,
        }
    }

    /// Returns the data as expressions see it.
    pub(super) fn data(&self) -> Data<'_> {
        Data {
            bytes: Some(&self.data),
            complete: self.is_enough(0),
            announced: self.announced,
            is_body: true,
        }
    }

    /// Returns true if the wait is over: the whole body has arrived, or `least` bytes (if that is not 0), or
    /// as many as may be kept.
    pub(super) fn is_enough(&self, least: usize) -> bool {
        self.complete || least > 0 && self.data.len() >= least || self.data.len() >= self.most
    }

    /// Reads bytes that arrived before the first call.
    pub(super) fn begin(&mut self, input: &Chain) -> Result<(), Broken> {
        if !std::mem::replace(&mut self.begun, true) {
            self.add(input, 0)?;
        }
        Ok(())
    }

    /// Reads bytes that have just arrived: those of `input` from position `new` on.
    fn add(&mut self, input: &Chain, new: usize) -> Result<(), Broken> {
        let mut bytes = input.copy_range(new..).map_err(|_| Broken::Memory)?;
        self.raw.append_compact(&mut bytes).map_err(|_| Broken::Memory)?;
        self.step()
    }

    fn step(&mut self) -> Result<(), Broken> {
        if self.complete {
            return Ok(());
        }
        let mut data = Chain::new();
        let progress = self.reader.read(&mut self.raw, &mut data);
        let progress = progress.map_err(|error| Broken::Framing(Found::new(&self.raw, error)))?;
        self.data.append_compact(&mut data).map_err(|_| Broken::Memory)?;
        self.raw.gather().map_err(|_| Broken::Memory)?;
        self.data.gather().map_err(|_| Broken::Memory)?;
        self.complete = matches!(progress, Progress::Done(_));
        Ok(())
    }

    /// Marks the body as complete: no more bytes will come.
    pub(super) fn end(&mut self) {
        self.complete = true;
    }
}

/// Limit of framing bytes in a stored body, beyond as many as the data has: the longest extension of a chunk.
const FRAMING: usize = 16 << 10;

impl Incoming<'_> {
    /// Receives until the body [is enough](BodyPeek::is_enough).
    pub(super) async fn gather(&mut self, least: usize) -> Result<(), Broken> {
        self.peek.begin(self.input)?;
        // The framing is stored, too, since the body is forwarded as it was received.
        let most = 2 * self.peek.most + FRAMING;
        while !self.peek.is_enough(least) && self.input.len() < most {
            let new = self.input.len();
            let more = self.server.receive(self.input, READ_AT_ONCE).await;
            self.received.add((self.input.len() - new) as u64);
            match more {
                Ok(true) => self.peek.add(self.input, new)?,
                // The forwarder finds out whether the body may end here.
                Ok(false) => self.peek.end(),
                Err(error) => return Err(Broken::sender(error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too

    use super::super::pump::tests::{cuts, in_pieces, is_bounded, sent, with_an_end};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What was received is forwarded later; what was decoded of it, and what was not, are two more
        /// places.
        #[test]
        fn what_waits_of_a_response_takes_at_most_twice_its_bytes_and_a_cluster(
            sent in sent(),
            cuts in cuts(),
        ) {
            with_an_end(move |server| {
                let mut peek = BodyPeek::new(server, sent.framing, From::Server, Limits::default());
                let mut input = Chain::new();
                in_pieces(&sent.bytes, &cuts, |piece| {
                    let new = input.len();
                    input.push_compact(piece).unwrap();
                    prop_assert!(peek.add(&input, new).is_ok());
                    is_bounded("input", &input)?;
                    is_bounded("raw", &peek.raw)?;
                    is_bounded("data", &peek.data)
                })?;
                prop_assert_eq!((peek.data.len(), peek.complete), (sent.data, false));
                Ok(())
            })?;
        }
    }
}
