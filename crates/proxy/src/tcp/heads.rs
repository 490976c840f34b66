//! HTTP heads in the bytes that rules of TCP inspect. `tests/drips.rs` includes this file.

use manylane_buf::Chain;
use manylane_expr::Direction;
use manylane_h1::{Leniency, Limits, RequestInfo, RequestParser, ResponseParser};
use manylane_http::{Head, Method};

/// Returns the limits for heads that are only inspected and then forwarded unchanged: with every relaxation.
/// A rule that refuses a path must see the path in each form that the server may accept.
fn inspection_limits() -> Limits {
    Limits { lenient: Leniency::ALL, relaxed: true, ..Limits::default() }
}

/// Parser for the HTTP head that the bytes may begin with. It reads each byte once, however they arrive.
pub(crate) struct Heads {
    /// `None` once a head is no longer possible.
    parser: Option<Parser>,
    /// Number of received bytes at the last call.
    parsed: usize,
    /// Number of received bytes before the message: of empty lines.
    skipped: usize,
    pub(crate) head: Option<Head>,
}

enum Parser {
    Request(RequestParser),
    Response(ResponseParser),
}

impl Heads {
    pub(crate) fn new(side: Direction) -> Self {
        let limits = inspection_limits();
        let parser = match side {
            Direction::Request => Parser::Request(RequestParser::new(limits)),
            Direction::Response => Parser::Response(ResponseParser::new(limits)),
        };
        Self { parser: Some(parser), parsed: 0, skipped: 0, head: None }
    }

    /// Parses the bytes that arrived since the last call. There is no head if the bytes are not a message or
    /// there is no memory.
    pub(crate) fn parse(&mut self, received: &Chain) {
        let Some(parser) = &mut self.parser else { return };
        if self.parsed == received.len() {
            return;
        }
        self.parsed = received.len();
        // The parser gets views of the bytes, so a copy that it makes to have them in one piece ends with
        // this call.
        let mut bytes = received.copy_range(self.skipped..).unwrap_or_default();
        let parsed = match parser {
            _ if bytes.is_empty() => Err(()),
            Parser::Request(parser) => {
                parser.parse(&mut bytes).map(|request| request.map(|request| request.head)).map_err(|_| ())
            }
            Parser::Response(parser) => {
                let info = RequestInfo { method: Method::Get, upgrade: false };
                parser
                    .parse(&mut bytes, info)
                    .map(|response| response.map(|response| response.head))
                    .map_err(|_| ())
            }
        };
        if let Ok(None) = parsed {
            self.skipped = received.len() - bytes.len();
            return;
        }
        (self.parser, self.head) = (None, parsed.ok().flatten());
    }
}

/// Returns the head of the HTTP request that the bytes begin with, if there is one.
pub(crate) fn request(received: &Chain) -> Option<Head> {
    let mut bytes = received.share().ok()?;
    Some(RequestParser::new(inspection_limits()).parse(&mut bytes).ok()??.head)
}

/// Returns the head of the HTTP response that the bytes begin with, if there is one.
pub(crate) fn response(received: &Chain) -> Option<Head> {
    let mut heads = Heads::new(Direction::Response);
    heads.parse(received);
    heads.head
}
